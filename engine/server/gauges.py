"""What is going on at this moment, as numbers with names: the other half of what the metrics core counts.

Reads the engine's own statistics; never waits for a step.
"""

from __future__ import annotations

from engine.cache.shelf import ShelfStats
from engine.metrics import Rates, Series
from engine.server.service import Service
from engine.server.traffic import Traffic


def gauges(service: Service, traffic: Traffic, *, uptime_s: float) -> list[tuple[Series, float]]:
    """Every gauge and its value now."""
    stats, rates = service.engine.stats(), service.engine.metrics.rates()
    limits, shelf = service.engine.limits, stats.shelf or ShelfStats()
    return [
        (Series("ds4_uptime_seconds", "Since the model was ready."), uptime_s),
        (Series("ds4_requests_inflight", "Running or waiting."), stats.running + stats.queued),
        (Series("ds4_queue_depth", "Waiting for a place."), stats.queued),
        (Series("ds4_clients_connected", "Open connections."), traffic.clients()),
        (Series("ds4_inflight_body_bytes", "Bodies being read."), traffic.body_bytes),
        (Series("ds4_out_backlog_bytes", "Written and not yet taken."), traffic.backlog_bytes()),
        *_speeds(rates, service.engine.metrics.snapshot()),
        (Series("ds4_banks_live", "Sequences that run."), stats.running),
        (Series("ds4_banks_total", "Sequences that can run at once."), limits.max_sequences),
        (Series("ds4_warm_records", "Kept sequences."), stats.records),
        (Series("ds4_pinned_records", "Kept sequences that yield last."), stats.memory.pinned_records),
        *(
            (Series("ds4_kv_bytes", "Cache memory by use.", "kind", kind), value)
            for kind, value in stats.memory.by_kind().items()
        ),
        (Series("ds4_device_bytes", "Held by the allocator of the device; 0 on a CPU."), stats.device_bytes),
        (Series("ds4_disk_files", "Kept sequences on disk."), shelf.files),
        (Series("ds4_disk_bytes", "Bytes of kept sequences.", "kind", "stored"), shelf.nbytes),
        (Series("ds4_disk_bytes", "Bytes of kept sequences.", "kind", "waiting"), shelf.waiting),
    ]


def _speeds(rates: Rates, counters: dict[str, int]) -> list[tuple[Series, float]]:
    accept = counters["spec_hits"] / max(1, counters["spec_drafts"])
    return [
        (Series("ds4_decode_tok_s", "Answer tokens a second, last minute."), rates.decode_tok_s),
        (Series("ds4_prefill_tok_s", "Computed prompt tokens a second, last minute."), rates.prefill_tok_s),
        (Series("ds4_tok_per_step", "Answer tokens a step, last minute."), rates.tok_per_step),
        (Series("ds4_spec_accept_ratio", "Share of proposed tokens that were right."), accept),
    ]
