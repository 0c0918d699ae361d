"""Reading grammar texts: a cursor with line and column, errors that point, and what all syntaxes have in common."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NoReturn

from ..charset import ALL, Ranges, category, complement, intersect, normalize
from ..interface import ConstraintError
from .tree import Alt, Expression, Grammar, Name, Ref, Repeat, Seq, Terminal

if TYPE_CHECKING:
    from ..regular.language import Language
    from ..regular.languages import Languages

#: characters of one grammar, its rules, and groups inside groups, at most
MAX_SOURCE, MAX_RULES, MAX_DEPTH = 1_000_000, 20_000, 100
#: rounds of a repeat, and repeats that are directly repeated, at most
MAX_COUNT, MAX_REPEATS = 1_000_000, 8

_SIMPLE = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "a": "\a", "0": "\0", "e": "\x1b"}
_HEX = {"x": 2, "u": 4, "U": 8}
_BRACED = re.compile(r"\{([0-9a-fA-F]{1,6})\}")
_LOW_HALF = re.compile(r"\\u([dD][c-fC-F][0-9a-fA-F]{2})")
_COUNT = re.compile("[0-9]{1,9}")
_COUNTED = re.compile(r"\{\s*[0-9,]")
_REGEX = re.compile(r"/((?:[^/\\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+)/")
_UNQUOTED = re.compile(r"[^\"'\\\n]*")
_WORD = re.compile(r"\w+|.", re.DOTALL)


class Cursor:
    """A text and a position in it. ``kind`` is the name of the syntax, for messages."""

    def __init__(self, text: str, kind: str) -> None:
        if len(text) > MAX_SOURCE:
            raise ConstraintError(f"the grammar has {len(text):,} characters; at most {MAX_SOURCE:,} are read")
        self.text = text
        self.kind = kind
        self.at = 0
        self.depth = 0

    def fail(self, message: str, at: int | None = None) -> NoReturn:
        raise self.error(message, at)

    def error(self, message: str, at: int | None = None) -> ConstraintError:
        at = self.at if at is None else at
        line = self.text.count("\n", 0, at) + 1
        column = at - self.text.rfind("\n", 0, at)
        return ConstraintError(f"{self.kind}, line {line}, column {column}: {message}")

    @property
    def ended(self) -> bool:
        return self.at >= len(self.text)

    def peek(self, length: int = 1) -> str:
        return self.text[self.at : self.at + length]

    def take(self, literal: str) -> bool:
        if self.text.startswith(literal, self.at):
            self.at += len(literal)
            return True
        return False

    def match(self, pattern: re.Pattern[str]) -> str | None:
        """What ``pattern`` matches here, taken; None if it does not match."""
        found = pattern.match(self.text, self.at)
        if found is None:
            return None
        self.at = found.end()
        return found[0]

    def shown(self) -> str:
        """What stands here, for messages."""
        if self.ended:
            return "the end of the grammar"
        if self.peek() == "\n":
            return "the end of the line"
        word = _WORD.match(self.text, self.at)
        return repr(word[0][:20]) if word else repr(self.peek())

    def enter(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail(f"groups are nested deeper than {MAX_DEPTH}; give the inner ones rules of their own")

    def leave(self) -> None:
        self.depth -= 1

    # ------------------------------------------------------------ characters

    def escape(self, also: str) -> str:
        """One character after a backslash, which has been taken. ``also``: characters that stand for themselves."""
        start = self.at - 1
        if self.ended:
            self.fail("a backslash at the end", start)
        char = self.peek()
        self.at += 1
        if char in _HEX:
            braced = _BRACED.match(self.text, self.at) if char == "u" else None
            digits = braced[1] if braced else self.peek(_HEX[char])
            if not braced and not re.fullmatch(f"[0-9a-fA-F]{{{_HEX[char]}}}", digits):
                self.fail(f"\\{char} needs {_HEX[char]} hexadecimal digits", start)
            self.at = braced.end() if braced else self.at + len(digits)
            return self._code(int(digits, 16), start)
        if char in _SIMPLE:
            return _SIMPLE[char]
        if char in also or char == "\\":
            return char
        raise self.error(f"\\{char} is no escape here; write \\\\ for a backslash", start)

    def _code(self, code: int, start: int) -> str:
        if 0xD800 <= code <= 0xDBFF:
            low = _LOW_HALF.match(self.text, self.at)
            if low is not None:
                self.at = low.end()
                return chr(0x10000 + ((code - 0xD800) << 10) + int(low[1], 16) - 0xDC00)
        if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            self.fail(f"U+{code:X} is no character", start)
        return chr(code)

    def string(self, quote: str) -> str:
        """A quoted string whose opening quote has been taken."""
        start = self.at - 1
        found: list[str] = []
        while True:
            found.append(self.match(_UNQUOTED) or "")
            char = self.peek()
            if char == "'" != quote or char == '"' != quote:
                self.at += 1
                found.append(char)
                continue
            if not char or char == "\n":
                self.fail(
                    f"the string that begins here has no closing {quote} on its line (write \\n for a new line)", start
                )
            self.at += 1
            if char == quote:
                return "".join(found)
            found.append(self.escape("\"'[]/-^"))

    def regex(self) -> str:
        """The pattern of a regex between slashes, which begins here."""
        found = _REGEX.match(self.text, self.at)
        if found is None:
            self.fail("the regex that begins here has no closing / on its line")
        self.at = found.end()
        return found[1].replace("\\/", "/")

    def char_class(self) -> Ranges:
        """A class whose opening bracket has been taken."""
        start = self.at - 1
        negated = self.take("^")
        found: list[tuple[int, int]] = []
        while not self.take("]"):
            low = self._class_char(start)
            if isinstance(low, tuple):
                found.extend(low)
                continue
            high = low
            if self.peek() == "-" and self.peek(2) not in ("-", "-]"):
                at = self.at
                self.at += 1
                end = self._class_char(start)
                if isinstance(end, tuple):
                    self.fail("a range cannot end in a set of characters", at)
                high = end
                if high < low:
                    self.fail(f"the range {chr(low)}-{chr(high)} is the wrong way round", at)
            found.append((low, high))
        ranges = normalize(found)
        return complement(ranges) if negated else ranges

    def _class_char(self, start: int) -> int | Ranges:
        char = self.peek()
        if not char or char == "\n":
            self.fail("the class that begins here has no closing ]", start)
        self.at += 1
        if char != "\\":
            return ord(char)
        if self.peek() in tuple("dDwWsS"):
            self.at += 1
            return category(self.text[self.at - 1], True)
        return ord(self.escape("\"'[]/-^.*+?(){}|$"))

    # ------------------------------------------------------------ repeats

    def repeated(self, body: Expression, space: Callable[[], object]) -> Expression:
        """``body`` with the ``* + ? {n} {n,} {n,m}`` that follow it. ``space`` skips what may stand inside braces."""
        while True:
            start = self.at
            if self.take("*"):
                body = _often(body, 0, None)
            elif self.take("+"):
                body = _often(body, 1, None)
            elif self.take("?"):
                body = _often(body, 0, 1)
            elif self.counts():
                self.at += 1
                space()
                low = self.match(_COUNT)
                space()
                high = low
                if self.take(","):
                    space()
                    high = self.match(_COUNT)
                    space()
                if not self.take("}") or (low is None and high is None):
                    self.fail("write a repeat as {n}, {n,} or {n,m}", start)
                body = self.counted(body, int(low or 0), None if high is None else int(high), start)
            else:
                return body

    def counts(self) -> bool:
        """A repeat in braces stands here."""
        return _COUNTED.match(self.text, self.at) is not None

    def counted(self, body: Expression, low: int, high: int | None, at: int) -> Expression:
        if high is not None and high < low:
            self.fail(f"the repeat asks for at least {low} and at most {high}", at)
        if max(low, high or 0) > MAX_COUNT:
            self.fail(f"a repeat of more than {MAX_COUNT:,}; write {{{low},}} for no bound", at)
        inner, depth = body, 0
        while isinstance(inner, Repeat):
            inner, depth = inner.body, depth + 1
        if depth >= MAX_REPEATS:
            self.fail(f"more than {MAX_REPEATS} repeats of one another: put the inner ones in a rule of their own", at)
        return Repeat(body, low, high)


def _often(body: Expression, low: int, high: int | None) -> Repeat:
    """``body`` with a ``*``, ``+`` or ``?``; several of them in a row are one, so that expressions stay flat."""
    if isinstance(body, Repeat) and body.low <= 1 and body.high in (1, None):
        return Repeat(body.body, low * body.low, high and body.high)
    return Repeat(body, low, high)


def literal(languages: Languages, text: str) -> Terminal:
    return Terminal.of(text, languages.literal)


def charset(languages: Languages, ranges: Ranges) -> Terminal:
    return Terminal(languages.chars(intersect(ranges, ALL)))


def caseless(languages: Languages, text: str) -> Language:
    """The text in any case, as Python's IGNORECASE has it."""
    return languages.regex(f"(?i:{re.escape(text)})", "python", ours=True)


