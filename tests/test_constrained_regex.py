"""Regexes all the way: what ``gen(regex=)`` takes matches what ``re.fullmatch`` matches, and the rest is refused.

Properties over random patterns are in test_regular_properties.py; here are the examples, read as bytes.
"""

from __future__ import annotations

import random
import re
import warnings

import pytest

from plait.constrained.compiler import build, compile_spec
from plait.constrained.interface import ConstraintError, Matcher
from plait.constrained.vocabulary import Vocabulary

VOCABULARY = Vocabulary([bytes([b]) for b in range(256)], size=257, eos_ids=[256], encode=list)


def matcher(pattern: str) -> Matcher:
    compile_spec("regex", pattern)
    return build({"regex": pattern}, VOCABULARY, pattern).matcher()


def matches(pattern: str, data: bytes) -> bool:
    at = matcher(pattern)
    return at.advance_bytes(data) and at.accepting


def fullmatch(pattern: str, text: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return re.fullmatch(pattern, text) is not None


@pytest.mark.parametrize(
    "pattern, yes, no",
    [
        ("", [""], ["a"]),
        ("colou?r", ["color", "colour"], ["colr", "xcolor", "color "]),
        ("a.c", ["abc", "a😀c", "a\rc"], ["a\nc", "ac", "abbc"]),
        ("(?s)a.c", ["a\nc"], ["ac"]),
        (r"\d+", ["12", "٣4"], ["", "1a"]),
        (r"(?a)\d+", ["12"], ["٣4"]),
        (r"^abc$", ["abc"], ["abc\n", "xabc"]),
        (r"\Aab\Z", ["ab"], ["ab\n"]),
        (r"a$\n", ["a\n"], ["a"]),
        (r"(?m)(^a$\n?)+", ["a", "a\na", "a\na\n"], ["aa", "\na"]),
        (r"(?x) a b # ab\n c", ["ab"], ["abc", "a b"]),
        ("(?x) a\\ [ ]b  # end\n c", ["a  bc"], ["abc"]),
        (r"(?i)straße", ["STRAßE", "StraẞE"], ["strasse"]),
        (r"(?i)[^k]", ["a"], ["K", "k", "\u212a"]),
        (r"[]a]+", ["]a]"], ["b"]),
        (r"[^]a]", ["b"], ["]", "a"]),
        (r"[a\-z]+", ["-az"], ["b"]),
        (r"[\b]", ["\b"], ["b"]),
        (r"[\1\12]+", ["\x01\n"], ["1"]),
        (r"\N{SNOWMAN}", ["☃"], ["N"]),
        (r"x{,2}", ["", "xx"], ["xxx"]),
        (r"x{}", ["x{}"], ["x"]),
        (r"x{a}", ["x{a}"], ["x"]),
        (r"(?P<year>\d{4})-(?P<month>\d\d)", ["2024-01"], ["2024-1"]),
        (r"a(?#note)b", ["ab"], ["a"]),
        (r"(?:a|ab)(?:c|bcd)", ["ac", "abc", "abcd", "abbcd"], ["abd"]),
        (r"(?!foo)\w+", ["bar", "fo"], ["foo", "foobar"]),
        (r"^(?=.*\d)(?=.*[a-z]).{4,6}$", ["abc1", "1aaaaa"], ["abcd", "a1", "a123456"]),
        (r"((?!a)\w)", ["b"], ["a"]),
        (r"((?!ab|ba).)*", ["", "aa", "b"], ["aab", "ba"]),
        (r"a(?=b)\w+", ["ab", "abc"], ["ac", "a"]),
        (r"foo(?!bar)", ["foo"], ["foobar"]),
        (r"foo(?!bar).*", ["foo", "fooba"], ["foobar", "foobarx"]),
        (r"(?!a(?!b)).*", ["ab", "b", ""], ["a", "ac"]),
        (r"(?=(?:..)*$)a*", ["", "aa", "aaaa"], ["a", "aaa"]),
        (r"(?m)(?=a$)a\nb", ["a\nb"], ["a\n"]),
        (r"\x00\xff\u20ac\U0001F600", ["\x00ÿ€😀"], [""]),
        ("'|\"", ["'", '"'], [""]),
        (r"(a*)*", ["", "aaa"], ["b"]),
        (r"(?:a?b??)*?c", ["c", "abac"], ["ab"]),
        (r"\bword\b", ["word"], ["words"]),
        (r"\w+\b \b\w+", ["a b"], ["a  b", "ab"]),
    ],
)
def test_examples(pattern: str, yes: list[str], no: list[str]) -> None:
    for text in yes:
        assert fullmatch(pattern, text), text
        assert matches(pattern, text.encode()), text
    for text in no:
        assert not fullmatch(pattern, text), text
        assert not matches(pattern, text.encode()), text


@pytest.mark.parametrize(
    "data", [b"\x80", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xe2\x82", b"\xff", b"a\xc3"]
)
def test_only_valid_utf8_is_in_a_language(data: bytes) -> None:
    assert matches(r"(?s).*", "aé€😀".encode())
    assert not matches(r"(?s).*", data)
    assert not matches(r"[^a]*", data)


@pytest.mark.parametrize(
    "pattern, words",
    [
        (r"(a)\1", "back-reference"),
        (r"(?P<x>a)(?P=x)", "back-reference"),
        (r"(a)?(?(1)b|c)", "conditional"),
        (r"(?>a)b", "atomic group at position 0"),
        (r"ab*+", "possessive"),
        (r"[a", "0"),
        (r"a)", "unbalanced"),
        (r"*a", "nothing to repeat"),
        (r"a{3,2}", "repeat"),
        (r"(?z)a", "unknown"),
        (r"a^b", "matches no text"),
        (r"[^\s\S]", "matches no text"),
        (r"(?!a)a", "matches no text"),
        ("(" * 3000 + ")" * 3000, "nested"),
    ],
)
def test_refusals_name_the_fault(pattern: str, words: str) -> None:
    with pytest.raises(ConstraintError, match=words):
        compile_spec("regex", pattern)


def test_what_exploded_as_a_table_is_walked_lazily() -> None:
    for pattern in (r"((a{1,100}){1,100}){1,100}", r"(?:a|b)*a(?:a|b){18}", r"[^\n]{1,10000}", r"\w{1,1000}"):
        at = matcher(pattern)
        for _ in range(40):
            assert at.advance_bytes(b"a") and at.prepare()
        assert at.mask().any()


def test_a_thousand_words() -> None:
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefghij", k=rng.randint(3, 12))) for _ in range(1000)]
    pattern = "|".join(words)
    for word in words[::50]:
        assert matches(pattern, word.encode())
