"""Judges how the items were answered: lost, cut and empty replies, least scores, arms, honesty, lengths.

Pure: the events of a history with its item records in, measures and findings out.
Comparisons with a baseline are made elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Final

from gates.harness import room
from gates.harness.history import ITEM, Event, Operation, notes, operations
from gates.harness.stats import wilson
from gates.harness.verdict import Finding, Measure, measured, worst
from gates.profile import Settings
from gates.quality import early, honesty, ifeval, items
from gates.quality.grading import graded_text
from gates.quality.honesty import Doubt, Tried
from gates.quality.items import ItemRecord, Outcome
from gates.quality.plan import Part, parts

SETS_PLANNED: Final = "sets_planned"  # a remark: how many items of each set and arm are asked
FOUR_FIGURES: Final = ("ifeval", "mini_format")
SHOWN: Final = 20  # findings of one measure
PARTS_NAMED: Final = 8
NO_LENGTHS: Final = (
    "the profile does not say how long replies usually are (fast_mean_tokens, thinking_mean_tokens)"
)
UNTRIED: Final = "no item was answered in all the ways in which honesty is tried"
END_TOKENS: Final = 8  # of the template around a reply: turn and thinking marks
COUNTED_APART: Final[tuple[tuple[str, Outcome], ...]] = (
    ("quality.fault_ratio", "fault"),
    ("quality.refused_ratio", "refused"),
    ("quality.truncated_ratio", "truncated"),
    ("quality.empty_ratio", "empty"),
)


@dataclass(slots=True)
class Traffic:
    """The measures and findings as they are gathered."""

    settings: Settings
    measures: list[Measure] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def say(self, measure_id: str, value: float | None, n: int, note: str = "") -> None:
        """One measure."""
        self.measures.append(measured(self.settings, measure_id, value, n=n, note=note))

    def tried(
        self, measure_id: str, found: Tried, expected: str, *, whole: bool = False, note: str = ""
    ) -> None:
        """The share of what was wrong (`whole`: of what was right), and each doubt as a finding."""
        value = found.ratio if not whole or found.ratio is None else 1 - found.ratio
        self.say(measure_id, value, found.n, _joined(_commonest(d.why for d in found.doubts), note))
        self.find(measure_id, expected, found.doubts)

    def find(self, measure_id: str, expected: str, doubts: Iterable[Doubt]) -> None:
        """Each doubt as a finding, so far as one can read them."""
        self.findings += [Finding(measure_id, d.where, expected, d.why) for d in list(doubts)[:SHOWN]]


def judge(events: Sequence[Event], settings: Settings) -> Traffic:
    """Every claim about the traffic of a quality run."""
    asked = operations(events)
    records = records_of(events)
    own = [record for record in records if record.server == "candidate"]
    found = Traffic(settings)
    _outcomes(found, own)
    _missing(found, events, own)
    _scores(found, own)
    _arms(found, [o for o in asked if o.invoke.what == ITEM and o.get("server") == "candidate"])
    _honesty(found, asked)
    return found


def records_of(events: Sequence[Event]) -> list[ItemRecord]:
    """The item records among the events; CheckError for one that is none."""
    return [items.from_json(note.fields) for note in notes(events, ITEM)]


def _missing(found: Traffic, events: Sequence[Event], records: Sequence[ItemRecord]) -> None:
    """Items that were planned and have no record; the note says by which versions all others were made."""
    plans = list(notes(events, SETS_PLANNED))
    planned = sum(count for arms in _planned(plans[-1]).values() for count in arms.values()) if plans else 0
    asked = planned - early.spared(events)
    missing = max(0, asked - sum(record.repeat == 0 for record in records))
    absent = _absent_parts(events)
    if absent:
        more = f" and {len(absent) - PARTS_NAMED} more" if len(absent) > PARTS_NAMED else ""
        named = ", ".join(map(str, absent[:PARTS_NAMED])) + more
        why = f"part {named} of the items is in another run: join them with `judge`"
        found.say("quality.missing_count", None, planned, why)
    elif gap := room.unfinished(events) or ("" if planned else "the record has no plan"):
        found.say("quality.missing_count", None, planned, gap)
    else:
        found.say("quality.missing_count", missing, planned, _made_by(events, plans[-1]))


def _planned(plan: Event) -> dict[str, dict[str, int]]:
    return dict(plan.get("items", {}))


def _made_by(events: Sequence[Event], plan: Event) -> str:
    """Versions of prompts, graders and data, and in which isolation programs ran."""
    said = [f"{name} {version[:16]}" for name, version in dict(plan.get("versions", {})).items()]
    ran = {f"programs ran in {note.get('isolation')}" for note in notes(events, "sandbox")}
    return ", ".join([*said, *sorted(ran)])


def _absent_parts(events: Sequence[Event]) -> list[int]:
    """The parts of the items that these records do not hold."""
    parts_held = [tuple(note.get("part", (1, 1))) for note in notes(events, SETS_PLANNED)]
    count = max((count for _, count in parts_held), default=0)
    return sorted(set(range(1, count + 1)) - {number for number, _ in parts_held})


def _outcomes(found: Traffic, records: Sequence[ItemRecord]) -> None:
    n = len(records)
    none = "" if n else "no item is on record"
    for measure_id, outcome in COUNTED_APART:
        wrong = [record for record in records if record.outcome == outcome]
        found.say(measure_id, len(wrong) / n if n else None, n, _commonest(map(_cause, wrong)) or none)
        found.find(measure_id, "a reply that ends by itself", (Doubt(_where(r), _ended(r)) for r in wrong))
    graded = [record for record in records if record.correct is not None]
    lost = [r for r in graded if r.state in ("unparsed", "no_code", "syntax") and r.outcome == "answered"]
    unread = [_unread(record) for record in lost]
    note = _commonest(doubt.why for doubt in unread) or ("" if graded else "no item was graded")
    found.say("quality.unparsed_ratio", len(lost) / len(graded) if graded else None, len(graded), note)
    found.find("quality.unparsed_ratio", "an answer in the form that was asked for", unread)
    retries = sum(record.retries for record in records)
    found.say("quality.retries_count", retries, n)


def _scores(found: Traffic, records: Sequence[ItemRecord]) -> None:
    """The score of the worst set against its least, and the length of the strangest against its usual."""
    by_part = {part: _of(part, records) for part in parts(found.settings)}
    margins: list[float] = []
    strays: list[float | None] = []
    said, lengths = [], []
    for part, own in by_part.items():
        graded = [record.correct for record in own if record.correct is not None]
        if graded:
            low, high = wilson(sum(graded), len(graded))
            margins.append(fmean(graded) - part.min_score)
            said.append(
                f"{part.name} {fmean(graded):.1%} ({low:.1%} to {high:.1%}, n = {len(graded)}){_figures(own)}"
            )
        else:
            said.append(f"{part.name}: no item was graded")
        if part.mean_tokens:
            stray, length = _length(part, own)
            strays.append(stray)
            lengths.append(length)
    margin = min(margins) if len(margins) == len(by_part) else None
    found.say("quality.score_margin_ratio", margin, len(records), "; ".join(said))
    counted = sum(stray is not None for stray in strays)
    note = "; ".join(lengths) if counted else "no reply has counts" if strays else NO_LENGTHS
    found.say("quality.length_ratio", worst(found.settings, "quality.length_ratio", strays), counted, note)


def _length(part: Part, own: Sequence[ItemRecord]) -> tuple[float | None, str]:
    """By which factor the replies are longer or shorter than usual, and in words; None without counts."""
    said = [r.completion_tokens or 0 for r in own if r.outcome != "fault"]
    counted = [tokens for tokens in said if tokens > 0]
    if not counted:
        return None, f"{part.name}: no reply has counts"
    mean = fmean(counted)
    factor = max(mean / part.mean_tokens, part.mean_tokens / mean)
    return factor, f"{part.name} {mean:.0f} tokens, usually {part.mean_tokens:g}"


def _figures(records: Sequence[ItemRecord]) -> str:
    """The further figures of IFEval; empty for other sets."""
    graded = [r for r in records if r.set in FOUR_FIGURES and r.correct is not None]
    if not graded:
        return ""
    found = ifeval.figures([ifeval.followed(r.extracted) for r in graded])
    return (
        f", loosely {found.prompt_loose:.1%}, of the instructions {found.instruction_strict:.1%}"
        f" and loosely {found.instruction_loose:.1%}"
    )


def _of(part: Part, records: Sequence[ItemRecord]) -> list[ItemRecord]:
    return [r for r in records if (r.set, r.arm, r.repeat) == (part.set, part.arm, 0)]


def _arms(found: Traffic, asked: Sequence[Operation]) -> None:
    """Each arm that was asked for was in force: reasoning where it is wanted, none where it is not."""
    answered = [o for o in asked if o.outcome == "ok"]
    for arm, wanted in (("fast", False), ("thinking", True)):
        own = [o for o in answered if o.get("arm") == arm]
        doubts = [Doubt(honesty.place(o), _thought(o, wanted)) for o in own if reasoned(o) != wanted]
        if not own and not any(part.arm == arm for part in parts(found.settings)):
            found.say(f"quality.{arm}_in_force_ratio", 1.0, 0, "this profile does not ask in this arm")
            continue
        expected = "reasoning" if wanted else "no reasoning"
        tried = Tried(len(own), tuple(doubts))
        found.tried(f"quality.{arm}_in_force_ratio", tried, expected, whole=True, note=_left_out(own))


def _left_out(asked: Sequence[Operation]) -> str:
    """Which members the server does not take, so that it was perhaps not told whether to think."""
    if not asked:
        return "no item of this arm was answered"
    names = sorted({name for operation in asked for name in operation.get("left_out") or ()})
    return f"asked without {', '.join(names)}: the server refuses such members" if names else ""


def reasoned(operation: Operation) -> bool:
    """Whether a reply was thought about: by its reasoning, a tag in its text, its counts.

    A text has at most a token a byte: what was counted beyond was not shown.
    """
    text = str(operation.get("text") or "")
    if operation.get("reasoning") or operation.get("reasoning_tokens") or graded_text(text) != text:
        return True
    return (operation.get("completion_tokens") or 0) > len(text.encode()) + END_TOKENS


def _thought(operation: Operation, wanted: bool) -> str:
    if wanted:
        return "neither reasoning nor tokens for it"
    reasoning = str(operation.get("reasoning") or "")
    return f"reasoning: {reasoning!r:.100}" if reasoning else "tokens that its text does not have"


def _honesty(found: Traffic, asked: Sequence[Operation]) -> None:
    probes = honesty.probed(asked)
    counted, untried = honesty.counted(asked, probes), "" if probes else UNTRIED
    none = "" if counted.n else "no reply has counts"
    found.tried("quality.usage_error_ratio", counted, "true token counts", note=none)
    first = honesty.first_tokens(probes)
    found.tried("quality.first_token_ratio", first, "the same first token", whole=True, note=untried)
    found.tried("quality.canned_ratio", honesty.canned(probes), "another reply", note=untried)
    exchanged = honesty.exchanged(asked, probes)
    apart = "" if exchanged.n else "no two items were under way at the same time"
    found.say("quality.crosstalk_count", len(exchanged.doubts) if exchanged.n else None, exchanged.n, apart)
    found.find("quality.crosstalk_count", "its own reply", exchanged.doubts)
    quiet = _quiet(found.settings)
    savings = honesty.repeat_savings(probes, quiet=quiet)
    speeds = honesty.seed_speeds(probes, quiet=quiet)
    enough = 2 * min(len(savings), len(speeds)) >= len(probes) > 0
    busy = "" if enough else "too few pairs of like replies on a quiet host"
    saved, speed = honesty.middle(savings), honesty.middle(speeds)
    found.say("quality.repeat_saving_ratio", saved if enough else None, len(savings), busy)
    drift = abs(speed - 1) if speed is not None and enough else None
    found.say("quality.seed_speed_ratio", drift, len(speeds), busy)


def _quiet(settings: Settings) -> Callable[[Operation], bool]:
    limit = settings.number("quiet_host_ratio")
    return lambda operation: (operation.get("host_busy_ratio") or 0.0) <= limit


def _joined(*notes: str) -> str:
    return "; ".join(filter(None, notes))


def _commonest(causes: Iterable[str]) -> str:
    """What is said most often, and how often; empty of nothing."""
    counts = Counter(causes)
    return "; ".join(f"{count} of {counts.total()}: {cause}" for cause, count in counts.most_common(1))


def _where(record: ItemRecord) -> str:
    return f"{record.item} ({record.arm})"


def _cause(record: ItemRecord) -> str:
    how = record.note if record.outcome in ("fault", "refused") else ""
    return f"{record.outcome}: {how or f'finish_reason {record.finish_reason}'}"


def _ended(record: ItemRecord) -> str:
    return f"{_cause(record)}, {record.completion_tokens} tokens"


def _unread(record: ItemRecord) -> Doubt:
    why = f" ({record.note})" if record.note else ""
    return Doubt(_where(record), f"{record.state}{why}: {record.text!r:.200}")
