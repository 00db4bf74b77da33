"""What a model is made of and how much of it fits: shape, types, bytes, context that memory can hold.

Pure arithmetic on a shape and a list of tensors.  Loads no weight and imports no torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import SettingError
from engine.gguf.file import GGUFFile
from engine.gguf.quants import QuantType
from engine.kernels.rows import IndexLayout, KvLayout
from engine.model.published import SPECS, two_bit_tensors
from engine.model.spec import SPARSE_RATIO, ModelSpec
from engine.model.tensors import check

Tensor = tuple[str, QuantType, int]  # name, block format, bytes

FLOOR_BYTES = 4 * 2**30  # left to the system
CONVERSATIONS = (8192, 32768, 131072)  # tokens
SIZE_UNITS: Mapping[str, int] = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
}
CLASSES = (  # the first part found in a tensor's name decides
    ("_exps", "routed experts"),
    ("shexp", "shared experts"),
    ("norm", "norms"),
    ("token_embd", "embedding"),
    ("hc_", "hyper-connections"),
    ("indexer", "indexer"),
    ("compressor", "compressors"),
    ("attn_", "attention"),
    ("output", "output"),
    ("tid2eid", "hash routing"),
    ("ffn_gate_inp", "routers"),
    ("exp_probs", "routers"),
)


@dataclass(frozen=True, slots=True)
class RowFormat:
    """How cache rows are stored: bytes of one attention row and of one index row."""

    name: str
    attention: int
    index: int


def row_formats(spec: ModelSpec) -> list[RowFormat]:
    """Float32, BF16, and what the engine stores by default: the model's own codes."""
    width, index = spec.head_dim, spec.index_dim
    packed = KvLayout(spec.nope_dim, spec.rope_dim).nbytes
    return [
        RowFormat("float32", 4 * width, 4 * index),
        RowFormat("bfloat16", 2 * width, 2 * index),
        RowFormat("fp8+fp4", packed, IndexLayout(index).nbytes),
    ]


def bytes_per_token(spec: ModelSpec, rows: RowFormat) -> float:
    """Growth of one conversation's cache: a row each `ratio` tokens in every compressed layer."""
    total = 0.0
    for ratio in spec.ratios[: spec.n_layer]:
        if ratio:
            total += (rows.attention + (rows.index if ratio == SPARSE_RATIO else 0)) / ratio
    return total


def fixed_bytes(spec: ModelSpec, rows: RowFormat) -> int:
    """What a conversation needs at any length: raw windows, and half-filled groups in float32."""
    state = 0
    for ratio in spec.ratios[: spec.n_layer]:
        if ratio == SPARSE_RATIO:  # two groups of doubled width, values and scores
            state += 2 * (2 * ratio) * (2 * spec.head_dim + 2 * spec.index_dim) * 4
        elif ratio:
            state += 2 * ratio * spec.head_dim * 4
    return spec.n_layer * spec.window * rows.attention + state


def inspect_file(path: Path, *, memory: int | None) -> dict[str, Any]:
    """Report on a model file; ModelFileError when it is not one of ours."""
    file = GGUFFile.open(path)
    spec = ModelSpec.from_metadata(file.metadata)
    check(file, spec)
    tensors = [(info.name, info.type, info.nbytes) for info in file.tensors.values()]
    return {"file": str(path), **_report(spec, tensors, memory=memory)}


def published(name: str, *, memory: int | None) -> dict[str, Any]:
    """Report on a published shape with the tensors of its 2-bit recipe."""
    if name not in SPECS:
        raise SettingError(f"--spec is {name!r}; allowed are {', '.join(SPECS)}")
    return _report(SPECS[name], list(two_bit_tensors(SPECS[name])), memory=memory)


