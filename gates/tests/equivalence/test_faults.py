"""Every seeded fault turns the equivalence gate red, by the claim that it breaks; without one it is green."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from engine.tests.mutant import Change, Mutant
from engine.tests.seeded import FAULTS
from engine.tests.small import SMALL as SHAPE
from fixtures.tiny.random_model import build_random
from gates import registry
from gates.equivalence.check import outcome
from gates.equivalence.drive import COMMAND, drive
from gates.equivalence.plan import plan
from gates.equivalence.table import PAIRS
from gates.harness import history, room
from gates.harness.client import Client
from gates.harness.history import History
from gates.harness.rig import Rig
from gates.tests.driving import Counted, broken
from gates.tests.equivalence.driving import Wanted, cases_of, judged, recorded, settings

# Of each fault the claims that it must break, and the cases in which a short test sees it.
CAUGHT: dict[str, tuple[set[str], Wanted]] = {
    "forgets_the_overlap_on_a_hit": ({"prefix"}, {"fork": ["20"]}),
    "window_layers_start_empty": ({"prefix"}, {"fork": ["20"]}),
    "copies_half_a_page": ({"prefix"}, {"fork": ["16-1"]}),
    "reused_pages_keep_old_rows": ({"restore"}, {"recycled": ["decoded rows"]}),
    "evicts_under_a_prefill": ({"restore"}, {"under_prefill": []}),
    "keeps_a_page_before_it_is_full": ({"prefix"}, {"cancelled": ["24"]}),
    "compares_only_the_first_page": ({"prefix"}, {"alike": []}),
    "swaps_rows_of_a_step": ({"company"}, {"together": ["3 rows"]}),
    "later_chunks_lose_rows": ({"cuts"}, {"cut": ["4+1"]}),
    "window_edge_forgets_the_block_before": ({"cuts"}, {"cut": ["8+1"]}),
    "crashes_on_a_large_first_chunk": ({"crashed"}, {"first_chunk": ["65"]}),
    "forgets_a_rounding": ({"storage"}, {"storage": ["16"]}),
    "doubles_scales_of_exact_powers": ({"codes"}, {"kv_codes": ["grid_ends"]}),
    "loses_minus_zero": ({"codes"}, {"index_codes": ["zeros"]}),
    "rounds_a_lone_row_otherwise": ({"company"}, {"decode_rows": ["2 rows"]}),
    "splits_sums_among_threads": ({"company"}, {"threads": []}),
    "ignores_the_layout_of_a_file": ({"restore"}, {"other_layout": ["packed to wide"]}),
    "trusts_torn_files": ({"restore"}, {"torn": []}),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model with every mechanism and small edges."""
    return build_random(tmp_path_factory.mktemp("model") / "small.gguf", seed=5, spec=SHAPE)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Files that cannot be used are part of the game."""
    loggers = [logging.getLogger(name) for name in ("engine.cache", "engine.loop")]
    for logger in loggers:
        logger.disabled = True
    yield
    for logger in loggers:
        logger.disabled = False


def claims(names: set[str]) -> set[str]:
    """Ids of claims by their short names."""
    return {
        f"equivalence.{name}_count" if name == "crashed" else f"equivalence.{name}_differing_count"
        for name in names
    }


@pytest.mark.parametrize("fault", CAUGHT)
def test_a_seeded_fault_breaks_its_claim(fault: str, model: Path, tmp_path: Path) -> None:
    names, wanted = CAUGHT[fault]
    with FAULTS[fault].mutant.alive():
        events = recorded(model, cases_of(wanted), tmp_path)

    assert claims(names) <= broken(judged(events))
    assert all(event.get("equal") is not True for event in events if event.kind == "ok")


def test_a_pair_whose_first_request_fails_ends_its_case_alone(model: Path, tmp_path: Path) -> None:
    grows = "cache.grow(cache.length + len(tokens))"
    fails = Mutant("fails", (Change("engine.model.graph:Graph", "_step", grows, "cache.grow(1 // 0)"),))
    with fails.alive():
        events = recorded(model, cases_of({"fork_running": []}), tmp_path)

    assert ["fail"] == [event.kind for event in events if event.op >= 0 and event.kind != "invoke"]


# What a pair is about does not happen: its runs agree, and that must show nothing.
IDLE: dict[str, tuple[Mutant, Wanted]] = {
    "nothing stored is ever found": (
        Mutant("finds_no_file", (Change("engine.cache.shelf:Shelf", "find", "best.place", "False"),)),
        {"torn": ["changed"], "other_layout": ["other rounding"]},
    ),
    "one thread takes every step": (
        Mutant(
            "one_thread",
            (
                Change("engine.runner:Runner", "_run", "set_num_threads(threads)", "set_num_threads(1)"),
                Change(
                    "engine.runner:Runner",
                    "_run",
                    "set_num_threads(self._threads.small)",
                    "set_num_threads(1)",
                ),
            ),
        ),
        {"threads": []},
    ),
}


@pytest.mark.parametrize("why", IDLE)
def test_runs_that_did_not_do_what_they_are_about_show_nothing(why: str, model: Path, tmp_path: Path) -> None:
    mutant, wanted = IDLE[why]
    with mutant.alive():
        outcomes = [outcome(one) for one in history.operations(recorded(model, cases_of(wanted), tmp_path))]

    assert {"idle"} == {one.word for one in outcomes}


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("fault", CAUGHT)
def test_a_seeded_fault_turns_the_whole_table_red(fault: str, model: Path, tmp_path: Path) -> None:
    with FAULTS[fault].mutant.alive():
        events = recorded(model, cases_of({pair.id: [] for pair in PAIRS}), tmp_path)

    assert claims(CAUGHT[fault][0]) <= broken(judged(events))


@pytest.mark.live
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("fault", "subject", "name"),
    [
        ("copies_half_a_page", "fork", "32"),
        ("trusts_torn_files", "torn", "zeroed"),
        ("crashes_on_a_large_first_chunk", "first_chunk", "600"),
    ],
)
def test_the_embedded_model_in_a_process_with_a_fault_is_caught(
    fault: str, subject: str, name: str, tmp_path: Path
) -> None:
    """As a run drives it, but for the process that has the fault."""
    whole = plan(settings(), seed=7)
    some = replace(whole, every=tuple(case for case in whole.every if case.id == f"{subject}/{name}"))
    command = (COMMAND[0], "-m", "engine.tests.seeded", fault, *COMMAND[2:])
    with History(tmp_path / "history.jsonl") as record, Client("http://127.0.0.1:9") as client:
        record.note(room.PLANNED, cells=some.cells)
        drive(some, Rig(client, record, Counted(), lambda: True, data=None, context_tokens=1), command)
        record.note(room.FINISHED)

    assert claims(CAUGHT[fault][0]) <= broken(judged(history.read(tmp_path / "history.jsonl")))


def test_without_a_fault_the_same_cases_break_nothing(model: Path, tmp_path: Path) -> None:
    together: dict[str, list[str]] = {}
    for _, wanted in CAUGHT.values():
        for pair, names in wanted.items():
            together.setdefault(pair, []).extend(names)  # none means all, of the one fault that says so
    events = recorded(model, cases_of(together), tmp_path)

    assert set() == broken(judged(events))
    assert [] == [event for event in events if event.kind == "ok" and not event.get("equal")]


def test_every_fault_that_the_registry_names_is_tried_here() -> None:
    assert set(CAUGHT) == set(registry.find("equivalence").faults)
    assert set(CAUGHT) <= set(FAULTS)
