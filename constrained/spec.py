"""Specifications: the plain data that every constraint travels as, and what it becomes in the rules.

::

    {"regex": "..."}                      a match as a whole, Python's syntax
    {"literal": "..."}                    exactly this text
    {"choices": ["...", ...]}             one of these texts
    {"json_schema": ..., "options": {...}, "documents": {...}}      a JSON value; see schema.options
    {"grammar": "...", "syntax": "auto" | "gbnf" | "ebnf" | "lark", "start": "..."}
    {"ready": "json" | "arithmetic" | ...}                          a grammar that comes with Plait
    {"dtype": "int" | "float" | "bool" | "str"}                     what SGLang's dtypes write
    {"seq": [spec, ...]}                  one after the other
    {"any_of": [spec, ...]}               one of them
    {"repeat": spec, "min": 0, "max": null, "separator": spec}      so many times

Everything that is regular becomes one lexeme, however it is put together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from . import grammar as grammars
from .grammar import ready
from .grammar.lower import lower
from .grammar.tree import Alt, Expression, Grammar, Name, Opaque, Ref, Repeat, Seq, Terminal, separated
from .interface import ConstraintError
from .regular import formats

if TYPE_CHECKING:
    from .pushdown.rules import Rules
    from .regular.languages import Languages

#: specifications inside specifications; parts in all; rounds of a repeat
MAX_DEPTH, MAX_PARTS, MAX_COUNT = 100, 100_000, 1_000_000

#: what data may come as; a dict is told at once, which an abstract class takes its time for
_MAPPING = (dict, Mapping)

_DTYPES = {
    "int": r"[-+]?[0-9]{1,20}",
    "float": r"[-+]?(?:[0-9]{1,20}(?:\.[0-9]{1,20})?|\.[0-9]{1,20})",
    "bool": "True|False",
    "str": r'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt])*"',
}

#: form -> its other fields
_FORMS: dict[str, tuple[str, ...]] = {
    "regex": (),
    "literal": (),
    "choices": (),
    "json_schema": ("options", "documents"),
    "grammar": ("syntax", "start"),
    "ready": (),
    "dtype": (),
    "seq": (),
    "any_of": (),
    "repeat": ("min", "max", "separator"),
}


def build(data: Any, languages: Languages, rules: Rules) -> int:
    """The nonterminal of the texts of a specification. Raises ConstraintError that names the place in it."""
    builder = _Builder(languages, rules)
    whole = builder.expression(data, "", 0)
    if isinstance(whole, Opaque):  # one JSON Schema: its rules stand already
        return whole.nonterminal
    builder.grammar.rules[""] = whole
    try:
        return lower(builder.grammar, "", languages, rules)
    except ConstraintError as error:
        if isinstance(whole, Terminal):
            raise ConstraintError(
                "nothing can be written for it: it matches no text, not even the empty one (or only characters that "
                "the vocabulary cannot write)"
            ) from None
        raise error


class _Builder:
    def __init__(self, languages: Languages, rules: Rules) -> None:
        self.languages = languages
        self.rules = rules
        self.grammar = Grammar()
        self.parts = 0

    def expression(self, data: Any, path: str, depth: int) -> Expression:
        self.parts += 1
        if self.parts > MAX_PARTS:
            raise ConstraintError(f"a specification of more than {MAX_PARTS:,} parts")
        if depth > MAX_DEPTH:
            raise ConstraintError(f"{_at(path)}specifications are nested deeper than {MAX_DEPTH}")
        if not isinstance(data, _MAPPING):
            raise ConstraintError(f'{_at(path)}expected an object such as {{"regex": "..."}}, not {_shown(data)}')
        forms = [name for name in data if name in _FORMS]
        if len(forms) != 1:
            given = " and ".join(map(repr, forms)) if forms else "none"
            raise ConstraintError(f"{_at(path)}give exactly one of {', '.join(_FORMS)}; there is {given}")
        form = forms[0]
        for name in data:
            if name != form and name not in _FORMS[form]:
                known = f" (known: {', '.join(_FORMS[form])})" if _FORMS[form] else ""
                raise ConstraintError(f"{_at(path)}{form!r} has no field {name!r}{known}")
        build: Callable[[Mapping[str, Any], str, int], Expression] = getattr(self, f"_{form}")
        return build(data, f"{path}.{form}" if path else form, depth)

    def inside(self, path: str, work: Callable[[], Expression]) -> Expression:
        """``work`` with its errors named by their place, unless that is the whole."""
        try:
            return work()
        except ConstraintError as error:
            if "." not in path and "[" not in path:
                raise
            raise ConstraintError(f"{path}: {error}") from None

    # ------------------------------------------------------------ forms

    def _regex(self, data: Mapping[str, Any], path: str, depth: int) -> Expression:
        pattern = _text(data["regex"], path)
        return self.inside(path, lambda: Terminal(self.languages.regex(pattern, "python")))

    def _literal(self, data: Mapping[str, Any], path: str, depth: int) -> Expression:
        text = _text(data["literal"], path)
        return Terminal.of(text, self.languages.literal)

    def _choices(self, data: Mapping[str, Any], path: str, depth: int) -> Expression:
        options = [_text(text, f"{path}[{at}]") for at, text in enumerate(_some(data["choices"], path))]
        return Terminal(self.languages.literals(options))

    def _json_schema(self, data: Mapping[str, Any], path: str, depth: int) -> Expression:
        compile_json = _schema_compiler()
        given, documents = data.get("options"), data.get("documents")
        for name, value in (("options", given), ("documents", documents)):
            if value is not None and not isinstance(value, _MAPPING):
                raise ConstraintError(
                    f"{path.removesuffix('json_schema')}{name}: expected an object, not {_shown(value)}"
                )

        def compiled(more: Mapping[str, Any]) -> Expression:
            options = {**(given or {}), **more}
            return Opaque(compile_json(data["json_schema"], options, documents or {}, self.languages, self.rules))

        def work() -> Expression:
            if given is not None and "undeclared" in given:
                return compiled({})
            try:
                return compiled({"undeclared": False})
            except ConstraintError:  # as where minProperties asks for more keys than are declared
                return compiled({"undeclared": True})

        return self.inside(path, work)

    def _grammar(self, data: Mapping[str, Any], path: str, depth: int) -> Expression:
        text, syntax, start = _text(data["grammar"], path), data.get("syntax", "auto"), data.get("start")
        for name, value in (("syntax", syntax), ("start", start)):
            if value is not None and not isinstance(value, str):
                raise ConstraintError(f"{path.removesuffix('grammar')}{name}: expected a string, not {_shown(value)}")
        return self.inside(path, lambda: self.ref(text, syntax or "auto", start))

    def ref(self, text: str, syntax: str, start: str | None) -> Expression:
        scope: Name = len(self.grammar.rules)
        found, name = grammars.parse(text, self.languages, self.rules, syntax, start, scope)
        self.grammar.rules.update(found.rules)
        return Ref(name)

    def _ready(self, data: Mapping[str, Any], path: str, depth: int) -> Expression:
        name = _text(data["ready"], path)
        if name in ready.FORMATS:
            return Terminal(formats.language(self.languages, ready.FORMATS[name]))
        return self.inside(path, lambda: self.ref(ready.source(name), "gbnf", "root"))

    def _dtype(self, data: Mapping[str, Any], path: str, depth: int) -> Expression:
        pattern = _DTYPES.get(_text(data["dtype"], path))
        if pattern is None:
            raise ConstraintError(f"{path}: {data['dtype']!r} is not known (known: {', '.join(_DTYPES)})")
        return Terminal(self.languages.regex(pattern, "python"))

    def _seq(self, data: Mapping[str, Any], path: str, depth: int) -> Expression:
        return Seq(tuple(self._each(data["seq"], path, depth)))

    def _any_of(self, data: Mapping[str, Any], path: str, depth: int) -> Expression:
        return Alt(tuple(self._each(data["any_of"], path, depth)))

    def _each(self, parts: Any, path: str, depth: int) -> list[Expression]:
        return [self.expression(part, f"{path}[{at}]", depth + 1) for at, part in enumerate(_some(parts, path))]

    def _repeat(self, data: Mapping[str, Any], path: str, depth: int) -> Expression:
        where = path.removesuffix("repeat")
        low, high = data.get("min", 0), data.get("max")
        for name, count in (("min", low), ("max", high)):
            if name == "max" and count is None:
                continue
            if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MAX_COUNT:
                raise ConstraintError(
                    f"{where}{name}: expected a whole number from 0 to {MAX_COUNT:,}, not {_shown(count)}"
                )
        if high is not None and high < low:
            raise ConstraintError(f"{where}max: {high} is below min, {low}")
        body = self.expression(data["repeat"], path, depth + 1)
        separator = data.get("separator")
        if separator is None:
            return Repeat(body, low, high)
        between = self.expression(separator, f"{where}separator", depth + 1)
        return separated(body, between, low, high)


@cache
def _schema_compiler() -> Callable[..., int]:
    """:func:`.schema.compile.compile_json`, loaded when the first JSON Schema comes: other forms need none of it."""
    from .schema.compile import compile_json

    return compile_json


def _at(path: str) -> str:
    return f"{path}: " if path else ""


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _text(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise ConstraintError(f"{path}: expected a string, not {_shown(value)}")
    if any("\ud800" <= char <= "\udfff" for char in value):
        raise ConstraintError(f"{path}: it holds half of a surrogate pair, which is no character")
    return value


def _some(value: Any, path: str) -> list[Any]:
    if not isinstance(value, list | tuple) or not value:
        raise ConstraintError(f"{path}: expected a list of at least one, not {_shown(value)}")
    return list(value)
