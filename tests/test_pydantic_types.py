"""The schema of a Pydantic type writes what the type's validation takes, and not what it refuses."""

from __future__ import annotations

import datetime
import ipaddress
import json
from decimal import Decimal
from typing import Annotated, Any

import pydantic
import pytest
from pydantic import UUID4, AnyUrl, Base64Bytes, Field, FutureDate, HttpUrl, IPvAnyAddress, IPvAnyNetwork, NaiveDatetime
from pydantic.networks import MongoDsn, PostgresDsn
from schema_kit import Written

from plait.lang.schemas import read_type

CENTS = Annotated[Decimal, Field(max_digits=5, decimal_places=2)]
HALVES = Annotated[Decimal, Field(ge=0, le=10, multiple_of=Decimal("0.5"))]
DIGITS = Annotated[Decimal, Field(max_digits=3)]


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
        (Annotated[Decimal, Field(decimal_places=1)], [10.5, 3], [0.25]),
        (dict[int, str], [{}, {"-12": "a", "0": ""}], [{"a": "b"}, {"1.5": ""}]),
        (dict[float, bool], [{"1.5": True}], [{"a": True}]),
        (dict[bool, int], [{"true": 1, "false": 2}], [{"yes-no": 1}]),
        (UUID4, ["12345678-1234-4678-9234-567812345678"], ["12345678-1234-1678-9234-567812345678", "x"]),
        (HttpUrl, ["https://example.com/a?b=c", "http://a.b"], ["ftp://example.com", "x:y"]),
        (AnyUrl, ["ftp://example.com"], ["x"]),
        (PostgresDsn, ["postgresql://db.example.com/x"], ["http://example.com", "x"]),
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


def test_what_only_code_knows_stays_an_error_of_the_value() -> None:
    typed = read_type(FutureDate)
    assert Written(typed.schema).writes("2001-01-01")
    with pytest.raises(ValueError, match="future"):
        typed.parse('"2001-01-01"')
