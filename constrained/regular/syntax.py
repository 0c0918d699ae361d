"""What both regex flavours share: alternatives, sequences, quantifiers, groups, classes; pattern text -> nodes.

::

    pattern   := branch ("|" branch)*
    branch    := (atom quantifier?)*
    atom      := literal | "." | class | escape | anchor | group

A parser makes nodes of one :class:`~.terms.Arena` directly. What a regular language cannot say is refused by name,
with its position. Lazy quantifiers are the greedy ones: as a language both are the same.
"""

from __future__ import annotations

import re
import unicodedata
from abc import ABC, abstractmethod

from ..charset import Ranges, complement, folded, normalize
from ..interface import ConstraintError
from .anchoring import trailing
from .language import Language
from .nodes import START, Alt, Behind, Chars, Node
from .properties import lookup
from .terms import Arena

#: longest pattern accepted, in characters
MAX_PATTERN = 1_000_000
#: longest number in a repeat, in digits
MAX_DIGITS = 18
#: most groups inside of one another; fixed, so that a pattern that was accepted once is accepted in every thread
MAX_DEPTH = 100

IGNORECASE, MULTILINE, DOTALL, VERBOSE, ASCII = 1, 2, 4, 8, 16
FLAGS = {"i": IGNORECASE, "m": MULTILINE, "s": DOTALL, "x": VERBOSE, "a": ASCII, "u": 0}

