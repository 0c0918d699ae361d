"""GBNF as llama.cpp reads it, and the EBNF of xgrammar and SGLang: one parser for both.

::

    root   ::= object                                       comments with #, names with dashes and dots
    object ::= "{" (pair ("," pair)*)? "}"                  "strings", [classes], . any character, groups
    pair   ::= [a-z]{1,8} ":" .+  | /regex/                 * + ? {n} {n,} {n,m}

A rule ends where the next ``name ::=`` begins. A string may be in single quotes, too, and ``/regex/`` is Python's
syntax. What asks for more than a text (lookahead, token ids, tag dispatch) is refused by name.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..charset import ALL
from .source import Cursor, Definitions, charset, in_order, literal, one_of, regex_terminal
from .tree import Expression, Grammar, Name

if TYPE_CHECKING:
    from ..regular.languages import Languages

_SPACE = re.compile(r"(?:\s+|#[^\n]*)+")
#: a dot belongs to a name only between its characters
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]|\.(?=[A-Za-z0-9_]))*")
_DEFINES = re.compile(_NAME.pattern + r"(?:\s|#[^\n]*\n)*(?:::=|:=)")

_MACROS = {"TagDispatch", "Token", "ExcludeToken", "TokenTagDispatch"}


def parse(text: str, kind: str, start: str, scope: Name, languages: Languages) -> tuple[Grammar, Name]:
    """The grammar and its start. ``scope`` keeps its names apart from those of other grammars."""
    return _Parser(Cursor(text, kind), scope, languages).grammar(start)


class _Parser:
    def __init__(self, cursor: Cursor, scope: Name, languages: Languages) -> None:
        self.cursor = cursor
        self.languages = languages
        self.names = Definitions(cursor, scope)

    def space(self) -> None:
        self.cursor.match(_SPACE)

    def grammar(self, start: str) -> tuple[Grammar, Name]:
        cursor = self.cursor
        self.space()
        while not cursor.ended:
            at = cursor.at
            name = cursor.match(_NAME)
            self.space()
            if name is None or not cursor.take("::="):
                cursor.fail(f"expected a rule, name ::= ..., and found {cursor.shown()}")
            self.names.announce(name, at)
            self.names.rules[name] = self.alternatives()
            if not cursor.ended and not _DEFINES.match(cursor.text, cursor.at):
                self.unexpected()
        return self.names.finish(start)

    def unexpected(self) -> None:
        cursor = self.cursor
        char = cursor.peek()
        if char == ")":
            cursor.fail("a ) without its (")
        if char in ("*", "+", "?", "{"):
            cursor.fail(f"nothing stands before {char!r} that could be repeated")
        if char == ";":
            cursor.fail("rules do not end in ;: a rule ends where the next one begins")
        cursor.fail(f"{cursor.shown()} is nothing that a rule can hold")

    def alternatives(self) -> Expression:
        options = [self.sequence()]
        while self.cursor.take("|"):
            options.append(self.sequence())
        return one_of(options)

    def sequence(self) -> Expression:
        cursor = self.cursor
        parts: list[Expression] = []
        while True:
            self.space()
            if cursor.ended or cursor.peek() in ("|", ")"):
                break
            if _DEFINES.match(cursor.text, cursor.at):
                break
            part = self.atom()
            if part is None:
                break
            self.space()
            parts.append(cursor.repeated(part, self.space))
        return in_order(parts) if parts else literal(self.languages, "")

    def atom(self) -> Expression | None:
        cursor, languages = self.cursor, self.languages
        at = cursor.at
        for quote in ('"', "'"):
            if cursor.take(quote):
                return literal(languages, cursor.string(quote))
        if cursor.take("["):
            return charset(languages, cursor.char_class())
        if cursor.take("."):
            return charset(languages, ALL)
        if cursor.take("("):
            self.space()
            if cursor.peek() in ("=", "!") or cursor.peek(2) in ("?=", "?!"):
                cursor.fail(
                    "lookahead assertions (= ...) are not supported: write what may follow into the rules that use it",
                    at,
                )
            cursor.enter()
            inner = self.alternatives()
            cursor.leave()
            if not cursor.take(")"):
                cursor.fail("the group that begins here has no closing )", at)
            return inner
        if cursor.peek() == "/":
            return regex_terminal(cursor, languages, cursor.regex(), at)
        if cursor.peek() in ("<", "!"):
            cursor.fail("token ids (<[...]>, <name>) are not supported: a grammar speaks of text", at)
        name = cursor.match(_NAME)
        if name is None:
            return None
        if name in _MACROS and cursor.peek() == "(":
            cursor.fail(f"{name}(...) is not supported: write the texts as rules", at)
        return self.names.ref(name, at)
