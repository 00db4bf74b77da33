"""Tests of what a run shows: time left by the cost of cells, plain lines off a terminal, a bar on one."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from gates.harness.progress import Board
from gates.harness.verdict import GateVerdict, Judgement


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    """A clock at zero."""
    return Clock()


def board(clock: Clock, *, terminal: bool = False) -> tuple[Board, io.StringIO]:
    out = io.StringIO()
    return Board(Console(file=out, width=150, force_terminal=terminal), clock=clock), out


def test_time_left_follows_the_cost_of_the_cells(clock: Clock) -> None:
    shown, _ = board(clock)
    shown.gate("Needle", budget_minutes=4, expected_minutes=3, later_minutes=2)
    shown.cells(3, weights=[1.0, 8.0, 32.0])
    assert shown.left_s() is None
    clock.now = 50.0  # what a gate does before its first cell says nothing of the rate
    shown.cell("short")
    assert shown.left_s() is None

    clock.now = 52.0
    shown.cell("middle")
    pace = (60 + 132 / 41) / (60 + 180 / 41)  # 52 s are over and 80 left of a gate that should take 180
    assert shown.left_s() == pytest.approx(2.0 * 40 + 120 * pace)
    clock.now = 60.0  # what has gone of a cell counts, up to the cost of it
    assert shown.left_s() == pytest.approx(72 + 120 * pace)
    clock.now = 99.0
    assert shown.left_s() == pytest.approx(64 + 120 * pace)


def test_later_gates_are_expected_to_keep_the_pace_of_those_before(clock: Clock) -> None:
    """A run that needs two thirds of its budgets is not said to need them whole until its last gate."""
    shown, _ = board(clock)
    verdict = GateVerdict("echo", 0.0, None, Judgement(()))
    for started in (0.0, 120.0):
        clock.now = started
        shown.gate("Echo", budget_minutes=3, expected_minutes=2, later_minutes=2)
        shown.cells(2)
        shown.cell("one")
        clock.now = started + 60
        shown.cell("two")
        assert shown.left_s() == pytest.approx(60 + 120)
        clock.now = started + 120
        shown.gate_done(verdict)


def test_a_gate_that_was_driven_before_says_nothing_of_the_pace(clock: Clock) -> None:
    shown, _ = board(clock)
    shown.gate("Echo", budget_minutes=3, expected_minutes=60, later_minutes=2)
    shown.gate_done(GateVerdict("echo", 0.0, None, Judgement(())))
    shown.gate("Echo", budget_minutes=3, expected_minutes=2, later_minutes=2)
    shown.cells(2)
    shown.cell("one")
    clock.now = 60
    shown.cell("two")

    assert shown.left_s() == pytest.approx(60 + 120)


def test_off_a_terminal_there_is_one_line_a_minute(clock: Clock) -> None:
    shown, out = board(clock)
    shown.gate("Needle", budget_minutes=4, expected_minutes=3, later_minutes=0)
    shown.cells(100)
    for second in range(100):
        clock.now = float(second)
        shown.cell(f"cell {second}")

    lines = [line for line in out.getvalue().splitlines() if "| cell" in line]
    assert 2 == len(lines)
    assert lines[1].startswith("[01:00] Needle | about 00:40 left | cell 61 of 100: cell 60")


def test_more_cells_than_planned_are_not_counted_past_the_end(clock: Clock) -> None:
    shown, out = board(clock)
    shown.gate("Needle", budget_minutes=4, expected_minutes=3, later_minutes=0)
    shown.cells(1)
    shown.cell("one")
    clock.now = 61.0
    shown.cell("one more")

    assert "cell 1 of 1: one more" in out.getvalue()


def test_on_a_terminal_the_bar_is_drawn_and_taken_away(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")  # a dumb one, as some CI has, gets lines alone
    shown, out = board(clock, terminal=True)
    with shown:
        shown.gate("Needle", budget_minutes=4, expected_minutes=3, later_minutes=0)

    assert "Needle - budget 4 min" in out.getvalue()
    assert "\x1b[?25l" in out.getvalue()  # the cursor is hidden while the bar is there
    assert out.getvalue().rstrip().endswith("\x1b[?25h") or "\x1b[?25h" in out.getvalue()
