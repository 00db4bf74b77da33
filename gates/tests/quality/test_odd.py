"""Right answers in odd forms: read right, or unknown or fail with the reason; never a pass."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from gates import conduct, run
from gates.harness import record
from gates.profile import checked
from gates.target import Target
from gates.tests.quality import odd
from gates.tests.quality.driving import COUNT, SETS
from gates.tests.quality.odd import OddServer, Wire
from gates.tests.quality.scholar import Scholar
from gates.tests.quality.test_drive import quality_profile, small


def judged(wire: Wire, folder: Path, *, kind: str = odd.EVENTS) -> tuple[dict[str, Any], dict[str, Any]]:
    """The verdict file of a run against this server, and its claims by name."""
    known = quality_profile(small(honesty_items=2, transport_retries=0, quiet_host_ratio=1.0))
    tables = {name: dict(table) for name, table in known.tables.items()}
    tables["server"]["request_seconds"] = 0.5 if wire is odd.drips else 10
    profile = checked("ci", tables, "0" * 64)
    scholar = Scholar(SETS, COUNT, seed=conduct.seed_of(profile.seed, "quality"))
    with OddServer(scholar, wire, kind=kind) as server:
        request = run.Request(profile, Target(base_urls=(server.base_url,)), runs=folder)
        run.run(request, Console(file=io.StringIO()))
    content = record.find(folder, "latest").read_verdict()
    return content, {m["id"].removeprefix("quality."): m for m in content["gates"][0]["measures"]}


ODD = [
    (odd.breaks_off, "fault_ratio", "the server broke the reply off (finish_reason abort)"),
    (odd.no_choices, "fault_ratio", "the reply has no finish reason, and 0 characters"),
    (odd.no_end, "fault_ratio", "BrokenOff: the reply has no finish reason, and "),
    (odd.other_end, "fault_ratio", "finish_reason is 'tired'; known are stop, length"),
    (odd.no_content, "empty_ratio", "6 of 6: empty: finish_reason stop"),
    (odd.all_reasoning, "empty_ratio", "6 of 6: empty: finish_reason stop"),
    (odd.error_within, "refused_ratio", "6 of 6: refused: Refused: HTTP 200: out of memory"),
    (odd.floods, "fault_ratio", "more than 64 KiB"),
    (odd.cumulative, "usage_error_ratio", ""),
    (odd.surrogates, "unparsed_ratio", "6 of 6: unparsed"),
]


def test_its_twin_that_writes_as_it_should_breaks_none_of_these_claims(tmp_path: Path) -> None:
    _, claims = judged(odd.plain, tmp_path)

    assert {"pass"} == {claims[claim]["verdict"] for _, claim, _ in ODD}


@pytest.mark.parametrize(("wire", "claim", "said"), ODD, ids=lambda value: getattr(value, "__name__", None))
def test_a_right_answer_in_an_odd_form_is_no_pass_and_its_reason_is_named(
    wire: Wire, claim: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gates.harness.client.MOST_BYTES", 1 << 16)
    content, claims = judged(wire, tmp_path)

    assert ("fail", "fail") == (content["verdict"], claims[claim]["verdict"])
    assert said in claims[claim]["note"]
    assert "finished" == content["run"]["state"]
    assert claim in content["reasons"][0]


def test_a_page_in_place_of_a_stream_is_named(tmp_path: Path) -> None:
    content, claims = judged(lambda *_: iter([b"<p>Please sign in.</p>"]), tmp_path, kind="text/html")

    assert ("fail", "fail") == (content["verdict"], claims["fault_ratio"]["verdict"])
    assert "the answer is <p>Please sign in.</p>" in content["reasons"][0]


def test_a_reply_that_never_ends_is_unknown(tmp_path: Path) -> None:
    content, _ = judged(odd.drips, tmp_path)

    assert "unknown" == content["verdict"]
    assert "requests in a row without an answer" in content["reasons"][0]
