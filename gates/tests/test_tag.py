"""Tests of the release tag in a temporary repository: made for exactly what passed, refused for all else."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gates import profile, tag
from gates.errors import ExitCode, UsageError
from gates.harness import provenance
from gates.harness.record import RunFolder
from gates.profile import Profile, checked
from gates.tag import NotReleasable
from gates.tests.conftest import echo_tables
from gates.tests.judged import make_run

MakeRun = Callable[..., RunFolder]


def git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with one commit and nothing else."""
    root = tmp_path / "checkout"
    root.mkdir()
    git(root, "init", "--quiet", "--initial-branch", "main")
    git(root, "config", "user.name", "A tester")
    git(root, "config", "user.email", "tester@example.invalid")
    (root / "file").write_text("content")
    git(root, "add", "file")
    git(root, "commit", "--quiet", "--message", "First")
    return root


@pytest.fixture
def release(echo_gate: object, monkeypatch: pytest.MonkeyPatch) -> Profile:
    """The profile `release`, running the echo gate."""
    del echo_gate
    made = checked("release", echo_tables(), "p" * 64)
    monkeypatch.setattr(profile, "load", lambda _: made)
    return made


@pytest.fixture
def released(checkout: Path, release: Profile, model_file: Path, tmp_path: Path) -> MakeRun:
    """Makes a run of this tree, model and profile; changes go into its record."""

    def make(**changes: Any) -> RunFolder:
        model = {
            "file": "model.gguf",
            "bytes": 11,
            "sha256": hashlib.sha256(model_file.read_bytes()).hexdigest(),
        }
        tree = provenance.tree_record(provenance.checkout(checkout))
        return make_run(tmp_path / "runs", release, **{"model": model, "tree": tree, **changes})

    return make


@pytest.fixture
def try_tag(checkout: Path, release: Profile, model_file: Path, tmp_path: Path) -> Callable[..., str]:
    """Tries to make a tag in the temporary repository."""
    del release

    def make(version: str = "v0.1.0", model: Path | None = model_file) -> str:
        return tag.make(version, model=model, runs=tmp_path / "runs", root=checkout)

    return make


def test_a_recorded_pass_of_exactly_this_allows_the_tag(
    released: MakeRun, try_tag: Callable[..., str], checkout: Path
) -> None:
    folder = released()

    assert folder.path.name == try_tag()
    assert "tag" == git(checkout, "cat-file", "-t", "v0.1.0")
    assert folder.path.name in git(checkout, "tag", "--list", "--format=%(contents)", "v0.1.0")


def test_without_a_model_the_tag_names_the_one_that_was_judged(
    released: MakeRun, try_tag: Callable[..., str], checkout: Path
) -> None:
    folder = released()
    try_tag(model=None)

    text = git(checkout, "tag", "--list", "--format=%(contents)", "v0.1.0")
    assert f"model sha256 {folder.read_run()['model']['sha256']}" in text


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        pytest.param({"wrong": 1}, "its verdict is fail, not pass", id="failed"),
        pytest.param({"state": "interrupted"}, "its verdict is unknown, not pass", id="interrupted"),
        pytest.param({"tree": {"commit": "c", "tree": "t", "dirty": False}}, "another tree", id="other_tree"),
        pytest.param({"model": {"file": "m", "bytes": 1, "sha256": "0"}}, "another model", id="other_model"),
        pytest.param({"model": None}, "its model is not known", id="by_address"),
        pytest.param({"profile_sha256": "0" * 64}, "the profile has changed since", id="other_profile"),
        pytest.param({"seed_of_profile": False}, "a seed of its own", id="own_seed"),
        pytest.param({"seed": 8}, "a seed of its own", id="edited_seed"),
        pytest.param(
            {"settings": echo_tables(min_right_ratio=0.1)}, "not those of the profile", id="edited_limits"
        ),
        pytest.param({"own_server": False}, "another server than this engine", id="other_server"),
        pytest.param({"leftover": ["process 7 (x)"]}, "its verdict is fail", id="leftover"),
    ],
)
def test_a_run_of_anything_else_does_not_allow_it(
    released: MakeRun, try_tag: Callable[..., str], checkout: Path, changes: dict[str, Any], missing: str
) -> None:
    released(**changes)

    with pytest.raises(NotReleasable) as error:
        try_tag()
    assert missing in str(error.value)
    assert ExitCode.UNKNOWN == error.value.exit_code
    assert "" == git(checkout, "tag", "--list")


