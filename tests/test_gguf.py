"""The GGUF reader: encodings against the format's own package, and files that lie about themselves."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import gguf as peer
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_model import encode_gguf, encode_tensor, tiny_gguf_metadata, write_tiny_gguf

from plait.runtime.errors import ModelError
from plait.runtime.models import quants
from plait.runtime.models.card import read_card
from plait.runtime.models.gguf import GGUFFile

ONE = ("weight", np.arange(64, dtype=np.float32).reshape(2, 32), "F32")


def small(metadata: dict[str, tuple[str, Any]] | None = None) -> bytes:
    return encode_gguf(metadata if metadata is not None else {"general.name": ("str", "x")}, [ONE])


# ---------------------------------------------------------------- what is right


@pytest.mark.parametrize("kind", quants.ENCODINGS, ids=lambda kind: quants.ENCODINGS[kind].name)
def test_decoding_equals_the_gguf_package(kind: int) -> None:
    encoding = quants.ENCODINGS[kind]
    rng = np.random.default_rng(kind)
    data = rng.integers(0, 256, size=(40, encoding.block_bytes), dtype=np.uint8)
    if encoding.block_size == 1:
        data = encode_tensor_bytes(rng.standard_normal(40).astype(np.float32), encoding.name)
    else:  # random bits are fine as integers, but the float16 scales must be finite
        for at in {"Q6_K": (208,), "Q4_1": (0, 2), "Q5_1": (0, 2), "Q4_K": (0, 2), "Q5_K": (0, 2)}.get(
            encoding.name, (0,)
        ):
            data[:, at : at + 2] = rng.standard_normal((40, 1)).astype("<f2").view(np.uint8)
    expected = peer.quants.dequantize(data, peer.GGMLQuantizationType(kind))
    np.testing.assert_array_equal(quants.decode(data.reshape(-1), encoding), expected.reshape(-1))


def encode_tensor_bytes(values: np.ndarray, name: str) -> np.ndarray:
    return np.frombuffer(encode_tensor(values, name), np.uint8).reshape(len(values), -1)


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_1"])
def test_a_written_tensor_reads_back_close(tmp_path: Path, kind: str) -> None:
    values = np.random.default_rng(1).standard_normal((6, 64)).astype(np.float32)
    path = tmp_path / "x.gguf"
    path.write_bytes(encode_gguf({}, [ONE, ("values", values, kind)]))
    read = GGUFFile(path).tensor("values")
    assert read.shape == (6, 64) and read.dtype == np.float32
    tolerance = {"F32": 0, "F16": 2e-3, "BF16": 1.6e-2, "Q8_0": 2e-2, "Q4_1": 0.25}[kind]
    assert np.abs(read - values).max() <= tolerance


def test_metadata_of_every_kind_and_odd_alignment(tmp_path: Path) -> None:
    entries: dict[str, tuple[str, Any]] = {
        "general.alignment": ("u32", 128),
        "text": ("str", "né 😀"),
        "flag": ("bool", True),
        "small": ("i32", -3),
        "large": ("u64", 2**40),
        "real": ("f32", 0.5),
        "texts": ("[]str", ["a", "", "b"]),
        "reals": ("[]f32", [1.0, 2.5]),
    }
    path = tmp_path / "x.gguf"
    path.write_bytes(encode_gguf(entries, [ONE], alignment=128))
    file = GGUFFile(path)
    assert file.metadata == {key: value for key, (_, value) in entries.items()}
    np.testing.assert_array_equal(file.tensor("weight"), ONE[1])


def test_the_gguf_package_reads_what_the_test_writer_writes(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path, kind="Q8_0")
    theirs = {tensor.name: tensor for tensor in peer.GGUFReader(path).tensors}
    ours = GGUFFile(path)
    assert theirs.keys() == ours.tensors.keys()
    tensor = theirs["blk.1.ffn_down.weight"]
    expected = peer.quants.dequantize(tensor.data, tensor.tensor_type)
    np.testing.assert_array_equal(ours.tensor(tensor.name), expected)


# ---------------------------------------------------------------- what is wrong


def replaced(data: bytes, at: int, layout: str, value: int) -> bytes:
    new = struct.pack(layout, value)
    return data[:at] + new + data[at + len(new) :]


HUGE = 2**60
# general.name: magic 4, version 4, counts 16 -> key length at 24, key 32..44, type 44, value length 48, "x" at 56;
# tensor: name length 57, "weight" 65..71, dimensions 71, shape 75 and 83, type 91, offset 95.
BROKEN: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda data: b"", "cannot be read"),
    "other format": (lambda data: b"PK\x03\x04" + data[4:], "magic"),
    "too short for a version": (lambda data: data[:6], "version"),
    "version 1": (lambda data: replaced(data, 4, "<I", 1), "version 1"),
    "big-endian": (lambda data: replaced(data, 4, ">I", 3), "big-endian"),
    "tensor count": (lambda data: replaced(data, 8, "<Q", HUGE), "tensor list"),
    "metadata count": (lambda data: replaced(data, 16, "<Q", HUGE), "metadata"),
    "key length": (lambda data: replaced(data, 24, "<Q", HUGE), "metadata key"),
    "value type": (lambda data: replaced(data, 44, "<I", 77), "unknown value type 77"),
    "string length": (lambda data: replaced(data, 48, "<Q", HUGE), "general.name"),
    "dimensions": (lambda data: replaced(data, 71, "<I", 2**31), "dimensions"),
    "shape": (lambda data: replaced(data, 75, "<Q", HUGE), "ends at byte"),
    "shape of zero": (lambda data: replaced(data, 83, "<Q", 0), "shape"),
    "tensor type": (lambda data: replaced(data, 91, "<I", 16), "IQ2_XXS.*use a file quantized as one of: F32"),
    "unheard of tensor type": (lambda data: replaced(data, 91, "<I", 250), "number 250"),
    "block size": (lambda data: replaced(replaced(data, 75, "<Q", 31), 91, "<I", 8), "blocks of 32"),
    "offset": (lambda data: replaced(data, 95, "<Q", HUGE), "ends at byte"),
    "cut in the tensor data": (lambda data: data[:-1], "ends at byte"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_file_is_named_with_a_fix(tmp_path: Path, fault: str) -> None:
    spoil, message = BROKEN[fault]
    path = tmp_path / "broken.gguf"
    path.write_bytes(spoil(small()))
    with pytest.raises(ModelError, match=message) as caught:
        GGUFFile(path)
    assert str(path) in str(caught.value) and ";" in str(caught.value)


def test_an_array_longer_than_the_file(tmp_path: Path) -> None:
    for kind, items in (("[]str", ["a"]), ("[]u32", [1])):
        data = small({"list": (kind, items)})
        at = data.index(b"list") + 4 + 8  # after the key: type, element type, then the length
        path = tmp_path / "x.gguf"
        path.write_bytes(replaced(data, at, "<Q", HUGE))
        with pytest.raises(ModelError, match=r"list of \d+ items needs at least"):
            GGUFFile(path)


def test_a_string_of_an_array_longer_than_the_file(tmp_path: Path) -> None:
    data = small({"list": ("[]str", ["first", "second"])})
    path = tmp_path / "x.gguf"
    path.write_bytes(replaced(data, data.index(b"second") - 8, "<Q", HUGE))
    with pytest.raises(ModelError, match="list breaks off after 1 of 2 strings"):
        GGUFFile(path)


def test_arrays_nested_without_end(tmp_path: Path) -> None:
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"k" + struct.pack("<I", 9)
    path = tmp_path / "x.gguf"
    path.write_bytes(head + struct.pack("<IQ", 9, 1) * 5000)
    with pytest.raises(ModelError, match="nests arrays"):
        GGUFFile(path)


@pytest.mark.parametrize("alignment", [0, 3, 2**31])
def test_an_alignment_that_is_none(tmp_path: Path, alignment: int) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(small({"general.alignment": ("u32", alignment)}))
    with pytest.raises(ModelError, match=r"general\.alignment"):
        GGUFFile(path)


def test_a_tensor_listed_twice_and_a_split_model(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(encode_gguf({}, [ONE, ONE]))
    with pytest.raises(ModelError, match="listed twice"):
        GGUFFile(path)
    path.write_bytes(small({"split.count": ("u32", 3)}))
    with pytest.raises(ModelError, match="one of 3 parts"):
        GGUFFile(path)


def test_every_cut_of_a_model_is_refused(tmp_path: Path) -> None:
    whole = write_tiny_gguf(tmp_path, kind="Q4_1").read_bytes()
    path = tmp_path / "cut.gguf"
    for length in [*range(0, 200, 7), *range(200, len(whole), len(whole) // 60), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(ModelError, match=r"cut\.gguf"):
            read_card(path)


@cache
def _embedding_only() -> bytes:
    return encode_gguf(tiny_gguf_metadata(), [("token_embd.weight", np.ones((512, 64), np.float32), "Q8_0")])


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_flipped_bytes_are_refused_or_harmless(tmp_path: Path, data: st.DataObject) -> None:
    whole = bytearray(_embedding_only())
    head = len(whole) - 512 * 2 * 34
    # Most of the head is vocabulary; aim at the lengths, types and numbers before it as often as at all of it.
    limit = data.draw(st.sampled_from([200, 900, head]))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, limit - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "flipped.gguf"
    path.write_bytes(whole)
    try:
        card = read_card(path)
    except ModelError as error:
        assert "flipped.gguf" in str(error)
    else:
        assert card.config.vocab >= len(card.tokenizer.tokens)
