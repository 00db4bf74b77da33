"""Attention rows of a chunk: finished, packed and unpacked, against their twins."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from engine.kernels.ref import rope, rounding
from engine.kernels.ref.norm import rms_norm
from engine.kernels.ref.rows import pack_kv, unpack_kv
from engine.kernels.rows import KvLayout
from engine.kernels.triton.prefill import rows
from engine.tests.kernels.prefill.cases import DEVICE, FULL, SMALL, Case, Random, differing

EPS = 1e-6


def _angles(case: Case) -> tuple[Tensor, Tensor]:
    positions = torch.arange(case.tokens, device=DEVICE) * 7 + 3
    return rope.cos_sin(positions, rope.frequencies(case.rope, 10000.0).to(DEVICE))


def check_finish(case: Case) -> None:
    random, layout = Random(3), KvLayout(case.nope, case.rope)
    raw = random.normal(case.tokens, case.width + 5)[:, 5:]
    weight = 1 + random.normal(case.width, spread=0.2)
    cos, sin = _angles(case)
    exact = rope.rotate_by(rms_norm(raw, weight, EPS), cos, sin)
    wanted = pack_kv(exact, layout)
    at = random.order(case.tokens + 3)[: case.tokens]
    at[1] = -1

    packed = torch.zeros(case.tokens + 3, layout.nbytes, dtype=torch.uint8, device=DEVICE)
    wide = torch.empty(case.tokens, case.width, dtype=torch.bfloat16, device=DEVICE)
    rows.finish(raw, rows.Finish(weight, EPS, cos, sin), layout, at, packed, wide)
    kept = at >= 0

    assert differing(packed[at[kept].long()], wanted[kept]) < 2e-3
    assert differing(wide, rounding.bf16_tail(rounding.e4m3_round(exact, case.nope), case.nope)) < 2e-3
    assert not packed[
        torch.tensor(sorted(set(range(case.tokens + 3)) - set(at.tolist())), device=DEVICE)
    ].any()


def check_unpack(case: Case) -> None:
    random, layout = Random(4), KvLayout(case.nope, case.rope)
    packed = pack_kv(random.normal(case.tokens, case.width) * 10.0 ** random.normal(case.tokens, 1), layout)
    at = random.whole(0, case.tokens, case.tokens + 2)

    wide = torch.empty(case.tokens + 2, case.width, dtype=torch.bfloat16, device=DEVICE)
    rows.unpack(packed, at, layout, wide)

    assert torch.equal(wide.float(), unpack_kv(packed, layout)[at.long()])


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_finished_rows_have_the_codes_of_the_twin(case: Case) -> None:
    check_finish(case)


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_unpacking_is_exact(case: Case) -> None:
    check_unpack(case)


@pytest.mark.device
@pytest.mark.parametrize("case", FULL, ids=lambda case: case.name)
def test_rows_on_a_device(case: Case) -> None:
    check_finish(case)
    check_unpack(case)
