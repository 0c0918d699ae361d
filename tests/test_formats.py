"""Format languages against the standard library's own readers, and against idna where it is installed.

The lists of strings follow the JSON-Schema-Test-Suite's ``optional/format`` cases (MIT, (c) 2012 Julian Berman).
"""

from __future__ import annotations

import datetime
import ipaddress
import random
import urllib.parse

import pytest

from plait.constrained.regular import formats
from plait.constrained.regular.language import Language
from plait.constrained.regular.languages import Languages

CASES: dict[str, tuple[list[str], list[str]]] = {
    "date": (
        ["1963-06-19", "2020-02-29", "0400-02-29", "0001-01-01", "1582-10-10"],
        ["2021-02-29", "2100-02-29", "1998-13-01", "1998-1-20", "20230328", "2020-11-31", "2024-01-15 ", "0000-01-01"],
    ),
    "time": (
        [
            "08:30:06Z",
            "23:20:50.52z",
            "08:30:06-08:00",
            "23:59:60+00:00",
            "01:29:60+01:30",
            "23:29:60+23:30",
            "00:29:60-23:30",
        ],
        [
            "24:00:00Z",
            "00:00:61Z",
            "22:59:60Z",
            "23:59:60+01:00",
            "12:00:00",
            "01:02:03Z+00:30",
            "8:3:6Z",
            "08:30:06 PST",
        ],
    ),
    "date-time": (
        ["1963-06-19T08:30:06.283185Z", "1998-12-31T15:59:60.123-08:00", "1963-06-19t08:30:06z"],
        ["1990-02-31T15:59:59.123-08:00", "1998-12-31T22:59:60Z", "1963-06-19 08:30:06Z", "1985-04-12T23:20:50Z\n"],
    ),
    "date-time-local": (
        ["1963-06-19T08:30:06.283185", "2024-02-29T00:00:00"],
        ["2023-02-29T00:00:00", "1963-06-19T08:30:06Z", "1963-06-19t08:30:06", "2024-02-29T24:00:00"],
    ),
    "time-local": (["08:30:06", "23:20:50.52"], ["08:30:06Z", "24:00:00", "8:30:06", "08:30"]),
    "duration": (
        ["P4DT12H30M5S", "PT0S", "P2W", "P1Y2M", "PT36H", "P01D", "PT31536000S"],
        ["P999999999D", "P1000000Y", "PT1D", "P", "P1YT", "P2D1Y", "P1Y2W", "P1Y2D", "PT1H2S", "PT0.5S", "-P1D", "P1"],
    ),
    "email": (
        [
            "joe.bloggs@example.com",
            "~test@example.com",
            '"joe..bloggs"@example.com',
            '"a@b"@x.y',
            "a@[127.0.0.1]",
            "a@[IPv6:::1]",
            "a" * 64 + "@x.y",
        ],
        [
            "2962",
            ".test@example.com",
            "te..st@x.y",
            "a@[127.0.0.300]",
            "a b@x.y",
            "@x.y",
            "a@",
            "a@b=c.d",
            "a" * 65 + "@x.y",
        ],
    ),
    "idn-email": (
        ["실례@실례.테스트", "joe.bloggs@example.com", '"δοκιμή"@example.com', "caf\u0065\u0301@example.com"],
        ["2962", "user\uff20example.com", "é" * 33 + "@x.y"],
    ),
    "hostname": (
        ["www.example.com", "h0stn4me", "1host", "a--b.com", "a" * 63 + ".com"],
        [
            "",
            ".",
            ".example",
            "example.",
            "-hostname",
            "host_name",
            "a" * 64 + ".com",
            ".".join(["a" * 63] * 4),
            "XN--aa---o47jg78q",
        ],
    ),
    "idn-hostname": (
        [
            "실례.테스트",
            "ßς\u0f0b〇",
            "l·l",
            "α͵β",
            "א׳ב",
            "・ぁ",
            "ب٠ب",
            "क्\u200dष",
            "بي\u200cبي",
            "a。b",
            "hostname",
            "۰0",
        ],
        [
            "〮실례",
            "-hello",
            "a·l",
            "α͵S",
            "A׳ב",
            "def・abc",
            "ب٠۰",
            "क\u200dष",
            "0a.א",
            "aא",
            "א0٠",
            "",
            "ü" * 60,
            "\u0300hello",
        ],
    ),
    "ipv4": (["192.168.0.1", "255.255.255.255"], ["256.1.1.1", "127.0.0.0.1", "087.10.0.1", "1.2.3", "192.168.0.1\n"]),
    "ipv6": (
        [
            "::1",
            "::",
            "1:d6::42",
            "::ffff:192.168.0.1",
            "1:2:3:4:5:6:7:8",
            "1000:1000:1000:1000:1000:1000:255.255.255.255",
        ],
        ["12345::", "1::d6::42", "1:2:3:4:5:::8", "fe80::a%eth1", "fe80::/64", "[::1]", "::ffff:192.168.0.01", "1"],
    ),
    "uri": (
        ["http://foo.bar/?baz=qux#quux", "ldap://[2001:db8::7]/c=GB?objectClass?one", "tel:+1-816-555-1212", "urn:a:b"],
        [
            "//foo.bar/",
            "/abc",
            "abc",
            "http:// shouldfail.com",
            "http://x/%6G",
            "http://x:abc/",
            "http:/[::1]",
            "http://x/é",
        ],
    ),
    "uri-reference": (
        ["/abc", "", "//", "?query=1", "#fragment", "./this:that"],
        ["\\\\x\\y", "1:b", "/[::1]", "//a@b@c/", '/a"b'],
    ),
    "iri": (
        ["http://ƒøø.ßår/?∂éœ=πîx#πîüx", "http://[V1.fe]", "http://ƒøø.ßår/?q=\U000f0000"],
        ["/abc", "âππ", "http://2001:0db8:85a3::1"],
    ),
    "iri-reference": (["/âππ", "âππ", "#ƒrägmênt"], ["#ƒräg\\mênt", "\\\\WINDOWS\\filëßåré"]),
    "uri-template": (
        ["http://example.com/{term:1}/{term}", "{+var}", "{x,y}", "{var*}", "{%41}", "", "a'b", "a\U0001f600b"],
        ["{term", "{}", "{a,,b}", "{v:0}", "{v:10000}", "foo}bar", "{a..b}", "a b", "{,+var}"],
    ),
    "uuid": (
        ["2EB8AA08-AA98-11EA-B4AA-73B441D16380"],
        ["2eb8aa08aa9811eab4aa73b441d16380", "2eb8aa08-aa98-11ea-b4ga-73b441d16380"],
    ),
    "json-pointer": (["", "/foo/bar~0/baz~1/%a", "/", "/foo//bar"], ["/foo/bar~", "foo", "/~2", "#"]),
    "relative-json-pointer": (
        ["1", "0/foo/bar", "0#", "120/foo/bar", "0//"],
        ["/foo", "-1/foo", "01/a", "0##", "1#/foo", ""],
    ),
    "regex": (
        [
            "([abc])+\\s+$",
            "(?<name>x)",
            "(?<n>a)\\k<n>",
            "(?<=a+)b",
            "[]",
            "[^]",
            "\\cA",
            "^[a-zA-Z0-9._-]+$",
            "\\d{3,12}",
            "(a|(b|(c)))*?",
        ],
        ["^(abc]", "\\a", "(?P<name>x)", "(?i)abc", "(?#comment)a", "[z-a]", "a{3,2}", "**", "a)", "\\k<n>", "(?=a)*"],
    ),
}


