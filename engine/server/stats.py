"""GET /v1/stats and /metrics: how the server does, for a person at `watch curl` and for a collector.

Owns the sections of the page.  No text of a prompt and no key ever stands here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from engine.banks import Bank
from engine.config import ServerSettings
from engine.server.answers import json_response
from engine.server.gauges import gauges
from engine.server.prometheus import CONTENT_TYPE, render
from engine.server.service import Host, Service

Sections = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class StatsEndpoint:
    """Two views of the same numbers."""

    host: Host
    settings: ServerSettings
    fingerprint: str

    async def metrics(self, _: Request) -> Response:
        """Prometheus text."""
        service = self.host.service
        now = gauges(service, self.host.traffic, uptime_s=self.host.uptime_s)
        return Response(render(service.engine.metrics, now), media_type=CONTENT_TYPE)

    async def stats(self, http: Request) -> Response:
        """A page of text, or the same as JSON for those who accept that."""
        sections = self._sections(self.host.service)
        if "application/json" in http.headers.get("accept", ""):
            return json_response(sections)
        return Response(as_text(sections), media_type="text/plain; charset=utf-8")

    def _sections(self, service: Service) -> Sections:
        engine = service.engine
        stats, rates, limits = engine.stats(), engine.metrics.rates(), engine.limits
        count = stats.counters
        cached, computed = count["tokens_prefilled_cached"], count["tokens_prefilled_computed"]
        outcomes = ("started", "completed", "failed", "canceled", "rejected")
        found: Sections = {
            "server": {
                "model": service.model_id,
                "build": self.fingerprint,
                "context_tokens": service.context,
                "uptime_s": round(self.host.uptime_s, 1),
                "status": self.host.status,
                "default_temperature": self.settings.default_temperature,
            },
            "requests": {
                **{name: count[f"requests_{name}"] for name in outcomes},
                "inflight": stats.running + stats.queued,
                "queued": stats.queued,
            },
            "throughput_60s": {
                "decode_tok_s": round(rates.decode_tok_s, 2),
                "prefill_tok_s": round(rates.prefill_tok_s, 2),
                "tok_per_step": round(rates.tok_per_step, 2),
                "batch_mean": round(rates.batch_mean, 2),
            },
            "banks": {
                "live": stats.running,
                "most_live": limits.max_sequences,
                "warm": stats.records,
                "pinned": stats.memory.pinned_records,
                "each": [_bank(bank) for bank in engine.banks()],
            },
            "memory": {
                **{f"{kind}_bytes": value for kind, value in stats.memory.by_kind().items()},
                "device_bytes": stats.device_bytes,
            },
            "cache": {
                **{key: n for key, n in count.items() if key.startswith("admits_") and n},
                "hit_ratio": round(cached / max(1, cached + computed), 4),
            },
        }
        if stats.shelf is not None:
            found["disk"] = {
                "files": stats.shelf.files,
                "stored_bytes": stats.shelf.nbytes,
                "waiting_bytes": stats.shelf.waiting,
                **{key: n for key, n in count.items() if key.startswith(("spills_", "recalls_"))},
            }
        if count["spec_drafts"]:
            found["speculation"] = {"drafts": count["spec_drafts"], "hits": count["spec_hits"]}
        if self.host.traffic.last is not None:
            found["last_request"] = dict(self.host.traffic.last)
        return found


def _bank(bank: Bank) -> dict[str, Any]:
    return {
        "conversation": bank.conversation,
        "state": bank.state,
        "tokens": bank.tokens,
        "bytes": bank.nbytes,
        "age_s": round(bank.age_s, 1),
        "starts": bank.starts,
    }


def as_text(sections: Sections) -> str:
    """One block a section, one line a number or a bank."""
    blocks = []
    for name, members in sections.items():
        lines = [f"  {key:<20} {value}" for key, value in members.items() if not isinstance(value, list)]
        rows = [row for value in members.values() if isinstance(value, list) for row in value]
        lines += ["  " + "  ".join(f"{key} {value}" for key, value in row.items()) for row in rows]
        blocks.append("\n".join([name.replace("_", " "), *lines]))
    return "\n\n".join(blocks) + "\n"
