"""``gen(dtype=...)``: a fixed regex for each type, and how its text becomes a value.

Digits are bounded so that a number ends whatever the model likes; a number also ends at a space or a line break,
which the regex lets the model write and the stop then takes off.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from ..runtime.errors import InvalidValue
from .partial import parse_partial


class DType(NamedTuple):
    name: str
    regex: str
    stops: tuple[str, ...]
    parse: Callable[[str], Any]  # raises ValueError on text that a cut left incomplete
    partial: Callable[[str], Any]  # what such a text is worth; None: nothing


def _truth(text: str) -> bool:
    if text not in ("True", "False"):
        raise ValueError(f"neither True nor False: {text!r}")
    return text == "True"


def _nothing(text: str) -> None:
    return None


_INT = DType("int", r"[-+]?[0-9]{1,20}[ \n]?", (" ", "\n"), int, _nothing)
_FLOAT = DType("float", r"[-+]?([0-9]{1,20}(\.[0-9]{1,20})?|\.[0-9]{1,20})[ \n]?", (" ", "\n"), float, _nothing)
#: A JSON string with its quotes; the value is what it spells.
_STR = DType("str", r'"([^"\\\x00-\x1f]|\\["\\/bfnrt])*"', (), json.loads, parse_partial)
_BOOL = DType("bool", r"(True|False)", (), _truth, _nothing)

_BY_KEY: dict[object, DType] = {
    key: dtype
    for dtype, python in ((_INT, int), (_FLOAT, float), (_STR, str), (_BOOL, bool))
    for key in (python, dtype.name)
}


def dtype_of(dtype: object) -> DType:
    """``dtype`` is one of int, float, str, bool, or its name."""
    try:
        return _BY_KEY[dtype]
    except (KeyError, TypeError):
        raise InvalidValue(f"dtype must be int, float, str or bool, not {dtype!r}", "dtype") from None
