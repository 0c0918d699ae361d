"""The schema of a Pydantic type writes what the type's validation takes, and not what it refuses."""

from __future__ import annotations

import datetime
import ipaddress
import json
import pathlib
import re
import zoneinfo
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any

import annotated_types
import pydantic
import pydantic.dataclasses
import pytest
from pydantic import (
    UUID4,
    AnyUrl,
    Base64Bytes,
    Field,
    FutureDate,
    FutureDatetime,
    HttpUrl,
    IPvAnyAddress,
    IPvAnyNetwork,
    NaiveDatetime,
    PastDate,
    PastDatetime,
    StringConstraints,
)
from pydantic.networks import MongoDsn, PostgresDsn
from schema_kit import Written

from plait.lang import schemas, temporal
from plait.lang.schemas import read_type

UTC = datetime.UTC
CENTS = Annotated[Decimal, Field(max_digits=5, decimal_places=2)]
HALVES = Annotated[Decimal, Field(ge=0, le=10, multiple_of=Decimal("0.5"))]
DIGITS = Annotated[Decimal, Field(max_digits=3)]


class Point(pydantic.BaseModel):
    x: int
    y: tuple[int]
    z: str = ""


class Line(pydantic.BaseModel):
    price: CENTS | None
    at: NaiveDatetime
    links: list[HttpUrl] = []


