"""The engine against the transformers library, roundings off: every attention kind, both routers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.cache.sequence import SequenceCache, new_pool
from engine.kernels.ref import index
from engine.kernels.ref.rounding import EXACT
from engine.model.graph import Graph
from engine.model.ops import Ops
from engine.tests.oracle.source import DictSource
from engine.tests.oracle.transformers_model import SPEC, build_library_model, production_weights

pytestmark = pytest.mark.oracle
TOKENS = 600
TOLERANCE = 2e-5  # logits reach 5; the library's own chunked and whole prefill differ by 5e-6
NEAR_TIE = 1e-5  # relative gap of the last chosen and the first rejected index score


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _ids(seed: int) -> Tensor:
    return torch.randint(0, SPEC.vocab, (TOKENS,), generator=torch.Generator().manual_seed(seed))


@torch.inference_mode()
def _run(graph: Graph, ids: Tensor, cuts: list[int]) -> Tensor:
    cache = SequenceCache(graph.shapes(), new_pool(graph.shapes(), 2**26))
    return torch.cat([graph.logits(graph.forward([(cache, part.tolist())])) for part in ids.split(cuts)])


def _cuts(size: int) -> list[int]:
    return [size] * (TOKENS // size) + ([TOKENS % size] if TOKENS % size else [])


class TieFinder:
    """Wraps the selection and remembers queries whose choice hangs on a near-tie."""

    def __init__(self) -> None:
        self.near: set[int] = set()

    def select(self, score: Tensor, k: int) -> Tensor:
        best = score.topk(k + 1, 1).values
        gap = (best[:, -2] - best[:, -1]) / best[:, -2].abs().clamp_min(1e-9)
        # A query at position p sees (p + 1) // 4 rows: the count names four positions, good enough to list.
        visible = score.isfinite().sum(1)
        self.near |= {int(rows) for rows in visible[gap < NEAR_TIE]}
        return self.original(score, k)

    original = staticmethod(index.select)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_logits_agree_except_where_the_choice_of_rows_is_a_tie(
    seed: int, monkeypatch: pytest.MonkeyPatch, record_property: Any
) -> None:
    model = build_library_model(SPEC, seed)
    ids = _ids(7 + seed)
    finder = TieFinder()
    monkeypatch.setattr(index, "select", finder.select)
    with torch.inference_mode():
        theirs = model(ids[None], use_cache=False).logits[0]
        ours = _run(Graph(Ops(SPEC, EXACT), DictSource(production_weights(model))), ids, [TOKENS])

    difference = (ours - theirs).abs().amax(1)
    beyond = (difference > TOLERANCE).nonzero().flatten().tolist()
    record_property("excepted_ties", beyond)
    record_property("max_difference", difference[difference <= TOLERANCE].max().item())

    assert [] == [row for row in beyond if (row + 1) // 4 not in finder.near]
    assert len(beyond) <= 3


def test_whole_chunked_and_token_by_token_are_bit_identical() -> None:
    graph = Graph(Ops(SPEC, EXACT), DictSource(production_weights(build_library_model(SPEC, 0))))
    ids = _ids(7)
    whole = _run(graph, ids, [TOKENS])

    assert [] == [size for size in (1, 7, 128, 300) if not torch.equal(whole, _run(graph, ids, _cuts(size)))]
