"""The pytest plugin: one item a claim, collected from the registry in its order, driven gate by gate.

Owns how a claim's verdict becomes a pytest outcome: broken is an AssertionError, unknown any other exception.
Knows no thresholds, no files and no server; the conductor does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from gates.errors import CheckError
from gates.harness.verdict import GateVerdict, Measure, Verdict, shown, spec_of
from gates.spec import SIGNS, GateSpec, MeasureSpec


class UnknownClaim(CheckError):  # noqa: N818  reads as what it is in a pytest report
    """Nobody can tell whether the claim holds; UNKNOWN is part of the message."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One measure of one gate, and how to get that gate's verdict (it drives the gate the first time)."""

    gate: GateSpec
    spec: MeasureSpec
    verdict_of: Callable[[GateSpec], GateVerdict]

    def settle(self) -> None:
        """Return when the claim holds; AssertionError when it is broken, UnknownClaim when unknown."""
        verdict = self.verdict_of(self.gate)
        measure = next(m for m in verdict.judgement.measures if m.id == self.spec.id)
        if measure.verdict is Verdict.FAIL and not self.spec.notice:
            raise AssertionError(explained(measure))
        if measure.verdict is Verdict.UNKNOWN:
            raise UnknownClaim(explained(measure))


class GatePlugin:
    """Hands each `claim` parameter to the rooms' tests and keeps what went wrong in pytest itself."""

    def __init__(self, gates: list[GateSpec], verdict_of: Callable[[GateSpec], GateVerdict]) -> None:
        self.errors: list[str] = []
        self._gates = {f"test_{spec.name}": spec for spec in gates}
        self._verdict_of = verdict_of

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """One item a measure for each test that takes a `claim`."""
        if "claim" not in metafunc.fixturenames:
            return
        spec = self._gates[metafunc.module.__name__.rpartition(".")[2]]
        claims = [Claim(spec, measure, self._verdict_of) for measure in spec.measures]
        metafunc.parametrize("claim", claims, ids=[claim.spec.id for claim in claims])

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A room that cannot be imported is a fault of the harness, not of the server."""
        if report.failed:
            self.errors.append(f"{report.nodeid}: {report.longreprtext}")

    def pytest_internalerror(self, excrepr: object) -> None:
        """Keep what broke inside pytest."""
        self.errors.append(str(excrepr))


def explained(measure: Measure) -> str:
    """Why a claim does not hold: what was wanted, what was found, on how many, and how to run it again."""
    spec = spec_of(measure.id)
    if measure.verdict is Verdict.UNKNOWN:
        return f"UNKNOWN {measure.id}: {spec.title}. {measure.note}"
    seen = shown(measure.value, measure.estimate, measure.judged)
    wanted = f"Expected {SIGNS[measure.better]} {measure.limit:g}, found {seen}, n = {measure.n}"
    text = f"{measure.id}: {spec.title}. {wanted}"
    if measure.interval:
        text += f", 95 % interval {measure.interval[0]:.4g} to {measure.interval[1]:.4g}"
    return f"{text}. {measure.note}" if measure.note else text
