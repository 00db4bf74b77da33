"""The plan of the churn gate: seeded, complete, and every code its own."""

from __future__ import annotations

import pytest

from engine.gguf.file import GGUFFile
from engine.tokenizer import Tokenizer
from gates import profile
from gates.churn.plan import LEAVES, MALFORMED, ChurnPlan, plan
from gates.errors import UsageError
from gates.harness.turns import PAGE_TOKENS
from gates.needle import text
from gates.needle.deep import DeepTalk, make_text
from gates.needle.hay import open_hay
from gates.needle.sizing import Ruler, pieces
from gates.target import EMBEDDED
from gates.tests.churn.driving import settings


def planned(name: str, *, seed: int = 7) -> ChurnPlan:
    return plan(profile.load(name).table("churn"), seed=seed)


def test_the_same_seed_gives_the_same_plan_and_another_one_another() -> None:
    assert planned("ci") == planned("ci")
    assert planned("ci").deep != planned("ci", seed=8).deep
    assert planned("ci").session(3, 4) == planned("ci").session(3, 4)
    assert planned("ci").session(3, 4).codes != planned("ci").session(4, 3).codes


@pytest.mark.parametrize("name", ["ci", "nightly", "candidate", "release"])
def test_the_rounds_of_a_profile_hold_every_disturbance(name: str) -> None:
    rounds = planned(name).rounds

    assert set(LEAVES) == {kind for one in rounds for kind in one.leaves}
    assert set(MALFORMED) == {kind for one in rounds for kind in one.malformed}
    assert any(one.storm for one in rounds)


@pytest.mark.parametrize("name", ["ci", "nightly", "candidate", "release"])
def test_the_deep_conversation_fits_the_context_of_its_profile(name: str) -> None:
    assert planned(name).context_tokens <= profile.load(name).table("server").count("context_tokens")


def test_release_churns_for_an_hour_with_forty_one_rounds_over_240k_tokens() -> None:
    release = planned("release")

    assert (60, 41, 240_000, 12) == (
        release.minutes,
        len(release.rounds),
        release.deep.tokens,
        release.clients,
    )


def test_every_round_has_a_code_of_its_own_in_the_text() -> None:
    deep = planned("ci").deep
    talk = DeepTalk(deep)
    talk.open(open_hay("prose", None), Ruler(10.0, 1.25))
    message = talk.messages[0]["content"]

    assert (
        len(deep.planted) == len({one.code for one in deep.planted}) == len({one.key for one in deep.planted})
    )
    assert all(1 == message.count(text.statement(one.key, one.code)) for one in deep.planted)
    assert abs(1.25 * pieces(message) + 10 - deep.tokens) < 20


def test_every_second_session_begins_like_others_and_no_twin_does() -> None:
    sessions = [planned("ci").session(client, number) for client in range(3) for number in range(8)]
    heads = [session.message[:1000] for session in sessions]
    alike = [session for session in sessions if heads.count(session.message[:1000]) > 1]

    assert len(sessions) == 2 * len(alike)
    assert not [session for session in alike if session.twin_salt]
    assert len(sessions) == len({session.message for session in sessions})


def test_a_twin_asks_the_same_as_another_tenant() -> None:
    sessions = [planned("ci").session(client, number) for client in range(12) for number in range(8)]
    twins = [session for session in sessions if session.twin_salt]

    assert len(sessions) == 8 * len(twins)
    assert all(session.twin_salt != session.salt for session in twins)
    assert not [
        s for s in (plan(settings({"tenants": 1}), seed=7).session(0, n) for n in range(8)) if s.twin_salt
    ]


@pytest.mark.parametrize("seed", [7, 8])
def test_a_twin_has_three_pages_that_could_leak(seed: int) -> None:
    tokenizer = Tokenizer.from_gguf(GGUFFile.open(EMBEDDED))
    churn = planned("ci", seed=seed)
    twins = [churn.session(client, number) for client in range(12) for number in (3, 11, 19)]

    assert 3 * PAGE_TOKENS <= min(len(tokenizer.encode(twin.message)) for twin in twins)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param({"hay": "straw"}, "allowed are prose, novel", id="hay"),
        pytest.param({"rounds": 3}, "give at least 4", id="few_rounds"),
        pytest.param({"rounds": 500}, "as many as there are keys", id="many_rounds"),
    ],
)
def test_what_cannot_be_is_said(change: dict[str, int | str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        plan(settings(change), seed=7)


def test_codes_of_a_deep_text_are_spread_over_all_of_it() -> None:
    depths = sorted(one.depth for one in make_text("a", tokens=1000, codes=20).planted)

    assert all(0.02 + 0.96 * place / 20 <= depth <= 0.98 for place, depth in enumerate(depths))
