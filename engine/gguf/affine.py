"""Fitting blocks of Q2_K and Q4_K: scale and minimum per sub-block, both quantised, and the codes.

Knows the affine form `d * scale * code - dmin * minimum` and nothing of byte layouts, files or tensors.
The error minimised is the importance-weighted sum of squares.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np

from engine.gguf.quants import Floats

# First guesses for the ends of a sub-block's range, as parts of its true ends.
_ENDS: Final = (1.0, 0.85, 0.7)
# First guesses for the block's scale, as parts of the one that puts the widest sub-block at the top code.
_PARTS: Final = (1.0, 0.93, 1.07)
_ROUNDS: Final = 3
# Steps below this are zero: far under the smallest F16, and their inverse stays finite.
_TINY: Final = 1e-12


@dataclass(frozen=True, slots=True)
class Form:
    """Limits of a format: largest value code, largest scale and minimum code."""

    top_code: int
    top_scale: int


@dataclass(frozen=True, slots=True)
class Sums:
    """Weighted sums per sub-block for given codes q: of x, q, x*q, q*q and of the weights."""

    x: Floats
    q: Floats
    xq: Floats
    qq: Floats
    w: Floats


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted chunk of N blocks with S sub-blocks of L values."""

    d: Floats  # [N], as stored in F16
    dmin: Floats  # [N], as stored in F16
    scales: Floats  # [N, S] whole numbers
    mins: Floats  # [N, S] whole numbers
    codes: Floats  # [N, S, L] whole numbers
    error: Floats  # [N] weighted squared error


def fit_affine(values: Floats, weights: Floats, form: Form) -> Fit:
    """Fit `[N, S, L]` finite values with positive weights."""
    step, low = _fit_free(values, weights, form.top_code)
    fits = [_fit_block(values, weights, form, step, low, part) for part in _PARTS]
    return _choose(fits)


def _choose(fits: list[Fit]) -> Fit:
    """The better fit of each block."""
    winner = np.stack([f.error for f in fits]).argmin(axis=0)
    rows = np.arange(len(winner))
    fields = ("d", "dmin", "scales", "mins", "codes", "error")
    return Fit(**{name: np.stack([getattr(f, name) for f in fits])[winner, rows] for name in fields})


def _sums(x: Floats, w: Floats, q: Floats) -> Sums:
    wq = w * q
    return Sums(
        x=(w * x).sum(axis=2),
        q=wq.sum(axis=2),
        xq=(wq * x).sum(axis=2),
        qq=(wq * q).sum(axis=2),
        w=w.sum(axis=2),
    )


def _line(s: Sums) -> tuple[Floats, Floats]:
    """Least-squares step and offset of `x = step * q + offset` with offset at most zero, `[N, S]` each."""
    det = s.w * s.qq - s.q * s.q
    safe = np.where(det > 1e-6 * s.w * s.w, det, np.float32(np.inf))
    step = (s.w * s.xq - s.q * s.x) / safe
    offset = (s.x - step * s.q) / s.w
    only = s.xq / np.where(s.qq > 0, s.qq, np.float32(np.inf))
    inside = offset <= 0
    return np.maximum(np.where(inside, step, only), 0), np.where(inside, offset, np.float32(0))


def _nearest(x: Floats, step: Floats, offset: Floats, top: int) -> Floats:
    """Nearest codes for steps and offsets `[N, S]`; a step of zero gives code 0."""
    inverse = np.divide(1, step, out=np.zeros_like(step), where=step > _TINY)
    q = (x - offset[:, :, None]) * inverse[:, :, None]
    return np.asarray(np.clip(np.rint(q, out=q), 0, top, out=q))


def _error(x: Floats, w: Floats, q: Floats, step: Floats, offset: Floats) -> Floats:
    """Weighted squared error per sub-block, `[N, S]`."""
    rest = q * step[:, :, None]
    rest += offset[:, :, None]
    rest -= x
    return np.asarray(np.einsum("nsl,nsl,nsl->ns", rest, rest, w))


