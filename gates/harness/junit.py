"""JUnit XML from a verdict record: one test case a claim; broken is `failure`, unknown is `error`.

Knows only the record's plain values (schema 1) and the XML form that CI servers read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree as Xml

from gates.harness.verdict import shown
from gates.spec import SIGNS

# XML 1.0 allows no other control characters, not even escaped; model output may hold any.
FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def document(record: Mapping[str, Any]) -> str:
    """The whole XML document."""
    cases = [measure for gate in record["gates"] for measure in gate["measures"]]
    root = Xml.Element("testsuites", _totals(cases) | {"name": f"gates {record['profile']}"})
    for gate in record["gates"]:
        seconds = f"{gate['seconds']:.3f}"
        suite = Xml.SubElement(
            root, "testsuite", _totals(gate["measures"]) | {"name": gate["name"], "time": seconds}
        )
        for measure in gate["measures"]:
            _case(suite, gate, measure)
    Xml.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + Xml.tostring(root, encoding="unicode") + "\n"


def _case(suite: Xml.Element, gate: Mapping[str, Any], measure: Mapping[str, Any]) -> None:
    time = gate["seconds"] / max(1, len(gate["measures"]))
    head = {"classname": f"gates.{gate['name']}", "name": measure["id"], "time": f"{time:.3f}"}
    case = Xml.SubElement(suite, "testcase", head)
    state = outcome(measure)
    if state != "pass":
        text = explained(measure)
        Xml.SubElement(case, {"fail": "failure", "unknown": "error"}[state], {"message": text}).text = text
    findings = [finding for finding in gate["findings"] if finding["measure"] == measure["id"]]
    if findings:
        lines = [f"{f['where']}: expected {f['expected']}, found {f['found']}" for f in findings]
        Xml.SubElement(case, "system-out").text = clean("\n".join(lines))


def outcome(measure: Mapping[str, Any]) -> str:
    """The verdict that counts: a notice never fails a case."""
    return "pass" if measure["notice"] else str(measure["verdict"])


def explained(measure: Mapping[str, Any]) -> str:
    """Why a claim does not hold, in one line."""
    if measure["value"] is None:
        return clean(f"UNKNOWN: {measure['title']}: {measure['note']}")
    sign = SIGNS[measure["better"]]
    seen = shown(measure["value"], measure.get("estimate"), measure.get("judged", ""))
    wanted = f"expected {sign} {measure['limit']:g}, found {seen}, n = {measure['n']}"
    text = f"{measure['title']}: {wanted}"
    return clean(f"{text}. {measure['note']}" if measure["note"] else text)


def clean(text: str) -> str:
    """Text without the characters that XML cannot hold; each becomes U+FFFD."""
    return FORBIDDEN.sub("\ufffd", text)


def _totals(measures: list[Mapping[str, Any]]) -> dict[str, str]:
    states = [outcome(measure) for measure in measures]
    return {
        "tests": str(len(states)),
        "failures": str(states.count("fail")),
        "errors": str(states.count("unknown")),
        "skipped": "0",
    }
