"""What all machines over one lexeme table share in native memory, and the functions of ``native/machine.cpp``.

::

    LexemeTable (Python) ──rows, accept──> Shared ──> native Lexemes: packed trie, masks of lexemes  native/token_walk.h
                          keys, needs <──           <── every NativeMachine over the table           native/machine.cpp
"""

from __future__ import annotations

import ctypes
import weakref
from functools import lru_cache
from typing import Any

import numpy as np

from ...native import loader
from .lexemes import LexemeTable

#: most needs that native code names at once
MOST_NEEDS = 255
_MASK_BYTES = 64 * 1024 * 1024  # lexeme masks of one lexeme table


class _Rows(ctypes.Structure):
    """LexemeRows of native/token_walk.h."""

    _fields_ = (
        ("rows", ctypes.c_void_p),
        ("accept", ctypes.c_void_p),
        ("keys", ctypes.c_void_p),
        ("states", ctypes.c_int64),
    )


class Shared:
    """What all machines over one lexeme table share: the packed trie and the lexeme masks, in native memory."""

    def __init__(self, library: ctypes.CDLL, lexemes: LexemeTable) -> None:
        trie = lexemes.trie
        missing = lexemes.vocabulary.missing_bytes
        self.trie = trie  # its arrays are read by native code as long as this lives
        self.needs = (ctypes.c_int32 * (2 + 2 * MOST_NEEDS))()
        self.scratch = np.empty(trie.words, np.uint32)
        self._buffer = ctypes.create_string_buffer(4096)
        self.scratch_address = self.scratch.ctypes.data
        self._rows = _Rows()
        self.generation = -1
        self.keys = np.full(0, -1, np.int32)
        self.refresh(lexemes)
        arrays = (trie.byte, trie.depth, trie.skip, trie.token, trie.first, trie.token_ids)
        self.handle: int | None = library.plait_lexemes_new(
            *(a.ctypes.data for a in arrays),
            trie.nodes,
            trie.words,
            bytes(value in missing for value in range(256)),
            ctypes.addressof(self._rows),
            ctypes.addressof(self.needs),
            _MASK_BYTES,
        )
        if self.handle is None:
            raise MemoryError("no memory for the vocabulary's trie")
        self._library = library
        weakref.finalize(self, library.plait_lexemes_free, self.handle).atexit = False

    def refresh(self, lexemes: LexemeTable) -> None:
        """The table's arrays moved."""
        keys = np.full(len(lexemes.rows), -1, np.int32)
        keys[: len(self.keys)] = self.keys
        self.arrays = (lexemes.rows, lexemes.accept)
        self.keys = keys
        self._rows.rows, self._rows.accept = lexemes.rows.ctypes.data, lexemes.accept.ctypes.data
        self._rows.keys, self._rows.states = keys.ctypes.data, len(keys)
        self.generation = lexemes.generation

    def buffer(self, size: int) -> ctypes.Array[ctypes.c_char]:
        """At least ``size`` bytes to write into, till the next call."""
        if len(self._buffer) < size:
            self._buffer = ctypes.create_string_buffer(size)
        return self._buffer

    @property
    def nbytes(self) -> int:
        found: int = self._library.plait_lexemes_nbytes(self.handle)
        return found + self.keys.nbytes + self.trie.nodes * 20


def shared_of(lexemes: LexemeTable, library: ctypes.CDLL) -> Shared:
    """What the machines over ``lexemes`` share; made with the first of them."""
    found = lexemes.native
    if found is None:
        found = lexemes.native = Shared(library, lexemes)
    return found


def shared_bytes(lexemes: LexemeTable) -> int:
    """What native code holds for all machines over one lexeme table: its masks of lexemes, mostly."""
    return 0 if lexemes.native is None else lexemes.native.nbytes


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL | None:
    found = loader.load()
    if found is None:
        return None
    pointer, text, number, long = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32, ctypes.c_int64
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "plait_lexemes_new": (pointer, [*[pointer] * 6, number, number, text, pointer, pointer, long]),
        "plait_lexemes_window": (None, [pointer, *[number] * 4]),
        "plait_lexemes_total": (None, [pointer, number, number]),
        "plait_lexemes_free": (None, [pointer]),
        "plait_lexemes_nbytes": (long, [pointer]),
        "plait_machine_new": (pointer, [pointer, pointer, *[long] * 4]),
        "plait_machine_free": (None, [pointer]),
        "plait_machine_nbytes": (long, [pointer]),
        "plait_machine_configs": (long, [pointer]),
        "plait_machine_add": (number, [pointer, number, text, text]),
        "plait_machine_add_dependent": (number, [pointer, number]),
        "plait_machine_stacks": (number, [pointer, number, pointer, number]),
        "plait_machine_look": (number, [pointer, number, pointer, number]),
        "plait_machine_markers": (number, [pointer, number, pointer, number]),
        "plait_machine_resolved": (number, [pointer, number, text, text, number]),
        "plait_machine_doubtful": (long, [pointer, pointer, long]),
        "plait_machine_begin": (number, [pointer, number]),
        "plait_machine_step": (number, [pointer, number, text, long]),
        "plait_machine_flags": (number, [pointer, number]),
        "plait_machine_forced": (long, [pointer, number, text, long]),
        "plait_machine_mask_number": (number, [pointer, number]),
        "plait_machine_fill": (number, [pointer, number, pointer, long]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(found, name)
        function.restype, function.argtypes = result, arguments
    return found


def available() -> bool:
    """Whether there is a native library."""
    return library() is not None
