"""What a run shows while it runs: which gate, cell n of N, time left, verdict so far.

A bar on a terminal, plain lines elsewhere. Knows nothing of servers and histories.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.text import Text

from gates.harness.pace import Pace
from gates.harness.verdict import GateVerdict, Verdict, merge, spec_of

PLAIN_EVERY_S = 60.0
STYLES = {Verdict.PASS: "bold green", Verdict.FAIL: "bold red", Verdict.UNKNOWN: "bold yellow"}


class Board:
    """Shows one run."""

    def __init__(self, console: Console, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._live: Live | None = None
        self._title = ""
        self._label = ""
        self._began = self._gate_began = self._first_cell = self._cell_began = self._shown = clock()
        self._weights: list[float] = []
        self._taken = 0
        self._expected_s = self._later_s = 0.0
        self._pace = Pace()
        self._verdicts: list[Verdict] = []

    def __enter__(self) -> Board:
        if self._console.is_terminal:
            self._live = Live(
                get_renderable=self._line, console=self._console, refresh_per_second=2, transient=True
            )
            self._live.start()
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()
            self._live = None

    def say(self, text: str) -> None:
        """One line that stays."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def gate(
        self, title: str, *, budget_minutes: float, expected_minutes: float, later_minutes: float
    ) -> None:
        """A gate starts, with its budget, what it should take, and what the gates after it should."""
        self._title, self._label = title, "starting"
        self._weights, self._taken = [], 0
        self._gate_began = self._clock()
        self._expected_s, self._later_s = expected_minutes * 60, later_minutes * 60
        self.say(f"[{_clock(self._clock() - self._began)}] {title} - budget {budget_minutes:g} min")

    def cells(self, total: int, *, weights: Sequence[float] | None = None) -> None:
        """The gate says how many cells it will take, and their relative costs if they differ."""
        self._weights = list(weights) if weights is not None else [1.0] * total

    def cell(self, label: str) -> None:
        """One cell starts; the rate counts from the first, without what the gate does before."""
        self._cell_began = self._clock()
        if self._taken == 0:
            self._first_cell = self._cell_began
        self._taken = min(self._taken + 1, max(1, len(self._weights)))
        self._label = label
        due = self._clock() - self._shown >= PLAIN_EVERY_S
        if self._live is None and (due or self._taken == 1):
            self._shown = self._clock()
            self.say(self._line().plain)

    def gate_done(self, verdict: GateVerdict) -> None:
        """A gate was judged; one that was driven before an interruption says nothing of the pace."""
        if self._taken:
            self._pace.add(self._clock() - self._gate_began, self._expected_s)
        self._verdicts.append(verdict.verdict)
        measures = [measure for measure in verdict.judgement.measures if not spec_of(measure.id).notice]
        held = sum(measure.verdict is Verdict.PASS for measure in measures)
        word = Text(verdict.verdict.upper(), style=STYLES[verdict.verdict])
        start = f"[{_clock(self._clock() - self._began)}] {self._title} - "
        end = f" - {held} of {len(measures)} claims hold, {verdict.seconds:.0f} s"
        self._console.print(Text(start) + word + Text(end), highlight=False, soft_wrap=True)
        self._title = ""

    def left_s(self) -> float | None:
        """Seconds left, by the cells that are done and the pace of this run; None before a cell is done."""
        done = sum(self._weights[: max(0, self._taken - 1)])
        if done <= 0:
            return None
        rate = (self._cell_began - self._first_cell) / done
        here_s = rate * sum(self._weights[self._taken - 1 :])
        took_s = self._cell_began - self._gate_began + here_s
        later_s = self._later_s * self._pace.ratio(took_s, self._expected_s, done / sum(self._weights))
        in_cell_s = min(self._clock() - self._cell_began, rate * self._weights[self._taken - 1])
        return here_s - in_cell_s + later_s

    def _line(self) -> Text:
        if not self._title:
            return Text("")
        left = self.left_s()
        so_far = merge(self._verdicts) if self._verdicts else None
        parts = [
            f"[{_clock(self._clock() - self._began)}] {self._title.partition(':')[0]}",
            f"about {_clock(left)} left" if left is not None else "time left not known yet",
            f"cell {self._taken} of {len(self._weights)}: {self._label}" if self._weights else self._label,
            f"so far {so_far.value if so_far else 'nothing judged'}",
        ]
        return Text(" | ".join(parts), no_wrap=True, overflow="ellipsis")


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes:02}:{rest:02}"
