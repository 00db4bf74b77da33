"""Metrics, statistics, timings and logs: one core, and no secret in any of its views."""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from engine.metrics import COUNTERS, HISTOGRAMS
from engine.tests.server.live import Live, Script, live_server, until
from engine.tests.server.wire import get, post, stream

CHAT = "/v1/chat/completions"
ASK = [{"role": "user", "content": "Hi"}]
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": ASK},
    "/v1/completions": {"prompt": "Hi", "max_tokens": 4},
    "/v1/responses": {"input": "Hi"},
    "/v1/messages": {"messages": ASK},
}
DASHBOARD = Path(__file__).parents[3] / "docs" / "grafana.json"
CANARY = "canary-7f3a"


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    with live_server(Script("Hm.</think>It is so.")) as running:
        yield running


def numbers(live: Live) -> dict[str, float]:
    """All samples of /metrics by name and label value."""
    found = {}
    for family in text_string_to_metric_families(get(live, "/metrics").text):
        for sample in family.samples:
            found[" ".join([sample.name, *map(str, sample.labels.values())])] = sample.value
    return found


def test_a_prometheus_reader_understands_every_series(live: Live) -> None:
    answer = get(live, "/metrics")
    found = numbers(live)

    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    for series in COUNTERS.values():
        assert " ".join(filter(None, [series.name, series.value])) in found
    for series, _ in HISTOGRAMS.values():
        assert found[f"{series.name}_bucket +Inf"] == found[f"{series.name}_count"]
    assert 1 == found["ds4_clients_connected"]


def test_requests_add_up_at_every_quiet_moment() -> None:
    with live_server(Script("Hm.</think>It is so.")) as live:
        for path, body in BODIES.items():
            assert 200 == post(live, path, body).status_code
            stream(live, path, body)
            assert 400 == post(live, path, {}).status_code
        assert 400 == post(live, CHAT, {"messages": [{"content": "x" * 5000}]}).status_code
        until(lambda: live.service.engine.stats().running == 0)
        found = numbers(live)
    outcomes = {name: found[f"ds4_requests_total {name}"] for name in ("completed", "failed", "canceled")}

    assert {"completed": 8, "failed": 0, "canceled": 0} == outcomes
    assert 5 == found["ds4_requests_total rejected"]
    assert 13 == found["ds4_requests_started_total"]
    assert (4, 1) == (
        found["ds4_requests_rejected_total bad_request"],
        found["ds4_requests_rejected_total too_long"],
    )
    assert 2 == found["ds4_route_requests_total anthropic_messages"]
    assert 6 == found["ds4_requests_think_total high"]
    assert 8 == found["ds4_ttft_seconds_count"]
    assert 0 == found["ds4_requests_inflight"] == found["ds4_inflight_body_bytes"]


def test_device_memory_is_what_the_runner_says(monkeypatch: pytest.MonkeyPatch) -> None:
    with live_server() as live:
        monkeypatch.setattr(live.service.engine._runner, "device_bytes", 7)
        page = get(live, "/v1/stats", accept="application/json").json()
        found = numbers(live)

    assert (7, 7) == (found["ds4_device_bytes"], page["memory"]["device_bytes"])


def test_the_dashboard_asks_only_for_numbers_that_exist(live: Live) -> None:
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    text = get(live, "/metrics").text
    asked = {
        name
        for panel in board["panels"]
        for target in panel["targets"]
        for name in re.findall(r"ds4_\w+", target["expr"])
    }

    assert len(asked) > 15
    assert [] == [name for name in sorted(asked) if not re.search(rf"^{name}[ {{]", text, re.M)]
    assert len(board["panels"]) == len({panel["id"] for panel in board["panels"]})


def test_the_page_of_statistics_is_text_or_json(live: Live) -> None:
    post(live, CHAT, {"messages": ASK})
    page = get(live, "/v1/stats")
    data = get(live, "/v1/stats", accept="application/json").json()

    assert page.headers["content-type"].startswith("text/plain")
    assert {line for line in page.text.splitlines() if line and not line.startswith(" ")} == {
        name.replace("_", " ") for name in data
    }
    assert "script-model" == data["server"]["model"]
    assert data["requests"]["completed"] >= 1
    assert data["last_request"]["ttft_ms"] >= 0


