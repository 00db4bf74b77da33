"""The gates against a server and a model that have nothing of ours, by address alone: `transformers serve`.

Runs in an environment of its own (`nox -s elsewhere`); without a network: the model is made here.
It answers fluently and is nearly always wrong, so the gates must go through to their end and pass nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gates import profile
from gates.errors import ExitCode
from gates.harness import launch, provenance
from gates.harness.launch import Launched
from gates.quality import items
from gates.quality.items import ItemRecord
from gates.quality.plan import plan

pytestmark = [pytest.mark.elsewhere, pytest.mark.timeout(900)]

# What differs from profile `ci`: fewer items, shorter texts, and no floors, which nobody has measured.
CHANGES = {
    "run": {"gates": '["quality"]', "on_demand": '["needle"]', "model": '"given"'},
    "server": {"context_tokens": "4096"},
    "equivalence": None,
    "needle": {
        "tiers_tokens": "[512]",
        "tier_cells": "[2]",
        "tier_order_cells": "[0]",
        "tier_absent_cells": "[1]",
        "tier_cold_asks": "[1]",
        "depths": "[0.25, 0.75]",
    },
    "quality": {
        "fast_items": "[4, 0, 4, 4, 0, 4]",
        "thinking_items": "[2, 0, 0, 0, 0, 0]",
        "fast_min_scores": "[0, 0, 0, 0, 0, 0]",
        "thinking_min_scores": "[0, 0, 0, 0, 0, 0]",
        "fast_mean_tokens": "[0, 0, 0, 0, 0, 0]",
        "thinking_mean_tokens": "[0, 0, 0, 0, 0, 0]",
        "twice_items": "2",
        "honesty_items": "3",
        "concurrency": "2",
    },
    "churn": None,
    "capacity": None,
}


@dataclass(frozen=True, slots=True)
class Judged:
    """One run as a person finds it: how the command ended, what it said, the verdict and the record."""

    code: int
    said: str
    verdict: Mapping[str, Any]
    folder: Path

    def measure(self, measure_id: str) -> tuple[str, float | None]:
        """Verdict and value of a claim."""
        found = self.measures[measure_id]
        return found["verdict"], found["value"]

    def note(self, measure_id: str) -> str:
        """What is said beside a claim."""
        return str(self.measures[measure_id]["note"])

    @property
    def measures(self) -> dict[str, Any]:
        """Every claim by its id."""
        return {m["id"]: m for gate in self.verdict["gates"] for m in gate["measures"]}

    @property
    def items(self) -> Sequence[ItemRecord]:
        """The lines of the items."""
        return items.read(self.folder / "quality" / "items.jsonl")


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A profile as a person makes one: a copy of `ci` with some lines changed and some gates left out."""
    path = tmp_path_factory.mktemp("profile") / "few.toml"
    kept: list[str] = []
    changes: Mapping[str, str] | None = {}
    for line in (profile.FOLDER / "ci.toml").read_text().splitlines():
        if line.startswith("["):
            changes = CHANGES[line.strip("[]")]
        name = line.partition("=")[0].strip()
        if changes is not None:
            kept.append(f"{name} = {changes[name]}" if name in changes else line)
    path.write_text("\n".join(kept))
    return path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launched]:
    """`transformers serve` with a model that was trained a moment ago."""
    from gates.tests.elsewhere import stranger

    folder = tmp_path_factory.mktemp("elsewhere")
    model = stranger.trained().save(folder / "stranger")
    port = launch.free_port()
    serve = [str(Path(sys.executable).with_name("transformers")), "serve", "--device", "cpu"]
    words = [*serve, "--host", "127.0.0.1", "--port", str(port), str(model)]
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "hub"), "OMP_NUM_THREADS": "1"}
    log = folder / "server.log"
    with Launched.start(words, port=port, log=log, start_s=180, stop_s=15, env=env) as started:
        yield started


