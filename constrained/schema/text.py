"""Names and values as messages write them."""

from __future__ import annotations

from typing import Any


def escaped(name: str) -> str:
    """A name as a token of a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1") if "~" in name or "/" in name else name


def shown(value: Any) -> str:
    """A value: short, as JSON."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and value.bit_length() > 200:
        return "a number of very many digits"
    return repr(value)[:60]
