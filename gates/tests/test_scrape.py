"""What a server counts of itself, read from its Prometheus text."""

from __future__ import annotations

import pytest

from gates.harness.scrape import Scrape

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
