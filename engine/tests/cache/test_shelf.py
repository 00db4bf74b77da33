"""Stored sequences: found again by what they begin with, and never used when anything is wrong with them."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import logging
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from engine.cache import stored as stored_form
from engine.cache.shelf import LEAST_TOKENS, Shelf
from engine.tests.later import Later

LONG = 3 * LEAST_TOKENS


def ids(length: int, first: int = 0) -> NDArray[np.int32]:
    return (np.arange(length, dtype=np.int32) * 7 + first) % 101


def arrays(seed: int = 0) -> dict[str, NDArray[Any]]:
    random = np.random.default_rng(seed)
    return {
        "rows.0": random.integers(0, 256, (40, 8), dtype=np.uint8),
        "12.0.ring": random.standard_normal((4, 3)).astype(np.float32),
        "12.0.pending": np.zeros((0, 5), np.float32),
    }


def shelf(directory: Path, *, fingerprint: str = "model", budget: int = 10**6) -> Shelf:
    return Shelf(directory, fingerprint=fingerprint, budget=budget)


def stored(directory: Path, *, length: int = LONG, tenant: str = "one", seed: int = 0) -> Path:
    """A shelf with one file, closed again."""
    one = shelf(directory)
    one.put(tenant, ids(length), (length // 2,), arrays(seed))
    one.close()
    return next(directory.glob("*.kv"))


def prompt(length: int = LONG) -> NDArray[np.int32]:
    return np.concatenate((ids(length), np.array([100, 100], np.int32)))


def test_a_new_process_finds_what_another_stored(tmp_path: Path) -> None:
    stored(tmp_path)
    one = shelf(tmp_path)
    found = one.find("one", prompt())

    assert found is not None
    assert LONG == found.place
    loaded = one.load(found.entry).result()
    assert loaded is not None
    assert all(np.array_equal(array, loaded[name]) for name, array in arrays().items())
    assert [array.dtype for array in arrays().values()] == [array.dtype for array in loaded.values()]
    assert all(array.flags.writeable for array in loaded.values())


def test_a_prompt_that_leaves_in_the_middle_starts_at_an_anchor(tmp_path: Path) -> None:
    stored(tmp_path)
    left = prompt()
    left[LONG - 5] = 100
    found = shelf(tmp_path).find("one", left)

    assert found is not None
    assert LONG // 2 == found.place
    assert shelf(tmp_path).find("one", prompt()[: LONG // 2]) is None, "one token must be left to compute"


def test_another_tenant_finds_nothing(tmp_path: Path) -> None:
    stored(tmp_path)

    assert shelf(tmp_path).find("two", prompt()) is None


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    directory = tmp_path / "kept"
    before = os.umask(0)
    try:
        path = stored(directory)
    finally:
        os.umask(before)

    assert 0o700 == stat.S_IMODE(directory.stat().st_mode)
    assert 0o600 == stat.S_IMODE(path.stat().st_mode)
    assert b"one" not in path.read_bytes()


def test_a_file_of_another_model_is_left_alone_and_not_used(tmp_path: Path) -> None:
    path = stored(tmp_path)
    other = shelf(tmp_path, fingerprint="another")

    assert other.find("one", prompt()) is None
    other.close()
    assert path.exists()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(where=st.floats(0, 1, exclude_max=True), change=st.integers(1, 255), cut=st.booleans())
def test_any_changed_byte_and_any_cut_makes_a_file_unusable(
    tmp_path: Path, where: float, change: int, cut: bool
) -> None:
    for old in tmp_path.glob("*.kv"):
        old.unlink()
    path = stored(tmp_path)
    data = bytearray(path.read_bytes())
    at = int(where * len(data))
    data[at] ^= change
    path.write_bytes(data[:at] if cut else data)
    one = shelf(tmp_path)
    found = one.find("one", prompt())

    assert found is None or one.load(found.entry).result() is None
    assert found is None or not path.exists(), "a damaged file is tried once"


def test_a_longer_file_replaces_what_it_covers(tmp_path: Path) -> None:
    one = shelf(tmp_path)
    one.put("one", ids(LONG), (), arrays())
    one.settle()
    one.put("one", ids(2 * LONG), (LONG,), arrays(1))
    one.put("two", ids(LONG), (), arrays(1))
    one.close()

    assert 2 == one.stats().files == len(list(tmp_path.glob("*.kv")))


def test_the_oldest_files_go_when_the_budget_is_spent(tmp_path: Path) -> None:
    size = stored(tmp_path / "size").stat().st_size
    one = shelf(tmp_path / "kept", budget=2 * size + 10)
    for first in range(4):
        one.put("one", ids(LONG, first), (LONG // 2,), arrays())
        one.settle()

    assert 2 == one.stats().files == len(list((tmp_path / "kept").glob("*.kv")))
    assert one.find("one", np.append(ids(LONG, 3), np.int32(1))) is not None


def test_only_what_is_new_and_long_is_wanted(tmp_path: Path) -> None:
    stored(tmp_path)
    one = shelf(tmp_path)

    assert not one.wants("one", ids(LEAST_TOKENS - 1), exactly=True)
    assert not one.wants("one", ids(LONG), exactly=True)
    assert one.wants("one", ids(LONG + 1), exactly=True)
    assert not one.wants("one", ids(LONG + 1), exactly=False)
    assert one.wants("one", ids(2 * LONG), exactly=False)
    assert one.wants("two", ids(LONG), exactly=False)


def test_a_full_disk_is_a_log_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("engine.cache.shelf.os.fsync", full)
    with caplog.at_level(logging.WARNING):
        one = shelf(tmp_path)
        one.put("one", ids(LONG), (), arrays())
        one.close()

    assert "prefix_not_stored" in caplog.text
    assert "No space left" in caplog.text
    assert [] == list(tmp_path.iterdir())
    assert one.find("one", prompt()) is None


def test_an_error_that_nobody_foresaw_is_a_log_line_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise ValueError("no such layout")

    one = shelf(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr("engine.cache.shelf.layout", broken)
        written = one.put("one", ids(LONG), (), arrays())
        one.settle()

    assert written.result() is None
    assert one.find("one", prompt()) is None
    assert "no such layout" in caplog.text
    one.put("one", ids(2 * LONG), (), arrays())
    one.close()
    assert 1 == one.stats().files == len(list(tmp_path.glob("*.kv")))


def test_a_file_in_use_outlives_the_older_ones_and_those_that_rest(tmp_path: Path) -> None:
    size = stored(tmp_path / "size").stat().st_size
    one = shelf(tmp_path / "kept", budget=2 * size + 10)
    for first in (0, 1):
        one.put("one", ids(LONG, first), (LONG // 2,), arrays())
    found = one.find("one", prompt())
    assert found is not None
    assert one.load(found.entry).result() is not None
    one.put("one", ids(LONG, 2), (LONG // 2,), arrays())
    one.settle()

    assert one.find("one", prompt()) is not None
    assert one.find("one", np.append(ids(LONG, 1), np.int32(1))) is None


def test_a_file_that_is_about_to_be_read_is_not_swept(tmp_path: Path) -> None:
    stored(tmp_path)
    later = Later()
    one = Shelf(tmp_path, fingerprint="model", budget=1, worker=later)
    found = one.find("one", prompt())
    assert found is not None
    one.put("two", ids(LONG, 1), (), arrays())
    loading = one.load(found.entry)
    later.work()

    assert loading.result() is not None


def test_files_of_other_models_count_and_go_when_they_are_the_oldest(tmp_path: Path) -> None:
    path = stored(tmp_path)
    foreign = tmp_path / "somebody.kv"
    foreign.write_bytes(b"not ours" * 1000)
    os.utime(foreign, (1, 1))
    one = shelf(tmp_path, fingerprint="another", budget=path.stat().st_size)
    one.put("one", ids(LONG), (), arrays(2))
    one.close()

    assert not path.exists()
    assert foreign.exists(), "what we did not write is not ours to delete"
    assert 1 == one.stats().files


def older(data: bytes) -> bytes:
    """The same file as an earlier version of the form would have written it."""
    return b"SPKGKV00" + data[8:]


def sealed(text: bytes, rest: bytes) -> bytes:
    """A file with a header whose digest is right."""
    return stored_form.FIXED.pack(stored_form.MAGIC, len(text), hashlib.sha256(text).digest()) + text + rest


def opened(data: bytes) -> tuple[dict[str, Any], bytes]:
    """The header of a file, and what follows it."""
    length = stored_form.FIXED.unpack_from(data)[1]
    text, rest = data[stored_form.FIXED.size :][:length], data[stored_form.FIXED.size + length :]
    return json.loads(text), rest


def without(data: bytes, member: str) -> bytes:
    """A file with a sound header that lacks what this version wants."""
    header, rest = opened(data)
    del header[member]
    return sealed(json.dumps(header).encode(), rest[-10:])


def saying(data: bytes, **members: Any) -> bytes:
    """A file whose header is sound and says something else."""
    header, rest = opened(data)
    return sealed(json.dumps(header | members).encode(), rest)


def array_of(kind: str, *shape: float) -> list[dict[str, Any]]:
    """What a header says of its only array."""
    return [{"name": "rows.0", "type": kind, "shape": shape}]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(older, id="older"),
        pytest.param(lambda _: b"", id="empty"),
        pytest.param(lambda _: b"GGUF" + bytes(5000), id="foreign"),
        pytest.param(lambda data: data[:100], id="cut_in_the_header"),
        pytest.param(lambda data: data[:-1], id="cut_at_the_end"),
        pytest.param(lambda data: data + b"!", id="too_long"),
        pytest.param(lambda data: data[:8] + b"\xff\xff\xff\xff" + data[12:], id="endless_header"),
        *(
            pytest.param(functools.partial(without, member=member), id=f"without_{member}")
            for member in ("fingerprint", "tenant", "anchors", "pin", "tokens", "arrays", "arrays_sha256")
        ),
        pytest.param(lambda data: sealed(b"[" * 300_000, data[-10:]), id="nested_header"),
        pytest.param(lambda data: saying(data, tokens=float("inf")), id="endless_tokens"),
        pytest.param(lambda data: saying(data, tokens=-1), id="negative_tokens"),
        pytest.param(lambda data: saying(data, arrays=array_of("<u1", float("inf"))), id="endless_array"),
        pytest.param(lambda data: saying(data, arrays=array_of("<u1", 2**62, 2**62)), id="huge_array"),
        pytest.param(lambda data: saying(data, arrays=array_of(">f4", 0)), id="foreign_order"),
        pytest.param(lambda data: saying(data, arrays=array_of("<f16", 0)), id="wide_numbers"),
    ],
)
def test_an_unusable_file_is_one_line_and_no_prefix(
    change: Callable[[bytes], bytes], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = stored(tmp_path)
    path.write_bytes(change(path.read_bytes()))
    caplog.clear()
    one = shelf(tmp_path)
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]

    assert one.find("one", prompt()) is None
    assert 1 == len(warnings)
    assert path.name in warnings[0].getMessage()


def test_lengths_that_only_a_hole_could_fill_are_not_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = stored(tmp_path)
    count = stored_form.TOKENS_MAX + 1
    header, _ = opened(path.read_bytes())
    path.write_bytes(head := sealed(json.dumps(header | {"tokens": count, "arrays": []}).encode(), b""))
    os.truncate(path, len(head) + 4 * count)

    assert shelf(tmp_path).find("one", prompt()) is None
    assert "longer than any context" in caplog.text


def test_sizes_that_no_array_can_have_cost_the_file_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = stored(tmp_path)
    header, rest = opened(path.read_bytes())
    header["arrays"] += array_of("<u1", *[0] * 100)
    path.write_bytes(sealed(json.dumps(header).encode(), rest))
    one = shelf(tmp_path)
    found = one.find("one", prompt())

    assert found is not None
    assert one.load(found.entry).result() is None
    assert "its arrays cannot be" in caplog.text
    assert not path.exists()


@pytest.mark.parametrize("tenant", ["one", "two"])
def test_files_that_change_places_while_a_server_runs_are_not_used(
    tenant: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = shelf(tmp_path)
    path = one.put("one", ids(LONG), (), arrays()).result()
    other = one.put(tenant, ids(LONG, int(tenant == "one")), (), arrays(1)).result()
    assert path is not None
    assert other is not None
    other.replace(path)
    found = one.find("one", prompt())

    assert found is not None
    assert one.load(found.entry).result() is None
    assert "another sequence is in its place" in caplog.text


@pytest.mark.parametrize("name", ["pipe.kv", "spkg-pipe.kv", "spkg-pipe.part"])
def test_a_pipe_in_the_directory_is_not_waited_for(name: str, tmp_path: Path) -> None:
    stored(tmp_path)
    os.mkfifo(tmp_path / name)
    found: list[Shelf] = []
    opening = threading.Thread(target=lambda: found.append(shelf(tmp_path)), daemon=True)
    opening.start()
    opening.join(60)

    assert [1] == [one.stats().files for one in found]


def test_a_directory_into_which_others_may_write_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(PermissionError, match="others may write into it"):
        shelf(tmp_path)


def test_a_directory_that_others_may_read_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    path = stored(tmp_path)

    assert 0o755 == stat.S_IMODE(tmp_path.stat().st_mode)
    assert 0o600 == stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("place", ["/proc/self", "/dev/null/below"])
def test_a_place_where_no_file_can_be_made_is_refused(place: str) -> None:
    with pytest.raises(OSError, match=place):
        shelf(Path(place))


def test_a_directory_that_vanishes_costs_the_file_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = shelf(tmp_path / "kept")
    (tmp_path / "kept").rmdir()
    one.put("one", ids(LONG), (), arrays())
    one.close()

    assert "prefix_not_stored" in caplog.text
    assert 0 == one.stats().files


def test_two_servers_share_a_directory(tmp_path: Path) -> None:
    one, two = shelf(tmp_path), shelf(tmp_path)
    for server, first in ((one, 0), (two, 1)):
        server.put("one", ids(LONG, first), (), arrays(first))
        server.settle()
    third = shelf(tmp_path)

    assert (1, 1, 2) == (one.stats().files, two.stats().files, third.stats().files)
    found = one.find("one", prompt())
    assert found is not None
    next(path for path in tmp_path.glob("*.kv") if path == found.entry.written.result()).unlink()
    assert one.load(found.entry).result() is None, "the other one swept it"
    assert one.find("one", prompt()) is None


def test_a_file_that_another_living_server_writes_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "spkg-dead.part").write_bytes(b"half")
    with (tmp_path / "spkg-alive.part").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        shelf(tmp_path)

        assert ["spkg-alive.part"] == [path.name for path in tmp_path.iterdir()]


KILLED = """
import sys, numpy as np
from pathlib import Path
from engine.cache.shelf import Shelf
one = Shelf(Path(sys.argv[1]), fingerprint="model", budget=10**9)
tokens = (np.arange(768, dtype=np.int32) * 7) % 101
one.put("one", tokens, (), {"rows.0": np.ones((8, 8), np.uint8)})
one.settle()
print("stored", flush=True)
while True:
    one.put("one", np.append(tokens, np.int32(5)), (), {"rows.0": np.ones((1 << 26,), np.uint8)})
    one.settle()
"""


def test_a_process_killed_while_it_writes_leaves_nothing_wrong(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert "stored\n" == process.stdout.readline()
    deadline = time.monotonic() + 20
    while not list(tmp_path.glob("*.part")):
        assert time.monotonic() < deadline
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    one = shelf(tmp_path)
    found = one.find("one", prompt(768))

    assert found is not None
    assert one.load(found.entry).result() is not None
    assert [] == list(tmp_path.glob("*.part"))
