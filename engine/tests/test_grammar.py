"""Grammars are checked where a check can be ended, and leave nothing behind."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import numpy as np
import psutil
import pytest

from engine.errors import RequestError
from engine.grammar import GrammarVocabulary
from engine.grammar_check import GrammarCheck
from engine.tests.server.live import byte_tokenizer

EXPLODES = json.dumps({"allOf": [{"type": "string", "pattern": f".*{n}.*"} for n in range(20)]})


@pytest.fixture(scope="module")
def vocabulary() -> Iterator[GrammarVocabulary]:
    tokenizer = byte_tokenizer()
    found = GrammarVocabulary(tokenizer, end=tokenizer.special("<｜end▁of▁sentence｜>"))
    yield found
    found.close()


def test_a_check_that_takes_too_long_is_ended_and_the_next_one_works() -> None:
    check = GrammarCheck()
    began = time.monotonic()
    first = check.wrong(f"start: %json {EXPLODES}\n")
    took = time.monotonic() - began
    second = check.wrong("start: /[a-z]+/\n")
    check.close()

    assert "2 seconds" in first
    assert took < 15
    assert second == ""


def test_closing_ends_the_process() -> None:
    check = GrammarCheck()
    check.wrong("start: /a/\n")
    process = check._process
    assert process is not None
    check.close()

    assert process.poll() is not None


def test_blanks_between_the_parts_of_json_are_few(vocabulary: GrammarVocabulary) -> None:
    path = vocabulary.json('{"type": "object"}', param="p").path()
    path.take(vocabulary.encode("{" + " " * 16))
    allowed = path.allowed()

    assert not allowed[vocabulary.encode(" ")].any()
    assert allowed[vocabulary.encode('"')].all()


def test_the_end_is_allowed_where_the_text_is_complete_and_forced_where_nothing_follows(
    vocabulary: GrammarVocabulary,
) -> None:
    number = vocabulary.json('{"type": "integer"}', param="p").path()
    number.take(vocabulary.encode("12"))
    whole = vocabulary.json('{"type": "boolean"}', param="p").path()
    whole.take(vocabulary.encode("true"))

    assert number.allowed()[[vocabulary.end, *vocabulary.encode("3")]].all()
    assert (vocabulary.end,) == whole.forced()


def test_a_grammar_never_allows_a_marker(vocabulary: GrammarVocabulary) -> None:
    path = vocabulary.json('{"type": "string"}', param="p").path()
    path.take(vocabulary.encode('"x'))
    markers = sorted(byte_tokenizer().special_ids - {vocabulary.end})

    assert not path.allowed()[markers].any()


def test_a_message_names_the_member(vocabulary: GrammarVocabulary) -> None:
    with pytest.raises(RequestError) as caught:
        vocabulary.json('{"type": "strin"}', param="text.format")

    assert "text.format" == caught.value.param


def test_many_different_schemas_leave_memory_flat(vocabulary: GrammarVocabulary) -> None:
    def build(count: int, start: int) -> None:
        for number in range(start, start + count):
            names = {f"n{number}_{index}": {"type": "string"} for index in range(20)}
            path = vocabulary.json(json.dumps({"type": "object", "properties": names}), param="p").path()
            path.take(vocabulary.encode("{"))
            assert path.allowed().dtype == np.bool_

    build(50, 0)
    before = psutil.Process().memory_info().rss
    build(100, 1000)
    grown = psutil.Process().memory_info().rss - before

    assert grown < 20 * 2**20
