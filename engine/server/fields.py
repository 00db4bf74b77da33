"""Typed, bounded access to the members of a request body.

Owns the errors for wrong types and values out of range, always with the member's path.
`null` is the same as absent; `true` is never a number; unknown members are nobody's business here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from engine.errors import RequestError, shown


@dataclass(frozen=True, slots=True)
class Fields:
    """The members of one JSON object and the path to it."""

    members: Mapping[str, object]
    path: str = ""

    def integer(self, name: str, *, low: int | None = None, high: int | None = None) -> int | None:
        """A whole number within the bounds, both included."""
        value = self.members.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(name, "a whole number", value)
        self._check_range(name, value, low, high)
        return value

    def number(self, name: str, *, low: float, high: float, above: bool = False) -> float | None:
        """A finite number within the bounds; `above` leaves the lower bound itself out."""
        value = self.members.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(name, "a number", value)
        if isinstance(value, float) and not math.isfinite(value):  # a whole number may be too large to ask
            raise self._wrong(name, "a number", value)
        self._check_range(name, value, low, high, above=above)
        return float(value)

    def boolean(self, name: str) -> bool | None:
        """True or false."""
        value = self.members.get(name)
        if value is None or isinstance(value, bool):
            return value
        raise self._wrong(name, "true or false", value)

    def string(self, name: str, *, longest: int) -> str | None:
        """Text of at most `longest` characters."""
        value = self.members.get(name)
        if value is None or (isinstance(value, str) and len(value) <= longest):
            return value
        raise self._wrong(name, f"a string of up to {longest} characters", value)

    def nested(self, name: str) -> Fields:
        """A nested object, empty when absent."""
        value = self.members.get(name)
        if value is None:
            return Fields({}, self._at(name))
        if isinstance(value, dict):
            return Fields(value, self._at(name))
        raise self._wrong(name, "an object", value)

    def strings(self, name: str, *, most: int, longest: int) -> tuple[str, ...]:
        """One string or a list of at most `most` of them; empty ones are left out."""
        value = self.members.get(name)
        entries = [value] if isinstance(value, str) else value
        if entries is None:
            return ()
        if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in entries):
            raise self._wrong(name, "a string or a list of strings", value)
        if len(entries) > most or any(len(entry) > longest for entry in entries):
            found = f"{len(entries)} strings of up to {max(map(len, entries))} characters"
            raise RequestError(
                f"{self._at(name)} may hold {most} strings of {longest} characters, found {found}",
                param=self._at(name),
            )
        return tuple(entry for entry in entries if entry)

    def refuse(self, name: str, why: str) -> RequestError:
        """The error for a member that is understood and not supported."""
        return RequestError(
            f"{self._at(name)} is not supported: {why}", param=self._at(name), code="unsupported_parameter"
        )

    def _at(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def _wrong(self, name: str, wanted: str, value: object) -> RequestError:
        return RequestError(f"{self._at(name)} must be {wanted}, found {shown(value)}", param=self._at(name))

    def _check_range(
        self, name: str, value: float, low: float | None, high: float | None, *, above: bool = False
    ) -> None:
        too_low = low is not None and (value < low or (above and value == low))
        if too_low or (high is not None and value > high):
            least = "any" if low is None else f"{'more than ' if above else ''}{low:g}"
            most = "any" if high is None else f"{high:g}"
            raise RequestError(
                f"{self._at(name)} is {shown(value)}; allowed is {least} to {most}", param=self._at(name)
            )
