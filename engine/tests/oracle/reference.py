"""A second, deliberately plain implementation of the model in NumPy: one sequence, dense masks, no cache.

Written from docs/model.md alone; shares no code with the engine.  Roundings are formed in float64 from
tables of the formats' values, so that they disagree with the engine's bit tricks wherever those are wrong.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.model.spec import ModelSpec

Array = npt.NDArray[Any]

E4M3 = np.array(
    [m / 8 * 2.0**-6 if e == 0 else (1 + m / 8) * 2.0 ** (e - 7) for e in range(16) for m in range(8)]
)[:127]
E2M1 = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def nearest(levels: Array, magnitude: Array) -> Array:
    """Index of the nearest level for each magnitude; ties go to the even index."""
    above = np.searchsorted(levels, magnitude).clip(1, len(levels) - 1)
    low, high = levels[above - 1], levels[above]
    up = (magnitude - low > high - magnitude) | ((magnitude - low == high - magnitude) & (above % 2 == 0))
    index: Array = np.where(up, above, above - 1)
    return index


def block_scale(blocks: Array, floor: float, top: float) -> Array:
    """Smallest power of two that brings each block [..., n] within the top level, float64 [..., 1]."""
    ratio = np.maximum(np.abs(blocks).max(-1, keepdims=True), floor).astype(np.float64) / top
    mantissa, exponent = np.frexp(ratio)
    scale: Array = np.ldexp(1.0, np.where(mantissa == 0.5, exponent - 1, exponent))
    return scale


def round_blocks(x: Array, block: int, levels: Array, floor: float) -> Array:
    """Round trip of every block of the last axis through a scaled table of levels."""
    blocks = x.reshape(*x.shape[:-1], -1, block).astype(np.float64)
    scale = block_scale(blocks, floor, levels[-1])
    code = nearest(levels, np.abs(blocks / scale))
    return (np.sign(blocks) * levels[code] * scale).reshape(x.shape).astype(np.float32)


def round_bf16(x: Array) -> Array:
    """Nearest bfloat16, ties to even."""
    bits = x.astype(np.float32).view(np.uint32)
    kept = bits + 0x7FFF + ((bits >> 16) & 1)
    return (kept & np.uint32(0xFFFF0000)).view(np.float32)


def walsh(n: int) -> Array:
    """Orthonormal Walsh-Hadamard matrix in Sylvester order."""
    matrix = np.ones((1, 1))
    while len(matrix) < n:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix / math.sqrt(n)


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _softmax(x: Array, axis: int) -> Array:
    e: Array = np.exp(x - x.max(axis, keepdims=True))
    share: Array = e / e.sum(axis, keepdims=True)
    return share


class Reference:
    """The whole model over one sequence of token ids."""

    def __init__(self, spec: ModelSpec, weights: Mapping[str, Array], *, rounded: bool) -> None:
        self.spec, self.w, self.rounded = spec, weights, rounded

    def __call__(self, ids: Array) -> Array:
        """Logits [T, V]."""
        spec = self.spec
        x = np.repeat(self.w["token_embd.weight"][ids][:, None], spec.hc_count, 1)
        for layer in range(spec.n_layer):
            p = f"blk.{layer}."
            x = self._site(x, p, "attn", lambda h, at=layer: self._attention(h, at))
            x = self._site(x, p, "ffn", lambda h, at=layer: self._experts(h, ids, at))
        z = self._rms(x.reshape(len(x), -1)) @ self.w["output_hc_fn.weight"].T
        share = _sigmoid(z * self.w["output_hc_scale.weight"] + self.w["output_hc_base.weight"]) + spec.hc_eps
        mixed = np.einsum("tj,tjc->tc", share, x)
        return self._rms(mixed, "output_norm.weight") @ self.w["output.weight"].T

    def _rms(self, x: Array, weight: str | None = None) -> Array:
        y = x / np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True) + self.spec.rms_eps)
        scaled: Array = y if weight is None else y * self.w[weight]
        return scaled.astype(np.float32)

    def _site(self, x: Array, p: str, name: str, sub_layer: Any) -> Array:
        n, eps = self.spec.hc_count, self.spec.hc_eps
        z = self._rms(x.reshape(len(x), -1)) @ self.w[f"{p}hc_{name}_fn.weight"].T
        scale, base = self.w[f"{p}hc_{name}_scale.weight"], self.w[f"{p}hc_{name}_base.weight"]
        pre = _sigmoid(z[:, :n] * scale[0] + base[:n]) + eps
        post = 2 * _sigmoid(z[:, n : 2 * n] * scale[1] + base[n : 2 * n])
        c = _softmax((z[:, 2 * n :] * scale[2] + base[2 * n :]).reshape(-1, n, n), 2) + eps
        for turn in range(self.spec.hc_iterations):
            if turn:
                c = c / (c.sum(2, keepdims=True) + eps)
            c = c / (c.sum(1, keepdims=True) + eps)
        h = self._rms(np.einsum("tj,tjc->tc", pre, x), f"{p}{name}_norm.weight")
        mixed: Array = post[:, :, None] * sub_layer(h)[:, None] + np.einsum("tjk,tjc->tkc", c, x)
        return mixed.astype(np.float32)

    def _frequencies(self, scaled: bool) -> Array:
        spec, half = self.spec, self.spec.rope_dim // 2
        if not scaled:
            return spec.rope_base ** (-np.arange(half) / half)
        base = spec.compress_rope_base
        plain = base ** (-np.arange(half) / half)

        def pair(beta: float) -> float:
            return half * math.log(spec.yarn_original_context / (2 * math.pi * beta)) / math.log(base)

        low = max(math.floor(pair(spec.yarn_beta_fast)), 0)
        high = min(math.ceil(pair(spec.yarn_beta_slow)), spec.rope_dim - 1)
        ramp = np.clip((np.arange(half) - low) / max(high - low, 1e-3), 0, 1)
        return plain * (1 - ramp) + plain / spec.yarn_factor * ramp

    def _turn(self, x: Array, positions: Array, scaled: bool, sign: float = 1.0) -> Array:
        """Rotate the last dimensions of [T, D] or [T, H, D] as complex pairs."""
        frequency = self._frequencies(scaled).astype(np.float32)
        angle = (positions.astype(np.float32)[:, None] * frequency).astype(np.float64)
        wheel = np.exp(1j * sign * angle).reshape(len(x), *[1] * (x.ndim - 2), -1)
        width = self.spec.rope_dim
        tail = np.ascontiguousarray(x[..., -width:], np.float64).view(np.complex128) * wheel
        return np.concatenate((x[..., :-width], tail.view(np.float64)), -1).astype(np.float32)

    def _stored(self, rows: Array) -> Array:
        if not self.rounded:
            return rows
        nope = self.spec.nope_dim
        return np.concatenate((round_blocks(rows[:, :nope], 64, E4M3, 1e-4), round_bf16(rows[:, nope:])), 1)

    def _compared(self, x: Array) -> Array:
        if not self.rounded:
            return x
        spread = (x.astype(np.float64) @ walsh(x.shape[-1])).astype(np.float32)
        return round_blocks(spread, 32, E2M1, 6 * 2.0**-126)

    def _compress(self, h: Array, prefix: str, ratio: int) -> Array:
        keys, scores = (h @ self.w[f"{prefix}_{part}.weight"].T for part in ("kv", "gate"))
        scores = scores + np.tile(self.w[prefix + "_ape.weight"], (len(h) // ratio + 1, 1))[: len(h)]
        width = len(self.w[prefix + "_norm.weight"])
        rows = []
        for start in range(0, len(h) - ratio + 1, ratio):
            mine = slice(start, start + ratio)
            k, s = keys[mine, -width:], scores[mine, -width:]
            if ratio == 4 and start:
                before = slice(start - ratio, start)
                k = np.concatenate((keys[before, :width], k))
                s = np.concatenate((scores[before, :width], s))
            rows.append((_softmax(s, 0) * k).sum(0))
        if not rows:
            return np.zeros((0, width), np.float32)
        return self._turn(
            self._rms(np.stack(rows), prefix + "_norm.weight"), np.arange(len(rows)) * ratio, scaled=True
        )

    def _attention(self, h: Array, layer: int) -> Array:
        spec, p, ratio, count = self.spec, f"blk.{layer}.", self.spec.ratios[layer], len(h)
        at = np.arange(count)
        qr = self._rms(h @ self.w[p + "attn_q_a.weight"].T, p + "attn_q_a_norm.weight")
        q = self._rms((qr @ self.w[p + "attn_q_b.weight"].T).reshape(count, spec.n_head, -1))
        q = self._turn(q, at, bool(ratio))
        kv = self._rms(h @ self.w[p + "attn_kv.weight"].T, p + "attn_kv_a_norm.weight")
        rows = self._stored(self._turn(kv, at, bool(ratio)))
        seen = (at[None] <= at[:, None]) & (at[None] > at[:, None] - spec.window)
        if ratio:
            far = self._stored(self._compress(h, p + "attn_compressor", ratio))
            closed = np.arange(len(far))[None] < ((at + 1) // ratio)[:, None]
            if ratio == 4:
                closed &= self._chosen(h, qr, p, closed)
            rows, seen = np.concatenate((rows, far)), np.concatenate((seen, closed), 1)
        score = np.einsum("thd,sd->ths", q, rows) * spec.head_dim**-0.5
        score = np.where(seen[:, None], score, -np.inf)
        sinks = np.broadcast_to(self.w[p + "attn_sinks.weight"][None, :, None], (*score.shape[:2], 1))
        share = _softmax(np.concatenate((score, sinks), -1), -1)[..., :-1]
        o = self._turn(np.einsum("ths,sd->thd", share, rows), at, bool(ratio), -1.0)
        o = o.reshape(count, spec.o_groups, -1)
        low = np.einsum(
            "tgi,goi->tgo", o, self.w[p + "attn_output_a.weight"].reshape(spec.o_groups, spec.o_rank, -1)
        )
        y: Array = low.reshape(count, -1) @ self.w[p + "attn_output_b.weight"].T
        return y

    def _chosen(self, h: Array, qr: Array, p: str, closed: Array) -> Array:
        """Mask [T, R] of the best rows; lower rows first among equals."""
        spec = self.spec
        keys = self._compared(self._compress(h, p + "indexer_compressor", 4))
        q = (qr @ self.w[p + "indexer.attn_q_b.weight"].T).reshape(len(h), spec.index_heads, -1)
        q = self._compared(self._turn(q, np.arange(len(h)), scaled=True))
        weight = h @ self.w[p + "indexer.proj.weight"].T * (spec.index_heads * spec.index_dim) ** -0.5
        score = np.einsum("thr,th->tr", np.maximum(np.einsum("thd,rd->thr", q, keys), 0), weight)
        order = np.argsort(np.where(closed, -score, np.inf), 1, kind="stable")[:, : spec.index_topk]
        mask = np.zeros_like(closed)
        np.put_along_axis(mask, order, True, 1)
        return mask

    def _experts(self, h: Array, ids: Array, layer: int) -> Array:
        spec, p = self.spec, f"blk.{layer}."
        score = np.sqrt(np.logaddexp(0, h @ self.w[p + "ffn_gate_inp.weight"].T))
        if layer < spec.n_hash_layer:
            chosen = self.w[p + "ffn_gate_tid2eid.weight"][ids]
        else:
            biased = score + self.w[p + "exp_probs_b.bias"]
            chosen = np.argsort(-biased, 1, kind="stable")[:, : spec.n_expert_used]
        weight = np.take_along_axis(score, chosen, 1)
        weight = weight / np.maximum(weight.sum(1, keepdims=True), 2.0**-14) * spec.expert_scale
        y = self._unit(h, p, "shexp", layer)
        for expert in range(spec.n_expert):
            share = np.where(chosen == expert, weight, 0).sum(1, keepdims=True)
            mine = share[:, 0] > 0
            y[mine] += share[mine] * self._unit(h[mine], p, "exps", layer, expert)
        return y

    def _unit(self, h: Array, p: str, kind: str, layer: int, expert: int | None = None) -> Array:
        gate, up, down = (self.w[f"{p}ffn_{part}_{kind}.weight"] for part in ("gate", "up", "down"))
        if expert is not None:
            gate, up, down = gate[expert], up[expert], down[expert]
        limit = self.spec.swiglu_limits[layer]
        a = np.minimum(h @ gate.T, limit)
        inner: Array = a * _sigmoid(a) * np.clip(h @ up.T, -limit, limit)
        return inner @ down.T
