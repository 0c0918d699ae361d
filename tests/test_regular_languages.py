"""The algebra of Languages: identities, positions of one's own, limits, deadlines, what things cost."""

from __future__ import annotations

import itertools
import time

import pytest

from plait.constrained.charset import ALL
from plait.constrained.interface import ConstraintError, Unfinished
from plait.constrained.regular import numbers
from plait.constrained.regular.language import Edges, Language
from plait.constrained.regular.languages import Languages
from plait.constrained.regular.states import Both

LETTERS = [(97, 122)]


class Multiple(Language):
    """Decimal numbers whose digits so far leave ``rest`` modulo ``divisor``."""

    __slots__ = ("accepting", "divisor", "languages", "longest", "rest", "shortest")

    def __init__(self, languages: Languages, divisor: int, rest: int, begun: bool) -> None:
        self.languages, self.divisor, self.rest = languages, divisor, rest
        self.accepting = begun and rest == 0
        self.shortest = 0 if self.accepting else 1
        self.longest = None

    def edges(self) -> Edges:
        return tuple((48 + d, 48 + d, multiple(self.languages, self.divisor, self.rest * 10 + d)) for d in range(10))

    def capped(self, length: int) -> Language:
        return self


def multiple(languages: Languages, divisor: int, value: int, begun: bool = True) -> Language:
    rest = value % divisor
    key = ("test.multiple", divisor, rest, begun)
    return languages.intern(key, lambda: Multiple(languages, divisor, rest, begun))


def texts(language: Language, alphabet: str, longest: int) -> set[str]:
    words = ("".join(t) for n in range(longest + 1) for t in itertools.product(alphabet, repeat=n))
    return {word for word in words if language.matches(word)}


def test_constants() -> None:
    languages = Languages()
    assert texts(languages.EMPTY, "ab", 3) == set()
    assert texts(languages.EPSILON, "ab", 2) == {""}
    assert texts(languages.ANY, "ab", 2) == {"", "a", "b", "aa", "ab", "ba", "bb"}
    assert languages.EMPTY.edges() == () and not languages.EMPTY.accepting
    assert [languages.is_empty(one) for one in (languages.EMPTY, languages.EPSILON, languages.ANY)] == [1, 0, 0]
    assert languages.complement(languages.EMPTY) is languages.ANY
    assert languages.complement(languages.ANY) is languages.EMPTY
    assert languages.union() is languages.EMPTY
    assert languages.intersect() is languages.ANY
    assert languages.concat() is languages.EPSILON
    assert languages.literals([]) is languages.EMPTY
    assert languages.literals([""]) is languages.EPSILON
    assert languages.chars([]) is languages.EMPTY


def test_equal_positions_are_the_same_object() -> None:
    languages = Languages()
    a, b = languages.literal("a"), languages.literal("b")
    assert languages.union(a, b) is languages.chars([(97, 98)])
    assert languages.concat(a, b) is languages.literal("ab")
    assert languages.concat(a, languages.EMPTY) is languages.EMPTY
    assert languages.repeat(a, 0, 0) is languages.EPSILON
    assert languages.repeat(a, 3, 2) is languages.EMPTY
    assert languages.repeat(a, 1, 1) is a
    assert languages.repeat(languages.EMPTY, 0, None) is languages.EPSILON
    assert languages.union(a, languages.EMPTY) is a
    assert languages.intersect(a, languages.ANY) is a
    assert languages.intersect(a, b) is languages.EMPTY
    assert languages.complement(languages.complement(a)) is a
    assert languages.literal("xab").edges()[0][2] is languages.literal("ab")
    run = languages.repeat(a, 2, 9)
    assert run.edges()[0][2] is languages.repeat(a, 1, 8)
    window = languages.repeat(languages.chars(ALL), 3, 5)
    assert languages.intersect(run, window) is languages.repeat(a, 3, 5)
    assert languages.complement(languages.complement(window)) is window
    assert languages.intersect(window, languages.repeat(languages.chars(ALL), 6, None)) is languages.EMPTY


def test_universe() -> None:
    languages = Languages(((48, 57), (97, 99)))
    assert texts(languages.ANY, "1adA", 1) == {"", "1", "a"}
    assert languages.chars([(65, 90)]) is languages.EMPTY
    assert languages.finite(languages.literals(["ab", "aB", "12"]), 9) == ["12", "ab"]
    assert languages.literal("aB") is languages.EMPTY
    assert languages.regex("[^a]").matches("b") and not languages.regex("[^a]").matches("d")
    assert languages.complement(languages.literal("a")).edges()[0][:2] == (48, 57)


