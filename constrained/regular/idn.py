"""The format ``idn-hostname``: internationalized host names (RFC 5890 to 5893). A sound regular subset.

A name is an ASCII host name, or up to three labels joined by ``.`` or one of its ideographic forms. Labels hold

- letters, digits and marks of the Latin, Greek, Cyrillic, Hebrew, Arabic, Indic, Thai, Tibetan, Georgian, Kana, Han and
  Hangul blocks that RFC 5892 allows, in composed form, with at most one mark that stacks on each,
- the characters that are allowed in context: MIDDLE DOT, KERAIA, GERESH, GERSHAYIM, KATAKANA MIDDLE DOT, and the
  joiners after a virama or between joining Arabic letters,
- at most 14 characters below U+3000, 11 of the basic plane or 9 others, which is less than 63 octets in Punycode.

Right-to-left labels keep RFC 5893's rule; beside one, the others begin with an ASCII letter. Left out: ``xn--`` labels
(whether one decodes to a valid label is no regular question), mixed rarer scripts, longer labels.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import TYPE_CHECKING

from ..charset import Ranges, complement, intersect, normalize
from .language import Language

if TYPE_CHECKING:
    from .languages import Languages

_BLOCKS = ((0xDF, 0x10FF), (0x1E00, 0x1FFF), (0x3005, 0x3007), (0x3041, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3))
#: all of these are letters that are allowed
_WHOLE_BLOCKS = ((0x4E00, 0x9FFC), (0xAC00, 0xD7A3))
_EXCEPTIONS = frozenset("\u00df\u03c2\u06fd\u06fe\u0f0b\u3007")
_DISALLOWED = frozenset("\u034f\u0640\u07fa\u302e\u302f\u3031\u3032\u3033\u3034\u3035\u303b")
_CATEGORIES = frozenset({"Ll", "Lo", "Lm", "Mn", "Mc", "Nd"})
#: Arabic letters that join on both sides, and those that join to the right only
_DUAL = "\u0626\u0628\u062a-\u062e\u0633-\u063a\u0641-\u0647\u0649\u064a\u067e\u0686\u06a9\u06af\u06cc"
_RIGHT = "\u0622-\u0625\u0627\u0629\u062f-\u0632\u0648\u0698"

#: an ASCII label after its first character: up to 63, a letter or digit at the end, no "--" in third place
LABEL_TAIL = (
    "(?:[A-Za-z0-9]|[A-Za-z0-9-](?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,59}[A-Za-z0-9])?"
    "|-[A-Za-z0-9](?:[A-Za-z0-9-]{0,58}[A-Za-z0-9])?))?"
)

_VIRAMAS = "\u094d\u09cd\u0a4d\u0acd\u0b4d\u0bcd\u0c4d\u0ccd\u0d4d"


@lru_cache(maxsize=1)
def _classes() -> dict[str, Ranges]:
    """Sets of code points: letters by direction (L, R, EN, AN), ``space`` marks that take room, ``mark`` that stack."""
    found: dict[str, list[tuple[int, int]]] = {name: [] for name in ("L", "R", "EN", "AN", "space", "mark", "joins")}
    composing: set[str] = set()
    points = [chr(c) for low, high in _BLOCKS if (low, high) not in _BLOCKS[-2:] for c in range(low, high + 1)]
    for char in points:
        parts = unicodedata.decomposition(char).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            composing.add(chr(int(parts[1], 16)))
    for char in points:
        if char in _DISALLOWED or char in composing:
            continue
        category = unicodedata.category(char)
        if char not in _EXCEPTIONS:
            if category not in _CATEGORIES:
                continue
            if unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", char).casefold()) != char:
                continue
        direction = unicodedata.bidirectional(char)
        point = (ord(char), ord(char))
        if unicodedata.combining(char):
            found["mark"].append(point)
        elif category in ("Mn", "Mc"):
            found["space"].append(point)
        elif direction in ("L", "EN", "AN"):
            found[direction].append(point)
        elif direction in ("R", "AL"):
            found["R"].append(point)
    found["L"].extend(_WHOLE_BLOCKS)
    return {name: normalize(ranges) for name, ranges in found.items()}


def hostname(languages: Languages) -> Language:
    """The language of the format; see the module."""
    from .formats import language as format_language

    def chars(*sets: Ranges) -> Language:
        return languages.chars(normalize(pair for ranges in sets for pair in ranges))

    def regex(pattern: str) -> Language:
        return languages.regex(pattern, ours=True)

    def some(*parts: Language) -> Language:
        return languages.repeat(languages.union(*parts), 0, None)

    classes = _classes()
    virama = normalize((ord(c), ord(c)) for c in _VIRAMAS)
    marks = intersect(classes["mark"], complement(virama))
    lower, digits = ((97, 122),), ((48, 57),)
    mark = languages.repeat(chars(marks), 0, 1)
    # one mark at most, so that none is out of canonical order
    stacked = languages.union(mark, regex(f"[{_VIRAMAS}][\u200c\u200d]?"))

    # left to right: an l is only ever before a middle dot that has another l behind it
    letter = languages.concat(chars(classes["L"], classes["EN"], lower, digits), stacked)
    dotted = regex("l(?:\u00b7l)+")
    keraia = regex("\u0375[\u03ac-\u03ce]")
    first = languages.union(letter, dotted, keraia)
    more = languages.union(first, languages.concat(chars(classes["space"]), stacked))
    hyphen = languages.repeat(languages.literal("-"), 0, 1)
    left = languages.concat(first, some(languages.concat(hyphen, more)))
    kana = regex("[\u3041-\u3096\u30a1-\u30fa\u4e00-\u9ffc]")
    around = some(kana, regex("[\u30fba-z0-9]"))
    japanese = languages.concat(around, kana, around)

    # right to left: European or Arabic digits, not both; the last but for marks is a letter or a digit
    hebrew = regex("[\u05d0-\u05ea][\u05f3\u05f4]")
    joined = regex(f"(?:[{_DUAL}]\u200c)+[{_DUAL}{_RIGHT}]")
    right_letter = languages.union(languages.concat(chars(classes["R"]), mark), hebrew, joined)
    right = [
        languages.concat(right_letter, some(languages.concat(hyphen, languages.union(right_letter, digit))))
        for digit in (chars(classes["EN"], digits), chars(classes["AN"]))
    ]

    short = regex("[\u0000-\u2fff]{1,14}|[\u0000-\uffff]{1,11}|[\u0000-\U0010ffff]{1,9}")
    ascii_label, ascii_letter = regex(f"[A-Za-z0-9]{LABEL_TAIL}"), regex(f"[A-Za-z]{LABEL_TAIL}")
    separator = regex("[.\u3002\uff0e\uff61]")

    def name(label: Language) -> Language:
        return languages.concat(label, languages.repeat(languages.concat(separator, label), 0, 2))

    return languages.union(
        format_language(languages, "hostname"),
        name(languages.union(ascii_label, languages.intersect(short, languages.union(left, japanese)))),
        name(languages.union(ascii_letter, languages.intersect(short, languages.union(*right)))),
    )
