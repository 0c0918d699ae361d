"""The format ``regex``: strings that are regular expressions of ECMA-262 in mode u. A sound regular subset.

Left out: groups nested deeper than three, a second named group, references by number, ``\\k<name>`` but to a
one-letter group just before it, class ranges between unusual ends, quantifiers whose bounds have the same two or more
digits at their front, and the rarer names of ``\\p{...}``. All that is here is valid with and without mode u.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .language import Language

if TYPE_CHECKING:
    from .languages import Languages

_DEPTH = 3
_NAMES = "L|Lu|Ll|Lt|Lm|Lo|M|Mn|Mc|N|Nd|Nl|No|P|Pd|Ps|Pe|Po|S|Sm|Sc|Z|Zs|Letter|Number|Punctuation|Alphabetic|Script="
_SCRIPTS = "Latin|Greek|Cyrillic|Hebrew|Arabic|Han|Hiragana|Katakana|Hangul"

_HEX = "[0-9A-Fa-f]"
_PROPERTY = f"[pP]\\{{(?:{_NAMES.removesuffix('|Script=')}|(?:Script=|sc=)(?:{_SCRIPTS}))\\}}"
_UNIT = rf"[fnrtv]|c[A-Za-z]|x{_HEX}{{2}}|u{_HEX}{{4}}|u\{{(?:{_HEX}{{1,5}}|10{_HEX}{{4}})\}}|[\^$\\.*+?()\[\]{{}}|/]"
_ESCAPE = rf"\\(?:[dDsSwW]|{_PROPERTY}|{_UNIT})"
#: any character but those that mean something
_CHAR = r"[^\^$\\.*+?()\[\]{}|]"


def _ordered_pairs(alphabet: str, join: str) -> str:
    """a-[a-z]|b-[b-z]|...: two characters of the alphabet, the second not before the first."""
    return "|".join(f"{first}{join}[{alphabet[at:]}]" for at, first in enumerate(alphabet))


def _class() -> str:
    digits, hexes = "0123456789", "0123456789ABCDEF"
    lower, upper = "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    ranges = [_ordered_pairs(digits, "-"), _ordered_pairs(lower, "-"), _ordered_pairs(upper, "-")]
    ranges.append("[ !]-~|[ !]-/|:-@|A-z|À-[ÖÿžƿɏỹỿɎ]|Ø-[öÿ]|а-я|А-[Яя]|ぁ-[んゖ]|ァ-[ヶンヺー]|一-[龥鿿龯龠]|가-힣")
    for at, digit in enumerate(hexes[:-1]):
        # a lower first digit in front settles the order
        above = hexes[at + 1 :] + hexes[at + 1 :].lower().strip(digits)
        ranges.append(rf"\\x[{digit}{digit.lower()}]{_HEX}-\\x[{above}]{_HEX}")
        ranges.append(rf"\\u[{digit}{digit.lower()}]{_HEX}{{3}}-\\u[{above}]{_HEX}{{3}}")
    item = rf"{'|'.join(ranges)}|\\[-b]|{_ESCAPE}|[^\]\\-]"
    return rf"\[\^?-?(?:{item})*-?\]"


def _quantifier() -> str:
    few = "[0-9]"
    bounds = [_ordered_pairs("0123456789", ","), rf"{few},[1-9][0-9]{{1,3}}", r"[1-9][0-9],[1-9][0-9]{2,3}"]
    bounds.append("|".join(f"{tens}[0-9],[{tens + 1}-9][0-9]" for tens in range(1, 9)))
    bounds.append("|".join(f"{tens}0,{tens}[0-9]" for tens in range(1, 10)))
    return rf"(?:[*+?]|\{{(?:[0-9]|[1-9][0-9]{{1,3}}),?\}}|\{{(?:{'|'.join(bounds)})\}})\??"


def expression(languages: Languages) -> Language:
    """The language of the format; see the module."""

    def regex(pattern: str) -> Language:
        return languages.regex(pattern, ours=True)

    simple, close = regex(rf"{_CHAR}|[.]|{_ESCAPE}|{_class()}"), languages.literal(")")
    bar = regex(r"[|^$]|\\[bB]")
    open_group, open_look, often = regex(r"\((?:\?:)?"), regex(r"\(\?<?[=!]"), regex(f"(?:{_quantifier()})?")
    inner = languages.EPSILON
    for depth in range(_DEPTH + 1):
        atom, loose = simple, bar
        if depth:
            atom = languages.union(simple, languages.concat(open_group, inner, close))
            loose = languages.union(bar, languages.concat(open_look, inner, close))
        inner = languages.repeat(languages.union(languages.concat(atom, often), loose), 0, None)
    named = languages.concat(regex(r"\(\?<[A-Za-z_$][A-Za-z0-9_$]{0,30}>"), inner, close, often)
    referred = [
        languages.concat(languages.literal(f"(?<{name}>"), inner, languages.literal(rf")\k<{name}>"), often)
        for name in "abcdefghijklmnopqrstuvwxyz"
    ]
    return languages.union(inner, languages.concat(inner, languages.union(named, *referred), inner))
