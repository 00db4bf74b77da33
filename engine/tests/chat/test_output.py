"""The output parser: what is handed out, when, and that cutting the text anywhere changes nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.chat.markers import END_THINK, THINK
from engine.chat.output import OutputParser
from engine.chat.pieces import CallArguments, CallStart, End, Output, Piece
from engine.chat.request import ToolCall
from engine.chat.tools import read_tools

START, CLOSE = "<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>"
TOOLS = read_tools(
    {
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "f",
                    "parameters": {
                        "properties": {
                            "s": {"type": "string"},
                            "n": {"type": "integer"},
                            "b": {"type": "boolean"},
                        }
                    },
                },
            }
        ]
    }
)


def _invoke(*parameters: str, name: str = "f") -> str:
    body = "\n".join(parameters)
    return f'<｜DSML｜invoke name="{name}">\n{body}\n</｜DSML｜invoke>\n'


def _parameter(key: str, value: str, *, string: bool) -> str:
    return f'<｜DSML｜parameter name="{key}" string="{str(string).lower()}">{value}</｜DSML｜parameter>'


CALL = _invoke(_parameter("s", "a && b", string=True), _parameter("n", "2", string=False))
BLOCK = f"\n\n{START}\n{CALL}{CLOSE}"


def _parse(parts: Sequence[str], *, end: End = End.STOP, **options: Any) -> tuple[OutputParser, list[Output]]:
    parser = OutputParser(new_id=lambda: "id", **options)
    pieces = [piece for part in parts for piece in parser.push(part)]
    return parser, pieces + parser.finish(end)


def _joined(pieces: Sequence[Output], kind: str) -> str:
    return "".join(piece.text for piece in pieces if isinstance(piece, Piece) and piece.kind == kind)


def _summary(parser: OutputParser) -> tuple[object, ...]:
    return parser.reasoning, parser.content, tuple(parser.calls), parser.end, parser.stopped_by


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        pytest.param("why</think>so", {"thinking": True}, ("why", "so", End.STOP), id="thinking"),
        pytest.param("so", {"thinking": False}, ("", "so", End.STOP), id="plain"),
        pytest.param(
            "<think>why</think> so", {"thinking": True}, ("why", " so", End.STOP), id="repeated_tag"
        ),
        pytest.param("only", {"thinking": True}, ("only", "only", End.STOP), id="never_closed"),
        pytest.param("2 < 3", {"thinking": False, "tools": TOOLS}, ("", "2 < 3", End.STOP), id="less_than"),
        pytest.param("a  ", {"thinking": False, "tools": TOOLS}, ("", "a  ", End.STOP), id="blanks_at_end"),
        pytest.param("a</｜DSML｜invoke>b", {"thinking": False}, ("", "ab", End.STOP), id="orphan_tag"),
        pytest.param(f"a{START}x", {"thinking": False}, ("", "a", End.STOP), id="markup_without_tools"),
        pytest.param(
            f"x{BLOCK}", {"thinking": True}, (f"x{BLOCK}",) * 2 + (End.STOP,), id="markup_in_thought"
        ),
        pytest.param("aXYb", {"thinking": False, "stops": ["XY"]}, ("", "a", End.STOP), id="stop_string"),
        pytest.param(
            "XY</think>aXY", {"thinking": True, "stops": ["XY"]}, ("XY", "a", End.STOP), id="stop_dormant"
        ),
        pytest.param(
            "ab", {"thinking": False, "stops": ["bc", "", "ab"]}, ("", "", End.STOP), id="stop_whole"
        ),
        pytest.param(
            f"a{START}junk", {"thinking": False, "tools": TOOLS}, ("", f"a{START}junk", End.STOP), id="junk"
        ),
        pytest.param(
            f"a{BLOCK[:40]}",
            {"thinking": False, "tools": TOOLS},
            ("", f"a{BLOCK[:40]}", End.STOP),
            id="cut_block",
        ),
    ],
)
def test_text_without_calls_is_sorted_into_reasoning_and_content(
    text: str, options: dict[str, Any], expected: tuple[object, ...]
) -> None:
    parser, pieces = _parse([text], **options)

    assert expected == (parser.reasoning, parser.content, parser.end)
    assert (parser.reasoning, parser.content) == (_joined(pieces, "reasoning"), _joined(pieces, "content"))


def test_a_budget_that_ends_inside_the_reasoning_gives_no_content() -> None:
    parser, _ = _parse(["still thinking"], thinking=True, end=End.LENGTH)

    assert ("still thinking", "", End.LENGTH) == (parser.reasoning, parser.content, parser.end)


@pytest.mark.parametrize(
    ("text", "thinking", "content"),
    [
        pytest.param(f"Working.{BLOCK}", False, "Working.", id="text_before"),
        pytest.param(BLOCK, False, "", id="blanks_before"),
        pytest.param(f"r</think>{BLOCK} ignored", True, "", id="after_thinking"),
        pytest.param(f"r{BLOCK}", True, "", id="end_of_thinking_forgotten"),
        pytest.param(BLOCK.removesuffix(CLOSE), False, "", id="close_forgotten"),
        pytest.param(BLOCK.replace(START, ""), False, "", id="start_forgotten"),
        pytest.param(BLOCK.replace("<｜DSML｜", "<DSML｜").replace("</｜", "</"), False, "", id="bar_lost"),
        pytest.param(BLOCK.replace("｜DSML｜", ""), False, "", id="marker_lost"),
    ],
)
def test_a_block_becomes_a_call(text: str, thinking: bool, content: str) -> None:
    parser, pieces = _parse([text], thinking=thinking, tools=TOOLS)
    call = ToolCall("id", "f", '{"s": "a && b", "n": 2}')

    assert ([call], content, End.TOOL_CALLS) == (parser.calls, parser.content, parser.end)
    assert CallStart(0, "id", "f") in pieces
    assert call.arguments == "".join(piece.text for piece in pieces if isinstance(piece, CallArguments))


def test_a_quoted_block_in_the_reasoning_is_not_run() -> None:
    parser, _ = _parse([f"r{BLOCK} more</think>ok"], thinking=True, tools=TOOLS)

    assert (f"r{BLOCK} more", "ok", [], End.STOP) == (
        parser.reasoning,
        parser.content,
        parser.calls,
        parser.end,
    )


def test_a_budget_inside_a_block_delivers_closed_calls_and_the_rest_as_content() -> None:
    first = _invoke(_parameter("n", "1", string=False))
    parser, _ = _parse([f"{START}\n{first}<｜DSML｜inv"], thinking=False, tools=TOOLS, end=End.LENGTH)

    assert ([ToolCall("id", "f", '{"n": 1}')], "<｜DSML｜inv", End.LENGTH) == (
        parser.calls,
        parser.content,
        parser.end,
    )


@pytest.mark.parametrize(
    ("key", "value", "string", "expected"),
    [
        pytest.param(
            "s", ' <div class="x">&amp;</div> ', True, ' <div class="x">&amp;</div> ', id="verbatim"
        ),
        pytest.param("s", "cmd 2>&1", True, "cmd 2>&1", id="ends_like_a_tag"),
        pytest.param("s", "&lt;/｜DSML｜parameter>", True, "</｜DSML｜parameter>", id="guard"),
        pytest.param("s", "7", False, "7", id="number_for_string"),
        pytest.param("n", "50", True, 50, id="string_for_integer"),
        pytest.param("b", "True", False, True, id="python_word"),
        pytest.param("b", "true", True, True, id="string_for_boolean"),
        pytest.param("x", "[1, null]", False, [1, None], id="undeclared"),
        pytest.param("x", "not json", False, "not json", id="broken_json"),
    ],
)
def test_a_value_gets_its_declared_type(key: str, value: str, string: bool, expected: object) -> None:
    block = f"{START}\n{_invoke(_parameter(key, value, string=string))}{CLOSE}"
    parser, _ = _parse([block], thinking=False, tools=TOOLS)

    assert {key: expected} == json.loads(parser.calls[0].arguments)


def test_the_thinking_ids_are_never_shown_in_content() -> None:
    parser = OutputParser(thinking=False)
    pieces = parser.push("a") + parser.push_marker(END_THINK) + parser.push("b")
    pieces += parser.push_marker(THINK) + parser.push("again") + parser.push_marker(END_THINK)
    pieces += parser.push("c") + parser.finish(End.STOP)

    assert ("again", "abc") == (_joined(pieces, "reasoning"), _joined(pieces, "content"))


_FRAGMENTS = st.lists(
    st.sampled_from(
        [
            *(
                "a",
                " ",
                "\n",
                "<",
                "</",
                "<think>",
                END_THINK,
                "STOP",
                "ST",
                "｜DSML｜",
                "<｜DSML｜",
                "<tool_calls>",
            ),
            *(
                START,
                CLOSE,
                "<｜DSML｜invoke",
                _invoke(_parameter("n", "1", string=False)),
                "</｜DSML｜invoke>",
            ),
        ]
    ),
    max_size=12,
).map("".join)


@given(
    text=_FRAGMENTS,
    cuts=st.lists(st.integers(0, 200), max_size=6),
    thinking=st.booleans(),
    tools=st.booleans(),
    stops=st.sampled_from([(), ("STOP",), ("ST", "P\n"), ("a<", "<"), ("STOP", "T")]),
    end=st.sampled_from([End.STOP, End.LENGTH]),
)
def test_any_cut_of_the_output_gives_the_same_answer(
    text: str, cuts: list[int], thinking: bool, tools: bool, stops: tuple[str, ...], end: End
) -> None:
    options: dict[str, Any] = {
        "thinking": thinking,
        "tools": TOOLS if tools else (),
        "stops": stops,
        "end": end,
    }
    whole, pieces = _parse([text], **options)
    places = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    pieced, cut_pieces = _parse([text[a:b] for a, b in pairwise(places)], **options)
    letters, _ = _parse(list(text), **options)

    assert _summary(whole) == _summary(pieced) == _summary(letters)
    assert whole.content == _joined(pieces, "content") == _joined(cut_pieces, "content")
    assert all(piece.text for piece in cut_pieces if isinstance(piece, Piece))


@given(st.text(), st.booleans(), st.booleans())
def test_any_text_is_parsed_without_an_error(text: str, thinking: bool, tools: bool) -> None:
    parser, _ = _parse(list(text), thinking=thinking, tools=TOOLS if tools else ())

    assert parser.end is not None