@pytest.mark.parametrize(
    ("hint", "good", "bad"),
    [
        (Decimal, [1.25, -3, 0], ["1.25", "x", True]),
        (CENTS, [999.99, 0.01, -12.5, 100], [1000, 0.001, "1"]),
        (HALVES, [0, 9.5, 10], [10.5, 0.25, -0.5]),
        (DIGITS, [999, 99.9, 0.123, -1.23], [1000, 0.1234, 99.99]),
        (Annotated[Decimal, Field(ge=Decimal("0.1"), le=Decimal("0.30000000000000000001"))], [0.1, 0.3], [0.09, 0.31]),
        (Annotated[Fraction, Field(le=Fraction(7, 3))], [2.333, -5], [2.3333333333333335, 2.5]),
        (Annotated[Decimal, Field(decimal_places=1)], [10.5, 3], [0.25]),
        (dict[int, str], [{}, {"-12": "a", "0": ""}], [{"a": "b"}, {"1.5": ""}]),
        (dict[float, bool], [{"1.5": True}], [{"a": True}]),
        (dict[bool, int], [{"true": 1, "false": 2}], [{"yes-no": 1}]),
        (UUID4, ["12345678-1234-4678-9234-567812345678"], ["12345678-1234-1678-9234-567812345678", "x"]),
        (HttpUrl, ["https://example.com/a?b=c", "http://a.b"], ["ftp://example.com", "x:y"]),
        (AnyUrl, ["ftp://example.com"], ["x"]),
        (
            PostgresDsn,
            ["postgresql://db.example.com/x", "postgres://me:it@localhost:5432/x"],
            ["http://example.com", "x"],
        ),
        (MongoDsn, ["mongodb://db.example.com/x"], ["x"]),
        (IPvAnyAddress, ["10.0.0.1", "::1"], ["x", "10.0.0.256"]),
        (IPvAnyNetwork, ["10.0.0.0/8", "::"], ["10.0.0.1/8", "x"]),
        (ipaddress.IPv4Network, ["10.1.0.0/16", "10.1.2.3"], ["10.1.2.3/16"]),
        (ipaddress.IPv4Interface, ["10.1.2.3/16"], ["10.1.2.3/33"]),
        (Base64Bytes, ["QUI=", "QUJD", ""], ["QUJ", "Q"]),
        (complex, ["1+2j"], ["x", "1+2"]),
        (NaiveDatetime, ["2024-02-28T10:00:00.5"], ["2024-02-28T10:00:00Z", "2024-02-30T10:00:00"]),
        (datetime.datetime, ["2024-02-29T10:00:00Z"], ["2024-06-30T23:59:60Z", "2024-02-28t10:00:00z"]),
        (datetime.time, ["10:00:00Z"], ["10:00:00z"]),
        (datetime.date, ["2024-02-29"], ["0000-01-01", "2023-02-29"]),
        (
            Annotated[datetime.date, Field(ge=datetime.date(2020, 1, 1), lt=datetime.date(2021, 1, 1))],
            ["2020-01-01", "2020-12-31"],
            ["2019-12-31", "2021-01-01"],
        ),
        (
            Annotated[datetime.date | None, Field(gt=datetime.date(2020, 1, 1))],
            ["2020-01-02", None],
            ["2020-01-01"],
        ),
        (
            Annotated[datetime.datetime, Field(ge=datetime.datetime(2020, 1, 1, tzinfo=UTC))],
            ["2020-01-01T00:00:00Z"],
            ["2019-12-31T23:59:59.999999Z", "2020-01-01T00:00:00+00:01", "2020-01-02T00:00:00"],
        ),
        (
            Annotated[datetime.datetime, Field(le=datetime.datetime(2020, 1, 1, 12, 30))],
            ["2020-01-01T12:30:00", "2020-01-01T12:29:59.999999"],
            ["2020-01-01T12:30:00.000001", "2020-01-01T12:00:00Z"],
        ),
        (
            Annotated[pydantic.AwareDatetime, Field(le=datetime.datetime(2020, 1, 1, 12, 30))],
            ["2020-01-01T12:30:00Z"],
            ["2020-01-01T12:30:01Z", "2020-01-01T12:30:00"],
        ),
        (
            Annotated[datetime.time, Field(ge=datetime.time(9), lt=datetime.time(17, 30))],
            ["09:00:00", "17:29:59.5"],
            ["08:59:59", "17:30:00", "10:00:00Z"],
        ),
        (datetime.timedelta, ["P1DT2H3M4S", "PT0S", "P99999999D"], ["P999999999D", "PT99999999H", "-P1D"]),
        (
            Annotated[datetime.timedelta, Field(gt=datetime.timedelta(0), le=datetime.timedelta(days=1))],
            ["PT1S", "P1D", "PT24H", "PT1H30M"],
            ["PT0S", "P1DT1S", "PT25H", "P1M"],
        ),
        (dict[Annotated[int, Field(ge=-3, lt=25)], int], [{"-3": 1, "24": 2}], [{"25": 1}, {"-4": 1}]),
        (
            Annotated[str, StringConstraints(strip_whitespace=True, min_length=2)],
            ["ab", "a b"],
            [" a", "  ", "ab\n", "a\u0085", "\u3000ab"],
        ),
        (Annotated[str, Field(pattern=r"^\D+$")], ["ab"], ["a\u0663", "1"]),
        (Annotated[str, Field(pattern=r"^[^\w]\W$")], ["-+"], ["-\u00e9", "\u00e9-"]),
        (pydantic.Json, ["1", '{"a":[]}'.replace("[]", "2"), "null"], ["x", "{", ""]),
        (pydantic.Json[list[int]], ["[]", "[1,-2]"], ["[1.5]", "1", "[1,]"]),
        (pydantic.Json[Point], ['{"x":1,"y":[2]}', '{"x":-3,"y":[0],"z":"a"}'], ['{"x":1}', '{"x":"1","y":[2]}']),
        (pydantic.Json[Annotated[int, Field(ge=5, le=12)]], ["5", "12"], ["4", "13", "05"]),
        (
            HttpUrl,
            ["http://localhost:8080/a", "http://127.0.0.1?x=1", "https://me:it@a.b1.com/x"],
            ["http://a:70000", "http://a:80x", "https://1.2.3.999", "https://a.5", "https://xn--zz.com"],
        ),
        (pydantic.ByteSize, [5, "10 mb", "1.5kib"], ["x", -1, "10 q"]),
        (Annotated[bytes, Field(max_length=3)], ["abc"], ["\u00e9\u00e9"]),
        (re.Pattern, ["^[a-z]+$", "a.b"], ["(", "[z-a]", "a{3,2}"]),
        (zoneinfo.ZoneInfo, ["Europe/Paris", "UTC"], ["Europe/Nowhere"]),
        (pydantic.UUID7, ["01890a5d-ac96-774b-bcce-b302099a8057"], ["01890a5d-ac96-474b-bcce-b302099a8057"]),
        (pathlib.Path, ["a/b.txt", "/"], [1]),
        (
            Line,
            [{"price": 1.5, "at": "2024-02-28T10:00:00", "links": ["http://a.b"]}],
            [{"price": 1.555, "at": "2024-02-28T10:00:00"}, {"price": None, "at": "2024-02-28T10:00:00Z"}],
        ),
    ],
    ids=str,
)
def test_it_is_written_exactly_if_it_is_right(hint: Any, good: list[Any], bad: list[Any]) -> None:
    typed = read_type(hint)
    written = Written(typed.schema)
    for value in good:
        assert written.writes(value), value
        typed.parse(json.dumps(value))
    for value in bad:
        assert not written.writes(value), value


