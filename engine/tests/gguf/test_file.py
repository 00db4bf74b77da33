"""The reader of `engine.gguf.file` on sound files, and its one clear message for each kind of wrong file."""

from __future__ import annotations

import os
import re
import struct
import time
from pathlib import Path

import gguf
import numpy as np
import pytest

from engine.errors import ModelFileError
from engine.gguf.file import GGUFFile, MetaKind
from engine.gguf.quants import QuantType, block
from engine.tests.gguf import forge
from engine.tests.gguf.forge import Forge, sound


def saved(folder: Path, data: bytes | bytearray) -> Path:
    path = folder / "model.gguf"
    path.write_bytes(data)
    return path


def opened(folder: Path, made: Forge) -> GGUFFile:
    return GGUFFile.open(saved(folder, made.data))


def test_a_file_of_the_package_reads_back_with_its_types(tmp_path: Path) -> None:
    path = tmp_path / "written.gguf"
    writer = gguf.GGUFWriter(path, "deepseek4")
    writer.add_uint32("u", 2**32 - 1)
    writer.add_int64("i", -(2**63))
    writer.add_float32("f", 0.1)
    writer.add_bool("yes", True)
    writer.add_string("text", "żółw 🐢")
    writer.add_array("ratios", [0, 4, 128])
    writer.add_array("limits", [10.0, 0.5])
    writer.add_array("flags", [True, False])
    writer.add_array("tokens", ["", "Ġa", "🐢", "x" * 300])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()

    file = GGUFFile.open(path)

    meta = {k: list(v) if not isinstance(v, (str, int, float)) else v for k, v in file.metadata.items()}
    assert meta == {
        "general.architecture": "deepseek4",
        "u": 2**32 - 1,
        "i": -(2**63),
        "f": float(np.float32(0.1)),
        "yes": True,
        "text": "żółw 🐢",
        "ratios": [0, 4, 128],
        "limits": [10.0, 0.5],
        "flags": [True, False],
        "tokens": ["", "Ġa", "🐢", "x" * 300],
    }
    assert [type(meta[k]) for k in ("u", "f", "yes")] == [int, float, bool]
    assert [file.kinds[k] for k in ("u", "i", "limits")] == [MetaKind.U32, MetaKind.I64, MetaKind.F32]
    assert np.asarray(file.metadata["ratios"]).dtype == np.int32


@pytest.mark.parametrize("type", list(QuantType))
def test_a_tensor_of_the_package_reads_back_byte_for_byte(tmp_path: Path, type: QuantType) -> None:
    size = block(type)
    rows = np.random.default_rng(type).integers(0, 120, (3, 2, 5 * size.nbytes), dtype=np.uint8)
    path = tmp_path / "written.gguf"
    writer = gguf.GGUFWriter(path, "deepseek4")
    writer.add_tensor("first", np.ones(3, np.float32))
    writer.add_tensor("mine", rows, raw_dtype=gguf.GGMLQuantizationType(type))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    file = GGUFFile.open(path)

    info = file.tensors["mine"]
    assert (info.shape, info.type, info.nbytes) == ((3, 2, 5 * size.values), type, rows.size)
    assert np.array_equal(rows.ravel(), file.raw("mine"))
    assert file.array("mine").shape == info.shape
    assert np.array_equal([1, 1, 1], file.array("first"))


def test_raw_bytes_cannot_be_written(tmp_path: Path) -> None:
    file = opened(tmp_path, sound())

    raw = file.raw("out.weight")

    assert np.array_equal(raw[:5], file.raw("out.weight", 5))
    assert np.array_equal(raw, file.raw("out.weight", raw.size + 1))
    assert not raw.flags.writeable


def test_a_file_that_shrinks_while_it_is_read_is_refused(tmp_path: Path) -> None:
    """Mapped, its bytes would be zeros, or the end of the process."""
    file = opened(tmp_path, sound())
    last = max(file.tensors.values(), key=lambda info: info.offset)
    os.truncate(file.path, last.offset + 2)

    assert 2 == len(file.raw(last.name, 2))
    with pytest.raises(ModelFileError, match=f"ends at {last.offset + 2}; it was changed while it was read"):
        file.array(last.name)


