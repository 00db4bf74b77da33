"""Tests of profiles: complete or refused, with every fault named, before anything starts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from gates import profile, registry
from gates.errors import UsageError
from gates.spec import UNITS
from gates.tests.conftest import ECHO, echo_tables


@pytest.mark.parametrize("name", ["candidate", "ci", "nightly", "release"])
def test_every_profile_fits_the_registry(name: str) -> None:
    loaded = profile.load(name)

    assert name == loaded.name
    assert len(loaded.gates) > 0


def test_a_profile_of_ones_own_is_named_by_its_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes((profile.FOLDER / "ci.toml").read_bytes())

    assert ("mine", profile.load("ci").tables) == (
        profile.load(str(path)).name,
        profile.load(str(path)).tables,
    )
    with pytest.raises(UsageError, match=r"there is no profile file .*other\.toml"):
        profile.load(str(tmp_path / "other.toml"))


def test_a_file_does_not_pass_for_a_profile_of_the_gates(tmp_path: Path) -> None:
    path = tmp_path / "release.toml"
    path.write_bytes((profile.FOLDER / "ci.toml").read_bytes())

    with pytest.raises(UsageError, match="call it otherwise"):
        profile.load(str(path))


def test_the_profiles_are_the_four_that_are_documented() -> None:
    assert ["candidate", "ci", "nightly", "release"] == profile.names()


def test_the_gates_of_a_profile_fit_into_its_time_budget() -> None:
    for name in profile.names():
        loaded = profile.load(name)
        gates = sum(loaded.table(gate.name).number("budget_minutes") for gate in loaded.gates)

        assert gates <= loaded.table("run").number("budget_minutes"), name


def test_a_release_leaves_nothing_out_and_judges_a_given_model() -> None:
    run = profile.load("release").table("run")

    assert not run.switch("selection")
    assert "given" == run.text("model")


def test_every_gate_runs_in_the_release_profile() -> None:
    assert {gate.name for gate in registry.GATES} == {gate.name for gate in profile.load("release").gates}


def test_every_measure_has_a_unit_at_the_end_of_its_id_and_its_gate_at_the_start() -> None:
    for gate in (*registry.GATES, registry.RUN):
        for measure in gate.measures:
            assert measure.unit in UNITS, measure.id
            assert measure.id.startswith(f"{gate.name}."), measure.id


def test_no_measure_or_key_is_listed_twice() -> None:
    for gate in (*registry.GATES, registry.RUN):
        keys = [key.name for key in gate.all_keys()]
        assert len(set(keys)) == len(keys), gate.name


def test_every_gate_names_faults_that_it_must_catch() -> None:
    assert all(gate.faults for gate in registry.GATES)


def test_every_gate_has_the_four_files_of_a_room_and_a_readme() -> None:
    for gate in registry.GATES:
        folder = Path(profile.__file__).parent / gate.name
        wanted = {"plan.py", "drive.py", "check.py", f"test_{gate.name}.py", "README.md"}
        assert wanted <= {path.name for path in folder.iterdir()}, gate.name


def test_every_setting_of_a_gate_is_read_by_its_room() -> None:
    for gate in registry.GATES:
        folder = Path(profile.__file__).parent / gate.name
        source = "".join(path.read_text() for path in folder.glob("*.py"))
        unread = [key.name for key in gate.keys if not re.search(rf"""["']{key.name}["']""", source)]
        assert [] == unread, gate.name


@pytest.mark.parametrize(
    ("table", "key", "value", "message"),
    [
        pytest.param(
            "echo", "min_right_ratio", None, "[echo] min_right_ratio: missing key (number)", id="missing"
        ),
        pytest.param("echo", "wrods", 3, "[echo] wrods: unknown key (did you mean 'words'?)", id="unknown"),
        pytest.param(
            "echo", "words", -1, "[echo] words: found -1, allowed: a whole number from 0", id="negative"
        ),
        pytest.param("echo", "words", True, "[echo] words: found True", id="switch_for_count"),
        pytest.param("echo", "words", 2.0, "[echo] words: found 2.0", id="fraction_for_count"),
        pytest.param(
            "echo", "min_right_ratio", float("nan"), "found nan, allowed: a number", id="not_a_number"
        ),
        pytest.param("run", "gates", [], "[run] gates: empty", id="no_gates"),
        pytest.param(
            "run", "gates", ["ecko"], "unknown gate 'ecko' (did you mean 'echo'?)", id="unknown_gate"
        ),
        pytest.param("run", "model", "mine", "found 'mine', allowed: embedded, given", id="unknown_model"),
        pytest.param("echo", "budget_minutes", 0, "found 0, allowed: a number above 0", id="no_time"),
        pytest.param("server", "request_seconds", -1, "found -1, allowed: a number above 0", id="less_time"),
        pytest.param("echo", "min_right_ratio", 10**400, "allowed: a number", id="no_float"),
        pytest.param(
            "server", "start_seconds", "1", "[server] start_seconds: found '1'", id="text_for_number"
        ),
    ],
)
@pytest.mark.usefixtures("echo_gate")
def test_a_wrong_key_stops_the_run_with_its_place(table: str, key: str, value: Any, message: str) -> None:
    tables = echo_tables()
    if value is None:
        del tables[table][key]
    else:
        tables[table][key] = value

    with pytest.raises(UsageError) as error:
        profile.checked("echo", tables, "")
    assert message in str(error.value)


@pytest.mark.usefixtures("echo_gate")
def test_a_missing_table_is_named() -> None:
    tables = echo_tables()
    del tables["echo"]

    with pytest.raises(UsageError, match=r"\[echo\]: missing table"):
        profile.checked("echo", tables, "")


def test_a_table_of_a_gate_that_does_not_run_is_unused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "GATES", (ECHO, registry.find("needle")))
    tables = echo_tables() | {"needle": {}}

    with pytest.raises(UsageError, match=r"\[needle\]: unused table; add it to \[run\] gates or remove it"):
        profile.checked("echo", tables, "")


@pytest.mark.usefixtures("echo_gate")
def test_all_faults_are_told_at_once() -> None:
    tables = echo_tables(words="many", extra=1)

    with pytest.raises(UsageError) as error:
        profile.checked("echo", tables, "")
    assert 2 == str(error.value).count("\n  ")


def test_an_unknown_profile_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"no profile 'relese' \(did you mean 'release'\?\)"):
        profile.load("relese")


def test_a_file_that_is_no_toml_is_refused(tmp_path: Path) -> None:
    (tmp_path / "odd.toml").write_text("[run")

    with pytest.raises(UsageError, match="is not TOML"):
        profile.load("odd", folder=tmp_path)


def test_cheap_gates_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "GATES", (registry.find("needle"), ECHO))

    assert ["echo", "needle"] == [gate.name for gate in registry.cheap_first(["needle", "echo"])]
