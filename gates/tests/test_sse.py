"""Tests of the event-stream parser: how the bytes are cut never matters."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from gates.harness.sse import EventParser, ServerEvent

STREAM = (
    b'\xef\xbb\xbfdata: {"a": 1}\n\n: keepalive\n\nevent: ping\r\ndata: {}\r\n\r\n'
    b"data: two\rdata: lines\r\rdata:no space\n\nid: 7\nretry: 1\n\n"
    b"data: \xe4\xb8\xad\xf0\x9f\x99\x82\n\ndata: [DONE]\n\n"
)
EVENTS = [
    ServerEvent('{"a": 1}'),
    ServerEvent("{}", "ping"),
    ServerEvent("two\nlines"),
    ServerEvent("no space"),
    ServerEvent("中🙂"),
    ServerEvent("[DONE]"),
]


def parse(*chunks: bytes) -> list[ServerEvent]:
    parser = EventParser()
    return [event for chunk in chunks for event in parser.push(chunk)]


def test_every_form_of_line_and_field_is_read() -> None:
    assert EVENTS == parse(STREAM)


def test_a_cut_at_every_byte_gives_the_same_events() -> None:
    for place in range(len(STREAM) + 1):
        assert EVENTS == parse(STREAM[:place], STREAM[place:])


def test_byte_by_byte_gives_the_same_events() -> None:
    assert EVENTS == parse(*(bytes([byte]) for byte in STREAM))


@given(st.binary(max_size=200), st.data())
def test_any_bytes_cut_anywhere_give_the_same_events(stream: bytes, data: st.DataObject) -> None:
    places = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=5)))
    cuts = [0, *places, len(stream)]
    chunks = [stream[start:stop] for start, stop in itertools.pairwise(cuts)]

    assert parse(stream) == parse(*chunks)


@given(st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"])), max_size=5))
def test_any_data_comes_back_as_it_was_sent(lines: list[str]) -> None:
    stream = "".join(f"data: {line}\n\n" for line in lines).encode()

    assert lines == [event.data for event in parse(b"\n", stream)]


def test_comments_are_counted_and_give_no_event() -> None:
    parser = EventParser()

    assert [] == parser.push(b": keepalive\n\n: again\n\n")
    assert parser.comments == 2


def test_a_stream_that_stops_within_an_event_is_seen_as_pending() -> None:
    parser = EventParser()
    parser.push(b"data: half")

    assert parser.pending
