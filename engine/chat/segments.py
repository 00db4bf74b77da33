"""A segment: the smallest piece of a prompt, either one marker or plain text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Segment:
    """`is_marker`: exactly one id; otherwise text in which markers mean nothing."""

    text: str
    is_marker: bool


def marker(value: str) -> Segment:
    """A segment that becomes one id."""
    return Segment(value, is_marker=True)


def text(value: str) -> Segment:
    """A segment of plain text."""
    return Segment(value, is_marker=False)
