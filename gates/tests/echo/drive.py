"""Drive of the echo gate: asks for each word in turn."""

from __future__ import annotations

from gates.harness.rig import Rig
from gates.tests.echo.plan import EchoPlan


def drive(plan: EchoPlan, rig: Rig) -> None:
    """One streamed chat a word."""
    rig.progress.cells(plan.cells)
    for word in plan.words:
        rig.progress.cell(word)
        messages = [{"role": "user", "content": f"Say {word}"}]
        rig.chat("echo", messages, fields={"word": word}, max_tokens=8)
