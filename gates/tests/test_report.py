"""Tests of the HTML report: nothing from outside, the verdict on top, Node asked for clearly."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from gates import report
from gates.errors import InfrastructureError, UsageError
from gates.harness.record import RunFolder
from gates.profile import Profile
from gates.report import Node
from gates.tests.judged import make_run

TAGGED = """<html><head></head><body><div id="app"></div>
<script async src="https://www.googletagmanager.com/gtag/js?id=G-1"></script>
<script>
  window.dataLayer = window.dataLayer || [];
  function gtag(){dataLayer.push(arguments);} gtag('js', new Date());
</script>
<script async>window.data = {"text": "see https://example.invalid/ and <b>"};</script></body></html>"""


def test_the_tag_goes_and_the_data_stays() -> None:
    clean = report.stripped(TAGGED)

    assert "googletagmanager" not in clean
    assert "dataLayer" not in clean
    assert 'window.data = {"text": "see https://example.invalid/ and <b>"}' in clean
    assert [] == report.outside_sources(clean)


@pytest.mark.parametrize(
    "element",
    [
        '<script async src="https://a.invalid/x.js">',
        "<img alt='x' src='http://a.invalid/x.png'>",
        '<link rel="stylesheet" href="//a.invalid/x.css">',
        "<iframe src=https://a.invalid></iframe>",
        '<object\n data = "https://a.invalid/x">',
    ],
)
def test_every_element_that_fetches_from_outside_is_seen(element: str) -> None:
    assert 1 == len(report.outside_sources(f"<body>{element}</body>"))


@pytest.mark.parametrize(
    "element", ['<script src="data:text/javascript,1">', '<a href="https://a.invalid">', "<img src=x.png>"]
)
def test_what_fetches_nothing_from_outside_is_left_alone(element: str) -> None:
    assert [] == report.outside_sources(element)


def test_the_first_screen_is_the_first_thing_in_the_body() -> None:
    assert "<body><section>x</section><script>" in report.with_front(TAGGED, "<section>x</section>")


def test_a_page_of_another_form_is_not_passed_on() -> None:
    with pytest.raises(InfrastructureError, match="no <body>"):
        report.with_front("<html></html>", "x")


def test_the_view_names_every_measure_with_unit_and_direction(tmp_path: Path, echo_profile: Profile) -> None:
    folder = make_run(tmp_path, echo_profile)
    view = report.view(folder.path.name, json.loads(folder.verdict_json.read_bytes()))

    assert (3, f"Gates {folder.path.name}: PASS") == (view["claims"], view["title"])
    assert {"title": "The last word comes back", "unit": "", "better": "higher", "group": "echo"} == view[
        "metrics"
    ]["echo.right_ratio"]


def test_an_old_node_is_refused_and_the_markdown_named(
    tmp_path: Path, echo_profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_run(tmp_path, echo_profile)
    monkeypatch.setattr(report, "_node_of_wheel", lambda: None)
    monkeypatch.setattr(report, "_node_of_system", lambda: Node(Path("/usr/bin/node"), ("npm",), "v20.20.2"))

    with pytest.raises(InfrastructureError) as error:
        report.make(folder)
    assert "needs Node 22 or newer, found: v20.20.2 at /usr/bin/node" in str(error.value)
    assert str(folder.verdict_md) in str(error.value)


def test_no_node_at_all_is_said_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "_node_of_wheel", lambda: None)
    monkeypatch.setattr(report, "_node_of_system", lambda: None)

    with pytest.raises(InfrastructureError, match="found: none"):
        report.find_node(RunFolder(tmp_path))


def test_a_run_without_a_verdict_is_judged_first(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="gates judge"):
        report.make(RunFolder(tmp_path))


def test_a_report_made_again_is_not_compared_with_itself(tmp_path: Path) -> None:
    stored = tmp_path / "history.jsonl"
    stored.write_text('{"name": "one"}\n{"name": "two"}\n{"name": "three"}\n')

    assert '{"name": "one"}\n' == report._history_before(stored, "two")
    assert stored.read_text() == report._history_before(stored, "new")


def test_the_lock_file_pins_every_package_by_digest_and_names_no_host() -> None:
    lock = json.loads((report.TOOL / "package-lock.json").read_bytes())
    packages = {name: entry for name, entry in lock["packages"].items() if name}

    assert "3.18.0" == packages["node_modules/allure"]["version"]
    assert all(entry["integrity"].startswith("sha512-") for entry in packages.values())
    assert not any("resolved" in entry for entry in packages.values())


def test_a_tool_that_disagrees_with_the_verdict_is_a_fault_of_the_harness(
    tmp_path: Path, echo_profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_run(tmp_path, echo_profile)
    monkeypatch.setattr(report, "find_node", lambda _: None)
    monkeypatch.setattr(report, "install", lambda _: None)
    monkeypatch.setattr(report, "_replay", lambda *_: False)
    monkeypatch.setattr(report, "_publish", lambda *_: tmp_path / "index.html")

    with pytest.raises(InfrastructureError, match=r"disagrees with the verdict \(pass\)"):
        report.make(folder)


def installed() -> bool:
    """Whether Node and the report tool are here already: tests install nothing from the network."""
    try:
        report.find_node(RunFolder(Path()))
    except InfrastructureError:
        return False
    return (report.TOOL / "node_modules" / ".gates-lock").is_file()


@pytest.mark.skipif(
    not installed(), reason="the report tool is installed by `nox -s report`, not by the tests"
)
@pytest.mark.parametrize(("right", "wrong"), [(4, 0), (2, 2)])
def test_the_whole_report_is_one_page_that_fetches_nothing_and_agrees_with_the_verdict(
    tmp_path: Path, echo_profile: Profile, right: int, wrong: int
) -> None:
    make_run(tmp_path, echo_profile, second=1)
    folder = make_run(tmp_path, echo_profile, second=2, right=right, wrong=wrong)
    page = report.make(folder).read_text(encoding="utf-8")
    report.make(folder)

    assert '<section id="front">' in page
    assert [] == report.outside_sources(page)
    assert "googletagmanager" not in page
    assert str(tmp_path) not in page
    assert 1 == len((tmp_path / "history-echo.jsonl").read_text().splitlines())


def embedded(name: str, content: object) -> str:
    return f'd("widgets/{name}.json","{base64.b64encode(json.dumps(content).encode()).decode()}")'


def test_the_tool_has_no_second_word_for_the_verdict() -> None:
    run = {"exitCode": {"actual": 1, "original": 0}, "errors": [{"message": "why"}], "attachments": []}
    parts = [embedded("globals", run), embedded("quality-gate", {"default": [1]}), embedded("nav", [])]
    page = "<script>" + ",".join(parts)
    expected = [
        ("globals", {"errors": [{"message": "why"}], "attachments": []}),
        ("quality-gate", {}),
        ("nav", []),
    ]

    assert "<script>" + ",".join(embedded(*one) for one in expected) == report.with_one_verdict(page)
