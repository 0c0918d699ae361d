"""The words a program is written in: ``gen``, ``select`` and the roles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack, cast

from ..runtime.errors import InvalidValue
from ..runtime.protocol import Method, Role
from .constraint import Constraint
from .expr import Expr, ExprList, GenExpr, RoleBeginExpr, RoleEndExpr, SelectExpr, as_expr, parts
from .forms import form_of
from .notices import caller, say
from .sampling import GenOptions, normalize, number, spelled, whole

#: How ``select`` scores its choices; see docs/architecture.md and ``runtime/core/choices.py``.
token_length_normalized: Method = "token_length_normalized"
greedy_token_selection: Method = "greedy_token_selection"
unconditional_likelihood_normalized: Method = "unconditional_likelihood_normalized"
METHODS: tuple[Method, ...] = (
    token_length_normalized,
    greedy_token_selection,
    unconditional_likelihood_normalized,
)


#: gen's keywords beside the options, for a slip in a name
_KEYWORDS = (
    "regex", "json_schema", "schema", "grammar", "constraint", "dtype", "choices", "choices_method", "syntax", "start",
    "any_order", "undeclared", "whitespace", "strict", "format", "documents",
)  # fmt: skip


def _name(name: object) -> str | None:
    if name is not None and (not isinstance(name, str) or not name):
        raise InvalidValue(f"name must be a non-empty string or None, not {name!r}", "name")
    return name


def gen(
    name: str | None = None,
    max_tokens: int | None = None,
    *,
    regex: str | None = None,
    json_schema: Mapping[str, Any] | str | bool | None = None,
    schema: Any = None,
    grammar: str | None = None,
    constraint: Constraint | None = None,
    dtype: type | str | None = None,
    choices: Sequence[str] | None = None,
    choices_method: Method | None = None,
    syntax: str | None = None,
    start: str | None = None,
    any_order: bool | None = None,
    undeclared: bool | None = None,
    whitespace: str | int | None = None,
    strict: bool | None = None,
    format: str | None = None,
    documents: Mapping[str, Any] | None = None,
    **options: Unpack[GenOptions],
) -> Expr:
    """Let the model write, until a stop string, its end token, or ``max_tokens`` (128 unless the run says otherwise).

    ``name`` makes the result readable as ``s[name]``; without one it is only part of the text. ``n > 1`` gives a list,
    and the strand goes on with the first. One of these may say what the text must be, and ``s[name]`` is its value:

    - ``regex`` (Python syntax, full match), ``grammar`` (GBNF, EBNF, Lark: ``syntax``, ``start``), ``constraint`` (put
      together with :mod:`plait.constraints`): the text;
    - ``json_schema`` (a dict, or its JSON text): the parsed JSON; ``schema`` (a Pydantic model, TypedDict, dataclass,
      Enum, Literal, list of them, ...): a value of that type. ``any_order``, ``undeclared``, ``whitespace``,
      ``strict``, ``format`` and ``documents`` say how the schema is read and the JSON laid out;
    - ``dtype`` (int, float, str, bool: a fixed regex): a value of that type. ``choices`` makes it a :func:`select`.

    Raises InvalidValue, InvalidConstraint or TypeError here, at the call, naming the field.
    """
    name = _name(name)
    given: dict[str, Any] = dict(options)
    if max_tokens is not None:
        given["max_tokens"] = max_tokens
    layout = {
        "any_order": any_order,
        "undeclared": undeclared,
        "whitespace": whitespace,
        "strict": strict,
        "format": format,
    }
    kinds = {"regex": regex, "json_schema": json_schema, "schema": schema, "grammar": grammar, "constraint": constraint}
    if choices is not None:
        rest = {"syntax": syntax, "start": start, **layout, "documents": documents}
        return _choice_gen(name, choices, choices_method, given, {**kinds, "dtype": dtype}, rest)
    if choices_method is not None:
        raise InvalidValue("choices_method needs choices=", "choices_method")
    normalized = normalize("gen", given, _KEYWORDS)
    form = form_of(
        regex=regex,
        json_schema=json_schema,
        schema=schema,
        grammar_text=grammar,
        constraint=constraint,
        dtype=dtype,
        syntax=syntax,
        start=start,
        json_layout=layout,
        documents=documents,
    )
    if form is None and "constraint_backend" in normalized:
        raise InvalidValue("constraint_backend compiles a constraint, and none is given", "constraint_backend")
    if form is None and "end" in normalized:
        raise InvalidValue("end says how a constrained text ends, and no constraint is given: leave it out", "end")
    return GenExpr(name, normalized, form, caller())


def _choice_gen(
    name: str | None,
    choices: Sequence[str],
    method: Method | None,
    given: dict[str, Any],
    kinds: Mapping[str, object],
    rest: Mapping[str, object],
) -> Expr:
    for kind, value in kinds.items():
        if value is not None:
            raise InvalidValue(
                f"choices cannot be combined with {kind}: each says what the whole text must be; give one", kind
            )
    normalize("gen", given, _KEYWORDS)  # a wrong value or name is an error here too
    given = {key: value for key, value in given.items() if value is not None}
    chosen = select(name, choices, given.pop("temperature", None), method, seed=given.pop("seed", None))
    unused = [*given, *(key for key, value in rest.items() if value is not None)]
    if unused:
        what = "gen with choices" if name is None else f"gen {name!r} with choices"
        message = f"{what} is a select, which samples no text: {', '.join(unused)} cannot act on it; leave it out"
        say("choices", caller(), message)
    return chosen


def gen_int(name: str | None = None, max_tokens: int | None = None, **options: Unpack[GenOptions]) -> Expr:
    """``gen(dtype=int)``: the value is an int."""
    return gen(name, max_tokens, dtype=int, **options)


def gen_string(name: str | None = None, max_tokens: int | None = None, **options: Unpack[GenOptions]) -> Expr:
    """``gen(dtype=str)``: the text is a quoted JSON string, the value what it spells."""
    return gen(name, max_tokens, dtype=str, **options)


def select(
    name: str | None = None,
    choices: Sequence[str] | None = None,
    temperature: float | None = None,
    choices_method: Method | None = None,
    *,
    seed: int | None = None,
    **others: None,
) -> Expr:
    """Append the choice that the model finds likeliest, by ``choices_method``.

    Temperature 0, the default, takes the best score (the run's temperature does not apply); above 0 samples from
    softmax(score / temperature). ``s.result(name).scores`` has the scores in the order of ``choices``.
    """
    for other, value in cast("dict[str, object]", others).items():
        if value is not None:
            raise TypeError(f"select takes name, choices, temperature, choices_method and seed, not {other!r}")
    name = _name(name)
    method = token_length_normalized if choices_method is None else choices_method
    if choices is None or isinstance(choices, str) or not isinstance(choices, Sequence):
        raise InvalidValue(f"choices must be a list of strings, not {choices!r}", "choices")
    if not choices:
        raise InvalidValue("choices is empty: there is nothing to select from", "choices")
    for choice in cast("Sequence[object]", choices):
        if not isinstance(choice, str):
            how = ": write str(...) around each" if isinstance(choice, int | float) else ""
            raise InvalidValue(f"choices must be strings, not {choice!r}{how}", "choices")
        if not choice:
            raise InvalidValue(
                "choices must be non-empty strings: an empty one has no score. For a part that may be missing write "
                "gen(constraint=...) with plait.constraints, as in c.choice(...).optional()",
                "choices",
            )
        spelled("choices", choice)
    if method not in METHODS:
        raise InvalidValue(f"choices_method must be one of {', '.join(METHODS)}, not {method!r}", "choices_method")
    heat = 0.0 if temperature is None else number("temperature", temperature)
    if not 0.0 <= heat <= 100.0:
        raise InvalidValue(f"temperature must be a number from 0 to 100, not {temperature!r}", "temperature")
    return SelectExpr(name, tuple(choices), method, heat, None if seed is None else whole("seed", seed))


def _turn(role: Role, expr: Expr | str) -> ExprList:
    return ExprList((RoleBeginExpr(role), *parts(as_expr(expr)), RoleEndExpr(role)))


def system(expr: Expr | str = "") -> Expr:
    """One system turn, as the model's chat template writes it."""
    return _turn("system", expr)


def user(expr: Expr | str = "") -> Expr:
    """One user turn."""
    return _turn("user", expr)


def assistant(expr: Expr | str = "") -> Expr:
    """One assistant turn: ``assistant(gen("answer"))``."""
    return _turn("assistant", expr)


def system_begin() -> Expr:
    return RoleBeginExpr("system")


def system_end() -> Expr:
    return RoleEndExpr("system")


def user_begin() -> Expr:
    return RoleBeginExpr("user")


def user_end() -> Expr:
    return RoleEndExpr("user")


def assistant_begin() -> Expr:
    return RoleBeginExpr("assistant")


def assistant_end() -> Expr:
    return RoleEndExpr("assistant")
