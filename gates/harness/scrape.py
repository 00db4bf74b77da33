"""What a server counts of itself: the Prometheus text of `/metrics` as numbers.

The names are those of the public ds4 server, which ours shows too. A server without a series has no value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Final

from gates.harness.client import Client
from gates.harness.reply import ClientError

_LINE: Final = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)(?: \d+)?$")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

KV_BYTES: Final = "ds4_kv_bytes"
EVICTIONS: Final = "ds4_evictions_total"
INFLIGHT: Final = "ds4_requests_inflight"
DEVICE_BYTES: Final = "ds4_device_bytes"
SETTLE_LOOKS: Final = 50  # for what is still open, a tenth of a second apart


class Scrape:
    """The samples of one answer of `/metrics`."""

    def __init__(self, text: str) -> None:
        self._samples: list[tuple[str, Mapping[str, str], float]] = []
        for line in text.splitlines():
            found = _LINE.match(line)
            if found and (value := _number(found[3])) is not None:
                self._samples.append((found[1], dict(_LABEL.findall(found[2] or "")), value))

    def value(self, name: str, **labels: str) -> float | None:
        """The sum of all samples of a series with these labels; None when there is none."""
        wanted = labels.items()
        found = [value for series, has, value in self._samples if series == name and wanted <= has.items()]
        return sum(found) if found else None


def read(client: Client) -> Scrape:
    """What a server counts now; one without `/metrics`, or without an answer, counts nothing."""
    try:
        return Scrape(client.metrics())
    except ClientError:
        return Scrape("")


def settled(client: Client, pause: Callable[[float], None]) -> float | None:
    """Requests that are still open after a while in which nobody asks; None where they are not counted."""
    for _ in range(SETTLE_LOOKS):
        if not (open_now := read(client).value(INFLIGHT)):
            break
        pause(0.1)
    return open_now


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
