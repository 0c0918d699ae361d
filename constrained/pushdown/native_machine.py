"""The machine of :mod:`.machine` in native code (``native/machine.cpp``): the same configurations, steps and masks.

::

    NativeMachine                    native/machine.cpp
      step, mask, forced ──ctypes──>   works until it needs a nonterminal's productions or a lexeme row
      _supply  <── needs[] ─────────   (answer -2)
      the same call again ─────────>   goes on where it was

Python is the only side that runs rules and languages, so it is also the side that looks at the deadline, between two
needs. A machine and the :class:`LexemeTable` it shares with others belong to one thread at a time.
"""

from __future__ import annotations

import ctypes
import struct
import time
import weakref
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...native import loader
from ..interface import ConstraintError, Unfinished
from ..masks import Mask, MaskCache
from ..vocabulary import Vocabulary
from .lexemes import LexemeTable
from .rules import Lexeme, Rules

_NEED, _LIMIT, _AGAIN = -2, -3, -4
_PRODUCTIONS, _ROW, _KEY = 0, 1, 2
_NONTERMINAL, _LEXEME, _LITERAL = 0, 1, 2
_MOST_NEEDS = 255
_VISITS = 100_000  # trie nodes between two looks at the deadline: about a millisecond
_FORCED = 4096  # bytes of one native call; longer chains take several
_MOST_STEPS = 20_000  # remembered steps of one machine


class _Rows(ctypes.Structure):
    """LexemeRows of native/token_walk.h."""

    _fields_ = (
        ("rows", ctypes.c_void_p),
        ("accept", ctypes.c_void_p),
        ("keys", ctypes.c_void_p),
        ("states", ctypes.c_int64),
    )


class _Shared:
    """What all machines over one lexeme table share: the packed trie and the lexeme masks, in native memory."""

    def __init__(self, library: ctypes.CDLL, lexemes: LexemeTable, max_mask_bytes: int) -> None:
        trie = lexemes.trie
        self.trie = trie  # its arrays are read by native code as long as this lives
        self.needs = (ctypes.c_int32 * (2 + 2 * _MOST_NEEDS))()
        self.scratch = np.empty(trie.words, np.uint32)
        self.scratch_address = self.scratch.ctypes.data
        self._rows = _Rows()
        self.generation = -1
        self.keys = np.full(0, -1, np.int32)
        self.refresh(lexemes)
        arrays = (trie.byte, trie.depth, trie.skip, trie.token, trie.first, trie.token_ids)
        self.handle: int = library.plait_lexemes_new(
            *(a.ctypes.data for a in arrays),
            trie.nodes,
            trie.words,
            ctypes.addressof(self._rows),
            ctypes.addressof(self.needs),
            max_mask_bytes,
        )
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

    @property
    def nbytes(self) -> int:
        found: int = self._library.plait_lexemes_nbytes(self.handle)
        return found + self.keys.nbytes + self.trie.nodes * 20


_shared: weakref.WeakKeyDictionary[LexemeTable, _Shared] = weakref.WeakKeyDictionary()