@pytest.fixture(scope="module")
def languages() -> Languages:
    return Languages()


def draw(language: Language, rng: random.Random, most: int = 60) -> str:
    """A member: random characters for a while, then the way to the nearest end."""
    text = ""
    at = language
    while not (at.accepting and (len(text) >= most or rng.random() < 0.15)):
        edges = at.edges()
        if not edges:
            assert at.accepting
            break
        if len(text) >= most:
            low, high, at = min(edges, key=lambda edge: edge[2].shortest)
        else:
            low, high, at = rng.choice(edges)
        text += chr(rng.randint(low, high))
        if len(text) > 20 * most:
            break
    return text


def test_every_name_is_tested() -> None:
    assert set(CASES) == formats.known()


@pytest.mark.parametrize("name", sorted(CASES))
def test_cases(languages: Languages, name: str) -> None:
    valid, invalid = CASES[name]
    language, outside = formats.language(languages, name), formats.outside(languages, name)
    assert formats.language(languages, name) is language
    for text in valid:
        assert language.matches(text), text
        assert not outside.matches(text), text
    for text in invalid:
        assert not language.matches(text), text


@pytest.mark.parametrize("name", sorted(CASES))
def test_members_are_not_outside(languages: Languages, name: str) -> None:
    rng = random.Random(name)
    language, outside = formats.language(languages, name), formats.outside(languages, name)
    for _ in range(15):
        text = draw(language, rng)
        assert language.matches(text), text
        assert not outside.matches(text), text


