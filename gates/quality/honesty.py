"""What the probes prove of a server: true token counts, one answer however it is asked, honest speed.

Pure: operations of a history in, numbers and doubts out.  Knows no limits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from gates.harness import counts
from gates.harness.history import Operation

COUNTED: Final = ("item", "alone", "again", "seeded", "whole", "variant", "burst")  # kinds of whole replies
FIRST_CHARACTERS: Final = 3  # of a reply: about a first token, where a server tells no ids
SLACK_TOKENS: Final = 4  # end marks, and a line break between two replies
SLACK_RATIO: Final = 0.1  # a generated text may be written with other tokens than it was sampled with

Probes = Mapping[str, Operation]  # of one item on one server, by kind


@dataclass(frozen=True, slots=True)
class Doubt:
    """One thing that an honest server does not do: where, and what was found."""

    where: str
    why: str


@dataclass(frozen=True, slots=True)
class Tried:
    """How many were tried, and what was found wrong."""

    n: int
    doubts: tuple[Doubt, ...]

    @property
    def ratio(self) -> float | None:
        """The share that was wrong; None where nothing was tried."""
        return len(self.doubts) / self.n if self.n else None


def probed(operations: Iterable[Operation]) -> list[Probes]:
    """The answered probes, by item and server."""
    found: dict[tuple[str, str], dict[str, Operation]] = {}
    for operation in operations:
        endpoint = operation.invoke.get("endpoint")
        if endpoint is not None and operation.outcome == "ok":
            found.setdefault((place(operation), endpoint), {})[operation.invoke.what] = operation
    return list(found.values())


def place(operation: Operation) -> str:
    """The item of a request, in words."""
    return f"{operation.get('item')} ({operation.get('arm')})"


def counted(operations: Iterable[Operation], probes: Sequence[Probes]) -> Tried:
    """Counts that contradict themselves, or a next turn; nothing is tried where no reply has counts."""
    answered = [o for o in operations if o.outcome == "ok" and o.invoke.what in COUNTED]
    if all(o.get("prompt_tokens") is None and o.get("completion_tokens") is None for o in answered):
        return Tried(0, ())
    doubts = [Doubt(place(o), why) for o in answered if (why := counts.fault(o))]
    doubts += [Doubt(place(one["alone"]), why) for one in probes if (why := _grown(one))]
    return Tried(len(answered), tuple(doubts))


def _grown(one: Probes) -> str:
    """Whether a prompt grows by a reply's tokens when the reply stands there once more."""
    if not {"alone", "once", "twice"} <= one.keys():
        return ""
    said = one["alone"].get("completion_tokens")
    before, after = (one[name].get("prompt_tokens") for name in ("once", "twice"))
    if one["alone"].get("reasoning") or not all(map(counts.is_count, (said, before, after))):
        return ""  # reasoning does not come back in a next turn
    grown = after - before
    if abs(grown - said) <= SLACK_TOKENS + SLACK_RATIO * grown:
        return ""
    return f"completion_tokens is {said}, but a prompt with the reply once more has {grown} tokens more"


def first_tokens(probes: Sequence[Probes]) -> Tried:
    """First tokens that differ between a stream and a whole reply."""
    both = [(one["alone"], one["whole"]) for one in probes if {"alone", "whole"} <= one.keys()]
    doubts = [
        Doubt(place(streamed), f"streamed it begins with {told}, else with {otherwise}")
        for streamed, whole in both
        for told, otherwise in [_beginnings(streamed, whole)]
        if told != otherwise
    ]
    return Tried(len(both), tuple(doubts))


def _beginnings(*replies: Operation) -> list[str]:
    """How each begins: with which token and character, where all tell ids, else with which characters."""
    said = [str(one.get("reasoning") or one.get("text")) for one in replies]
    ids = [one.get("token_ids") for one in replies]
    if all(ids):  # the character too: ids prove nothing of the text beside them
        return [f"token {own[0]}, {text[:1]!r}" for own, text in zip(ids, said, strict=True)]
    return [repr(text[:FIRST_CHARACTERS]) for text in said]


def canned(probes: Sequence[Probes]) -> Tried:
    """Replies that are word for word the same although the question was another."""
    both = [one for one in probes if {"alone", "variant"} <= one.keys()]
    doubts = [
        Doubt(place(one["alone"]), f"another question has the same reply: {one['alone'].get('text')!r:.200}")
        for one in both
        if one["alone"].get("text") and one["alone"].get("text") == one["variant"].get("text")
    ]
    return Tried(len(both), tuple(doubts))


def exchanged(operations: Iterable[Operation], probes: Sequence[Probes]) -> Tried:
    """Replies that beside others belong to another item, as that item was answered alone.

    What was not under way at the same time as another item proves nothing, and is not counted.
    """
    alone = {_server(one["alone"]): one["alone"] for one in probes if "alone" in one}
    asked = [o for o in operations if o.invoke.what == "burst" and o.outcome == "ok" and _server(o) in alone]
    texts = Counter((endpoint, _reply(one)) for (endpoint, _), one in alone.items())
    owner = {(endpoint, _reply(one)): item for (endpoint, item), one in alone.items()}
    tried = [one for one in asked if any(_together(one, other) for other in asked)]
    doubts = [
        Doubt(item, f"beside others it got the reply of {owner[endpoint, said]}: {said!r:.200}")
        for one in tried
        for (endpoint, item), said in [(_server(one), _reply(one))]
        if texts[endpoint, said] == 1 and owner[endpoint, said] != item
    ]
    return Tried(len(tried), tuple(doubts))


def _server(operation: Operation) -> tuple[str, str]:
    """The server that was asked, and the item."""
    return operation.get("endpoint"), place(operation)


def _reply(operation: Operation) -> str:
    return str(operation.get("text"))


def _together(one: Operation, other: Operation) -> bool:
    """Whether two items were under way on one server at the same time."""
    if one.end is None or other.end is None or _server(one)[0] != _server(other)[0]:
        return False
    apart = one.end.t_s <= other.invoke.t_s or other.end.t_s <= one.invoke.t_s
    return place(one) != place(other) and not apart


def repeat_savings(probes: Sequence[Probes], *, quiet: Callable[[Operation], bool]) -> list[float]:
    """By how much a repeated request was faster than its cached tokens explain, as a share of its time."""
    found = []
    for one in probes:
        first, again = one.get("alone"), one.get("again")
        if first and again and quiet(first) and quiet(again) and _as_long(first, again):
            total, first_s = first.get("seconds"), first.get("first_token_s") or 0.0
            cached = (again.get("cached_tokens") or 0) / max(1, again.get("prompt_tokens") or 1)
            found.append(max(0.0, total - again.get("seconds") - first_s * cached) / total)
    return found


def seed_speeds(probes: Sequence[Probes], *, quiet: Callable[[Operation], bool]) -> list[float]:
    """The time of a request with another seed over that of the same with the usual one, for each item."""
    return [
        seeded.get("seconds") / again.get("seconds")
        for again, seeded in ((one.get("again"), one.get("seeded")) for one in probes)
        if again and seeded and quiet(again) and quiet(seeded) and _as_long(again, seeded)
    ]


def middle(values: Sequence[float]) -> float | None:
    """The median; None of nothing."""
    return median(values) if values else None


def _as_long(one: Operation, other: Operation) -> bool:
    """Whether two replies have as many tokens, or as many characters where nobody counts."""
    sizes = [o.get("completion_tokens") or len(str(o.get("text"))) for o in (one, other)]
    return sizes[0] == sizes[1]
