"""The ``format`` names of JSON Schema as languages.

Each name has a language that holds only valid strings, and one that holds every valid string; for most names they are
the same. What a text is held to is the first; what ``not: {"format": ...}`` leaves is the complement of the second.

======================  ==============================================  ==========================================
name                    follows                                         left out of the first, though valid
======================  ==============================================  ==========================================
date, date-time, time   RFC 3339, leap years, leap seconds at 23:59     year 0000, fractions over 20 digits, leap
                        UTC only                                        seconds at offsets that are not quarters
date-time-local,        RFC 3339 without the offset (OpenAPI's names)   the same, and all leap seconds
time-local
duration                RFC 3339 appendix A                             numbers of more than 8 digits (weeks, days,
                                                                        seconds) or 6: no timedelta holds all
email, idn-email        RFC 5321, 6531; local part up to 64 octets      comments, obsolete forms
hostname                RFC 1123, labels up to 63, 253 in all           labels with ``--`` in third place (``xn--``)
idn-hostname            RFC 5890 to 5893; see :mod:`.idn`               see there
ipv4, ipv6              RFC 2673, RFC 4291 (no zone, no prefix length)
uri, uri-reference      RFC 3986
iri, iri-reference      RFC 3987
uri-template            RFC 6570                                        operators that are reserved for later
uuid                    RFC 4122, any version
json-pointer            RFC 6901
relative-json-pointer   its draft 01
regex                   ECMA-262, mode u; see :mod:`.expressions`       see there
======================  ==============================================  ==========================================

Any other name (int32, float, password, ...) is no assertion: :func:`known` does not hold it. Dates, times and durations
may have bounds (``formatMinimum``, ...): see :mod:`.ranges`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from . import expressions, idn, ranges
from .language import Edges, Language
from .ranges import Bounds

if TYPE_CHECKING:
    from .languages import Languages

Build = Callable[["Languages"], Language]
UNBOUNDED = Bounds()


@dataclass(frozen=True, slots=True)
class _Format:
    #: only valid strings
    build: Build
    #: every valid string, and perhaps more; None: ``build`` is exact
    wide: Build | None = None


def known() -> frozenset[str]:
    """The names that are assertions."""
    return frozenset(_FORMATS)


def language(languages: Languages, name: str, bounds: Bounds = UNBOUNDED) -> Language:
    """Strings that are valid for the format ``name`` (a known one) and within ``bounds``: never one that is not."""
    if bounds == UNBOUNDED:
        return languages.intern(("format", name), lambda: _FORMATS[name].build(languages))
    return languages.intern(
        ("format", name, bounds), lambda: ranges.within(languages, name, bounds, language(languages, "date"))
    )


def outside(languages: Languages, name: str, bounds: Bounds = UNBOUNDED) -> Language:
    """Strings that are not valid for the format ``name`` (a known one), or outside ``bounds``: never one that is
    valid and within."""
    wide = _FORMATS[name].wide
    held = (
        language(languages, name)
        if wide is None
        else languages.intern(("format", name, "wide"), lambda: wide(languages))
    )
    invalid = languages.complement(held)
    return languages.union(invalid, *(language(languages, name, way) for way in ranges.beyond(bounds)))


# ---------------------------------------------------------------- dates and times

_YEAR = "(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
_LEAP_YEAR = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
_DAYS = (
    "(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8])"
)
_DATE = f"(?:{_YEAR}-(?:{_DAYS})|{_LEAP_YEAR}-02-29)"
_HOUR = "(?:[01][0-9]|2[0-3])"
_FRACTION = "(?:[.][0-9]{1,20})?"
_OFFSET = f"(?:[Zz]|[+-]{_HOUR}:[0-5][0-9])"


def _leap_second(languages: Languages) -> Language:
    """hh:mm:60 with an offset, where that is 23:59:60 in UTC; offsets in quarters of an hour."""
    offsets: dict[str, list[str]] = {"23:59:60": ["Z", "z"]}
    for hour in range(24):
        for quarter in (0, 15, 30, 45):
            # +hh:mm is ahead of UTC, -hh:mm behind
            ahead = (hour - 23 - (quarter > 0)) % 24
            offsets.setdefault(f"{hour:02}:{(59 + quarter) % 60:02}:60", []).append(f"+{ahead:02}:{quarter:02}")
            offsets.setdefault(f"{hour:02}:{59 - quarter:02}:60", []).append(f"-{23 - hour:02}:{quarter:02}")
    fraction = languages.regex(_FRACTION, ours=True)
    return Heads(offsets, "", lambda time: languages.concat(fraction, languages.literals(offsets[time])))


class Heads(Language):
    """Texts by their beginnings, all of one length; what follows one is only made once it was written."""

    def __init__(self, heads: Collection[str], begun: str, rest: Callable[[str], Language]) -> None:
        self._heads = heads
        self._begun = begun
        self._rest = rest
        self.accepting = False
        self.shortest = 1
        self.longest = None

    def edges(self) -> Edges:
        return self._edges

    @cached_property
    def _edges(self) -> Edges:
        by_char: dict[str, list[str]] = {}
        at = len(self._begun)
        for head in self._heads:
            by_char.setdefault(head[at], []).append(head)
        found = []
        for char, heads in sorted(by_char.items()):
            whole = at + 1 == len(heads[0])
            target = self._rest(heads[0]) if whole else Heads(heads, self._begun + char, self._rest)
            found.append((ord(char), ord(char), target))
        return tuple(found)

    def capped(self, length: int) -> Language:
        return self


def _time(languages: Languages) -> Language:
    usual = languages.regex(f"{_LOCAL_TIME}{_OFFSET}", ours=True)
    return languages.union(usual, _leap_second(languages))


def _date_time(languages: Languages) -> Language:
    return languages.concat(languages.regex(f"{_DATE}[Tt]", ours=True), language(languages, "time"))


#: with every leap second, and any number of digits
_WIDE_LOCAL_TIME = f"{_HOUR}:[0-5][0-9]:(?:[0-5][0-9]|60)(?:[.][0-9]+)?"
_WIDE_TIME = f"{_WIDE_LOCAL_TIME}{_OFFSET}"
_LOCAL_TIME = f"{_HOUR}:[0-5][0-9]:[0-5][0-9]{_FRACTION}"
_WIDE_DATE = f"(?:[0-9]{{4}}-(?:{_DAYS}|02-29))"

_WIDE_DURATION = "P(?:nW|(?:nD|kM(?:nD)?|kY(?:kM(?:nD)?)?)(?:T{time})?|T{time})".replace(
    "{time}", "(?:kH(?:kM(?:nS)?)?|kM(?:nS)?|nS)"
)
_DURATION = _WIDE_DURATION.replace("n", f"[0-9]{{1,{ranges.DURATION_DIGITS}}}")
_DURATION = _DURATION.replace("k", f"[0-9]{{1,{ranges.FEW_DURATION_DIGITS}}}")
_WIDE_DURATION = _WIDE_DURATION.replace("n", "[0-9]+").replace("k", "[0-9]+")

# ---------------------------------------------------------------- addresses

_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4 = f"{_OCTET}(?:[.]{_OCTET}){{3}}"
_H16 = "[0-9A-Fa-f]{1,4}"
_LS32 = f"(?:{_H16}:{_H16}|{_IPV4})"


def _ipv6() -> str:
    """RFC 3986's nine forms: so many groups, ``::``, so many groups, the last two perhaps as an IPv4 address."""
    forms = [f"(?:{_H16}:){{6}}{_LS32}"]
    for after in range(5, -1, -1):
        before = 6 - after - 1
        lead = f"(?:{_H16}(?::{_H16}){{0,{before - 1}}})?" if before else ""
        forms.append(f"{lead}::(?:{_H16}:){{{after}}}{_LS32}")
    forms.append(f"(?:{_H16}(?::{_H16}){{0,5}})?::{_H16}")
    forms.append(f"(?:{_H16}(?::{_H16}){{0,6}})?::")
    return "(?:" + "|".join(forms) + ")"


