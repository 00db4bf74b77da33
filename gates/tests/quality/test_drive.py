"""Driving the quality gate: parts, shards, control, retries, outcomes, and going on after a kill."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from gates import profile, registry, run
from gates.errors import ExitCode, UsageError
from gates.harness import crowd, history, record, room
from gates.harness.verdict import Verdict
from gates.profile import Profile, Settings, checked
from gates.quality import items, pool, probing
from gates.quality.answers import Ask
from gates.quality.data import Store
from gates.quality.gsm8k import GRADER_VERSION
from gates.quality.items import ItemRecord
from gates.quality.plan import plan
from gates.target import Target
from gates.tests.driving import Counted
from gates.tests.faults import Honest
from gates.tests.quality.driving import COUNT, SEED, SETS, driven, judged, rig_of, settings, verdicts
from gates.tests.quality.quirky import MODEL, QuirkyServer
from gates.tests.quality.scholar import Scholar
from gates.tests.reader import Body, Cut, Delta, Die, End, Part, ReaderServer

ONE_SET = ("mini_arithmetic",)


def small(**changes: profile.Value) -> Settings:
    """A table of one set without probes."""
    table: dict[str, profile.Value] = {
        "sets": list(ONE_SET),
        "fast_margins": [0.9],
        "thinking_margins": [0.9],
        "fast_items": [COUNT],
        "thinking_items": [0],
        "fast_min_scores": [0.6],
        "thinking_min_scores": [0.0],
        "fast_mean_tokens": [0],
        "thinking_mean_tokens": [0],
        "twice_items": 0,
        "honesty_items": 0,
    }
    return settings(**{**table, **changes})


def scholar(**options: float) -> Scholar:
    return Scholar(SETS, COUNT, seed=SEED, **options)


def told(record: ItemRecord) -> tuple[object, ...]:
    """What of a record does not depend on time and place."""
    return (*record.key, record.text, record.correct, record.outcome, record.prompt_sha256)


def test_an_item_is_recorded_with_all_that_is_known_of_it(tmp_path: Path) -> None:
    (found,) = driven(tmp_path, small(fast_items=[1]), Honest(scholar()))

    assert ("mini_arithmetic", "fast", "mini_arithmetic/0", "one_step") == (
        found.set,
        found.arm,
        found.item,
        found.category,
    )
    assert ("pass", 1.0, True, "answered", "stop", 0) == (
        found.state,
        found.score,
        found.correct,
        found.outcome,
        found.finish_reason,
        found.retries,
    )
    assert found.text.endswith(f"#### {found.extracted}")
    assert len(found.token_ids) == found.completion_tokens
    assert 0 < (found.ttft_s or 0) <= (found.seconds or 0)


def test_shards_share_the_items_and_change_nothing_else(tmp_path: Path) -> None:
    one = driven(tmp_path / "one", small(), Honest(scholar()))
    backends = [Counting(scholar()), Counting(scholar())]
    many = driven(tmp_path / "many", small(), *backends)

    assert {told(record) for record in one} == {told(record) for record in many}
    assert all(backend.asked > 0 for backend in backends)
    assert COUNT == sum(backend.asked for backend in backends)


def test_the_control_is_asked_before_and_after_the_candidate(tmp_path: Path) -> None:
    found = driven(tmp_path, small(concurrency=1), Honest(scholar()), control=Honest(scholar()))
    asked = [o.get("server") for o in history.operations(history.read(tmp_path / "history.jsonl"), "item")]

    assert ["baseline", "candidate", "baseline_again"] * COUNT == asked
    assert {"baseline": COUNT, "candidate": COUNT, "baseline_again": COUNT} == Counter(
        record.server for record in found
    )
    assert Verdict.PASS == verdicts(judged(tmp_path, small(twice_items=0)))["quality.margin_ratio"]


class Counting(Honest):
    """Counts what it is asked."""

    asked = 0

    def spoil(self, body: Body, parts: Iterator[Part]) -> Iterator[Part]:
        """The same parts."""
        del body
        self.asked += 1
        time.sleep(0.02)  # so that no shard takes all before the other wakes
        return parts


class CutsSome(Honest):
    """Cuts every stream the first so many times that it is asked the same."""

    def __init__(self, backend: Scholar, times: int) -> None:
        super().__init__(backend)
        self._times = times
        self._seen: Counter[str] = Counter()

    def spoil(self, body: Body, parts: Iterator[Part]) -> Iterator[Part]:
        """The first part alone, or all."""
        asked = str(body["messages"])
        self._seen[asked] += 1
        for part in parts:
            yield part
            if self._seen[asked] <= self._times:
                raise Cut


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gates.quality.drive.PAUSE_S", 0.0)


@pytest.mark.usefixtures("no_pause")
def test_a_cut_stream_is_asked_again_and_every_try_is_on_record(tmp_path: Path) -> None:
    found = driven(tmp_path, small(fast_items=[2]), CutsSome(scholar(), 1))
    asked = history.operations(history.read(tmp_path / "history.jsonl"), "item")

    assert [("answered", 1, True)] * 2 == [(r.outcome, r.retries, r.correct) for r in found]
    assert [0, 0, 1, 1] == sorted(operation.get("attempt") for operation in asked)


@pytest.mark.usefixtures("no_pause")
def test_an_item_that_never_comes_is_a_fault_and_no_wrong_answer(tmp_path: Path) -> None:
    found = driven(tmp_path, small(fast_items=[2], transport_retries=1), CutsSome(scholar(), 9))

    assert [("fault", "infra", None, None, 1)] * 2 == [
        (r.outcome, r.state, r.correct, r.score, r.retries) for r in found
    ]
    assert Verdict.FAIL == verdicts(judged(tmp_path, small()))["quality.fault_ratio"]


class Ends(Honest):
    """Says one thing and ends it in one way."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(scholar())
        self._said, self._reason = text, reason

    def answer(self, body: Body) -> Iterator[Part]:
        """The same to everybody."""
        del body
        yield Delta(self._said)
        yield End(self._reason, {"prompt_tokens": 9, "completion_tokens": 1})


