"""Stop strings over any cutting of the bytes: what matches, what is held back, what is kept."""

import itertools

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from plait.runtime.core.stops import Match, StopScanner, cut_tokens

letters = st.sampled_from([b"a", b"b", b"\xc3", b"\xa9"])
texts = st.lists(letters, max_size=30).map(b"".join)
stop_lists = st.lists(st.lists(letters, min_size=1, max_size=5).map(b"".join), min_size=1, max_size=4).map(tuple)


def cut(data: bytes, marks: list[int]) -> list[bytes]:
    edges = [0, *sorted(mark % (len(data) + 1) for mark in marks), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


def first_match(data: bytes, stops: tuple[bytes, ...]) -> Match | None:
    """Slow and plain: the first byte at which any stop ends, then the longest."""
    for end in range(len(data) + 1):
        ending = [stop for stop in stops if data[:end].endswith(stop)]
        if ending:
            stop = max(ending, key=len)
            return Match(stop, end - len(stop))
    return None


def may_begin_a_stop(data: bytes, stops: tuple[bytes, ...]) -> int:
    return max(n for n in range(len(data) + 1) if any(stop.startswith(data[len(data) - n :]) for stop in stops))


@settings(max_examples=200)
@given(data=texts, stops=stop_lists, marks=st.lists(st.integers(0, 30), max_size=12))
@example(data=b"aab", stops=(b"aab", b"ab", b"b"), marks=[1, 2])
@example(data=b"abab", stops=(b"abac", b"ba"), marks=[])
def test_any_cutting_gives_the_same_text_and_match(data: bytes, stops: tuple[bytes, ...], marks: list[int]) -> None:
    scanner, released, match = StopScanner(stops), b"", None
    fed = b""
    for piece in cut(data, marks):
        fed += piece
        out, match = scanner.feed(piece)
        released += out
        if match is not None:
            break
        held = may_begin_a_stop(fed, stops)
        assert released == fed[: len(fed) - held], "all that is safe is released, and nothing else"
    expected = first_match(data, stops)
    assert match == expected
    released += scanner.flush()
    assert released == (data if expected is None else data[: expected.start])


@given(data=texts, stops=stop_lists)
def test_no_byte_of_a_match_is_ever_released(data: bytes, stops: tuple[bytes, ...]) -> None:
    scanner, released = StopScanner(stops), 0
    for at in range(len(data)):
        out, match = scanner.feed(data[at : at + 1])
        released += len(out)
        if match is not None:
            assert released == match.start
            assert data[match.start : at + 1] == match.stop
            return
    assert first_match(data, stops) is None


def test_the_earliest_end_wins_then_the_longest() -> None:
    assert StopScanner((b"abcd", b"bc")).feed(b"abcd") == (b"a", Match(b"bc", 1))
    assert StopScanner((b"bc", b"abc")).feed(b"xabc") == (b"x", Match(b"abc", 1))


def test_a_stop_that_almost_came_is_released() -> None:
    scanner = StopScanner((b"\nObservation",))
    assert scanner.feed(b"ok\nObser") == (b"ok", None)
    assert scanner.feed(b"ve!") == (b"\nObserve!", None)
    assert scanner.flush() == b""


def test_a_stop_that_overlaps_its_own_failed_start() -> None:
    scanner = StopScanner((b"aab",))
    assert [scanner.feed(b"a")[0] for _ in range(4)] == [b"", b"", b"a", b"a"]
    assert scanner.feed(b"b") == (b"", Match(b"aab", 2))


def test_a_stop_inside_a_character() -> None:
    """Bytes, not characters: half of é is held back, and given up when another letter follows."""
    scanner = StopScanner(("é".encode(),))
    assert scanner.feed(b"caf\xc3") == (b"caf", None)
    assert scanner.feed(b"\xa8") == ("è".encode(), None)
    assert scanner.feed("né".encode()) == (b"n", Match("é".encode(), 6))


def test_a_match_ends_the_scanner() -> None:
    scanner = StopScanner((b"x",))
    assert scanner.feed(b"axb") == (b"a", Match(b"x", 1))
    assert scanner.flush() == b""
    with pytest.raises(ValueError, match="matched already"):
        scanner.feed(b"c")


def test_an_empty_stop_is_refused_and_no_stops_hold_nothing() -> None:
    with pytest.raises(ValueError, match="must not be empty"):
        StopScanner((b"a", b""))
    assert StopScanner(()).feed(b"abc") == (b"abc", None)


def test_two_scanners_share_no_state() -> None:
    first, second = StopScanner((b"ab",)), StopScanner((b"ab",))
    first.feed(b"a")
    assert second.feed(b"b") == (b"b", None)
    assert first.feed(b"b") == (b"", Match(b"ab", 0))


def test_the_work_is_linear_where_backtracking_is_quadratic() -> None:
    """Counts dictionary look-ups: at most two per byte."""

    class Counting(dict[int, int]):
        looks = 0

        def get(self, key: int, default: int | None = None) -> int | None:  # type: ignore[override] # one use only
            Counting.looks += 1
            return super().get(key, default)

    scanner = StopScanner((b"a" * 5000 + b"b",))
    strings = scanner._parts[0]
    strings._automaton.goto = Counting(strings._automaton.goto)
    data = (b"a" * 4999 + b"c") * 4
    for at in range(0, len(data), 7):
        scanner.feed(data[at : at + 7])
    assert Counting.looks <= 2 * len(data) + 1


# ---------------------------------------------------------------- cutting tokens


@pytest.mark.parametrize(
    ("tokens", "start", "expected"),
    [
        ([b"ab", b"cd"], 2, (1, b"")),
        ([b"ab", b"cd"], 3, (1, b"c")),
        ([b"ab", b"cd"], 0, (0, b"")),
        ([b"ab", b"cd"], 4, (2, b"")),
        ([b"ab", b"", b"cd"], 2, (2, b"")),
        ([b"", b"ab"], 1, (1, b"a")),
        ([], 0, (0, b"")),
    ],
)
def test_cut_tokens(tokens: list[bytes], start: int, expected: tuple[int, bytes]) -> None:
    assert cut_tokens(tokens, start) == expected


@given(tokens=st.lists(texts, max_size=8), data=st.data())
def test_cut_tokens_keeps_every_byte_before_the_stop(tokens: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(tokens)
    start = data.draw(st.integers(0, len(whole)))
    kept, leftover = cut_tokens(tokens, start)
    assert b"".join(tokens[:kept]) + leftover == whole[:start]
    assert not (leftover and leftover == tokens[kept]), "a token that ends at the stop is kept whole"


@given(data=texts, more=texts, stops=stop_lists)
def test_bytes_that_are_not_the_texts_can_complete_a_stop(data: bytes, more: bytes, stops: tuple[bytes, ...]) -> None:
    scanner = StopScanner(stops)
    released, match = scanner.feed(data)
    if match is not None:
        return
    assert scanner.completes(more) == first_match(data + more, stops)
    assert released + scanner.flush() == data
    with pytest.raises(ValueError, match="matched already"):
        scanner.feed(b"x")
