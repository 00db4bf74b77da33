"""Item records made without a server: sides of a comparison with so many right answers and changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gates.quality.grading import Bounds
from gates.quality.items import ItemRecord

GRADER = "gsm8k grader 1"
BOUNDS = Bounds(faults=0.005, truncated=0.01)
_RECORD = ItemRecord(
    set="gsm8k",
    arm="fast",
    item="gsm8k/0",
    category="",
    cluster="gsm8k/0",
    repeat=0,
    server="candidate",
    prompt_sha256="p" * 64,
    text="#### 1",
    reasoning_length=0,
    token_ids=(),
    extracted="1",
    state="pass",
    note="",
    score=1.0,
    correct=True,
    outcome="answered",
    finish_reason="stop",
    prompt_tokens=40,
    completion_tokens=20,
    cached_tokens=0,
    ttft_s=0.1,
    seconds=1.0,
    retries=0,
    grader_version=GRADER,
)


def record(place: int, correct: bool | None = True, **changes: Any) -> ItemRecord:
    """The record of one item; None is one without a usable reply."""
    item = f"{changes.get('set', 'gsm8k')}/{place}"
    own: dict[str, Any] = {"item": item, "cluster": item}
    if correct is None:
        own |= {"state": "infra", "outcome": "fault", "score": None, "correct": None, "text": ""}
    elif not correct:
        own |= {"state": "fail", "score": 0.0, "correct": False, "text": "#### 2", "extracted": "2"}
    return replace(_RECORD, **(own | changes))


def side(rights: Sequence[bool | None], **changes: Any) -> list[ItemRecord]:
    """One record an item, right or wrong as told."""
    return [record(place, right, **changes) for place, right in enumerate(rights)]


def answers(n: int, *, wrong: Sequence[int] = (), lost: Sequence[int] = ()) -> list[bool | None]:
    """All right but the named places."""
    return [None if place in lost else place not in wrong for place in range(n)]