@pytest.fixture(scope="module")
def quality(few: Path, server: Launched, tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """The quality gate, which asked that server."""
    return run(few, tmp_path_factory.mktemp("quality"), "--only", "quality", "--base-url", server.base_url)


def run(few: Path, folder: Path, *words: str) -> Judged:
    """The gates as a person runs them."""
    command = [sys.executable, "-m", "gates", "run", "--profile", str(few), "--runs", str(folder)]
    env = {**os.environ, "PYTHONPATH": str(provenance.ROOT)}
    ended = subprocess.run([*command, *words], env=env, capture_output=True, text=True, check=False)
    print(ended.stdout, ended.stderr)
    (made,) = folder.glob("*-few-*")
    return Judged(ended.returncode, ended.stdout, json.loads((made / "verdict.json").read_text()), made)


def silent(judged: Judged) -> list[str]:
    """The claims that nobody can tell, without a word why."""
    return [name for name, found in judged.measures.items() if found["value"] is None and not found["note"]]


def test_every_item_is_asked_answered_and_on_record(few: Path, quality: Judged) -> None:
    wanted = plan(profile.load(str(few)).table("quality"), seed=1)
    records = quality.items

    assert sum(part.items + wanted.again(part) for part in wanted.parts) == len(records)
    assert len(records) == len({record.key for record in records})
    assert {"answered", "truncated", "empty"} >= {record.outcome for record in records}
    assert all(record.prompt_tokens and record.completion_tokens for record in records)
    for name in ("missing_count", "fault_ratio", "refused_ratio", "retries_count"):
        assert ("pass", 0) == quality.measure(f"quality.{name}")


def test_a_model_that_answers_rubbish_passes_nothing(quality: Judged) -> None:
    assert ExitCode.FAIL == quality.code
    assert "fail" == quality.verdict["verdict"]
    assert quality.said.splitlines()[-1].startswith("FAIL: ")
    assert sum(bool(record.correct) for record in quality.items) < len(quality.items) / 2


def test_without_a_baseline_nobody_can_tell_and_the_reason_says_what_to_do(quality: Judged) -> None:
    assert ("unknown", None) == quality.measure("quality.margin_ratio")
    assert "there is no baseline: name one to compare with (--control-url" in quality.note(
        "quality.margin_ratio"
    )


def test_what_is_unknown_has_its_reason_in_words(quality: Judged) -> None:
    assert [] == silent(quality)


def test_an_honest_server_is_found_honest(quality: Judged) -> None:
    for name, value in (("usage_error_ratio", 0), ("first_token_ratio", 1), ("crosstalk_count", 0)):
        assert ("pass", value) == quality.measure(f"quality.{name}")
    assert ("pass", 0) == quality.measure("quality.noise_ratio")


def test_an_arm_that_does_not_think_is_named_with_what_the_server_refuses(quality: Judged) -> None:
    assert ("pass", 1) == quality.measure("quality.fast_in_force_ratio")
    assert ("fail", 0) == quality.measure("quality.thinking_in_force_ratio")
    assert "neither reasoning nor tokens for it; asked without return_token_ids, thinking" in quality.note(
        "quality.thinking_in_force_ratio"
    )


def test_the_same_server_as_its_own_control_loses_nothing_and_few_items_prove_nothing(
    few: Path, server: Launched, tmp_path: Path
) -> None:
    address = ("--base-url", server.base_url, "--control-url", server.base_url)
    judged = run(few, tmp_path, "--only", "quality", *address)
    roles = {role: [r.text for r in judged.items if r.server == role] for role in ("candidate", "baseline")}

    assert len(roles["candidate"]) == len(roles["baseline"])
    assert ("pass", 0) == judged.measure("quality.noise_ratio")
    assert ("unknown", None) == judged.measure("quality.margin_ratio")
    assert "there is no baseline" not in judged.note("quality.margin_ratio")


def test_the_needle_gate_goes_through_to_its_end(few: Path, server: Launched, tmp_path: Path) -> None:
    judged = run(few, tmp_path, "--only", "needle", "--base-url", server.base_url)

    assert ExitCode.FAIL == judged.code
    assert ("fail", 0) == judged.measure("needle.recall_ratio")
    for name in ("unanswered_count", "usage_error_ratio", "crosstalk_count"):
        assert ("pass", 0) == judged.measure(f"needle.{name}")
    assert ("unknown", None) == judged.measure("needle.followup_cached_ratio")
    assert "no reply says how many" in judged.note("needle.followup_cached_ratio")
    assert [] == silent(judged)
