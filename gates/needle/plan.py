"""What the needle gate asks: cells, each a long text with needles, decoys and a question about it.

Pure and seeded: the same settings and seed give the same cells.
Texts follow from the id of their cell (`hay` builds them, `sizing` cuts them), so a case can be asked again.
Knows no server.

    needle/<case_set>/<tier>/<n>      n counts the cells of one tier: recall first, then order, then absent
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeVar, cast

from gates.errors import UsageError
from gates.needle import text
from gates.needle.prose import random_for
from gates.profile import Settings

Item = TypeVar("Item")
Ask = Literal["recall", "order", "absent"]
What = Literal["recall", "order", "absent", "followup"]
HayKind = Literal["prose", "novel"]

DECOYS: Final = 2
ORDERED: Final = 3  # needles that an order cell asks for at once
HAYS: Final = ("prose", "novel")
SHORTEST_TOKENS: Final = 256  # five sentences with codes, the instruction, and hay around them


@dataclass(frozen=True, slots=True)
class Needle:
    """One sentence with a code, and where in the text it goes (0 front, 1 end)."""

    key: str
    code: str
    depth: float

    @property
    def sentence(self) -> str:
        """The sentence as it stands in the text."""
        return text.statement(self.key, self.code)


@dataclass(frozen=True, slots=True)
class Turn:
    """One question: the codes that a reply must name in order (none: it must deny), and those it must not."""

    what: What
    question: str
    keys: tuple[str, ...]
    expected: tuple[str, ...]
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cell:
    """One conversation about a text of `tier_tokens` prompt tokens; only its first turn is cold."""

    id: str
    tier_tokens: int
    ask: Ask  # the question of the first turn
    depth: float  # of the first asked needle; of nothing in an absent cell, where it is 0
    asked: tuple[Needle, ...]  # in the order of the first question; empty in an absent cell
    decoys: tuple[Needle, ...]  # the first one is asked for in the last turn
    row: tuple[Needle, ...]  # what a recall cell asks for at once in its second turn; empty in others
    absent_key: str  # what an absent cell asks for; empty in others
    hay_seed: str
    cold_asks: int = 1  # how often its first turn is timed

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The questions of the conversation, in their order."""
        asked = [needle.key for needle in self.asked] or [self.absent_key]
        first = self._turn(self.ask, text.questions(asked), self.asked, keys=tuple(asked))
        last = self._turn("followup", text.follow_up(self.decoys[0].key), self.decoys[:1])
        if not self.row:
            return (first, last)
        return (
            first,
            self._turn("order", text.questions([needle.key for needle in self.row]), self.row),
            last,
        )

    def _turn(
        self, what: What, question: str, wanted: tuple[Needle, ...], *, keys: tuple[str, ...] = ()
    ) -> Turn:
        others = [needle.code for needle in (*self.asked, *self.decoys) if needle not in wanted]
        expected = tuple(needle.code for needle in wanted)
        return Turn(what, question, keys or tuple(needle.key for needle in wanted), expected, tuple(others))

    def message(self, hay: str) -> str:
        """The user message of the first turn, with the needles in this hay."""
        needles = [(needle.depth, needle.sentence) for needle in (*self.asked, *self.decoys)]
        return text.user_message(text.document(hay, needles), self.turns[0].question)


@dataclass(frozen=True, slots=True)
class NeedlePlan:
    """All cells in the order in which they are asked: tiers upwards, depths shuffled within a tier."""

    hay: HayKind
    length_tolerance: float  # share of a tier's tokens by which a prompt may miss it
    asked_cells: tuple[Cell, ...]

    @property
    def cells(self) -> int:
        """How many cells there are."""
        return len(self.asked_cells)

    @property
    def asked_again(self) -> tuple[Cell, ...]:
        """The cells whose first turn is timed again, pass after pass over all of them."""
        most = max((cell.cold_asks for cell in self.asked_cells), default=1)
        return tuple(cell for done in range(1, most) for cell in self.asked_cells if cell.cold_asks > done)


