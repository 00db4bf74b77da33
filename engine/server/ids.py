"""Unguessable ids of requests, answers and calls."""

from __future__ import annotations

import secrets


def answer_id() -> str:
    """Id of one chat answer."""
    return f"chatcmpl-{secrets.token_hex(16)}"


def call_id() -> str:
    """Id of one tool call."""
    return f"call_{secrets.token_hex(16)}"


def request_id() -> str:
    """Id of one HTTP request."""
    return f"req_{secrets.token_hex(12)}"


def fresh_seed() -> int:
    """A seed for a request that names none."""
    return secrets.randbits(63)