SIMPLE = {"f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
#: characters that stand for themselves in every mode but VERBOSE and IGNORECASE
_PLAIN = re.compile(r"[A-Za-z0-9_ \-,:;/=@#%&~\"'<>!]+")
_BRACES = re.compile(r"\{([0-9]*)(,([0-9]*))?\}")
#: a class whose end is plain to see
_CLASS = re.compile(r"\[\^?(?:[^\]\\\[]|\\.)+\]", re.DOTALL)
_GROUP_NAME = re.compile(r"P?<([^\W\d]\w*)>")
_GLOBAL_FLAGS = re.compile(r"([aimsxu]+)\)")
_ONLY_FLAGS = re.compile(r"(\(\?[aimsxu]+\))*")
_SCOPED_FLAGS = re.compile(r"([aimsxuL]*)(?:-([imsx]+))?:")


def bounded(text: str) -> str:
    """``text``; raises ConstraintError if it is too long to look at."""
    if len(text) > MAX_PATTERN:
        raise ConstraintError(f"the regex has {len(text):,} characters; at most {MAX_PATTERN:,} are accepted")
    return text


class Parser(ABC):
    """One pattern being read. Subclasses say what escapes, ``.``, anchors and braces mean."""

    #: somebody else has found the syntax right
    valid = False

    def __init__(self, text: str, arena: Arena) -> None:
        self.text = bounded(text)
        self.arena = arena
        self.at = 0
        self.depth = 0
        self.names: set[str] = set()

    def parse(self) -> Node:
        tree = self.alternatives(0)
        if self.at < len(self.text):
            raise self.invalid("unbalanced parenthesis", self.at)
        return tree

    # ------------------------------------------------------------ what the flavours differ in

    @abstractmethod
    def escape(self, at: int, flags: int) -> Node:
        """The atom whose backslash (at ``at``) was just read."""

    @abstractmethod
    def class_escape(self, at: int, negated: bool, flags: int) -> int | Ranges:
        """The same inside of a class: a code point or a set."""

    def class_set(self, ranges: Ranges, flags: int, negated: bool, source: str) -> Node:
        """The class of ``ranges``, as it was written in ``source``."""
        return self.set(ranges, flags, negated)

    def class_is_empty(self) -> bool:
        """Whether a ``]`` right after ``[`` or ``[^`` closes the class."""
        return False

    @abstractmethod
    def dot(self) -> Ranges:
        """What ``.`` stands for without DOTALL."""

    @abstractmethod
    def end_of_text(self) -> Language:
        """What ``$`` lets follow."""

    @abstractmethod
    def bounds(self, match: re.Match[str], at: int) -> tuple[int, int | None] | None:
        """The counts of ``{..}``, or None if it is no quantifier."""

    # ------------------------------------------------------------ structure

    def refuse(self, what: str, at: int, instead: str = "") -> ConstraintError:
        hint = f"; {instead}" if instead else ""
        return ConstraintError(f"the regex uses {what} at position {at}, which is not supported{hint}")

    def invalid(self, what: str, at: int, instead: str = "") -> ConstraintError:
        hint = f"; {instead}" if instead else ""
        return ConstraintError(f"the regex is not valid: {what} at position {at}{hint}")

    def alternatives(self, flags: int) -> Node:
        text = self.text
        branch, flags = self.branch(flags)
        if text[self.at : self.at + 1] != "|":
            return branch
        options = [branch]
        while text[self.at : self.at + 1] == "|":
            self.at += 1
            branch, flags = self.branch(flags)
            options.append(branch)
        return self.arena.alt(options)

    def branch(self, flags: int) -> tuple[Node, int]:
        """One alternative, and the flags after it (a leading ``(?i)`` sets them for all that follows)."""
        parts: list[Node] = []
        text, size, arena = self.text, len(self.text), self.arena
        quantified = bare = -1
        while self.at < size:
            char = text[self.at]
            if char == "|" or char == ")":
                break
            if not flags & (IGNORECASE | VERBOSE) and (run := _PLAIN.match(text, self.at)):
                end = run.end()
                if end - self.at > 1 and text[end : end + 1] in ("*", "+", "?", "{"):
                    end -= 1
                parts.append(arena.text_node(text[self.at : end]))
                self.at = end
                continue
            if flags & VERBOSE and char in " \t\n\r\v\f":
                self.at += 1
                continue
            if flags & VERBOSE and char == "#":
                end = text.find("\n", self.at)
                self.at = size if end < 0 else end + 1
                continue
            if char == "(" and text.startswith("(?#", self.at):
                end = text.find(")", self.at)
                if end < 0:
                    raise self.invalid("an unterminated comment", self.at)
                self.at = end + 1
                continue
            if char in "*+?{":
                at = self.at
                counts = self.quantifier()
                if counts:
                    if not parts or bare == len(parts):
                        raise self.invalid("nothing to repeat", at)
                    if quantified == len(parts):
                        raise self.invalid("multiple repeat", at, "put the inner repeat in a group")
                    parts[-1] = arena.repeat_node(parts[-1], *counts)
                    quantified = len(parts)
                    continue
            if char == "(" and text.startswith("(?", self.at) and (match := _GLOBAL_FLAGS.match(text, self.at + 2)):
                if not self.valid and not _ONLY_FLAGS.fullmatch(text, 0, self.at):
                    raise self.invalid("flags that are not at the start", self.at, "write (?i:...)")
                for letter in match[1]:
                    flags |= FLAGS[letter]
                self.at = match.end()
                continue
            parts.append(self.atom(flags))
            if char in "^$":
                bare = len(parts)
        return (parts[0] if len(parts) == 1 else arena.seq(parts)), flags

    def quantifier(self) -> tuple[int, int | None] | None:
        """The bounds of the quantifier here, or None if this brace is a literal."""
        at, char = self.at, self.text[self.at]
        low: int
        high: int | None
        if char == "{":
            match = _BRACES.match(self.text, at)
            if match and max(len(match[1]), len(match[3] or "")) > MAX_DIGITS:
                raise self.refuse(f"a repeat whose bound has more than {MAX_DIGITS} digits", at)
            counts = self.bounds(match, at) if match else None
            if match is None or counts is None:
                return None
            low, high = counts
            if high is not None and high < low:
                raise self.invalid("the minimum of a repeat is above its maximum", at)
            self.at = match.end()
        else:
            low, high = (1 if char == "+" else 0), (1 if char == "?" else None)
            self.at += 1
        after = self.text[self.at : self.at + 1]
        if after == "+":
            raise self.refuse("a possessive quantifier", at, "drop the '+'")
        if after == "?":  # lazy: the same language
            self.at += 1
        return low, high

    def atom(self, flags: int) -> Node:
        at, char = self.at, self.text[self.at]
        self.at += 1
        arena = self.arena
        if char == "(":
            return self.group(at, flags)
        if char == "[":
            return self.char_class(at, flags)
        if char == "\\":
            if self.at >= len(self.text):
                raise self.invalid("a backslash at the end", at)
            return self.escape(at, flags)
        if char == ".":
            return arena.any_char if flags & DOTALL else arena.chars_node(arena.alphabet.make(self.dot()))
        if char == "^":
            return self.line_start() if flags & MULTILINE else arena.behind(True, None, True)
        if char == "$":
            return arena.ahead(self.line_end() if flags & MULTILINE else self.end_of_text())
        return self.literal(ord(char), flags)

    def group(self, at: int, flags: int) -> Node:
        text = self.text
        if text[self.at : self.at + 1] != "?":
            return self.closed(at, flags)
        self.at += 1
        rest = text[self.at : self.at + 2]
        first = rest[:1]
        if first == ":":
            self.at += 1
            return self.closed(at, flags)
        if first in ("=", "!"):
            self.at += 1
            body = trailing(self.closed(at, flags), self.arena.anything, self.arena)
            return self.arena.look_node(body, first == "!")
        if rest in ("<=", "<!"):
            self.at += 2
            return self.lookbehind(self.closed(at, flags), rest == "<=", at)
        if match := _GROUP_NAME.match(text, self.at):
            if match[1] in self.names:
                raise self.invalid(f"the group name {match[1]!r} is used twice", at)
            self.names.add(match[1])
            self.at = match.end()
            return self.closed(at, flags)
        if match := _SCOPED_FLAGS.match(text, self.at):
            on, off = match[1], match[2] or ""
            if "L" in on:
                raise self.refuse("the locale flag", at)
            if "u" in on:
                flags &= ~ASCII
            for letter in on:
                flags |= FLAGS[letter]
            for letter in off:
                flags &= ~FLAGS[letter]
            self.at = match.end()
            return self.closed(at, flags)
        if rest == "P=":
            raise self.refuse("a back-reference to a named group", at, "spell out what it may be")
        if first == "(":
            raise self.refuse("a conditional group", at, "write both cases as alternatives")
        if first == ">":
            raise self.refuse("an atomic group", at, "write (?:...)")
        raise self.invalid(f"the group (?{first}", at)

    def closed(self, at: int, flags: int) -> Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ConstraintError(
                f"the regex is nested too deeply: at most {MAX_DEPTH} groups may stand inside one another"
            )
        inner = self.alternatives(flags)
        self.depth -= 1
        if self.text[self.at : self.at + 1] != ")":
            raise self.invalid("a missing ), for the ( that opens", at)
        self.at += 1
        return inner

    def lookbehind(self, body: Node, wanted: bool, at: int) -> Node:
        """One character, or the start of the text, can be looked back at."""
        start, chars = False, self.arena.alphabet.none
        for option in body.options if type(body) is Alt else (body,):
            if type(option) is Chars:
                chars = self.arena.alphabet.join([chars, option.set])
            elif type(option) is Behind and option.mask == START and option.wanted:
                start = True
            else:
                raise self.refuse(
                    "a lookbehind that is not just one character", at, "match those characters instead of looking back"
                )
        return self.arena.behind(start, chars, wanted)

    # ------------------------------------------------------------ anchors

    def line_start(self) -> Node:
        return self.arena.behind(True, self.arena.alphabet.one(10), True)

    def line_end(self) -> Language:
        arena = self.arena
        newline = arena.cons(arena.chars_node(arena.alphabet.one(10)), arena.REST)
        return arena.state([arena.END, newline])

    def boundary(self, word: Ranges, inside: bool, empty_too: bool) -> Node:
        """``\\b``, or ``\\B`` (``inside``), which holds in an empty text if ``empty_too``."""
        arena = self.arena
        chars = arena.alphabet.make(word)
        before, not_before = (arena.behind(False, chars, wanted) for wanted in (True, False))
        after = arena.ahead(arena.state([arena.cons(arena.chars_node(chars), arena.REST)]))
        other = arena.cons(arena.chars_node(arena.alphabet.outside(chars)), arena.REST)
        not_after = arena.ahead(arena.state([arena.END, other]))
        if not inside:
            return arena.alt([arena.seq([before, not_after]), arena.seq([not_before, after])])
        options = [arena.seq([before, after])]
        if empty_too:
            options.append(arena.seq([not_before, not_after]))
        else:
            first, later = (arena.behind(True, None, wanted) for wanted in (True, False))
            options.append(arena.seq([first, arena.ahead(arena.state([other]))]))
            options.append(arena.seq([later, not_before, not_after]))
        return arena.alt(options)

    # ------------------------------------------------------------ characters

    def literal(self, code: int, flags: int) -> Node:
        if flags & IGNORECASE:
            return self.set(normalize([(code, code)]), flags)
        return self.arena.chars_node(self.arena.alphabet.one(code))

    def set(self, ranges: Ranges, flags: int, negated: bool = False) -> Node:
        if flags & IGNORECASE:
            ranges = folded(ranges, bool(flags & ASCII))
        if negated:
            ranges = complement(ranges)
        return self.arena.chars_node(self.arena.alphabet.make(ranges))

    def char_class(self, at: int, flags: int) -> Node:
        source = _CLASS.match(self.text, at)
        key = ("class", type(self), source[0], flags) if source else None
        known = self.arena.classes.get(key) if key else None
        if source and known is not None:
            self.at = source.end()
            return known
        found = self._char_class(at, flags)
        if key:
            self.arena.classes[key] = found
        return found

    def _char_class(self, at: int, flags: int) -> Node:
        text, size = self.text, len(self.text)
        negated = text[self.at : self.at + 1] == "^"
        if negated:
            self.at += 1
        found: list[tuple[int, int]] = []
        first = not self.class_is_empty()
        while True:
            if self.at >= size:
                raise self.invalid("a class without its closing ]", at)
            if text[self.at] == "]" and not first:
                break
            first = False
            here = self.at
            item = self.class_item(negated, flags)
            if text[self.at : self.at + 1] == "-" and text[self.at + 1 : self.at + 2] not in ("]", ""):
                self.at += 1
                end = self.class_item(negated, flags)
                if isinstance(item, int) and isinstance(end, int):
                    if end < item:
                        raise self.invalid(f"the reversed range {text[here : self.at]}", here)
                    found.append((item, end))
                    continue
                # one side is a set: the hyphen is itself
                for side in (item, 45, end):
                    found.extend([(side, side)] if isinstance(side, int) else side)
            elif isinstance(item, int):
                found.append((item, item))
            else:
                found.extend(item)
        self.at += 1
        return self.class_set(normalize(found), flags, negated, text[at : self.at])

    def class_item(self, negated: bool, flags: int) -> int | Ranges:
        at, char = self.at, self.text[self.at]
        self.at += 1
        if char != "\\":
            return ord(char)
        if self.at >= len(self.text):
            raise self.invalid("a backslash at the end", at)
        return self.class_escape(at, negated, flags)

    def property(self, at: int, negated: bool) -> Ranges:
        """The set of ``\\p{..}`` or ``\\P{..}``; the ``p`` was just read."""
        inverse = self.text[self.at - 1] == "P"
        if self.text[self.at : self.at + 1] == "{":
            end = self.text.find("}", self.at)
            if end < 0:
                raise self.invalid("a \\p{ without its }", at)
            name, self.at = self.text[self.at + 1 : end], end + 1
        else:
            name, self.at = self.text[self.at : self.at + 1], self.at + 1
        if name.startswith("^"):
            inverse, name = not inverse, name[1:]
        known = lookup(name)
        if known is None:
            raise self.refuse(f"the Unicode property \\p{{{name}}}", at, "write the characters as a class [...]")
        ranges, exact = known
        if not exact and inverse != negated:
            raise self.refuse(
                f"the negation of the Unicode property {name}", at, "write the characters as a class [^...]"
            )
        return complement(ranges) if inverse else ranges

    def by_name(self, at: int) -> int:
        """``\\N{NAME}``; the N was just read."""
        end = self.text.find("}", self.at)
        try:
            return ord(unicodedata.lookup(self.text[self.at + 1 : end]))
        except (KeyError, TypeError):
            raise self.invalid("an unknown character name", at) from None
        finally:
            self.at = end + 1
