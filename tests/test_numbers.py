"""Number languages against exact fractions: bounds, whole values, multiples, negations, and what json.dumps writes."""

from __future__ import annotations

import json
import random
import re
import struct
from fractions import Fraction

import pytest

from plait.constrained.regular import numbers
from plait.constrained.regular.language import Language
from plait.constrained.regular.languages import Languages


@pytest.fixture(scope="module")
def languages() -> Languages:
    return Languages()


def random_text(rng: random.Random) -> str:
    if rng.random() < 0.5:
        text = str(rng.choice([0, rng.randint(0, 30), rng.randint(0, 3000)]))
        exponent = ""
    else:
        text = str(rng.randint(1, 9))
        exponent = rng.choice("eE") + rng.choice(["", "+", "-"]) + rng.choice(["0", "1", "2", "03", "002", "5"])
    if rng.random() < 0.6:
        text += "." + "".join(rng.choice("0123590") for _ in range(rng.randint(1, 4)))
    return rng.choice(["", "", "-"]) + text + exponent


def random_bound(rng: random.Random) -> Fraction | None:
    return rng.choice(
        [
            None,
            Fraction(rng.randint(-30, 30)),
            Fraction(rng.randint(-3000, 3000), rng.choice([1, 10, 100, 1000])),
            Fraction(rng.randint(-50, 50), rng.choice([3, 7, 9])),
            Fraction(random_text(rng)),
            rng.choice([-1, 1]) * Fraction(10) ** rng.randint(-6, 6),
        ]
    )


def texts_near(rng: random.Random, *values: Fraction | None) -> list[str]:
    texts = [random_text(rng) for _ in range(20)]
    for value in values:
        if value is not None:
            for step in (0, 1, -1):
                near = float(value) + step * 10.0 ** -rng.randint(0, 6)
                texts += [json.dumps(near), str(int(near))]
            texts += sorted(numbers.spellings(value))
    return texts


def members(language: Language, longest: int, prefix: str = "") -> set[str]:
    """All members of at most ``longest`` characters; on the way, that no position is a dead end."""
    found = {prefix} if language.accepting else set()
    if len(prefix) < longest:
        assert language.accepting or language.edges() or not prefix
        for low, high, target in language.edges():
            for code in range(low, high + 1):
                found |= members(target, longest, prefix + chr(code))
    return found


def test_the_universe(languages: Languages) -> None:
    number = numbers.number(languages)
    largest, smallest = "1.7976931348623157e+308", "5e-324"
    for text in ["0", "-0", "-0.0", "1E5", "1.5e+300", "1e-07", "1e007", largest, smallest, "9" * 38]:
        assert number.matches(text), text
    assert number.matches("-" + "9" * 18 + "." + "9" * 20)
    for text in ["", "-", "01", "1.", ".5", "1e", "+1", "0e5", "12e5", "1e309", "1.7976931348623158e308", "4e-324"]:
        assert not number.matches(text), text
    for text in ["9" * 39, "9" * 19 + ".5", "0." + "1" * 21, "1e1000", "--1", "1.5e", "Infinity", "NaN", " 1"]:
        assert not number.matches(text), text
    assert number.longest == 40


def test_what_json_writes_is_accepted(languages: Languages) -> None:
    rng = random.Random(1)
    number = numbers.number(languages)
    for _ in range(4000):
        (value,) = struct.unpack("d", rng.randbytes(8))
        if value - value == 0:
            assert number.matches(json.dumps(value)), value
        other = rng.choice([rng.gauss(0, 1) * 10.0 ** rng.randint(-6, 20), rng.randint(-(10**20), 10**20)])
        assert number.matches(json.dumps(other)), other


@pytest.mark.parametrize("seed", range(8))
def test_bounds_are_exact(languages: Languages, seed: int) -> None:
    rng = random.Random(seed)
    number = numbers.number(languages)
    for _ in range(60):
        low, high = random_bound(rng), random_bound(rng)
        if rng.random() < 0.1:
            high = low
        low_open, high_open = rng.random() < 0.4, rng.random() < 0.4
        bounds = (low, low_open, high, high_open)
        between, outside = numbers.between(languages, *bounds), numbers.outside(languages, *bounds)
        integer = numbers.integer(languages, *bounds)
        assert numbers.between(languages, *bounds) is between
        for text in texts_near(rng, low, high):
            if number.matches(text):
                value = Fraction(text)
                inside = (low is None or (value > low if low_open else value >= low)) and (
                    high is None or (value < high if high_open else value <= high)
                )
                assert between.matches(text) == inside, (text, bounds)
                assert outside.matches(text) != inside, (text, bounds)
                plain = re.fullmatch(r"-?\d+", text) is not None and text != "-0"
                assert integer.matches(text) == (inside and plain), (text, bounds)


def test_short_members_and_no_dead_ends(languages: Languages) -> None:
    rng = random.Random(7)
    texts = [""]
    for _ in range(4):
        texts += [text + char for text in texts for char in "0123456789.-" if len(text) < 4]
    texts = [text for text in set(texts) if re.fullmatch(r"-?(0|[1-9]\d*)(\.\d+)?", text)]
    for _ in range(6):
        low, high = random_bound(rng), random_bound(rng)
        expected = {t for t in texts if (low is None or Fraction(t) >= low) and (high is None or Fraction(t) <= high)}
        found = members(numbers.between(languages, low, False, high, False), 4)
        assert {text for text in found if "e" not in text.lower()} == expected


