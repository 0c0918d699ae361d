"""What the constraint of a Pydantic type writes, the type takes: random models, random texts."""

from __future__ import annotations

import datetime as dt
import ipaddress
import pathlib
import random
import uuid
import warnings
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple

import annotated_types as at
import msgspec
import pydantic
import pytest
from random_models import Color, Models, compiled, write

from plait.lang.schemas import read_type
from plait.runtime.errors import InvalidConstraint


class Point(NamedTuple):
    x: int
    y: dt.date | None = None


def values(seeds: range, each: int) -> int:
    count = 0
    for seed in seeds:
        rng = random.Random(seed)
        hint = Models(rng).model()
        typed = read_type(hint)
        assert not typed.notes, (hint, typed.notes)
        constraint = compiled(typed.schema)
        for _ in range(each):
            text = write(constraint, rng, rng.choice([5, 40, 120]))
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    typed.parse(text)
            except ValueError as error:
                pytest.fail(f"seed {seed}: {text}\n{error}\n{typed.schema}")
            count += 1
    return count


def test_none_is_refused() -> None:
    assert values(range(40), 3) == 120


@pytest.mark.slow
def test_none_of_two_thousand_is_refused() -> None:
    assert values(range(1000, 1500), 4) == 2000


DAY, MOMENT, LONG = dt.date(2020, 1, 31), dt.datetime(2020, 1, 31, 23, 59, 59, 1), dt.timedelta(days=3, seconds=7)
ZONED = MOMENT.replace(tzinfo=dt.timezone(dt.timedelta(hours=-5, minutes=-30)))
STANDARD: tuple[Any, ...] = (
    Annotated[dt.date, at.Interval(gt=DAY, le=DAY + 40 * LONG)],
    Annotated[dt.date | None, at.Ge(DAY)],
    Annotated[dt.datetime, at.Lt(MOMENT)],
    Annotated[dt.datetime, at.Interval(gt=ZONED, lt=ZONED + LONG)],
    Annotated[dt.datetime, at.Timezone(None)],
    Annotated[dt.time, at.Ge(MOMENT.time())],
    Annotated[dt.timedelta, at.Interval(gt=LONG, lt=2 * LONG)],
    Annotated[Decimal, at.Interval(gt=Decimal("0.1"), le=Decimal("2.5"))],
    Annotated[int, at.MultipleOf(7)],
    *(dt.date, dt.datetime, dt.time, dt.timedelta, Decimal, uuid.UUID, pathlib.Path, float),
    *(ipaddress.IPv4Address, ipaddress.IPv6Address, ipaddress.IPv4Network, ipaddress.IPv6Interface),
    dict[Annotated[dt.date, at.Ge(DAY)], list[set[int]]],
)


@pytest.mark.parametrize("hint", STANDARD, ids=str)
def test_the_standard_library_s_types_read_what_is_written(hint: Any) -> None:
    typed = read_type(hint)
    constraint, rng = compiled(typed.schema), random.Random(str(hint))
    judge = pydantic.TypeAdapter(hint)
    for _ in range(8):
        text = write(constraint, rng, rng.choice([3, 30]))
        assert typed.parse(text) == judge.validate_json(text), text


class Shape(msgspec.Struct, tag=True):
    size: Annotated[int, msgspec.Meta(ge=3, multiple_of=5)]
    name: Annotated[str, msgspec.Meta(pattern=r"^\W\D*$", description="odd")] = "-"


class Line(msgspec.Struct, tag="line", rename="camel"):
    from_point: tuple[float, float]
    next_shape: Shape | None = None


class Row(msgspec.Struct, array_like=True):
    a: int
    b: str = ""

    def __post_init__(self) -> None:
        pass


STRUCTS: tuple[Any, ...] = (
    *(dt.date, dt.datetime, dt.time, dt.timedelta, Decimal, uuid.UUID, bytes, Color, set[int], Any, float | None),
    *(Annotated[dt.datetime, msgspec.Meta(tz=False)], Annotated[dt.time, msgspec.Meta(tz=False)]),
    *(Annotated[bytes, msgspec.Meta(min_length=2, max_length=5)], Annotated[float, msgspec.Meta(gt=0.5)]),
    *(dict[int, str], dict[uuid.UUID, int], dict[dt.date, int], dict[Decimal, Color], dict[Color, bytes]),
    *(dict[Annotated[int, msgspec.Meta(gt=-5, le=12)], int], dict[Literal[1, "a"], int]),
    *(Shape | Line, list[Row], dict[str, Shape | Line | None], Point, Literal["a", 1, None]),
)


@pytest.mark.parametrize("hint", STRUCTS, ids=str)
def test_msgspec_reads_what_is_written(hint: Any) -> None:
    typed = read_type(msgspec.defstruct("Held", [("x", hint), ("y", hint | None, None)]))
    constraint, rng = compiled(typed.schema), random.Random(str(hint))
    for _ in range(8):
        text = write(constraint, rng, rng.choice([3, 40]))
        typed.parse(text)
    assert typed.notes == (("Row: what Row.__post_init__ asks for",) if hint == list[Row] else ())


def test_what_msgspec_s_schema_cannot_say_is_refused() -> None:
    for hint in (complex, dict[bool, int]):
        with pytest.raises(InvalidConstraint, match=r"no JSON (Schema|object)"):
            read_type(msgspec.defstruct("Held", [("x", hint)]))
