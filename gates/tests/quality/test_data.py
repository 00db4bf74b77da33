"""The data files: found, checked by digest, or one message with the command that mends it."""

from __future__ import annotations

import gzip
import hashlib
import os
from pathlib import Path

import pytest

from gates.errors import CheckError, ExitCode
from gates.quality.data import MANIFEST, Source, Store, read_manifest


def store_of(folder: Path, path: str, content: bytes, *, rows: int = 1, digest: str = "") -> Store:
    place = folder / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)
    source = Source(
        path, digest or hashlib.sha256(content).hexdigest(), len(content), rows, "MIT", "http://x"
    )
    return Store(folder, {path: source})


@pytest.mark.parametrize(
    ("path", "content"),
    [
        pytest.param("a/rows.jsonl", b'{"n": 1}\n{"n": 2}\n', id="lines"),
        pytest.param("a/rows.json", b'[{"n": 1}, {"n": 2}]', id="list"),
        pytest.param("a/rows.jsonl.gz", gzip.compress(b'{"n": 1}\n{"n": 2}\n'), id="packed"),
    ],
)
def test_rows_are_read(tmp_path: Path, path: str, content: bytes) -> None:
    store = store_of(tmp_path, path, content, rows=2)

    assert [{"n": 1}, {"n": 2}] == list(store.rows(path))
    assert {path: hashlib.sha256(content).hexdigest()} == store.digests((path,))


def test_a_line_separator_inside_a_string_ends_no_row(tmp_path: Path) -> None:
    store = store_of(tmp_path, "rows.jsonl", '{"n": "a\u2028b"}\n'.encode())

    assert [{"n": "a\u2028b"}] == list(store.rows("rows.jsonl"))


def test_a_missing_file_is_one_message_with_the_command(tmp_path: Path) -> None:
    store = Store(tmp_path, {"gsm8k/test.jsonl": Source("gsm8k/test.jsonl", "ab", 1, 1, "MIT", "http://x")})

    with pytest.raises(CheckError, match=r"No such file.*python -m gates data fetch.*sha256 ab") as caught:
        store.content("gsm8k/test.jsonl")
    assert ExitCode.UNKNOWN == caught.value.exit_code


def test_a_changed_file_is_one_message_with_the_command(tmp_path: Path) -> None:
    store = store_of(tmp_path, "rows.jsonl", b"{}\n", digest="ab")

    with pytest.raises(CheckError, match=r"has sha256 .*, wanted is ab; .* `python -m gates data fetch`"):
        store.rows("rows.jsonl")


def test_a_file_of_another_size_is_not_read_at_all(tmp_path: Path) -> None:
    store = store_of(tmp_path, "rows.jsonl", b"{}\n")
    os.truncate(tmp_path / "rows.jsonl", 1 << 40)

    with pytest.raises(CheckError, match=r"has 1099511627776 bytes, wanted are 3; move it away and run"):
        store.content("rows.jsonl")


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    store = store_of(tmp_path, "rows.jsonl", b"{}\n")
    (tmp_path / "rows.jsonl").unlink()
    os.mkfifo(tmp_path / "rows.jsonl")

    with pytest.raises(CheckError, match=r"cannot be read \(it is no file\); run `python -m gates data"):
        store.content("rows.jsonl")


def test_a_file_with_fewer_rows_than_the_manifest_says_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckError, match=r"has 1 rows, the manifest says 3"):
        store_of(tmp_path, "rows.jsonl", b"{}\n", rows=3).rows("rows.jsonl")


def test_the_manifest_names_an_origin_at_a_fixed_commit_and_a_licence_for_every_file() -> None:
    sources = read_manifest()

    assert 7 == len(sources)
    for path, source in sources.items():
        assert path == source.path
        assert 64 == len(source.sha256)
        assert {"MIT", "Apache-2.0", "CC-BY-4.0"} >= {source.licence}
        assert all(40 in map(len, url.split("/")) for url in source.urls())
    assert 57 == len(sources["mmlu/test.jsonl"].urls())


def test_no_data_file_is_part_of_the_project() -> None:
    root = MANIFEST.parent.parent

    found = [place for room in ("fixtures", "gates") for place in (root / room).rglob("*.json*")]

    assert set() == {path.name for path in found} & {Path(path).name for path in read_manifest()}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        pytest.param('colour = "red"', "colour", id="unknown_member"),
        pytest.param('form = "zip"', "form is 'zip', allowed are plain, gunzip, choices", id="unknown_form"),
    ],
)
def test_a_wrong_entry_of_the_manifest_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "MANIFEST.toml"
    path.write_text(
        '[[file]]\npath = "a"\nsha256 = "b"\nbytes = 1\nrows = 1\nlicence = "MIT"\norigin = "c"\n' + line,
        encoding="utf-8",
    )

    with pytest.raises(CheckError, match=message):
        read_manifest(path)
