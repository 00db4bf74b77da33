"""Fitting blocks of IQ2_XXS: which codewords, signs and scales lie closest to given weights.

Knows the codebook and nothing of files or tensors.  Works on normalised blocks of 256 values.
The error minimised is the importance-weighted sum of squares.  For one octet and one scale the choice of
codeword and signs is exact; the scales of a block are searched on a grid and refined by least squares.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from engine.gguf.quants import Bytes, Floats, iq2_codewords

Ints = npt.NDArray[np.intp]

# Group scales tried, as multiples of (group RMS / codebook RMS): 13 steps of 12 %.
# Twice as many, four times as many block scales and a third round lower the error of Gaussian weights from
# 0.3273 to 0.3271; the best possible with every group's scale free is 0.3270.
_STEP: Final = 1.12
_RATIOS: Final = tuple(0.5 * _STEP**k for k in range(13))
# Block scales tried: the widest group sits at scale code 15.5 down to 8.5 (plus the half of the format).
_PEAKS: Final = tuple(15.5 - k for k in range(8))
_CODEBOOK_RMS: Final = 23.1
_ROUNDS: Final = 2


@dataclass(frozen=True, slots=True)
class Match:
    """Sums from which every codeword's score at any scale follows, for M octets and 256 codewords.

    At scale s a codeword lowers the squared error by `s * (cross2 - s * power)`.
    """

    cross2: Floats  # [M, 256] twice the weighted product of magnitudes and codeword, best allowed signs
    power: Floats  # [M, 256] weighted square of the codeword

    def gain(self, scales: Floats) -> Floats:
        """Best score of each octet at its own scale, `[M]`."""
        column = scales[:, None]
        score = self.power * column
        np.subtract(self.cross2, score, out=score)
        return np.asarray(score.max(axis=1) * scales)

    def best(self, scales: Floats) -> Ints:
        """Index of the best codeword of each octet at its own scale, `[M]`."""
        return np.asarray((self.cross2 - self.power * scales[:, None]).argmax(axis=1))


@dataclass(frozen=True, slots=True)
class Octets:
    """Octets of a chunk: weighted magnitudes, minus signs, and whether their number is odd."""

    pull: Floats  # [M, 8] importance times magnitude
    weight: Floats  # [M, 8]
    minus: npt.NDArray[np.bool_]  # [M, 8]
    odd: npt.NDArray[np.bool_]  # [M]


def fit_iq2_xxs(values: Floats, weights: Floats) -> Bytes:
    """Encode `[N, 256]` finite values with positive weights to `[N, 66]` bytes."""
    unit = np.abs(values).max(axis=1, keepdims=True)
    unit[unit == 0] = 1
    octets = _octets(values / unit, weights)
    match = _match(octets)
    scale, codes = _search_scales(match, octets, unit[:, 0])
    for _ in range(_ROUNDS):
        codes = _improve_codes(match, scale, codes)
        words = match.best(_per_octet(scale, codes))
        scale = _refit(match, words, codes, unit[:, 0])
    words = match.best(_per_octet(scale, codes))
    return _pack(octets, words, codes, (scale * unit[:, 0]).astype("<f2"))


def _octets(values: Floats, weights: Floats) -> Octets:
    x = values.reshape(-1, 8)
    w = weights.reshape(-1, 8)
    minus = x < 0
    return Octets(pull=np.abs(x) * w, weight=w, minus=minus, odd=minus.sum(axis=1) % 2 == 1)


def _match(octets: Octets) -> Match:
    """Scores of all codewords; where the signs have odd parity the cheapest sign is wrong on purpose."""
    words = iq2_codewords()
    cross = _products(octets.pull, words)
    pull = octets.pull[octets.odd]
    penalty = pull[:, :1] * words[:, 0]
    for i in range(1, 8):
        np.minimum(penalty, pull[:, i : i + 1] * words[:, i], out=penalty)
    cross[octets.odd] -= 2 * penalty
    cross *= 2
    return Match(cross2=cross, power=_products(octets.weight, np.square(words)))


def _products(rows: Floats, words: Floats) -> Floats:
    """Products `[M, 8] x [256, 8] -> [M, 256]`, a block at a time.

    Larger products start BLAS threads; inside the encoder's threads these cost a factor of three on two busy
    cores.
    """
    return np.asarray((rows.reshape(-1, 32, 8) @ words.T).reshape(-1, len(words)))


def _search_scales(match: Match, octets: Octets, unit: Floats) -> tuple[Floats, Ints]:
    """First choice of block scale `[N]` and scale codes `[N, 8]` from sampled gain curves."""
    weight = octets.weight.reshape(-1, 8, 32)
    pull = octets.pull.reshape(-1, 8, 32)
    norm = np.sqrt((np.square(pull) / weight).sum(axis=2) / weight.sum(axis=2)) / np.float32(_CODEBOOK_RMS)
    norm = np.maximum(norm, np.float32(1e-6))  # [N, 8]
    curve = np.stack(
        [
            match.gain(np.repeat(norm.ravel() * np.float32(r), 4)).reshape(-1, 8, 4).sum(axis=2)
            for r in _RATIOS
        ],
        axis=2,
    )  # [N, 8, ratios]
    peak = (norm * np.asarray(_RATIOS, np.float32)[curve.argmax(axis=2)]).max(axis=1)
    steps = (np.arange(16, dtype=np.float32) + np.float32(0.5)) * np.float32(0.25)
    best = np.full(len(norm), -np.inf, np.float32)
    scale = np.zeros(len(norm), np.float32)
    codes = np.zeros(norm.shape, np.intp)
    for top in _PEAKS:
        trial = _as_stored(peak / np.float32(top * 0.25), unit)
        gains = _on_curve(curve, trial[:, None, None] * steps / norm[:, :, None])  # [N, 8, 16]
        total = gains.max(axis=2).sum(axis=1)
        better = total > best
        best[better], scale[better] = total[better], trial[better]
        codes[better] = gains[better].argmax(axis=2)
    return scale, codes


def _on_curve(curve: Floats, ratio: Floats) -> Floats:
    """Linear interpolation of gain curves over the logarithm of the ratio; far outside is ever worse."""
    place = np.log(np.maximum(ratio, np.float32(1e-9)) / np.float32(_RATIOS[0])) / np.float32(np.log(_STEP))
    inside = np.clip(place, 0, len(_RATIOS) - 1.001)
    low = inside.astype(np.intp)
    part = inside - low
    left = np.take_along_axis(curve, low, axis=2)
    right = np.take_along_axis(curve, low + 1, axis=2)
    return np.asarray(left + part * (right - left) - np.abs(place - inside), np.float32)


def _as_stored(scale: Floats, unit: Floats) -> Floats:
    """The scale that remains after rounding `scale * unit` to F16."""
    return np.asarray((scale * unit).astype(np.float16).astype(np.float32) / unit, np.float32)


def _per_octet(scale: Floats, codes: Ints) -> Floats:
    groups = scale[:, None] * (codes.astype(np.float32) + np.float32(0.5)) * np.float32(0.25)
    return np.repeat(groups.ravel(), 4)


def _improve_codes(match: Match, scale: Floats, codes: Ints) -> Ints:
    """Move each group's scale code by at most one step where that lowers the error."""
    trials = np.stack([np.clip(codes + step, 0, 15) for step in (0, -1, 1)])  # [3, N, 8]
    gains = np.stack([match.gain(_per_octet(scale, t)).reshape(-1, 8, 4).sum(axis=2) for t in trials])
    return np.asarray(np.take_along_axis(trials, gains.argmax(axis=0)[None], axis=0)[0])


