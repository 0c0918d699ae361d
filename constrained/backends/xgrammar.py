"""xgrammar: regex, JSON Schema, GBNF (its EBNF) and Lark grammars. It imports torch, which the core has anyway."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..interface import ConstraintError
from ..vocabulary import Vocabulary
from .forms import Regex, Schema, read
from .library import LibraryConstraint


def build(spec: Mapping[str, Any], vocabulary: Vocabulary, key: str) -> LibraryConstraint:
    import xgrammar

    compiled = _compiled(spec, _compiler(vocabulary))
    return LibraryConstraint(
        key,
        vocabulary,
        lambda: _Session(xgrammar.GrammarMatcher(compiled)),
        lambda: int(compiled.memory_size_bytes),
    )


def _compiled(spec: Mapping[str, Any], compiler: Any) -> Any:
    form = read(spec)
    if isinstance(form, Regex):
        return compiler.compile_regex(form.pattern)
    if isinstance(form, Schema):
        if not form.strict:
            raise ConstraintError("strict=False is not supported there")
        # its strict_mode is not ours: it would forbid undeclared keys and items
        return compiler.compile_json_schema(form.text, strict_mode=False, **_layout(form.whitespace))
    if form.syntax == "lark":
        return compiler.compile_lark(form.text)
    return compiler.compile_grammar(form.text, root_rule_name=form.start or "root")


def _layout(whitespace: str | int) -> dict[str, Any]:
    if whitespace == "single":
        return {"any_whitespace": True, "max_whitespace_cnt": 1}
    if whitespace == "compact":
        return {"any_whitespace": False, "separators": (",", ":")}
    if whitespace == "spaced":
        return {"any_whitespace": False, "separators": (", ", ": ")}
    if isinstance(whitespace, int):
        return {"any_whitespace": False, "indent": whitespace}
    raise ConstraintError(f"whitespace {whitespace!r} is not supported there")


@lru_cache(maxsize=2)
def _compiler(vocabulary: Vocabulary) -> Any:
    import xgrammar

    tokens = xgrammar.TokenizerInfo(
        list(vocabulary.tokens),
        xgrammar.VocabType.RAW,
        vocab_size=vocabulary.size,
        stop_token_ids=list(vocabulary.eos_ids),
    )
    # masks as they are needed: all at once, a schema takes half a second at the median and a minute at worst
    return xgrammar.GrammarCompiler(tokens, max_threads=1, cache_enabled=False, enable_dynamic_compilation=True)


class _Session:
    def __init__(self, matcher: Any) -> None:
        self._matcher = matcher

    def fill(self, out: NDArray[np.int32]) -> None:
        if not self._matcher.fill_next_token_bitmask(out.reshape(1, -1)):
            out.fill(-1)

    def take(self, token: int) -> bool:
        return bool(self._matcher.accept_token(token))

    def take_bytes(self, data: bytes) -> int:
        return 1 if self._matcher.accept_string(data) else 0

    def undo(self, steps: int) -> None:
        self._matcher.rollback(steps)

    def copy(self) -> _Session:
        return _Session(self._matcher.fork())

    def forced(self) -> bytes:
        return str(self._matcher.find_jump_forward_string()).encode()

    def accepting(self) -> bool:
        return bool(self._matcher.is_completed())
