"""What a load profile found: percentiles, rates, and whether every answer was right.  Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from engine.load.drive import SETTLE_S, Round

PERCENTS = (50, 95, 99)


def summary(found: Round, alone: Mapping[int, Sequence[int]]) -> dict[str, Any]:
    """Numbers of one round; times in ms, rates in tokens a second."""
    replies = [reply for _, reply in found.replies]
    firsts = [reply.first_s for reply in replies if reply.first_s is not None]
    gaps = [gap for reply in replies for gap in reply.gaps_s]
    return {
        "clients": found.clients,
        "requests": len(replies),
        "left": sum(reply.left for reply in replies),
        "refused": sum(reply.status == 503 for reply in replies),
        "lost": _lost(found),
        "crossed": _crossed(found, alone),
        "tok_s": round(sum(len(reply.ids) for reply in replies) / found.seconds, 1),
        "ttft_ms": percentiles(firsts),
        "inter_token_ms": percentiles(gaps),
        "settled_s": None if found.settled_s is None else round(found.settled_s, 2),
        "memory_mib": None if found.memory_mib is None else round(found.memory_mib, 1),
    }


def wrong(rounds: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is not as it must be, in words; empty when all is well."""
    found = []
    for entry in rounds:
        where = f"with {entry['clients']} clients"
        found += [f"{entry[name]} answers {name} {where}" for name in ("lost", "crossed") if entry[name]]
        if entry["settled_s"] is None or entry["settled_s"] > SETTLE_S:
            found.append(f"requests still run or wait {SETTLE_S:g} s after the last client {where}")
    return found


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """The nearest-rank percentiles in ms; empty for no values."""
    ordered = sorted(seconds)
    if not ordered:
        return {}
    ranks = {percent: max(1, math.ceil(percent / 100 * len(ordered))) for percent in PERCENTS}
    return {f"p{percent}": round(1000 * ordered[rank - 1], 1) for percent, rank in ranks.items()}


def table(rounds: Sequence[Mapping[str, Any]]) -> str:
    """The rounds as lines for a terminal."""
    lines = [
        f"{'clients':>7} {'requests':>8} {'left':>5} {'lost':>5} {'crossed':>7} {'tok/s':>7} "
        f"{'ttft ms p50/p95/p99':>24} {'between ms p50/p95/p99':>24} {'settled s':>9} {'MiB':>7}"
    ]
    for entry in rounds:
        lines.append(
            f"{entry['clients']:>7} {entry['requests']:>8} {entry['left']:>5} {entry['lost']:>5} "
            f"{entry['crossed']:>7} {entry['tok_s']:>7} {_row(entry['ttft_ms']):>24} "
            f"{_row(entry['inter_token_ms']):>24} {_or_dash(entry['settled_s']):>9} "
            f"{_or_dash(entry['memory_mib']):>7}"
        )
    return "\n".join(lines)


def costs(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the server adds to the bare model, a line for each number of rows."""
    return [
        f"{entry['rows']} at once: bare {entry['bare_ms']} ms, served {entry['served_ms']} ms a token, "
        f"{entry['wall']:+.1%}; beside a loop that only sends ({entry['sent_ms']} ms) "
        f"{entry['wall_beside_sender']:+.1%}; "
        f"cpu {entry['bare_cpu_s']} and {entry['served_cpu_s']} s, {entry['cpu']:+.1%}"
        for entry in found
    ]


def _or_dash(value: float | None) -> str:
    """A number, or a dash where nobody knows it, as of the memory of a server elsewhere."""
    return "-" if value is None else str(value)


def _row(found: Mapping[str, float]) -> str:
    return " / ".join(f"{value:g}" for value in found.values()) or "-"


def _lost(found: Round) -> int:
    """Answers of clients that stayed and were let in but got no end."""
    stayed = [reply for _, reply in found.replies if not reply.left and reply.status != 503]
    return sum(reply.finish is None or reply.error is not None for reply in stayed)


def _crossed(found: Round, alone: Mapping[int, Sequence[int]]) -> int:
    """Answers that differ from those to the same request alone, as far as they went."""
    return sum(
        list(reply.ids) != list(alone[item.number][: len(reply.ids)])
        or (reply.finish is not None and not reply.left and len(reply.ids) != len(alone[item.number]))
        for item, reply in found.replies
        if item.number in alone
    )