def test_addresses_of_mail() -> None:
    pytest.importorskip("email_validator")
    for hint, good, bad in (
        (
            pydantic.EmailStr,
            ["ada.lovelace+x@example.com", "o'brien@mail.example.org"],
            ["a@b", "a@x.test", "a b@c.de"],
        ),
        (pydantic.NameEmail, ["Ada Lovelace <ada@example.com>"], ["Ada <a@x.local>", "Ada"]),
    ):
        typed = read_type(hint)
        written = Written(typed.schema)
        for value in good:
            assert written.writes(value), value
            typed.parse(json.dumps(value))
        assert not any(written.writes(value) for value in bad)


def at(seconds: float, zone: datetime.tzinfo | None = UTC) -> str:
    return (datetime.datetime.now(zone) + datetime.timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def test_the_past_and_the_future_are_bounds() -> None:
    today = datetime.date.today()
    day = datetime.timedelta(days=2)
    for hint, good, bad in (
        (FutureDate, [str(today + day)], [str(today), str(today - day)]),
        (PastDate, [str(today - day)], [str(today), str(today + day)]),
        (FutureDatetime, [at(3 * 3600)], [at(60), at(-60)]),
        (PastDatetime, [at(-3601)], [at(60)]),
        (Annotated[FutureDate, Field(le=today + day)], [str(today + day)], [str(today + 2 * day), str(today)]),
        (Annotated[NaiveDatetime, Field(gt=datetime.datetime(2000, 1, 1))], ["2000-01-01T00:00:01"], [at(0)]),
    ):
        typed = read_type(hint)
        written = Written(typed.schema)
        for value in good:
            assert written.writes(value), (hint, value)
            typed.parse(json.dumps(value))
        for value in bad:
            assert not written.writes(value), (hint, value)
        assert not typed.notes


def test_the_future_is_read_anew_each_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    now = read_type(FutureDatetime).schema
    assert read_type(FutureDatetime).schema is now
    later = temporal.hour() + 48
    monkeypatch.setattr(temporal, "hour", lambda: later)
    monkeypatch.setattr(schemas, "hour", lambda: later)
    assert read_type(FutureDatetime).schema["formatExclusiveMinimum"] > now["formatExclusiveMinimum"]


class Trip(pydantic.BaseModel):
    begin: datetime.date
    end: Annotated[datetime.date, pydantic.AfterValidator(lambda day: day)]
    ticket: pydantic.FilePath | None = None
    seats: Annotated[int, annotated_types.Predicate(lambda seats: seats % 2 == 0)] = 2

    @pydantic.field_validator("begin")
    @classmethod
    def soon(cls, day: datetime.date) -> datetime.date:
        return day

    @pydantic.model_validator(mode="after")
    def in_order(self) -> Trip:
        return self


@pydantic.dataclasses.dataclass
class Stay:
    trips: list[Trip]

    def __post_init__(self) -> None:
        pass


def test_what_only_code_knows_is_noted() -> None:
    notes = (
        "Trip: the validator Trip.in_order",
        "Trip.begin: the validator Trip.soon",
        "Trip.end: the validator <lambda>",
        "Trip.ticket: what the file system has to say of the path",
        "Trip.seats: a predicate",
    )
    assert read_type(Trip).notes == notes
    assert read_type(Stay).notes == ("Stay: what Stay.__post_init__ asks for", *notes)
    odd = pydantic.Json[Annotated[str, Field(pattern="^x+$")]]
    assert read_type(list[odd]).notes == ("what the JSON in a string holds",)
    assert read_type(Line).notes == ()
