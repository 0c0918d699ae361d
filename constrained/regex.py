"""Python's regular expressions, parsed to a small tree. Only what a regular language can say; the rest is refused.

The syntax is checked by ``re.compile`` first, so what is a mistake in Python is the same mistake here, with Python's
words. Then this parser reads the pattern again and refuses, naming construct and position, what an automaton cannot
hold, or what would make it differ: back-references, lookbehind, conditionals, atomic groups, possessive quantifiers
and word boundaries.

Characters are code points, as in Python's str patterns: ``.`` is one code point but a newline, ``\\w \\d \\s`` are
Unicode's unless (?a) is given, IGNORECASE is Unicode's simple folding. Lazy quantifiers are the greedy ones: in a full
match both are the same language.

::

    pattern   := branch ("|" branch)*
    branch    := (atom quantifier?)*
    atom      := literal | "." | class | escape | anchor | group
"""

from __future__ import annotations

import re
import unicodedata
import warnings
from dataclasses import dataclass
from typing import Literal

from .charset import ALL, Ranges, category, complement, fold, normalize
from .interface import ConstraintError

AnchorKind = Literal["start", "line_start", "end", "last_line_end", "line_end"]

#: longest pattern accepted, in characters
MAX_PATTERN = 1_000_000


@dataclass(frozen=True, slots=True)
class Chars:
    """One character out of a set."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Seq:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alt:
    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """``body`` at least ``low`` times, at most ``high`` (None: any number)."""

    body: Node
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class Anchor:
    kind: AnchorKind


@dataclass(frozen=True, slots=True)
class Look:
    """What follows must (or, negative, must not) begin with a match of ``body``."""

    body: Node
    negative: bool


Node = Chars | Seq | Alt | Repeat | Anchor | Look

_I, _M, _S, _X, _A = re.I, re.M, re.S, re.X, re.A
_FLAGS = {"i": _I, "m": _M, "s": _S, "x": _X, "a": _A, "u": re.RegexFlag(0)}
_SIMPLE = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_NEWLINE: Ranges = ((10, 10),)
_NOT_NEWLINE = complement(_NEWLINE)


def parse(pattern: str) -> Node:
    """The tree of ``pattern``. Raises ConstraintError naming what is wrong and where."""
    if len(pattern) > MAX_PATTERN:
        raise ConstraintError(f"the regex has {len(pattern):,} characters; at most {MAX_PATTERN:,} are accepted")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "possible nested set": the meaning is still today's
            re.compile(pattern)
        return _Parser(pattern).parse()
    except re.error as error:
        raise ConstraintError(f"the regex is not valid: {error}") from None
    except (RecursionError, OverflowError):
        raise ConstraintError("the regex is nested too deeply, or a number in it is too large") from None


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.folded: dict[tuple[str, bool], Ranges] = {}

    def parse(self) -> Node:
        tree = self.alternatives(re.RegexFlag(0))
        if self.at != len(self.text):
            raise self.refuse("an unbalanced parenthesis", self.at)
        return tree

    def refuse(self, what: str, at: int, instead: str = "") -> ConstraintError:
        hint = f"; {instead}" if instead else ""
        return ConstraintError(f"the regex uses {what} at position {at}, which is not supported{hint}")

    def alternatives(self, flags: re.RegexFlag) -> Node:
        options = []
        while True:
            branch, flags = self.branch(flags)
            options.append(branch)
            if self.text[self.at : self.at + 1] != "|":
                break
            self.at += 1
        return options[0] if len(options) == 1 else Alt(tuple(options))

    def branch(self, flags: re.RegexFlag) -> tuple[Node, re.RegexFlag]:
        """One alternative, and the flags after it (a leading ``(?i)`` sets them for all that follows)."""
        parts: list[Node] = []
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            char = self.text[self.at]
            if flags & _X and char in " \t\n\r\v\f":
                self.at += 1
                continue
            if flags & _X and char == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end + 1
                continue
            if self.text.startswith("(?#", self.at):
                self.at = self.text.index(")", self.at) + 1
                continue
            if char in "*+?{":
                bounds = self.quantifier(flags)
                if bounds:
                    parts[-1] = Repeat(parts[-1], *bounds)
                    continue
            if match := _GLOBAL_FLAGS.match(self.text, self.at):
                for letter in match[1]:
                    flags |= _FLAGS[letter]
                self.at = match.end()
                continue
            parts.append(self.atom(flags))
        return (parts[0] if len(parts) == 1 else Seq(tuple(parts))), flags

    def quantifier(self, flags: re.RegexFlag) -> tuple[int, int | None] | None:
        """The bounds of the quantifier here, or None if this brace is a literal."""
        at, char = self.at, self.text[self.at]
        if char == "{":
            match = _BRACES.match(self.text, at)
            if not match:
                return None
            low = int(match[1] or 0)
            high = low if match[2] is None else (int(match[3]) if match[3] else None)
            self.at = match.end()
        else:
            low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
            self.at += 1
        after = self.text[self.at : self.at + 1]
        if after == "+":
            raise self.refuse("a possessive quantifier", at, "drop the '+'")
        if after == "?":  # lazy: the same language
            self.at += 1
        return low, high

    def atom(self, flags: re.RegexFlag) -> Node:
        at, char = self.at, self.text[self.at]
        self.at += 1
        if char == "(":
            return self.group(at, flags)
        if char == "[":
            return self.char_class(at, flags)
        if char == "\\":
            return self.escape(at, flags)
        if char == ".":
            return Chars(ALL if flags & _S else _NOT_NEWLINE)
        if char == "^":
            return Anchor("line_start" if flags & _M else "start")
        if char == "$":
            return Anchor("line_end" if flags & _M else "last_line_end")
        return self.literal(ord(char), flags)

    def group(self, at: int, flags: re.RegexFlag) -> Node:
        text = self.text
        if text[self.at : self.at + 1] != "?":
            return self.close(self.alternatives(flags))
        self.at += 1
        rest = text[self.at : self.at + 2]
        if rest[:1] in ("=", "!"):
            self.at += 1
            return Look(self.close(self.alternatives(flags)), rest[0] == "!")
        if rest in ("<=", "<!"):
            raise self.refuse("a lookbehind", at)
        if rest == "P=":
            raise self.refuse("a back-reference to a named group", at)
        if rest[:1] == "(":
            raise self.refuse("a conditional group", at)
        if rest[:1] == ">":
            raise self.refuse("an atomic group", at, "write (?:...)")
        if rest == "P<":
            self.at = text.index(">", self.at) + 1
            return self.close(self.alternatives(flags))
        on, _, off = text[self.at : text.index(":", self.at)].partition("-")
        if "L" in on:
            raise self.refuse("the locale flag", at)
        for letter in on:
            if letter == "u":
                flags &= ~_A
            flags |= _FLAGS[letter]
        for letter in off:
            flags &= ~_FLAGS[letter]
        self.at = text.index(":", self.at) + 1
        return self.close(self.alternatives(flags))

    def close(self, inner: Node) -> Node:
        self.at += 1  # re.compile has seen the parenthesis
        return inner

    # ------------------------------------------------------------ characters

    def literal(self, code: int, flags: re.RegexFlag) -> Chars:
        ranges = normalize([(code, code)])
        if flags & _I and ranges:
            return Chars(self.folding(ranges, re.escape(chr(code)), flags))
        return Chars(ranges)

    def folding(self, ranges: Ranges, source: str, flags: re.RegexFlag) -> Ranges:
        key = (source, bool(flags & _A))
        if key not in self.folded:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.folded[key] = fold(ranges, source, int(flags & (_I | _A)))
        return self.folded[key]

    def escape(self, at: int, flags: re.RegexFlag) -> Node:
        char = self.text[self.at]
        if char in "dDsSwW":
            self.at += 1
            return Chars(category(char, bool(flags & _A)))
        if char in "AZ":
            self.at += 1
            return Anchor("start" if char == "A" else "end")
        if char in "bB":
            raise self.refuse(f"the word boundary \\{char}", at)
        if char in "123456789" and not _OCTAL.match(self.text, self.at):
            raise self.refuse("a back-reference", at)
        return self.literal(self.code(_OCTAL), flags)

    def code(self, octal: re.Pattern[str]) -> int:
        """The code point of the escape whose backslash was just read; categories and anchors are not among them."""
        text, char = self.text, self.text[self.at]
        if char in _WIDTHS:
            width = _WIDTHS[char]
            value = int(text[self.at + 1 : self.at + 1 + width], 16)
            self.at += 1 + width
            return value
        if char == "N":
            end = text.index("}", self.at)
            name = text[self.at + 2 : end]
            self.at = end + 1
            return ord(_by_name(name))
        if match := octal.match(text, self.at):
            self.at = match.end()
            return int(match[0], 8)
        self.at += 1
        return _SIMPLE.get(char, ord(char))

    def char_class(self, at: int, flags: re.RegexFlag) -> Node:
        text = self.text
        negated = text[self.at] == "^"
        if negated:
            self.at += 1
        found: list[tuple[int, int]] = []
        first = True
        while first or text[self.at] != "]":
            first = False
            item = self.class_item(flags)
            if isinstance(item, int):
                low = high = item
                if text[self.at] == "-" and text[self.at + 1] != "]":
                    self.at += 1
                    end = self.class_item(flags)
                    assert isinstance(end, int)  # re.compile refuses a range to a category
                    high = end
                found.append((low, high))
            else:
                found.extend(item)
        self.at += 1
        ranges = normalize(found)
        if negated:
            ranges = complement(ranges)
        if flags & _I:
            return Chars(self.folding(ranges, text[at : self.at], flags))
        return Chars(ranges)

    def class_item(self, flags: re.RegexFlag) -> int | Ranges:
        char = self.text[self.at]
        self.at += 1
        if char != "\\":
            return ord(char)
        char = self.text[self.at]
        if char in "dDsSwW":
            self.at += 1
            return category(char, bool(flags & _A))
        return self.code(_OCTAL_IN_CLASS)


_GLOBAL_FLAGS = re.compile(r"\(\?([aimsxu]+)\)")
_BRACES = re.compile(r"\{(?=[0-9,])([0-9]*)(,([0-9]*))?\}")
_OCTAL = re.compile(r"0[0-7]{0,2}|[0-3][0-7]{2}")
_OCTAL_IN_CLASS = re.compile(r"[0-7]{1,3}")
_WIDTHS = {"x": 2, "u": 4, "U": 8}


def _by_name(name: str) -> str:
    return unicodedata.lookup(name)
