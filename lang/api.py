"""The words a program is written in: ``gen``, ``select`` and the roles."""

from __future__ import annotations

import re
import reprlib
import warnings
from collections.abc import Sequence
from typing import Any, Unpack

from ..runtime.errors import InvalidConstraint, InvalidValue
from ..runtime.protocol import Method, Role
from .dtypes import dtype_of
from .expr import Expr, ExprList, GenExpr, RoleBeginExpr, RoleEndExpr, SelectExpr, as_expr, parts
from .notices import caller
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


def _name(name: object) -> str | None:
    if name is not None and (not isinstance(name, str) or not name):
        raise InvalidValue(f"name must be a non-empty string or None, not {name!r}", "name")
    return name


def gen(
    name: str | None = None,
    max_tokens: int | None = None,
    *,
    regex: str | None = None,
    dtype: type | str | None = None,
    choices: Sequence[str] | None = None,
    choices_method: Method | None = None,
    **options: Unpack[GenOptions],
) -> Expr:
    """Let the model write, until a stop string, its end token, or ``max_tokens`` (128 unless the run says otherwise).

    ``name`` makes the result readable as ``s[name]``; without one it is only part of the text. ``n > 1`` gives a list,
    and the strand goes on with the first. ``regex`` (Python syntax, full match) or ``dtype`` (int, float, str, bool: a
    fixed regex, and a value of that type) says what the text must be. ``choices`` makes it a :func:`select`.

    Raises InvalidValue, InvalidConstraint or TypeError here, at the call, naming the field.
    """
    name = _name(name)
    given: dict[str, Any] = dict(options)
    if max_tokens is not None:
        given["max_tokens"] = max_tokens
    if choices is not None:
        return _choice_gen(name, choices, choices_method, given, regex, dtype)
    if choices_method is not None:
        raise InvalidValue("choices_method needs choices=", "choices_method")
    normalized = normalize("gen", given)
    if regex is not None and dtype is not None:
        raise InvalidValue("give regex or dtype, not both: a dtype is a fixed regex", "dtype")
    if regex is not None:
        _check_regex(regex)
    return GenExpr(name, normalized, regex, None if dtype is None else dtype_of(dtype), caller())


def _choice_gen(
    name: str | None,
    choices: Sequence[str],
    method: Method | None,
    given: dict[str, Any],
    regex: object,
    dtype: object,
) -> Expr:
    given = {key: value for key, value in given.items() if value is not None}
    temperature = given.pop("temperature", 0.0)
    seed = given.pop("seed", None)
    clashes = [*given, *(["regex"] if regex is not None else []), *(["dtype"] if dtype is not None else [])]
    if clashes:
        normalize("gen", given)  # a name that nobody knows is the more useful error
        raise InvalidValue(
            f"choices cannot be combined with {clashes[0]}: a gen with choices is a select, which takes only "
            "temperature, seed and choices_method",
            clashes[0],
        )
    return select(name, choices, temperature, method or token_length_normalized, seed=seed)


def _check_regex(regex: object) -> None:
    if not isinstance(regex, str) or not regex:
        raise InvalidValue(f"regex must be a non-empty string, not {regex!r}", "regex")
    spelled("regex", regex)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "possible nested set": the meaning is still today's
            re.compile(regex)
    except re.error as error:
        raise InvalidConstraint(f"regex {regex!r} is not a regular expression: {error}", "regex") from error
    except (RecursionError, OverflowError):
        why = "it is nested too deeply, or a number in it is too large"
        raise InvalidConstraint(f"regex {reprlib.repr(regex)} cannot be used: {why}", "regex") from None


def gen_int(name: str | None = None, max_tokens: int | None = None, **options: Unpack[GenOptions]) -> Expr:
    """``gen(dtype=int)``: the value is an int."""
    return gen(name, max_tokens, dtype=int, **options)


def gen_string(name: str | None = None, max_tokens: int | None = None, **options: Unpack[GenOptions]) -> Expr:
    """``gen(dtype=str)``: the text is a quoted JSON string, the value what it spells."""
    return gen(name, max_tokens, dtype=str, **options)


def select(
    name: str | None = None,
    choices: Sequence[str] | None = None,
    temperature: float = 0.0,
    choices_method: Method = token_length_normalized,
    *,
    seed: int | None = None,
) -> Expr:
    """Append the choice that the model finds likeliest, by ``choices_method``.

    Temperature 0 takes the best score (the run's temperature does not apply); above 0 samples from
    softmax(score / temperature). ``s.result(name).scores`` has the scores in the order of ``choices``.
    """
    name = _name(name)
    if choices is None or isinstance(choices, str) or not isinstance(choices, Sequence):
        raise InvalidValue(f"choices must be a list of strings, not {choices!r}", "choices")
    if not choices:
        raise InvalidValue("choices is empty: there is nothing to select from", "choices")
    for choice in choices:
        if not isinstance(choice, str) or not choice:
            raise InvalidValue(f"choices must be non-empty strings, not {choice!r}", "choices")
        spelled("choices", choice)
    if choices_method not in METHODS:
        raise InvalidValue(
            f"choices_method must be one of {', '.join(METHODS)}, not {choices_method!r}", "choices_method"
        )
    heat = number("temperature", temperature)
    if not 0.0 <= heat <= 100.0:
        raise InvalidValue(f"temperature must be a number from 0 to 100, not {temperature!r}", "temperature")
    return SelectExpr(name, tuple(choices), choices_method, heat, None if seed is None else whole("seed", seed))


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
