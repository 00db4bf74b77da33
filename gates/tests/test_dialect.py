"""Replies as llama.cpp, vLLM, SGLang, ds4 and older or stranger servers write them, read right or refused."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gates.harness.dialect import (
    BROKEN_OFF,
    ENDS,
    StreamedReply,
    json_object,
    model_of,
    raise_for_status,
    whole_reply,
)
from gates.harness.reply import BrokenOff, ClientError, CutShort, Malformed, Refused, Reply, Usage
from gates.harness.sse import EventParser, ServerEvent


def streamed(*chunks: dict[str, Any] | str) -> StreamedReply:
    reply = StreamedReply()
    for place, chunk in enumerate(chunks):
        reply.take(ServerEvent(chunk if isinstance(chunk, str) else json.dumps(chunk)), float(place))
    return reply


def choice(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"delta": delta, "finish_reason": finish}]}


def test_reasoning_tool_calls_and_token_ids_are_put_together() -> None:
    call = {"index": 0, "id": "c1", "function": {"name": "f", "arguments": '{"a"'}}
    more = {"index": 0, "function": {"arguments": ": 1}"}}
    with_ids = {"choices": [{"delta": {"content": "x"}, "token_ids": [5, 6]}]}

    reply = streamed(
        choice(role="assistant", content=""),
        choice(reasoning_content="hm"),
        with_ids,
        choice(tool_calls=[call]),
        choice(tool_calls=[more]),
        choice("tool_calls"),
        {"choices": [], "usage": {"prompt_tokens": 3}, "timings": {"ttft_ms": 1.0}},
        "[DONE]",
    ).finish(9.0)

    assert ("hm", "x", (5, 6), 1.0) == (reply.reasoning, reply.text, reply.token_ids, reply.first_token_s)
    assert ({"id": "c1", "name": "f", "arguments": '{"a": 1}'},) == reply.tool_calls
    assert (Usage(3, None, None), {"ttft_ms": 1.0}) == (reply.usage, reply.timings)


@pytest.mark.parametrize(
    ("end", "pause"),
    [pytest.param(4.0, (1.0, 3.0), id="between"), pytest.param(9.0, (3.0, 9.0), id="behind")],
)
def test_the_longest_pause_is_between_fragments_or_before_the_end(
    end: float, pause: tuple[float, float]
) -> None:
    reply = streamed(
        choice(content="a"), choice(content="b"), {"choices": []}, choice("stop", content="c"), "[DONE]"
    )

    assert pause == reply.finish(end).longest_pause_s


def test_a_reply_that_was_not_streamed_has_no_pause() -> None:
    body = {"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]}

    assert None is whole_reply(body, 2.0).longest_pause_s


def test_an_error_object_inside_a_stream_is_a_refusal() -> None:
    with pytest.raises(Refused, match="out of memory"):
        streamed({"error": {"message": "out of memory", "code": "insufficient_memory"}})


def test_a_stream_with_a_reason_but_neither_counts_nor_end_mark_is_cut_short() -> None:
    with pytest.raises(CutShort, match=r"without \[DONE\]"):
        streamed(choice("stop", content="x")).finish(1.0)


def test_a_stream_with_counts_but_neither_reason_nor_end_mark_is_cut_short() -> None:
    counted = {**choice(content="x"), "usage": {"completion_tokens": 1}}  # as with counts in every chunk

    with pytest.raises(CutShort, match="without a finish reason"):
        streamed(counted).finish(1.0)


@pytest.mark.parametrize("data", ["[1]", "{", "null"])
def test_an_event_that_is_no_object_is_malformed(data: str) -> None:
    with pytest.raises(Malformed):
        streamed(data)


@pytest.mark.parametrize("body", [{}, {"choices": []}, {"choices": [{"message": "x"}]}, {"choices": [3]}])
def test_a_whole_reply_of_another_form_is_malformed(body: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        whole_reply(body, 1.0)


@pytest.mark.parametrize(
    "data",
    [
        '{"choices": [1]}',
        '{"choices": "abc"}',
        '{"choices": 5}',
        '{"choices": [{"delta": {"content": 7}}]}',
        '{"choices": [{"delta": {"tool_calls": [{"index": "x"}]}}]}',
        '{"choices": [{"delta": {}, "token_ids": 5}]}',
        '{"usage": {"prompt_tokens": "12"}}',
        '{"usage": {"prompt_tokens_details": [1]}}',
        '{"usage": {"prompt_tokens": NaN}}',
        "[" * 100_000,
    ],
)
def test_a_chunk_of_another_form_is_malformed(data: str) -> None:
    with pytest.raises(Malformed):
        StreamedReply().take(ServerEvent(data), 0.0)


def test_a_list_of_models_of_another_form_is_malformed() -> None:
    with pytest.raises(Malformed, match="/v1/models lists 1"):
        model_of(1)


def read(stream: bytes) -> Reply:
    """The reply in the bytes of a stream."""
    parser, reply = EventParser(), StreamedReply()
    for event in parser.push(stream):
        reply.take(event, 0.0)
    return reply.finish(1.0)


def message(content: object = "It is 4.", reason: object = "stop", **more: Any) -> dict[str, Any]:
    """A whole reply."""
    said = {"role": "assistant", "content": content, **more}
    return {"choices": [{"index": 0, "message": said, "finish_reason": reason}]}


# What each server really sends, in short: how a stream begins, thinks, says and ends.
LLAMA_CPP = (
    b'data: {"choices":[{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}]}\n\n'
    b'data: {"choices":[{"finish_reason":null,"index":0,"delta":{"reasoning_content":"2 and 2."}}]}\n\n'
    b'data: {"choices":[{"finish_reason":null,"index":0,"delta":{"content":"It is 4."}}]}\n\n'
    b'data: {"choices":[{"finish_reason":"stop","index":0,"delta":{}}]}\n\n'
    b'data: {"choices":[],"usage":{"completion_tokens":9,"prompt_tokens":5,"total_tokens":14,'
    b'"prompt_tokens_details":{"cached_tokens":3}},"timings":{"prompt_n":2,"cache_n":3}}\n\n'
    b"data: [DONE]\n\n"
)
LLAMA_CPP_OLD = (  # counts beside the finish reason, and no list of cached tokens
    b'data: {"choices":[{"finish_reason":null,"index":0,"delta":{"reasoning_content":"2 and 2."}}]}\n\n'
    b'data: {"choices":[{"finish_reason":null,"index":0,"delta":{"content":"It is 4."}}]}\n\n'
    b'data: {"choices":[{"finish_reason":"stop","index":0,"delta":{}}],'
    b'"usage":{"completion_tokens":9,"prompt_tokens":5,"total_tokens":14}}\n\ndata: [DONE]\n\n'
)
VLLM = (
    b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,'
    b'"finish_reason":null}],"prompt_token_ids":[1,2],"usage":null}\n\n'
    b'data: {"choices":[{"index":0,"delta":{"reasoning":"2 and 2."},"finish_reason":null,'
    b'"token_ids":[7,8]}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{"content":"It is 4."},"finish_reason":null,'
    b'"token_ids":[9]}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{"content":""},"finish_reason":"stop","stop_reason":null,'
    b'"token_ids":[]}]}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":5,"total_tokens":14,"completion_tokens":9,'
    b'"prompt_tokens_details":null}}\n\ndata: [DONE]\n\n'
)
SGLANG = (
    b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":"","reasoning_content":null,'
    b'"tool_calls":null},"finish_reason":null,"matched_stop":null}],"usage":null}\n\n'
    b'data: {"choices":[{"index":0,"delta":{"role":null,"content":null,"reasoning_content":"2 and 2."},'
    b'"finish_reason":null}],"usage":null}\n\n'
    b'data: {"choices":[{"index":0,"delta":{"content":"It is 4.","reasoning_content":null},'
    b'"finish_reason":null}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{"content":null},"finish_reason":"stop","matched_stop":1}]}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":5,"total_tokens":14,"completion_tokens":9,'
    b'"reasoning_tokens":4,"prompt_tokens_details":{"cached_tokens":3}}}\n\ndata: [DONE]\n\n'
)
DEEPSEEK = (
    b": keep-alive\r\n\r\n"
    b'data:{"choices":[{"index":0,"delta":{"content":null,"reasoning_content":"2 and 2."}}]}\r\n\r\n'
    b": keep-alive\r\n\r\n"
    b'data:{"choices":[{"index":0,"delta":{"content":"It is 4."}}]}\r\n\r\n'
    b'data:{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,'
    b'"completion_tokens":9,"total_tokens":14,"prompt_cache_hit_tokens":3,'
    b'"completion_tokens_details":{"reasoning_tokens":4}}}\r\n\r\ndata:[DONE]\r\n\r\n'
)
TRANSFORMERS = (  # no end mark
    b'data: {"choices":[{"delta":{"role":"assistant"},"index":0}],"system_fingerprint":""}\n\n'
    b'data: {"choices":[{"delta":{"reasoning_content":"2 and 2."},"index":0}]}\n\n'
    b'data: {"choices":[{"delta":{"content":"It is 4."},"index":0}]}\n\n'
    b'data: {"choices":[{"delta":{},"index":0,"finish_reason":"stop"}],'
    b'"usage":{"completion_tokens":9,"prompt_tokens":5,"total_tokens":14}}\n\n'
)


@pytest.mark.parametrize(
    ("stream", "cached", "thought"),
    [
        pytest.param(LLAMA_CPP, 3, None, id="llama.cpp"),
        pytest.param(LLAMA_CPP_OLD, None, None, id="llama.cpp_until_2025"),
        pytest.param(VLLM, None, None, id="vLLM"),
        pytest.param(SGLANG, 3, 4, id="SGLang"),
        pytest.param(DEEPSEEK, 3, 4, id="DeepSeek"),
        pytest.param(TRANSFORMERS, None, None, id="transformers"),
    ],
)
def test_what_each_server_sends_is_read_into_one_shape(
    stream: bytes, cached: int | None, thought: int | None
) -> None:
    reply = read(stream)

    assert ("It is 4.", "2 and 2.", "stop", 2) == (
        reply.text,
        reply.reasoning,
        reply.finish_reason,
        reply.fragments,
    )
    assert Usage(5, 9, cached, 14, thought) == reply.usage


def test_token_ids_are_those_of_the_reply_alone() -> None:
    assert (7, 8, 9) == read(VLLM).token_ids


@pytest.mark.parametrize(
    "stream",
    [
        b'data: {"choices":[{"delta":{"content":"It"}}]}\n\nerror: {"code":400,"message":"no room"}\n\n',
        b'data: {"choices":[{"delta":{"content":"It"}}]}\n\ndata: {"error":{"message":"no room"}}\n\n',
        b'data: {"choices":[{"delta":{"content":"It"}}]}\n\nevent: error\ndata: {"message":"no room"}\n\n',
        b'data: {"error":"no room"}\n\ndata: [DONE]\n\n',
    ],
    ids=["field_of_its_own", "object", "event_of_its_own", "text"],
)
def test_an_error_within_a_stream_is_a_refusal_with_its_words(stream: bytes) -> None:
    with pytest.raises(Refused, match="HTTP 200: no room"):
        read(stream)


def test_a_field_for_errors_that_is_empty_is_none() -> None:
    reply = whole_reply({**message(), "error": None}, 1.0)

    assert "It is 4." == reply.text


@pytest.mark.parametrize("reason", sorted(BROKEN_OFF))
def test_a_reply_that_the_server_broke_off_is_no_reply_though_it_has_an_end_mark(reason: str) -> None:
    chunk = {"choices": [{"delta": {"content": "It is"}, "finish_reason": reason}]}

    with pytest.raises(BrokenOff, match=f"broke the reply off .finish_reason {reason}") as error:
        streamed(chunk, "[DONE]").finish(1.0)
    assert "It is" == error.value.text
    with pytest.raises(CutShort):
        whole_reply(message(reason=reason), 1.0)


def test_an_end_that_nobody_knows_is_named() -> None:
    with pytest.raises(Malformed, match="finish_reason is 'tired'; known are stop, length"):
        whole_reply(message(reason="tired"), 1.0)


@pytest.mark.parametrize(("reason", "word"), sorted(ENDS.items()))
def test_every_known_end_has_one_word(reason: str, word: str) -> None:
    assert word == whole_reply(message(reason=reason), 1.0).finish_reason
    assert word in ("stop", "length", "tool_calls", "function_call", "content_filter")


def test_a_whole_reply_without_an_end_is_cut_short() -> None:
    for body in (message(reason=None), {"choices": [{"message": {"content": "It is"}}]}):
        with pytest.raises(BrokenOff, match="no finish reason"):
            whole_reply(body, 1.0)


def test_a_refusal_in_a_field_of_its_own_ends_as_a_filter_does() -> None:
    reply = whole_reply(message(None, refusal="I may not."), 1.0)

    assert ("", "content_filter") == (reply.text, reply.finish_reason)


def test_content_in_parts_is_text_and_thoughts() -> None:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "2 and 2."}]}
    parts = [thought, {"type": "text", "text": "It is"}, {"type": "text", "text": " 4."}]
    whole = whole_reply(message(parts), 1.0)
    chunks = [{"choices": [{"delta": {"content": [part]}}]} for part in parts]
    reply = streamed(*chunks, choice("stop"), "[DONE]").finish(1.0)

    assert ("It is 4.", "2 and 2.") == (whole.text, whole.reasoning) == (reply.text, reply.reasoning)


@pytest.mark.parametrize(
    "content", [7, {"text": "x"}, ["x"], [{"type": "image_url"}], [{"type": "text", "text": 7}], True]
)
def test_content_of_another_form_is_malformed(content: object) -> None:
    with pytest.raises(Malformed):
        whole_reply(message(content), 1.0)


@pytest.mark.parametrize("choices", [[], [{"index": 1}], [{"index": 0}, {"index": 1}], "x", {"index": 0}])
def test_other_than_the_one_reply_that_was_asked_for_is_malformed(choices: object) -> None:
    with pytest.raises(Malformed):
        whole_reply({"choices": choices}, 1.0)
    if choices:
        with pytest.raises(Malformed):
            streamed({"choices": choices})


def test_half_characters_are_joined_over_fragments_and_alone_become_a_mark() -> None:
    halves = streamed(choice(content="\ud83d"), choice(content="\ude42!"), choice("stop"), "[DONE]").finish(
        1.0
    )

    assert "🙂!" == halves.text
    assert "\ufffd!" == whole_reply(message("\ud83d!"), 1.0).text


def test_timings_that_a_record_cannot_hold_are_left_out() -> None:
    body = json_object(b'{"timings": {"ms": 1e999, "s": 0.5, "note": "x"}}')

    assert {"s": 0.5} == dict(whole_reply({**message(), **body}, 1.0).timings)


@pytest.mark.parametrize(
    "counts", [{"prompt_tokens": 2.5}, {"completion_tokens": True}, {"total_tokens": "9"}]
)
def test_counts_that_are_no_whole_numbers_are_malformed(counts: dict[str, object]) -> None:
    with pytest.raises(Malformed):
        whole_reply({**message(), "usage": counts}, 1.0)


ODD: st.SearchStrategy[object] = st.sampled_from(
    [None, True, 0, -1, 10**30, 1.5, float("inf"), "", "x", "\ud800", [], [None], ["x"], [[]], {}, {"x": 1}]
)
PLACES = st.sampled_from(
    [
        ("choices",),
        ("choices", 0),
        ("choices", 0, "index"),
        ("choices", 0, "finish_reason"),
        ("choices", 0, "token_ids"),
        *(
            ("choices", 0, where, name)
            for where in ("delta", "message")
            for name in ("content", "reasoning", "reasoning_content", "refusal", "tool_calls")
        ),
        ("choices", 0, "delta"),
        ("choices", 0, "message"),
        ("usage",),
        ("usage", "prompt_tokens"),
        ("usage", "prompt_tokens_details"),
        ("usage", "completion_tokens_details"),
        ("timings",),
        ("timings", "ms"),
        ("model",),
        ("error",),
    ]
)


@settings(deadline=None)
@given(st.lists(st.tuples(PLACES, ODD), max_size=4))
def test_an_answer_with_odd_members_is_a_reply_or_an_error_of_ours(odd: list[tuple[Any, Any]]) -> None:
    body: dict[str, Any] = {"usage": {}, "timings": {}, **message()}
    body["choices"][0]["delta"] = {"content": "It is 4."}
    for place, value in odd:
        put(body, place, value)
    for form in (whole, only_chunk):
        try:
            reply = form(body)
        except ClientError:
            continue
        json.dumps([reply.text, reply.reasoning, reply.token_ids, dict(reply.timings)], allow_nan=False)
        assert reply.finish_reason in ENDS


def put(body: Any, place: Sequence[Any], value: Any) -> None:
    """Put a value at a place of the body, where it is still there."""
    *way, last = place
    for name in way:
        try:
            body = body[name]
        except (LookupError, TypeError):
            return
    if isinstance(body, dict) or (isinstance(body, list) and body and isinstance(last, int)):
        body[last] = copy.deepcopy(value)  # the list of odd values must stay as it is


def whole(body: dict[str, Any]) -> Reply:
    """The body as a whole reply."""
    return whole_reply(body, 1.0)


def only_chunk(body: dict[str, Any]) -> Reply:
    """The body as the only chunk of a stream."""
    return streamed(body, "[DONE]").finish(1.0)


@pytest.mark.parametrize("header", ["9" * 400, "\u00b2", "-5", "Wed, 21 Oct 2026 07:28:00 GMT", "1e9", ""])
def test_a_time_to_wait_that_nobody_could_is_none(header: str) -> None:
    with pytest.raises(Refused) as error:
        raise_for_status(429, b"{}", retry_after=header)

    assert error.value.retry_after_s is None


def test_a_count_of_hundreds_of_digits_is_malformed() -> None:
    with pytest.raises(Malformed, match="not JSON"):
        json_object(b'{"usage": {"prompt_tokens": ' + b"1" * 400 + b"}}")
