"""From a model file to device weights: the same bits as from the generator, or a clear refusal."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.cli import main
from engine.device.cache import DeviceCache
from engine.device.fit import WORK, Need, cache_bytes, free_bytes
from engine.device.load import load, time_load
from engine.device.progress import Bar
from engine.device.source import FileSource
from engine.device.synthetic import Synthetic, published, write_model
from engine.device.weights import DeviceWeights
from engine.errors import EngineError, ModelFileError
from engine.gguf.file import GGUFFile
from engine.inspect import inspect_file
from engine.model.published import SPECS
from engine.tests.device.small import SMALL

CPU = torch.device("cpu")
SINGLE = torch.tensor(1e-6).item()  # a file's numbers are float32


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A synthetic model of the shape `SMALL` as a file."""
    path = tmp_path_factory.mktemp("written") / "synthetic.gguf"
    write_model(path, SMALL, io.StringIO(), device=CPU)
    return path


def tensors(part: object) -> Iterator[Tensor]:
    """Every tensor of a tree of dataclasses and tuples."""
    if isinstance(part, Tensor):
        yield part
    elif isinstance(part, tuple):
        for item in part:
            yield from tensors(item)
    elif is_dataclass(part):
        for field in fields(part):
            yield from tensors(getattr(part, field.name))


def test_a_synthetic_model_is_written_with_the_names_shapes_and_formats_of_the_recipe(written: Path) -> None:
    source, file = Synthetic(SMALL, CPU), GGUFFile.open(written)
    report = inspect_file(written, memory=None)

    assert {t.name: (t.shape, source.type(t.name)) for t in source.tensors()} == {
        info.name: (info.shape, info.type) for info in file.tensors.values()
    }
    assert SMALL.n_layer == report["shape"]["layers"]


@settings(max_examples=12)
@given(piece=st.integers(1 << 12, 1 << 20), threads=st.integers(1, 5))
def test_every_tensor_comes_back_bit_by_bit_in_any_pieces(written: Path, piece: int, threads: int) -> None:
    generator, told = Synthetic(SMALL, CPU), list[int]()
    with FileSource(GGUFFile.open(written), CPU, threads=threads, piece=piece, told=told.append) as source:
        for tensor in generator.tensors():
            found, expected = source.raw(tensor.name), generator.raw(tensor.name)

            assert generator.type(tensor.name) is source.type(tensor.name)
            assert expected.dtype == found.dtype
            assert torch.equal(expected, found)
    assert sum(info.nbytes for info in GGUFFile.open(written).tensors.values()) == sum(told)
    assert max(told) <= piece


def test_loaded_weights_are_those_of_the_generator(written: Path) -> None:
    shown = io.StringIO()
    loaded = load(written, CPU, context=4096, shown=shown)
    made = DeviceWeights.load(SMALL, Synthetic(SMALL, CPU))
    pairs = list(zip(tensors(made), tensors(loaded), strict=True))

    assert len(pairs) > 100
    assert all(torch.equal(expected, found) for expected, found in pairs)
    assert replace(SMALL, hc_eps=SINGLE, rms_eps=SINGLE) == loaded.spec
    assert "0 s left" in shown.getvalue().splitlines()[-1]


@pytest.mark.device
def test_a_card_gets_the_bits_of_the_generator_through_pinned_memory(tmp_path: Path) -> None:
    card = torch.device("cuda")
    write_model(tmp_path / "synthetic.gguf", SMALL, io.StringIO(), device=card)
    loaded = load(tmp_path / "synthetic.gguf", card, context=4096, shown=io.StringIO())
    made = DeviceWeights.load(SMALL, Synthetic(SMALL, card))
    pairs = list(zip(tensors(made), tensors(loaded), strict=True))

    assert len(pairs) > 100
    assert all(found.is_cuda and torch.equal(expected, found) for expected, found in pairs)