def regex_terminal(cursor: Cursor, languages: Languages, pattern: str, at: int) -> Terminal:
    """A Terminal of a regex in Python's syntax; its errors get a place in the grammar."""
    try:
        return Terminal(languages.regex(pattern, "python"))
    except ConstraintError as error:
        raise cursor.error(f"/{pattern if len(pattern) < 60 else pattern[:57] + '...'}/: {error}", at) from None


def one_of(options: list[Expression]) -> Expression:
    return options[0] if len(options) == 1 else Alt(tuple(options))


def in_order(parts: list[Expression]) -> Expression:
    return parts[0] if len(parts) == 1 else Seq(tuple(parts))


class Definitions:
    """The rules of one text: names, where they are defined, and where they are used."""

    def __init__(self, cursor: Cursor, scope: Name) -> None:
        self.cursor = cursor
        self.scope = scope
        self.rules: dict[str, Expression] = {}
        self.defined: dict[str, int] = {}
        self.used: dict[str, int] = {}

    def announce(self, name: str, at: int) -> None:
        """Before the rule is read."""
        if name in self.defined:
            line = self.cursor.text.count("\n", 0, self.defined[name]) + 1
            self.cursor.fail(f"rule {name!r} is defined a second time (first in line {line}); join them with |", at)
        if len(self.defined) >= MAX_RULES:
            self.cursor.fail(f"more than {MAX_RULES:,} rules", at)
        self.defined[name] = at

    def ref(self, name: str, at: int) -> Ref:
        self.used.setdefault(name, at)
        return Ref((self.scope, name))

    def check(self) -> None:
        """Raises ConstraintError for names that nothing defines."""
        for name, at in self.used.items():
            if name not in self.defined:
                self.cursor.fail(f"rule {name!r} is not defined{_similar(name, self.defined)}", at)

    def finish(self, start: str) -> tuple[Grammar, Name]:
        """The grammar and the name of its start. Raises ConstraintError as :meth:`check` does, or without a start."""
        self.check()
        if start not in self.defined:
            raise ConstraintError(
                f"{self.cursor.kind}: there is no rule {start!r} to start with{_similar(start, self.defined)}; "
                "name the start rule with start="
            )
        return Grammar({(self.scope, name): rule for name, rule in self.rules.items()}), (self.scope, start)


def _similar(name: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(name, list(known), 1)
    if close:
        return f"; did you mean {close[0]!r}?"
    shown = ", ".join(list(known)[:8])
    return f" (there are: {shown}{', ...' if len(known) > 8 else ''})" if known else ""
