"""Packed weights as the device kernels read them: GGUF blocks taken apart into planes in the order of
reading.

Every layout is a permutation of the file's bits, so nothing is lost and nothing is added.  A matrix [N, K] is
cut in tiles of 16 rows and blocks of 256 values; what a warp reads of one tile and block lies together, 16
bytes a lane.  Lane 4 g + t of a warp works on rows g and g + 8 of the tile; of every 32-value step s it owns
the values 32 s + 8 t + e, e = 0..7, which is the order of a matrix instruction's operand.
Works on any device, knows nothing of tensor names.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.gguf import quants

TILE = 16  # rows that one warp works on
SUPER = 256  # values in a block of the 2-bit formats
STEP = 32  # values in a block of Q8_0, a group of IQ2_XXS and a step of the kernels


@dataclass(frozen=True, slots=True)
class Q8:
    """Q8_0: value = code * scale of its 32-value block.

    A tile's block is 8 chunks of 16 bytes a lane: for rows g, then g + 8, the steps 0 1, 2 3, 4 5, 6 7.
    """

    codes: Tensor  # int8 [..., N / 16, K / 256, 4096]
    scales: Tensor  # float16 [..., N / 16, K / 256, 16, 8]


@dataclass(frozen=True, slots=True)
class Half:
    """F16: a tile's block is 16 chunks of 8 values a lane: of each step rows g, then g + 8."""

    values: Tensor  # float16 [..., N / 16, K / 256, 4096]


@dataclass(frozen=True, slots=True)
class IQ2:
    """IQ2_XXS: lane t's words are codebook bytes of groups 0-3 and 4-7, then sign bytes of the same groups.

    A sign byte's low seven bits are signs.  The top bits of lane t's bytes in rows g and g + 8 hold the
    scales of four groups 4 (t mod 2) + b of row g + 8 (t / 2): bit 3 stands in byte b of row g, bit 2 in
    byte 4 + b, bits 1 and 0 likewise in row g + 8.
    """

    words: Tensor  # int32 [..., N / 16, K / 256, 16, 4, 4]: row of the tile, lane, word
    scales: Tensor  # float16 [..., N / 16, K / 256, 16]


@dataclass(frozen=True, slots=True)
class Q2:
    """Q2_K: values e = 4 h .. 4 h + 3 of lane t in step s are bits 2 r of the bytes of word (2 s + h) / 4.

    r is (2 s + h) mod 4.  `minors` holds the eight even 16-value sub-blocks, then the odd ones: scale in the
    low four bits, minimum in the high ones.  value = d * scale * code - dmin * minimum.
    """

    words: Tensor  # int32 [..., N / 16, K / 256, 16, 4, 4]
    minors: Tensor  # uint8 [..., N / 16, K / 256, 16, 16]
    scales: Tensor  # float16 [..., N / 16, K / 256, 16, 2]: d, dmin


def split_q8(raw: Tensor) -> Q8:
    """Planes of Q8_0 bytes [..., N, K / 32 * 34]."""
    blocks = raw.unflatten(-1, (-1, 34))
    codes = blocks[..., 2:].unflatten(-1, (4, 8)).unflatten(-3, (-1, 4, 2))  # [..., N, B, p, s, t, e]
    chunks = _swapped(_tiled(codes, -6).unflatten(-5, (2, 8)))
    scales = _half(blocks[..., :2]).squeeze(-1).unflatten(-1, (-1, 8))
    return Q8(chunks.flatten(-6).view(torch.int8), _tiled(scales, -3).contiguous())


def join_q8(planes: Q8) -> Tensor:
    """The bytes again."""
    scales, codes = _bytes(_rows(planes.scales, -1).unsqueeze(-1)), _q8_codes(planes).view(torch.uint8)
    return torch.cat((scales, codes), -1).flatten(-3)


def split_half(matrix: Tensor) -> Half:
    """The plane of F16 values [..., N, K]."""
    steps = matrix.unflatten(-1, (-1, 8, 4, 8))  # [..., N, B, s, t, e]
    return Half(_tiled(steps, -5).unflatten(-4, (2, 8)).movedim(-3, -5).flatten(-5))


def join_half(plane: Half) -> Tensor:
    """The values again, float16 [..., N, K]."""
    chunks = plane.values.unflatten(-1, (8, 2, 8, 4, 8)).movedim(-5, -3)  # [..., T, B, r, g, s, t, e]
    return _rows(chunks.flatten(-5, -4), -3).flatten(-4)


