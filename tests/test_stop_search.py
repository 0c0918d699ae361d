"""Stop regexes over any cutting of the bytes, against a slow and plain search."""

from __future__ import annotations

import itertools
import random
import re
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from plait.runtime.core.stop_search import MAX_OPEN
from plait.runtime.core.stops import Match, StopScanner

PATTERNS = ["ab+c", "a|bc", "é[ab]", r"\d{2}", "a.b", "(ab)*c", "[^a]b", "aa?b", "é", "(?i)AB"]
texts = st.lists(st.sampled_from("abcé1\n"), max_size=25).map("".join)


def cut(data: bytes, marks: list[int]) -> list[bytes]:
    edges = [0, *sorted(mark % (len(data) + 1) for mark in marks), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


def first_match(text: str, patterns: list[str], stops: list[str]) -> Match | None:
    """The first end of any match, then the earliest beginning of those that end there."""
    for end in range(len(text) + 1):
        starts = [
            start
            for start in range(end)
            if any(re.fullmatch(pattern, text[start:end]) for pattern in patterns) or text[start:end] in stops
        ]
        if starts:
            start = min(starts)
            return Match(text[start:end].encode(), len(text[:start].encode()))
    return None


@settings(max_examples=300, deadline=None)
@given(
    text=texts,
    patterns=st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=3),
    stops=st.lists(st.sampled_from(["ab", "c1", "é\n"]), max_size=2),
    marks=st.lists(st.integers(0, 60), max_size=12),
)
@example(text="abbc", patterns=["ab+c"], stops=[], marks=[1, 2, 3])
@example(text="aéab", patterns=["é[ab]"], stops=[], marks=[2])
def test_any_cutting_gives_the_same_match(text: str, patterns: list[str], stops: list[str], marks: list[int]) -> None:
    scanner = StopScanner([stop.encode() for stop in stops], patterns)
    data, released, match = text.encode(), b"", None
    for piece in cut(data, marks):
        out, match = scanner.feed(piece)
        released += out
        if match is not None:
            break
    expected = first_match(text, patterns, stops)
    assert match == expected
    released += scanner.flush()
    assert released == (data if expected is None else data[: expected.start])


def test_only_what_may_begin_a_match_is_held_back() -> None:
    scanner = StopScanner((), ["[0-9]+ EUR"])
    assert scanner.feed(b"The total is ") == (b"The total is ", None)
    assert scanner.feed(b"12") == (b"", None)
    assert scanner.feed(b" USD, 7") == (b"12 USD, ", None)
    released, match = scanner.feed(b" EUR and more")
    assert (released, match) == (b"", Match(b"7 EUR", 21))
    with pytest.raises(ValueError, match="matched already"):
        scanner.feed(b"x")


def test_bytes_that_are_no_characters_belong_to_no_match() -> None:
    scanner = StopScanner((), ["a.b"])
    assert scanner.feed(b"a\xff") == (b"a\xff", None)
    assert scanner.feed(b"b a\xe2") == (b"b ", None)  # half a character: it may become one
    assert scanner.feed(b"\x82\xacb!") == (b"", Match("a€b".encode(), 4))
    whole = StopScanner((), ["x"])
    assert whole.feed(b"a\xe2\x82") == (b"a", None) and whole.flush() == b"\xe2\x82"


def test_open_beginnings_are_bounded() -> None:
    assert StopScanner((), ["a.*b"]).feed(b"a" * 5000) == (b"", None), "equal positions are one"
    many = StopScanner((), [f"a.{{1,{2 * MAX_OPEN}}}b"])
    with pytest.raises(ValueError, match="stop_regex keeps more than"):
        many.feed(b"a" * (2 * MAX_OPEN))


@pytest.mark.parametrize("pattern", ["[ab]*a[ab]{300}c", "(?:[ab]*a[ab]{40}){40}c"])
def test_what_one_character_costs_is_bounded(pattern: str) -> None:
    """Few beginnings, of which each can be read in hundreds of ways: half a second a character, for everybody."""
    search, chance = StopScanner((), [pattern]), random.Random(1)
    took: list[float] = []
    with pytest.raises(ValueError, match="possible readings of the text"):
        for _ in range(2_000):
            began = time.process_time()
            try:
                search.feed(chance.choice((b"a", b"b")))
            finally:
                took.append(time.process_time() - began)
    took.sort()
    slow = took[-1 - len(took) // 20]  # a collection of garbage may fall into a few of them
    assert slow < 0.15
