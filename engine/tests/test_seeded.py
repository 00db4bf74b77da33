"""Seeded faults: each has its places in the source, is there when it is asked for, and leaves no trace."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import engine
from engine.cache import shelf, stored
from engine.scheduler.records import common_prefix
from engine.tests import seeded
from engine.tests.mutant import Change, Mutant
from engine.tests.seeded import FAULTS

ROOT = Path(engine.__file__).parent


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "engine.tests.seeded", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=env, check=False)


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_has_its_places_and_leaves_them_as_they_were(name: str) -> None:
    changes = FAULTS[name].changes
    before = [vars(change.place())[change.function] for change in changes]
    with FAULTS[name].mutant.alive():
        during = [vars(change.place())[change.function] for change in changes]
    after = [vars(change.place())[change.function] for change in changes]

    assert before == after
    assert not set(map(id, before)) & set(map(id, during))


def test_names_are_words_and_sentences_say_what_a_process_does() -> None:
    for name, fault in FAULTS.items():
        assert name == fault.name
        assert name.replace("_", "").isalpha()
        assert fault.does[0].islower()
        assert fault.like


def test_a_place_that_is_gone_is_an_error_and_nothing_is_changed() -> None:
    good = Change("engine.scheduler.records", "common_prefix", "min(", "max(")
    mutant = Mutant("half", (good, Change("engine.scheduler.records", "common_prefix", "nowhere", "")))

    with pytest.raises(LookupError, match="'nowhere' stands 0 times in common_prefix"), mutant.alive():
        pass

    assert common_prefix is vars(sys.modules["engine.scheduler.records"])["common_prefix"]


def test_two_changes_of_one_function_hold_together() -> None:
    where = ("engine.scheduler.records", "common_prefix")
    mutant = Mutant(
        "twice", (Change(*where, "int(differing[0])", "7"), Change(*where, "else length", "else 9"))
    )
    same, other = np.zeros(5, np.int32), np.ones(5, np.int32)
    with mutant.alive():
        found = [vars(sys.modules[where[0]])["common_prefix"](same, ids) for ids in (same, other)]

    assert [9, 7] == found
    assert 5 == common_prefix(same, same)


def test_a_function_is_changed_wherever_it_was_imported_by_name_and_nowhere_afterwards() -> None:
    change = Change("engine.cache.stored", "read_arrays", "header.digest", "header.digest and False")
    before = vars(shelf)["read_arrays"]
    with Mutant("read", (change,)).alive():
        during = vars(shelf)["read_arrays"]

    assert before is vars(shelf)["read_arrays"] is stored.read_arrays
    assert before is not during


def test_an_unknown_name_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(LookupError, match="did you mean 'loses_minus_zero'"):
        seeded.find("looses_minus_zero")

    found = _run("looses_minus_zero", "engine", "inspect")
    assert (1, "") == (found.returncode, found.stdout)
    assert "did you mean 'loses_minus_zero'?" in found.stderr


def test_a_module_runs_with_the_fault_and_says_so(tmp_path: Path) -> None:
    script = tmp_path / "asks.py"
    script.write_text(
        "import sys, torch\n"
        "from engine.kernels.ref import rounding\n"
        "codes, _ = rounding.fp4_codes(torch.full((1, 32), -0.0))\n"
        "print(sys.argv[1:], int(codes[0, 0]))\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(tmp_path)])}
    words = ("loses_minus_zero", "asks", "--an", "option")
    found = subprocess.run(
        [sys.executable, "-m", "engine.tests.seeded", *words],
        capture_output=True,
        text=True,
        timeout=60,
        env=env,
        check=True,
    )

    assert "['--an', 'option'] 0\n" == found.stdout
    assert "event=seeded_fault name=loses_minus_zero: packed index rows" in found.stderr


def test_the_product_knows_nothing_of_them() -> None:
    product = [path for path in ROOT.rglob("*.py") if "tests" not in path.relative_to(ROOT).parts]

    assert product
    assert [] == [path.name for path in product if "engine.tests" in path.read_text(encoding="utf-8")]