def split_iq2(raw: Tensor) -> IQ2:
    """Planes of IQ2_XXS bytes [..., N, K / 256 * 66]."""
    blocks = raw.unflatten(-1, (-1, 66))
    groups = blocks[..., 2:].unflatten(-1, (8, 8))  # [..., q, 8]
    books = _tiled(groups[..., :4].transpose(-1, -2), -4)  # [..., t, q]
    packed = _unsigned(groups[..., 4:].contiguous().view(torch.int32).squeeze(-1))  # [..., q]
    signs = (packed.unsqueeze(-2) >> _lanes(raw) & 127).to(torch.uint8)  # [..., t, q]
    minor = _tiled((packed >> 28).to(torch.uint8), -3)
    bytes_ = torch.cat((books, _tiled(signs, -4) | _spread(minor) << 7), -1).contiguous()
    return IQ2(bytes_.view(torch.int32), _tiled(_half(blocks[..., :2]).squeeze(-1), -2).contiguous())


def join_iq2(planes: IQ2) -> Tensor:
    """The bytes again."""
    books, signs, minor = _iq2_parts(planes)
    packed = (signs.long() << _lanes(signs)).sum(-2) | minor.long() << 28
    tail = _bytes(_signed(packed).unsqueeze(-1))
    groups = torch.cat((books.transpose(-1, -2), tail), -1).flatten(-2)
    return torch.cat((_bytes(_rows(planes.scales).unsqueeze(-1)), groups), -1).flatten(-2)


def split_q2(raw: Tensor) -> Q2:
    """Planes of Q2_K bytes [..., N, K / 256 * 84]."""
    blocks = raw.unflatten(-1, (-1, 84))
    shifts = torch.arange(0, 8, 2, device=raw.device, dtype=torch.uint8)
    halves = blocks[..., 16:80].unflatten(-1, (2, 1, 32))
    values = halves >> shifts.unsqueeze(-1) & 3  # [..., 2, 4, 32]: values in order
    lanes = values.flatten(-3).unflatten(-1, (8, 4, 2, 4))  # [..., s, t, h, byte]
    ordered = lanes.movedim(-3, -4).flatten(-3, -2).unflatten(-2, (4, 4))  # [..., t, word, r, byte]
    packed = (ordered << shifts.unsqueeze(-1)).sum(-2, dtype=torch.uint8)
    minors = blocks[..., :16].unflatten(-1, (8, 2)).transpose(-1, -2).flatten(-2)
    words, scales = packed.view(torch.int32).squeeze(-1), _half(blocks[..., 80:])
    return Q2(
        _tiled(words, -4).contiguous(), _tiled(minors, -3).contiguous(), _tiled(scales, -3).contiguous()
    )


def join_q2(planes: Q2) -> Tensor:
    """The bytes again."""
    values = _q2_codes(planes).unflatten(-1, (2, 4, 32))
    shifts = torch.arange(0, 8, 2, device=values.device, dtype=torch.uint8).unsqueeze(-1)
    codes = (values << shifts).sum(-2, dtype=torch.uint8).flatten(-2)
    return torch.cat((_sub_blocks(planes), codes, _bytes(_rows(planes.scales, -1))), -1).flatten(-2)


def decode_q8(planes: Q8) -> Tensor:
    """Values, float32 [..., N, K]."""
    return (_q8_codes(planes).float() * _rows(planes.scales, -1).float().unsqueeze(-1)).flatten(-3)


def decode_iq2(planes: IQ2) -> Tensor:
    """Values, float32 [..., N, K]."""
    books, signs, minor = _iq2_parts(planes)
    scale = _rows(planes.scales).float().unsqueeze(-1) * (0.5 + minor.float()) * 0.25
    codewords = torch.from_numpy(quants.iq2_codewords().copy()).to(books.device)
    both = torch.from_numpy(quants.iq2_signs().copy()).to(books.device)
    magnitudes, plus = codewords[books.transpose(-1, -2).long()], both[signs.transpose(-1, -2).long()]
    values: Tensor = (scale[..., None, None] * magnitudes * plus).flatten(-4)
    return values


def decode_q2(planes: Q2) -> Tensor:
    """Values, float32 [..., N, K]."""
    codes = _q2_codes(planes).unflatten(-1, (16, 16)).float()
    subs = _sub_blocks(planes)
    d, dmin = _rows(planes.scales, -1).float().unbind(-1)
    scale, low = d.unsqueeze(-1) * (subs & 15).float(), dmin.unsqueeze(-1) * (subs >> 4).float()
    return (codes * scale.unsqueeze(-1) - low.unsqueeze(-1)).flatten(-3)


def codebook_selectors() -> Tensor:
    """Codewords as byte selectors, int32 [256]: nibble i is 0, 1, 2 for magnitude 8, 25, 43 of value i."""
    kinds = torch.from_numpy(quants.iq2_codewords().copy()).long()
    kinds = (kinds > 8).long() + (kinds > 25).long()
    return _signed((kinds << torch.arange(0, 32, 4)).sum(-1))


