"""Regexes as Python's ``re`` has them; the language is that of ``re.fullmatch``.

The syntax is checked by ``re.compile`` first, so what is a mistake in Python is the same mistake here, with Python's
words. Characters are code points: ``.`` is one code point but a newline, ``\\w \\d \\s`` are Unicode's unless (?a) is
given, IGNORECASE is Unicode's simple folding. ``\\p{..}`` is accepted beyond what ``re`` knows.
"""

from __future__ import annotations

import re
import warnings
from functools import lru_cache

from ..charset import Ranges, category, complement, fold
from ..interface import ConstraintError
from .anchoring import leading, trailing
from .language import Language
from .nodes import Node
from .syntax import ASCII, IGNORECASE, SIMPLE, Parser, bounded
from .terms import Arena

_OCTAL = re.compile(r"0[0-7]{0,2}|[0-3][0-7]{2}")
_OCTAL_IN_CLASS = re.compile(r"[0-7]{1,3}")
_WIDTHS = {"x": 2, "u": 4, "U": 8}
_PROPERTY = re.compile(r"(?<!\\)((?:\\\\)*)\\[pP]\{[^}]*\}")
_NOT_NEWLINE = complement(((10, 10),))
_SIMPLE = SIMPLE | {"a": 7, "b": 8}
#: Python before 3.14 says that \B does not hold in an empty text
_EMPTY_INSIDE = re.compile(r"\B").match("") is not None


def parse(pattern: str, arena: Arena) -> Node:
    """The node that matches what ``re.fullmatch(pattern, ...)`` does; the pattern must have passed :func:`check`.
    Raises ConstraintError naming what is not supported."""
    tree = _Python(pattern, arena).parse()
    return trailing(leading(tree, arena.NOTHING, arena), arena.NOTHING, arena)


#: alternatives of plain words, in one group or none: never wrong, and half of what compiling a thousand of them takes
_PLAIN = re.compile(r"[\w |]*|\((?:\?:)?[\w |]*\)")


_REMEMBERED = 2000  # characters; who sends many patterns that are longer wants our memory


def check(pattern: str) -> None:
    """Raises ConstraintError for what is a mistake in Python."""
    if len(pattern) <= _REMEMBERED:
        _check_once(pattern)
        return
    _check(bounded(pattern))
    re.purge()  # ``re`` keeps the last 512 patterns and their code, however long they are


@lru_cache(maxsize=256)
def _check_once(pattern: str) -> None:
    _check(pattern)


def _check(pattern: str) -> None:
    if _PLAIN.fullmatch(pattern):
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "possible nested set": the meaning is still today's
            re.compile(_PROPERTY.sub(r"\1\\w", pattern) if "\\p{" in pattern or "\\P{" in pattern else pattern)
    except re.error as error:
        raise ConstraintError(f"the regex is not valid: {error}") from None
    except (RecursionError, OverflowError, ValueError):  # a number of thousands of digits is the last
        raise ConstraintError("the regex is nested too deeply, or a number in it is too large") from None


class _Python(Parser):
    valid = True

    def dot(self) -> Ranges:
        return _NOT_NEWLINE

    def end_of_text(self) -> Language:
        arena = self.arena
        return arena.state([arena.END, arena.cons(arena.chars_node(arena.alphabet.one(10)), arena.END)])

    def bounds(self, match: re.Match[str], at: int) -> tuple[int, int | None] | None:
        if match[0] == "{}":
            return None
        low = int(match[1] or 0)
        return low, (low if match[2] is None else int(match[3]) if match[3] else None)

    def escape(self, at: int, flags: int) -> Node:
        char = self.text[self.at]
        if char in "dDsSwW":
            self.at += 1
            return self.arena.chars_node(self.arena.alphabet.make(category(char, bool(flags & ASCII))))
        if char == "A":
            self.at += 1
            return self.arena.behind(True, None, True)
        if char in "Zz":
            self.at += 1
            return self.arena.ahead(self.arena.state([self.arena.END]))
        if char in "bB":
            self.at += 1
            return self.boundary(category("w", bool(flags & ASCII)), char == "B", _EMPTY_INSIDE)
        if char in "pP":
            self.at += 1
            return self.set(self.property(at, False), flags)
        if char in "123456789" and not _OCTAL.match(self.text, self.at):
            raise self.refuse("a back-reference", at, "spell out what the group may be")
        return self.literal(self.code(_OCTAL, at), flags)

    def class_escape(self, at: int, negated: bool, flags: int) -> int | Ranges:
        char = self.text[self.at]
        if char in "dDsSwW":
            self.at += 1
            return category(char, bool(flags & ASCII))
        if char in "pP":
            self.at += 1
            return self.property(at, negated)
        return self.code(_OCTAL_IN_CLASS, at)

    def class_set(self, ranges: Ranges, flags: int, negated: bool, source: str) -> Node:
        # IGNORECASE leaves \w and the like within a class as they are: Python is asked about the class as a whole
        if flags & IGNORECASE and "\\" in source and not re.search(r"\\[pP]", source):
            how = int(re.IGNORECASE | (re.ASCII if flags & ASCII else 0))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                folded = fold(complement(ranges) if negated else ranges, source, how)
            return self.arena.chars_node(self.arena.alphabet.make(folded))
        return super().class_set(ranges, flags, negated, source)

    def code(self, octal: re.Pattern[str], at: int) -> int:
        """The code point of the escape whose backslash was just read; categories and anchors are not among them."""
        text, char = self.text, self.text[self.at]
        if char in _WIDTHS:
            end = self.at + 1 + _WIDTHS[char]
            value = int(text[self.at + 1 : end], 16)
            self.at = end
            return value
        if char == "N":
            self.at += 1
            return self.by_name(at)
        if match := octal.match(text, self.at):
            self.at = match.end()
            return int(match[0], 8)
        self.at += 1
        return _SIMPLE.get(char, ord(char))
