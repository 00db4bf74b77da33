"""Fetching against a server on the loopback that cuts, refuses and sends the wrong thing."""

from __future__ import annotations

import gzip
import hashlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gates import cli
from gates.errors import ExitCode, InfrastructureError
from gates.quality import data, fetch
from gates.quality.data import Form, Source, Store

CONTENT = bytes(range(256)) * 400
TABLE = b'question,choice0,choice1,choice2,choice3,answer\n"One, or two?",1,2,3,\xc3\xa9,3\n'
ROW = (
    '{"subject": "logic", "index": 0, "question": "One, or two?", "choices": ["1", "2", "3", "\u00e9"],'
    ' "answer": "D"}\n'
).encode()


class Origin(ThreadingHTTPServer):
    """Serves named contents; `cuts` says after how many bytes each of the next answers ends."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.contents: dict[str, bytes] = {}
        self.cuts: list[int] = []
        self.ranges: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answer(BaseHTTPRequestHandler):
    """One request of an Origin, with ranges."""

    def do_GET(self) -> None:
        assert isinstance(self.server, Origin)
        content = self.server.contents.get(self.path.strip("/"))
        asked = self.headers.get("Range", "")
        self.server.ranges.append(asked)
        if content is None:
            self.send_error(404)
            return
        start = int(asked.removeprefix("bytes=").rstrip("-") or 0)
        if start and start >= len(content):
            self.send_error(416)
            return
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        cut = self.server.cuts.pop(0) if self.server.cuts else len(content)
        self.wfile.write(content[start : start + cut])

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on the screen."""
        del format, args


@pytest.fixture
def origin() -> Iterator[Origin]:
    with Origin() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def source_of(origin: Origin, result: bytes, name: str = "set/file.bin", form: Form = "plain") -> Source:
    return Source(name, hashlib.sha256(result).hexdigest(), len(result), 1, "MIT", f"{origin.url}/file", form)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_a_missing_file_is_fetched_and_one_that_is_there_is_not(tmp_path: Path, origin: Origin) -> None:
    origin.contents["file"] = CONTENT
    store = Store(tmp_path, {"set/file.bin": source_of(origin, CONTENT)})
    told: list[tuple[str, str]] = []
    note: Callable[[str, str], None] = lambda path, what: told.append((path, what))  # noqa: E731

    fetch.fetch(store, told=note)
    fetch.fetch(store, told=note)

    assert [("set/file.bin", "fetched"), ("set/file.bin", "there")] == told
    assert CONTENT == store.content("set/file.bin")
    assert ["file.bin"] == names(tmp_path)
    assert [""] == origin.ranges


def test_a_transfer_that_is_cut_goes_on_where_it_was(tmp_path: Path, origin: Origin) -> None:
    origin.contents["file"] = CONTENT
    origin.cuts = [1000, 2000]
    fetch.fetch_file(source_of(origin, CONTENT), tmp_path / "file.bin")

    assert CONTENT == (tmp_path / "file.bin").read_bytes()
    assert ["", "bytes=1000-", "bytes=3000-"] == origin.ranges


def test_what_has_come_is_kept_for_the_next_command(tmp_path: Path, origin: Origin) -> None:
    origin.contents["file"] = CONTENT
    origin.cuts = [100] * fetch.TRIES
    source, place = source_of(origin, CONTENT), tmp_path / "file.bin"

    with pytest.raises(InfrastructureError, match="400 bytes are kept, the same command goes on there"):
        fetch.fetch_file(source, place)
    assert ["file.bin.part"] == names(tmp_path)
    fetch.fetch_file(source, place)
    assert ["file.bin"] == names(tmp_path)


def test_a_transfer_cut_after_its_last_byte_is_whole(tmp_path: Path, origin: Origin) -> None:
    origin.contents["file"] = CONTENT
    (tmp_path / "file.bin.part").write_bytes(CONTENT)

    fetch.fetch_file(source_of(origin, CONTENT), tmp_path / "file.bin")

    assert CONTENT == (tmp_path / "file.bin").read_bytes()


