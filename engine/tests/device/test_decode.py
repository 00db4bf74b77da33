"""A decode step of the device path against the reference engine, through Triton's interpreter."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from engine.core import SamplingParams
from engine.device.cache import DeviceCache
from engine.device.decode import DecodeStep
from engine.device.synthetic import Synthetic
from engine.device.weights import DeviceWeights
from engine.kernels.ref.packed import ReferenceProducts
from engine.model.spec import ModelSpec
from engine.sampling import sample
from engine.tests.device.small import SMALL, advance, reference, sequence_of, transfer

CPU = torch.device("cpu")
SEED = 5
SLOT = 1

# Of logits around 4: activations of 16 bits and queries of two BF16 parts against float32 everywhere.
TOLERANCE = 4e-3


def one_layer(ratio: int, *, hashed: bool) -> ModelSpec:
    return replace(SMALL, n_layer=1, ratios=(ratio,), swiglu_limits=(10.0,), n_hash_layer=int(hashed))


def tokens_of(count: int) -> list[int]:
    return torch.randint(0, SMALL.vocab, (count,), generator=torch.Generator().manual_seed(count)).tolist()


class Setting:
    """A reference sequence after some tokens, and the same in a device cache."""

    def __init__(self, spec: ModelSpec, length: int) -> None:
        self.spec, self.length = spec, length
        self.graph = reference(spec, SEED)
        self.tokens = tokens_of(length + 4)
        self.sequence = sequence_of(self.graph, self.tokens[:length])
        self.weights = DeviceWeights.load(spec, Synthetic(spec, CPU, SEED))

    def device_cache(self) -> DeviceCache:
        cache = DeviceCache.empty(self.spec, CPU, slots=2, pages=8, most=4)
        transfer(self.sequence, cache, SLOT, 3)
        return cache

    def run(self, cache: DeviceCache, first: int, count: int) -> Tensor:
        """Logits [count, V] of the tokens after `first` more, in one step."""
        return self.step(cache, first, count).run().clone()

    def step(self, cache: DeviceCache, first: int, count: int) -> DecodeStep:
        """The step of the tokens after `first` more."""
        step = DecodeStep(self.weights, cache, ReferenceProducts(), count)
        step.tokens[:] = torch.tensor(self.tokens[self.length + first :][:count])
        step.positions[:] = self.length + first + torch.arange(count)
        step.slots[:] = SLOT
        return step


@dataclass(frozen=True)
class Sparse:
    """A layer that chooses among its compressed rows, and the logits of two steps of a row alone."""

    setting: Setting
    wide: DeviceCache
    alone: Tensor


@pytest.fixture(scope="module")
def sparse() -> Sparse:
    with torch.inference_mode():
        setting = Setting(one_layer(4, hashed=False), 302)
        packed = setting.device_cache()
        return Sparse(setting, packed.widened(setting.spec), two_steps(setting, packed))


def two_steps(setting: Setting, cache: DeviceCache) -> Tensor:
    return torch.cat([setting.run(cache, at, 1) for at in range(2)])


@pytest.mark.parametrize(
    ("ratio", "hashed", "length"),
    [
        pytest.param(0, True, 3, id="window_hashed"),
        pytest.param(4, False, 134, id="all_sparse_rows_seen"),
        pytest.param(4, False, 302, id="sparse_rows_chosen"),
        pytest.param(128, False, 254, id="heavy_row_closes"),
    ],
)
@torch.inference_mode()
def test_steps_give_the_logits_of_the_reference(ratio: int, hashed: bool, length: int) -> None:
    setting = Setting(one_layer(ratio, hashed=hashed), length)
    cache = setting.device_cache()
    found = two_steps(setting, cache)
    expected = advance(setting.graph, setting.sequence, setting.tokens[length : length + 2])

    torch.testing.assert_close(found, expected, rtol=0.0, atol=TOLERANCE)


@torch.inference_mode()
def test_wide_rows_give_the_same_bits(sparse: Sparse) -> None:
    assert torch.equal(sparse.alone, two_steps(sparse.setting, sparse.wide))


@torch.inference_mode()
def test_a_step_draws_by_the_rules_of_its_rows() -> None:
    setting = Setting(one_layer(0, hashed=True), 3)
    step = setting.step(setting.device_cache(), 0, 2)
    step.rules.temperature[1] = 2.0
    step.rules.top_p[1] = 0.8
    step.rules.seed[1] = 11
    logits = step.run().numpy()
    params = (SamplingParams(0.0), SamplingParams(2.0, top_p=0.8))
    wanted = [sample(logits[at], params[at], seed=11, position=4 + at) for at in range(2)]

    assert step.draw().tolist() == wanted


@torch.inference_mode()
def test_nothing_is_read_where_a_program_had_no_tile() -> None:
    setting = Setting(one_layer(0, hashed=True), 3)
    plain, poisoned = (setting.step(setting.device_cache(), 0, 1) for _ in range(2))
    poisoned._work.partial.sums.fill_(torch.nan)
    poisoned._work.partial.peaks.fill_(torch.nan)

    assert torch.equal(plain.run(), poisoned.run())


@torch.inference_mode()
def test_a_row_keeps_its_bits_in_a_step_of_several(sparse: Sparse) -> None:
    together = sparse.setting.run(sparse.setting.device_cache(), 0, 2)

    assert torch.equal(sparse.alone, together)
