"""formatMinimum and its kin: what they leave of a format is what Python's datetime has between the bounds."""

from __future__ import annotations

import datetime as dt
import random
import re

import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schema_kit import Written
from test_formats import draw

from plait.constrained.interface import ConstraintError
from plait.constrained.regular import formats
from plait.constrained.regular.languages import Languages
from plait.constrained.regular.ranges import ORDERED, Bounds, crossed, read
from plait.constrained.schema.check import check
from plait.constrained.schema.options import SchemaOptions

LANGUAGES = Languages()
UTC = dt.UTC
ZONES = st.integers(-23 * 60 - 59, 23 * 60 + 59).map(lambda minutes: dt.timezone(dt.timedelta(minutes=minutes)))
NEAR = st.sampled_from([0, 0, 1, -1, 2, 9, -10, 59, 60, -61, 3600, 86_400, -86_400, 10**6])
FIELDS = ("minimum", "exclusive_minimum", "maximum", "exclusive_maximum")


@st.composite
def bounded(draw, values, text):  # type: ignore[no-untyped-def]
    """Bounds as text and as values by name."""
    names = draw(st.lists(st.sampled_from(FIELDS), min_size=1, max_size=3, unique=True))
    limits = {name: draw(values) for name in names}
    return Bounds(**{name: text(value) for name, value in limits.items()}), limits


def inside(value, limits) -> bool:  # type: ignore[no-untyped-def]
    compare = {
        "minimum": lambda limit: value >= limit,
        "exclusive_minimum": lambda limit: value > limit,
        "maximum": lambda limit: value <= limit,
        "exclusive_maximum": lambda limit: value < limit,
    }
    return all(compare[name](limit) for name, limit in limits.items())


def check_text(name: str, bounds: Bounds, text: str, expected: bool) -> None:
    language, outside = formats.language(LANGUAGES, name, bounds), formats.outside(LANGUAGES, name, bounds)
    assert language.matches(text) is expected, (bounds, text)
    assert not (expected and outside.matches(text)), (bounds, text)


def members(name: str, bounds: Bounds, count: int = 4) -> list[str]:
    language = formats.language(LANGUAGES, name, bounds)
    if language is LANGUAGES.EMPTY:
        return []
    rng = random.Random(str(bounds))
    found = [draw(language, rng) for _ in range(count)]
    outside = formats.outside(LANGUAGES, name, bounds)
    assert not any(outside.matches(text) for text in found)
    return found


@settings(max_examples=60)
@given(bounded(st.dates(), dt.date.isoformat), st.dates(), NEAR, st.sampled_from(FIELDS))
def test_dates(given, value, near, field) -> None:  # type: ignore[no-untyped-def]
    bounds, limits = given
    close = limits.get(field, value).toordinal() + near
    for one in (value, dt.date.fromordinal(min(max(close, 1), dt.date.max.toordinal()))):
        check_text("date", bounds, one.isoformat(), inside(one, limits))
    for text in members("date", bounds):
        assert inside(dt.date.fromisoformat(text), limits), text


def moved(value: dt.datetime, seconds: float) -> dt.datetime:
    try:
        return value + dt.timedelta(seconds=seconds)
    except OverflowError:
        return value


def beside(limits) -> list[dt.datetime]:  # type: ignore[no-untyped-def]
    """What a bound first lets in or leaves out."""
    return [moved(limit, step) for limit in limits.values() for step in (0, 1e-6, -1e-6)]


def z(text: str) -> str:
    return text.replace("+00:00", "Z")


@settings(max_examples=60)
@given(
    bounded(st.datetimes(timezones=st.one_of(st.just(UTC), ZONES)), lambda value: z(value.isoformat())),
    st.datetimes(timezones=st.just(UTC)),
    NEAR,
    st.sampled_from([1, 1e-6, 0.1]),
    st.sampled_from(FIELDS),
)
def test_moments_are_written_in_utc_or_at_the_offset_of_a_bound(given, value, near, unit, field) -> None:  # type: ignore[no-untyped-def]
    bounds, limits = given
    close = moved(limits.get(field, value), near * unit)
    for one in (value, close, *beside(limits)):
        check_text("date-time", bounds, z(one.isoformat()), inside(one, limits))
    offsets = {UTC, *(limit.tzinfo for limit in limits.values())}
    for text in members("date-time", bounds):
        made = dt.datetime.fromisoformat(text)
        assert inside(made, limits), text
        assert made.tzinfo in offsets
        assert "+00:00" not in text


