"""Tests of the history: what is written is read back, and a torn end does not spoil the rest."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates.errors import CheckError
from gates.harness import history
from gates.harness.history import History, notes, operations, read

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
FIELDS = st.dictionaries(st.text().filter(lambda name: name not in history.RESERVED), JSON, max_size=4)


def write_three(path: Path) -> None:
    with History(path) as record:
        first = record.invoke("chat", cell="a")
        record.ok(first, "chat", text="yes")
        second = record.invoke("chat", cell="b")
        record.fail(second, "chat", error="Refused")
        record.note("server_died", message="gone")
        record.invoke("chat", cell="c")


def test_a_line_for_which_there_is_no_room_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "h.jsonl"
    write = os.write
    with History(path) as record:
        record.note("before")
        monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:20]))
        with pytest.raises(OSError, match="is the disk full"):
            record.note("cut")
        monkeypatch.setattr(os, "write", write)
        record.note("after")  # there is room again

    assert ["before", "after"] == [event.what for event in read(path)]


def test_operations_join_what_was_asked_with_what_became_of_it(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    write_three(path)
    events = read(path)

    assert ["ok", "fail", "info"] == [operation.outcome for operation in operations(events, "chat")]
    assert ["a", "b", "c"] == [operation.get("cell") for operation in operations(events)]
    assert ["gone"] == [note.get("message") for note in notes(events, "server_died")]


@given(fields=FIELDS)
def test_any_fields_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, fields: dict[str, object]
) -> None:
    path = tmp_path_factory.mktemp("h") / "h.jsonl"
    with History(path) as record:
        record._end(0, "ok", 0, "chat", fields)

    (event,) = read(path)
    assert fields == event.fields


def test_a_lone_surrogate_is_written_and_read_back(tmp_path: Path) -> None:
    with History(tmp_path / "h.jsonl") as record:
        record.note("odd", text="\ud800 and a line break\n")

    (event,) = read(tmp_path / "h.jsonl")
    assert "\ud800 and a line break\n" == event.get("text")


def test_whatever_length_the_torn_end_has_the_whole_lines_stand(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    write_three(path)
    whole = path.read_bytes()
    events = read(path)
    for length in range(len(whole)):
        path.write_bytes(whole[:length])

        assert events[: whole[:length].count(b"\n")] == read(path)


def test_a_spoiled_line_before_the_end_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    write_three(path)
    lines = path.read_bytes().split(b"\n")
    lines[1] = lines[1][:10]
    path.write_bytes(b"\n".join(lines))

    with pytest.raises(CheckError, match="line 2: not a history event"):
        read(path)


@pytest.mark.parametrize(
    "line",
    [
        b"[]",
        b"7",
        b"[" * 100_000,
        b'{"op": 1}',
        b'{"op":0,"t_s":0,"kind":"maybe","client":0,"what":"x"}',
        b'{"op":"x","t_s":0,"kind":"ok","client":0,"what":"x"}',
        b'{"op":1e999,"t_s":0,"kind":"ok","client":0,"what":"x"}',
        b'{"op":0,"t_s":NaN,"kind":"ok","client":0,"what":"x"}',
    ],
)
def test_json_that_is_no_event_is_an_error(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "h.jsonl").write_bytes(line + b"\n")

    with pytest.raises(CheckError, match="line 1"):
        read(tmp_path / "h.jsonl")


def test_no_history_is_an_empty_history(tmp_path: Path) -> None:
    assert [] == read(tmp_path / "none.jsonl")


def test_a_history_is_never_written_over(tmp_path: Path) -> None:
    write_three(tmp_path / "h.jsonl")

    with pytest.raises(FileExistsError):
        History(tmp_path / "h.jsonl")


def test_a_field_cannot_take_the_place_of_the_events_own(tmp_path: Path) -> None:
    with History(tmp_path / "h.jsonl") as record, pytest.raises(ValueError, match="t_s"):
        record.note("odd", t_s=3)


def test_threads_get_different_numbers_and_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    with History(path) as record:

        def ask() -> None:
            for _ in range(20):
                record.ok(record.invoke("chat"), "chat")

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    asked = operations(read(path))
    assert list(range(80)) == sorted(operation.invoke.op for operation in asked)
    assert {"ok"} == {operation.outcome for operation in asked}


def test_what_was_recorded_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    program = (
        "import sys, time; from pathlib import Path; from gates.harness.history import History\n"
        "record = History(Path(sys.argv[1]))\n"
        "for n in range(5): record.invoke('chat', n=n)\n"
        "print('written', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)

    assert [0, 1, 2, 3, 4] == [event.get("n") for event in read(path)]


@pytest.mark.parametrize(
    ("line", "found"), [("{", "not an item"), ("[1]", "found list"), ("NaN", "not JSON")]
)
def test_a_damaged_line_of_an_item_file_is_named(tmp_path: Path, line: str, found: str) -> None:
    path = tmp_path / "items.jsonl"
    path.write_text(f'{{"item": "a"}}\n{line}\n')

    with pytest.raises(CheckError, match=rf"items\.jsonl, line 2: .*{found}"):
        history.items(path)


def test_a_gate_without_items_has_none_and_a_torn_last_one_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "items.jsonl"
    assert [] == history.items(path)

    path.write_text('{"item": "a"}\n{"item": "b')
    assert ["a"] == [event.get("item") for event in history.items(path)]