def parse_size(text: str) -> int:
    """Bytes of a size such as 119GiB or 128GB; SettingError otherwise."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*", text)
    unit = SIZE_UNITS.get(found[2].upper()) if found else None
    if found is None or unit is None:
        raise SettingError(f"size {text!r} is not understood; write a number and a unit, for example 119GiB")
    return int(float(found[1]) * unit)


def _report(spec: ModelSpec, tensors: Sequence[Tensor], *, memory: int | None) -> dict[str, Any]:
    weights = sum(nbytes for _, _, nbytes in tensors)
    report: dict[str, Any] = {
        "name": spec.name,
        "shape": _shape(spec),
        "weight_bytes": weights,
        "bytes_by_class": _group((_tensor_class(name), nbytes) for name, _, nbytes in tensors),
        "bytes_by_type": _group((kind.name, nbytes) for _, kind, nbytes in tensors),
    }
    caches = []
    for rows in row_formats(spec):
        entry: dict[str, Any] = {
            "rows": rows.name,
            "bytes_per_token": round(bytes_per_token(spec, rows), 2),
            "fixed_bytes": fixed_bytes(spec, rows),
        }
        if memory is not None:
            entry |= _fits(spec, rows, memory - weights - FLOOR_BYTES)
        caches.append(entry)
    if memory is not None:
        report["memory_bytes"], report["system_floor_bytes"] = memory, FLOOR_BYTES
    return {**report, "caches": caches}


def _fits(spec: ModelSpec, rows: RowFormat, room: int) -> dict[str, Any]:
    """The largest context, the tokens that can live at once in such contexts, and conversations by size."""
    growth, fixed = bytes_per_token(spec, rows), fixed_bytes(spec, rows)

    def count(tokens: int) -> int:
        return max(0, int(room // (fixed + growth * tokens)))

    largest = (
        min(spec.context_length, max(0, int((room - fixed) / growth))) if growth else spec.context_length
    )
    sizes = sorted({size for size in CONVERSATIONS if size < spec.context_length} | {spec.context_length})
    return {
        "largest_context_tokens": largest,
        "live_tokens": largest * max(1, count(largest)) if largest else 0,
        "conversations": {str(size): count(size) for size in sizes},
    }


def _shape(spec: ModelSpec) -> dict[str, Any]:
    ratios = spec.ratios[: spec.n_layer]
    return {
        "layers": spec.n_layer,
        "window_layers": ratios.count(0),
        "sparse_layers": ratios.count(SPARSE_RATIO),
        "heavy_layers": sum(ratio not in (0, SPARSE_RATIO) for ratio in ratios),
        "hidden": spec.hidden,
        "vocabulary": spec.vocab,
        "heads": spec.n_head,
        "head_dim": spec.head_dim,
        "experts": spec.n_expert,
        "experts_used": spec.n_expert_used,
        "window": spec.window,
        "context_tokens": spec.context_length,
    }


def _tensor_class(name: str) -> str:
    """What a tensor is for, by its published name."""
    for part, kind in CLASSES:
        if part in name:
            return kind
    return "other"


def _group(entries: Iterable[tuple[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for key, nbytes in entries:
        found[key] = found.get(key, 0) + nbytes
    return dict(sorted(found.items(), key=lambda entry: -entry[1]))


def describe(report: dict[str, Any]) -> str:
    """The report as text."""
    lines = [report["name"] or "unnamed model", *_pairs(report["shape"])]
    lines.append(f"weights: {_size(report['weight_bytes'])}")
    for title in ("bytes_by_class", "bytes_by_type"):
        lines += [f"  {name}: {_size(value)}" for name, value in report[title].items()]
    if "memory_bytes" in report:
        memory, floor = report["memory_bytes"], report["system_floor_bytes"]
        lines.append(f"memory: {_size(memory)}, of which {_size(floor)} are left to the system")
        if memory < report["weight_bytes"] + floor:
            lines.append(f"  too small: weights and system need {_size(report['weight_bytes'] + floor)}")
    for cache in report["caches"]:
        lines.append(
            f"cache with {cache['rows']} rows: {cache['bytes_per_token']:g} bytes a token "
            f"and {_size(cache['fixed_bytes'])} a conversation"
        )
        if "largest_context_tokens" in cache:
            lines += _fit_lines(cache)
    return "\n".join(lines)


def _fit_lines(cache: dict[str, Any]) -> list[str]:
    counts = ", ".join(f"{count} of {size}" for size, count in cache["conversations"].items())
    return [
        f"  largest context: {cache['largest_context_tokens']} tokens",
        f"  live tokens in contexts of that size: {cache['live_tokens']}",
        f"  conversations by their tokens: {counts}",
    ]


def _pairs(shape: dict[str, Any]) -> list[str]:
    return [f"  {key.replace('_', ' ')}: {value}" for key, value in shape.items()]


def _size(nbytes: int) -> str:
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if nbytes >= scale:
            return f"{nbytes / scale:.2f} {unit}"
    return f"{nbytes} B"
