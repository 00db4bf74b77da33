"""All question sets, public and our own, as one: how many items each has, which ones a plan takes.

Items of a public set are taken in the order of a hash, so that a part of it owes nothing to its file; those
of our own sets are drawn from a seed.  Asks nothing.
"""

from __future__ import annotations

from gates.errors import UsageError
from gates.harness.power import hashed_order
from gates.quality import sets
from gates.quality.data import Store
from gates.quality.mini import sets as mini
from gates.quality.sets import SETS, Item

ORDER_SEED = 0  # which part of a public set is asked must not move with the seed of a run


def check_name(name: str) -> None:
    """UsageError for a set that there is not."""
    if name not in SETS and name not in mini.DRAWN:
        raise UsageError(f"there is no question set '{name}'; known are {', '.join((*SETS, *mini.DRAWN))}")


def size(name: str, wanted: int) -> int:
    """How many items a plan gets that wants so many."""
    return min(wanted, SETS[name].rows) if name in SETS else wanted


def take(name: str, wanted: int, *, store: Store, seed: int) -> list[Item]:
    """So many items of a set, all when there are fewer; CheckError without the data of a public set."""
    if name in mini.DRAWN:
        return mini.load(name, str(seed), wanted)
    found = {item.question.id: item for item in sets.items(name, store)}
    return [found[item] for item in hashed_order(found, seed=ORDER_SEED)[:wanted]]


def grader_version(name: str) -> str:
    """The version of the grader of a set, with those of the libraries that decide with it."""
    return SETS[name].grader_version if name in SETS else mini.GRADERS[name]


def versions(name: str, store: Store) -> dict[str, str]:
    """What two runs of a set must have in common to be compared."""
    if name in SETS:
        return sets.versions(name, store)
    return {f"{name} items": mini.ITEMS_VERSION, f"{name} grader": mini.GRADERS[name]}
