"""Two thousand spoiled files: the reader opens them or says ModelFileError, at once and in little memory."""

from __future__ import annotations

import random
import struct
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from engine.errors import ModelFileError
from engine.gguf.file import GGUFFile
from engine.tests.gguf import forge
from engine.tests.gguf.forge import Forge, sound

MUTANTS = 2000
SLACK_BYTES = 64 << 20
MOST_SECONDS = 5.0
NUMBERS = (0, 1, 2, 7, 31, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**33, 2**62, 2**63 - 1, 2**63, 2**64 - 1)


def overwrite_number(data: bytearray, spots: Forge, rng: random.Random) -> None:
    """A count, length, kind, dimension, type or offset becomes an awkward number."""
    spot = rng.choice([f for f in spots.fields if f.role not in ("magic", "value")])
    old = int.from_bytes(data[spot.start : spot.start + spot.nbytes], "little")
    new = rng.choice([*NUMBERS, old + 1, old - 1, 2 * old, len(data) - spot.start, len(data) + 1])
    data[spot.start : spot.start + spot.nbytes] = (new % 256**spot.nbytes).to_bytes(spot.nbytes, "little")


def truncate(data: bytearray, spots: Forge, rng: random.Random) -> None:
    """The file ends at a field's border or just beside it."""
    spot = rng.choice(spots.fields)
    del data[max(0, spot.start + rng.choice((0, spot.nbytes)) + rng.choice((-1, 0, 1))) :]


def flip_bytes(data: bytearray, _: Forge, rng: random.Random) -> None:
    """Some bytes anywhere in the structure are random."""
    for _turn in range(rng.choice((1, 2, 4, 16))):
        data[rng.randrange(min(len(data), 900))] = rng.randrange(256)


def repeat_stretch(data: bytearray, spots: Forge, rng: random.Random) -> None:
    """A run of fields stands in the file twice, which also makes names double."""
    first, last = sorted(rng.sample(range(len(spots.fields)), 2))
    start, end = spots.fields[first].start, spots.fields[last].start
    data[end:end] = data[start:end]


def remove_stretch(data: bytearray, spots: Forge, rng: random.Random) -> None:
    """A run of fields is missing."""
    first, last = sorted(rng.sample(range(len(spots.fields)), 2))
    del data[spots.fields[first].start : spots.fields[last].start]


def nest_array(data: bytearray, spots: Forge, rng: random.Random) -> None:
    """A value becomes an array of arrays, deeply."""
    spot = rng.choice([f for f in spots.fields if f.role == "kind"])
    nested = struct.pack("<I", forge.ARRAY) + struct.pack("<IQ", forge.ARRAY, 1) * rng.choice((1, 3, 500))
    data[spot.start : spot.start + 4] = nested


def swell_text(data: bytearray, spots: Forge, rng: random.Random) -> None:
    """A text grows by many bytes, its length told or not."""
    spot = rng.choice([f for f in spots.fields if f.role == "length"])
    more = rng.choice((1, 64, 70_000, 200_000))
    if rng.random() < 0.7:
        length = int.from_bytes(data[spot.start : spot.start + 8], "little") + more
        data[spot.start : spot.start + 8] = length.to_bytes(8, "little")
    data[spot.start + 8 : spot.start + 8] = rng.choice((b"x", b"\xff", b"\0")) * more


MUTATIONS = (overwrite_number, truncate, flip_bytes, repeat_stretch, remove_stretch, nest_array, swell_text)


def mutant(seed: int) -> bytes:
    """The sound file with one to three mutations, the numbers first so that places still fit."""
    rng = random.Random(seed)
    made = sound()
    data = bytearray(made.data)
    for _ in range(rng.choice((0, 0, 1, 2))):
        overwrite_number(data, made, rng)
    MUTATIONS[seed % len(MUTATIONS)](data, made, rng)
    return bytes(data)


def use_everything(file: GGUFFile) -> None:
    """Touch all that an opened file offers."""
    for value in file.metadata.values():
        if not isinstance(value, (str, int, float)):
            list(value)
    for name, info in file.tensors.items():
        assert file.raw(name).size == info.nbytes
        assert file.array(name).shape == info.shape


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def peak_of_open(path: Path) -> tuple[int, GGUFFile | None]:
    """Most bytes held above the start while opening, and the file if it opens."""
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    file = None
    with suppress(ModelFileError):
        file = GGUFFile.open(path)
    return tracemalloc.get_traced_memory()[1] - before, file


