"""Tests of the files that follow from a verdict: Markdown, first screen, JUnit XML, Allure results."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import pytest
from rich.console import Console

from gates import outcome, registry
from gates.harness import junit
from gates.harness.allure import as_csv
from gates.harness.record import RunFolder
from gates.harness.verdict import GateVerdict, Judgement, Picture, RunVerdict, Table, shown
from gates.profile import Profile, checked
from gates.spec import MeasureSpec
from gates.tests.conftest import ECHO, echo_tables
from gates.tests.judged import make_run
from reports import page, render

NASTY = 'a | b <script>alert("x")</script> \x00\x1b[31m `code` \ud800 &amp;\nnext line'


@pytest.fixture
def passed(tmp_path: Path, echo_profile: Profile) -> RunFolder:
    """A run whose claims all hold."""
    return make_run(tmp_path, echo_profile)


@pytest.fixture
def failed(tmp_path: Path, echo_profile: Profile) -> RunFolder:
    """A run with two wrong answers of four, full of marks that mean something elsewhere."""
    return make_run(tmp_path, echo_profile, right=2, wrong=2, text=NASTY)


def content(folder: RunFolder) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(folder.verdict_json.read_bytes())
    return found


def results(folder: RunFolder) -> dict[str, dict[str, Any]]:
    found = [json.loads(path.read_bytes()) for path in folder.allure.glob("*-result.json")]
    return {result["fullName"]: result for result in found}


def test_the_markdown_opens_with_the_verdict(passed: RunFolder) -> None:
    lines = passed.verdict_md.read_text().splitlines()

    assert "# PASS: profile echo, 2 of 2 claims hold" == lines[0]
    assert "Every claim of this run holds. A release needs a pass of profile release." == lines[2]


@pytest.mark.parametrize("rendered", [render.render, page.fragment])
def test_whose_verdict_it_is_stands_before_the_claims(
    rendered: Callable[[Any], str], failed: RunFolder
) -> None:
    record = content(failed)
    elsewhere = {**record, "run": {**record["run"], "model": None, "served_models": ["other-7b"]}}
    head, _, _ = rendered(record).partition("Claims")

    assert (
        "commit ccccccc · model.gguf mmmmmmmm · a processor, 2 cores · 2026-11-30T09:00:00+00:00 · 5 s"
        in head
    )
    assert "echo fail, " in head
    assert " · served elsewhere: other-7b · " in rendered(elsewhere)


@pytest.mark.parametrize(
    ("changed", "run", "said"),
    [
        ({"profile": "ci"}, {}, "A change may be merged; a release needs a pass of profile release."),
        ({"profile": "ci"}, {"chosen": []}, "not the whole of profile ci, so it allows nothing alone."),
        ({"profile": "ci"}, {"part": [1, 2]}, "not the whole of profile ci, so it allows nothing alone."),
        ({"profile": "ci"}, {"own_server": False}, "holds. A release needs a pass of profile release."),
        ({"profile": "release"}, {}, "Its tag may be made"),
        ({"verdict": "fail"}, {}, "Not to be merged, not to be released: at least one claim is broken."),
        ({"verdict": "unknown"}, {}, "Not to be merged, not to be released on this run: nobody can tell."),
    ],
)
def test_whether_to_ship_stands_under_the_verdict_in_every_view(
    passed: RunFolder,
    capsys: pytest.CaptureFixture[str],
    changed: dict[str, Any],
    run: dict[str, Any],
    said: str,
) -> None:
    record = content(passed)
    record |= {**changed, "run": record["run"] | run}
    outcome.last_line(record, Console(width=40))

    assert said in render.render(record).splitlines()[2]
    assert said in page.fragment(record).partition("<small>")[0]
    assert said in capsys.readouterr().out.splitlines()[-2]


def test_a_notice_beyond_its_limit_says_in_every_view_that_it_does_not_decide(
    passed: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    record = content(passed)
    record["gates"][0]["measures"][0] |= {"notice": True, "verdict": "unknown", "value": None}
    outcome.show(passed, record, Console(width=200))

    markdown = render.render(record)

    assert re.search("^NOTICE +echo.right_ratio, does not decide ", capsys.readouterr().out, re.MULTILINE)
    assert "| NOTICE | The last word comes back (`echo.right_ratio`), does not decide |" in markdown
    assert "<code>echo.right_ratio</code>, does not decide" in page.fragment(record)


def test_the_markdown_has_value_interval_and_limit_of_each_claim(failed: RunFolder) -> None:
    text = failed.verdict_md.read_text()

    assert (
        "| FAIL | The last word comes back (`echo.right_ratio`) | 50 % | 15 % to 85 % | ≥ 100 % | 4 |" in text
    )
    assert text.index("| FAIL |") < text.index("| pass |")


def test_the_markdown_says_what_was_not_tested_and_how_to_ask_again(failed: RunFolder) -> None:
    text = failed.verdict_md.read_text()

    assert "## What was not tested" in text
    assert "python -m gates run --profile echo.toml --seed 7 --only echo --model PATH" in text


def test_the_answer_of_a_model_cannot_leave_its_place_in_the_markdown(failed: RunFolder) -> None:
    for line in failed.verdict_md.read_text().splitlines():
        assert "<script>" not in line
        assert not line.startswith("next line")


@pytest.mark.parametrize("rendered", [render.render, page.fragment])
def test_no_renderer_reads_another_schema(rendered: Callable[[Any], str]) -> None:
    with pytest.raises(ValueError, match="schema is 2"):
        rendered({"schema": 2})


def test_the_first_screen_gives_verdict_claims_and_what_was_not_tested(failed: RunFolder) -> None:
    html = page.fragment(content(failed))

    assert '<h1 class="fail">FAIL: profile echo, 1 of 2 claims hold</h1>' in html
    assert "15 % to 85 %" in html
    assert html.index("What was not tested") < html.index("Claims")
    assert html.index(">FAIL<") < html.index(">PASS<")


def test_the_answer_of_a_model_cannot_become_markup(failed: RunFolder) -> None:
    html = page.fragment(content(failed))

    assert "<script>" not in html
    assert "&lt;script&gt;" in html


def test_a_baseline_gives_a_column_and_the_change(passed: RunFolder) -> None:
    with_baseline = content(passed)
    with_baseline["gates"][0]["measures"][0]["baseline"] = 0.9

    assert "+10 %" in page.fragment(with_baseline)
    assert "| 90 % |" in render.render(with_baseline)


@pytest.mark.parametrize("rendered", [render.render, page.fragment])
def test_an_estimate_stands_before_the_end_of_its_interval_that_is_judged(
    rendered: Callable[[Any], str], failed: RunFolder
) -> None:
    record = content(failed)
    record["gates"][0]["measures"][0] |= {
        "estimate": 0.6,
        "value": 0.85,
        "interval": [0.15, 0.85],
        "judged": "upper end",
    }
    text = rendered(record)

    assert text.index("60 %") < text.index("15 % to 85 %; judged: upper end, 85 %")
    assert 1 == text.count("60 %")


def test_every_other_view_names_estimate_and_judged_end(
    failed: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    record = content(failed)
    measure = record["gates"][0]["measures"][0]
    measure |= {"estimate": 0.6, "value": 0.85, "judged": "upper end"}
    outcome.show(failed, record, Console(width=200))

    assert "0.6 (upper end 0.85)" in capsys.readouterr().out
    assert "found 0.6 (upper end 0.85), n = 4" in junit.explained(measure)
    assert "0.6" == shown(None, 0.6, "upper end")
    assert "-" == shown(None, None, "")


def test_drawings_and_titled_tables_stand_on_the_first_screen_and_long_ones_are_cut(
    passed: RunFolder,
) -> None:
    rows = tuple((number, None, 0.123456, "two\n<b>lines</b>") for number in range(60))
    tables = (Table("changed", ("n", "none", "share", "text"), rows, "Changed items"), Table("raw", (), ()))
    judgement = Judgement((), tables, pictures=(Picture("forest", "Drops", "<svg></svg>"),))
    run = RunVerdict("echo", {}, (GateVerdict("echo", 1.0, None, judgement),))
    html = page.fragment(content(passed), json.loads(json.dumps(outcome.details(run))))

    assert '<h2>Drops</h2><figure class="wide"><svg></svg></figure>' in html
    assert "<b>Changed items</b> (60)" in html
    assert '<td>49</td><td>-</td><td class="number">0.1235</td>' in html
    assert "<td>50</td>" not in html
    assert "and 10 more, in changed.csv below" in html
    assert "<pre>two\n&lt;b&gt;lines&lt;/b&gt;</pre>" in html


def test_a_run_without_details_has_a_first_screen_all_the_same(passed: RunFolder) -> None:
    passed.details_json.write_text("[")

    assert {} == passed.read_details()
    assert "PASS" in page.fragment(content(passed), passed.read_details())


def test_junit_counts_broken_claims_as_failures(failed: RunFolder) -> None:
    root = Xml.fromstring(failed.junit_xml.read_text())

    assert ("3", "1", "0") == tuple(root.get(name) for name in ("tests", "failures", "errors"))
    (failure,) = root.iter("failure")
    assert "expected >= 1, found 0.5, n = 4" in (failure.text or "")


def test_junit_counts_unknown_claims_as_errors(tmp_path: Path, echo_profile: Profile) -> None:
    folder = make_run(tmp_path, echo_profile, right=0)
    root = Xml.fromstring(folder.junit_xml.read_text())

    assert ("0", "1") == (root.get("failures"), root.get("errors"))


def test_characters_that_xml_cannot_hold_are_replaced() -> None:
    assert "a\ufffdb\ufffd\tc🙂" == junit.clean("a\x00b\ud800\tc🙂")


def test_allure_has_one_result_a_claim_with_severity_and_labels(passed: RunFolder) -> None:
    result = results(passed)["gates.echo.right_ratio"]
    labels = {label["name"]: label["value"] for label in result["labels"]}

    assert {"gates.echo.right_ratio", "gates.run.leftover_count", "gates.run.budget_ratio"} == set(
        results(passed)
    )
    assert ("passed", "blocker", "cold", "echo") == (
        result["status"],
        labels["severity"],
        labels["arm"],
        labels["parentSuite"],
    )
    assert result["start"] < result["stop"]


def test_allure_tells_broken_claims_from_unknown_ones(
    failed: RunFolder, tmp_path: Path, echo_profile: Profile
) -> None:
    unknown = make_run(tmp_path, echo_profile, second=9, right=0)

    assert "failed" == results(failed)["gates.echo.right_ratio"]["status"]
    broken = results(unknown)["gates.echo.right_ratio"]
    assert "broken" == broken["status"]
    assert broken["statusDetails"]["message"].startswith("UNKNOWN")


def test_allure_attaches_rows_and_findings(failed: RunFolder) -> None:
    attachments = {item["name"]: item for item in results(failed)["gates.echo.right_ratio"]["attachments"]}
    rows = (failed.allure / attachments["words"]["source"]).read_text()
    findings = (failed.allure / attachments["what went wrong"]["source"]).read_text()

    assert "word,outcome\nword0,ok\n" == rows[:22]
    assert "word2\n  expected: word2\n  found:    a | b" in findings


def test_no_attachment_is_named_by_two_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unmeasured = MeasureSpec("echo.lost_count", "Nothing is lost", "lower")
    monkeypatch.setattr(registry, "GATES", (replace(ECHO, measures=(*ECHO.measures, unmeasured)),))
    profile = checked("echo", echo_tables(max_lost_count=0), "0" * 64)
    folder = make_run(tmp_path, profile, right=2, wrong=2)
    found = [item["source"] for result in results(folder).values() for item in result["attachments"]]

    assert 3 <= len(found) == len(set(found))
    assert all((folder.allure / source).is_file() for source in found)


def test_allure_has_environment_categories_executor_and_numbers(passed: RunFolder) -> None:
    numbers = json.loads((passed.allure / "gates-perf.json").read_bytes())
    budget_ratio = round(10 / 60, 4)  # ten events, one a second

    assert {"echo.right_ratio": 1.0, "run.leftover_count": 0, "run.budget_ratio": budget_ratio} == {
        row["key"]: row["value"] for row in numbers
    }
    assert "model=model.gguf (mmmmmmmmmmmm)\n" in (passed.allure / "environment.properties").read_text()
    assert "Broken claims" in (passed.allure / "categories.json").read_text()
    assert passed.path.name in (passed.allure / "executor.json").read_text()


def test_a_claim_keeps_its_history_id_over_runs(passed: RunFolder, failed: RunFolder) -> None:
    ids = [results(folder)["gates.echo.right_ratio"]["historyId"] for folder in (passed, failed)]

    assert ids[0] == ids[1]


def test_a_table_with_commas_and_breaks_is_sound_csv() -> None:
    assert 'a,b\n"x,y","line\nbreak"\n' == as_csv(Table("t", ("a", "b"), (("x,y", "line\nbreak"),)))