def test_dates_are_the_calendar_s(languages: Languages) -> None:
    rng = random.Random(2)
    language, outside = formats.language(languages, "date"), formats.outside(languages, "date")
    for _ in range(3000):
        year = rng.choice([rng.randint(1, 9999), 100 * rng.randint(1, 99)])
        text = f"{year:04}-{rng.randint(0, 13):02}-{rng.randint(0, 32):02}"
        try:
            datetime.date.fromisoformat(text)
            valid = True
        except ValueError:
            valid = False
        assert language.matches(text) == valid, text
        assert not (valid and outside.matches(text)), text


def test_leap_seconds_are_at_the_end_of_a_utc_day(languages: Languages) -> None:
    language = formats.language(languages, "time")
    for hour in range(24):
        for minute in range(60):
            for sign in (1, -1):
                for offset in (0, 15, 90, 330, 345, 1425, 61):
                    utc = (hour * 60 + minute - sign * offset) % 1440
                    text = f"{hour:02}:{minute:02}:60{'+' if sign > 0 else '-'}{offset // 60:02}:{offset % 60:02}"
                    assert language.matches(text) == (utc == 1439 and offset % 15 == 0), text


@pytest.mark.parametrize(("name", "read"), [("ipv4", ipaddress.IPv4Address), ("ipv6", ipaddress.IPv6Address)])
def test_addresses_are_the_library_s(languages: Languages, name: str, read: type) -> None:
    rng = random.Random(4)
    language = formats.language(languages, name)
    alphabet = "0123.25" if name == "ipv4" else "0fA1:::.2"
    for _ in range(3000):
        text = draw(language, rng)
        if rng.random() < 0.7:
            at = rng.randrange(len(text) + 1)
            text = text[:at] + rng.choice(alphabet) * rng.randint(0, 2) + text[at + rng.randint(0, 2) :]
        try:
            read(text)
            valid = True
        except ValueError:
            valid = False
        assert language.matches(text) == valid, text


def test_uris_can_be_split(languages: Languages) -> None:
    rng = random.Random(5)
    language = formats.language(languages, "uri")
    for _ in range(200):
        text = draw(language, rng)
        parts = urllib.parse.urlsplit(text)
        assert parts.scheme and text.isascii() and " " not in text, text


def test_internationalized_names_are_idna_s(languages: Languages) -> None:
    idna = pytest.importorskip("idna")
    rng = random.Random(6)
    language = formats.language(languages, "idn-hostname")
    for _ in range(1500):
        text = draw(language, rng, rng.choice([4, 9, 14, 30]))
        assert idna.encode(text, uts46=False) or text, text