class NativeMachine:
    """See :class:`.machine.Machine`, whose interface this is. Raises RuntimeError where there is no native library."""

    def __init__(
        self,
        rules: Rules,
        start: int,
        lexemes: LexemeTable,
        vocabulary: Vocabulary,
        masks: MaskCache,
        key: str,
        *,
        max_stacks: int = 20_000,
        max_depth: int = 10_000,
        max_bytes: int = 64 * 1024 * 1024,
        max_table_bytes: int = 16 * 1024 * 1024,
    ) -> None:
        library = _library()
        if library is None:
            raise RuntimeError("the native library is not there")
        self.rules = rules
        self.lexemes = lexemes
        self.vocabulary = vocabulary
        self.masks = masks
        self.key = key
        self.deadline: float | None = None
        self._library = library
        shared = _shared.get(lexemes)
        if shared is None:
            shared = _shared[lexemes] = _Shared(library, lexemes, 64 * 1024 * 1024)
        self._shared = shared
        self._eos = np.zeros(vocabulary.mask_words, np.uint32)
        for token in vocabulary.eos_ids:
            self._eos[token // 32] |= np.uint32(1 << token % 32)
        self._handle: int = library.plait_machine_new(
            shared.handle, self._eos.ctypes.data, max_stacks, max_depth, max_bytes, max_table_bytes
        )
        weakref.finalize(self, library.plait_machine_free, self._handle).atexit = False
        self._steps: dict[tuple[int, bytes], int] = {}
        self._numbers: dict[int, int] = {}
        self._flags: dict[int, int] = {}
        self._forced: dict[int, bytes] = {}
        self._step = library.plait_machine_step
        self.start = self._run(library.plait_machine_begin, start)

    # -- the public face -------------------------------------------------------------------------------------------

    def step(self, config: int, data: bytes) -> int:
        """The configuration after ``data``; -1 if it is not allowed."""
        found = self._steps.get((config, data))
        if found is None:
            found = self._step(self._handle, config, data, len(data))
            if found < -1:
                found = self._go_on(found, self._step, config, data, len(data))
            if len(self._steps) >= _MOST_STEPS:
                self._steps.clear()
            self._steps[config, data] = found
        return found

    def mask(self, config: int) -> Mask:
        """Read-only uint32[words]: the tokens that may come next, EOS where the text may end."""
        number = self._numbers.get(config)
        if number is None:
            number = self._numbers[config] = self._run(self._library.plait_machine_mask_number, config)
        return self.masks.get((self.key, number), lambda: self._fill(config))

    def accepting(self, config: int) -> bool:
        return bool(self._flag(config) & 1)

    def last(self, config: int) -> bool:
        """Accepting, and nothing may follow."""
        return bool(self._flag(config) & 2)

    def forced(self, config: int) -> bytes:
        """The longest bytes that every text must go on with; stops where the text may end."""
        found = self._forced.get(config)
        if found is None:
            found = self._forced[config] = self._chain(config)
        return found

    @property
    def nbytes(self) -> int:
        """Memory of this machine alone: not the lexeme table, not the masks."""
        native: int = self._library.plait_machine_nbytes(self._handle)
        return native + 150 * (len(self._steps) + len(self._numbers) + len(self._flags) + len(self._forced))

    # -- calls of native code --------------------------------------------------------------------------------------

    def _flag(self, config: int) -> int:
        found = self._flags.get(config)
        if found is None:
            found = self._flags[config] = self._library.plait_machine_flags(self._handle, config)
        return found

    def _fill(self, config: int) -> NDArray[np.uint32]:
        self._run(self._library.plait_machine_fill, config, self._shared.scratch_address, _VISITS)
        return self._shared.scratch.copy()

    def _chain(self, config: int) -> bytes:
        buffer = ctypes.create_string_buffer(_FORCED)
        length = self._run(self._library.plait_machine_forced, config, buffer, _FORCED)
        found = buffer.raw[:length]
        if length < _FORCED:
            return found
        return found + self._chain(self.step(config, found))

    def _run(self, call: Any, *arguments: Any) -> int:
        answer: int = call(self._handle, *arguments)
        return answer if answer >= _NEED + 1 else self._go_on(answer, call, *arguments)

    def _go_on(self, answer: int, call: Any, *arguments: Any) -> int:
        """Supply what native code waits for, and call again, until it has an answer."""
        while answer < -1:
            if answer == _LIMIT:
                raise self._limit(self._shared.needs[0])
            if answer == _NEED:
                self._supply()
            elif self.deadline is not None and time.monotonic() >= self.deadline:
                raise Unfinished
            answer = call(self._handle, *arguments)
        return answer

    def _supply(self) -> None:
        shared, lexemes = self._shared, self.lexemes
        needs = shared.needs[: 2 + 2 * shared.needs[0]]
        for at in range(2, len(needs), 2):
            kind, value = needs[at], needs[at + 1]
            if kind == _PRODUCTIONS:
                self._add(value)
            elif kind == _ROW:
                lexemes.fill(value)
            else:
                key = lexemes.mask_key(value)
                if shared.generation != lexemes.generation:
                    shared.refresh(lexemes)
                shared.keys[value] = shared.keys[key] = key
            if shared.generation != lexemes.generation:
                shared.refresh(lexemes)
            if self.deadline is not None and time.monotonic() >= self.deadline:
                raise Unfinished

    def _add(self, nonterminal: int) -> None:
        """Encode the productions of a nonterminal as ``Stacks::add`` of native/stacks.h reads them."""
        items: list[int] = [0]
        texts: list[bytes] = []
        for production in self.rules.productions(nonterminal):
            place, spelled = len(items), len(texts)
            items.append(0)
            for item in production:
                if isinstance(item, int):
                    items.append(item << 2 | _NONTERMINAL)
                elif isinstance(item, Lexeme):
                    state = self.lexemes.start(item)
                    if state < 0:  # nothing of it can be written with this vocabulary
                        del items[place:], texts[spelled:]
                        break
                    items.append(state << 2 | _LEXEME)
                elif item:
                    items.append(len(item) << 2 | _LITERAL)
                    texts.append(item)
            else:
                items[place] = len(items) - place - 1
                items[0] += 1
        if self._shared.generation != self.lexemes.generation:
            self._shared.refresh(self.lexemes)
        packed = struct.pack(f"{len(items)}i", *items)
        dependent = nonterminal in self.rules.resolve
        self._library.plait_machine_add(self._handle, nonterminal, dependent, packed, b"".join(texts))

    def _limit(self, which: int) -> ConstraintError:
        return ConstraintError(f"limit {which}")


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL | None:
    library = loader.load()
    if library is None:
        return None
    pointer, text, number, long = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32, ctypes.c_int64
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "plait_lexemes_new": (pointer, [*[pointer] * 6, number, number, pointer, pointer, long]),
        "plait_lexemes_free": (None, [pointer]),
        "plait_lexemes_nbytes": (long, [pointer]),
        "plait_machine_new": (pointer, [pointer, pointer, *[long] * 4]),
        "plait_machine_free": (None, [pointer]),
        "plait_machine_nbytes": (long, [pointer]),
        "plait_machine_add": (None, [pointer, number, number, text, text]),
        "plait_machine_begin": (number, [pointer, number]),
        "plait_machine_step": (number, [pointer, number, text, long]),
        "plait_machine_flags": (number, [pointer, number]),
        "plait_machine_forced": (long, [pointer, number, text, long]),
        "plait_machine_mask_number": (number, [pointer, number]),
        "plait_machine_fill": (number, [pointer, number, pointer, long]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def available() -> bool:
    """Whether there is a native library."""
    return _library() is not None