@settings(max_examples=60)
@given(
    bounded(st.datetimes(), dt.datetime.isoformat),
    st.datetimes(),
    NEAR,
    st.sampled_from([1, 1e-6, 0.1]),
    st.sampled_from(FIELDS),
)
def test_moments_without_an_offset(given, value, near, unit, field) -> None:  # type: ignore[no-untyped-def]
    bounds, limits = given
    for one in (value, moved(limits.get(field, value), near * unit), *beside(limits)):
        check_text("date-time-local", bounds, one.isoformat(), inside(one, limits))
        check_text("date-time-local", bounds, z(one.replace(tzinfo=UTC).isoformat()), False)
    for text in members("date-time-local", bounds):
        assert inside(dt.datetime.fromisoformat(text), limits), text


@settings(max_examples=60)
@given(bounded(st.times(), dt.time.isoformat), st.times(), st.integers(0, 6))
def test_times_without_an_offset(given, value, places) -> None:  # type: ignore[no-untyped-def]
    bounds, limits = given
    for one in (value, *limits.values()):
        check_text("time-local", bounds, one.isoformat(), inside(one, limits))
    text = value.isoformat("microseconds")[: 9 + places] if places else value.isoformat("seconds")
    check_text("time-local", bounds, text, inside(dt.time.fromisoformat(text), limits))
    for text in members("time-local", bounds):
        assert inside(dt.time.fromisoformat(text), limits), text


@settings(max_examples=60)
@given(bounded(st.times(timezones=st.one_of(st.just(UTC), ZONES)), lambda value: z(value.isoformat())), st.times())
def test_times(given, value) -> None:  # type: ignore[no-untyped-def]
    bounds, limits = given
    for one in (value.replace(tzinfo=UTC), *limits.values()):
        check_text("time", bounds, z(one.isoformat()), inside(one, limits))
    for text in members("time", bounds):
        assert inside(dt.time.fromisoformat(text), limits), text


def spelled(value: dt.timedelta) -> str:
    text = f"P{value.days}D" if value.days else "P"
    return text + f"T{value.seconds}.{value.microseconds:06}S"


def length(text: str) -> dt.timedelta:
    numbers = {unit: int(number) for number, unit in re.findall("([0-9]+)([A-Z])", text.split("T")[0])}
    timed = {unit: int(number) for number, unit in re.findall("([0-9]+)([A-Z])", text.partition("T")[2])}
    assert not numbers.keys() - {"W", "D"}
    return dt.timedelta(
        weeks=numbers.get("W", 0),
        days=numbers.get("D", 0),
        hours=timed.get("H", 0),
        minutes=timed.get("M", 0),
        seconds=timed.get("S", 0),
    )


SPANS = st.one_of(
    st.timedeltas(dt.timedelta(0), dt.timedelta(days=400)),
    st.integers(0, 5000).map(lambda minutes: dt.timedelta(minutes=minutes)),
)


@settings(max_examples=60)
@given(bounded(SPANS, spelled), st.integers(0, 400), st.integers(0, 30), st.integers(0, 70), st.integers(0, 70))
def test_durations(given, days, hours, minutes, seconds) -> None:  # type: ignore[no-untyped-def]
    bounds, limits = given
    usual = hours < 24, minutes < 60, seconds < 60
    for text, normal in (
        (f"P{days}DT{hours}H{minutes}M{seconds}S", all(usual)),
        (f"PT{days}H{minutes}M", usual[1]),
        (f"PT{days}M{seconds}S", usual[2]),
        (f"P{days}DT{minutes * 60}S", True),
        (f"P{days}DT{hours}H", usual[0]),
        (f"P{days}D", True),
        (f"PT{days * 60}S", True),
        (f"P{days}W", True),
    ):
        check_text("duration", bounds, text, normal and inside(length(text), limits))
    for text in members("duration", bounds):
        assert inside(length(text), limits), text


