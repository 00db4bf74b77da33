"""Turns of a conversation: the last try counts, a page is forgiven, a busy host is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gates.harness import history
from gates.harness.history import History, Operation
from gates.harness.turns import PAGE_TOKENS, first_cause, kept_share, last_tries, on_quiet_host


def asked(folder: Path, *rows: dict[str, Any]) -> list[Operation]:
    """One answered request a row; `what`, `cell` and `key` are of the request."""
    with History(folder / "history.jsonl") as record:
        for row in rows:
            fields = {"what": "round", "cell": "a", "key": "red", **row}
            what, of_request = fields.pop("what"), {name: fields.pop(name) for name in ("cell", "key")}
            record.ok(record.invoke(what, **of_request), what, **fields)
    return history.operations(history.read(folder / "history.jsonl"))


def test_of_each_question_the_last_try_counts_where_it_was_asked_first(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"n": 1},
        {"n": 2, "key": "blue"},
        {"n": 3},
        {"n": 4, "what": "cold"},
        {"n": 5, "what": "probe"},
    ]
    found = asked(tmp_path, *rows)

    assert [3, 2] == [one.get("n") for one in last_tries(found, "round")]
    assert [3, 2, 4] == [one.get("n") for one in last_tries(found, "round", "cold")]


@pytest.mark.parametrize(
    ("cached", "prompt", "share"),
    [
        pytest.param(1000, 1000, 1.0, id="whole"),
        pytest.param(1000 - PAGE_TOKENS, 1000, 1.0, id="a_page_less"),
        pytest.param(372, 1000, 0.5, id="half"),
        pytest.param(0, 1000, 0.0, id="nothing_is_forgiven_nothing"),
        pytest.param(None, 1000, None, id="not_counted"),
        pytest.param(5, None, None, id="unknown_before"),
    ],
)
def test_a_page_is_forgiven_of_what_was_kept(
    cached: int | None, prompt: int | None, share: float | None, tmp_path: Path
) -> None:
    before, now = asked(tmp_path, {"prompt_tokens": prompt}, {"cached_tokens": cached})

    assert share == kept_share(now, before)


def test_the_cause_of_a_loss_is_that_of_the_first(tmp_path: Path) -> None:
    refused, empty = asked(tmp_path, {"message": "HTTP 422: no such field"}, {"message": ""})

    assert "the first: HTTP 422: no such field" == first_cause([refused, empty])
    assert "the first: an empty answer" == first_cause([empty])
    assert "" == first_cause([])


@pytest.mark.parametrize(("busy", "quiet"), [(0.1, True), (0.2, False), (None, True)])
def test_a_host_is_quiet_up_to_the_limit_and_where_nobody_knows(
    busy: float | None, quiet: bool, tmp_path: Path
) -> None:
    (one,) = asked(tmp_path, {"host_busy_ratio": busy})

    assert quiet is on_quiet_host(one, 0.1)