def test_a_position_of_ones_own_takes_part() -> None:
    languages = Languages()
    seven = multiple(languages, 7, 0, begun=False)
    assert multiple(languages, 7, 0, begun=False) is seven
    limited = languages.intersect(seven, languages.regex("[1-9][0-9]?"))
    assert languages.finite(limited, 20) == sorted(str(n) for n in range(7, 100, 7))
    both = languages.intersect(seven, multiple(languages, 5, 0, begun=False))
    assert both.matches("70") and not both.matches("14")
    rest = languages.complement(seven)
    assert rest.matches("8") and rest.matches("x7") and not rest.matches("14")
    either = languages.union(seven, languages.literal("no"))
    assert either.matches("no") and either.matches("21") and not either.matches("22")
    listed = languages.concat(languages.literal("["), languages.repeat(seven, 2, 2), languages.literal("]"))
    assert listed.matches("[77]") and not listed.matches("[7]") and listed.matches("[1414]")
    assert not languages.is_empty(both)
    assert languages.intersect(languages.complement(seven), seven) is languages.EMPTY
    assert languages.is_empty(languages.intersect(seven, languages.regex("[a-z]+")))


def test_listed_words_are_compared_without_a_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    languages = Languages()
    some, more = languages.literals(["a", "b", "cd"]), languages.literals(["b", "cd", "e", "f"])
    pattern = languages.regex("[a-z]")
    others = languages.complement(more)
    monkeypatch.setattr(Language, "matches", lambda self, text: pytest.fail(f"{text} was walked"))
    assert languages.intersect(some, more) is languages.literals(["b", "cd"])
    assert languages.intersect(some, others) is languages.literals(["a"])
    assert languages.intersect(some, others, more) is languages.EMPTY
    monkeypatch.undo()
    assert languages.intersect(pattern, others, some) is languages.literals(["a"])


def test_finite() -> None:
    languages = Languages()
    assert languages.finite(languages.regex("a?b{1,2}"), 4) == ["ab", "abb", "b", "bb"]
    assert languages.finite(languages.regex("a?b{1,2}"), 3) is None
    assert languages.finite(languages.regex("a*"), 1000) is None
    assert languages.finite(languages.regex("(?:ab){3}(?:ba)*"), 1000) is None
    assert languages.finite(languages.regex(".{5000}"), 1000) is None
    assert languages.finite(languages.regex("a{5000}"), 1) == ["a" * 5000]
    assert languages.finite(languages.EMPTY, 0) == []


def test_dead_ends_are_left_out() -> None:
    languages = Languages()
    # of a and c only the branch through a can end within the other language
    language = languages.intersect(languages.regex("ab{3}|cd{3}"), languages.complement(languages.regex("c.*")))
    assert [edge[:2] for edge in language.edges()] == [(97, 97)]
    odd, even = languages.regex("a(?:aa)*"), languages.regex("(?:aa)*")
    assert languages.intersect(odd, even) is languages.EMPTY
    assert languages.intersect(languages.regex("x(?:ab)*"), languages.regex("x(?:ba)*")) is languages.literal(
        "x"
    ) or languages.finite(languages.intersect(languages.regex("x(?:ab)*"), languages.regex("x(?:ba)*")), 5) == ["x"]


def test_too_many_positions_is_an_error() -> None:
    languages = Languages(max_positions=50)
    at: Language = languages.regex("(?:.*a.{200}b){2}")
    with pytest.raises(ConstraintError, match="more than 50 positions at once; simplify"):
        for step in range(200):
            at = next(target for low, high, target in at.edges() if low <= (97 if step % 2 else 120) <= high)


def test_too_hard_a_question_is_an_error() -> None:
    languages = Languages(max_search=200)
    for _ in range(2):  # asked again it is refused as well, and at once
        made = languages.nbytes
        with pytest.raises(ConstraintError, match="takes more than 200 steps to decide; use fewer"):
            languages.intersect(languages.regex("(?:a{7})*b"), languages.regex("(?:a{11})*b{2}|(?:a{13})*b{3}"))
    assert languages.nbytes == made


def test_deadline_is_kept_and_work_goes_on() -> None:
    languages = Languages()
    a, b = languages.regex("(?:a{29})+b"), languages.regex("(?:a{31})+b|(?:a{37})+b")
    tries = 0
    while True:
        languages.deadline = time.monotonic() + 0.001
        try:
            both = languages.intersect(a, b)
            break
        except Unfinished:
            tries += 1
    languages.deadline = None
    assert tries > 0
    assert both.matches("a" * 29 * 31 + "b") and not both.matches("a" * 29 + "b")
    languages.deadline = time.monotonic() - 1
    with pytest.raises(Unfinished):
        languages.regex("never seen before").edges()
    languages.deadline = None
    assert languages.regex("never seen before").edges()


