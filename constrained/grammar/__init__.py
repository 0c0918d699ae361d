"""Grammars written by people (GBNF, EBNF, Lark) and the composable form, as rules of the pushdown machine.

::

    ebnf.py, lark.py (over source.py), ready.py, ..spec  -> tree.py: named expressions
    simplify.py   what is regular becomes one terminal, recursion at both ends becomes iteration
    lower.py      no left recursion, no symbol that is only ever empty -> rules
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..interface import ConstraintError
from . import ebnf, lark
from .tree import Grammar, Name

if TYPE_CHECKING:
    from ..pushdown.rules import Rules
    from ..regular.languages import Languages

SYNTAXES = ("auto", "gbnf", "ebnf", "lark")

_BEFORE = re.compile(r"(?:\s+|(?:#|//)[^\n]*)*")
_FIRST = re.compile(r"[?!]*([A-Za-z0-9_][A-Za-z0-9_.-]*)(?:\[[^\]\n]*\]|\{[^}\n]*\})?\s*(::=|:=|:|=)")


def parse(
    text: str, languages: Languages, rules: Rules, syntax: str = "auto", start: str | None = None, scope: Name = ""
) -> tuple[Grammar, Name]:
    """The grammar and the name of its start, not yet in ``rules`` (but for the schemas of ``%json``). ``start`` is by
    default ``root`` in GBNF and EBNF, ``start`` in Lark. ``scope`` keeps its names apart from those of other grammars.

    Raises ConstraintError with line and column for what is wrong in it.
    """
    if syntax not in SYNTAXES:
        raise ConstraintError(f"grammar syntax {syntax!r} is not known (known: {', '.join(SYNTAXES)})")
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise ConstraintError("the grammar holds half of a surrogate pair, which is no character")
    if syntax == "auto":
        syntax = detect(text)
    if syntax != "lark":
        return ebnf.parse(text, syntax.upper(), start or "root", scope, languages)

    def schemas(schema: Any) -> int:
        from ..schema.compile import compile_json

        return compile_json(schema, {}, {}, languages, rules)

    return lark.parse(text, start or "start", scope, languages, schemas)


def detect(text: str) -> str:
    """ "ebnf" (which reads GBNF, too) or "lark", by the first thing in the text that is no comment."""
    before = _BEFORE.match(text)
    at = before.end() if before else 0
    if text.startswith("%", at):
        return "lark"
    first = _FIRST.match(text, at)
    if first is not None and first[2] in ("::=", ":"):
        return "ebnf" if first[2] == "::=" else "lark"
    if first is not None:
        raise ConstraintError(
            f"the grammar begins with {first[0]!r}: write {first[1]} ::= ... (GBNF, EBNF) or {first[1]}: ... (Lark)"
        )
    raise ConstraintError("the grammar begins with no rule: write name ::= ... (GBNF, EBNF) or name: ... (Lark)")
