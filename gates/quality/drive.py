"""Asks the items of a quality plan, several at a time, grades them, and writes one record an item.

Every request is in the history before it is sent; a run that was stopped goes on where its record ends.
Programs are run when all was asked, so that the sandbox takes no time from the server.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from gates.harness import crowd
from gates.harness.history import Event, operations
from gates.harness.power import hashed_order
from gates.harness.reply import ClientError, CutShort, Gone, Refused, Reply
from gates.harness.rig import Rig, reply_fields
from gates.quality import answers, early, items, pool, probing
from gates.quality.answers import BUSY, Answer, Ask, Key
from gates.quality.data import Store
from gates.quality.execution import run_all
from gates.quality.grading import Grade
from gates.quality.items import ItemRecord, ServerRole
from gates.quality.plan import QualityPlan
from gates.quality.sandbox import Program, find_sandbox
from gates.quality.sending import send
from gates.quality.traffic import SETS_PLANNED

ITEM: Final = "item"  # the kind of request in the history
# The order in which one item is asked of both servers, so that all three arms have the same hour.
INTERLEAVED: Final[tuple[ServerRole, ...]] = ("baseline", "candidate", "baseline_again")
LONE_COST: Final = 3.0  # of an item tried for honesty, one answer after the other, in rounds of all desks
PAUSE_S: Final = 0.5  # before the second try; twice as long before each further one


def drive(plan: QualityPlan, rig: Rig) -> None:
    """Ask, grade and record every item; raises when the data of a set or the sandbox is not there."""
    store = Store.open(rig.data)
    number, count = rig.part
    if count > 1:  # no part alone completes a look
        plan = replace(plan, looks=1)
    every = planned(plan, store, roles=INTERLEAVED if rig.control else ("candidate",))
    asks = every[number - 1 :: count]
    rig.history.note(
        SETS_PLANNED,
        items=planned_counts(plan),
        part=rig.part,
        versions={k: v for part in plan.parts for k, v in pool.versions(part.set, store).items()},
    )
    tried = probing.chosen([ask for group in asks for ask in group if ask.role == "candidate"], plan.probes)
    with items.Writer(rig.history.path.with_name("items.jsonl")) as writer:
        session = _Session(plan, rig, writer)
        alone, left = probing.cells(tried, rig), session.left(asks)
        lone_cost = LONE_COST * plan.concurrency
        rig.progress.cells(alone + left, weights=[*[lone_cost] * alone, *[1.0] * left])
        probing.probe(tried, rig)
        session.all(asks)


def planned_counts(plan: QualityPlan) -> dict[str, dict[str, int]]:
    """How many items of each set and arm are asked, those asked twice counted once."""
    found: dict[str, dict[str, int]] = {}
    for part in plan.parts:
        found.setdefault(part.set, {})[part.arm] = part.items
    return found


def planned(plan: QualityPlan, store: Store, *, roles: Sequence[ServerRole]) -> list[tuple[Ask, ...]]:
    """Every ask, those of one item together, sets and arms mixed: none has the quiet hour alone."""
    found: dict[str, tuple[Ask, ...]] = {}
    for part in plan.parts:
        pool_items = pool.take(part.set, part.items, store=store, seed=plan.seed)
        for repeat, taken in enumerate((pool_items, pool_items[: plan.again(part)])):
            for item in taken:
                name = f"{part.name}/{item.question.id}/{repeat}"
                found[name] = tuple(Ask(part, item, repeat, role) for role in roles)
    return [found[name] for name in hashed_order(found, seed=plan.seed)]


@dataclass(slots=True)
class _Desk:
    """Where one thread asks: a server of the judged model, and the control."""

    judged: Rig
    control: Rig | None

    def of(self, role: ServerRole) -> Rig:
        """The rig of a role."""
        return self.judged if role == "candidate" or self.control is None else self.control


class _Session:
    """One drive: what is known already, what is still to be asked and to be run."""

    def __init__(self, plan: QualityPlan, rig: Rig, writer: items.Writer) -> None:
        self._plan = plan
        self._rig = rig
        self._writer = writer
        self._before = earlier(rig.before)
        self._recorded = {record.key for record in items.read(rig.history.path.with_name("items.jsonl"))}
        self._lock = threading.Lock()
        self._programs: dict[Key, tuple[Ask, Answer, Program]] = {}
        self._settled: set[str] = set()

    def left(self, asks: Sequence[tuple[Ask, ...]]) -> int:
        """How many answers are not on record yet, of every server."""
        return sum(ask.key not in self._recorded for group in asks for ask in group)

    def all(self, asks: Sequence[tuple[Ask, ...]]) -> None:
        """Ask what has no answer yet and run the programs, in as many waves as there are looks."""
        last = self._plan.looks
        for look, wave in enumerate(early.waves(asks, self._plan), start=1):
            open_ones = [group for group in wave if group[0].part.name not in self._settled]
            crowd.share(open_ones, list(self._desks()), self._group)
            self._run_programs()
            if look < last:
                self._settle(look)

    def _settle(self, look: int) -> None:
        """Ask no more of the sets whose verdict stands at this look."""
        records = items.read(self._rig.history.path.with_name("items.jsonl"))
        kept = items.kept(self._rig.baseline)
        for name, left in early.settled(self._plan, records, kept, look=look).items():
            if name not in self._settled:
                self._settled.add(name)
                self._rig.history.note(early.SETTLED, set=name, look=look, spared=left)

    def _desks(self) -> Iterator[_Desk]:
        patience = 3 * (self._plan.retries + 1)
        for rig in (self._rig, *self._rig.shards):
            for _ in range(self._plan.concurrency):
                control = self._rig.control
                yield _Desk(
                    replace(rig, patience=patience),
                    replace(control, patience=patience) if control else None,
                )

    def _group(self, group: tuple[Ask, ...], desk: _Desk) -> None:
        for ask in group:
            if ask.key in self._recorded:
                continue
            with self._lock:
                self._rig.progress.cell(f"{ask.part.name}, {ask.question.id}")
            known = self._before.get(ask.key)
            answer = known if known and known.reply else self._answer(ask, desk.of(ask.role), known)
            self._take(ask, answer)

    def _answer(self, ask: Ask, rig: Rig, known: Answer | None) -> Answer:
        """Ask until there is a reply or a definite end, at most so many times as the plan allows."""
        tries = known.retries if known else 0
        while True:
            outcome = send(rig, ITEM, ask, fields={"attempt": tries})
            if isinstance(outcome, Reply):
                return Answer(reply_fields(outcome), retries=tries)
            if not passing(outcome) or tries >= self._plan.retries:
                refused = isinstance(outcome, Refused) and outcome.status not in BUSY
                error = f"{type(outcome).__name__}: {outcome}"
                return Answer(None, error, refused, tries)
            rig.pause(PAUSE_S * 2**tries)
            tries += 1

    def _take(self, ask: Ask, answer: Answer) -> None:
        answer = answers.believed(ask, answer)
        graded = answers.grade(ask, answer)
        if isinstance(graded, Program):
            with self._lock:
                self._programs[ask.key] = (ask, answer, graded)
        else:
            self._keep(ask, answer, graded)

    def _run_programs(self) -> None:
        if not self._programs:
            return
        sandbox = find_sandbox()
        self._rig.history.note("sandbox", isolation=type(sandbox).__name__, programs=len(self._programs))
        names = {"/".join(map(str, key)): found for key, found in self._programs.items()}
        grades = run_all({name: program for name, (_, _, program) in names.items()}, sandbox)
        for name, (ask, answer, _) in names.items():
            self._keep(ask, answer, grades[name])
        self._programs.clear()

    def _keep(self, ask: Ask, answer: Answer, graded: Grade) -> None:
        version = pool.grader_version(ask.part.set)
        record: ItemRecord = answers.record(ask, answer, graded, grader_version=version)
        self._writer.add(record)


def passing(error: ClientError) -> bool:
    """Whether the same request may do better a moment later: a fault of transport, or a full server.

    A deadline that passed is not: the model had its time, and would take it again.
    """
    return isinstance(error, Gone | CutShort) or (isinstance(error, Refused) and error.status in BUSY)


def earlier(events: Sequence[Event]) -> Mapping[Key, Answer]:
    """What an interrupted drive has learned of each ask: the reply, or how many tries were in vain."""
    found: dict[Key, Answer] = {}
    for operation in operations(events, ITEM):
        if operation.end is None:
            continue  # in flight when the run was killed
        names = ("set", "arm", "item", "repeat", "server")
        key: Any = tuple(operation.get(name) for name in names)
        vain = operation.get("attempt")
        reply = operation.end.fields if operation.outcome == "ok" else None
        found[key] = Answer(reply, retries=vain if reply else vain + 1)
    return found