def _fit_free(x: Floats, w: Floats, top: int) -> tuple[Floats, Floats]:
    """Best unquantised step and offset of each sub-block over several starts, `[N, S]` each."""
    low, high = np.minimum(x.min(axis=2), 0), np.maximum(x.max(axis=2), 0)
    best = np.full(low.shape, np.inf, np.float32)
    step, offset = np.zeros_like(low), np.zeros_like(low)
    for a, b in product(_ENDS, _ENDS):
        trial, base = (high * np.float32(b) - low * np.float32(a)) / np.float32(top), low * np.float32(a)
        for _ in range(2):
            q = _nearest(x, trial, base, top)
            trial, base = _line(_sums(x, w, q))
        error = _error(x, w, _nearest(x, trial, base, top), trial, base)
        better = error < best
        best, step, offset = (
            np.where(better, n, o) for n, o in ((error, best), (trial, step), (base, offset))
        )
    return step, offset


def _fit_block(x: Floats, w: Floats, form: Form, step: Floats, low: Floats, part: float) -> Fit:
    """Quantise steps and offsets, then improve codes and the two block scales in turn."""
    top = np.float32(form.top_scale / part)
    d, dmin = _half(step.max(axis=1) / top), _half(-low.min(axis=1) / top)
    scales, mins = _code(step, d, form), _code(-low, dmin, form)
    for round_ in range(_ROUNDS + 1):
        scales, mins, error = _improve(x, w, form, d, dmin, scales, mins)
        if round_ < _ROUNDS:
            q = _nearest(x, d[:, None] * scales, -dmin[:, None] * mins, form.top_code)
            d, dmin = _refit(_sums(x, w, q), scales, mins, d, dmin)
    q = _nearest(x, d[:, None] * scales, -dmin[:, None] * mins, form.top_code)
    return Fit(d=d, dmin=dmin, scales=scales, mins=mins, codes=q, error=error.sum(axis=1))


def _half(x: Floats) -> Floats:
    return np.asarray(x.astype(np.float16).astype(np.float32))


def _code(x: Floats, unit: Floats, form: Form) -> Floats:
    inverse = np.divide(1, unit, out=np.zeros_like(unit), where=unit > _TINY)
    return np.asarray(np.clip(np.rint(x * inverse[:, None]), 0, form.top_scale))


def _improve(
    x: Floats, w: Floats, form: Form, d: Floats, dmin: Floats, scales: Floats, mins: Floats
) -> tuple[Floats, Floats, Floats]:
    """Move each sub-block's two codes by at most one step where that lowers the error."""
    best = np.full(scales.shape, np.inf, np.float32)
    new_scales, new_mins = scales, mins
    for up, down in product((0, -1, 1), (0, -1, 1)):
        s = np.clip(scales + np.float32(up), 0, form.top_scale)
        m = np.clip(mins + np.float32(down), 0, form.top_scale)
        step, offset = d[:, None] * s, -dmin[:, None] * m
        error = _error(x, w, _nearest(x, step, offset, form.top_code), step, offset)
        better = error < best
        best = np.where(better, error, best)
        new_scales, new_mins = np.where(better, s, new_scales), np.where(better, m, new_mins)
    return new_scales, new_mins, best


def _refit(s: Sums, scales: Floats, mins: Floats, d: Floats, dmin: Floats) -> tuple[Floats, Floats]:
    """Least-squares block scales for fixed codes, as stored; the old ones where they are not determined."""
    aa = (scales * scales * s.qq).sum(axis=1)
    ab = -(scales * mins * s.q).sum(axis=1)
    bb = (mins * mins * s.w).sum(axis=1)
    ax, bx = (scales * s.xq).sum(axis=1), -(mins * s.x).sum(axis=1)
    det = aa * bb - ab * ab
    sound = det > 1e-6 * aa * bb
    safe = np.where(sound, det, np.float32(1))
    new_d, new_dmin = (ax * bb - bx * ab) / safe, (bx * aa - ax * ab) / safe
    sound &= (new_d > 0) & (new_dmin >= 0)
    return np.where(sound, _half(new_d), d), np.where(sound, _half(new_dmin), dmin)