def test_a_run_of_a_changed_checkout_does_not_allow_it(
    released: MakeRun, try_tag: Callable[..., str], checkout: Path
) -> None:
    (checkout / "file").write_text("changed")
    released()
    (checkout / "file").write_text("content")

    with pytest.raises(NotReleasable, match="judged a checkout with local changes"):
        try_tag()


def test_a_changed_checkout_is_never_tagged(
    released: MakeRun, try_tag: Callable[..., str], checkout: Path
) -> None:
    released()
    (checkout / "new").write_text("not committed")

    with pytest.raises(NotReleasable, match="has local changes"):
        try_tag()


def test_a_later_commit_needs_a_run_of_its_own(
    released: MakeRun, try_tag: Callable[..., str], checkout: Path
) -> None:
    released()
    (checkout / "file").write_text("later")
    git(checkout, "commit", "--quiet", "--all", "--message", "Later")

    with pytest.raises(NotReleasable, match="another tree"):
        try_tag()


def test_a_verdict_file_that_was_edited_does_not_allow_it(
    released: MakeRun, try_tag: Callable[..., str]
) -> None:
    folder = released(wrong=1)
    text = folder.verdict_json.read_text().replace('"verdict": "fail"', '"verdict": "pass"')
    folder.verdict_json.write_text(text)

    with pytest.raises(NotReleasable, match="judged again it is not what was recorded"):
        try_tag()


def test_an_older_pass_allows_it_after_a_newer_run_of_another_profile(
    released: MakeRun, try_tag: Callable[..., str], echo_profile: Profile, tmp_path: Path
) -> None:
    folder = released(second=1)
    make_run(tmp_path / "runs", echo_profile, second=2)

    assert folder.path.name == try_tag()


@pytest.mark.parametrize("name", ["run.json", "verdict.json"])
@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 1}'])
def test_a_spoiled_record_allows_nothing_and_keeps_no_good_one_from_it(
    released: MakeRun, try_tag: Callable[..., str], name: str, text: str
) -> None:
    good = released(second=1)
    (released(second=2).path / name).write_text(text)

    assert good.path.name == try_tag()


def test_a_run_whose_choice_of_gates_was_edited_does_not_allow_it(
    released: MakeRun, try_tag: Callable[..., str]
) -> None:
    folder = released()
    folder.write_run(folder.read_run() | {"chosen": []})

    with pytest.raises(NotReleasable, match=r"chosen is \[\]"):
        try_tag()


def test_without_any_run_the_answer_says_how_to_make_one(try_tag: Callable[..., str]) -> None:
    with pytest.raises(NotReleasable, match="make one with: python -m gates run --profile release"):
        try_tag()


@pytest.mark.parametrize("version", ["0.1.0", "v1", "v01.2.3", "v1.2.3-rc1", "v1.2.3 "])
def test_a_version_of_another_form_is_refused(try_tag: Callable[..., str], version: str) -> None:
    with pytest.raises(UsageError, match=r"allowed: vX\.Y\.Z"):
        try_tag(version)


def test_a_tag_is_never_made_twice(released: MakeRun, try_tag: Callable[..., str]) -> None:
    released()
    try_tag()

    with pytest.raises(UsageError, match="exists already"):
        try_tag()


def test_outside_git_there_is_nothing_to_tag(tmp_path: Path, release: Profile) -> None:
    del release
    (tmp_path / "empty").mkdir()

    with pytest.raises(NotReleasable, match="no git checkout"):
        tag.make("v0.1.0", model=None, runs=tmp_path / "runs", root=tmp_path / "empty")
