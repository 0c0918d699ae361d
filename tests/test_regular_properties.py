"""Random regexes and random formulas: positions hold exactly what ``re`` and set algebra say."""

from __future__ import annotations

import itertools
import random
import re
import signal
import warnings

from hypothesis import given, reject, settings
from hypothesis import strategies as st

from plait.constrained.regular.language import Language
from plait.constrained.regular.languages import Languages

TEXT = "abAB01 \n_.-éßſKÅĄ日😀"
SHORT = ["".join(t) for n in range(5) for t in itertools.product("ab\n", repeat=n)]


class TooSlow(Exception):
    pass


def _too_slow(*_: object) -> None:
    raise TooSlow


def fullmatch(pattern: str, text: str) -> bool:
    """What ``re`` says; an example on which it backtracks without end is left out."""
    before = signal.signal(signal.SIGVTALRM, _too_slow)
    signal.setitimer(signal.ITIMER_VIRTUAL, 1.0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return re.fullmatch(pattern, text) is not None
    except TooSlow:
        reject()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


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
    st.sampled_from(list("ababAB01_é日😀ſKß")),
    st.sampled_from([".", r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", r"\n", r"\.", r"\-", r"\x41", r"\u00e9", r"\101"]),
    st.sampled_from(["^", "$", r"\A", r"\Z", "()", "(?:)", r"\b", r"\B", "(?<=a)", "(?<![ab])", "(?<=b|_)"]),
    st.sampled_from(["(?=a)", "(?!a)", r"(?=\w)", r"(?!.*\d)", "(?=a|b$)", "(?!$)", "(?![^a]|(?=b))", "(?s:(?=.b))"]),
    st.sampled_from([r"(?=\b)", r"(?!\Ba)", "(?=^a)", "ab", "ba", "abab"]),
    classes(),
)
QUANTIFIERS = st.sampled_from(
    ["*", "+", "?", "*?", "+?", "??", "{2}", "{0,2}", "{1,3}", "{,2}", "{2,}", "{0}", "{1,2}?", "{2,3}", "{3}"]
)


def extend(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    kinds = ["(", "(?:", "(?i:", "(?s:", "(?m:", "(?a:", "(?-i:", "(?=", "(?!"]
    return st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=1, max_size=3).map("|".join).map(lambda text: f"(?:{text})"),
        st.builds(lambda text, times: f"(?:{text}){times}", inner, QUANTIFIERS),
        st.builds(lambda text, kind: f"{kind}{text})", inner, st.sampled_from(kinds)),
    )


TREES = st.recursive(ATOMS, extend, max_leaves=8)
PATTERNS = st.builds(
    lambda flags, ahead, body: flags + ahead + body,
    st.sampled_from(["", "", "", "(?i)", "(?s)", "(?m)", "(?a)", "(?im)"]),
    st.sampled_from(["", "", "", "(?=.*a)", "(?!ab)", "(?!.*0$)", "^(?=[^b]*$)(?!a)"]),
    TREES,
)
#: patterns without lookaround, for what must be fast and shared
SIMPLE = st.recursive(
    st.sampled_from(["a", "b", ".", "[ab]", "ab", "ba", "(?:)", "\\n", "a{1,3}", "[^a]"]),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=1, max_size=3).map("|".join).map(lambda text: f"(?:{text})"),
        st.builds(lambda text, times: f"(?:{text}){times}", inner, QUANTIFIERS),
    ),
    max_leaves=6,
)


def walk(language: Language, text: str) -> Language | None:
    at = language
    for char in text:
        edges = at.edges()
        assert all(low <= high for low, high, _ in edges)
        assert all(edges[i][1] < edges[i + 1][0] for i in range(len(edges) - 1)), "edges overlap"
        found = [target for low, high, target in edges if low <= ord(char) <= high]
        if not found:
            return None
        at = found[0]
    return at


def sample(language: Language, rng: random.Random) -> str:
    """A random member: every position can be completed."""
    at, text = language, ""
    for step in range(300):
        edges = at.edges()
        if at.accepting and (not edges or rng.random() < 0.3 or step > 40):
            return text
        assert edges, "a dead end"
        if step > 40:  # go where it ends soonest
            low, high, at = min(edges, key=lambda edge: edge[2].shortest)
        else:
            low, high, at = rng.choice(edges)
        text += chr(rng.randint(low, min(high, low + 100)))
    return text


@settings(max_examples=300, deadline=None)
@given(PATTERNS, st.lists(st.text(TEXT, max_size=6), min_size=8, max_size=8), st.integers(0, 2**32))
def test_language_is_that_of_fullmatch(pattern: str, texts: list[str], seed: int) -> None:
    languages = Languages()
    language = languages.regex(pattern)
    for text in ["", "a", "b", "\n", "a\n", "A", "0", " a", "a b", *texts]:
        at = walk(language, text)
        accepted = at is not None and at.accepting
        assert accepted == fullmatch(pattern, text), (pattern, text)
        assert language.matches(text) == accepted
        if accepted:
            assert language.shortest <= len(text)
            assert language.longest is None or len(text) <= language.longest
    if language is languages.EMPTY:
        return
    rng = random.Random(seed)
    for _ in range(4):
        text = sample(language, rng)
        if walk(language, text).accepting:  # type: ignore[union-attr]
            assert fullmatch(pattern, text), (pattern, text)