_IPV6 = _ipv6()

_LABEL = f"[A-Za-z0-9]{idn.LABEL_TAIL}"
_WIDE_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_ATEXT = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]"
_QUOTED = r'"(?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\[\x20-\x7e]){0,31}"'
_LITERAL = rf"\[(?:{_IPV4}|IPv6:{_IPV6})\]"
_BEYOND = r"[^\x00-\x7f]"
#: letters and marks of the larger scripts beyond ASCII, for names in internationalized addresses
_LETTERS = (
    "\u00df-\u00f6\u00f8-\u02af\u0300-\u036f\u0386\u0388-\u038a\u038e-\u03a1\u03a3-\u03ff\u0400-\u0481\u048a-\u052f"
    "\u0561-\u0586\u05d0-\u05ea\u0620-\u063f\u0641-\u064a\u0904-\u0939\u0e01-\u0e2e\u1e00-\u1eff\u3041-\u3096\u30a1-\u30fa"
    "\u4e00-\u9ffc\uac00-\ud7a3"
)


def _regex(pattern: str) -> Build:
    return lambda languages: languages.regex(pattern, ours=True)


def _hostname(languages: Languages) -> Language:
    return _short(languages, f"(?:{_LABEL})(?:[.](?:{_LABEL}))*", 253)


