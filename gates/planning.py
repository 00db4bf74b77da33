"""What a run would do, before anything starts: gates, cells, claims with their limits, minutes.

Knows profiles, plans and the records of earlier runs; starts nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from gates.harness import pace, room
from gates.profile import Profile, Settings
from gates.registry import RUN
from gates.run import RUNS, Request, chosen
from gates.spec import SIGNS, GateSpec, MeasureSpec

LEFTOVER = "run.leftover_count"  # what only a server can leave behind that the run itself starts


def plan(
    profile: Profile, only: tuple[str, ...], *, runs: Path = RUNS, launched: bool = True
) -> dict[str, Any]:
    """The plan as plain values; minutes are budgets, `last_minutes` what the gate took here the last time.

    `launched`: whether the run starts its server, and so has to end it.
    """
    gates = chosen(Request(profile=profile, only=only))
    run = profile.table("run")
    last = pace.last_minutes(runs, profile.name)
    return {
        "schema": 1,
        "profile": profile.name,
        "model": run.text("model") if launched else "served elsewhere",
        "seed": profile.seed,
        "budget_minutes": run.number("budget_minutes"),
        "context_tokens": profile.table("server").count("context_tokens"),
        "gates": [_gate(profile, spec, last.get(spec.name)) for spec in gates],
        "own_claims": [_claim(run, m) for m in RUN.measures if launched or m.id != LEFTOVER],
    }


def show(
    profile: Profile,
    only: tuple[str, ...],
    console: Console,
    *,
    claims: bool,
    as_json: bool,
    launched: bool = True,
) -> None:
    """Print the plan as text or JSON."""
    content = plan(profile, only, launched=launched)
    if as_json:
        console.print_json(data=content)
        return
    for line in _lines(content, claims=claims):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _gate(profile: Profile, spec: GateSpec, last: float | None) -> dict[str, Any]:
    settings = profile.table(spec.name)
    cells = room.load(spec).plan(settings, seed=profile.seed).cells
    return {
        "name": spec.name,
        "title": spec.title,
        "cells": cells,
        "budget_minutes": settings.number("budget_minutes"),
        "last_minutes": None if last is None else round(last, 2),
        "claims": [_claim(settings, measure) for measure in spec.measures],
    }


def _claim(settings: Settings, measure: MeasureSpec) -> dict[str, Any]:
    return {
        "id": measure.id,
        "title": measure.title,
        "better": measure.better,
        "limit": settings.number(measure.limit_key),
        "severity": measure.severity,
        "notice": measure.notice,
    }


def _lines(content: Mapping[str, Any], *, claims: bool) -> list[str]:
    budget = sum(gate["budget_minutes"] for gate in content["gates"])
    lines = [
        f"plan of profile {content['profile']}: {len(content['gates'])} gate(s), "
        f"budget {budget:g} min (whole profile {content['budget_minutes']:g} min), "
        f"model {content['model']}, context {content['context_tokens']} tokens, seed {content['seed']}"
    ]
    for gate in content["gates"]:
        last = "" if gate["last_minutes"] is None else f", took {gate['last_minutes']:g} min the last time"
        counts = f"{_counted(gate['claims'])}, {gate['cells']} cells"
        lines.append(f"  {gate['title']}: {counts}, budget {gate['budget_minutes']:g} min{last}")
        if claims:
            lines += [_claim_line(claim) for claim in gate["claims"]]
    lines.append(f"  {RUN.title}: {_counted(content['own_claims'])}")
    if claims:
        lines += [_claim_line(claim) for claim in content["own_claims"]]
    return lines


def _counted(claims: Sequence[Mapping[str, Any]]) -> str:
    """How many claims that move the verdict, and how many notices."""
    notices = sum(claim["notice"] for claim in claims)
    return f"{len(claims) - notices} claims, {notices} notices"


def _claim_line(claim: Mapping[str, Any]) -> str:
    notice = " (a notice)" if claim["notice"] else ""
    return f"    {SIGNS[claim['better']]} {claim['limit']:<6g} {claim['title']}{notice}"
