"""The list of sets: every set gives items of one shape, and says what its results depend on."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from gates.errors import CheckError, UsageError
from gates.quality import data, gsm8k, sets
from gates.quality.data import Source, Store
from gates.quality.grading import Grade
from gates.quality.sandbox import Program
from gates.tests.quality.real import needs_sets, store


@pytest.fixture
def small(tmp_path: Path) -> Store:
    """A store with two rows of GSM8K's format."""
    rows = [{"question": "1 + 1?", "answer": "#### 2"}, {"question": "1 + 2?", "answer": "#### 3"}]
    content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    place = tmp_path / gsm8k.FILE
    place.parent.mkdir()
    place.write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    return Store(tmp_path, {gsm8k.FILE: Source(gsm8k.FILE, digest, len(content), 2, "MIT", "http://x")})


def test_items_are_asked_and_graded_without_knowing_their_set(small: Store) -> None:
    found = sets.items("gsm8k", small)

    assert ["gsm8k/0", "gsm8k/1"] == [item.question.id for item in found]
    assert Grade("pass", "3") == found[1].grade("#### 3")
    assert Grade("fail", "3") == found[0].grade("#### 3")


def test_a_set_says_what_its_results_depend_on(small: Store) -> None:
    assert {"gsm8k prompt", "gsm8k grader", "gsm8k data"} == set(sets.versions("gsm8k", small))
    assert small.sources[gsm8k.FILE].sha256 == sets.versions("gsm8k", small)["gsm8k data"]
    assert "langdetect-1.0.9" in sets.find("ifeval").grader_version


def test_an_unknown_set_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match=r"no question set 'gsm9k'; known are gsm8k, mmlu"):
        sets.find("gsm9k")


def test_a_set_without_its_data_is_unknown_with_the_command(tmp_path: Path) -> None:
    with pytest.raises(CheckError, match="python -m gates data fetch"):
        sets.items("ifeval", Store(tmp_path, data.read_manifest()))


def test_the_file_of_every_set_is_in_the_manifest() -> None:
    assert {found.file for found in sets.SETS.values()} == set(data.read_manifest())


@needs_sets
@pytest.mark.parametrize(
    ("name", "count", "clusters"),
    [
        ("gsm8k", 1319, 1319),
        ("mmlu", 14042, 57),
        ("mmlu_1140", 1140, 57),
        ("mmlu_570", 570, 57),
        ("humaneval", 164, 164),
        ("humaneval_plus", 164, 164),
        ("mbpp", 500, 500),
        ("mbpp_sanitized", 257, 257),
        ("ifeval", 541, 541),
    ],
)
def test_every_real_set_has_its_published_size_and_takes_any_reply(
    name: str, count: int, clusters: int
) -> None:
    found = sets.items(name, store())

    assert (count, clusters) == (len(found), len({item.cluster for item in found}))
    assert count == len({item.question.id for item in found})
    for item in found[:: max(1, count // 20)]:
        assert isinstance(item.grade("I cannot say."), Grade | Program)
        assert isinstance(item.grade(""), Grade)
