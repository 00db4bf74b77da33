"""A model file with spoiled values, from container to vocabulary: refused or usable, never a crash."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine.errors import ModelFileError
from engine.gguf.file import GGUFFile
from engine.model import tensors
from engine.model.spec import ModelSpec
from engine.tokenizer import Tokenizer
from fixtures.tiny.random_model import build_random

MUTANTS = 300
NUMBERS = (
    0,
    1,
    3,
    255,
    2**16,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**63,
    2**64 - 1,
    0x7FC00000,
    0x7F800000,
    0xBF800000,
)


@dataclass(frozen=True, slots=True)
class Header:
    """All of a model file before its data, where each name in it ends, and the size of the whole."""

    data: bytes
    name_ends: tuple[int, ...]
    file_bytes: int


@pytest.fixture(scope="module")
def header(tmp_path_factory: pytest.TempPathFactory) -> Header:
    path = build_random(tmp_path_factory.mktemp("model") / "random.gguf", seed=1)
    file = GGUFFile.open(path)
    data = path.read_bytes()[: min(info.offset for info in file.tensors.values())]
    names = [name.encode() for name in (*file.metadata, *file.tensors)]
    ends = tuple(data.index(len(name).to_bytes(8, "little") + name) + 8 + len(name) for name in names)
    return Header(data, ends, path.stat().st_size)


def spoil(header: Header, seed: int) -> bytes:
    """One to three of the kinds, values, dimensions or offsets behind a name become awkward numbers."""
    rng = random.Random(seed)
    data = bytearray(header.data)
    for _ in range(rng.choice((1, 1, 2, 3))):
        place = rng.choice(header.name_ends) + rng.choice((0, 4, 4, 4, 8, 12, 16, 20))
        width = rng.choice((1, 4, 8))
        old = int.from_bytes(data[place : place + width], "little")
        new = rng.choice((*NUMBERS, old + 1, old - 1, 2 * old, old // 2)) % 256**width
        data[place : place + width] = new.to_bytes(width, "little")
    return bytes(data[: len(header.data)])


def answer_to(path: Path) -> str | None:
    """The refusal, or None; does what the start of the engine does before it decodes weights."""
    try:
        file = GGUFFile.open(path)
        tensors.check(file, ModelSpec.from_metadata(file.metadata))
        tokenizer = Tokenizer.from_gguf(file)
    except ModelFileError as error:
        return str(error)
    assert tokenizer.decode(tokenizer.encode("12 ways")) == "12 ways"
    return None


def test_a_model_with_spoiled_values_is_refused_with_one_clear_line_or_works(
    header: Header, tmp_path: Path
) -> None:
    refused = 0
    for seed in range(MUTANTS):
        path = tmp_path / f"{seed}.gguf"
        path.write_bytes(spoil(header, seed))
        os.truncate(path, header.file_bytes)  # a hole in place of the weights
        answer = answer_to(path)
        refused += answer is not None
        path.unlink()

        assert answer is None or len(answer.splitlines()) == 1, seed

    assert refused > MUTANTS // 2
