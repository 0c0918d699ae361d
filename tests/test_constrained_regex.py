"""The byte automaton of a regex accepts exactly what ``re.fullmatch`` accepts."""

from __future__ import annotations

import random
import re
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.constrained.compiler import compile_regex
from plait.constrained.dfa import Dfa, Limits
from plait.constrained.interface import ConstraintError

TEXT = "abAB01 \n_.-éßſKÅĄ日😀"


def fullmatch(pattern: str, text: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return re.fullmatch(pattern, text) is not None


@st.composite
def classes(draw: st.DrawFn) -> str:
    items = draw(
        st.lists(
            st.sampled_from([*"ab01_é日😀ſK", "a-b", "A-Z", "0-9", r"\d", r"\w", r"\s", r"\W", r"\n", "é-日", r"\x61"]),
            min_size=1,
            max_size=3,
        )
    )
    return "[" + draw(st.sampled_from(["", "^"])) + "".join(items) + "]"


ATOMS = st.one_of(
    st.sampled_from(list("abAB01_é日😀ſKß")),
    st.sampled_from([".", r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", r"\n", r"\.", r"\-", r"\x41", r"\u00e9", r"\101"]),
    st.sampled_from(["^", "$", r"\A", r"\Z", "()", "(?:)"]),
    st.sampled_from(["(?=a)", "(?!a)", r"(?=\w)", r"(?!.*\d)", "(?=a|b$)", "(?!$)", "(?![^a]|(?=b))", "(?s:(?=.b))"]),
    classes(),
)
QUANTIFIERS = st.sampled_from(
    ["*", "+", "?", "*?", "+?", "??", "{2}", "{0,2}", "{1,3}", "{,2}", "{2,}", "{0}", "{1,2}?"]
)


def extend(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    def group(text: str, kind: str) -> str:
        return f"{kind}{text})"

    groups = st.builds(
        group, inner, st.sampled_from(["(", "(?:", "(?i:", "(?s:", "(?m:", "(?a:", "(?-i:", "(?P<n>", "(?=", "(?!"])
    )
    named_once = groups.map(lambda text: text if text.count("(?P<n>") < 2 else text.replace("(?P<n>", "("))
    return st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=1, max_size=3).map("|".join).map(lambda text: f"(?:{text})"),
        st.builds(lambda text, times: f"(?:{text}){times}", inner, QUANTIFIERS),
        named_once,
    )


PATTERNS = st.builds(
    lambda flags, ahead, body: flags + ahead + body.replace("(?P<n>", "("),
    st.sampled_from(["", "", "", "(?i)", "(?s)", "(?m)", "(?a)", "(?im)"]),
    st.sampled_from(["", "", "", "(?=.*a)", "(?!ab)", "(?!.*0$)", "^(?=[^b]*$)(?!a)"]),
    st.recursive(ATOMS, extend, max_leaves=8),
)


def sample(dfa: Dfa, rng: random.Random) -> bytes:
    """A random member of the language."""
    state, data = 0, bytearray()
    for step in range(200):
        live = [b for b in range(256) if dfa.table[state, dfa.byte_class[b]] >= 0]
        if dfa.accepting[state] and (not live or rng.random() < 0.3 or step > 40):
            break
        if not live:
            raise AssertionError("a dead state")
        byte = rng.choice([b for b in live if b < 128] or live) if step > 10 or rng.random() < 0.7 else rng.choice(live)
        data.append(byte)
        state = int(dfa.table[state, dfa.byte_class[byte]])
    return bytes(data)


@settings(max_examples=250, deadline=None)
@given(PATTERNS, st.lists(st.text(TEXT, max_size=6), min_size=8, max_size=8), st.integers(0, 2**32))
def test_language_is_that_of_fullmatch(pattern: str, texts: list[str], seed: int) -> None:
    try:
        dfa = compile_regex(pattern)
    except ConstraintError as error:
        assert "matches nothing" in str(error), (pattern, error)
        assert not any(fullmatch(pattern, text) for text in ["", "a", "\n", *texts])
        return
    for text in ["", "a", "b", "\n", "a\n", "A", "0", *texts]:
        assert dfa.matches(text.encode()) == fullmatch(pattern, text), (pattern, text)
    rng = random.Random(seed)
    for _ in range(4):
        data = sample(dfa, rng)
        if dfa.matches(data):
            assert fullmatch(pattern, data.decode()), (pattern, data)  # decode() fails if it is not valid UTF-8


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
    ],
)
def test_examples(pattern: str, yes: list[str], no: list[str]) -> None:
    dfa = compile_regex(pattern)
    for text in yes:
        assert fullmatch(pattern, text), text
        assert dfa.matches(text.encode()), text
    for text in no:
        assert not fullmatch(pattern, text), text
        assert not dfa.matches(text.encode()), text


@pytest.mark.parametrize(
    "data", [b"\x80", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xe2\x82", b"\xff", b"a\xc3"]
)
def test_only_valid_utf8_is_in_a_language(data: bytes) -> None:
    dfa = compile_regex(r"(?s).*")
    assert dfa.matches("aé€😀".encode())
    assert not dfa.matches(data)
    assert not compile_regex(r"[^a]*").matches(data)


@pytest.mark.parametrize(
    "pattern, words",
    [
        (r"(a)\1", "back-reference at position 3"),
        (r"(?P<x>a)(?P=x)", "back-reference to a named group at position 8"),
        (r"a(?<=a)b", "lookbehind at position 1"),
        (r"a(?<!b)", "lookbehind at position 1"),
        (r"(a)?(?(1)b|c)", "conditional group at position 4"),
        (r"(?>a)b", "atomic group at position 0"),
        (r"ab*+", "possessive quantifier at position 2"),
        (r"\bword", r"word boundary \b at position 0"),
        (r"[a", "position 0"),
        (r"a)", "unbalanced parenthesis"),
        (r"*a", "nothing to repeat at position 0"),
        (r"a{3,2}", "min repeat greater than max repeat"),
        (r"(?z)a", "position"),
        (r"a^b", "matches nothing"),
        (r"[^\s\S]", "matches nothing"),
        (r"(?!a)a", "matches nothing"),
        ("\ud800", "matches nothing"),
        ("(" * 3000 + ")" * 3000, "nested too deeply"),
        (r"((a{1,100}){1,100}){1,100}", "automaton states"),
        (r"(?:a|b)*a(?:a|b){18}", "automaton states"),
        (r"a{99999999999999999999}", "too large"),
    ],
)
def test_refusals_name_the_fault(pattern: str, words: str) -> None:
    with pytest.raises(ConstraintError, match=re.escape(words)):
        compile_regex(pattern, Limits(states=20_000))


def test_repeats_and_alternations_stay_small() -> None:
    assert compile_regex("[a-zA-Z0-9 ]{1,1000}").states == 1001
    assert compile_regex("[0-9]{5000}").states == 5001
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefghij", k=rng.randint(3, 12))) for _ in range(1000)]
    dfa = compile_regex("|".join(words))
    assert dfa.states < sum(map(len, words)) / 2  # common beginnings and ends are shared
    assert all(dfa.matches(word.encode()) for word in words)


def test_the_time_limit_ends_a_compilation() -> None:
    with pytest.raises(ConstraintError, match="seconds to compile"):
        compile_regex("(?:a|b)*a(?:a|b){30}", Limits(states=10**9, entries=10**9, seconds=0.2))
