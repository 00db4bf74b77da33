"""Sends one ask through a rig: the request of its question, with what a caller wants otherwise in it.

Owns how an ask becomes a request and its fields in the history.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gates.harness.reply import NOTHING, ClientError, Reply
from gates.harness.rig import Rig
from gates.quality.answers import Ask
from gates.quality.asking import request


def send(
    rig: Rig,
    what: str,
    ask: Ask,
    *,
    fields: Mapping[str, Any] = NOTHING,
    otherwise: Mapping[str, Any] = NOTHING,
    stream: bool = True,
) -> Reply | ClientError:
    """One request for an ask; `otherwise` are members in place of its own, `fields` more for the history."""
    members = {**request(ask.question, arm=ask.part.arm), **otherwise}
    max_tokens = members.pop("max_tokens")
    return rig.attempt(
        what,
        members.pop("messages"),
        fields={**ask.fields(), "max_tokens": max_tokens, **fields},
        max_tokens=max_tokens,
        temperature=members.pop("temperature"),
        seed=members.pop("seed"),
        stream=stream,
        extra=members,
    )
