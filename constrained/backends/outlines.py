"""outlines-core: regex and what its schema-to-regex translation can do, as a table over the whole vocabulary.

Known of its index (0.2.14, docs/constraints.md): it drops tokens that lead from an accepting state to one that is not,
so ``#(?:[0-9a-f]{3}){1,2}`` ends after three digits; ``{1,1000}`` over 49,152 tokens takes seconds and gigabytes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..interface import ConstraintError
from ..vocabulary import Vocabulary
from .forms import Regex, Schema, read
from .library import LibraryConstraint, resident_bytes

_SPACES = {"single": " ?", "compact": ""}
#: states whose masks are kept
_MASKS = 2048


def build(spec: Mapping[str, Any], vocabulary: Vocabulary, key: str) -> LibraryConstraint:
    from outlines_core import Index

    before = resident_bytes()
    index = Index(_pattern(spec), _library_vocabulary(vocabulary))
    table = _Table(index, vocabulary)
    grown = max(resident_bytes() - before, 64 * 1024)
    first = index.get_initial_state()
    return LibraryConstraint(key, vocabulary, lambda: _Session(table, [first]), lambda: grown + table.nbytes)


def _pattern(spec: Mapping[str, Any]) -> str:
    form = read(spec)
    if isinstance(form, Regex):
        return form.pattern
    if not isinstance(form, Schema):
        raise ConstraintError("it has no grammars; llguidance, xgrammar and the default have")
    if not isinstance(form.whitespace, str) or form.whitespace not in _SPACES:
        raise ConstraintError(f"whitespace {form.whitespace!r} is not supported there (known: {', '.join(_SPACES)})")
    if not form.strict:
        raise ConstraintError("strict=False is not supported there")
    from outlines_core import json_schema

    return str(json_schema.build_regex_from_schema(form.text, _SPACES[form.whitespace]))


@lru_cache(maxsize=2)
def _library_vocabulary(vocabulary: Vocabulary) -> Any:
    from outlines_core import Vocabulary as Library

    if len(vocabulary.eos_ids) == 0:
        raise ConstraintError("it needs a vocabulary with an end token")
    ids: defaultdict[bytes, list[int]] = defaultdict(list)
    for token, data in enumerate(vocabulary.tokens):
        if data:
            ids[data].append(token)
    return Library(vocabulary.eos_ids[0], dict(ids))


class _Table:
    """Index, and the masks of its states as far as they were asked for."""

    def __init__(self, index: Any, vocabulary: Vocabulary) -> None:
        self.index = index
        self.vocabulary = vocabulary
        self._masks: dict[int, NDArray[np.int32]] = {}

    @property
    def nbytes(self) -> int:
        return len(self._masks) * 4 * self.vocabulary.mask_words

    def mask(self, state: int) -> NDArray[np.int32]:
        known = self._masks.get(state)
        if known is None:
            bits = np.zeros(32 * self.vocabulary.mask_words, bool)
            bits[self.index.get_allowed_tokens(state) or []] = True
            known = np.packbits(bits, bitorder="little").view(np.int32)
            if len(self._masks) >= _MASKS:
                self._masks.clear()
            self._masks[state] = known
        return known


class _Session:
    """The states so far: undoing and copying need nothing of the library."""

    def __init__(self, table: _Table, states: list[int]) -> None:
        self._table = table
        self._states = states

    def fill(self, out: NDArray[np.int32]) -> None:
        out[:] = self._table.mask(self._states[-1])

    def take(self, token: int) -> bool:
        state = self._table.index.get_next_state(self._states[-1], token)
        if state is None:
            return False
        self._states.append(state)
        return True

    def take_bytes(self, data: bytes) -> int:
        tokens = self._table.vocabulary.longest_tokens(data)
        for taken, token in enumerate(tokens):
            if not self.take(token):
                self.undo(taken)
                return 0
        return len(tokens)

    def undo(self, steps: int) -> None:
        if steps:
            del self._states[-steps:]

    def copy(self) -> _Session:
        return _Session(self._table, self._states[:])

    def forced(self) -> bytes:
        return b""  # its table is over tokens: what bytes they share is not known without reading them all

    def accepting(self) -> bool:
        return bool(self._table.index.is_final_state(self._states[-1]))
