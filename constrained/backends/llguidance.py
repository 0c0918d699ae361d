"""llguidance: regex, JSON Schema, GBNF and Lark grammars."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..interface import ConstraintError
from ..vocabulary import Vocabulary
from .forms import Grammar, Regex, Schema, read
from .library import LibraryConstraint, resident_bytes

_LAYOUTS: dict[str | int, dict[str, Any]] = {
    "single": {"whitespace_pattern": " ?"},
    "compact": {"whitespace_flexible": False},
    "spaced": {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "},
}


def build(spec: Mapping[str, Any], vocabulary: Vocabulary, key: str) -> LibraryConstraint:
    from llguidance import LLMatcher

    before = resident_bytes()
    first = LLMatcher(_tokenizer(vocabulary), _grammar(spec), log_level=0)
    if first.is_error():
        raise ConstraintError(_message(first))
    grown = max(resident_bytes() - before, 64 * 1024)
    return LibraryConstraint(key, vocabulary, lambda: _Session(first.deep_copy(), vocabulary), lambda: grown)


def _grammar(spec: Mapping[str, Any]) -> str:
    from llguidance import LLMatcher

    form = read(spec)
    if isinstance(form, Regex):
        return str(LLMatcher.grammar_from_regex(form.pattern))
    if isinstance(form, Schema):
        if form.whitespace not in _LAYOUTS:
            raise ConstraintError(f"whitespace {form.whitespace!r} is not supported there")
        if not isinstance(json.loads(form.text), dict):
            raise ConstraintError('true and false are no schemas there: write {} or {"not": {}}')
        layout: Any = _LAYOUTS[form.whitespace] | ({} if form.strict else {"lenient": True})
        return str(LLMatcher.grammar_from_json_schema(form.text, overrides=layout))
    return _lark(form)


def _lark(form: Grammar) -> str:
    from llguidance import LLMatcher
    from llguidance.gbnf_to_lark import any_to_lark

    text = form.text if form.syntax == "lark" else any_to_lark(form.text)
    if form.start not in (None, "start", "root"):
        raise ConstraintError(f"the rule it begins with must be called start there, not {form.start!r}")
    return str(LLMatcher.grammar_from_lark(text))


def _message(matcher: Any) -> str:
    return " ".join(str(matcher.get_error()).split())[:400]


@lru_cache(maxsize=2)
def _tokenizer(vocabulary: Vocabulary) -> Any:
    from llguidance import LLTokenizer, TokenizerWrapper

    if not vocabulary.eos_ids:
        raise ConstraintError("it needs a vocabulary with an end token")
    return LLTokenizer(
        TokenizerWrapper(_Tokens(vocabulary)), n_vocab=vocabulary.size, eos_token=list(vocabulary.eos_ids)
    )


class _Tokens:
    """What the library wants to see of a tokenizer."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.eos_token_id = vocabulary.eos_ids[0]
        self.bos_token_id = None
        # b"" is what an unused id spells; 0xff, which is in no UTF-8, marks special ones
        self.tokens = [data or b"\xff<%d>" % token for token, data in enumerate(vocabulary.tokens)]
        self.special_token_ids = [token for token, data in enumerate(vocabulary.tokens) if not data]
        self._encode = vocabulary.encode

    def __call__(self, text: bytes | str) -> list[int]:
        return self._encode(text.encode() if isinstance(text, str) else text)


class _Session:
    def __init__(self, matcher: Any, vocabulary: Vocabulary) -> None:
        self._matcher = matcher
        self._vocabulary = vocabulary

    def fill(self, out: NDArray[np.int32]) -> None:
        if self._matcher.is_stopped():
            if self._matcher.is_error():
                raise ConstraintError(f"constraint_backend='llguidance': {_message(self._matcher)}")
            return
        self._matcher.unsafe_compute_mask_ptr(out.ctypes.data, out.nbytes)

    def take(self, token: int) -> bool:
        # validated first: a token that is refused puts the library's matcher into an error for good
        if self._matcher.is_stopped() or self._matcher.validate_tokens([token]) != 1:
            return False
        return bool(self._matcher.consume_token(token))

    def take_bytes(self, data: bytes) -> int:
        tokens = self._vocabulary.longest_tokens(data)
        if self._matcher.is_stopped() or self._matcher.validate_tokens(tokens) != len(tokens):
            return 0
        return len(tokens) if self._matcher.consume_tokens(tokens) else 0

    def undo(self, steps: int) -> None:
        if not self._matcher.rollback(steps):
            raise ConstraintError(f"constraint_backend='llguidance': {_message(self._matcher)}")

    def copy(self) -> _Session:
        return _Session(self._matcher.deep_copy(), self._vocabulary)

    def forced(self) -> bytes:
        return bytes(self._matcher.compute_ff_bytes())

    def accepting(self) -> bool:
        return bool(self._matcher.is_accepting())