def test_another_file_than_the_wanted_one_is_not_kept(tmp_path: Path, origin: Origin) -> None:
    origin.contents["file"] = b"something else"

    with pytest.raises(InfrastructureError, match=r"gave a file with sha256 .*, wanted is .*by hand"):
        fetch.fetch_file(source_of(origin, CONTENT), tmp_path / "file.bin")
    assert [] == names(tmp_path)


def test_a_file_that_the_origin_does_not_have_is_asked_for_once(tmp_path: Path, origin: Origin) -> None:
    with pytest.raises(InfrastructureError, match=r"could not be fetched .*404"):
        fetch.fetch_file(source_of(origin, CONTENT), tmp_path / "file.bin")
    assert 1 == len(origin.ranges)


def test_a_packed_file_is_unpacked(tmp_path: Path, origin: Origin) -> None:
    origin.contents["file"] = gzip.compress(CONTENT)

    fetch.fetch_file(source_of(origin, CONTENT, form="gunzip"), tmp_path / "file.bin")

    assert CONTENT == (tmp_path / "file.bin").read_bytes()


@pytest.mark.parametrize("form", ["gunzip", "choices"])
def test_a_page_in_place_of_the_file_is_not_kept(tmp_path: Path, origin: Origin, form: Form) -> None:
    origin.contents["file"] = b"<html>\nlog in\n"

    with pytest.raises(InfrastructureError, match="nothing was kept"):
        fetch.fetch_file(replace(source_of(origin, CONTENT, form=form), parts=("x",)), tmp_path / "file.bin")
    assert [] == names(tmp_path)


def test_tables_become_one_file_of_rows(tmp_path: Path, origin: Origin) -> None:
    origin.contents = {"logic.csv": TABLE, "other.csv": TABLE}
    whole = ROW + ROW.replace(b"logic", b"other")
    source = Source(
        "set/rows.jsonl",
        hashlib.sha256(whole).hexdigest(),
        len(whole),
        2,
        "MIT",
        origin.url + "/{part}.csv",
        "choices",
        ("logic", "other"),
    )

    fetch.fetch_file(source, tmp_path / "rows.jsonl")

    assert whole == (tmp_path / "rows.jsonl").read_bytes()
    assert ["rows.jsonl"] == names(tmp_path)


def test_the_command_fetches_into_the_named_folder(
    tmp_path: Path, origin: Origin, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    origin.contents["file"] = CONTENT
    monkeypatch.setattr(data, "read_manifest", lambda: {"set/file.bin": source_of(origin, CONTENT)})
    monkeypatch.setenv("SPARKGATE_DATA", str(tmp_path / "new"))

    assert ExitCode.PASS == cli.main(["data", "fetch"])
    assert "fetched set/file.bin" in capsys.readouterr().out
    assert CONTENT == (tmp_path / "new" / "set" / "file.bin").read_bytes()


def test_the_command_says_in_one_message_that_an_origin_cannot_be_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = Source("a", "b", 1, 1, "MIT", "http://127.0.0.1:9/file")
    monkeypatch.setattr(data, "read_manifest", lambda: {"a": gone})
    monkeypatch.setenv("SPARKGATE_DATA", str(tmp_path))

    assert ExitCode.INFRASTRUCTURE == cli.main(["data", "fetch"])
    assert "http://127.0.0.1:9/file could not be fetched" in capsys.readouterr().err


@pytest.mark.parametrize("in_the_way", ["set", "set/file.bin/", "set/file.bin@"])
def test_what_is_in_the_way_of_a_file_is_one_message(tmp_path: Path, origin: Origin, in_the_way: str) -> None:
    origin.contents["file"] = CONTENT
    source = source_of(origin, CONTENT)
    place = tmp_path / in_the_way.rstrip("/@")
    place.parent.mkdir(exist_ok=True)
    if in_the_way.endswith("@"):
        place.symlink_to(place.name)
    elif in_the_way.endswith("/"):
        place.mkdir()
    else:
        place.write_text("a file where a folder should be")

    with pytest.raises(InfrastructureError, match=r"file.bin cannot be put there .*: move away what is in"):
        fetch.fetch(Store(tmp_path, {source.path: source}), told=lambda *_: None)
    assert [] == origin.ranges
