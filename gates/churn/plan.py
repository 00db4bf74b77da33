"""What the churn gate asks: one deep conversation, short-lived clients around it, and what disturbs them.

Pure and seeded.  The rounds are planned one by one; short clients come as fast as they are answered, each
session drawn from its client's number and its own.  Knows no server.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count, cycle, islice
from typing import Final, cast

from gates.errors import UsageError
from gates.needle import text
from gates.needle.deep import DeepText, make_text
from gates.needle.plan import HAYS, HayKind
from gates.needle.prose import prose, random_for
from gates.profile import Settings

LEAVES: Final = ("leave_at_once", "leave_in_stream", "reset", "reset_in_stream", "half_head", "half_body")
MALFORMED: Final = (
    "no_json",
    "no_object",
    "no_messages",
    "messages_text",
    "unknown_role",
    "negative_tokens",
    "text_for_number",
    "not_a_number",
    "not_utf8",
    "nested",
    "empty_body",
)
SHORT_CHARACTERS: Final = (300, 2400)  # of a short client's text
# Of one that another tenant asks once more: three pages of 128 tokens, or it has next to nothing to leak.
TWIN_CHARACTERS: Final = (2000, 2400)
# More than a page of 128 tokens, so that texts which begin alike meet in the cache.
PREAMBLE_CHARACTERS: Final = 1200
GROWTH_TOKENS: Final = 48  # a question and its answer in a deep conversation, in any template


@dataclass(frozen=True, slots=True)
class Round:
    """One question to the deep conversation, and the disturbances that come just before it."""

    number: int
    leaves: tuple[str, ...]
    malformed: tuple[str, ...]
    storm: bool


@dataclass(frozen=True, slots=True)
class Session:
    """One short client from its first connection to its last: a text with two codes of its own.

    `salt` names its tenant; `twin_salt` is another tenant that asks the very same, None for most.
    """

    id: str
    message: str
    keys: tuple[str, str]
    codes: tuple[str, str]
    salt: str
    twin_salt: str | None


@dataclass(frozen=True, slots=True)
class ChurnPlan:
    """Everything that is asked; `minutes` is how long the churn lasts at least."""

    seed: int
    hay: HayKind
    deep: DeepText
    cold: tuple[DeepText, ...]  # texts of the same length that nobody asked before
    rounds: tuple[Round, ...]
    sample: tuple[Session, ...]
    clients: int
    tenants: int
    minutes: float
    storm_requests: int
    storm_tokens: int
    deadline_s: float
    cache_mib: int
    pin: bool

    @property
    def cells(self) -> int:
        """Rounds, the unit of progress."""
        return len(self.rounds)

    @property
    def context_tokens(self) -> int:
        """What the deep conversation needs at its end."""
        return self.deep.tokens + self.deep.tokens // 50 + GROWTH_TOKENS * (len(self.rounds) + 2)

    def session(self, client: int, number: int) -> Session:
        """The session of this number of a client; every second one begins like others of its kind."""
        return make_session(
            f"churn/{self.seed}/client/{client}/{number}",
            tenant=client % max(1, self.tenants),
            tenants=self.tenants,
            twin=number % 8 == 3,
            preamble=prose(f"churn/{self.seed}/preamble", PREAMBLE_CHARACTERS) if number % 2 == 0 else "",
        )


def plan(settings: Settings, *, seed: int) -> ChurnPlan:
    """The plan of a profile's churn table; UsageError when its numbers do not fit each other."""
    if settings.text("hay") not in HAYS:
        raise UsageError(f"[churn] hay is '{settings.text('hay')}'; allowed are {', '.join(HAYS)}")
    rounds, tokens = settings.count("rounds"), settings.count("pinned_tokens")
    if rounds < 4:
        raise UsageError(f"[churn] rounds is {rounds}; give at least 4, so that memory has four quarters")
    name = f"churn/{seed}"
    sample = [
        make_session(f"{name}/sample/{n}", tenant=0, tenants=1, twin=False)
        for n in range(settings.count("sample_items"))
    ]
    return ChurnPlan(
        seed=seed,
        hay=cast(HayKind, settings.text("hay")),
        deep=make_text(f"{name}/deep", tokens=tokens, codes=rounds + 1),
        cold=tuple(
            make_text(f"{name}/cold/{n}", tokens=tokens, codes=1)
            for n in range(settings.count("cold_controls"))
        ),
        rounds=_rounds(rounds, storm_every=settings.count("storm_every")),
        sample=tuple(sample),
        clients=settings.count("clients"),
        tenants=settings.count("tenants"),
        minutes=settings.number("minutes"),
        storm_requests=settings.count("storm_requests"),
        storm_tokens=settings.count("storm_tokens"),
        deadline_s=settings.number("deadline_s"),
        cache_mib=settings.count("cache_mib"),
        pin=settings.switch("pin"),
    )


def make_session(name: str, *, tenant: int, tenants: int, twin: bool, preamble: str = "") -> Session:
    """The session of a name: text, keys and codes are drawn from it, and stand after the preamble."""
    draw = random_for(name)
    first, second = draw.sample(text.KEYS, 2)
    codes = (text.draw_code(draw), text.draw_code(draw))
    other = f"tenant-{(tenant + 1) % tenants}" if twin and tenants > 1 else None
    low, high = TWIN_CHARACTERS if other else SHORT_CHARACTERS
    own = prose(f"{name}/hay", low + int(draw.random() ** 2 * (high - low)))  # most of them are short
    needles = [
        (round(draw.random(), 4), text.statement(key, code))
        for key, code in zip((first, second), codes, strict=True)
    ]
    document = f"{preamble} {text.document(own, needles)}".strip()
    message = text.user_message(document, text.question(first))
    return Session(name, message, (first, second), codes, f"tenant-{tenant}", other)


def _rounds(total: int, *, storm_every: int) -> tuple[Round, ...]:
    leaves, malformed = cycle(LEAVES), cycle(MALFORMED)
    return tuple(
        Round(
            number,
            tuple(islice(leaves, 3)),
            tuple(islice(malformed, 2)),
            storm=storm_every > 0 and number % storm_every == storm_every - 1,
        )
        for number in islice(count(), total)
    )
