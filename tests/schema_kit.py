"""JSON Schemas compiled for a byte vocabulary, and two ways to ask whether a text is written by them."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from plait.constrained.lexicon import Lexicon
from plait.constrained.pushdown.json_text import last_value
from plait.constrained.pushdown.machine import build
from plait.constrained.pushdown.matcher import PushdownConstraint
from plait.constrained.pushdown.rules import Item, Lexeme, Rules
from plait.constrained.schema.compile import compile_schema
from plait.constrained.schema.options import SchemaOptions
from plait.constrained.schema.reader import read
from plait.constrained.vocabulary import Vocabulary


@cache
def lexicon() -> Lexicon:
    tokens: list[bytes | None] = [None, *(bytes((value,)) for value in range(256))]
    return Lexicon(Vocabulary(tokens, size=257, eos_ids=[0], encode=lambda data: [value + 1 for value in data]))


class Written:
    """A compiled schema. ``accepts`` asks the machine and a plain recursive recognizer, which must agree."""

    def __init__(self, schema: Any, **options: Any) -> None:
        self.options = SchemaOptions(**{"whitespace": "single"} | options)
        self.rules = Rules()
        over = lexicon()
        root = read(schema, options=self.options)
        self.start = compile_schema(root, self.options, over.languages, self.rules)
        key = json.dumps([schema, str(self.options)], sort_keys=True)
        self.constraint = PushdownConstraint(
            build(self.rules, self.start, over.lexemes, over.vocabulary, over.masks, key)
        )

    def accepts(self, text: str) -> bool:
        data = text.encode()
        matcher = self.constraint.matcher()
        answer = matcher.advance_bytes(data) and matcher.accepting
        recognized = len(data) in Recognizer(self.rules, data).ends(self.start, 0)
        assert answer is recognized, f"machine {answer}, recognizer {recognized}: {text}"
        if recognized:
            assert len(data) in Recognizer(self.rules, data, blind=True).ends(self.start, 0), text
        return answer

    def writes(self, value: Any) -> bool:
        """In the layout without spaces and in the one with a space after each comma and colon."""
        compact = self.accepts(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
        spaced = self.accepts(json.dumps(value, ensure_ascii=False))
        assert compact is spaced
        return compact

    def forced(self, begin: str = "") -> str:
        matcher = self.constraint.matcher()
        assert matcher.advance_bytes(begin.encode())
        return matcher.forced().decode()


class Recognizer:
    """Where an item of the rules may end, by trying everything. ``blind``: dependent rules are not resolved, which must
    only ever allow more."""

    def __init__(self, rules: Rules, text: bytes, blind: bool = False) -> None:
        self.rules = rules
        self.blind = blind
        self.text = text
        self.known: dict[tuple[Item, int], set[int]] = {}

    def ends(self, item: Item, start: int) -> set[int]:
        if isinstance(item, bytes):
            return {start + len(item)} if self.text.startswith(item, start) else set()
        key = (item, start)
        if key not in self.known:
            self.known[key] = self.lexeme(item, start) if isinstance(item, Lexeme) else self.rule(item, start)
        return self.known[key]

    def rule(self, nonterminal: int, start: int) -> set[int]:
        if nonterminal in self.rules.resolve and not self.blind:
            value = last_value(self.text[:start], whole=True)
            assert value is not None
            found = self.rules.resolve[nonterminal](value)
            return set() if found is None else self.ends(found, start)
        ends: set[int] = set()
        for production in self.rules.productions(nonterminal):
            at = {start}
            for item in production:
                at = {end for one in at for end in self.ends(item, one)}
            ends |= at
        return ends

    def lexeme(self, lexeme: Lexeme, start: int) -> set[int]:
        if lexeme.json:
            end = start
            while end < len(self.text) and self.text[end] != ord('"'):
                end += 2 if self.text[end] == ord("\\") else 1
            try:
                value = json.loads(b'"' + self.text[start:end] + b'"')
            except ValueError:
                return set()
            return {end + 1} if end < len(self.text) and lexeme.language.matches(value) else set()
        text = self.text[start:].decode()
        return {
            start + len(text[:end].encode())
            for end in range(min(len(text), 60) + 1)
            if lexeme.language.matches(text[:end])
        }
