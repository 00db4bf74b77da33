"""How long gates take: what each took here the last time, and what those of this run say of the others.

Knows run folders and budgets; shows nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gates.errors import UsageError
from gates.harness import record

LOOKED_AT: Final = 20  # runs: older ones say little of today's tree and host
LONGEST_S: Final = 7 * 86400.0  # no gate takes a week
OF_BUDGET: Final = 2 / 3  # a budget has room for a host that is half as slow again
SURE_S: Final = 60.0  # so much of a run as it was expected weighs against what is seen in its first cells


def last_minutes(runs: Path, profile: str) -> Mapping[str, float]:
    """Minutes of each gate in the newest finished run of this profile that drove it; empty without one."""
    found: dict[str, float] = {}
    for path in reversed(record.runs(runs)[-LOOKED_AT:]):
        try:
            content = record.RunFolder(path).read_verdict()
        except (
            UsageError,
            OSError,
        ):  # not judged yet, or damaged: it must not stop a new run
            continue
        if content["profile"] == profile and content["run"]["state"] == record.State.FINISHED:
            for gate in content["gates"]:
                if 0 < gate["seconds"] <= LONGEST_S:  # an edited or damaged time says nothing
                    found.setdefault(gate["name"], gate["seconds"] / 60)
    return found


def expected_minutes(budgets: Mapping[str, float], last: Mapping[str, float]) -> dict[str, float]:
    """What each gate should take: as long as the last time, else the usual part of its budget in minutes."""
    return {name: last.get(name) or OF_BUDGET * budget for name, budget in budgets.items()}


@dataclass(slots=True)
class Pace:
    """What gates of this run took, in seconds, and what they should have taken."""

    took_s: float = 0.0
    expected_s: float = 0.0

    def add(self, took_s: float, expected_s: float) -> None:
        """A gate is over."""
        self.took_s += took_s
        self.expected_s += expected_s

    def ratio(self, took_s: float, expected_s: float, share: float) -> float:
        """How much longer the gates to come will take than expected, as it looks now; 1 is as expected.

        The gate at hand looks as if it took `took_s`, and `share` of it, from 0 to 1, is done.
        """
        took = SURE_S + self.took_s + share * took_s
        return took / (SURE_S + self.expected_s + share * expected_s)