@pytest.mark.parametrize(
    ("text", "reason", "outcome", "measure"),
    [
        ("", "stop", "empty", "quality.empty_ratio"),
        ("\u200b\ufeff", "stop", "empty", "quality.empty_ratio"),
        ("answer: " * 3000, "stop", "fault", "quality.fault_ratio"),  # more than its 160 tokens can have
        ("#### 1", "length", "truncated", "quality.truncated_ratio"),
        ("I may not.", "content_filter", "refused", "quality.refused_ratio"),
        ("I like apples.", "stop", "answered", "quality.unparsed_ratio"),
    ],
)
def test_each_way_to_end_is_counted_apart(
    tmp_path: Path, text: str, reason: str, outcome: str, measure: str
) -> None:
    found = driven(tmp_path, small(), Ends(text, reason))

    assert {(outcome, False)} == {(r.outcome, bool(r.correct)) for r in found}
    assert Verdict.FAIL == verdicts(judged(tmp_path, small()))[measure]


def test_what_is_on_record_is_not_asked_again(tmp_path: Path) -> None:
    whole = driven(tmp_path / "whole", small(), Honest(scholar()))
    folder = tmp_path / "torn"
    driven(folder, small(), Honest(scholar()))
    lines = (folder / "history.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "history.jsonl").write_bytes(b"".join([*lines[:-4], lines[-4][:30]]))  # an item in flight
    kept = (folder / "items.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "items.jsonl").write_bytes(b"".join([*kept[:3], kept[3][:40]]))  # two replies not graded yet
    before = history.read(folder / "history.jsonl")
    backend = Counting(scholar())
    after = driven(folder, small(), backend, before=before)
    known = {o.get("item") for o in history.operations(before, "item") if o.outcome == "ok"}

    assert {told(record) for record in whole} == {told(record) for record in after}
    assert COUNT == len(after)
    assert COUNT - len(known) == backend.asked > 0


def quality_profile(table: Settings) -> Profile:
    """Profile `ci` with the quality gate alone."""
    ci = profile.load("ci")
    tables = {
        "run": {**ci.tables["run"], "gates": ["quality"], "on_demand": []},
        "server": ci.tables["server"],
    }
    return checked("ci", {**tables, "quality": table.values}, "0" * 64)


KILLED = """
import sys
from pathlib import Path
from rich.console import Console
from gates import run
from gates.target import Target
from gates.tests.quality.test_drive import quality_profile, small
target = Target(base_urls=(sys.argv[1],))
run.run(run.Request(quality_profile(small()), target, runs=Path(sys.argv[2])), Console())
"""


def test_a_kill_loses_at_most_the_items_in_flight(tmp_path: Path) -> None:
    with ReaderServer(Honest(scholar(seconds_per_reply_token=0.02))) as server:
        words = [sys.executable, "-c", KILLED, server.base_url, str(tmp_path)]
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, start_new_session=True)
        path = tmp_path / "latest" / "quality" / "items.jsonl"
        while not path.is_file() or path.read_bytes().count(b"\n") < 1:
            assert process.poll() is None
            time.sleep(0.005)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        folder = record.find(tmp_path, "latest")
        torn = len(items.read(path))
        console = Console(file=io.StringIO())
        run.resume(folder, Target(base_urls=(server.base_url,)), None, console)
    asked = history.operations(history.read(folder.history("quality")), "item")

    assert 1 <= torn < COUNT
    assert {f"mini_arithmetic/{n}": 1 for n in range(COUNT)} == Counter(r.item for r in items.read(path))
    assert COUNT <= len(asked) <= COUNT + small().count("concurrency")
    assert "finished" == folder.read_run()["state"]


def test_parts_of_the_items_are_joined_to_the_whole(tmp_path: Path) -> None:
    whole = plan(small(), seed=SEED).cells
    table = small(fast_items=[whole])
    request = run.Request(quality_profile(table), runs=tmp_path, part=(1, 2), seed=SEED)
    with ReaderServer(Honest(scholar())) as server:
        target = Target(base_urls=(server.base_url,))
        folders = []
        for number in (1, 2):
            run.run(replace(request, target=target, part=(number, 2)), Console(file=io.StringIO()))
            folders.append(record.find(tmp_path, "latest"))
    found = [items.read(folder.items("quality")) for folder in folders]
    alone = {m["id"]: m for m in folders[0].read_verdict()["gates"][0]["measures"]}

    assert [whole // 2] * 2 == [len(records) for records in found]
    assert whole == len(items.merged(found))
    assert "part 2 of the items is in another run" in alone["quality.missing_count"]["note"]


def test_only_gates_that_ask_by_item_can_be_parted() -> None:
    request = run.Request(profile.load("ci"), part=(1, 2))

    with pytest.raises(UsageError, match=r"there is none of .*needle.*: name other gates"):
        run.chosen(request)
    assert ["quality"] == [gate.name for gate in run.chosen(replace(request, only=("quality",)))]


def test_another_server_is_judged_by_its_address_alone(tmp_path: Path) -> None:
    table = small(thinking_items=[COUNT], honesty_items=2)
    with QuirkyServer() as server:
        target = Target(base_urls=(server.base_url,))
        request = run.Request(quality_profile(table), target, runs=tmp_path)
        code = run.run(request, Console(file=io.StringIO()))
    folder = record.find(tmp_path, "latest")
    found = items.read(folder.items("quality"))
    said = {m["id"]: m for m in folder.read_verdict()["gates"][0]["measures"]}

    assert [MODEL] == folder.read_run()["served_models"]
    assert {("answered", "stop", None)} == {(r.outcome, r.finish_reason, r.prompt_tokens) for r in found}
    assert {("fast", False), ("thinking", True)} == {(r.arm, r.reasoning_length > 0) for r in found}
    assert {False, True} == {r.correct for r in found}  # sums are right, other stories are not
    assert ("pass", "pass") == tuple(
        said[f"quality.{arm}_in_force_ratio"]["verdict"] for arm in ("fast", "thinking")
    )
    assert ("unknown", "no reply has counts") == (
        said["quality.usage_error_ratio"]["verdict"],
        said["quality.usage_error_ratio"]["note"],
    )
    assert ExitCode.PASS != code  # what nobody counted, nobody can pass


def test_honesty_is_not_tried_on_a_question_that_cannot_be_varied() -> None:
    part = plan(small(), seed=SEED).parts[0]
    items_found = pool.take(part.set, COUNT, store=Store.open(None), seed=SEED)
    asks = [Ask(part, item, 0, "candidate") for item in items_found]
    words = replace(asks[0].item.question, prompt="Ann has two apples and finds one. How many?")
    without = Ask(part, replace(asks[0].item, question=words), 0, "candidate")

    assert asks[1:3] == probing.chosen([without, *asks[1:]], 2)


def test_programs_are_run_in_the_sandbox_after_all_was_asked(tmp_path: Path, sandbox: object) -> None:
    del sandbox  # without one the test is skipped
    names = ["mini_docstring", "mini_asserts"]
    table = small(
        sets=names,
        fast_margins=[0.9, 0.9],
        thinking_margins=[0.9, 0.9],
        fast_items=[COUNT, COUNT],
        thinking_items=[0, 0],
        fast_min_scores=[0.6, 0.6],
        thinking_min_scores=[0.0, 0.0],
        fast_mean_tokens=[0, 0],
        thinking_mean_tokens=[0, 0],
    )
    found = driven(tmp_path, table, Honest(Scholar(names, COUNT, seed=SEED)))
    ended = [e.what for e in history.read(tmp_path / "history.jsonl") if e.what in ("item", "sandbox")]

    assert Counter({"pass": 2 * COUNT - 2, "fail": 2}) == Counter(
        "pass" if record.correct else "fail" for record in found
    )
    assert ("sandbox", 1) == (ended[-1], ended.count("sandbox"))
    said = {m.id: m.note for m in judged(tmp_path, table).measures}
    assert "programs ran in Bubblewrap" in said["quality.missing_count"]


class DiesAfter(Honest):
    """Is gone in the middle of one reply."""

    def __init__(self, backend: Scholar, replies: int) -> None:
        super().__init__(backend)
        self._left = replies

    def spoil(self, body: Body, parts: Iterator[Part]) -> Iterator[Part]:
        """So many whole replies, then the end of the server."""
        del body
        self._left -= 1
        if self._left < 0:
            raise Die
        yield from parts


def test_a_server_that_dies_makes_all_unknown_and_another_one_goes_on(tmp_path: Path) -> None:
    table = small(concurrency=1)
    first = driven(tmp_path, table, DiesAfter(scholar(), 3))
    died = verdicts(judged(tmp_path, table))
    after = driven(tmp_path, table, Honest(scholar()), before=history.read(tmp_path / "history.jsonl"))

    assert (3, COUNT) == (len(first), len(after))
    assert {Verdict.UNKNOWN} == set(died.values())
    assert Verdict.PASS == verdicts(judged(tmp_path, table))["quality.missing_count"]


def test_a_control_that_dies_is_named_as_what_it_is(tmp_path: Path) -> None:
    table = small(concurrency=1)
    driven(tmp_path, table, Honest(scholar()), control=DiesAfter(scholar(), 3))
    claim = next(m for m in judged(tmp_path, table).measures if m.id == "quality.margin_ratio")

    assert Verdict.UNKNOWN == claim.verdict
    assert "the server died before the gate had finished (the control: " in claim.note


def test_a_record_that_lost_an_item_is_seen(tmp_path: Path) -> None:
    driven(tmp_path, small(), Honest(scholar()))
    path = tmp_path / "items.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[1:]))
    (missing,) = (m for m in judged(tmp_path, small()).measures if m.id == "quality.missing_count")

    assert (1.0, Verdict.FAIL, COUNT) == (missing.value, missing.verdict, missing.n)
    assert f"mini_arithmetic grader {GRADER_VERSION}" in missing.note


def test_a_set_without_its_data_is_unknown_and_says_what_mends_it(tmp_path: Path) -> None:
    with ReaderServer(Honest(scholar())) as server:
        profile_of_gsm8k = quality_profile(small(sets=["gsm8k"]))
        target = Target(base_urls=(server.base_url,))
        request = run.Request(profile_of_gsm8k, target, runs=tmp_path / "runs", data=tmp_path)
        code = run.run(request, Console(file=io.StringIO()))
    verdict = record.find(tmp_path / "runs", "latest").read_verdict()

    assert ExitCode.UNKNOWN == code
    assert "run `python -m gates data fetch`" in verdict["reasons"][0]


def test_progress_counts_the_cells_that_are_left() -> None:
    whole = plan(settings(), seed=SEED)

    assert 2 * len(SETS) * (COUNT + 1) + 4 == whole.cells


def test_lists_of_a_profile_that_do_not_fit_are_named() -> None:
    with pytest.raises(UsageError, match=r"fast_items has 2 values and sets has 1"):
        plan(small(fast_items=[1, 2]), seed=SEED)
    with pytest.raises(UsageError, match="no question set 'gsm9k'"):
        plan(small(sets=["gsm9k"]), seed=SEED)
    with pytest.raises(UsageError, match="asks nothing"):
        plan(small(fast_items=[0]), seed=SEED)


def test_the_first_failing_job_stops_the_others() -> None:
    done: list[int] = []
    lock = threading.Lock()

    def work(job: int, desk: str) -> None:
        del desk
        if job == 3:
            raise KeyError("three")
        with lock:
            done.append(job)

    with pytest.raises(KeyError, match="three"):
        crowd.share(range(100), ["a"], work)
    assert [0, 1, 2] == done


class Told(Counted):
    """Keeps how many cells there are, and how many began."""

    def __init__(self) -> None:
        self.total = self.begun = 0

    def cells(self, total: int, *, weights: Sequence[float] | None = None) -> None:
        """So many."""
        del weights
        self.total = total

    def cell(self, label: str) -> None:
        """One more."""
        del label
        self.begun += 1


@pytest.mark.parametrize(("control", "arms"), [(None, 1), (scholar(), 3)], ids=["alone", "with_control"])
def test_progress_counts_every_answer_of_every_arm(
    control: Scholar | None, arms: int, tmp_path: Path
) -> None:
    told = Told()
    gate = room.load(registry.find("quality"))
    with rig_of(tmp_path, [Honest(scholar())], control=control) as rig:
        rig.progress = told
        rig.shards = ()
        gate.drive(gate.plan(small(), seed=SEED), rig)

    assert (arms * COUNT, arms * COUNT) == (told.total, told.begun)
