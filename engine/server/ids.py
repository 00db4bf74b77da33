"""Unguessable ids of requests and answers."""

from __future__ import annotations

import hashlib
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


def nth_seed(seed: int, index: int) -> int:
    """The seed of one of several answers to a request; the first has the request's own."""
    if index == 0:
        return seed
    return int.from_bytes(hashlib.blake2b(f"{seed} {index}".encode(), digest_size=8).digest())