def test_a_duration_of_any_length_fits_a_timedelta() -> None:
    years, rest = "P999999Y999999M", "99999999DT999999H999999M99999999S"
    assert formats.language(LANGUAGES, "duration").matches(years + rest)
    assert dt.timedelta(days=999_999 * 366 + 999_999 * 31) + length(f"P{rest}") < dt.timedelta.max
    assert pydantic.TypeAdapter(dt.timedelta).validate_json(f'"{years}{rest}"')


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("date", "2024-02-30"),
        ("date", "24-02-01"),
        ("date-time", "2024-02-01T10:00:00"),
        ("date-time", "2024-02-01T24:00:00Z"),
        ("date-time-local", "2024-02-01T10:00:00Z"),
        ("time", "10:00:00"),
        ("time-local", "10:00:00+01:00"),
        ("duration", "P1M"),
        ("duration", "P"),
        ("duration", "PT"),
        ("duration", "-P1D"),
    ],
)
def test_a_bound_that_is_none_is_refused_by_name(name: str, text: str) -> None:
    report = check({"format": name, "formatMaximum": text}, SchemaOptions())
    assert [(one.keyword, one.pointer) for one in report.errors] == [("formatMaximum", "#")]
    assert text in report.errors[0].message and name in report.errors[0].message


def test_bounds_beside_each_other_and_in_parts() -> None:
    first = {"type": "string", "format": "date", "formatMinimum": "2024-01-10"}
    both = Written({"allOf": [first, {"format": "date", "formatExclusiveMaximum": "2024-01-12"}]})
    assert [both.writes(f"2024-01-{day}") for day in ("09", 10, 11, 12)] == [False, True, True, False]
    zones = Written(
        {
            "type": "string",
            "allOf": [
                {"format": "date-time", "formatMinimum": "2024-01-10T00:00:00+02:00"},
                {"format": "date-time", "formatMaximum": "2024-01-10T00:00:00-02:00"},
            ],
        }
    )
    assert zones.writes("2024-01-10T01:00:00Z") and not zones.writes("2024-01-10T01:00:00+02:00")
    maybe = Written({"anyOf": [first, {"type": "null"}, {"type": "array", "items": first}]})
    assert maybe.writes(None) and maybe.writes(["2024-01-10"]) and not maybe.writes(["2024-01-09"])
    keys = Written({"type": "object", "propertyNames": first})
    assert keys.writes({"2024-02-01": 1}) and not keys.writes({"2023-02-01": 1})
    none_of = Written({"type": "string", "not": first})
    assert none_of.writes("2024-01-09") and none_of.writes("soon") and not none_of.writes("2024-01-10")


def test_exclusive_as_true_beside_the_bound() -> None:
    schema = {"type": "string", "format": "date", "formatMinimum": "2024-01-10", "formatExclusiveMinimum": True}
    written = Written(schema)
    assert not written.writes("2024-01-10") and written.writes("2024-01-11")


def test_crossed_bounds_are_said_at_compile() -> None:
    day = {"type": "string", "format": "date", "formatMinimum": "2024-01-10", "formatMaximum": "2024-01-09"}
    with pytest.raises(ConstraintError, match="its bounds leave no date"):
        Written({"type": "object", "properties": {"day": day}, "required": ["day"]})
    assert crossed("duration", Bounds(exclusive_maximum="PT0S"))


def test_bounds_without_an_order_say_nothing() -> None:
    schema = {"type": "string", "format": "email", "formatMinimum": "2024-01-10"}
    report = check(schema, SchemaOptions())
    assert [one.keyword for one in report.notes] == ["formatMinimum"]
    dated = {"type": "string", "format": "date", "formatMinimum": "2024-01-10"}
    assert Written(dated, format="annotate").writes("2024-01-09")


def test_every_format_with_an_order_is_one() -> None:
    assert formats.known() >= ORDERED
    with pytest.raises(ValueError, match="2024-12-31"):
        read("date", "x")
