"""Regexes as ECMA-262 has them, for JSON Schema's ``pattern``: a search, so a match anywhere in the text is enough.

Unicode mode (one code point is one character, ``\\p{..}`` and ``\\u{..}`` mean what they say), and lenient where
browsers are without it: a needless backslash before punctuation, a lone ``{`` or ``]``, a hyphen beside a set. ``\\d``
and ``\\w`` are ASCII, ``\\s`` is ECMA's white space, ``$`` is the very end.

From other flavours, where it can only mean one thing: ``\\A \\Z \\z``, ``(?P<n>..)``, ``(?i)`` in front, ``[:alpha:]``,
``(?#..)``.
"""

from __future__ import annotations

import re

from ..charset import Ranges, complement
from .anchoring import leading, trailing
from .language import Language
from .nodes import Node
from .properties import posix
from .syntax import IGNORECASE, SIMPLE, Parser
from .terms import Arena

DIGIT: Ranges = ((48, 57),)
WORD: Ranges = ((48, 57), (65, 90), (95, 95), (97, 122))
SPACE: Ranges = (
    (9, 13),
    (32, 32),
    (160, 160),
    (0x1680, 0x1680),
    (0x2000, 0x200A),
    (0x2028, 0x2029),
    (0x202F, 0x202F),
    (0x205F, 0x205F),
    (0x3000, 0x3000),
    (0xFEFF, 0xFEFF),
)
_SETS = {"d": DIGIT, "w": WORD, "s": SPACE, "D": complement(DIGIT), "W": complement(WORD), "S": complement(SPACE)}
_NOT_LINE_END = complement(((10, 10), (13, 13), (0x2028, 0x2029)))
_HEX = re.compile(r"[0-9A-Fa-f]+")
_UNICODE = re.compile(r"u(?:\{([0-9A-Fa-f]+)\}|([0-9A-Fa-f]{4}))")
_LOW_HALF = re.compile(r"\\u([Dd][C-Fc-f][0-9A-Fa-f]{2})")
_POSIX = re.compile(r"\[:(\^?)([a-z]+):\]")


def parse(pattern: str, arena: Arena) -> Node:
    """The node of all texts in which ``pattern`` matches somewhere. Raises ConstraintError naming what is wrong."""
    tree = _Ecma(pattern, arena).parse()
    return trailing(leading(tree, arena.anything, arena), arena.anything, arena)


class _Ecma(Parser):
    def class_is_empty(self) -> bool:
        return True

    def dot(self) -> Ranges:
        return _NOT_LINE_END

    def end_of_text(self) -> Language:
        return self.arena.state([self.arena.END])

    def bounds(self, match: re.Match[str], at: int) -> tuple[int, int | None] | None:
        if not match[1]:
            if match[3]:
                raise self.refuse(f"the repeat {match[0]}", at, f"write {{0,{match[3]}}}")
            return None
        low = int(match[1])
        return low, (low if match[2] is None else int(match[3]) if match[3] else None)

    def escape(self, at: int, flags: int) -> Node:
        char = self.text[self.at]
        if char in _SETS:
            self.at += 1
            if flags & IGNORECASE and char in "wW":
                return self.set(WORD, flags, char == "W")
            return self.arena.chars_node(self.arena.alphabet.make(_SETS[char]))
        if char == "A":
            self.at += 1
            return self.arena.behind(True, None, True)
        if char in "Zz":
            self.at += 1
            return self.arena.ahead(self.end_of_text())
        if char in "bB":
            self.at += 1
            return self.boundary(WORD, char == "B", True)
        if char in "pP":
            self.at += 1
            return self.set(self.property(at, False), flags)
        if char in "123456789":
            raise self.refuse("a back-reference", at, "spell out what the group may be")
        if char == "k":
            raise self.refuse("a back-reference to a named group", at, "spell out what the group may be")
        return self.literal(self.code(at), flags)

    def class_escape(self, at: int, negated: bool, flags: int) -> int | Ranges:
        char = self.text[self.at]
        if char in _SETS:
            self.at += 1
            return _SETS[char]
        if char in "pP":
            self.at += 1
            return self.property(at, negated)
        if char == "b":
            self.at += 1
            return 8
        return self.code(at)

    def class_item(self, negated: bool, flags: int) -> int | Ranges:
        if self.text[self.at] == "[" and (match := _POSIX.match(self.text, self.at)):
            known = posix(match[2])
            if known is not None:
                self.at = match.end()
                return complement(known) if match[1] else known
        return super().class_item(negated, flags)

    def code(self, at: int) -> int:
        """The code point of the escape whose backslash was just read."""
        text, char = self.text, self.text[self.at]
        self.at += 1
        if char in SIMPLE:
            return SIMPLE[char]
        if char == "u" and (match := _UNICODE.match(text, self.at - 1)):
            self.at = match.end()
            value = int(match[1] or match[2], 16)
            if value > 0x10FFFF:
                raise self.invalid("a code point above 10FFFF", at)
            if 0xD800 <= value < 0xDC00 and (low := _LOW_HALF.match(text, self.at)):
                self.at = low.end()
                value = 0x10000 + ((value - 0xD800) << 10) + int(low[1], 16) - 0xDC00
            return value
        if char == "x" and (digits := _HEX.match(text, self.at, self.at + 2)) and len(digits[0]) == 2:
            self.at = digits.end()
            return int(digits[0], 16)
        if char == "c" and (letter := text[self.at : self.at + 1]).isascii() and letter.isalpha():
            self.at += 1
            return ord(letter) & 31
        if char == "0" and not text[self.at : self.at + 1].isdigit():
            return 0
        if char.isascii() and char.isalnum():
            raise self.refuse(f"the escape \\{char}, which ECMA-262 does not know", at, "write the character itself")
        return ord(char)