def sign_selectors() -> Tensor:
    """Signs as selector bits, int32 [128]: nibble i is 4 where value i is negative."""
    minus = (torch.from_numpy(quants.iq2_signs().copy()) < 0).long() * 4
    return _signed((minus << torch.arange(0, 32, 4)).sum(-1))


def _tiled(plane: Tensor, rows: int) -> Tensor:
    """[..., N, B, rest] to [..., N / 16, B, 16, rest]; `rows` is the dimension of N."""
    return plane.unflatten(rows, (-1, TILE)).transpose(rows, rows + 1)


def _rows(plane: Tensor, last: int = 0) -> Tensor:
    """[..., T, B, 16, rest] to [..., 16 T, B, rest]; the dimension of the tile's rows is `last` - 1."""
    return plane.transpose(last - 2, last - 1).flatten(last - 3, last - 2)


def _swapped(chunks: Tensor) -> Tensor:
    """[..., r, g, p, s, t, e] to [..., r, p, g, t, s, e], and back again."""
    return chunks.transpose(-5, -4).transpose(-3, -2)


def _q8_codes(planes: Q8) -> Tensor:
    """Codes in order, int8 [..., N, B, 8, 32]."""
    codes = _swapped(planes.codes.unflatten(-1, (2, 4, 8, 4, 2, 8))).flatten(
        -6, -5
    )  # [..., T, B, 16, p, s, t, e]
    return _rows(codes, -4).flatten(-4, -3).flatten(-2)


def _q2_codes(planes: Q2) -> Tensor:
    """Codes in order, uint8 [..., N, B, 256]."""
    words = _rows(planes.words, -2).contiguous()
    shifts = torch.arange(0, 8, 2, device=words.device, dtype=torch.uint8).unsqueeze(-1)
    parts = words.view(torch.uint8).unflatten(-1, (4, 1, 4)) >> shifts & 3  # [..., t, word, r, byte]
    return parts.flatten(-3, -2).unflatten(-2, (8, 2)).movedim(-4, -3).flatten(-4)


def _sub_blocks(planes: Q2) -> Tensor:
    """Scale bytes in the order of the values, uint8 [..., N, B, 16]."""
    return _rows(planes.minors, -1).unflatten(-1, (2, 8)).transpose(-1, -2).flatten(-2)


def _half(raw: Tensor) -> Tensor:
    return raw.contiguous().view(torch.float16)


def _lanes(like: Tensor) -> Tensor:
    """Where the signs of lane t begin, [4, 1]."""
    return torch.arange(0, 28, 7, device=like.device).unsqueeze(-1)


def _iq2_parts(planes: IQ2) -> tuple[Tensor, Tensor, Tensor]:
    """Codebook and sign bytes uint8 [..., N, B, t, q] and scales [..., N, B, q]."""
    parts = planes.words.view(torch.uint8)
    signs = parts[..., 8:]
    return _rows(parts[..., :8], -2), _rows(signs & 127, -2), _rows(_gathered(signs >> 7), -1)


def _places(like: Tensor) -> Tensor:
    """Which bit of a scale a row r and a half h of the bytes hold, [r, 1, 1, h, 1]."""
    return torch.tensor([[3, 2], [1, 0]], dtype=torch.uint8, device=like.device)[:, None, None, :, None]


def _spread(minor: Tensor) -> Tensor:
    """Scales [..., 16, q] as one bit in every sign byte [..., 16, t, q]."""
    four = minor.unflatten(-2, (2, 8)).unflatten(-1, (2, 4)).transpose(-4, -3)  # [..., g, r, h, b]
    bits = four.flatten(-3, -2)[..., None, :, :, None, :] >> _places(minor) & 1  # [..., r, g, t, h, b]
    return bits.flatten(-2).flatten(-4, -3)


def _gathered(bits: Tensor) -> Tensor:
    """The scales again."""
    parts = bits.unflatten(-1, (2, 4)).unflatten(-4, (2, 8)) << _places(bits)  # [..., r, g, t, h, b]
    four = parts.sum((-5, -2), dtype=torch.uint8).unflatten(-2, (2, 2))  # [..., g, r, h, b]
    return four.transpose(-4, -3).flatten(-2).flatten(-3, -2)


def _bytes(values: Tensor) -> Tensor:
    return values.contiguous().view(torch.uint8)


def _unsigned(words: Tensor) -> Tensor:
    """int32 bits as int64 0 .. 2^32 - 1."""
    return words.long() & 0xFFFFFFFF


def _signed(words: Tensor) -> Tensor:
    """The low 32 bits of int64 as int32."""
    return torch.where(words >= 1 << 31, words - (1 << 32), words).int()
