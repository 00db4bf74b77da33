"""Our checkers of instructions against those of lm-eval, on generated replies, kind by kind.

Runs in an environment of its own (`nox -s crosscheck`); without a network: the sentence splitter's data comes
from the package that our own grader uses.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gates.quality import ifeval, language
from gates.quality.ifeval import Instruction, Problem
from gates.tests.crosscheck import replies

pytestmark = pytest.mark.crosscheck

REPLIES = 2000
LANGUAGE_KINDS = (
    "language:response_language",
    "change_case:english_capital",
    "change_case:english_lowercase",
)


@dataclass(frozen=True, slots=True)
class Compared:
    """One instruction of one reply, strict and loose, by both graders."""

    problem: str
    kind: str
    ours: tuple[bool, bool]
    theirs: tuple[bool, bool]
    reply: str
    explained: str

    @property
    def agree(self) -> bool:
        """Whether both results are the same."""
        return self.ours == self.theirs


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """lm-eval's grader, with the splitter's trained numbers where nltk looks for them."""
    import nltk
    import punkt
    from nltk.tokenize.punkt import save_punkt_params

    folder = tmp_path_factory.mktemp("nltk")
    nltk.data.path.insert(0, str(folder))
    english = folder / "tokenizers" / "punkt_tab" / "english"
    english.mkdir(parents=True, mode=0o700)
    save_punkt_params(punkt.load_model("english"), str(english))
    from lm_eval.tasks.ifeval import utils

    return utils


@pytest.fixture(scope="module")
def compared(reference: Any) -> list[Compared]:
    """Every instruction of every reply, graded by both."""
    return [
        one
        for problem, reply in replies.generated(REPLIES, seed=20261130)
        for one in _compare(reference, problem, reply)
    ]


def _compare(reference: Any, problem: Problem, reply: str) -> list[Compared]:
    ours = ifeval.follow(problem, reply)
    given = reference.InputExample(
        key=problem.key,
        instruction_id_list=[instruction.kind for instruction in problem.instructions],
        prompt=problem.prompt,
        kwargs=[dict(instruction.arguments) for instruction in problem.instructions],
    )
    strict = reference.test_instruction_following_strict(given, reply).follow_instruction_list
    loose = reference.test_instruction_following_loose(given, reply).follow_instruction_list
    return [
        Compared(
            problem.id,
            one.kind,
            (ours.strict[n], ours.loose[n]),
            (strict[n], loose[n]),
            reply,
            _reason(one, reply),
        )
        for n, one in enumerate(problem.instructions)
    ]


def _reason(instruction: Instruction, reply: str) -> str:
    """Why our grader may differ from the reference, by its own notes; empty where it may not."""
    texts = ifeval.variants(reply)
    if instruction.kind in LANGUAGE_KINDS and any(
        language.language_of(text) is None for text in texts if text
    ):
        return "a text of no language follows no instruction about language; the reference lets it pass"
    keywords = [instruction.arguments.get("keyword", ""), *instruction.arguments.get("keywords", ())]
    if any(re.escape(word) != word for word in keywords):
        return "a keyword is a text; the reference reads it as a pattern"
    return ""


def _table(compared: Sequence[Compared]) -> str:
    """Coverage and agreement by kind, as the session prints them."""
    n = Counter(one.kind for one in compared)
    followed = Counter(one.kind for one in compared if one.ours[0])
    agree = Counter(one.kind for one in compared if one.agree)
    rows = [f"{kind:45} {n[kind]:4} {followed[kind]:9} {agree[kind] / n[kind]:9.1%}" for kind in sorted(n)]
    return "\n".join([f"{'kind':45} {'n':>4} {'followed':>9} {'agreement':>9}", *rows])


def test_every_kind_is_covered_with_replies_that_follow_and_that_do_not(compared: Sequence[Compared]) -> None:
    n = Counter(one.kind for one in compared)
    followed = Counter(one.kind for one in compared if one.ours[0])

    assert 25 == len(n)
    assert min(n.values()) >= 20
    assert {kind for kind in n if followed[kind] in (0, n[kind])} == set()


def test_both_graders_agree_on_nearly_every_reply(compared: Sequence[Compared]) -> None:
    by_reply: dict[str, bool] = {}
    for one in compared:
        by_reply[one.problem] = by_reply.get(one.problem, True) and one.agree
    share = sum(by_reply.values()) / len(by_reply)
    print(f"\n{_table(compared)}\nreplies on which all results agree: {share:.1%} of {len(by_reply)}")

    assert REPLIES == len(by_reply)
    assert share >= 0.99


def test_every_disagreement_is_explained(compared: Sequence[Compared]) -> None:
    unexplained = [one for one in compared if not one.agree and not one.explained]
    for one in compared:
        if not one.agree:
            print(f"\n{one.kind}: ours {one.ours}, theirs {one.theirs}: {one.explained}\n{one.reply[:400]}")

    assert [] == unexplained


def test_the_splitter_is_the_same_under_both(reference: Any) -> None:
    from lm_eval.tasks.ifeval import instructions_util

    texts = [" ".join(replies.SENTENCES[place:]) for place in range(len(replies.SENTENCES))]
    assert [language.count_sentences(text) for text in texts] == [
        instructions_util.count_sentences(text) for text in texts
    ]
    assert Path(reference.__file__).is_file()
