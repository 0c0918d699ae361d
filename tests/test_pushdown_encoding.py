"""Bytes against code points: raw UTF-8, and the spellings of JSON strings as ``json.loads`` reads them."""

from __future__ import annotations

import json
import random

import pytest

from plait.constrained.pushdown import encoding
from plait.constrained.regular.language import Language
from plait.constrained.regular.languages import Languages

ODD = ["", "a", "é", "ÿ", "Ā", "߿", "ࠀ", "퟿", "", "�", "\uffff", "\U00010000", "😀", "\U0010ffff", '"', "\\", "/"]
ODD += ["\x00", "\x1f", " ", "\x7f", "\x80", "\n", "\t", "\b", "\f", "\r", "日本語", 'a"b\\c', "\U000103ff\U00010400"]


def accepts(language: Language, data: bytes, as_json: bool) -> bool:
    """Whether the byte states read ``data`` as a whole member."""
    shapes = encoding.Shapes()
    at: encoding.Position | None = (language, as_json)
    for value in data:
        assert at is not None
        at = shapes.after(at, value)
        if at is None:
            return False
    assert at is not None
    return encoding.accepts(at) > 0


def bytes_of(position: encoding.Position) -> bytes:
    """The bytes that may come."""
    shapes = encoding.Shapes()
    return bytes(value for value in range(256) if shapes.after(position, value) is not None)


def spelled(text: str, chance: random.Random) -> str:
    """Some JSON spelling of ``text``: every code point raw, short or by number, the number in either case."""
    short = {8: "b", 9: "t", 10: "n", 12: "f", 13: "r", 34: '"', 92: "\\", 47: "/"}
    out = []
    for char in text:
        code = ord(char)
        raw = code >= 0x20 and char not in '"\\'
        ways = [char] if raw else []
        if code in short:
            ways.append("\\" + short[code])
        units = char.encode("utf-16-be")
        number = "".join(f"\\u{units[at] << 8 | units[at + 1]:04x}" for at in range(0, len(units), 2))
        ways.append("".join(chance.choice((d.upper(), d)) if d != "u" else d for d in number))
        out.append(chance.choice(ways))
    return "".join(out)


@pytest.mark.parametrize("seed", range(40))
def test_json_spellings_of_free_text(seed: int) -> None:
    chance = random.Random(seed)
    text = "".join(chance.choice(ODD) for _ in range(4))
    languages = Languages()
    written = spelled(text, chance)
    assert json.loads(f'"{written}"') == text
    assert accepts(languages.ANY, written.encode() + b'"', True)
    assert not accepts(languages.ANY, written.encode(), True)
    assert not accepts(languages.ANY, written.encode() + b'"x', True)


@pytest.mark.parametrize("seed", range(40))
def test_classes_hold_exactly_their_code_points(seed: int) -> None:
    chance = random.Random(seed)
    marks = sorted(chance.sample(sorted({ord(c) for t in ODD for c in t} | set(range(0x110000)[::0xFFF])), 6))
    ranges = [r for r in zip(marks[::2], marks[1::2], strict=True) if not (0xD800 <= r[0] <= 0xDFFF)]
    languages = Languages()
    language = languages.chars(ranges)
    if language is languages.EMPTY:
        return
    for code in {c + d for c in marks for d in (-1, 0, 1)} | {ord(c) for t in ODD for c in t}:
        if not 0 <= code <= 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            continue
        char = chr(code)
        member = language.matches(char)
        assert accepts(language, char.encode(), False) == member
        assert accepts(language, json.dumps(char, ensure_ascii=False).encode()[1:], True) == member, hex(code)
        assert accepts(language, json.dumps(char).encode()[1:], True) == member, hex(code)


@pytest.mark.parametrize(
    "written",
    [
        *(b'\xff"', b'\xc0\x80"', b'\xe0\x80\x80"', b'\xed\xa0\x80"', b'\xf4\x90\x80\x80"', b'\xf0\x80\x80\x80"'),
        *(
            b'\\ud800"',
            b'\\udc00"',
            b'\\ud800\\u0041"',
            b'\\ud83dx"',
            b'\\x"',
            b'\\u12"',
            b'\\u12g4"',
            b'\n"',
            b'\x00"',
        ),
        *(b"\\'", b'\\U0041"', b'\xc3"'),
    ],
)
def test_what_is_no_json_string(written: bytes) -> None:
    assert not accepts(Languages().ANY, written, True)


def test_patterns_keep_their_forced_bytes() -> None:
    languages = Languages()
    digits = languages.repeat(languages.chars(((48, 57),)), 3, 3)
    assert not accepts(digits, b'\\u0031\\u0032\\u0033"', True)
    assert accepts(digits, b'123"', True)
    slashes = languages.literal("a/b")
    assert accepts(slashes, b'a/b"', True) and not accepts(slashes, b'a\\/b"', True)
    assert accepts(languages.ANY, b'a\\/b\\u002f"', True)
    assert bytes_of((slashes, True)) == b"a"


def test_equal_positions_are_one() -> None:
    """All three-byte leads of a free character lead to one position, apart from the two that are cut short; and what
    differs only in where it leads has one shape."""
    languages, shapes = Languages(), encoding.Shapes()
    targets = {shapes.after((languages.ANY, False), lead) for lead in range(0xE0, 0xF0)}
    assert len(targets) == 3
    char = languages.chars(((0, 0xD7FF), (0xE000, 0x10FFFF)))
    ten, twelve = languages.repeat(char, 1, 10), languages.repeat(char, 1, 12)
    assert shapes.expand((ten, True))[0] is shapes.expand((twelve, True))[0]
    assert shapes.expand((ten, True))[0] is not shapes.expand((languages.ANY, True))[0]  # where a quote may come


def test_capped_positions_allow_the_same_short_texts() -> None:
    languages, shapes = Languages(), encoding.Shapes()
    word = languages.repeat(languages.chars(((97, 122), (0xE9, 0xE9))), 2, 1000)
    other = languages.repeat(languages.chars(((97, 122), (0xE9, 0xE9))), 2, 2000)

    def inside(language: Language) -> encoding.Position:
        found = shapes.after((language, True), 0xC3)
        assert found is not None
        return found

    assert inside(word) != inside(other)
    assert shapes.capped(inside(word), 40) == shapes.capped(inside(other), 40)
    assert shapes.capped(inside(word), 40) != shapes.capped(inside(word), 1200)


def test_capping_joins_what_becomes_equal() -> None:
    """Two far bounds that a short text cannot tell apart give one place, and the shape of one place."""
    languages, shapes = Languages(), encoding.Shapes()
    low, high = languages.chars(((0xE8, 0xE8),)), languages.chars(((0xE9, 0xE9),))
    tail = [languages.repeat(languages.chars(((97, 122),)), 0, bound) for bound in (500, 700)]
    both = languages.union(languages.concat(low, tail[0]), languages.concat(high, tail[1]))
    inside = shapes.after((both, True), 0xC3)
    assert inside is not None and len(inside[1]) == 2
    short = shapes.capped(inside, 20)
    assert len(short[1]) == 1
    assert bytes_of(short) == bytes_of(inside)


def test_missing_bytes() -> None:
    languages = Languages()
    shapes = encoding.Shapes([0xA9, ord("x")], escapes=False)
    any_text = (languages.ANY, True)
    assert shapes.after(any_text, ord("x")) is None
    assert shapes.after(any_text, ord("\\")) is None
    inside = shapes.after(any_text, 0xC3)
    assert inside is not None
    assert shapes.after(inside, 0xA9) is None and shapes.after(inside, 0xA8) == any_text
