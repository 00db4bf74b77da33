"""Pairs that go through the loop with states in memory: warm, forked, in company, cancelled, recycled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.core import CacheKind
from gates.equivalence.house import Asked, House
from gates.equivalence.seen import Compared, Seen, named
from gates.equivalence.workbench import Workbench

ANSWER = 4  # tokens of an answer
TAIL = 9  # tokens of a next turn
FAR = 1 << 20  # an anchor grid that no prompt reaches


def fresh(bench: Workbench, prompt: Sequence[int], count: int = ANSWER) -> Seen:
    """What a request sees that has an engine to itself."""
    return House(bench.runner(), anchor_every=FAR).ask(prompt, count).seen


def both(*asked: Asked) -> Seen:
    """What several requests saw, as one."""
    seen: Seen = {}
    for number, one in enumerate(asked, start=1):
        seen |= named(f"request {number}", one.seen)
    return seen


def both_fresh(bench: Workbench, *asked: Asked) -> Seen:
    """The same, each by itself."""
    seen: Seen = {}
    for number, one in enumerate(asked, start=1):
        seen |= named(f"request {number}", fresh(bench, one.request.prompt, one.request.max_tokens))
    return seen


def next_turn(bench: Workbench, first: Asked, stream: int = 90) -> list[int]:
    """A prompt that goes on from a whole turn."""
    return [*first.request.prompt, *first.tokens, *bench.tokens(TAIL, stream)]


def warm(bench: Workbench, case: Mapping[str, Any]) -> Compared:
    """A second turn that continues the first one's state."""
    house = House(bench.runner(), anchor_every=FAR)
    first = house.ask(bench.tokens(case["at"]), ANSWER)
    second = house.ask(next_turn(bench, first), ANSWER)
    engaged = {
        "continued in place": second.kind is CacheKind.WARM and second.cached == case["at"] + ANSWER - 1
    }
    return Compared(fresh(bench, second.request.prompt), second.seen, engaged)


def fork(bench: Workbench, case: Mapping[str, Any]) -> Compared:
    """A prompt that leaves a kept one just behind an anchor."""
    at = case["at"]
    house = House(bench.runner(), anchor_every=at)
    kept = bench.tokens(2 * at + 10)
    house.ask(kept, ANSWER)
    branch = house.ask([*kept[: at + 1], *bench.tokens(20, 91)], ANSWER)
    engaged = {"forked at the anchor": branch.kind is CacheKind.FORK and branch.cached == at}
    return Compared(fresh(bench, branch.request.prompt), branch.seen, engaged)


def fork_running(bench: Workbench, case: Mapping[str, Any]) -> Compared:
    """Two branches from a prompt whose own answer goes on."""
    del case
    house = House(bench.runner(), anchor_every=64, prefill_chunk_live=40)
    prompt = bench.tokens(300)
    owner = house.submit(prompt, 40)
    house.go_on(lambda: owner.end is not None or len(owner.tokens) > 1, "the owner had no second token")
    branches = [
        house.submit([*prompt[:at], *bench.tokens(20, stream)], ANSWER)
        for at, stream in ((200, 92), (70, 93))
    ]
    house.turn()
    running = owner.end is None
    house.finish(owner, *branches)
    engaged = {
        "forked while it ran": running and [branch.kind for branch in branches] == [CacheKind.FORK] * 2,
        "at its anchors": [branch.cached for branch in branches] == [192, 64],
    }
    return Compared(both_fresh(bench, owner, *branches), both(owner, *branches), engaged)


def alike(bench: Workbench, case: Mapping[str, Any]) -> Compared:
    """Two turns of two conversations whose first 128 tokens are the same."""
    del case
    house = House(bench.runner(), anchor_every=FAR)
    head = bench.tokens(128)
    firsts = [
        house.ask([*head, *bench.tokens(count, stream)], ANSWER) for count, stream in ((20, 94), (60, 95))
    ]
    seconds = [house.ask(next_turn(bench, first), ANSWER) for first in firsts]
    engaged = {"both continued": [second.kind for second in seconds] == [CacheKind.WARM] * 2}
    asked = (*firsts, *seconds)
    return Compared(both_fresh(bench, *asked), both(*asked), engaged)


def cancelled(bench: Workbench, case: Mapping[str, Any]) -> Compared:
    """A prompt that is cancelled after its first chunk, and asked again."""
    at = case["at"]
    house = House(bench.runner(), anchor_every=FAR, prefill_chunk=at)
    prompt = bench.tokens(3 * at + 5)
    first = house.submit(prompt, ANSWER)
    house.turn()
    house.cancel(first)
    house.finish(first)
    again = house.ask(prompt, ANSWER)
    return Compared(fresh(bench, prompt), again.seen, {"its first chunk was kept": again.cached == at})


def together(bench: Workbench, case: Mapping[str, Any]) -> Compared:
    """Requests of different lengths at once."""
    house = House(bench.runner(), anchor_every=FAR)
    prompts = [bench.tokens(31 + 33 * (stream % 5), 100 + stream) for stream in range(case["rows"])]
    asked = [house.submit(prompt, ANSWER + 2 * number) for number, prompt in enumerate(prompts)]
    house.finish(*asked)
    shared = house.count("decode_rows") > house.count("decode_steps")
    return Compared(both_fresh(bench, *asked), both(*asked), {"rows shared steps": shared})


def recycled(bench: Workbench, case: Mapping[str, Any]) -> Compared:
    """A prompt on pages that another one has written into, in a pool that has no others."""
    runner = bench.runner()
    ledger = runner.ledger
    decoded = case["kind"] == "decoded rows"  # more than a page of them
    prompt, count = (bench.tokens(40), ledger.page_tokens + 6) if decoded else (bench.tokens(300), ANSWER)
    pages = -(-(300 + ANSWER) // ledger.page_tokens)
    states = -(-3 * ledger.state_bytes // ledger.page_bytes)
    small = runner.beside(cache_bytes=(pages + states) * ledger.page_bytes)
    house = House(small, anchor_every=FAR)
    used = 0
    while used < small.ledger.pages:
        house.ask(bench.tokens(300, 120 + used), ANSWER, reuse=False)
        used += pages
    asked = house.ask(prompt, count, reuse=False)
    engaged = {"every page was used before": used >= small.ledger.pages}
    return Compared(fresh(bench, prompt, count), asked.seen, engaged)


def under_prefill(bench: Workbench, case: Mapping[str, Any]) -> Compared:
    """A long branch of a record that goes while the branch is computed, and others who want its pages."""
    del case
    house = House(bench.runner(), anchor_every=256, prefill_chunk=64, prefill_chunk_live=64, max_records=1)
    kept = bench.tokens(320)
    house.ask(kept, ANSWER)
    branch = house.submit([*kept[:256], *bench.tokens(400, 96)], ANSWER)
    house.turn()
    other = house.ask(bench.tokens(20, 97), 1)
    gone = house.evicted
    third = house.submit(bench.tokens(200, 98), ANSWER, reuse=False)
    running = branch.end is None
    house.finish(branch, other, third)
    engaged = {
        "forked": branch.kind is CacheKind.FORK and branch.cached == 256,
        "its source went while it ran": bool(gone) and running,
    }
    return Compared(both_fresh(bench, branch, third), both(branch, third), engaged)
