"""Plan of the echo gate, which exists for tests of the harness: how many words to ask for."""

from __future__ import annotations

from dataclasses import dataclass

from gates.profile import Settings


@dataclass(frozen=True, slots=True)
class EchoPlan:
    """The words that the server must repeat."""

    words: tuple[str, ...]

    @property
    def cells(self) -> int:
        """One cell a word."""
        return len(self.words)


def plan(settings: Settings, *, seed: int) -> EchoPlan:
    """Words that differ by seed."""
    return EchoPlan(tuple(f"word{seed % 1000}-{number}" for number in range(settings.count("words"))))
