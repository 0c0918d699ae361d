"""``\\p{...}``: sets of code points by Unicode property, as far as Python's ``unicodedata`` knows them.

General categories are exact. Scripts and ``Alphabetic`` are not in the standard library: a script is taken as the
letters that carry its name, a subset, so it may be asked for but not excluded.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache

from ..charset import Ranges, category, normalize

_LONG = {
    "letter": "L",
    "cased_letter": "LC",
    "uppercase_letter": "Lu",
    "lowercase_letter": "Ll",
    "titlecase_letter": "Lt",
    "modifier_letter": "Lm",
    "other_letter": "Lo",
    "mark": "M",
    "combining_mark": "M",
    "nonspacing_mark": "Mn",
    "spacing_mark": "Mc",
    "enclosing_mark": "Me",
    "number": "N",
    "decimal_number": "Nd",
    "digit": "Nd",
    "letter_number": "Nl",
    "other_number": "No",
    "punctuation": "P",
    "punct": "P",
    "connector_punctuation": "Pc",
    "dash_punctuation": "Pd",
    "open_punctuation": "Ps",
    "close_punctuation": "Pe",
    "initial_punctuation": "Pi",
    "final_punctuation": "Pf",
    "other_punctuation": "Po",
    "symbol": "S",
    "math_symbol": "Sm",
    "currency_symbol": "Sc",
    "modifier_symbol": "Sk",
    "other_symbol": "So",
    "separator": "Z",
    "space_separator": "Zs",
    "line_separator": "Zl",
    "paragraph_separator": "Zp",
    "other": "C",
    "control": "Cc",
    "format": "Cf",
    "unassigned": "Cn",
    "private_use": "Co",
    "surrogate": "Cs",
}
_SHORT = {name.lower(): name for name in _LONG.values()} | {"l&": "LC"}
_SCRIPTS = frozenset(
    (
        "arabic",
        "armenian",
        "bengali",
        "bopomofo",
        "braille",
        "cherokee",
        "coptic",
        "cyrillic",
        "devanagari",
        "ethiopic",
        "georgian",
        "gothic",
        "greek",
        "gujarati",
        "gurmukhi",
        "han",
        "hangul",
        "hebrew",
        "hiragana",
        "kannada",
        "katakana",
        "khmer",
        "lao",
        "latin",
        "malayalam",
        "mongolian",
        "myanmar",
        "oriya",
        "sinhala",
        "syriac",
        "tamil",
        "telugu",
        "thaana",
        "thai",
        "tibetan",
    )
)
_CODES = {"latn": "latin", "grek": "greek", "cyrl": "cyrillic", "hani": "han", "hira": "hiragana", "kana": "katakana"}
_CODES |= {"arab": "arabic", "hebr": "hebrew", "hang": "hangul", "armn": "armenian", "geor": "georgian"}
_ASCII: dict[str, Ranges] = {
    "alpha": ((65, 90), (97, 122)),
    "digit": ((48, 57),),
    "alnum": ((48, 57), (65, 90), (97, 122)),
    "upper": ((65, 90),),
    "lower": ((97, 122),),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "space": ((9, 13), (32, 32)),
    "blank": ((9, 9), (32, 32)),
    "cntrl": ((0, 31), (127, 127)),
    "graph": ((33, 126),),
    "print": ((32, 126),),
    "xdigit": ((48, 57), (65, 70), (97, 102)),
    "word": ((48, 57), (65, 90), (95, 95), (97, 122)),
}


def posix(name: str) -> Ranges | None:
    """The ASCII set of ``[:name:]``."""
    return _ASCII.get(name)


_LONGEST = 100  # characters of a property's name; Unicode's longest has 48


def lookup(name: str) -> tuple[Ranges, bool] | None:
    """The set of a property as written between the braces, and whether it is exact (else: a subset)."""
    return _known(name) if len(name) <= _LONGEST else None  # others are not even remembered as unknown


@lru_cache(maxsize=256)
def _known(name: str) -> tuple[Ranges, bool] | None:
    key, _, value = name.replace(" ", "_").partition("=")
    key, value = key.lower(), value.lower()
    if value:
        if key in ("gc", "general_category"):
            short = _SHORT.get(value) or _LONG.get(value)
            return (_general(short), True) if short else None
        if key in ("sc", "script", "scx", "script_extensions"):
            return _script(value)
        return None
    short = _SHORT.get(key) or _LONG.get(key)
    if short:
        return _general(short), True
    if key.startswith("is") and not key.startswith("is", 2):
        return lookup(name[2:])
    if key in _BINARY:
        return _BINARY[key], True
    if key in ("alphabetic", "alpha"):
        return normalize([*_general("L"), *_general("Nl")]), False
    if key in ("uppercase", "upper"):
        return _general("Lu"), False
    if key in ("lowercase", "lower"):
        return _general("Ll"), False
    if key in ("white_space", "space"):
        return category("s", False), False
    return _script(key)


_BINARY: dict[str, Ranges] = {
    "any": normalize([(0, 0x10FFFF)]),
    "ascii": ((0, 127),),
    "ascii_hex_digit": _ASCII["xdigit"],
    "ahex": _ASCII["xdigit"],
    "alnum": _ASCII["alnum"],
    "xdigit": _ASCII["xdigit"],
}


@lru_cache(maxsize=1)
def _table() -> dict[str, list[tuple[int, int]]]:
    """Ranges of every two-letter category. Planes 4 to 13 have never held anything."""
    found: dict[str, list[tuple[int, int]]] = {}
    last, start = "", 0
    category_of = unicodedata.category
    for low, high in ((0, 0x3FFFF), (0xE0000, 0xE0FFF)):
        for code in range(low, high + 1):
            here = category_of(chr(code))
            if here != last or code == low:
                if last:
                    found.setdefault(last, []).append((start, code - 1 if code != low else 0x3FFFF))
                last, start = here, code
    found.setdefault(last, []).append((start, 0xE0FFF))
    found["Cn"] += [(0x40000, 0xDFFFF), (0xE1000, 0xEFFFF), (0xFFFFE, 0xFFFFF), (0x10FFFE, 0x10FFFF)]
    found["Co"] += [(0xF0000, 0xFFFFD), (0x100000, 0x10FFFD)]
    return found


@lru_cache(maxsize=64)
def _general(short: str) -> Ranges:
    if short == "LC":
        return normalize([*_general("Lu"), *_general("Ll"), *_general("Lt")])
    return normalize([r for name, ranges in _table().items() if name.startswith(short) for r in ranges])


def _script(name: str) -> tuple[Ranges, bool] | None:
    name = _CODES.get(name, name)
    if name not in _SCRIPTS:
        return None
    prefix = "CJK " if name == "han" else name.upper() + " "
    found = []
    for low, high in _general("L"):
        for code in range(low, high + 1):
            if unicodedata.name(chr(code), "").startswith(prefix):
                found.append((code, code))
    return normalize(found), False
