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
import itertools
import struct
import sys
import time
from array import array
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..interface import ConstraintError, Unfinished
from ..masks import Mask, MaskCache
from ..regular.endless import endless
from ..vocabulary import Vocabulary
from .lexemes import LexemeTable
from .native_library import library, shared_of
from .rules import Lexeme, Rules
from .stacks import DEAD, JOIN, LEXEME, LITERAL, NONTERMINAL, Limits, Node

_NEED, _LIMIT, _AGAIN = -2, -3, -4
_PRODUCTIONS, _ROW, _KEY = 0, 1, 2
_NONTERMINAL, _LEXEME, _LITERAL = 0, 1, 2
_KINDS = (NONTERMINAL, LEXEME, LITERAL, JOIN)
_VISITS = 100_000  # trie nodes between two looks at the deadline: about a millisecond
_PIECE = 4096  # bytes of one native step
_REMEMBERED, _MOST_STEPS = 64, 20_000  # bytes of a remembered step, and how many of them one machine keeps
_CELL_BYTES = 16  # of one filled transition, as Limits.cells counts them

_serials = itertools.count()


class NativeMachine:
    """See :class:`.machine.Machine`, whose interface this is. Raises RuntimeError where there is no native library."""

    _handle: int | None = None

    def __init__(
        self,
        rules: Rules,
        start: int,
        lexemes: LexemeTable,
        vocabulary: Vocabulary,
        masks: MaskCache,
        key: str,
        limits: Limits | None = None,
    ) -> None:
        native = library()
        if native is None:
            raise RuntimeError("the native library is not there")
        self.rules = rules
        self.lexemes = lexemes
        self.vocabulary = vocabulary
        self.masks = masks
        self.key = key
        self.limits = limits if limits is not None else Limits()
        self._library = native
        self._shared = shared = shared_of(lexemes, native)
        # configurations are numbered as they are met, so the masks of another machine of this key are no use
        self._serial = next(_serials) << 32
        self._numbers: dict[int, int] = {}
        self._handle = native.plait_machine_new(
            shared.handle,
            vocabulary.eos_address,  # lives with the vocabulary
            self.limits.stacks,
            self.limits.depth,
            self.limits.nbytes,
            self.limits.cells * _CELL_BYTES,
        )
        if self._handle is None:
            raise MemoryError("no memory for a constraint's machine")
        self._start_nonterminal = start
        self._start: int | None = None
        self._steps: dict[tuple[int, bytes], int] = {}
        self._flags: dict[int, int] = {}
        self._forced: dict[int, bytes] = {}
        self._doubtful: dict[int, NDArray[np.int32]] = {}
        self._kept = 0  # bytes of the two above
        self._dependents: set[int] = set()
        self._markers: dict[int, tuple[int, ...]] = {}
        self._step = native.plait_machine_step

    def __del__(self) -> None:
        if self._handle is not None and not sys.is_finalizing():  # with the process, its memory goes anyway
            self._library.plait_machine_free(self._handle)
            self.masks.forget(self._numbers)

    # -- the surface -------------------------------------------------------------------------------------------------

    @property
    def deadline(self) -> float | None:
        """time.monotonic at which work stops by raising Unfinished; None: never. Shared through the languages."""
        return self.lexemes.languages.deadline

    @deadline.setter
    def deadline(self, value: float | None) -> None:
        self.lexemes.languages.deadline = value

    @property
    def start(self) -> int:
        """The configuration in which nothing is written. ConstraintError if this vocabulary cannot write anything."""
        if self._start is None:
            config = self._run(self._library.plait_machine_begin, self._start_nonterminal)
            if config == DEAD:
                raise ConstraintError("no text satisfies this constraint with this model's vocabulary")
            self._start = config
        return self._start

    def step(self, config: int, data: bytes) -> int:
        """The configuration after ``data``; -1 if some byte of it may not come. ``config`` may be -1."""
        found = self._steps.get((config, data))
        if found is None:
            if len(data) > _PIECE:  # transitions are forgotten between calls only
                for at in range(0, len(data), _PIECE):
                    config = self.step(config, data[at : at + _PIECE])
                return config
            found = DEAD
            if config >= 0:
                found = self._step(self._handle, config, data, len(data))
                if found < DEAD:
                    found = self._go_on(found, self._step, config, data, len(data))
            if len(data) <= _REMEMBERED:
                if len(self._steps) >= _MOST_STEPS:
                    self._steps.clear()
                self._steps[config, data] = found
        return found

    def mask(self, config: int) -> Mask:
        """Read-only uint32[words]: bit i is set iff ``step(config, tokens[i]) >= 0``; EOS bits iff accepting."""
        number = self._numbers.get(config)
        if number is None:
            number = self._number(config)
        found = self.masks.find(number)
        return found if found is not None else self.masks.get(number, lambda: self._fill(config, number))

    @property
    def configs(self) -> int:
        """How many were met so far."""
        found: int = self._library.plait_machine_configs(self._handle)
        return found

    def accepting(self, config: int) -> bool:
        """The text may end here."""
        return self._flag(config) & 1 != 0

    def last(self, config: int) -> bool:
        """The text may end here and nothing may follow."""
        return self._flag(config) & 2 != 0

    def forced(self, config: int) -> bytes:
        """The bytes of the one-way chain that starts here, up to the first accepting one or ``limits.forced``."""
        found = self._forced.get(config)
        if found is None:
            buffer = self._shared.buffer(self.limits.forced)
            length = self._run(self._library.plait_machine_forced, config, buffer, self.limits.forced)
            found = ctypes.string_at(buffer, length)
            self._keep(length)
            self._forced[config] = found
        return found

    def markers(self, config: int) -> tuple[int, ...]:
        """The dependent nonterminals on top of stacks of ``config``; () in all but a few constraints."""
        if not self._dependents or not self._flag(config) & 4:
            return ()
        found = self._markers.get(config)
        if found is None:
            found = tuple(dict.fromkeys(self._list(self._library.plait_machine_markers, config)))
            self._markers[config] = found
        return found

    def resolved(self, config: int, found: dict[int, int | None]) -> int:
        """``config`` with each of its :meth:`markers` replaced by the nonterminal ``found`` gives (None: its stacks are
        taken out). -1 if nothing is left. May have markers of its own."""
        asked = struct.pack(f"{len(found)}i", *found)
        instead = struct.pack(f"{len(found)}i", *(-1 if value is None else value for value in found.values()))
        return self._run(self._library.plait_machine_resolved, config, asked, instead, len(found))

    def stacks_of(self, config: int) -> tuple[int, ...]:
        """Its stacks, by their top nodes; 0 (the empty stack) among them if it accepts."""
        return tuple(self._list(self._library.plait_machine_stacks, config))

    def look(self, node: int) -> Node:
        """What stands on a stack."""
        kind, value, *below = self._list(self._library.plait_machine_look, node)
        return Node(_KINDS[kind], value, tuple(below))

    def doubtful(self, config: int) -> NDArray[np.int32]:
        """The ids allowed by :meth:`mask` whose bytes lead from ``config`` through or to one with markers."""
        number = self._number(config)
        if number not in self._doubtful:
            self._fill(config, number)
        return self._doubtful[number]

    @property
    def dependent(self) -> bool:
        """Whether any dependent nonterminal can be met. May turn true while the machine runs, never false again."""
        return bool(self.rules.resolve)

    @property
    def nbytes(self) -> int:
        """Memory held, without masks and lexeme rows (they are shared)."""
        native: int = self._library.plait_machine_nbytes(self._handle)
        entries = sum(len(kept) for kept in (self._steps, self._numbers, self._flags, self._forced, self._markers))
        return native + 150 * entries + self._kept

    # -- calls of native code --------------------------------------------------------------------------------------

    def _flag(self, config: int) -> int:
        found = self._flags.get(config)
        if found is None:
            found = self._flags[config] = self._run(self._library.plait_machine_flags, config)
        return found

    def _number(self, config: int) -> int:
        """Configurations with one number have one mask. No other machine of the process gives the same number."""
        found = self._numbers.get(config)
        if found is None:
            number = self._run(self._library.plait_machine_mask_number, config)
            found = self._numbers[config] = self._serial | number
        return found

    def _fill(self, config: int, number: int) -> Mask:
        self._run(self._library.plait_machine_fill, config, self._shared.scratch_address, _VISITS)
        mask = self._shared.scratch.copy()
        if self.dependent:
            doubtful = np.unique(np.array(self._list(self._library.plait_machine_doubtful), np.int32))
            self._keep(doubtful.nbytes)
            self._doubtful[number] = doubtful
        return mask

    def _keep(self, nbytes: int) -> None:
        """Make room for a forced run or doubtful tokens."""
        if self._kept > self.limits.kept:
            self._kept = 0
            self._forced.clear()
            self._doubtful.clear()
        self._kept += nbytes

    def _list(self, call: Any, *arguments: Any) -> list[int]:
        """What a call writes into an array; it answers how much there is."""
        count = call(self._handle, *arguments, None, 0)
        found = (ctypes.c_int32 * count)()
        call(self._handle, *arguments, found, count)
        return list(found)

    def _run(self, call: Any, *arguments: Any) -> int:
        answer: int = call(self._handle, *arguments)
        return answer if answer >= DEAD else self._go_on(answer, call, *arguments)

    def _go_on(self, answer: int, call: Any, *arguments: Any) -> int:
        """Supply what native code waits for, and call again, until it has an answer."""
        while answer < DEAD:
            if answer == _LIMIT:
                raise self._limit(self._shared.needs[0])
            if answer == _NEED:
                self._supply()
            else:
                self._check_deadline()
            answer = call(self._handle, *arguments)
        return answer

    def _check_deadline(self) -> None:
        deadline = self.lexemes.languages.deadline
        if deadline is not None and time.monotonic() >= deadline:
            raise Unfinished

    def _supply(self) -> None:
        """Make what native code asked for last. May stop half way: it asks again for what is still missing."""
        shared, lexemes = self._shared, self.lexemes
        needs = shared.needs[2 : 2 + 2 * shared.needs[0]]
        for at in range(0, len(needs), 2):
            kind, value = needs[at], needs[at + 1]
            if kind == _PRODUCTIONS:
                self._add(value)
            elif kind == _ROW:
                lexemes.fill(value)
            else:
                key = lexemes.mask_key(value)
                self._describe(key)  # first: once there is a key, native code does not ask again
                if shared.generation != lexemes.generation:
                    shared.refresh(lexemes)
                shared.keys[value] = shared.keys[key] = key
            if shared.generation != lexemes.generation:
                shared.refresh(lexemes)
            self._check_deadline()

    def _describe(self, state: int) -> None:
        """Tell native code of strings whose masks need few rows or none: bounded in length alone, or without end."""
        lexeme = self.lexemes.lexeme(state)
        if lexeme is None or not lexeme.json:
            return
        languages, handle = self.lexemes.languages, self._shared.handle
        if bounds := languages.window(lexeme.language):
            low, high = bounds
            self._library.plait_lexemes_window(handle, state, low, -1 if high is None else high, self._free())
        elif endless(languages, lexeme.language):
            self._library.plait_lexemes_total(handle, state, self._free())

    def _free(self) -> int:
        """The state of any JSON string at all."""
        return self.lexemes.start(Lexeme(self.lexemes.languages.ANY, True))

    def _add(self, nonterminal: int) -> None:
        """Encode the productions of a nonterminal as ``Stacks::add`` of native/stacks.h reads them.

        A dependent one is only told to be so when it is met first; asked for again, its superset is wanted.
        """
        if nonterminal in self.rules.resolve and nonterminal not in self._dependents:
            self._run(self._library.plait_machine_add_dependent, nonterminal)
            self._dependents.add(nonterminal)
            return
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
        packed = array("i", items).tobytes()
        self._run(self._library.plait_machine_add, nonterminal, packed, b"".join(texts))

    def _limit(self, which: int) -> ConstraintError:
        limits = self.limits
        return ConstraintError(
            {
                1: f"the text can be read in more than {limits.stacks} ways at one place; make the alternatives of the "
                "schema or grammar differ earlier, or join them into one pattern",
                2: f"the text is nested more than {limits.depth} levels deep, or the grammar is left-recursive; bound "
                "the recursion of the schema or grammar",
                3: f"this constraint's states take more than {limits.nbytes >> 20} MB; bound its repetitions and "
                "recursion, or compile it again",
            }.get(which, "a dependent rule has no continuation")
        )
