"""Unguessable ids of requests and answers."""

from __future__ import annotations

import secrets


def answer_key() -> str:
    """What tells one answer from all others; a dialect puts its own prefix before it."""
    return secrets.token_hex(16)


def request_id() -> str:
    """Id of one HTTP request."""
    return f"req_{secrets.token_hex(12)}"


def fresh_seed() -> int:
    """A seed for a request that names none."""
    return secrets.randbits(63)