def test_a_custom_alignment_is_followed(tmp_path: Path) -> None:
    file = opened(tmp_path, sound())

    assert file.alignment == 64
    assert all(info.offset % 64 == 0 for info in file.tensors.values())
    assert file.raw("norm.weight")[:4].tolist() == [0, 1, 2, 3]


def test_arrays_of_metadata_act_as_sequences(tmp_path: Path) -> None:
    metadata = opened(tmp_path, sound()).metadata
    tokens, ratios = metadata["tokens"], metadata["ratios"]

    assert not isinstance(tokens, (str, int, float))
    assert not isinstance(ratios, (str, int, float))
    assert (len(tokens), tokens[-1], tokens[:2]) == (4, "word", ["a", ""])
    assert (len(ratios), ratios[-1], ratios[1:], 4 in ratios) == (3, -1, [4, -1], True)
    assert (repr(tokens), repr(ratios)) == ("StringArray(4 strings)", "NumberArray(3 of int32)")


def test_a_vocabulary_of_260_000_strings_opens_within_a_second(tmp_path: Path) -> None:
    made = Forge().header(tensors=0, keys=2)
    made.strings(b"tokens", [f"token{i}".encode() for i in range(130_000)])
    made.strings(b"merges", [f"to k{i}".encode() for i in range(130_000)])
    path = saved(tmp_path, made.data)

    def seconds() -> float:
        start = time.process_time()
        GGUFFile.open(path)
        return time.process_time() - start

    assert min(seconds() for _ in range(3)) < 1.0