@settings(max_examples=150, deadline=None)
@given(SIMPLE, SIMPLE, SIMPLE)
def test_boolean_algebra(a: str, b: str, c: str) -> None:
    languages = Languages()
    x, y, z = languages.regex(a), languages.regex(b), languages.regex(c)
    union, both, rest = languages.union(x, y), languages.intersect(x, y), languages.complement(x)
    mixed = languages.union(languages.intersect(x, languages.complement(y)), z)
    chained = languages.concat(languages.intersect(x, languages.complement(y)), z)
    looped = languages.repeat(languages.intersect(languages.union(x, z), languages.complement(y)), 0, 3)
    lower = {text for text in SHORT if fullmatch(a, text) and not fullmatch(b, text)}
    members = {text for text in SHORT if (fullmatch(a, text) or fullmatch(c, text)) and not fullmatch(b, text)}
    for text in SHORT:
        in_x, in_y, in_z = (fullmatch(p, text) for p in (a, b, c))
        assert union.matches(text) == (in_x or in_y)
        assert both.matches(text) == (in_x and in_y)
        assert rest.matches(text) == (not in_x)
        assert mixed.matches(text) == ((in_x and not in_y) or in_z)
        parts = [(text[:at], text[at:]) for at in range(len(text) + 1)]
        assert chained.matches(text) == any(head in lower and fullmatch(c, tail) for head, tail in parts)
        assert looped.matches(text) == in_rounds(text, members, 3)
    back = languages.complement(rest)
    assert all(back.matches(text) == x.matches(text) for text in SHORT)
    assert languages.intersect(x, rest) is languages.EMPTY
    assert languages.is_empty(both) == (both is languages.EMPTY)
    assert languages.intersect(x, y) is languages.intersect(y, x)
    for language in (union, both, rest, mixed, chained, looped):
        if language is not languages.EMPTY:
            sample(language, random.Random(1))  # asserts that there is no dead end


def in_rounds(text: str, members: set[str], rounds: int) -> bool:
    if not text:
        return True
    return rounds > 0 and any(
        text[:at] in members and in_rounds(text[at:], members, rounds - 1) for at in range(1, len(text) + 1)
    )


COUNTED = st.builds(
    lambda a, low, more, b, tail: f"(?:{a}){{{low},{low + more}}}{b}{tail}",
    SIMPLE,
    st.integers(0, 12),
    st.integers(0, 12),
    st.sampled_from(["", "b", "(?:ab){3,20}", "[ab]{5}"]),
    st.sampled_from(["", "(?:a{2,30}b){1,15}", "$", "a*"]),
)


@settings(max_examples=200, deadline=None)
@given(COUNTED, st.integers(0, 4))
def test_capped_is_the_same_up_to_its_length(pattern: str, length: int) -> None:
    languages = Languages()
    todo = [(languages.regex(pattern), languages.regex(pattern).capped(length), 0)]
    seen = set()
    while todo:
        plain, capped, depth = todo.pop()
        assert plain.accepting == capped.accepting, (pattern, depth)
        if depth == length or (plain, capped) in seen:
            continue
        seen.add((plain, capped))
        for char in "ab\nc":
            one, other = walk(plain, char), walk(capped, char)
            assert (one is None) == (other is None), (pattern, depth, char)
            if one is not None and other is not None:
                todo.append((one, other, depth + 1))


@settings(max_examples=100, deadline=None)
@given(SIMPLE, st.integers(0, 9), st.integers(0, 4), SIMPLE, st.sampled_from(["", "[ab]*", "a+"]), st.integers(0, 3))
def test_capped_formulas_are_the_same_up_to_the_length(
    a: str, low: int, more: int, b: str, tail: str, length: int
) -> None:
    languages = Languages()
    window = languages.repeat(languages.chars([(0, 0x10FFFF)]), low, low + 10 * more if more < 4 else None)
    x, y = languages.regex(a + tail), languages.regex(f"(?:{b}){{3,9}}{tail}")
    language = languages.intersect(languages.union(x, y), window)
    if language is languages.EMPTY:
        return
    todo = [(language, language.capped(length), 0)]
    while todo:
        plain, capped, depth = todo.pop()
        assert plain.accepting == capped.accepting
        if depth < length:
            for char in "ab\nc":
                one, other = walk(plain, char), walk(capped, char)
                assert (one is None) == (other is None), (a, b, depth, char)
                if one is not None and other is not None:
                    todo.append((one, other, depth + 1))


@settings(max_examples=150, deadline=None)
@given(SIMPLE, st.integers(0, 6), st.integers(0, 6))
def test_counters(body: str, low: int, more: int) -> None:
    languages = Languages()
    language = languages.repeat(languages.regex(body), low, low + more)
    members = {text for text in SHORT if fullmatch(body, text)}
    counted: set[str] = set()
    rounds = {""}
    for number in range(low + more + 1):
        if number >= low:
            counted |= rounds
        rounds = {a + b for a in rounds for b in members if len(a) + len(b) < 5}
    for text in SHORT:
        assert language.matches(text) == (text in counted), text


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text("abc", max_size=5), max_size=8), SIMPLE)
def test_literals(words: list[str], pattern: str) -> None:
    languages = Languages()
    language = languages.literals(words)
    for text in ["", *words, "abcabc", *(word[:-1] for word in words), *(word + "a" for word in words)]:
        assert language.matches(text) == (text in words)
    assert languages.finite(language, 100) == sorted(set(words))
    assert language is languages.union(*(languages.literal(word) for word in words)) or "" in words or not words
    other = languages.intersect(language, languages.regex(pattern))
    assert languages.finite(other, 100) == sorted({word for word in words if fullmatch(pattern, word)})