def _refit(match: Match, words: Ints, codes: Ints, unit: Floats) -> Floats:
    """Least-squares block scale `[N]`, as stored, for fixed scale codes and codewords."""
    rows = np.arange(len(words))
    lift = _per_octet(np.ones(len(codes), np.float32), codes)
    pull = (match.cross2[rows, words] * lift).reshape(-1, 32).sum(axis=1)
    power = (match.power[rows, words] * np.square(lift)).reshape(-1, 32).sum(axis=1)
    return _as_stored(np.maximum(pull / (2 * power), np.float32(0)), unit)


def _pack(octets: Octets, words: Ints, codes: Ints, scale: npt.NDArray[np.float16]) -> Bytes:
    """Blocks `[N, 66]`: F16 scale, then per group four codewords, four sign indices and the scale code."""
    minus = octets.minus.copy()
    odd = np.flatnonzero(octets.odd)
    wrong = (octets.pull[odd] * iq2_codewords()[words[odd]]).argmin(axis=1)
    minus[odd, wrong] ^= True
    signs = np.packbits(minus[:, :7], axis=1, bitorder="little").reshape(-1, 8, 4).astype(np.uint32)
    upper = codes.astype(np.uint32) << np.uint32(28)
    for octet in range(4):
        upper |= signs[:, :, octet] << np.uint32(7 * octet)
    blocks = np.empty((len(codes), 66), np.uint8)
    blocks[:, :2] = scale[:, None].view(np.uint8)
    groups = blocks[:, 2:].reshape(-1, 8, 8)
    groups[:, :, :4] = words.reshape(-1, 8, 4)
    groups[:, :, 4:] = upper.astype("<u4")[:, :, None].view(np.uint8)
    return blocks
