"""The lines of a profile that a measured run gives: least scores and usual lengths of every set and arm.

Knows no verdict; what it says is for a person to put into the profile.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Final, get_args

from gates import profile
from gates.harness.record import RunFolder
from gates.harness.stats import wilson
from gates.profile import Settings
from gates.quality import items
from gates.quality.asking import Arm
from gates.quality.items import ItemRecord

CONFIDENCE: Final = 0.99  # of the interval whose lower end is the floor
LEAST_ITEMS: Final = 5  # with fewer a floor says nothing


def lines(records: Sequence[ItemRecord], settings: Settings) -> list[str]:
    """For each arm its `min_scores` and `mean_tokens`, in the order of `sets`; 0 where too few were asked."""
    found = []
    for arm in get_args(Arm):
        sides = [_asked(records, name, arm) for name in settings.texts("sets")]
        found.append(f"{arm}_min_scores = [{', '.join(f'{_floor(side):.2f}' for side in sides)}]")
        found.append(f"{arm}_mean_tokens = [{', '.join(f'{_length(side):.0f}' for side in sides)}]")
    return found


def of_run(folder: RunFolder) -> list[str]:
    """The lines of a recorded run; none where it did not ask the quality gate."""
    run, path = folder.read_run(), folder.items(items.GATE)
    if items.GATE not in run["chosen"] or not path.is_file():
        return []
    return lines(items.read(path), profile.recorded(run, folder.path.name).table(items.GATE))


def _asked(records: Sequence[ItemRecord], name: str, arm: Arm) -> list[ItemRecord]:
    own = [r for r in records if (r.set, r.arm, r.repeat, r.server) == (name, arm, 0, "candidate")]
    return own if len(own) >= LEAST_ITEMS else []


def _floor(side: Sequence[ItemRecord]) -> float:
    """The lower end of the score's interval, rounded down: what was measured must hold it itself."""
    graded = [record.correct for record in side if record.correct is not None]
    low, _ = wilson(sum(graded), len(graded), confidence=CONFIDENCE)
    return math.floor(100 * low) / 100


def _length(side: Sequence[ItemRecord]) -> float:
    counted = [tokens for record in side if (tokens := record.completion_tokens or 0) > 0]
    return fmean(counted) if counted else 0.0
