"""What a server counts of itself, read from its Prometheus text."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.tests.server.live import live_server
from gates.churn import watch
from gates.harness import scrape
from gates.harness.client import Client
from gates.harness.history import History
from gates.harness.rig import Rig
from gates.harness.scrape import Scrape
from gates.tests.driving import Counted

TEXT = """# HELP ds4_kv_bytes Cache memory by use.
# TYPE ds4_kv_bytes gauge
ds4_kv_bytes{kind="live"} 10
ds4_kv_bytes{kind="budget"} 1.5e3
ds4_evictions_total{tier="pinned",cause="budget"} 2
ds4_evictions_total{tier="pinned",cause="floor"} 3
ds4_evictions_total{tier="warm",cause="budget"} 40 1700000000
ds4_requests_inflight 0
broken line
odd{a="b} c"} NaN
quoted{name="a \\"b\\" c"} 7
"""


@pytest.mark.parametrize(
    ("expected", "name", "labels"),
    [
        pytest.param(1500.0, "ds4_kv_bytes", {"kind": "budget"}, id="one_label"),
        pytest.param(5.0, "ds4_evictions_total", {"tier": "pinned"}, id="summed_over_the_other_label"),
        pytest.param(45.0, "ds4_evictions_total", {}, id="summed_over_all"),
        pytest.param(0.0, "ds4_requests_inflight", {}, id="zero_is_a_value"),
        pytest.param(None, "ds4_device_bytes", {}, id="no_series"),
        pytest.param(None, "ds4_kv_bytes", {"kind": "free"}, id="no_such_label"),
        pytest.param(None, "odd", {}, id="no_number"),
        pytest.param(7.0, "quoted", {}, id="quotes_in_a_label"),
    ],
)
def test_values_by_name_and_labels(expected: float | None, name: str, labels: dict[str, str]) -> None:
    assert expected == Scrape(TEXT).value(name, **labels)


def test_our_own_server_shows_every_series_that_a_gate_reads(tmp_path: Path) -> None:
    names = {value for value in vars(scrape).values() if isinstance(value, str) and value.startswith("ds4_")}
    with (
        live_server() as live,
        Client(live.base_url) as client,
        History(tmp_path / "history.jsonl") as record,
    ):
        rig = Rig(client, record, Counted(), lambda: True, data=None, context_tokens=4000)
        shown, seen = scrape.read(client), watch.sample(rig)

    assert scrape.DEVICE_BYTES in names
    assert set() == {name for name in names if shown.value(name) is None}
    assert {"anon_bytes", "swap_bytes"} == {what for what, value in seen.items() if value is None}
