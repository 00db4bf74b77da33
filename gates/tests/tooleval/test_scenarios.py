"""Tool scenarios: repeatable, apart from what may be trained on, consistent from declaration to answer."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from gates.harness.seeded import held_out, random_for
from gates.tooleval.scenarios import (
    JUDGED,
    SKILLS,
    Call,
    Scenario,
    Skill,
    Step,
    draw_tools,
    right,
    scenario,
    scenarios,
)
from gates.tooleval.tools import EVERY


@pytest.fixture(scope="module", params=SKILLS)
def made(request: pytest.FixtureRequest) -> list[Scenario]:
    skill: Skill = request.param
    return scenarios(skill, "tests", 60)


def test_a_seed_gives_the_same_scenarios_each_time(made: list[Scenario]) -> None:
    assert made == scenarios(made[0].skill, "tests", 60)
    assert made != scenarios(made[0].skill, "others", 60)


def test_requests_for_judging_and_for_training_never_meet(made: list[Scenario]) -> None:
    draw = random_for("training")
    trained = [scenario(draw, made[0].skill, draw_tools(draw), judging=False) for _ in range(60)]

    assert all(held_out(one.request) for one in made)
    assert not any(held_out(one.request) for one in trained)


def test_every_call_has_exactly_the_declared_arguments_in_their_types(made: list[Scenario]) -> None:
    types = {"string": str, "integer": int, "number": float, "object": dict, "array": list}
    for one in made:
        declared = {tool["name"]: tool["parameters"] for tool in one.declarations()}
        for call in (call for step in one.steps for call in step.calls):
            properties = declared[call.name]["properties"]
            assert list(properties) == list(call.arguments)
            for key, value in call.arguments.items():
                assert isinstance(value, types[properties[key]["type"]])


def test_the_skill_is_shown_by_steps_that_are_there(made: list[Scenario]) -> None:
    for one in made:
        assert 8 == len(one.declared)
        judged = one.steps[JUDGED[one.skill]]
        assert judged
        assert all(len(step.calls) == len(step.results) for step in one.steps)
        assert all(json.loads(result) for step in one.steps for result in step.results)


def test_the_right_steps_are_right_and_those_of_another_scenario_are_not(made: list[Scenario]) -> None:
    for one, other in pairwise(made):
        for step in one.steps:
            assert right(step, step.calls, step.answer)
            assert not right(step, (), "")
            if step.calls and step.calls != other.steps[0].calls:
                assert not right(step, other.steps[0].calls, "")


def test_values_of_an_argument_stand_in_the_request_or_in_an_earlier_result(made: list[Scenario]) -> None:
    for one in made:
        seen = one.request
        for step in one.steps:
            for call in step.calls:
                for value in _leaves(dict(call.arguments)):
                    assert str(value) in seen, (one.request, value)
            seen += "".join(step.results)


def _leaves(value: object) -> list[object]:
    if isinstance(value, dict):
        return [leaf for part in value.values() for leaf in _leaves(part)]
    if isinstance(value, list):
        return [leaf for part in value for leaf in _leaves(part)]
    return [value]


def test_a_call_where_none_is_wanted_is_wrong() -> None:
    step = Step("", answer="I have no tool for that.")

    assert right(step, (), "There is no such tool.")
    assert not right(step, (Call("get_time", {"city": "Oslo"}),), "")


def test_every_tool_has_a_name_and_words_of_its_own() -> None:
    assert len(EVERY) == len({kind.name for kind in EVERY}) == len({kind.description for kind in EVERY})
    templates = [template for kind in EVERY for template in kind.requests]
    assert len(templates) == len(set(templates))