def test_counters_share_capped_positions() -> None:
    languages = Languages()
    for pattern in ("[a-z]{1,5000}", "(?:[a-z]{1,3}){9,900}x", "(?:[a-z]{1,3}){0,900}(?:x[a-z]{2,700}){3,800}"):
        at: Language = languages.regex(pattern)
        seen = set()
        for _ in range(800):
            seen.add(at.capped(20))
            at = next(target for low, high, target in at.edges() if low <= 97 <= high)
        assert len(seen) < 30, pattern


def test_length_windows_share_capped_positions() -> None:
    languages = Languages()
    anything = languages.chars(ALL)
    for pattern, low, most in (("^[a-z]+(-[a-z]+)*$", 2, 8), ("^[A-Z][a-z-]+$", 700, 30), ("^[a-z](?:a|b|cd)*$", 0, 8)):
        language = languages.intersect(languages.regex(pattern, "ecma"), languages.repeat(anything, low, 5000))
        at = language.edges()[0][2]
        seen = set()
        for _ in range(900):
            seen.add(at.capped(20))
            at = next(target for start, high, target in at.edges() if start <= 97 <= high)
        assert len(seen) <= most, pattern


def test_a_lookahead_at_the_length_is_a_counter() -> None:
    languages = Languages()
    limited = languages.regex("^(?=.{3,64}$)[a-z.-]+$", "ecma")
    assert limited is languages.regex("^[a-z.-]{3,64}$", "ecma")
    not_blank = languages.regex(r"^(?!\s*$)[a-z ]{1,9}$", "ecma")
    after_a = next(target for low, high, target in not_blank.edges() if low <= 97 <= high)
    assert after_a is languages.regex("^[a-z ]{0,8}$", "ecma")


def test_costs_stay_small() -> None:
    """Generous bounds (some 20 times what a quiet machine needs), so that only a change of order shows."""

    def timed(pattern: str, bound: float) -> Language:
        languages = Languages()
        languages.regex(r"\w\d\s")  # Unicode's tables are made once per process
        start = time.thread_time()
        language = languages.regex(pattern)
        assert time.thread_time() - start < bound, pattern
        return language

    timed("[a-zA-Z0-9 ]{1,5000}", 0.01)
    timed("|".join(f"w{number * 7919}" for number in range(1000)), 0.4)
    at = timed("[a-zA-Z0-9 ]{1,5000}", 0.01)
    start = time.thread_time()
    for _ in range(2000):
        at = at.edges()[0][2]
    assert time.thread_time() - start < 2000 * 400e-6
    at = timed(r"\w{1,1000}", 0.05)
    start = time.thread_time()
    for _ in range(900):
        at = at.edges()[0][2]
    assert time.thread_time() - start < 900 * 2e-3
    languages = Languages()
    start = time.thread_time()
    language = languages.literals(f"w{number * 7919}" for number in range(1000))
    language.edges()[0][2].edges()
    assert time.thread_time() - start < 0.2


def test_memory_is_told() -> None:
    languages = Languages()
    before = languages.nbytes
    at: Language = languages.regex("[a-z]{1,1000}")
    for _ in range(500):
        at = at.edges()[0][2]
    assert 100_000 < languages.nbytes - before < 2_000_000


def test_capping_looks_at_shared_parts_once() -> None:
    """Groups inside groups are few nodes in many places: 2^40 of them when each place is looked at."""
    languages = Languages()
    nested = languages.regex("a{1,9}b")
    for _ in range(40):
        nested = languages.union(languages.concat(nested, languages.regex("x{1,300}y"), nested), languages.literal("z"))
    assert nested.capped(20).capped(20) is nested.capped(20)
    within = languages.intersect(nested, languages.regex("[ab]{1,90}"))
    assert within.matches("ab") is nested.matches("ab")


def test_what_is_left_out_of_whatever_kind_is_one_language() -> None:
    languages = Languages()
    some = [numbers.equal_to(languages, value) for value in range(50)]
    found = languages.intersect(numbers.number(languages), *map(languages.complement, some))
    assert isinstance(found, Both) and len(found.parts) == 2
    assert not found.matches("49.0") and found.matches("50") and found.matches("7.5") and not found.matches("x")
