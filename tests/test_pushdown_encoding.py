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
    at: encoding.Position = (encoding.TEXT, language, as_json)
    for value in data:
        found = [target for low, high, target in encoding.byte_edges(at) if low <= value <= high]
        assert len(found) <= 1, "byte edges overlap"
        if not found:
            return False
        at = found[0]
    return encoding.accepts(at) > 0


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
    assert [low for low, _, _ in encoding.byte_edges((encoding.TEXT, slashes, True))] == [ord("a")]


def test_equal_positions_are_one() -> None:
    """All three-byte leads of a free character lead to one position, apart from the two that are cut short."""
    edges = encoding.byte_edges((encoding.TEXT, Languages().ANY, False))
    targets = {target for low, _, target in edges if 0xE0 <= low <= 0xEF}
    assert len(targets) == 3


def test_capped_positions_allow_the_same_short_texts() -> None:
    languages = Languages()
    word = languages.repeat(languages.chars(((97, 122), (0xE9, 0xE9))), 2, 1000)
    other = languages.repeat(languages.chars(((97, 122), (0xE9, 0xE9))), 2, 2000)

    def inside(language: Language) -> encoding.Position:
        return next(t for low, _, t in encoding.byte_edges((encoding.TEXT, language, True)) if low == 0xC3)

    assert inside(word) != inside(other)
    assert encoding.capped(inside(word), 40) == encoding.capped(inside(other), 40)
    assert encoding.capped(inside(word), 40) != encoding.capped(inside(word), 1200)