def plan(settings: Settings, *, seed: int) -> NeedlePlan:
    """The cells of a profile's needle table; UsageError when its lists do not fit each other."""
    _check(settings)
    tiers = settings.counts("tiers_tokens")
    counts = zip(
        settings.counts("tier_cells"),
        settings.counts("tier_order_cells"),
        settings.counts("tier_absent_cells"),
        settings.counts("tier_cold_asks"),
        strict=True,
    )
    cells: list[Cell] = []
    for tier, (recall, order, absent, cold_asks) in zip(tiers, counts, strict=True):
        asks: tuple[Ask, ...] = (
            *_times("recall", recall),
            *_times("order", order),
            *_times("absent", absent),
        )
        depths = [*_spread(recall, settings.numbers("depths")), *_spread(order, settings.numbers("depths"))]
        name = f"needle/{settings.text('case_set')}/{tier}"
        tier_cells = [
            make_cell(
                f"{name}/{n}",
                tier_tokens=tier,
                ask=ask,
                depth=depth,
                seed=seed,
                cold_asks=cold_asks if ask == "recall" else 1,
            )
            for n, (ask, depth) in enumerate(zip(asks, [*depths, *[0.0] * absent], strict=True))
        ]
        # Shuffled: a host that slows down over the minutes must not look like a cost of depth.
        cells += _shuffled(tier_cells, random_for(f"{name}/sequence/{seed}"))
    hay = cast(HayKind, settings.text("hay"))
    return NeedlePlan(hay, settings.number("max_length_error_ratio"), tuple(cells))


def make_cell(
    cell_id: str, *, tier_tokens: int, ask: Ask, depth: float, seed: int, cold_asks: int = 1
) -> Cell:
    """The cell of an id; keys, codes and the places of its decoys are drawn from id and seed."""
    draw = random_for(f"{cell_id}/{seed}")
    names = iter(_shuffled(text.KEYS, draw))
    codes = _codes(draw)
    wanted = {"recall": 1, "order": ORDERED, "absent": 0}[ask]
    asked = tuple(
        Needle(next(names), next(codes), depth if n == 0 else _anywhere(draw)) for n in range(wanted)
    )
    decoys = tuple(Needle(next(names), next(codes), _anywhere(draw)) for _ in range(DECOYS))
    row = _shuffled((*asked, *decoys), draw) if ask == "recall" else []
    return Cell(
        id=cell_id,
        tier_tokens=tier_tokens,
        ask=ask,
        depth=depth,
        asked=asked,
        decoys=decoys,
        row=tuple(row),
        absent_key=next(names) if ask == "absent" else "",
        hay_seed=f"{cell_id}/{seed}/hay",
        cold_asks=cold_asks,
    )


def _anywhere(draw: random.Random) -> float:
    return round(0.02 + 0.96 * draw.random(), 4)


def _codes(draw: random.Random) -> Iterator[str]:
    """Codes that differ from each other."""
    given: set[str] = set()
    while True:
        code = text.draw_code(draw)
        if code not in given:
            given.add(code)
            yield code


def _spread(count: int, depths: Sequence[float]) -> list[float]:
    """`count` of the depths: from first to last in even steps, or round and round when more are wanted."""
    if count >= len(depths):
        return [depths[n % len(depths)] for n in range(count)]
    if count == 1:
        return [depths[len(depths) // 2]]
    return [depths[round(n * (len(depths) - 1) / (count - 1))] for n in range(count)]


def _times(ask: Ask, count: int) -> tuple[Ask, ...]:
    return (ask,) * count


def _shuffled(items: Sequence[Item], draw: random.Random) -> list[Item]:
    rest = list(items)
    return [rest.pop(int(draw.random() * len(rest))) for _ in range(len(rest))]


def _check(settings: Settings) -> None:
    tiers = settings.counts("tiers_tokens")
    for name in ("tier_cells", "tier_order_cells", "tier_absent_cells", "tier_cold_asks"):
        if len(settings.counts(name)) != len(tiers):
            raise UsageError(
                f"[needle] {name} has {len(settings.counts(name))} entries and tiers_tokens has {len(tiers)};"
                " give one count for each tier"
            )
    if list(tiers) != sorted(tiers) or not tiers or tiers[0] < SHORTEST_TOKENS:
        raise UsageError(
            f"[needle] tiers_tokens is {list(tiers)}; give lengths from {SHORTEST_TOKENS} tokens on,"
            " shortest first"
        )
    if min(settings.counts("tier_cold_asks")) < 1:
        raise UsageError(
            f"[needle] tier_cold_asks is {list(settings.counts('tier_cold_asks'))}; every first turn is asked"
            " at least once, so give 1 or more for each tier"
        )
    if not settings.numbers("depths"):
        raise UsageError("[needle] depths is empty; give at least one depth from 0 to 1")
    if settings.text("hay") not in HAYS:
        raise UsageError(f"[needle] hay is '{settings.text('hay')}'; allowed are {', '.join(HAYS)}")
