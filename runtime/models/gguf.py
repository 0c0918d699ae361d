"""Reading a GGUF file: its metadata, and its tensors as float32.

The file is mapped, not read, and nothing in it is believed: every count and length is held against the bytes that
are really there before anything is allocated from it. Format:
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (versions 2 and 3, little-endian).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import ModelError
from . import quants

MAGIC = b"GGUF"
Value: TypeAlias = "int | float | bool | str | list[Value]"

_STRING, _ARRAY = 8, 9
# Value type -> (struct layout, numpy dtype).
_SCALARS = {
    0: ("<B", "<u1"), 1: ("<b", "<i1"), 2: ("<H", "<u2"), 3: ("<h", "<i2"), 4: ("<I", "<u4"), 5: ("<i", "<i4"),
    6: ("<f", "<f4"), 7: ("<?", "?"), 10: ("<Q", "<u8"), 11: ("<q", "<i8"), 12: ("<d", "<f8"),
}  # fmt: skip
_MAX_DIMENSIONS = 4
_MAX_NESTING = 4


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """``shape`` is row-major (numpy's order; the file has it reversed). ``start``: byte offset in the file."""

    name: str
    shape: tuple[int, ...]
    encoding: quants.Encoding
    start: int
    nbytes: int


class GGUFFile:
    """An opened GGUF file. Raises ModelError, naming the path and the fix, for anything that is not as it should be.

    metadata: key -> value.   tensors: name -> :class:`TensorInfo`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._data: NDArray[np.uint8] = np.memmap(path, dtype=np.uint8, mode="r")
        except FileNotFoundError:
            raise ModelError(f"{path}: no such file; give the path of a GGUF file or of a model folder") from None
        except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
            raise ModelError(f"{path}: cannot be read ({error}); download the file again") from error
        header = _Header(path, self._data)
        tensor_count, metadata_count = header.begin()
        self.metadata: dict[str, Value] = header.metadata(metadata_count)
        self.tensors: dict[str, TensorInfo] = header.tensors(tensor_count, self._alignment())
        parts = self.metadata.get("split.count", 1)
        if isinstance(parts, int) and parts > 1:
            raise ModelError(f"{path}: is one of {parts} parts of a split model; merge them into one GGUF file first")

    def _alignment(self) -> int:
        alignment = self.metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1) or alignment > 1 << 20:
            raise ModelError(
                f"{self.path}: general.alignment is {alignment!r}, not a power of two; the file is corrupt"
            )
        return alignment

    def tensor(self, name: str) -> NDArray[np.float32]:
        """The named tensor, dequantized, as float32 in row-major shape. KeyError if there is none of that name."""
        info = self.tensors[name]
        return quants.decode(self._data[info.start : info.start + info.nbytes], info.encoding).reshape(info.shape)


class _Header:
    """A cursor over the file's head that refuses to read past its end."""

    def __init__(self, path: Path, data: NDArray[np.uint8]) -> None:
        self.path = path
        self.view = data.data
        self.at = 0

    def fail(self, what: str, fix: str = "the file is truncated or corrupt, download it again") -> NoReturn:
        raise ModelError(f"{self.path}: {what}; {fix}")

    def need(self, count: int, each: int, what: str) -> None:
        left = len(self.view) - self.at
        if count * each > left:
            self.fail(f"{what} of {count} items needs at least {count * each} bytes, but only {left} are left")

    def scalar(self, layout: str, what: str) -> int | float | bool:
        self.need(1, struct.calcsize(layout), what)
        value: int | float | bool = struct.unpack_from(layout, self.view, self.at)[0]
        self.at += struct.calcsize(layout)
        return value

    def count(self, layout: str, what: str) -> int:
        return int(self.scalar(layout, what))

    def string(self, what: str) -> str:
        length = self.count("<Q", what)
        self.need(length, 1, what)
        data = bytes(self.view[self.at : self.at + length])
        self.at += length
        # Some vocabularies hold pieces that are no valid UTF-8; they must neither fail nor become equal.
        return data.decode("utf-8", errors="surrogateescape")

    def begin(self) -> tuple[int, int]:
        """Magic and version; gives (tensor count, metadata count)."""
        if bytes(self.view[:4]) != MAGIC:
            self.fail(
                "does not begin with the magic 'GGUF'", "this is no GGUF file; give a GGUF file or a model folder"
            )
        self.at = 4
        version = self.count("<I", "the version")
        if version not in (2, 3):
            kind = "a big-endian file" if version & 0xFFFF == 0 else f"GGUF version {version}"
            self.fail(f"{kind} is not supported", "convert it to little-endian GGUF version 3")
        tensors = self.count("<Q", "the tensor count")
        return tensors, self.count("<Q", "the metadata count")

    def metadata(self, count: int) -> dict[str, Value]:
        self.need(count, 13, "the metadata")
        entries: dict[str, Value] = {}
        for _ in range(count):
            key = self.string("a metadata key")
            entries[key] = self.value(self.count("<I", f"the type of {key}"), key)
        return entries

    def value(self, kind: int, key: str, depth: int = 0) -> Value:
        if kind == _STRING:
            return self.string(key)
        if kind == _ARRAY:
            return self.array(key, depth)
        if kind not in _SCALARS:
            self.fail(f"{key} has the unknown value type {kind}")
        return self.scalar(_SCALARS[kind][0], key)

    def array(self, key: str, depth: int) -> list[Value]:
        kind = self.count("<I", f"the element type of {key}")
        length = self.count("<Q", f"the length of {key}")
        if kind in _SCALARS:
            dtype = np.dtype(_SCALARS[kind][1])
            self.need(length, dtype.itemsize, key)
            values: list[Value] = np.frombuffer(self.view, dtype, length, self.at).tolist()
            self.at += length * dtype.itemsize
            return values
        if depth >= _MAX_NESTING:
            self.fail(f"{key} nests arrays more than {_MAX_NESTING} deep")
        if kind == _STRING:
            return self.strings(length, key)
        self.need(length, 12, key)
        return [self.value(kind, key, depth + 1) for _ in range(length)]

    def strings(self, count: int, key: str) -> list[Value]:
        """Same as ``string`` count times, without its calls: vocabularies hold 100,000 of them and more."""
        self.need(count, 8, key)
        view, at, end = self.view, self.at, len(self.view)
        length_at = struct.Struct("<Q").unpack_from
        values: list[Value] = []
        for _ in range(count):
            if at + 8 > end or at + 8 + (length := length_at(view, at)[0]) > end:
                self.fail(f"{key} breaks off after {len(values)} of {count} strings")
            at += 8 + length
            values.append(str(view[at - length : at], "utf-8", "surrogateescape"))
        self.at = at
        return values

    def tensors(self, count: int, alignment: int) -> dict[str, TensorInfo]:
        self.need(count, 24, "the tensor list")
        listed = [self.tensor_info() for _ in range(count)]
        base = -(-self.at // alignment) * alignment
        infos: dict[str, TensorInfo] = {}
        for info in listed:
            if info.name in infos:
                self.fail(f"tensor {info.name} is listed twice")
            start = base + info.start
            if start + info.nbytes > len(self.view):
                self.fail(
                    f"tensor {info.name} ends at byte {start + info.nbytes}, but the file has only {len(self.view)}"
                )
            infos[info.name] = TensorInfo(info.name, info.shape, info.encoding, start, info.nbytes)
        return infos

    def tensor_info(self) -> TensorInfo:
        name = self.string("a tensor's name")
        dimensions = self.count("<I", f"the shape of {name}")
        if not 1 <= dimensions <= _MAX_DIMENSIONS:
            self.fail(f"tensor {name} has {dimensions} dimensions")
        shape = tuple(reversed([self.count("<Q", f"the shape of {name}") for _ in range(dimensions)]))
        kind = self.count("<I", f"the type of {name}")
        start = self.count("<Q", f"the offset of {name}")
        encoding = quants.ENCODINGS.get(kind)
        if encoding is None:
            known = quants.NAMES.get(kind, f"number {kind}")
            fix = f"use a file quantized as one of: {quants.supported()}"
            self.fail(f"tensor {name} has the type {known}, which is not supported", fix)
        if 0 in shape or shape[-1] % encoding.block_size:
            self.fail(f"tensor {name} of shape {shape} cannot be {encoding.name} (blocks of {encoding.block_size})")
        elements = 1
        for size in shape:
            elements *= size  # Python integers: no overflow
        return TensorInfo(name, shape, encoding, start, elements // encoding.block_size * encoding.block_bytes)
