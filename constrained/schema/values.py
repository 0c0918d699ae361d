"""JSON values: read from text exactly, and compared as JSON Schema compares them (6.1.2, 4.2.2): by :func:`json_key`.

A number inside ``enum`` and ``const`` stays what it was: an int, a float (Python's ``repr`` is its value: 0.1 is one
tenth), or a Decimal where the schema came as text. :func:`exact` is its value.
"""

from __future__ import annotations

import json
import math
from collections.abc import Hashable
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any, NoReturn

from ..interface import ConstraintError

#: a number in a schema has its first and last digit within this many places of the point
MAX_PLACES = 1000
_MAX_BITS = 3_322
MAX_NESTING = 512


def parse_json(text: str | bytes) -> Any:
    """JSON text -> dict, list, str, int, Decimal, bool, None. Raises ConstraintError.

    Stricter than ``json.loads``: a repeated key, NaN and Infinity are errors. Numbers with a point or an exponent
    come as Decimal and lose nothing.
    """
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_float=_decimal, parse_int=_int, parse_constant=_refuse)
    except RecursionError:
        raise ConstraintError("the JSON text is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise ConstraintError(f"the JSON text is not UTF-8: {error}") from None
    except json.JSONDecodeError as error:
        raise ConstraintError(f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ConstraintError(f"the key {key!r} stands twice in one JSON object; keep one of them")
            seen.add(key)
    return made


def _refuse(name: str) -> NoReturn:
    raise ConstraintError(f"{name} is not JSON; write a number, or leave the keyword out")


def _int(text: str) -> int:
    if len(text) > MAX_PLACES:
        raise ConstraintError(f"a number of {len(text):,} digits; at most {MAX_PLACES:,} are read")
    return int(text)


def _decimal(text: str) -> Decimal:
    try:
        value = Decimal(text)
    except InvalidOperation:
        value = Decimal("NaN")
    if not value.is_finite() or not _small(value):
        raise ConstraintError(f"the number {text[:40]} has digits beyond {MAX_PLACES:,} places; write a smaller one")
    return value


def _small(value: Decimal) -> bool:
    digits, exponent = value.as_tuple()[1:]
    return isinstance(exponent, int) and exponent >= -MAX_PLACES and exponent + len(digits) <= MAX_PLACES


def exact(number: Any) -> Fraction | None:
    """The value of a JSON number; None for anything else (true and false, NaN and infinities, too many digits)."""
    kind = type(number)
    if kind is int:
        return Fraction(number) if number.bit_length() <= _MAX_BITS else None
    if kind is float:
        if number.is_integer() and abs(number) < 2**53:
            return Fraction(int(number))
        return Fraction(repr(number)) if math.isfinite(number) else None
    if isinstance(number, Decimal):
        return Fraction(number) if number.is_finite() and _small(number) else None
    if isinstance(number, bool):
        return None
    if isinstance(number, int):
        return exact(int(number))
    if isinstance(number, float):
        return exact(float(number))
    return None


def json_key(value: Any, depth: int = 0) -> Hashable:
    """Equal for values that are equal as JSON, and hashable: 1 and 1.0 are one value; true and 1, 0 and "0" are not.

    The order of an object's members does not count. Raises ConstraintError for what is not JSON.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return ("b", value)
    if depth > MAX_NESTING:
        raise ConstraintError(f"a value in the schema is nested more than {MAX_NESTING} levels deep")
    if isinstance(value, (list, tuple)):
        return ("a", *[json_key(one, depth + 1) for one in value])
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise ConstraintError("an object in the schema has a key that is not a string")
        return ("o", frozenset((key, json_key(one, depth + 1)) for key, one in value.items()))
    number = exact(value)
    if number is None:
        raise ConstraintError(f"{value!r} is not a JSON value; write JSON, with finite numbers")
    return number.numerator if number.denominator == 1 else number
