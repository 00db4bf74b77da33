"""Tries a server's honesty on a few items, before the others are asked: the same question in several ways.

    alone      streamed, nothing else under way
    again      the same once more
    seeded     the same with another seed
    whole      the same, not streamed
    variant    with other numbers or another name
    once       a next turn behind the reply, one token wanted: `prompt_tokens` then count the reply
    twice      the same, the reply standing there twice
    burst      all items at the same moment, several times

Writes the history; what it proves is in `honesty.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from gates.harness import crowd
from gates.harness.history import notes
from gates.harness.reply import Reply
from gates.harness.rig import Rig
from gates.quality.answers import Ask
from gates.quality.asking import SEED
from gates.quality.sending import send
from gates.quality.variants import OTHERWISE

PROBED: Final = "probed"  # the remark that says that all was tried
NEXT_TURN: Final = "Thank you. Go on."
BURSTS: Final = 3  # a server that mixes up requests only while they cross may have luck once
GATHER_S: Final = 60.0  # until every client of a burst stands ready


def chosen(asks: Sequence[Ask], count: int) -> list[Ask]:
    """The asks on which honesty is tried: of sets whose questions can be varied, the fast arm first."""
    fit = [ask for ask in asks if ask.repeat == 0 and _varied(ask) != ask.question.prompt]
    return sorted(fit, key=lambda ask: ask.part.arm != "fast")[:count]


def cells(asks: Sequence[Ask], rig: Rig) -> int:
    """How many cells trying these will take."""
    return 0 if any(notes(rig.before, PROBED)) else len(asks) * (1 + len(rig.shards))


def probe(asks: Sequence[Ask], rig: Rig) -> None:
    """Try all of these on every server of the judged model, unless an interrupted run did."""
    if cells(asks, rig) == 0:
        return
    for endpoint, one in enumerate((rig, *rig.shards)):
        for ask in asks:
            rig.progress.cell(f"honesty, {ask.question.id}")
            _alone(ask, one, {"endpoint": f"{rig.part[0]}/{endpoint}"})
        for _ in range(BURSTS):
            start = threading.Barrier(max(1, len(asks)))
            burst = partial(_burst, f"{rig.part[0]}/{endpoint}", start)
            crowd.share(asks, [replace(one) for _ in asks], burst)
    rig.history.note(PROBED, items=len(asks))


def _burst(endpoint: str, start: threading.Barrier, ask: Ask, rig: Rig) -> None:
    start.wait(GATHER_S)
    send(rig, "burst", ask, fields={"endpoint": endpoint})


def _alone(ask: Ask, rig: Rig, fields: Mapping[str, Any]) -> None:
    first = send(rig, "alone", ask, fields=fields)
    send(rig, "again", ask, fields=fields)
    send(rig, "seeded", ask, fields=fields, otherwise={"seed": SEED + 1})
    send(rig, "whole", ask, fields=fields, stream=False)
    send(rig, "variant", ask, fields=fields, otherwise={"messages": [_user(_varied(ask))]})
    if isinstance(first, Reply) and first.text:
        _turns(ask, rig, fields, first.text)


def _turns(ask: Ask, rig: Rig, fields: Mapping[str, Any], said: str) -> None:
    """A next turn behind the reply, and behind the reply twice."""
    for what, text in (("once", said), ("twice", f"{said}\n{said}")):
        reply = {"role": "assistant", "content": text}
        messages = [_user(ask.question.prompt), reply, _user(NEXT_TURN)]
        send(rig, what, ask, fields=fields, otherwise={"messages": messages, "max_tokens": 1})


def _varied(ask: Ask) -> str:
    """The question with other numbers or another name; the same where the set or the item has neither."""
    return OTHERWISE.get(ask.part.set, str)(ask.question.prompt)


def _user(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}
