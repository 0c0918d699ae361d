"""GGUF tensor encodings -> float32, in numpy.

A quantized tensor is a run of blocks along its last axis; each block holds a few numbers in float16 (scale ``d``,
offset ``m``) and its values as small integers ``q``. Layouts: the GGML block structs of llama.cpp
(https://github.com/ggml-org/ggml, ``ggml-common.h``), the format's own definition.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Encoding:
    """``block_bytes`` bytes hold ``block_size`` values. decode: uint8 [n, block_bytes] -> float32 [n, block_size]"""

    name: str
    block_size: int
    block_bytes: int
    decode: Callable[[Bytes], Floats]


def _half(blocks: Bytes, at: int) -> Floats:
    """The float16 at byte ``at`` of each block, as float32 [n, 1]."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def _nibbles(packed: Bytes) -> Bytes:
    """[n, k] bytes -> [n, 2k]: the low halves of all, then the high halves of all."""
    return np.concatenate([packed & 0xF, packed >> 4], axis=1)


def _fifth_bits(blocks: Bytes, at: int) -> Bytes:
    """The 32 bits at byte ``at`` of each block as [n, 32] of 0 or 16."""
    return np.unpackbits(blocks[:, at : at + 4], axis=1, bitorder="little") << np.uint8(4)


def _f32(blocks: Bytes) -> Floats:
    return blocks.view("<f4").astype(np.float32)  # a copy: the file is mapped read-only


def _f16(blocks: Bytes) -> Floats:
    return blocks.view("<f2").astype(np.float32)


def _bf16(blocks: Bytes) -> Floats:
    return (blocks.view("<u2").astype(np.uint32) << 16).view(np.float32)


def _q4_0(blocks: Bytes) -> Floats:
    return (_nibbles(blocks[:, 2:]).astype(np.float32) - 8) * _half(blocks, 0)


def _q4_1(blocks: Bytes) -> Floats:
    values = _nibbles(blocks[:, 4:]).astype(np.float32)
    values *= _half(blocks, 0)
    values += _half(blocks, 2)
    return values


def _q5_0(blocks: Bytes) -> Floats:
    quants = _nibbles(blocks[:, 6:]) | _fifth_bits(blocks, 2)
    return (quants.astype(np.float32) - 16) * _half(blocks, 0)


def _q5_1(blocks: Bytes) -> Floats:
    quants = _nibbles(blocks[:, 8:]) | _fifth_bits(blocks, 4)
    return quants.astype(np.float32) * _half(blocks, 0) + _half(blocks, 2)


def _q8_0(blocks: Bytes) -> Floats:
    values = np.ascontiguousarray(blocks[:, 2:]).view(np.int8).astype(np.float32)
    values *= _half(blocks, 0)
    return values


def _scales_k4(packed: Bytes) -> tuple[Floats, Floats]:
    """The 8 six-bit scales and 8 six-bit offsets that Q4_K and Q5_K pack into 12 bytes, each [n, 8]."""
    a, b, c = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([a & 63, (c & 0xF) | (a >> 6 << 4)], axis=1)
    offsets = np.concatenate([b & 63, (c >> 4) | (b >> 6 << 4)], axis=1)
    return scales.astype(np.float32), offsets.astype(np.float32)


def _k4(blocks: Bytes, quants: Bytes) -> Floats:
    """Q4_K and Q5_K share their scales: d * scale * q - dmin * offset in 8 groups of 32. ``quants`` [n, 8, 32]."""
    scales, offsets = _scales_k4(blocks[:, 4:16])
    scale = (_half(blocks, 0) * scales)[:, :, None]
    offset = (_half(blocks, 2) * offsets)[:, :, None]
    values: Floats = quants.astype(np.float32) * scale - offset
    return values.reshape(len(blocks), 256)


def _q4_k(blocks: Bytes) -> Floats:
    packed = blocks[:, 16:144].reshape(-1, 4, 1, 32)
    return _k4(blocks, np.concatenate([packed & 0xF, packed >> 4], axis=2).reshape(-1, 8, 32))


def _q5_k(blocks: Bytes) -> Floats:
    packed = blocks[:, 48:176].reshape(-1, 4, 1, 32)
    low = np.concatenate([packed & 0xF, packed >> 4], axis=2).reshape(-1, 8, 32)
    # Bit g of byte i is the fifth bit of value i of group g.
    fifth = (blocks[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None]) & 1
    return _k4(blocks, low | (fifth << 4))


def _q6_k(blocks: Bytes) -> Floats:
    low = blocks[:, 0:128].reshape(-1, 2, 1, 2, 32)  # [n, half, 1, 2, 32]
    low = np.concatenate([low & 0xF, low >> 4], axis=2).reshape(-1, 2, 4, 32)
    packed = blocks[:, 128:192].reshape(-1, 2, 1, 32)
    high = (packed >> np.array([0, 2, 4, 6], dtype=np.uint8)[:, None]) & 3
    quants = (low | (high << 4)).astype(np.float32) - 32
    scales = np.ascontiguousarray(blocks[:, 192:208]).view(np.int8).astype(np.float32) * _half(blocks, 208)
    return (quants.reshape(-1, 16, 16) * scales[:, :, None]).reshape(len(blocks), 256)


# GGML type number -> encoding. What is missing here is refused by name (see NAMES).
ENCODINGS: dict[int, Encoding] = {
    0: Encoding("F32", 1, 4, _f32),
    1: Encoding("F16", 1, 2, _f16),
    2: Encoding("Q4_0", 32, 18, _q4_0),
    3: Encoding("Q4_1", 32, 20, _q4_1),
    6: Encoding("Q5_0", 32, 22, _q5_0),
    7: Encoding("Q5_1", 32, 24, _q5_1),
    8: Encoding("Q8_0", 32, 34, _q8_0),
    12: Encoding("Q4_K", 256, 144, _q4_k),
    13: Encoding("Q5_K", 256, 176, _q5_k),
    14: Encoding("Q6_K", 256, 210, _q6_k),
    30: Encoding("BF16", 1, 2, _bf16),
}

# Names of the types we do not read, for the error message.
NAMES: dict[int, str] = {
    9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S",
    20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64",
    29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip


def supported() -> str:
    """The readable types' names, for messages."""
    return ", ".join(encoding.name for encoding in ENCODINGS.values())


def decode(data: Bytes, encoding: Encoding) -> Floats:
    """Flat bytes -> flat float32. ``len(data)`` must be a multiple of the encoding's block."""
    return encoding.decode(np.ascontiguousarray(data).reshape(-1, encoding.block_bytes)).reshape(-1)
