"""Which positions of a tool block are syntax: the sampler of a request has no say there."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from engine.chat.blocks import BlockTracker

BLOCK = (
    'Sure: a < b.\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name="f">\n'
    '<｜DSML｜parameter name="s" string="true">if a </b> > 1</｜DSML｜parameter>\n'
    '<｜DSML｜parameter name="n" string="false">{"k": ["x\\"y", 12]}</｜DSML｜parameter>\n'
    "</｜DSML｜invoke>\n</｜DSML｜tool_calls>"
)


def payload(pieces: list[str]) -> str:
    """The characters that a request's own sampler draws: those that came where nothing was syntax."""
    tracker, free = BlockTracker(), ""
    for piece in pieces:
        if not tracker.syntax:
            free += piece
        tracker.push(piece)
    return free


def test_only_payload_is_left_to_the_sampler() -> None:
    expected = "Sure: a < b.\n\n<｜DSML｜" + "if a </b> > 1</｜DSML｜" + 'k"x\\"y"'

    assert expected == payload(list_tokens(BLOCK))


def list_tokens(text: str) -> list[str]:
    """One character a token, and the marker as one."""
    parts = text.split("｜DSML｜")
    tokens = list(parts[0])
    for part in parts[1:]:
        tokens += ["｜DSML｜", *part]
    return tokens


@given(st.lists(st.integers(0, len(BLOCK)), max_size=12))
def test_the_end_does_not_depend_on_how_the_text_is_cut(cuts: list[int]) -> None:
    whole, cut = BlockTracker(), BlockTracker()
    whole.push(BLOCK[:-1])
    edges = sorted({0, *(min(entry, len(BLOCK) - 1) for entry in cuts), len(BLOCK) - 1})
    for first, last in pairwise(edges):
        cut.push(BLOCK[first:last])
    before = (whole.open, cut.open, whole.syntax, cut.syntax)
    whole.push(BLOCK[-1])
    cut.push(BLOCK[-1])

    assert (True, True, True, True) == before
    assert (False, False) == (whole.open, cut.open)


def test_a_value_in_another_spelling_ends_with_the_tag_of_its_own() -> None:
    tracker = BlockTracker()
    tracker.push('<tool_calls><invoke name="f"><parameter name="s" string="true">a</｜DSML｜parameter>')
    inside = tracker.syntax
    tracker.push("</parameter>")

    assert (False, True) == (inside, tracker.syntax)


def test_prose_that_mentions_a_tag_opens_no_block() -> None:
    tracker = BlockTracker()
    tracker.push("Write <tool_call> or </tool_calls>, or tool_calls>.")

    assert (False, False) == (tracker.open, tracker.syntax)
