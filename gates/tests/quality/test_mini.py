"""The question sets of our own: repeatable, apart from what is trained on, graded right when ideal."""

from __future__ import annotations

import random
from functools import partial

import pytest

from gates.harness.seeded import held_out, random_for
from gates.quality.grading import Grade
from gates.quality.mini import arithmetic, choice, code, item, sets
from gates.quality.mini import format as formats
from gates.quality.mini.topics import TOPICS
from gates.quality.sandbox import Program

MAKERS: dict[str, item.Draw] = {
    "one step": partial(arithmetic.draw_item, steps=1),
    "two steps": partial(arithmetic.draw_item, steps=2),
    "choice": choice.draw_item,
    "docstring": partial(code.draw_item, form="docstring"),
    "asserts": partial(code.draw_item, form="asserts"),
    "format": formats.draw_item,
}
TEXT_SETS = ("mini_arithmetic", "mini_two_steps", "mini_choice", "mini_format")
CODE_SETS = ("mini_docstring", "mini_asserts")


@pytest.mark.parametrize("name", sets.DRAWN)
def test_a_seed_gives_the_same_different_items_each_time(name: str) -> None:
    first, again, other = (sets.DRAWN[name](seed, 60) for seed in ("a", "a", "b"))

    assert first == again
    assert first != other
    assert 60 == len({found.prompt for found in first})


@pytest.mark.parametrize("name", sets.DRAWN)
def test_the_gate_asks_only_what_no_model_may_be_trained_on(name: str) -> None:
    assert all(held_out(found.prompt) for found in sets.DRAWN[name]("gate", 100))


@pytest.mark.parametrize("name", MAKERS)
def test_an_item_for_training_is_never_one_for_judging(name: str) -> None:
    draw = random_for("training")
    trained = [item.drawn(draw, MAKERS[name], judging=False) for _ in range(200)]

    assert not any(held_out(found.prompt) for found in trained)


@pytest.mark.parametrize("name", TEXT_SETS)
def test_the_ideal_replies_of_a_text_set_are_graded_right(name: str) -> None:
    drawn, asked = sets.DRAWN[name](f"{name}/right", 150), sets.load(name, "right", 150)

    for found, item_asked in zip(drawn, asked, strict=True):
        for reply in (found.reply, found.thoughtful):
            grade = item_asked.grade(reply)
            assert isinstance(grade, Grade)
            assert "pass" == grade.state, (found.prompt, reply, grade)


@pytest.mark.parametrize("name", CODE_SETS)
def test_the_ideal_replies_of_a_code_set_are_programs_that_pass_their_tests(name: str) -> None:
    for found, asked in zip(sets.DRAWN[name](f"{name}/code", 80), sets.load(name, "code", 80), strict=True):
        program = asked.grade(found.reply)
        assert isinstance(program, Program)
        names: dict[str, object] = {}
        exec(f"{program.source}\n{program.tests}", names)


@pytest.mark.parametrize("name", TEXT_SETS)
def test_the_reply_to_another_item_is_graded_wrong_more_often_than_right(name: str) -> None:
    drawn, asked = sets.DRAWN[name](f"{name}/x", 40), sets.load(name, "x", 40)
    replies = [found.reply for found in drawn]
    grades = [one.grade(reply) for one, reply in zip(asked, replies[1:] + replies[:1], strict=True)]

    assert sum(isinstance(grade, Grade) and grade.state == "pass" for grade in grades) < 20


def test_every_topic_can_be_written_about_in_every_kind() -> None:
    draw = random.Random(4)

    for kind, make in formats.KINDS.items():
        for topic in TOPICS:
            asked = make(draw, topic)
            row = {"key": 0, "prompt": "p", "instruction_id_list": [kind], "kwargs": [dict(asked.arguments)]}
            found = item.Item(kind, "p", row, asked.reply, asked.thought, asked.reply)
            grade = sets.grader("mini_format", 0, found)(asked.reply)
            assert isinstance(grade, Grade)
            assert "pass" == grade.state, (kind, topic, asked.reply)


def test_no_step_of_a_problem_leaves_the_numbers_of_three_digits() -> None:
    draw = random_for("numbers")

    for _ in range(2000):
        left, _, right = arithmetic.equation(draw).partition(" = ")
        a, sign, b = left.split()
        assert 0 < int(right) <= 999
        assert int(right) == arithmetic._APPLY[sign](int(a), int(b))  # type: ignore[index]


def test_more_items_than_a_set_has_are_refused() -> None:
    with pytest.raises(ValueError, match="different items"):
        item.judged("s", 50, lambda draw: choice.draw_item(random.Random(int(draw.random() * 20))))