def test_a_file_that_shrinks_while_it_is_read_is_named(tmp_path: Path, written: Path) -> None:
    path = tmp_path / "shrinks.gguf"
    path.write_bytes(written.read_bytes())
    file = GGUFFile.open(path)
    with FileSource(file, CPU) as source:
        os.truncate(path, path.stat().st_size // 2)

        with pytest.raises(ModelFileError, match=r"shrinks\.gguf.*output_b.*now ends at.*changed while"):
            source.raw(f"blk.{SMALL.n_layer - 1}.attn_output_b.weight")


def test_what_a_model_takes_is_what_its_cache_and_weights_take() -> None:
    cache = DeviceCache.empty(SMALL, CPU, slots=2, pages=14, most=7)

    assert sum(tensor.nbytes for tensor in tensors((cache.layers, cache.table))) == cache_bytes(SMALL, 800, 2)


def test_a_model_that_does_not_fit_is_refused_with_the_numbers() -> None:
    spec = SPECS["v4-flash"]
    need = Need(spec, weights=86_714_775_900, context=1 << 20)
    need.check(need.total, "this card")
    longest = need.longest(need.total - 1)

    with pytest.raises(
        EngineError,
        match=rf"80\.76 GiB of weights.*1 x 1,048,576.*and .* are free; {longest:,} tokens would fit",
    ):
        need.check(need.total - 1, "this card")
    with pytest.raises(EngineError, match=r"24\.00 GiB are free; no context would fit; use fewer layers"):
        need.check(24 * 2**30, "this card")


@given(free=st.integers(WORK, WORK + (1 << 33)))
def test_the_context_that_a_refusal_names_fits_and_one_page_more_does_not(free: int) -> None:
    need = Need(SPECS["v4-flash"], weights=1 << 30, context=1 << 20)
    longest = need.longest(free)

    assert not longest or replace(need, context=longest).total <= free
    assert longest == need.context or replace(need, context=longest + 128).total > free


def test_free_memory_shared_with_the_host_counts_what_its_file_cache_can_give() -> None:
    lines = ["MemTotal: 9 kB", "MemFree: 1 kB", "MemAvailable:  7000 kB"]

    assert 7000 * 1024 == free_bytes(CPU, lines)


@pytest.mark.parametrize(("shared", "free"), [(False, 50 + 30), (True, 7000 * 1024 + 30)])
def test_memory_that_this_process_holds_unused_is_free(
    shared: bool, free: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a first load leaves to torch's allocator must not refuse the second one."""
    stands_for = {
        "memory_reserved": lambda _: 40,
        "memory_allocated": lambda _: 10,
        "mem_get_info": lambda _: (50, 100),
        "get_device_properties": lambda _: SimpleNamespace(is_integrated=shared),
    }
    for name, answer in stands_for.items():
        monkeypatch.setattr(torch.cuda, name, answer)

    assert free == free_bytes(torch.device("cuda"), ["MemAvailable: 7000 kB"])


def test_a_refused_file_is_not_read(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.device.load.free_bytes", lambda _: WORK)

    with pytest.raises(EngineError, match="does not fit on the CPU"):
        load(written, CPU, shown=io.StringIO())


@pytest.mark.parametrize("terminal", [True, False])
def test_the_bar_moves_on_a_terminal_and_writes_ten_lines_elsewhere(terminal: bool) -> None:
    stream = io.StringIO()
    stream.isatty = lambda: terminal  # type: ignore[method-assign]
    ticks = iter(range(10_000))
    bar = Bar("model", 1000 << 20, stream, now=lambda: next(ticks) / 100)
    for _ in range(1000):
        bar.add(1 << 20)
    text = stream.getvalue()

    assert (1 if terminal else 10) == text.count("\n")
    assert text.endswith(f"[{'#' * 30}]   0.98 of 0.98 GiB,  0.10 GB/s,   0 s left\n")
    assert 10 <= text.count("model") <= 110


def test_loads_are_timed_one_after_the_other(written: Path) -> None:
    lines: list[str] = []
    report = time_load(written, CPU, times=2, context=4096, say=lines.append)

    assert written.stat().st_size == report["bytes"]
    assert 2 == len(report["loads"]) == len(lines)
    assert all(run["gb_s"] > 0 for run in report["loads"])


def test_layers_and_names_of_a_published_shape_are_checked() -> None:
    assert published("v4-flash", 22).ratios == SPECS["v4-flash"].ratios[:22]
    assert published("v4-flash", None) == SPECS["v4-flash"]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        pytest.param(["--synthetic", "v4-flash", "--write", "none/m.gguf"], 2, "--write", id="no_folder"),
        pytest.param(["--synthetic", "x", "--write", "m.gguf"], 2, "v4-flash", id="no_such_shape"),
        pytest.param(["--load", "none.gguf"], 2, "none.gguf does not exist", id="no_file"),
        pytest.param(["--load", __file__], 1, "torch sees none", id="no_card"),
        pytest.param(["--write", "m.gguf"], 2, "--synthetic", id="nothing_to_write"),
    ],
)
def test_wrong_words_give_one_clear_message(
    words: list[str],
    code: int,
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    assert code == main(["bench", *words])
    assert message in capsys.readouterr().err


NEEDED_ELSEWHERE = ("llguidance", "tokenizers", "starlette", "uvicorn", "msgspec", "anyio", "gguf", "httpx2")


def test_the_device_path_needs_torch_triton_and_numpy_alone() -> None:
    """Every module of it, and the command up to the point where it asks for a card."""
    program = f"""
import importlib, pkgutil, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {NEEDED_ELSEWHERE!r}:
            raise ModuleNotFoundError(f"no module {{name}}", name=name)
sys.meta_path.insert(0, Blocked())
import torch
torch.cuda.is_available = lambda: False
import engine.device, engine.kernels
for package in (engine.device, engine.kernels):
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(found.name)
from engine.cli import main
words = ["--layers", "1", "--depths", "128", "--rows", "2", "--prefill", ""]
sys.exit(main(["bench", "--synthetic", "v4-flash", *words]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert (1, "") == (done.returncode, done.stdout)
    assert done.stderr.startswith("engine: the device path runs on an accelerator and torch sees none")
