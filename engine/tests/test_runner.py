"""The law of the engine: a row's bits depend on its own past and on nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.cache.sequence import SequenceCache
from engine.errors import ModelFileError
from engine.kernels.ref import linear as sizes
from engine.kernels.ref.linear import Packed
from engine.kernels.ref.rounding import EXACT, Numerics
from engine.kernels.rows import Storage
from engine.runner import Pace, Runner, Threads
from engine.tests.small import SMALL
from fixtures.tiny.random_model import build_random

LENGTH = 90  # beyond the window, the top-k and the first tiles of every stream of the small model


@pytest.fixture(scope="module")
def runner(small_path: Path) -> Runner:
    return Runner(small_path, threads=Threads(1, 1))


def _tokens(seed: int, count: int = LENGTH) -> list[int]:
    return torch.randint(0, SMALL.vocab, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


@pytest.fixture(scope="module")
def whole(runner: Runner) -> Tensor:
    """Logits of all positions of tokens 1 in one pass."""
    return runner.score(runner.new_cache(), _tokens(1))


def _cut(cache: SequenceCache, runner: Runner, tokens: list[int], cuts: list[int]) -> Tensor:
    parts, at = [], 0
    for count in cuts:
        part = tokens[at : at + count]
        at += count
        if part:
            parts.append(runner.score(cache, part))
    if tokens[at:]:
        parts.append(runner.score(cache, tokens[at:]))
    return torch.cat(parts)


def test_this_machine_keeps_the_bits_of_a_row(runner: Runner) -> None:
    assert () == runner.exactness.failed
    assert runner.exactness.holds


def test_steps_and_experts_come_to_packed_products_in_whole_counts_of_rows(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: set[int] = set()
    times = Packed.times

    def watched(packed: Packed, x: Tensor) -> Tensor:
        seen.add(len(x))
        return times(packed, x)

    monkeypatch.setattr(Packed, "times", watched)
    for count in (37, 41, 67, 90, 131):
        runner.step([(runner.new_cache(), _tokens(1, count))])

    assert seen >= {40, 48, 72, 104, 136}
    assert {count for count in seen if count > 1} == {sizes.whole(count) for count in seen if count > 1}


def test_token_by_token_gives_the_bits_of_the_whole_prompt(runner: Runner, whole: Tensor) -> None:
    assert torch.equal(whole, _cut(runner.new_cache(), runner, _tokens(1), [1] * LENGTH))


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.integers(1, 30), max_size=12))
def test_any_chunking_gives_the_bits_of_the_whole_prompt(
    runner: Runner, whole: Tensor, cuts: list[int]
) -> None:
    cache = runner.new_cache()

    assert torch.equal(whole, _cut(cache, runner, _tokens(1), cuts))
    assert LENGTH == cache.length


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    companions=st.lists(st.tuples(st.integers(2, 9), st.integers(1, 40)), max_size=4),
    place=st.integers(0, 4),
    cut=st.integers(1, LENGTH - 1),
)
def test_companions_in_the_batch_change_no_bit(
    runner: Runner, whole: Tensor, companions: list[tuple[int, int]], place: int, cut: int
) -> None:
    mine = runner.new_cache()
    others = [(runner.new_cache(), _tokens(seed, count)) for seed, count in companions]
    place = min(place, len(others))
    first = runner.step([*others[:place], (mine, _tokens(1)[:cut]), *others[place:]])
    again = [(cache, tokens[:1]) for cache, tokens in others]
    second = runner.step([*again[:place], (mine, _tokens(1)[cut:]), *again[place:]])

    assert torch.equal(whole[cut - 1], first[place])
    assert torch.equal(whole[-1], second[place])


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(1, LENGTH - 1), detour=st.integers(1, 40))
def test_a_copy_and_a_restored_snapshot_continue_with_the_same_bits(
    runner: Runner, whole: Tensor, at: int, detour: int
) -> None:
    tokens = _tokens(1)
    cache = runner.new_cache()
    runner.score(cache, tokens[:at])
    snapshot, copy = cache.snapshot(), cache.clone()
    runner.score(cache, _tokens(7, detour))
    after_copy = runner.score(copy, tokens[at:])
    cache.restore(snapshot)
    after_restore = runner.score(cache, tokens[at:])
    fresh = runner.new_cache()
    fresh.restore(snapshot)

    assert torch.equal(whole[at:], after_copy)
    assert torch.equal(whole[at:], after_restore)
    assert torch.equal(whole[at:], runner.score(fresh, tokens[at:]))


@pytest.mark.parametrize("storage", ["packed", "wide"])
@pytest.mark.parametrize("at", [1, 7, 8, 9, 40, 63, 64, 65])
def test_a_state_that_went_through_arrays_continues_with_the_same_bits(
    small_path: Path, whole: Tensor, at: int, storage: Storage
) -> None:
    runner = Runner(small_path, storage=storage, threads=Threads(1, 1))
    tokens = _tokens(1)
    cache = runner.new_cache()
    runner.score(cache, tokens[:at])
    anchor = cache.snapshot()
    runner.score(cache, tokens[at : at + 9])
    arrays = {name: array.copy() for name, array in cache.arrays({at: anchor}).items()}
    runner.score(cache, _tokens(7, 40))
    back = runner.new_cache()
    anchors = back.fill(at + 9, (at,), arrays)
    fork = runner.new_cache()
    fork.restore(anchors[at])

    assert torch.equal(whole[at + 9 :], runner.score(back, tokens[at + 9 :]))
    assert torch.equal(whole[at:], runner.score(fork, tokens[at:]))


def test_arrays_of_another_shape_are_refused_before_a_page_is_taken(runner: Runner) -> None:
    cache = runner.new_cache()
    runner.score(cache, _tokens(1)[:20])
    arrays = cache.arrays({})
    used = runner.ledger.used
    fresh = runner.new_cache()

    with pytest.raises(KeyError):
        fresh.fill(21, (), arrays)
    for name, wrong in (
        ("20.1.ring", arrays["20.1.ring"][:-1]),
        ("20.1.0.pending", np.zeros((3, 1), np.float32)),
        ("20.1.0.last", arrays["20.1.0.last"].astype(np.float64)),
        ("rows.0", arrays["rows.0"].repeat(2, 0)[:6]),
        ("rows.0", arrays["rows.0"][:4]),
        ("rows.0", arrays["rows.0"][:, 1:]),
    ):
        with pytest.raises(ValueError, match=name):
            fresh.fill(20, (), {**arrays, name: wrong})
    assert used == runner.ledger.used


@pytest.mark.parametrize(
    ("size", "expected"),
    [pytest.param(2**50, MemoryError, id="no_memory"), pytest.param(2**62, RuntimeError, id="another_error")],
)
def test_a_lack_of_memory_is_told_from_other_errors_of_torch(
    runner: Runner, monkeypatch: pytest.MonkeyPatch, size: int, expected: type[Exception]
) -> None:
    """Bytes that nobody has, and more than torch can count, where a state is made, copied out and filled."""
    cache = runner.new_cache()
    runner.score(cache, _tokens(1)[:20])
    arrays = cache.arrays({})
    for name in ("_empty", "_named", "_fitting"):
        monkeypatch.setattr(f"engine.cache.sequence.{name}", lambda *_: torch.empty(size))
    with pytest.raises(expected):
        runner.new_cache()
    with pytest.raises(expected):
        cache.arrays({})
    with pytest.raises(expected):
        cache.fill(20, (), arrays)


def test_a_runner_on_a_cpu_holds_nothing_of_a_device(runner: Runner) -> None:
    assert torch.cuda.is_initialized() or 0 == runner.device_bytes


def test_an_anchor_at_the_very_end_comes_back_too(runner: Runner) -> None:
    cache = runner.new_cache()
    runner.score(cache, _tokens(1)[:20])
    arrays = cache.arrays({20: cache.snapshot()})

    assert [20] == list(runner.new_cache().fill(20, (20,), arrays))


def test_a_sequence_grows_outside_of_steps_as_well(runner: Runner, whole: Tensor) -> None:
    """What a step has made, in inference mode, may be written outside of it."""
    tokens = _tokens(1)
    cache = runner.new_cache()
    runner.score(cache, tokens[:20])
    cache.grow(LENGTH + 200)
    copy = cache.clone()
    copy.grow(LENGTH + 300)

    assert torch.equal(whole[20:], runner.score(copy, tokens[20:]))
    assert torch.equal(whole[20:], runner.score(cache, tokens[20:]))


def test_the_fingerprint_tells_models_and_storages_apart(small_path: Path, tmp_path: Path) -> None:
    other = build_random(tmp_path / "other.gguf", seed=6, spec=SMALL)
    kinds: tuple[tuple[Path, Storage], ...] = (
        (small_path, "packed"),
        (small_path, "packed"),
        (small_path, "wide"),
        (other, "packed"),
    )
    prints = [Runner(path, storage=storage, threads=Threads(1, 1)).fingerprint for path, storage in kinds]

    assert prints[0] == prints[1]
    assert 3 == len(set(prints))


def test_the_number_of_threads_changes_no_bit(small_path: Path, whole: Tensor) -> None:
    before = torch.get_num_threads()
    runner = Runner(small_path, threads=Threads(2, 2))
    try:
        assert torch.equal(whole, runner.score(runner.new_cache(), _tokens(1)))
    finally:
        torch.set_num_threads(before)


def test_a_step_returns_the_logits_of_each_slices_last_token(runner: Runner, whole: Tensor) -> None:
    logits = runner.step([(runner.new_cache(), _tokens(1)[:40]), (runner.new_cache(), _tokens(1))])

    assert torch.float32 == logits.dtype
    assert torch.equal(whole[[39, -1]], logits)


def test_packed_and_wide_rows_give_the_same_bits_in_a_third_of_the_memory(
    runner: Runner, small_path: Path, whole: Tensor
) -> None:
    wide = Runner(small_path, storage="wide", threads=Threads(1, 1))
    caches = [runner.new_cache(), wide.new_cache()]
    packed, unpacked = (
        _cut(cache, one, _tokens(1), [60, 1, 1]) for cache, one in zip(caches, (runner, wide), strict=True)
    )
    growth = [cache.nbytes - cache.own_bytes for cache in caches]

    assert torch.equal(whole, packed)
    assert torch.equal(whole, unpacked)
    assert growth[1] > 2.8 * growth[0]


@pytest.mark.parametrize("off", ["kv_fp8", "index_fp4", "tail_bf16"])
def test_every_rounding_of_the_model_is_felt(small_path: Path, whole: Tensor, off: str) -> None:
    runner = Runner(small_path, numerics=Numerics(**{off: False}), threads=Threads(1, 1))

    assert not torch.equal(whole, runner.score(runner.new_cache(), _tokens(1)))


def test_without_roundings_the_law_holds_too(small_path: Path) -> None:
    runner = Runner(small_path, numerics=EXACT, threads=Threads(1, 1))
    together = runner.score(runner.new_cache(), _tokens(1))

    assert torch.equal(together, _cut(runner.new_cache(), runner, _tokens(1), [1, 2, 5, 1, 33, 1, 1]))


@pytest.mark.parametrize(
    ("tokens", "message"),
    [([], "at least one token"), ([320], "0 to 319"), ([-1], "0 to 319"), ([0] * 4097, "holds 4096 tokens")],
)
def test_impossible_slices_are_refused_before_anything_runs(
    runner: Runner, tokens: list[int], message: str
) -> None:
    cache = runner.new_cache()

    with pytest.raises(ValueError, match=message):
        runner.step([(cache, tokens)])

    assert 0 == cache.length


def test_a_snapshot_is_small_because_it_shares_the_rows(runner: Runner) -> None:
    cache = runner.new_cache()
    runner.score(cache, _tokens(1) * 8)
    longer = cache.snapshot().nbytes

    assert longer < cache.nbytes
    assert longer == runner.new_cache().snapshot().nbytes + sum(
        stream.frontier.last.nbytes
        for layer in cache.layers
        for stream in layer.streams()
        if stream.frontier.last is not None
    )


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "no.gguf"
    path.write_bytes(b"GGUF" + bytes(100))

    with pytest.raises(ModelFileError):
        Runner(path)


def test_the_pace_settles_on_the_faster_choice_and_tries_the_other_now_and_then() -> None:
    pace = Pace(Threads(1, 2))
    seconds = {1: 1.0, 2: 3.0}
    chosen = []
    for step in range(40):
        if step == 20:
            seconds = {1: 3.0, 2: 1.0}
        threads = pace.choose()
        pace.record(threads, 100, seconds[threads])
        chosen.append(threads)

    assert [2, 1] == chosen[:2]
    assert 2 >= chosen[2:20].count(2)
    assert 2 >= chosen[-10:].count(1)
