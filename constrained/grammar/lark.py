"""The part of Lark's grammar language that llguidance takes.

::

    ?start: sum                              rules in lower case, ? and ! before a name mean nothing here
    sum: product (("+" | "-") product)*      "strings", "any case"i, "a".."z", /regex/flags
    product: NUMBER ~ 1..3                   ( ) groups, [ ] optional parts, * + ?, ~ n..m or {n,m}
    NUMBER: /[0-9]+/ & ~"0"                  terminals in upper case: regular, no recursion; & both, ~ all but
    %import common.WS                        %import common (A, B), -> another name
    %ignore WS                               may stand before and after every terminal

There is no lexer: a text is allowed if it can be split into terminals in any way, so a longer terminal never hides a
shorter one. ``%json {...}`` stands for a value of that JSON Schema, as in llguidance. Aliases (``-> name``) are read
over. Templates, priorities, attributes, token ids and other directives are refused by name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..interface import ConstraintError
from .common import COMMON
from .source import Cursor, Definitions, caseless, charset, in_order, literal, one_of, regex_terminal
from .tree import Alt, Expression, Grammar, Name, Opaque, Ref, Repeat, Seq, Terminal, components, references

if TYPE_CHECKING:
    from ..regular.language import Language
    from ..regular.languages import Languages

_BLANK = re.compile(r"(?:[ \t\f]+|(?://|#)[^\n]*)+")
_SPACE = re.compile(r"(?:\s+|(?://|#)[^\n]*)+")
#: a line that begins with | goes on with the rule before it
_MORE = re.compile(r"(?:\s+|(?://|#)[^\n]*)*\|")
_NAME = re.compile(r"_?[A-Za-z][A-Za-z0-9_]*")
_FLAGS = re.compile("[a-z]+")
_INTEGER = re.compile("[0-9]{1,9}")
_NOTHING = re.compile("")

#: the nonterminal of a JSON Schema's values
Schemas = Callable[[Any], int]


def parse(
    text: str, start: str, scope: Name, languages: Languages, schemas: Schemas | None = None
) -> tuple[Grammar, Name]:
    """The grammar and its start. ``scope`` keeps its names apart from those of other grammars."""
    return _Parser(Cursor(text, "Lark"), scope, languages, schemas).grammar(start)


def _is_terminal(name: str) -> bool:
    return name.lstrip("_")[:1].isupper()


class _Parser:
    def __init__(self, cursor: Cursor, scope: Name, languages: Languages, schemas: Schemas | None) -> None:
        self.cursor = cursor
        self.languages = languages
        self.schemas = schemas
        self.names = Definitions(cursor, scope)
        self.ignored: list[Expression] = []
        #: "&" or "~" over terminals, by number; each is a nameless terminal
        self.formulas: dict[Name, tuple[str, list[Expression]]] = {}
        self.inside = ""  # the name of the terminal that is being read; "" in a rule
        self.skip = Ref((scope, "%ignore"))

    # ------------------------------------------------------------ statements

    def grammar(self, start: str) -> tuple[Grammar, Name]:
        cursor = self.cursor
        cursor.match(_SPACE)
        while not cursor.ended:
            if cursor.peek() == "%":
                self.directive()
            else:
                self.definition()
            cursor.match(_BLANK)
            if not cursor.ended and cursor.peek() not in "\r\n":
                self.unexpected()
            cursor.match(_SPACE)
        self.names.check()
        self.make_terminals()
        grammar, name = self.names.finish(start)
        skipped = Repeat(one_of(self.ignored), 0, None) if self.ignored else literal(self.languages, "")
        grammar.rules[self.skip.name] = skipped
        whole = (self.names.scope, "%start")
        grammar.rules[whole] = Seq((self.skip, Ref(name)))
        return grammar, whole

    def unexpected(self) -> None:
        cursor = self.cursor
        char = cursor.peek()
        if char in ")]":
            cursor.fail(f"a {char} without its opening bracket")
        if char in "*+?~":
            cursor.fail(f"nothing stands before {char!r} that could be repeated")
        cursor.fail(f"{cursor.shown()} is nothing that a rule can hold")

    def definition(self) -> None:
        cursor = self.cursor
        while cursor.peek() in ("?", "!"):
            cursor.at += 1
        at = cursor.at
        name = cursor.match(_NAME)
        if name is None:
            cursor.fail(f"expected a rule, name: ..., and found {cursor.shown()}")
        cursor.match(_BLANK)
        if cursor.peek() == "{":
            cursor.fail(f"templates ({name}{{...}}) are not supported: write the rule once for each use")
        if cursor.peek() == ".":
            cursor.fail(
                f"priorities ({name}.n) are not supported: every way to read a text is allowed, so leave it out"
            )
        if cursor.peek() == "[":
            cursor.fail(f"attributes ({name}[...]) are not supported: leave them out")
        if not cursor.take(":"):
            hint = " (rules are written name: ... in Lark)" if cursor.peek() == "=" else ""
            cursor.fail(f"expected : after {name!r} and found {cursor.shown()}{hint}")
        self.names.announce(name, at)
        self.inside = name if _is_terminal(name) else ""
        self.names.rules[name] = self.alternatives()
        self.inside = ""

    def directive(self) -> None:
        cursor = self.cursor
        at = cursor.at
        if cursor.take("%ignore"):
            cursor.match(_BLANK)
            self.inside = "%ignore"
            self.ignored.append(self.alternatives())
            self.inside = ""
        elif cursor.take("%import"):
            cursor.match(_BLANK)
            self.imports(at)
        elif cursor.take("%llguidance"):
            cursor.match(_BLANK)
            if self.json(at):
                cursor.fail("%llguidance options are not supported: leave them out", at)
        else:
            word = re.compile(r"%\w*").match(cursor.text, at)
            assert word is not None
            cursor.fail(f"{word[0]} is not supported (known: %import common, %ignore, %json in a rule)", at)

    def imports(self, at: int) -> None:
        cursor = self.cursor
        if not cursor.take("common"):
            cursor.fail("only %import common... is supported: write the terminals into this grammar", at)
        cursor.match(_BLANK)
        if cursor.take("."):
            self.imported()
            return
        if not cursor.take("("):
            cursor.fail("write %import common.NAME or %import common (NAME, NAME)", at)
        while True:
            cursor.match(_SPACE)
            self.imported()
            cursor.match(_SPACE)
            if cursor.take(")"):
                return
            if not cursor.take(","):
                cursor.fail(f"expected , or ) and found {cursor.shown()}")

    def imported(self) -> None:
        cursor = self.cursor
        at = cursor.at
        name = cursor.match(_NAME) or ""
        pattern = COMMON.get(name)
        if pattern is None:
            known = ", ".join(sorted(COMMON))
            cursor.fail(f"common has no {name or cursor.shown()} (it has {known})", at)
        cursor.match(_BLANK)
        if cursor.take("->"):
            cursor.match(_BLANK)
            at = cursor.at
            name = cursor.match(_NAME) or cursor.fail("expected a name after ->")
        self.names.announce(name, at)
        self.names.rules[name] = Terminal(self.languages.regex(pattern, "python"))

    def make_terminals(self) -> None:
        """Make one language of each terminal. They refer to terminals only, and never to themselves."""
        rules = self.names.rules
        used: dict[Name, set[Name]] = {}
        for name, rule in [*rules.items(), *self.formulas.items()]:
            if not isinstance(name, str) or _is_terminal(name):
                inside = rule[1] if isinstance(rule, tuple) else [rule]
                used[name] = {ref[1] for part in inside for ref in references(part) if isinstance(ref, tuple)}
        languages: dict[Name, Language] = {}
        for loop in components(used):
            own = sorted(name for name in loop if isinstance(name, str))
            if len(loop) > 1 or loop[0] in used[loop[0]]:
                said = (
                    f"terminals {', '.join(own)} refer to each other" if len(own) > 1 else f"{own[0]} refers to itself"
                )
                self.cursor.fail(f"{said}: terminals are regular, make rules of them", self.names.defined[own[0]])
            languages[loop[0]] = self.language(loop[0], languages)
            if own:
                rules[own[0]] = Terminal(languages[loop[0]])
        self.ignored = [Terminal(self.evaluated(one, languages)) for one in self.ignored]

    def language(self, name: Name, known: dict[Name, Language]) -> Language:
        if isinstance(name, str):
            return self.evaluated(self.names.rules[name], known)
        kind, parts = self.formulas[name]
        values = [self.evaluated(part, known) for part in parts]
        return self.languages.intersect(*values) if kind == "&" else self.languages.complement(values[0])

    def evaluated(self, expression: Expression, known: dict[Name, Language]) -> Language:
        """The language of an expression of terminals."""
        languages = self.languages
        if isinstance(expression, Terminal):
            return expression.language
        if isinstance(expression, Ref):
            assert isinstance(expression.name, tuple)
            return known[expression.name[1]]
        if isinstance(expression, Seq):
            return languages.concat(*(self.evaluated(part, known) for part in expression.parts))
        if isinstance(expression, Alt):
            words = [one.text for one in expression.options if isinstance(one, Terminal) and one.text is not None]
            others = [one for one in expression.options if not isinstance(one, Terminal) or one.text is None]
            return languages.union(languages.literals(words), *(self.evaluated(option, known) for option in others))
        assert isinstance(expression, Repeat)
        return languages.repeat(self.evaluated(expression.body, known), expression.low, expression.high)

    def formula(self, kind: str, parts: list[Expression], at: int) -> Ref:
        if not self.inside:
            self.cursor.fail(f"{kind} can only stand in a terminal: give this part a name in upper case", at)
        name = len(self.formulas)
        self.formulas[name] = (kind, parts)
        return Ref((self.names.scope, name))

    # ------------------------------------------------------------ expressions

    def alternatives(self, closing: str = "") -> Expression:
        """``closing``: the bracket around it, in which lines end nothing."""
        cursor = self.cursor
        options = [self.conjunction(closing)]
        while True:
            if not closing and _MORE.match(cursor.text, cursor.at):
                cursor.match(_SPACE)
            if not cursor.take("|"):
                return self.one_of(options)
            options.append(self.conjunction(closing))

    def one_of(self, options: list[Expression]) -> Expression:
        """What is ignored after each of many terminals is said once, after one of them: ``(a | b) skip``."""
        ends = [isinstance(one, Seq) and len(one.parts) == 2 and one.parts[1] is self.skip for one in options]
        if sum(ends) < 2:
            return one_of(options)
        terminals = [one.parts[0] for one, end in zip(options, ends, strict=True) if end and isinstance(one, Seq)]
        others = [one for one, end in zip(options, ends, strict=True) if not end]
        return one_of([Seq((Alt(tuple(terminals)), self.skip)), *others])

    def conjunction(self, closing: str) -> Expression:
        at = self.cursor.at
        parts = [self.sequence(closing)]
        while self.cursor.take("&"):
            parts.append(self.sequence(closing))
        return parts[0] if len(parts) == 1 else self.formula("&", parts, at)

    def sequence(self, closing: str) -> Expression:
        cursor = self.cursor
        space = _SPACE if closing else _BLANK
        parts: list[Expression] = []
        while True:
            cursor.match(space)
            if cursor.take("->"):
                cursor.match(_BLANK)
                if cursor.match(_NAME) is None:
                    cursor.fail("expected a name after ->")
                cursor.match(space)
                break
            if cursor.ended or cursor.peek() in ("|", ")", "]", "\n", "\r", "&"):
                break
            at = cursor.at
            negated = cursor.take("~")
            cursor.match(space if negated else _NOTHING)
            part = self.atom()
            if part is None:
                break
            part = self.repeated(part)
            parts.append(self.formula("~", [part], at) if negated else part)
        return in_order(parts) if parts else literal(self.languages, "")

    def repeated(self, body: Expression) -> Expression:
        cursor = self.cursor
        while True:
            body = cursor.repeated(body, lambda: cursor.match(_BLANK))
            mark = cursor.at
            cursor.match(_BLANK)
            if cursor.at > mark and (cursor.peek() in ("*", "+", "?") or cursor.counts()):
                continue
            if not cursor.take("~"):
                cursor.at = mark
                return body
            cursor.match(_BLANK)
            at = cursor.at
            low = cursor.match(_INTEGER)
            high = low
            if low is not None and cursor.take(".."):
                high = cursor.match(_INTEGER)
            if low is None or high is None:
                cursor.fail("write ~ n or ~ n..m", at)
            body = cursor.counted(body, int(low), int(high), at)

    def atom(self) -> Expression | None:
        cursor = self.cursor
        at = cursor.at
        for opening, closing in (("(", ")"), ("[", "]")):
            if cursor.take(opening):
                cursor.enter()
                inner = self.alternatives(closing)
                cursor.leave()
                cursor.match(_SPACE)
                if not cursor.take(closing):
                    cursor.fail(f"the group that begins here has no closing {closing}", at)
                return inner if opening == "(" else Repeat(inner, 0, 1)
        if cursor.take('"'):
            return self.skipping(self.string(at))
        if cursor.peek() == "/":
            return self.skipping(self.regex(at))
        if cursor.take("%json"):
            cursor.match(_BLANK)
            return self.schema(at)
        for sign, said in {
            "<": "token ids (<...>)",
            "@": "references to other grammars (@...)",
            "%": "this directive",
        }.items():
            if cursor.peek() == sign:
                cursor.fail(f"{said} cannot stand in a rule here: a grammar speaks of text", at)
        name = cursor.match(_NAME)
        if name is None:
            return None
        if cursor.peek() == "{" and not cursor.counts():
            cursor.fail(f"templates ({name}{{...}}) are not supported: write the rule once for each use", at)
        ref = self.names.ref(name, at)
        if _is_terminal(name):
            return self.skipping(ref)
        if self.inside:
            where = "%ignore" if self.inside == "%ignore" else f"terminal {self.inside}"
            cursor.fail(f"{where} refers to the rule {name}: use terminals (in upper case) there", at)
        return ref

    def skipping(self, terminal: Expression) -> Expression:
        """A terminal in a rule with what is ignored after it."""
        return terminal if self.inside else Seq((terminal, self.skip))

    def string(self, at: int) -> Terminal:
        cursor, languages = self.cursor, self.languages
        text = cursor.string('"')
        if cursor.peek(3) == '.."':
            cursor.at += 3
            last = cursor.string('"')
            if len(text) != 1 or len(last) != 1 or last < text:
                cursor.fail('a range is written "a".."z": two characters in order', at)
            return charset(languages, ((ord(text), ord(last)),))
        if cursor.peek() == "i" and not re.match(r"\w", cursor.peek(2)[1:]):
            cursor.at += 1
            return Terminal(caseless(languages, text))
        return literal(languages, text)

    def regex(self, at: int) -> Terminal:
        cursor = self.cursor
        pattern = cursor.regex()
        flags = (cursor.match(_FLAGS) or "").replace("u", "")
        unknown = set(flags) - set("imsx")
        if unknown:
            cursor.fail(f"regex flag {min(unknown)!r} is not supported (known: i, m, s, x, u)", at)
        return regex_terminal(cursor, self.languages, f"(?{flags}:{pattern})" if flags else pattern, at)

    # ------------------------------------------------------------ JSON

    def json(self, at: int) -> Any:
        cursor = self.cursor
        try:
            value, cursor.at = json.JSONDecoder().raw_decode(cursor.text, cursor.at)
        except ValueError as error:
            cursor.fail(f"this is no JSON: {error}", error.pos if isinstance(error, json.JSONDecodeError) else at)
        except RecursionError:
            cursor.fail("the JSON that begins here is nested too deeply", at)
        return value

    def schema(self, at: int) -> Opaque:
        if self.inside:
            self.cursor.fail("%json cannot stand in a terminal: use it in a rule", at)
        value = self.json(at)
        if self.schemas is None:
            self.cursor.fail("%json is not supported here", at)
        try:
            return Opaque(self.schemas(value))
        except ConstraintError as error:
            raise self.cursor.error(f"%json: {error}", at) from None