@pytest.mark.usefixtures("traced")
def test_two_thousand_mutants_open_or_are_refused_in_bounded_time_and_memory(tmp_path: Path) -> None:
    path = tmp_path / "mutant.gguf"
    refused = 0
    for seed in range(MUTANTS):
        data = mutant(seed)
        path.unlink(missing_ok=True)  # a new file each time: the old one may still be mapped
        path.write_bytes(data)
        start = time.perf_counter()
        peak, file = peak_of_open(path)
        if file is None:
            refused += 1
        else:
            use_everything(file)

        assert peak <= 2 * len(data) + SLACK_BYTES, seed
        assert time.perf_counter() - start <= MOST_SECONDS, seed

    assert refused > MUTANTS * 0.7


@pytest.mark.parametrize("kind", [m.__name__ for m in MUTATIONS])
def test_each_kind_of_mutation_is_refused_at_least_once(tmp_path: Path, kind: str) -> None:
    index = [m.__name__ for m in MUTATIONS].index(kind)
    seeds = range(index, 40 * len(MUTATIONS), len(MUTATIONS))

    def refused(seed: int) -> bool:
        path = tmp_path / f"{seed}.gguf"
        path.write_bytes(mutant(seed))
        try:
            GGUFFile.open(path)
        except ModelFileError:
            return True
        return False

    assert any(refused(seed) for seed in seeds)


def test_a_file_cut_at_any_byte_of_its_structure_is_refused(tmp_path: Path) -> None:
    whole = bytes(sound().data)
    for size in range(len(whole)):
        path = tmp_path / "cut.gguf"
        path.unlink(missing_ok=True)
        path.write_bytes(whole[:size])
        with pytest.raises(ModelFileError):
            GGUFFile.open(path)


def greedy_strings() -> Forge:
    """Two-byte strings, which cost Python 51 bytes each."""
    return Forge().header(tensors=0, keys=1).strings(b"tokens", [b"ab"] * 40_000)


def greedy_empty_strings() -> Forge:
    return Forge(
        Forge().header(tensors=0, keys=1).array(b"a", forge.STRING, bytes(8 * 100_000), count=100_000).data
    )


def greedy_wide_text() -> Forge:
    """One character beyond the base plane makes Python use four bytes for each of the others."""
    long = b"x" * ((4 << 20) - 4) + "\U0001f600".encode()
    made = Forge().header(tensors=0, keys=2)
    return made.string(b"a", long[6:]).string(b"b", long[6:])


def greedy_flags() -> Forge:
    return Forge().header(tensors=0, keys=1).array(b"a", forge.BOOL, bytes(4 << 20), count=4 << 20)


def greedy_keys() -> Forge:
    made = Forge().header(tensors=0, keys=8_192)
    for i in range(8_192):
        made.key(b"%x" % i, forge.U8, b"\0")
    return made


def greedy_tensors() -> Forge:
    made = Forge().header(tensors=8_192, keys=0)
    for i in range(8_192):
        made.tensor(b"%x" % i, [1, 1, 1, 1], 0, 32 * i)
    return made.body(32 * 8_192)


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize(
    ("greedy", "slack_bytes"),
    [
        pytest.param(greedy_strings, 1 << 18, id="short_strings"),
        pytest.param(greedy_empty_strings, 1 << 18, id="empty_strings"),
        pytest.param(greedy_flags, 1 << 20, id="booleans"),
        pytest.param(greedy_wide_text, SLACK_BYTES, id="wide_text"),
        pytest.param(greedy_keys, SLACK_BYTES, id="many_keys"),
        pytest.param(greedy_tensors, SLACK_BYTES, id="many_tensors"),
    ],
)
def test_a_greedy_file_takes_at_most_twice_its_size_and_a_fixed_part(
    tmp_path: Path, greedy: Callable[[], Forge], slack_bytes: int
) -> None:
    path = tmp_path / "greedy.gguf"
    data = bytes(greedy().data)
    path.write_bytes(data)

    peak, file = peak_of_open(path)

    assert file is not None
    assert peak <= 2 * len(data) + slack_bytes
