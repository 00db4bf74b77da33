"""The document of the record against the files that a run writes."""

from __future__ import annotations

import json
import re
from pathlib import Path

from gates.harness.provenance import ROOT
from gates.profile import Profile
from gates.tests.judged import make_run


def named(part: str) -> set[str]:
    """Every name in code marks in one part of the document."""
    text = (ROOT / "docs" / "records.md").read_text(encoding="utf-8")
    section = text.partition(f"\n## {part}\n")[2].partition("\n## ")[0]
    return set(re.findall(r"`([\w.]+)`", section))


def test_every_field_of_a_run_record_is_documented(tmp_path: Path, echo_profile: Profile) -> None:
    record = make_run(tmp_path, echo_profile).read_run()

    assert set(record) - named("`run.json`") == set()


def test_every_field_of_a_verdict_is_documented(tmp_path: Path, echo_profile: Profile) -> None:
    content = json.loads(make_run(tmp_path, echo_profile, wrong=1).verdict_json.read_bytes())
    gate = content["gates"][0]
    fields = set(content) | set(gate) | set(gate["measures"][0]) | set(gate["findings"][0])

    assert fields - named("`verdict.json`") == set()


def test_every_file_of_a_run_is_documented(tmp_path: Path, echo_profile: Profile) -> None:
    folder = make_run(tmp_path, echo_profile)
    text = (ROOT / "docs" / "records.md").read_text(encoding="utf-8")
    names = {path.name + ("/" if path.is_dir() else "") for path in folder.path.iterdir()} - {"echo/"}

    assert {name for name in names if f"`{name}`" not in text} == set()
