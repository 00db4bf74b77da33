"""Pairs that need an accelerator: a decode step captured and eager, and a row in steps of several sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from engine.model.published import SPECS
from gates.equivalence.seen import LOGITS, Compared, Inapplicable, Seen
from gates.equivalence.workbench import Workbench

NONE = "no accelerator here: a CPU captures nothing and runs no device kernel"
SPEC = replace(  # the published kinds of layers, small: every kernel of a step runs
    SPECS["v4-flash"],
    n_layer=3,
    hidden=256,
    vocab=256,
    n_head=16,
    head_dim=256,
    q_rank=256,
    o_groups=2,
    o_rank=128,
    ratios=(0, 4, 128),
    index_heads=16,
    index_topk=32,
    n_expert=16,
    n_expert_used=3,
    expert_width=256,
    n_hash_layer=1,
    swiglu_limits=(10.0,) * 3,
)
SEED = 5
STEPS = 12  # tokens of greedy decoding
FORCED = 160  # given tokens: behind the window and the first heavy row


def captured(bench: Workbench, case: Mapping[str, Any]) -> Compared | Inapplicable:
    """Greedy decoding by eager steps and by replays of one captured step."""
    del bench, case
    if not torch.cuda.is_available():
        return Inapplicable(NONE)
    eager, replayed = _Sequence(), _Sequence()
    found = (eager.greedy(capture=False), replayed.greedy(capture=True))
    return Compared(*found)  # a step that was not captured feeds itself nothing, and differs


def device_rows(bench: Workbench, case: Mapping[str, Any]) -> Compared | Inapplicable:
    """The same tokens in steps of one row and in steps of several."""
    if not torch.cuda.is_available():
        return Inapplicable(NONE)
    tokens = [token % SPEC.vocab for token in bench.tokens(FORCED)]
    alone, joined = _Sequence(), _Sequence()
    rows = case["rows"]
    return Compared(alone.forced(tokens, 1), joined.forced(tokens, rows), {"several rows": rows > 1})


class _Sequence:
    """The small model on a card, with a cache and one empty sequence."""

    def __init__(self) -> None:
        from engine.device.cache import DeviceCache
        from engine.device.synthetic import Synthetic
        from engine.device.weights import DeviceWeights

        self._device = torch.device("cuda")
        self._weights = DeviceWeights.load(SPEC, Synthetic(SPEC, self._device, SEED))
        self._cache = DeviceCache.empty(SPEC, self._device, slots=1, pages=4, most=2)
        self._cache.table[0] = torch.tensor([2, 3])

    def _step(self, rows: int, tokens: list[int], position: int) -> Any:
        """A step of the tokens from a position on."""
        from engine.device.decode import DecodeStep
        from engine.kernels.cuda.packed import CudaProducts

        step = DecodeStep(self._weights, self._cache, CudaProducts(self._device), rows)
        step.tokens.copy_(torch.tensor(tokens))
        step.positions.copy_(position + torch.arange(rows))
        return step

    @torch.inference_mode()
    def greedy(self, *, capture: bool) -> Seen:
        """Logits of steps that feed themselves; the first step is eager in either way."""
        step = self._step(1, [1], 0)
        if capture:
            step.capture()
        found: list[Tensor] = []
        for _ in range(STEPS + (not capture)):
            found.append(step.run().clone())
            if not capture:
                step.tokens.copy_(found[-1].argmax(-1))
                step.positions.add_(1)
        return self._seen(found[-STEPS:])

    @torch.inference_mode()
    def forced(self, tokens: list[int], rows: int) -> Seen:
        """Logits of given tokens, so many a step."""
        starts = range(0, len(tokens), rows)
        return self._seen([self._step(rows, tokens[at : at + rows], at).run().clone() for at in starts])

    def _seen(self, logits: list[Tensor]) -> Seen:
        """Logits in order, and the rows that the cache holds."""
        seen = {LOGITS: torch.cat(logits).cpu().numpy()}
        for number, layer in enumerate(self._cache.layers):
            streams = [stream for stream in (layer.main, layer.index) if stream is not None]
            for name, rows in enumerate([layer.ring, *(stream.pool for stream in streams)]):
                seen[f"{number}.{name}"] = rows.cpu().numpy()
        return seen