def test_an_unknown_tensor_is_answered_with_the_nearest_name(tmp_path: Path) -> None:
    file = opened(tmp_path, sound())

    with pytest.raises(
        ModelFileError, match=r"no tensor 'norm.weights' among 4; the nearest is 'norm.weight'"
    ):
        file.array("norm.weights")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b"", r"0 bytes long, a GGUF header alone has 24", id="empty"),
        pytest.param(b"GGUF\3\0\0\0", r"8 bytes long, a GGUF header alone has 24", id="cut_in_the_header"),
        pytest.param(bytes(64), r"not a GGUF file: it begins with b'\\x00", id="zeros"),
        pytest.param(
            b"PK\3\4" + bytes(64), r"allowed is b'GGUF'; it looks like a zip archive", id="checkpoint"
        ),
        pytest.param(b"<!DOCTYPE html>" + bytes(64), r"looks like a web page", id="web_page"),
        pytest.param(b"version https://git-lfs.github.com/spec/v1", r"a Git LFS pointer", id="lfs_pointer"),
        pytest.param(b"tjgg" + bytes(64), r"a GGJT file from before GGUF", id="older_format"),
        pytest.param(b"GGUF" + struct.pack(">IQQ", 3, 0, 0), r"a big-endian GGUF file", id="big_endian"),
        pytest.param(b"GGUF" + struct.pack("<IQQ", 1, 0, 0), r"GGUF version 1, allowed is 3", id="version_1"),
        pytest.param(b"GGUF" + struct.pack("<IQQ", 2, 0, 0), r"GGUF version 2, allowed is 3", id="version_2"),
        pytest.param(b"GGUF" + struct.pack("<IQQ", 4, 0, 0), r"GGUF version 4, allowed is 3", id="version_4"),
    ],
)
def test_a_foreign_file_is_named_for_what_it_is(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(ModelFileError, match=message):
        GGUFFile.open(saved(tmp_path, data))


def test_a_missing_file_a_folder_and_a_pipe_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(ModelFileError, match=r"none\.gguf: the file cannot be opened: .*No such file"):
        GGUFFile.open(tmp_path / "none.gguf")
    for place in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(ModelFileError, match="a model is a regular file, found something else"):
            GGUFFile.open(place)


def keyed(count: int = 1) -> Forge:
    return Forge().header(tensors=0, keys=count)


def directory(count: int = 1) -> Forge:
    return Forge().header(tensors=count, keys=0)


HOSTILE = {
    "tensors_without_end": (
        directory(2**63),
        r"the number of tensors is 9223372036854775808, needing at least \d+ bytes where the file has 8 left",
    ),
    "keys_without_end": (keyed(2**64 - 1), r"the number of keys is 18446744073709551615, needing"),
    "more_keys_than_any_model": (
        Forge(keyed(16_385).data + bytes(14 * 16_385)),
        r"the number of keys is 16385, allowed are up to 16384",
    ),
    "key_name_beyond_the_file": (
        Forge(keyed().data + struct.pack("<Q", 60_000) + bytes(8)),
        r"key 0 of 1 needs 60000 bytes at offset 32, but the file ends at 40; it is truncated or damaged",
    ),
    "key_name_of_2_to_the_64": (
        Forge(keyed().data + struct.pack("<Q", 2**64 - 1) + bytes(8)),
        r"key 0 of 1 is 18446744073709551615 bytes long, allowed are up to 65535",
    ),
    "key_without_name": (
        keyed().key(b"", forge.U32, bytes(4)),
        r"key 0 of 1 is empty, allowed are 1 to 65535",
    ),
    "key_that_is_not_text": (
        keyed().key(b"a\xff", forge.U32, bytes(4)),
        r"key 0 of 1 at offset 32 is not UTF-8",
    ),
    "key_twice": (
        keyed(2).key(b"a", forge.U32, bytes(4)).key(b"a", forge.U32, bytes(4)),
        r"key 'a' appears twice, allowed is once",
    ),
    "value_of_unknown_kind": (
        keyed().key(b"a", 13, bytes(4)),
        r"key 'a' has value type 13, allowed are 0 to 12",
    ),
    "number_cut_off": (
        keyed().key(b"abc", forge.U64, bytes(3)),
        r"key 'abc' needs 8 bytes at offset 39, but",
    ),
    "boolean_of_two": (
        keyed().key(b"abcd", forge.BOOL, b"\2"),
        r"key 'abcd' holds a boolean of value 2, allowed",
    ),
    "boolean_array_of_nine": (
        keyed().array(b"a", forge.BOOL, b"\0\1\x09", count=3),
        r"key 'a' holds a boolean of value 9, allowed are 0 and 1",
    ),
    "string_beyond_the_file": (
        keyed().string(b"a", b"text", length=5),
        r"the string of key 'a' needs 5 bytes at offset 45, but the file ends at 49",
    ),
    "string_of_gigabytes": (
        keyed().string(b"a", b"text", length=2**40),
        r"the string of key 'a' is 1099511627776 bytes long, allowed are up to 4194304",
    ),
    "string_that_is_not_text": (
        keyed().string(b"a", b"\x80text"),
        r"the string of key 'a' at offset 45 is not UTF-8",
    ),
    "strings_of_more_than_8_MiB": (
        keyed(3).string(b"a", bytes(4 << 20)).string(b"b", bytes(4 << 20)).string(b"c", b"x"),
        r"with .* the file holds over 8388608 bytes of keys, names and strings",
    ),
    "array_of_arrays": (
        keyed().array(b"a", forge.ARRAY, struct.pack("<IQ", forge.U8, 1) + b"x", count=1),
        r"key 'a' is an array of arrays, allowed are arrays of numbers, booleans or strings",
    ),
    "arrays_nested_60000_deep": (
        keyed().array(b"a", forge.ARRAY, struct.pack("<IQ", forge.ARRAY, 1) * 60_000, count=1),
        r"key 'a' is an array of arrays",
    ),
    "array_of_unknown_kind": (
        keyed().array(b"a", 99, bytes(8), count=1),
        r"the items of key 'a' has value type 99",
    ),
    "array_without_end": (
        keyed().array(b"abcd", forge.U32, bytes(8), count=2**62),
        r"the length of key 'abcd' is 4611686018427387904, needing at least 18446744073709551616 bytes",
    ),
    "array_one_too_long": (
        keyed().array(b"abcd", forge.F64, bytes(15), count=2),
        r"the length of key 'abcd' is 2, needing at least 16 bytes where the file has 15 left",
    ),
    "strings_without_end": (
        keyed().strings(b"abcd", [b"x", b"y"], count=2**61),
        r"the length of key 'abcd' is 2305843009213693952, needing",
    ),
    "string_item_beyond_the_file": (
        Forge(keyed().strings(b"a", [b"x", b"y"]).data[:-1]),
        r"key 'a'\[1\] needs 1 bytes at offset 66, but the file ends at 66",
    ),
    "string_item_of_gigabytes": (
        Forge(keyed().strings(b"a", [b"x"]).data[:-9] + struct.pack("<Q", 2**33) + b"x"),
        r"key 'a'\[0\] is 8589934592 bytes long, allowed are up to 65535",
    ),
    "string_item_that_is_not_text": (keyed().strings(b"a", [b"x", b"\xc3"]), r"key 'a'\[1\] .*is not UTF-8"),
    "alignment_of_zero": (
        keyed().key(b"general.alignment", forge.U32, bytes(4)),
        r"'general.alignment' is 0, allowed are powers of two from 8 to 1048576",
    ),
    "alignment_of_48": (
        keyed().key(b"general.alignment", forge.U32, struct.pack("<I", 48)),
        r"alignment' is 48",
    ),
    "alignment_of_2_to_the_31": (
        keyed().key(b"general.alignment", forge.U32, struct.pack("<I", 2**31)),
        r"'general.alignment' is 2147483648, allowed are powers of two",
    ),
    "alignment_as_text": (
        keyed().string(b"general.alignment", b"32"),
        r"'general.alignment' is not a u32 number",
    ),
    "alignment_as_i32": (
        keyed().key(b"general.alignment", forge.I32, struct.pack("<i", 32)),
        r"'general.alignment' is not a u32 number",
    ),
    "tensor_without_name": (
        directory().tensor(b"", [32], 0, 0).body(128),
        r"the name of tensor 0 of 1 is empty",
    ),
    "tensor_with_a_long_name": (
        directory().tensor(b"x" * 65, [32], 0, 0).body(128),
        r"the name of tensor 0 of 1 is 65 bytes long, allowed are up to 64",
    ),
    "tensor_twice": (
        directory(2).tensor(b"a", [8], 0, 0).tensor(b"a", [8], 0, 32).body(64),
        r"tensor 'a' appears twice, allowed is once",
    ),
    "tensor_without_dimensions": (
        directory().tensor(b"a", [], 0, 0).body(64),
        r"tensor 'a' has 0 dimensions, allowed are 1 to 4",
    ),
    "tensor_of_five_dimensions": (
        directory().tensor(b"a", [1] * 5, 0, 0).body(64),
        r"tensor 'a' has 5 dimensions, allowed are 1 to 4",
    ),
    "tensor_of_2_to_the_32_dimensions": (
        directory().tensor(b"a", [1], 0, 0, n_dims=2**32 - 1).body(64),
        r"tensor 'a' has 4294967295 dimensions",
    ),
    "tensor_without_values": (
        directory().tensor(b"a", [32, 0], 0, 0).body(64),
        r"tensor 'a' has dimensions \[32, 0\], allowed are 1 or more with a product below 2\^63",
    ),
    "tensor_whose_product_wraps_to_zero": (
        directory().tensor(b"a", [2**32, 2**32], 0, 0).body(64),
        r"tensor 'a' has dimensions \[4294967296, 4294967296\], allowed are 1 or more with a product below",
    ),
    "tensor_whose_product_wraps_to_32": (
        directory().tensor(b"a", [32, 2**63 + 1, 2, 1], 0, 0).body(128),
        r"tensor 'a' has dimensions .* product below 2\^63",
    ),
    "tensor_of_unknown_type": (
        directory().tensor(b"a", [256], 14, 0).body(512),
        r"tensor 'a' has tensor type 14, allowed are F32 \(0\), F16 \(1\), Q8_0 \(8\), Q2_K \(10\)",
    ),
    "tensor_of_part_of_a_block": (
        directory().tensor(b"a", [128, 2], 16, 0).body(512),
        r"tensor 'a' is IQ2_XXS with rows of 128 values, allowed are multiples of 256",
    ),
    "tensor_off_the_alignment": (
        directory().tensor(b"a", [8], 0, 4).body(64),
        r"tensor 'a' has offset 4, allowed are multiples of the alignment 32",
    ),
    "tensor_beyond_the_file": (
        directory().tensor(b"a", [8], 0, 64).body(64),
        r"tensor 'a' needs bytes 128 to 160, but the file ends at 128; it is truncated or damaged",
    ),
    "tensor_one_byte_too_long": (
        Forge(directory().tensor(b"a", [8], 0, 0).body(32).data[:-1]),
        r"tensor 'a' needs bytes 64 to 96, but the file ends at 95",
    ),
    "tensor_whose_offset_wraps": (
        directory().tensor(b"a", [8], 0, 2**64 - 32).body(64),
        r"tensor 'a' needs bytes 18446744073709551648 to 18446744073709551680, but the file ends at 128",
    ),
    "tensors_that_overlap": (
        directory(2).tensor(b"a", [16], 0, 0).tensor(b"b", [8], 0, 32).body(128),
        r"tensors 'a' and 'b' overlap: the first ends at 160, the second begins at 128",
    ),
    "tensors_in_one_place": (
        directory(2).tensor(b"a", [8], 0, 32).tensor(b"b", [8], 0, 32).body(128),
        r"tensors 'a' and 'b' overlap",
    ),
    "terminal_escapes_in_a_name": (
        directory().tensor(b"\x1b[2Jevil", [3], 8, 0).body(64),
        r"tensor '\\x1b\[2Jevil' is Q8_0 with rows of 3 values",
    ),
}


@pytest.mark.parametrize(("made", "message"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_structure_gets_one_clear_message(tmp_path: Path, made: Forge, message: str) -> None:
    with pytest.raises(ModelFileError, match=message) as caught:
        opened(tmp_path, made)

    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 500 + len(str(tmp_path))


def test_a_long_name_is_cut_in_the_message(tmp_path: Path) -> None:
    made = keyed().key(b"k" * 60_000, 13, bytes(4))

    with pytest.raises(ModelFileError, match=re.escape(repr("k" * 93 + "..."))):
        opened(tmp_path, made)


def test_sizes_that_sum_over_64_bits_are_refused(tmp_path: Path) -> None:
    """CVE-2025-53630: padded tensor sizes were summed in 64 bits and wrapped to a small buffer."""
    made = directory(2).tensor(b"a", [2**61 - 8], 0, 0).tensor(b"b", [2**61], 0, 2**63 - 32).body(256)

    with pytest.raises(
        ModelFileError, match=r"tensor 'a' needs bytes \d+ to 9223372036854775\d+, but the file ends"
    ):
        opened(tmp_path, made)


def test_a_tensor_count_that_wraps_the_directory_size_is_refused(tmp_path: Path) -> None:
    """CVE-2026-27940: the same place after its first fix; count times overhead plus data size wrapped."""
    wraps = 2**64 // 368 + 1  # 368 bytes for each entry: the product is just over 2^64

    for count in (wraps, wraps - 1, 2**63, 2**64 - 1):
        with pytest.raises(ModelFileError, match=rf"the number of tensors is {count}, needing at least"):
            opened(tmp_path, directory(count).tensor(b"a", [8], 0, 0).body(4096))


@pytest.mark.parametrize("rows", [3, 1000, 2**40])
def test_a_shape_that_claims_more_than_the_file_holds_is_refused(tmp_path: Path, rows: int) -> None:
    """CVE-2026-7482: false tensor sizes made a reader hand out memory behind the data."""
    made = directory().tensor(b"a.weight", [256, rows], QuantType.F16, 0).body(2 * 512)

    with pytest.raises(
        ModelFileError, match=r"tensor 'a\.weight' needs bytes 96 to \d+, but the file ends at 1120"
    ):
        opened(tmp_path, made)
