"""Patterns (ECMA-262) that more than one reader of types needs."""

from __future__ import annotations

#: texts of bytes in base64, and of numbers that a float keeps
BASE64 = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$"
BASE64_URL = BASE64.replace("+/", "_-")
ASCII = r"^[\u0000-\u007f]*$"
DECIMAL = r"^-?(0|[1-9]\d{0,14})(\.\d{1,15})?$"

#: what Rust and Python take for a letter, digit or space and ECMA-262 does not, for where it must not come
_WORD, _DIGIT, _SPACE = r"\p{L}\p{M}\p{N}\p{Pc}\p{So}\u200c\u200d", r"\p{Nd}", r"\s\u0085\u001c-\u001f"


def as_ecma(pattern: str) -> str:
    r"""A pattern of Rust or Python, whose ``\d``, ``\w`` and ``\s`` are of all Unicode, where a complement of them
    would be too much."""
    found: list[str] = []
    begun = -1  # where a class began
    negated = False
    at = 0
    while at < len(pattern):
        one = pattern[at : at + 2] if pattern[at] == "\\" else pattern[at]
        if one == "[" and begun < 0:
            begun, negated = at, pattern[at + 1 : at + 2] == "^"
        elif one == "]" and begun >= 0 and at > begun + 1 + negated:
            begun = -1
        elif begun < 0:
            one = {r"\D": f"[^{_DIGIT}]", r"\W": f"[^{_WORD}]", r"\S": f"[^{_SPACE}]"}.get(one, one)
        elif negated:
            one = {r"\d": _DIGIT, r"\w": _WORD, r"\s": _SPACE}.get(one, one)
        found.append(one)
        at += 2 if pattern[at] == "\\" else 1
    return "".join(found)