def test_every_bank_has_a_line_and_a_name_that_tells_no_prompt() -> None:
    gate = threading.Event()
    script = Script("</think>ok", before_step=lambda _: gate.wait(20))
    gate.set()
    with live_server(script) as live:
        for text in ("One question.", "Another one.", "One question."):
            post(live, CHAT, {"messages": [{"role": "user", "content": text}], "pin_cache": text[0] == "A"})
        kept = get(live, "/v1/stats", accept="application/json").json()["banks"]["each"]
        gate.clear()
        asked = {"messages": [{"role": "user", "content": "One question."}], "stream": True}
        waiting = threading.Thread(target=post, args=(live, CHAT, asked))
        waiting.start()
        until(lambda: live.service.engine.stats().running == 1)
        running = get(live, "/v1/stats", accept="application/json").json()["banks"]["each"]
        lines = [line for line in get(live, "/v1/stats").text.splitlines() if "conversation" in line]
        gate.set()
        waiting.join(20)
    one, other = kept

    assert ("warm", 1, "pinned", 0) == (one["state"], one["starts"], other["state"], other["starts"])
    assert one["conversation"] != other["conversation"]
    assert ("live", one["conversation"]) == (running[0]["state"], running[0]["conversation"])
    assert len(running) == len(lines)
    assert all(bank["tokens"] and bank["bytes"] and bank["age_s"] >= 0 for bank in kept)


@pytest.mark.parametrize("path", BODIES)
def test_every_answer_tells_its_times(live: Live, path: str) -> None:
    whole = post(live, path, BODIES[path]).json()["timings"]
    streamed = stream(live, path, BODIES[path])
    blocks = [
        found
        for event in streamed
        if isinstance(event.data, dict)
        if (found := event.data.get("timings") or event.data.get("response", {}).get("timings"))
    ]

    assert 1 == len(blocks)
    for times in (whole, *blocks):
        assert times["prefill_cached"] + times["prefill_computed"] == times["prefill_tokens"]
        assert times["queue_ms"] + times["prefill_ms"] == pytest.approx(times["ttft_ms"], abs=0.2)
        assert None not in times.values()


def test_logs_are_pairs_and_name_the_request(live: Live, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="engine.server.requests"):
        good = post(live, CHAT, {"messages": ASK})
        bad = post(live, CHAT, {})
    lines = [record.getMessage() for record in caplog.records if record.name == "engine.server.requests"]

    assert 2 == len(lines)
    assert f"event=answered request={good.headers['x-request-id']}" in lines[0]
    assert f"answer={good.json()['id'].removeprefix('chatcmpl-')}" in lines[0]
    assert f"request={bad.headers['x-request-id']} surface=openai_chat status=400" in lines[1]
    assert all(re.fullmatch(r"(\w+=(\"[^\"]*\"|\S+)( |$))+", line) for line in lines)


def test_no_prompt_answer_or_key_is_in_logs_or_numbers(caplog: pytest.LogCaptureFixture) -> None:
    script = Script(f"{CANARY}</think>{CANARY}")
    with caplog.at_level(logging.DEBUG), live_server(script, api_key=f"{CANARY}-key") as live:
        key = {"authorization": f"Bearer {CANARY}-key"}
        for path in BODIES:
            body: Any = {"messages": [{"role": "user", "content": CANARY}], "prompt": CANARY, "input": CANARY}
            body["max_tokens"] = 4
            post(live, path, body, **key)
            post(live, path, {**body, "temperature": CANARY, "model": CANARY}, **key)
            post(live, path, body, authorization=f"Bearer {CANARY}")
        seen = [get(live, path, **key).text for path in ("/metrics", "/v1/stats", "/health", "/v1/models")]
        seen.append(get(live, "/v1/stats", accept="application/json", **key).text)

    assert CANARY not in "".join(seen)
    assert CANARY not in "".join(record.getMessage() for record in caplog.records)


def test_an_answer_that_piles_up_unread_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.server.generation.MAX_UNREAD", -1)
    with live_server(Script("</think>" + "word " * 700)) as live:
        answer = post(live, CHAT, {"messages": ASK, "stream": True})
        found = numbers(live)

    assert 1 == found["ds4_requests_shed_total slow_reader"]
    assert (1, 0) == (found["ds4_requests_total canceled"], found["ds4_requests_inflight"])
    assert '"code":"overloaded"' in answer.text
    assert "[DONE]" not in answer.text