def _wide_hostname(languages: Languages) -> Language:
    return _short(languages, f"{_WIDE_LABEL}(?:[.]{_WIDE_LABEL})*", 253)


def _short(languages: Languages, pattern: str, length: int) -> Language:
    any_char = languages.regex("(?s:.)", ours=True)
    return languages.intersect(languages.regex(pattern, ours=True), languages.repeat(any_char, 0, length))


def _email(languages: Languages) -> Language:
    atoms = _short(languages, f"{_ATEXT}+(?:[.]{_ATEXT}+)*", 64)
    local = languages.union(atoms, languages.regex(_QUOTED, ours=True))
    domain = languages.union(_hostname(languages), languages.regex(_LITERAL, ours=True))
    return languages.concat(local, languages.literal("@"), domain)


def _idn_email(languages: Languages) -> Language:
    """The local part is at most 64 octets of UTF-8: 64, 32, 21 or 16 characters, by the longest that it may hold."""
    atext = rf"(?:{_ATEXT}|{_BEYOND})"
    atoms = languages.regex(rf"{atext}+(?:[.]{atext}+)*", ours=True)
    quoted = languages.regex(r'"(?:[^\x00-\x1f"\\\x7f]|\\[\x20-\x7e]){0,15}"', ours=True)
    short = languages.regex(
        r"[\x00-\x7f]{0,64}|[\x00-\u07ff]{0,32}|[\x00-\uffff]{0,21}|[\x00-\U0010ffff]{0,16}", "python"
    )
    local = languages.intersect(languages.union(atoms, quoted), short)
    label = f"[A-Za-z0-9{_LETTERS}](?:[A-Za-z0-9{_LETTERS}-]{{0,14}}[A-Za-z0-9{_LETTERS}])?"
    names = languages.regex(rf"{label}(?:[.]{label}){{0,7}}", ours=True)
    domain = languages.union(_hostname(languages), names, languages.regex(_LITERAL, ours=True))
    return languages.concat(local, languages.literal("@"), domain)


# ---------------------------------------------------------------- URIs

_UCS = "".join(
    f"\\U{low:08x}-\\U{high:08x}"
    for low, high in [
        (0xA0, 0xD7FF),
        (0xF900, 0xFDCF),
        (0xFDF0, 0xFFEF),
        *((plane << 16, (plane << 16) | 0xFFFD) for plane in range(1, 14)),
        (0xE1000, 0xEFFFD),
    ]
)
_PRIVATE = "\\ue000-\\uf8ff\\U000f0000-\\U000ffffd\\U00100000-\\U0010fffd"


