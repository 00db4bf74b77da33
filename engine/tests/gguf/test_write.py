"""The writer of `engine.gguf.write` against the package's own reader and ours, and what it leaves behind."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import EngineError
from engine.gguf.file import GGUFFile, TensorInfo
from engine.gguf.quants import Bytes, QuantType, block
from engine.gguf.write import lay_out, write

METADATA: dict[str, object] = {
    "general.architecture": "deepseek4",
    "text": "żółw 🐢",
    "number": 2**32 - 1,
    "share": 0.1,
    "yes": True,
    "ratios": [0, 4, 128],
    "limits": [10.0, 0.5],
}
Entry = tuple[str, tuple[int, ...], QuantType]


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def content(info: TensorInfo) -> Bytes:
    """Bytes that differ between tensors and between places."""
    return (np.arange(info.nbytes) * 7 + len(info.name) * 31 + info.offset).astype(np.uint8)


def halves(info: TensorInfo) -> Iterator[Bytes]:
    whole = content(info)
    yield from np.array_split(whole, 2)


@st.composite
def entries(draw: st.DrawFn) -> list[Entry]:
    kinds = draw(st.lists(st.sampled_from(QuantType), max_size=6))
    return [
        (
            f"blk.{number}.weight",
            (*draw(st.lists(st.integers(1, 3), max_size=3)), block(kind).values * draw(st.integers(1, 3))),
            kind,
        )
        for number, kind in enumerate(kinds)
    ]


@given(tensors=entries())
def test_both_readers_find_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, tensors: list[Entry]
) -> None:
    path = tmp_path_factory.mktemp("written") / "model.gguf"
    layout = lay_out(METADATA, tensors)
    write(path, layout, halves)
    file, package = GGUFFile.open(path), gguf.GGUFReader(path)

    assert layout.nbytes == path.stat().st_size
    assert [path] == list(path.parent.iterdir())
    assert set(METADATA) == set(file.metadata)
    assert {name: (shape, kind) for name, shape, kind in tensors} == {
        info.name: (info.shape, info.type) for info in file.tensors.values()
    }
    for info, other in zip(layout.tensors, package.tensors, strict=True):
        assert np.array_equal(content(info), file.raw(info.name))
        assert (info.name, info.offset, info.nbytes) == (other.name, other.data_offset, other.n_bytes)
        assert info.shape == tuple(int(size) for size in reversed(other.shape))


def test_metadata_keeps_its_values_and_types(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write(path, lay_out(METADATA, []), halves)
    fields = gguf.GGUFReader(path).fields
    number, array = gguf.GGUFValueType, gguf.GGUFValueType.ARRAY
    types = {name: fields[name].types for name in METADATA}

    assert METADATA | {"share": np.float32(0.1).item()} == {
        name: fields[name].contents() for name in METADATA
    }
    assert [number.UINT32] == types["number"]
    assert [number.FLOAT32] == types["share"]
    assert [number.BOOL] == types["yes"]
    assert [array, number.INT32] == types["ratios"]
    assert [array, number.FLOAT32] == types["limits"]


def test_a_disk_without_room_is_refused_with_the_numbers_before_any_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**9, 10**9 - 5000, 5000))
    layout = lay_out(METADATA, [("big", (8192,), QuantType.F32)])

    with pytest.raises(EngineError, match=rf"needs {layout.nbytes} bytes .* and 5000 .*make room"):
        write(tmp_path / "model.gguf", layout, lambda _: pytest.fail("data was made"))
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("stop", "raised"),
    [
        pytest.param(OSError(errno.ENOSPC, "No space left on device"), EngineError, id="disk_fills_up"),
        pytest.param(KeyboardInterrupt(), KeyboardInterrupt, id="interrupted"),
        pytest.param(None, EngineError, id="data_too_short"),
    ],
)
def test_no_part_of_a_file_is_left_and_an_older_one_is_kept(
    tmp_path: Path, stop: BaseException | None, raised: type[BaseException]
) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"older")

    def data(info: TensorInfo) -> Iterator[Bytes]:
        yield content(info)[:100]
        if stop is not None:
            raise stop

    with pytest.raises(raised):
        write(path, lay_out(METADATA, [("big", (8192,), QuantType.F32)]), data)
    assert {path: b"older"} == {found: found.read_bytes() for found in tmp_path.iterdir()}


def test_room_that_a_killed_writer_took_is_given_back_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = tmp_path / "model.gguf.partial"
    left.write_bytes(bytes(1000))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**6, 0, 0 if left.exists() else 10**6))
    write(tmp_path / "model.gguf", lay_out(METADATA, [("big", (64,), QuantType.F32)]), lambda i: [content(i)])

    assert [tmp_path / "model.gguf"] == list(tmp_path.iterdir())


def test_what_is_no_file_keeps_its_place_and_a_link_its_target(tmp_path: Path) -> None:
    layout = lay_out(METADATA, [("big", (64,), QuantType.F32)])
    pipe, link, target = tmp_path / "pipe", tmp_path / "link", tmp_path / "target"
    os.mkfifo(pipe)
    target.write_bytes(b"older")
    link.symlink_to(target)
    write(link, layout, lambda i: [content(i)])

    with pytest.raises(EngineError, match="is no file"):
        write(pipe, layout, lambda _: pytest.fail("data was made"))
    assert pipe.is_fifo()
    assert (True, layout.nbytes) == (link.is_symlink(), target.stat().st_size)