def test_whole_values(languages: Languages) -> None:
    rng = random.Random(3)
    number, whole, not_whole = (
        numbers.number(languages),
        numbers.whole_valued(languages),
        numbers.not_whole(languages),
    )
    for text in ["1", "-0.0", "1e0", "1.50e1", "1e-0", "1.7976931348623157e+308"]:
        assert whole.matches(text) and not not_whole.matches(text)
    for text in ["0.5", "1.5e0", "1e-1", "5e-324", "10.00000000000000000001"]:
        assert not_whole.matches(text) and not whole.matches(text)
    for _ in range(3000):
        text = random_text(rng)
        if number.matches(text):
            assert whole.matches(text) == (Fraction(text).denominator == 1), text
            assert not_whole.matches(text) == (Fraction(text).denominator != 1), text


@pytest.mark.parametrize("seed", range(4))
def test_multiples_are_exact(languages: Languages, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(50):
        divisor = rng.choice(
            [
                *map(Fraction, ("1/100", "1/2", "3", "7", "5/4", "1/3", "25")),
                Fraction(rng.randint(1, 500), rng.choice([1, 10, 100, 8])),
                Fraction(10) ** rng.randint(-8, 6),
            ]
        )
        low, high = random_bound(rng), random_bound(rng)
        multiple = numbers.multiple_of(languages, divisor, low, True, high, False)
        whole = numbers.multiple_of(languages, divisor, low, True, high, False, whole=True)
        other = numbers.not_multiple_of(languages, divisor)
        texts = texts_near(rng, low, high)
        for _ in range(20):
            texts += sorted(numbers.spellings(divisor * rng.randint(-200, 200)))
        for text in texts:
            if "e" in text.lower() or not numbers.number(languages).matches(text):
                assert "e" not in text.lower() or not multiple.matches(text)
                continue
            value = Fraction(text)
            divides = (value / divisor).denominator == 1
            inside = (low is None or value > low) and (high is None or value <= high)
            assert multiple.matches(text) == (divides and inside), (text, divisor, low, high)
            assert other.matches(text) != divides, (text, divisor)
            plain = re.fullmatch(r"-?\d+", text) is not None and text != "-0"
            assert whole.matches(text) == (divides and inside and plain), (text, divisor, low, high)


def test_multiples_have_no_dead_ends(languages: Languages) -> None:
    for divisor, low, high in [(7, 10, 99), (13, 1, 500), (250, 100, 260), (64, 65, 128)]:
        found = members(
            numbers.multiple_of(languages, Fraction(divisor), Fraction(low), False, Fraction(high), False, whole=True),
            5,
        )
        assert found == {str(n) for n in range(low, high + 1) if n % divisor == 0}


def test_empty_bounds(languages: Languages) -> None:
    one = Fraction(1)
    assert numbers.between(languages, one, True, one, False) is languages.EMPTY
    assert numbers.between(languages, Fraction(2), False, one, False) is languages.EMPTY
    assert numbers.integer(languages, Fraction(1, 3), False, Fraction(2, 3), False) is languages.EMPTY
    assert numbers.multiple_of(languages, Fraction(7), Fraction(8), False, Fraction(13), False) is languages.EMPTY
    assert numbers.integer(languages, Fraction(10) ** 50) is languages.EMPTY
    assert numbers.between(languages, Fraction(10) ** 400) is languages.EMPTY
    assert numbers.between(languages, Fraction(10) ** 300).matches("1e300")


def test_spellings_of_a_value(languages: Languages) -> None:
    for value, expected in [
        (2, {"2"}),
        (2.0, {"2", "2.0"}),
        (0.5, {"0.5"}),
        (1e300, {"1e+300"}),
        (-3, {"-3"}),
        (Fraction(1, 8), {"0.125"}),
        (Fraction(1, 3), set()),
        (10**50, {str(10**50)}),
        (10**5000, {"1" + "0" * 5000}),
        (Fraction("0.12345678901234567890123456789"), {"0.12345678901234567890123456789"}),
    ]:
        assert numbers.spellings(value) == expected
        written = numbers.written(languages, value)
        assert all(written.matches(text) for text in expected)
        assert (written is languages.EMPTY) == (not expected)
    two, not_two = numbers.equal_to(languages, 2), numbers.unequal_to(languages, 2)
    for text in ["2", "2.0", "2e0", "2.00E-00"]:
        assert two.matches(text) and not not_two.matches(text)
    for text in ["20", "-2", "2.01", "2e1"]:
        assert not_two.matches(text) and not two.matches(text)
    zero = numbers.equal_to(languages, 0)
    assert all(zero.matches(text) for text in ["0", "-0", "0.0", "-0.00"])


def test_mixed_with_other_languages(languages: Languages) -> None:
    both = languages.intersect(
        numbers.number(languages),
        numbers.multiple_of(languages, Fraction(7)),
        numbers.between(languages, Fraction(100), False, Fraction(200), False),
    )
    assert [n for n in range(300) if both.matches(str(n))] == list(range(105, 200, 7))
    huge = languages.intersect(
        numbers.multiple_of(languages, Fraction(7)), numbers.multiple_of(languages, Fraction(1, 10**6))
    )
    assert huge.matches("14.000000") and not huge.matches("14.0000007")
