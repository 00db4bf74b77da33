"""Judges a capacity history: what was live at once, exact and warm, and what happened at the ceiling.

Pure: the same events and settings give the same judgement, also years later.
A conversation counts as live when its next turn came from the cache, by its count and by its time.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from gates.capacity.drive import FILLED, PLANNED
from gates.harness import ceiling
from gates.harness.baseline import Baseline
from gates.harness.history import Event, Operation, notes
from gates.harness.judging import Judging
from gates.harness.stats import wilson
from gates.harness.turns import first_cause, kept_share, last_tries, on_quiet_host
from gates.harness.verdict import Judgement, Table
from gates.needle.grade import Grade, grade_codes
from gates.profile import Settings

STARTS = ("deep", "filler")  # first turns
TURNS = ("together", "in_storm", "warm", "filler_again")  # later ones, in the order of what they prove
DEEP_TURNS = ("deep", "together", "in_storm", "warm")
COLUMNS = (
    "cell", "what", "attempt", "planned_tokens", "prompt_tokens", "cached_tokens", "completion_tokens",
    "first_token_s", "seconds", "finish_reason",
)  # fmt: skip

Span = tuple[float, float]


def check(events: Sequence[Event], settings: Settings, baseline: Baseline | None) -> Judgement:
    """The measures of the capacity gate; a measure whose requests were not asked has no value."""
    judge = _Judge(events, settings, baseline)
    judge.live()
    judge.warm()
    judge.exact()
    judge.ceiling()
    return Judgement(tuple(judge.measures), (_table(judge.asked),), tuple(judge.findings))


class _Judge(Judging):
    """The claims of this gate."""

    def live(self) -> None:
        """Tokens of all conversations whose next turn was warm after filling, over what wide rows allow."""
        budget = self._budget()
        again = self._answered("filler_again")
        first_warm = {str(one.get("cell")): one for one in reversed(self._answered("warm"))}
        shown = [one for one in (*again, *first_warm.values()) if self._warm(one)]
        tokens = sum(one.get("prompt_tokens") for one in shown)
        wide = self.settings.number("wide_bytes_per_token")
        note = f"{tokens} tokens in {len(shown)} conversations"
        if budget:
            note += f"; {budget / 2**20:.1f} MiB of wide rows hold {budget / wide:.0f}"
        else:
            note += "; the server does not tell its budget"
        value = tokens * wide / budget if budget and shown else None
        self.say("capacity.live_ratio", value, len(shown), note=note)
        self._overlap()

    def _budget(self) -> float | None:
        """Bytes of the budget as the server tells it, but at least what one of this gate's own was given."""
        filled = list(notes(self.events, FILLED))
        told = filled[-1].get("budget_bytes") if filled else None
        own = any(note.get("own_budget") for note in notes(self.events, PLANNED))
        given = self.settings.count("cache_mib") * 2**20 if own else 0
        return max(told, given) if told else None

    def _overlap(self) -> None:
        """How long both deep conversations decoded at the same time, of the shorter one's time."""
        pair = [_decoding(one) for one in self._answered("together") if one.get("longest_pause_s")]
        value = None
        if len(pair) == 2:
            both = sum(_shared(one, other) for one, other in product(*pair))
            shorter = min(sum(end - begin for begin, end in spans) for spans in pair)
            value = both / shorter if shorter > 0 else None
        note = "" if pair else "no answer to both at once was streamed"
        self.say("capacity.concurrent_ratio", value, len(pair), note=note)

    def warm(self) -> None:
        """Every later turn comes from the cache and saves the time of its text."""
        turns = [one for what in TURNS for one in self._answered(what)]
        shares = [(one, self._share(one)) for one in turns]
        self.kept([share for _, share in shares])
        for one, share in shares:
            if share is not None and share < self.settings.number("min_cached_ratio"):
                self.find(
                    "capacity.cached_ratio", one, "the turn before from the cache", f"{share:.0%} of it"
                )
        timed = [
            one for one in turns if one.invoke.what in ("warm", "filler_again") and one.get("first_token_s")
        ]
        most = self.settings.number("quiet_host_ratio")
        quiet = [one for one in timed if on_quiet_host(one, most)]
        ratios = [ratio for one in quiet if (ratio := self._time_left(one)) is not None]
        enough = 2 * len(ratios) >= len(timed) > 0
        note = "no next turn was answered" if not timed else ""
        if timed and not enough:
            note = f"the host was busy with other work in {len(timed) - len(quiet)} of {len(timed)} turns"
        self.say("capacity.warm_ttft_ratio", max(ratios) if enough else None, len(ratios), note=note)

    def exact(self) -> None:
        """Deep conversations answer exactly: first, together, at the ceiling and afterwards."""
        graded = [(one, _grade(one)) for one in last_tries(self.asked, *DEEP_TURNS)]
        right = sum(grade is not None and grade.right for _, grade in graded)
        interval = wilson(right, len(graded)) if graded else None
        self.say(
            "capacity.recall_ratio", right / len(graded) if graded else None, len(graded), interval=interval
        )
        for one, grade in graded:
            if grade is None or not grade.right:
                found = grade.found if grade else f"{one.get('error')}: {one.get('message')}"
                self.find("capacity.recall_ratio", one, ", ".join(one.get("expected")), found)
        starts = [one for what in STARTS for one in self._answered(what) if one.get("prompt_tokens")]
        errors = [abs(one.get("prompt_tokens") / one.get("planned_tokens") - 1) for one in starts]
        self.say("capacity.length_error_ratio", max(errors, default=None), len(errors))

    def ceiling(self) -> None:
        """At the ceiling a request is answered or cleanly refused, and no other one is ended for it."""
        self.refusals()
        turned = sum(ceiling.refused(one) for one in self.asked)
        note = f"{turned} requests were cleanly refused"  # a storm that met no ceiling says nothing about it
        others = [one for one in self.asked if one.invoke.what != ceiling.STORM]
        self.say("capacity.ceiling_count", turned or None, len(self.asked) - len(others), note=note)
        lost = [one for one in others if self._lost(one)]
        self.say("capacity.unanswered_count", len(lost), len(others), note=first_cause(lost))
        for one in lost:
            found = f"{one.get('error', 'an empty answer')}: {one.get('message', '')}"
            self.find("capacity.unanswered_count", one, "an answer", found)
        self.usage()
        self.leftover()

    def _lost(self, one: Operation) -> bool:
        """Whether a request beside the storm was left without an answer, or with an empty one."""
        if one.outcome == "ok":
            return not str(one.get("text") or "").strip()
        if one.outcome == "info":
            return one.end is not None and bool(one.get("alive"))
        near = ceiling.during(one, ceiling.spans(self.events))
        return not (ceiling.refused(one) and (near or one.invoke.what == "filler"))

    def _answered(self, what: str) -> list[Operation]:
        return [one for one in self.asked if one.invoke.what == what and one.outcome == "ok"]

    def _before(self, one: Operation) -> Operation | None:
        """The answered turn before this one of the same conversation."""
        earlier = [
            other
            for other in self.asked
            if other.outcome == "ok"
            and other.get("cell") == one.get("cell")
            and other.invoke.op < one.invoke.op
        ]
        return earlier[-1] if earlier else None

    def _share(self, one: Operation) -> float | None:
        """The share of the turn before that came from the cache; None if not known."""
        before = self._before(one)
        return None if before is None else kept_share(one, before)

    def _time_left(self, one: Operation) -> float | None:
        """The first-token time over that of the conversation's first turn, which was cold."""
        first = next(
            (
                other.get("first_token_s")
                for other in self.asked
                if other.invoke.what in STARTS
                and other.get("cell") == one.get("cell")
                and other.outcome == "ok"
            ),
            None,
        )
        return one.get("first_token_s") / first if first else None

    def _warm(self, one: Operation) -> bool:
        share, ratio = self._share(one), self._time_left(one)
        return (
            share is not None
            and share >= self.settings.number("min_cached_ratio")
            and (ratio is None or ratio <= self.settings.number("max_warm_ttft_ratio"))
        )


def _decoding(one: Operation) -> list[Span]:
    """From its first token to its end, in seconds of the history, without the longest pause between."""
    asked, (stops, goes_on) = one.invoke.t_s, one.get("longest_pause_s")
    return [(asked + one.get("first_token_s"), asked + stops), (asked + goes_on, asked + one.get("seconds"))]


def _shared(one: Span, other: Span) -> float:
    """How long two spans lie over each other."""
    return max(0.0, min(one[1], other[1]) - max(one[0], other[0]))


def _grade(one: Operation) -> Grade | None:
    if one.outcome != "ok":
        return None
    return grade_codes(str(one.get("text") or ""), one.get("expected", []), [])


def _table(asked: Sequence[Operation]) -> Table:
    """One row a turn, the storm left out."""
    rows = tuple(
        (*(one.invoke.what if column == "what" else one.get(column) for column in COLUMNS), one.get("text"))
        for one in asked
        if one.invoke.what in (*STARTS, *TURNS)
    )
    return Table("conversations", (*COLUMNS, "text"), rows, title="Conversations that were live at once")