def _uri(languages: Languages, international: bool, reference: bool) -> Language:
    """Put together from few classes, since those of RFC 3987 are long."""
    concat, union = languages.concat, languages.union

    def regex(pattern: str) -> Language:
        return languages.regex(pattern, ours=True)

    def some(*parts: Language) -> Language:
        return languages.repeat(union(*parts), 0, None)

    def maybe(*parts: Language) -> Language:
        return languages.repeat(concat(*parts), 0, 1)

    more = _UCS if international else ""
    escaped = regex("%[0-9A-Fa-f]{2}")
    # everywhere; then what else a path, a query and a first segment without a colon may hold
    usual = union(regex(f"[A-Za-z0-9._~!$&'()*+,;={more}-]"), escaped)
    colon, at, slash = languages.literal(":"), languages.literal("@"), languages.literal("/")
    char = union(usual, regex("[:@]"))
    behind = union(char, regex("[/?]"))
    segments = languages.repeat(concat(slash, some(char)), 0, None)
    user = maybe(some(usual, colon), at)
    future = "[vV][0-9A-Fa-f]+[.][A-Za-z0-9._~!$&'()*+,;=:-]+"
    host = union(regex(rf"\[(?:{_IPV6}|{future})\]"), some(usual))
    authority = concat(languages.literal("//"), user, host, regex("(?::[0-9]*)?"), segments)
    rooted = concat(slash, maybe(char, some(char), segments))
    query = union(behind, regex(f"[{_PRIVATE}]")) if international else behind
    tail = concat(maybe(languages.literal("?"), some(query)), maybe(languages.literal("#"), some(behind)))
    rootless = maybe(char, some(char), segments)
    whole = concat(regex("[A-Za-z][A-Za-z0-9+.-]*:"), union(authority, rooted, rootless), tail)
    if not reference:
        return whole
    first = union(usual, at)
    return union(whole, concat(union(authority, rooted, maybe(first, some(first), segments)), tail))


def _uris(international: bool, reference: bool) -> Build:
    return lambda languages: _uri(languages, international, reference)


_VARIABLE = "(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})(?:[.]?(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2}))*(?::[1-9][0-9]{0,3}|[*])?"
_VARIABLES = f"{_VARIABLE}(?:,{_VARIABLE})*"


def _uri_template(operators: str) -> str:
    literal = rf"[!#$&'()*+,./0-9:;=?@A-Z\[\]_a-z~{_UCS}{_PRIVATE}-]|%[0-9A-Fa-f]{{2}}"
    return rf"(?:{literal}|\{{[{operators}]?{_VARIABLES}\}})*"


# ---------------------------------------------------------------- the table

_POINTER = "(?:/(?:[^/~]|~[01])*)*"

_FORMATS: dict[str, _Format] = {
    "date": _Format(_regex(_DATE), _regex(_WIDE_DATE)),
    "time": _Format(_time, _regex(_WIDE_TIME)),
    "date-time": _Format(_date_time, _regex(f"{_WIDE_DATE}[Tt ]{_WIDE_TIME}")),
    "date-time-local": _Format(_regex(f"{_DATE}T{_LOCAL_TIME}"), _regex(f"{_WIDE_DATE}[Tt ]{_WIDE_LOCAL_TIME}")),
    "time-local": _Format(_regex(_LOCAL_TIME), _regex(_WIDE_LOCAL_TIME)),
    "duration": _Format(_regex(_DURATION), _regex(_WIDE_DURATION)),
    "email": _Format(_email, _regex(r"(?s:.*@.*)")),
    "idn-email": _Format(_idn_email, _regex(r"(?s:.*@.*)")),
    "hostname": _Format(_hostname, _wide_hostname),
    "idn-hostname": _Format(idn.hostname, lambda languages: languages.ANY),
    "ipv4": _Format(_regex(_IPV4)),
    "ipv6": _Format(_regex(_IPV6)),
    "uri": _Format(_uris(False, False)),
    "uri-reference": _Format(_uris(False, True)),
    "iri": _Format(_uris(True, False)),
    "iri-reference": _Format(_uris(True, True)),
    "uri-template": _Format(_regex(_uri_template("+#./;?&")), _regex(_uri_template("+#./;?&=,!@|"))),
    "uuid": _Format(_regex("[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")),
    "json-pointer": _Format(_regex(_POINTER)),
    "relative-json-pointer": _Format(_regex(f"(?:0|[1-9][0-9]*)(?:#|{_POINTER})")),
    "regex": _Format(expressions.expression, lambda languages: languages.ANY),
}
