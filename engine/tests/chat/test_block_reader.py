"""Tool blocks while they are written: what was written is what is read, however it is cut."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.chat.block_reader import BlockReader, Closed, Grown, Opened, Step
from engine.chat.dsml import render_calls
from engine.chat.markers import DSML
from engine.chat.output import OutputParser
from engine.chat.pieces import CallArguments, CallStart, End, Piece
from engine.chat.request import ToolCall
from engine.chat.tools import Tool, read_tools

PROPERTIES = {
    "s": {"type": "string"},
    "n": {"type": "integer"},
    "b": {"type": "boolean"},
    "o": {"type": "object"},
}
FUNCTION = {"name": "f", "parameters": {"type": "object", "properties": PROPERTIES, "required": ["s"]}}
TOOLS = read_tools({"tools": [{"type": "function", "function": FUNCTION}]})
DECLARED: dict[str, Tool] = {tool.name: tool for tool in TOOLS}
START, CLOSE = "<｜DSML｜tool_calls>\n", "</｜DSML｜tool_calls>"
HEAD = f'{START}<｜DSML｜invoke name="f">\n'
TAIL = f"\n</｜DSML｜invoke>\n{CLOSE}"
OPEN = '<｜DSML｜parameter name="s" string="true">'
SHUT = "</｜DSML｜parameter>"


def read(parts: Sequence[str]) -> tuple[BlockReader, list[Step]]:
    reader = BlockReader(DECLARED)
    steps = [step for part in parts for step in reader.push(part)]
    return reader, steps + reader.finish()


def grown(steps: Sequence[Step]) -> str:
    return "".join(step.text for step in steps if isinstance(step, Grown))


def arguments(text: str) -> object:
    """The arguments of the only call of a block, which must not depend on how the block is cut."""
    steps, letters = read([text])[1], read(list(text))[1]
    (call,) = (step for step in steps if isinstance(step, Closed))
    assert grown(letters) == grown(steps) == call.arguments
    return json.loads(call.arguments)


_TEXT = st.lists(
    st.one_of(
        st.text(max_size=4),
        st.sampled_from(
            ["<", "</", "2>&1", "&lt;", "</parameter>", "</｜DSML｜", "</tool_calls>", '"', "\\", "\n", "🎉"]
        ),
    ),
    max_size=6,
).map("".join)
_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(10**6), 10**6), _TEXT),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
_ARGUMENTS = st.dictionaries(
    st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=5).map(lambda key: f"k{key}"),
    _VALUES,
    max_size=4,
)


@given(calls=st.lists(_ARGUMENTS, min_size=1, max_size=3), cuts=st.lists(st.integers(0, 900), max_size=8))
def test_what_was_written_is_what_is_read_however_it_is_cut(
    calls: list[dict[str, Any]], cuts: list[int]
) -> None:
    made = [ToolCall(None, "f", json.dumps(given, ensure_ascii=False)) for given in calls]
    block = "".join(segment.text for segment in render_calls(made))
    places = sorted({min(cut, len(block)) for cut in cuts} | {0, len(block)})
    reader, steps = read([block[a:b] for a, b in pairwise(places)])
    closed = [step for step in steps if isinstance(step, Closed)]
    _, whole = read([block])

    assert calls == [json.loads(step.arguments) for step in closed]
    assert (True, False) == (reader.closed, reader.repaired)
    assert grown(whole) == grown(steps) == "".join(step.arguments for step in closed)


_NOISE = [START, HEAD, OPEN, SHUT, TAIL, CLOSE, "x", "</", "</parameter>", "</invoke>", "7", " "]


@given(noise=st.lists(st.sampled_from([*_NOISE, '<invoke name="f">', '<parameter name="n">']), max_size=9))
def test_any_damage_reads_the_same_in_letters_as_at_once(noise: list[str]) -> None:
    text = "".join(noise)
    whole, steps = read([text])
    letters, single = read(list(text))

    assert [s for s in steps if not isinstance(s, Grown)] == [s for s in single if not isinstance(s, Grown)]
    assert (grown(steps), whole.text, whole.rest) == (grown(single), letters.text, letters.rest)


def test_a_call_opens_with_its_tag_and_its_text_comes_as_it_is_written() -> None:
    reader = BlockReader(DECLARED)
    opened = reader.push(HEAD)
    first = reader.push(f"{OPEN}echo ")
    second = reader.push('"hi" </｜DSML｜para')
    third = reader.push("graph> &l")

    assert [Opened("f")] == opened
    assert '{"s": "echo ' == grown(first)
    assert '\\"hi\\" ' == grown(second)
    assert "</｜DSML｜paragraph> " == grown(third)


def given_as(key: str, value: str, kind: str | None = "true", bar: str = DSML) -> str:
    """One parameter as a model may spell it."""
    typed = f' string="{kind}"' if kind else ""
    return f'<{bar}parameter name="{key}"{typed}>{value}</{bar}parameter>'


NESTED = given_as("o", f"\n{given_as('a', '1', 'false')}\n{given_as('b', 'x')}\n", None)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(f"{OPEN}ls 2>&1{SHUT}", {"s": "ls 2>&1"}, id="ends_like_a_tag"),
        pytest.param(f"{OPEN}a </ b <{SHUT}", {"s": "a </ b <"}, id="ends_with_an_angle"),
        pytest.param(f"{OPEN}<p></parameter>x{SHUT}", {"s": "<p></parameter>x"}, id="xml_inside"),
        pytest.param(f"{OPEN}x</parameter>", {"s": "x"}, id="closed_in_another_spelling"),
        pytest.param(f"{OPEN}a</DSML｜parameter>\n{given_as('t', 'b')}", {"s": "a", "t": "b"}, id="two"),
        pytest.param(f"{OPEN}&lt;/｜DSML｜parameter>{SHUT}", {"s": "</｜DSML｜parameter>"}, id="guard"),
        pytest.param(f"{OPEN}&amp;&lt;b>{SHUT}", {"s": "&amp;&lt;b>"}, id="nothing_else_is_decoded"),
        pytest.param(given_as("n", "50", bar=""), {"n": 50}, id="plain_tags_and_a_number"),
        pytest.param(given_as("b", "True", "false"), {"b": True}, id="python_word"),
        pytest.param(given_as("b", "true", None), {"b": True}, id="no_type_but_a_schema"),
        pytest.param(given_as("x", "raw", None), {"x": "raw"}, id="no_type_at_all"),
        pytest.param(given_as("a&amp;b", "1"), {"a&b": "1"}, id="escaped_name"),
        pytest.param(given_as("o", '{"a": 1}'), {"o": {"a": 1}}, id="json_in_a_string"),
        pytest.param(NESTED, {"o": {"a": 1, "b": "x"}}, id="nested"),
        pytest.param(given_as("arguments", '{"s": "x", "n": 2}', "false"), {"s": "x", "n": 2}, id="wrapped"),
        pytest.param(given_as("arguments", '{"z": 2}'), {"arguments": '{"z": 2}'}, id="not_a_wrapper"),
        pytest.param(f"{given_as('input', 'i')}\n{OPEN}x{SHUT}", {"input": "i", "s": "x"}, id="not_lone"),
        pytest.param(f"{OPEN}a{SHUT}\n{OPEN}b{SHUT}", {"s": "b"}, id="the_last_of_two_wins"),
        pytest.param("", {}, id="none"),
    ],
)
def test_parameters_are_read(body: str, expected: dict[str, object]) -> None:
    assert expected == arguments(f"{HEAD}{body}{TAIL}")


def parse(text: str, *, thinking: bool = False, end: End = End.STOP, whole: bool = False) -> Any:
    parser = OutputParser(thinking=thinking, tools=TOOLS, new_id=lambda: "id")
    pieces = [piece for part in ([text] if whole else list(text)) for piece in parser.push(part)]
    return parser, pieces + parser.finish(end)


def test_parallel_calls_come_one_after_the_other() -> None:
    call = f'<｜DSML｜invoke name="f">\n{OPEN}x{SHUT}\n</｜DSML｜invoke>\n'
    _, pieces = parse(f"{START}{call * 12}{CLOSE}")
    numbers = [piece.index for piece in pieces]

    assert sorted(numbers) == numbers
    assert list(range(12)) == [piece.index for piece in pieces if isinstance(piece, CallStart)]


def test_a_budget_inside_a_call_leaves_its_arguments_open_in_a_stream_and_is_text_in_the_whole() -> None:
    parser, pieces = parse(f"Hm.{HEAD}{OPEN}abc", end=End.LENGTH)

    assert '{"s": "abc' == "".join(p.text for p in pieces if isinstance(p, CallArguments))
    assert (f"Hm.{HEAD}{OPEN}abc", [], End.LENGTH) == (parser.content, parser.calls, parser.end)
    assert "Hm." == "".join(p.text for p in pieces if isinstance(p, Piece))
    assert not parser.spoiled


def test_a_call_that_breaks_after_it_was_shown_spoils_the_stream_only() -> None:
    parser, pieces = parse(f"{HEAD}{OPEN}abc{SHUT}junk")

    assert (True, f"{HEAD}{OPEN}abc{SHUT}junk", []) == (parser.spoiled, parser.content, parser.calls)
    assert not [p for p in pieces if isinstance(p, Piece)]


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        pytest.param(HEAD.removeprefix(START) + f"{OPEN}x{SHUT}" + TAIL, 1, id="start_tag_lost"),
        pytest.param(HEAD.removeprefix(START) + TAIL, 0, id="required_parameter_missing"),
        pytest.param(f'<｜DSML｜invoke name="g">\n{OPEN}x{SHUT}{TAIL}', 0, id="undeclared"),
        pytest.param('Use <｜DSML｜invoke name="f"> to call f.', 0, id="prose"),
    ],
)
def test_a_block_without_a_start_counts_only_if_it_is_complete_and_declared(text: str, calls: int) -> None:
    parser, pieces = parse(text)
    content = "".join(p.text for p in pieces if isinstance(p, Piece))

    assert calls == len(parser.calls) == len([p for p in pieces if isinstance(p, CallStart)])
    assert parser.content == content == ("" if calls else text)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        pytest.param(f"{HEAD}{OPEN}x{SHUT}{TAIL}", "ok", id="whole"),
        pytest.param(f"{HEAD}{OPEN}x{SHUT}{TAIL}".removesuffix(CLOSE), "repaired", id="no_end"),
        pytest.param(f"{HEAD}{OPEN}x</parameter>{TAIL}", "repaired", id="other_tag"),
        pytest.param(f"{START}junk", "failed", id="junk"),
        pytest.param("plain", None, id="none"),
    ],
)
def test_how_a_block_read_is_told(text: str, result: str | None) -> None:
    assert result == parse(text)[0].tool_result
