"""Random Pydantic models, and texts that a constraint writes at random."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import enum
import ipaddress
import json
import pathlib
import random
import re
import uuid
import zoneinfo
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, Optional, Union

import pydantic
from pydantic import Field, StringConstraints
from pydantic.networks import MongoDsn, PostgresDsn, RedisDsn
from typing_extensions import TypedDict

from plait.constrained.compiler import build
from plait.constrained.interface import Constraint
from plait.constrained.lexicon import Lexicon
from plait.constrained.vocabulary import Vocabulary

UTC = dt.UTC


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue, light"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 20


# ---------------------------------------------------------------- types


class Models:
    """Types of random shape. Their bounds are never crossed."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self._made = 0
        self._kinds: list[Callable[[], Any]] = [
            self._integer,
            self._float,
            self._decimal,
            self._text,
            self._text,
            self._date,
            self._date,
            self._datetime,
            self._datetime,
            self._time,
            self._timedelta,
            self._timedelta,
            self._json,
            self._other,
            self._other,
            self._literal,
        ]

    def model(self, depth: int = 0) -> type[pydantic.BaseModel]:
        self._made += 1
        fields: dict[str, Any] = {}
        for at in range(self.rng.randint(1, 4)):
            default = ... if self.rng.random() < 0.7 else None
            fields[f"f{at}"] = (self.type(depth + 1), default)
        config = pydantic.ConfigDict(
            str_strip_whitespace=self.rng.random() < 0.15,
            strict=self.rng.random() < 0.1,
            extra=self.rng.choice(["forbid", "ignore"]),
        )
        made: type[pydantic.BaseModel] = pydantic.create_model(f"M{self._made}", __config__=config, **fields)
        return made

    def type(self, depth: int = 0) -> Any:
        roll = self.rng.random()
        if depth > 3 or roll < 0.62:
            return self.rng.choice(self._kinds)()
        inner = self.type(depth + 1)
        if roll < 0.70:
            return Optional[inner]  # noqa: UP045  # of None too
        if roll < 0.77:
            low = self.rng.randint(0, 2)
            return Annotated[list[inner], Field(min_length=low, max_length=low + self.rng.randint(0, 3))]
        if roll < 0.83:
            return dict[self._key(), inner]
        if roll < 0.87:
            return tuple[inner, self.type(depth + 1)]
        if roll < 0.92:
            return Union[inner, self.type(depth + 1)]  # noqa: UP007  # of None too
        return self._record(depth, inner)

    def _record(self, depth: int, inner: Any) -> Any:
        self._made += 1
        name = f"R{self._made}"
        kind = self.rng.choice(["model", "model", "dataclass", "typed dict", "named tuple", "root", "tagged"])
        if kind == "dataclass":
            return dataclasses.make_dataclass(name, [("a", inner), ("b", int, dataclasses.field(default=1))])
        if kind == "typed dict":
            return TypedDict(name, {"a": inner, "b": NotRequired[inner]})  # type: ignore[operator]  # made as it runs
        if kind == "named tuple":
            return NamedTuple(name, [("a", inner), ("b", int)])  # type: ignore[misc]  # as above
        if kind == "root":
            return pydantic.RootModel[inner]
        if kind == "model":
            return self.model(depth + 1)
        alias = Field(alias="a-b", validation_alias=pydantic.AliasChoices("a-b", "c"))
        first = pydantic.create_model(f"{name}A", kind=(Literal["a"], ...), value=(inner, alias))
        second = pydantic.create_model(f"{name}B", kind=(Literal["b", "c"], ...), value=(self.type(depth + 1), None))
        return Annotated[Union[first, second], Field(discriminator="kind")]  # noqa: UP007  # as above

    def _bounds(self, values: Callable[[], Any]) -> Any:
        low, high = sorted((values(), values()))
        names = self.rng.choice([(), ("ge",), ("gt",), ("le",), ("lt",), ("ge", "le"), ("ge", "lt"), ("gt", "le")])
        if low == high:
            names = names[:1]
        found = {name: low if name in ("ge", "gt") else high for name in names}
        return Field(**found)

    def _integer(self) -> Any:
        step = self.rng.choice([None, None, None, 5])
        low, high = sorted(self.rng.randint(-(10 ** self.rng.randint(1, 12)), 10**9) for _ in range(2))
        bounded = Annotated[int, Field(ge=low, lt=high + 10, multiple_of=step)]
        return self.rng.choice([int, bounded, bool, Annotated[Fraction, Field(gt=0, le=Fraction(7, 2))]])

    def _float(self) -> Any:
        return Annotated[float, self._bounds(lambda: self.rng.choice([0.0, 0.5, -1.25, 1e6, 3.14159, 2**60, 1e-3]))]

    def _decimal(self) -> Any:
        digits = self.rng.randint(1, 12)
        places = self.rng.choice([None, self.rng.randint(0, digits)])
        how: dict[str, Any] = self.rng.choice(
            [
                {},
                {"max_digits": digits, "decimal_places": places},
                {"decimal_places": self.rng.randint(0, 6)},
                {"ge": Decimal("0.1"), "lt": Decimal("99.95"), "decimal_places": 2},
                {"gt": 0, "multiple_of": Decimal("0.25")},
                {"max_digits": 30, "decimal_places": 20, "ge": -5},
            ]
        )
        return Annotated[Decimal, Field(**how)]

    def _text(self) -> Any:
        low = self.rng.randint(0, 4)
        high = low + self.rng.randint(0, 6)
        strip = self.rng.choice([None, True])
        pattern = self.rng.choice([None, None, r"^\D*$", r"^[^\w]*$", r"^\S*$", r"^\W*\w*$", "(?i)^[k-s]+$"])
        cased: dict[str, Any] = self.rng.choice([{}, {}, {"to_lower": True}, {"to_upper": True}])
        return self.rng.choice(
            [
                str,
                Annotated[str, StringConstraints(strip_whitespace=strip, min_length=low, max_length=high, **cased)],
                Annotated[str, StringConstraints(strip_whitespace=strip, min_length=low, pattern=pattern)],
                Annotated[bytes, Field(min_length=low, max_length=high)],
                Annotated[pydantic.SecretStr, Field(min_length=low)],
                Annotated[pydantic.SecretBytes, Field(max_length=high)],
            ]
        )

    def _day(self) -> dt.date:
        return dt.date.fromordinal(self.rng.randint(1, dt.date.max.toordinal()))

    def _date(self) -> Any:
        bounded = Annotated[dt.date, self._bounds(self._day)]
        near = Annotated[dt.date, Field(ge=dt.date(2020, 1, 1), le=dt.date(2020, 1, self.rng.randint(1, 31)))]
        return self.rng.choice([bounded, bounded, near, pydantic.PastDate, pydantic.FutureDate])

    def _datetime(self) -> Any:
        zone = self.rng.choice([None, UTC, dt.timezone(dt.timedelta(minutes=self.rng.randint(-1439, 1439)))])
        clock = dt.time(self.rng.randint(0, 23), self.rng.randint(0, 59), 59, self.rng.choice([0, 250_000, 1]))
        year = self.rng.randint(2, 9998)
        bounds = self._bounds(lambda: dt.datetime.combine(self._day().replace(year=year, day=1), clock, zone))
        kind = self.rng.choice([dt.datetime, dt.datetime, pydantic.AwareDatetime, pydantic.NaiveDatetime])
        return self.rng.choice([Annotated[kind, bounds], Annotated[kind, bounds], kind, *_MOMENTS])

    def _time(self) -> Any:
        zone = self.rng.choice([None, UTC])
        values = lambda: dt.time(self.rng.randint(0, 23), self.rng.randint(0, 59), tzinfo=zone)  # noqa: E731
        return Annotated[dt.time, self._bounds(values)]

    def _timedelta(self) -> Any:
        values = lambda: dt.timedelta(hours=self.rng.randint(0, 10 ** self.rng.randint(1, 5)))  # noqa: E731
        return Annotated[dt.timedelta, self._bounds(values)]

    def _json(self) -> Any:
        return pydantic.Json[self.rng.choice([Any, int, list[str], dict[str, float], Color, dt.date, bool | None])]

    def _literal(self) -> Any:
        return self.rng.choice([Color, Level, Literal["a", 1, None], Literal["x"], Any])

    def _other(self) -> Any:
        return self.rng.choice(_OTHERS)

    def _key(self) -> Any:
        return self.rng.choice(
            [
                *(str, int, float, Decimal, bool, Color, uuid.UUID, dt.timedelta),
                Annotated[int, Field(ge=-3, lt=self.rng.randint(0, 2000))],
                Annotated[dt.date, self._bounds(self._day)],
                Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)],
            ]
        )


_MOMENTS = (pydantic.PastDatetime, pydantic.FutureDatetime)
_OTHERS: tuple[Any, ...] = (
    *(pydantic.HttpUrl, pydantic.AnyUrl, pydantic.FileUrl, PostgresDsn, MongoDsn, RedisDsn, pydantic.WebsocketUrl),
    *(pydantic.IPvAnyAddress, pydantic.IPvAnyNetwork, pydantic.IPvAnyInterface),
    *(ipaddress.IPv4Address, ipaddress.IPv6Address, ipaddress.IPv4Network, ipaddress.IPv6Network),
    *(ipaddress.IPv4Interface, ipaddress.IPv6Interface),
    *(uuid.UUID, pydantic.UUID1, pydantic.UUID3, pydantic.UUID4, pydantic.UUID5, pydantic.UUID6, pydantic.UUID7),
    *(pathlib.Path, pydantic.ByteSize, pydantic.Base64Str, pydantic.Base64UrlBytes, re.Pattern, zoneinfo.ZoneInfo),
    *(complex, pydantic.PositiveInt, pydantic.NonNegativeFloat, pydantic.FiniteFloat, pydantic.StrictInt),
    *(set[int], frozenset[Color], None, bytes, pydantic.Base64Bytes, collections.deque[int], Sequence[bool]),
    *(Annotated[set[int], Field(min_length=2)], Annotated[float, Field(multiple_of=0.5)], Fraction),
    *(Annotated[str, Field(pattern="^a+$"), StringConstraints(min_length=2)], pydantic.StrictStr),
)

# ---------------------------------------------------------------- texts

_SOME = (
    "e",
    "é",
    "  ",
    "00",
    "20",
    "-0",
    '"',
    ":",
    "T1",
    "Z",
    "://",
    '":',
    ",",
    "0.5",
    "e5",
    "\u0663",
    "\u00a0",
    "\ufeff",
)


@cache
def vocabulary() -> Vocabulary:
    """Single bytes, and a few longer tokens."""
    longer = [text.encode() for text in _SOME]
    tokens: list[bytes | None] = [None, *(bytes((value,)) for value in range(256)), *longer]
    return Vocabulary(tokens, size=len(tokens), eos_ids=[0], encode=lambda data: [value + 1 for value in data])


@cache
def _lexicon() -> Lexicon:
    return Lexicon(vocabulary())


def compiled(schema: Any) -> Constraint:
    return build({"json_schema": json.loads(json.dumps(schema))}, vocabulary(), "", _lexicon())


def write(constraint: Constraint, rng: random.Random, least: int = 60) -> str:
    """A random walk over the masks, and after ``least`` tokens the way out."""
    matcher = constraint.matcher()
    text = b""
    tokens = [one or b"" for one in vocabulary().tokens]
    length = 0
    while not matcher.finished:
        if length >= least:
            way_out = matcher.completion(100_000, None)
            assert way_out is not None
            while way_out.pieces or way_out.beyond:
                piece = b"".join(way_out.pieces) or matcher.forced()
                text += piece
                assert piece and matcher.advance_bytes(piece)
                if not way_out.beyond:
                    break
                way_out = matcher.completion(100_000, None)
                assert way_out is not None
            break
        mask = matcher.mask()
        allowed = [at for at in range(len(tokens)) if mask[at // 32] >> (at % 32) & 1]
        token = _pick(allowed, rng)
        if token == 0:
            break
        assert matcher.advance(token)
        text += tokens[token]
        length += 1
    assert matcher.accepting or matcher.finished
    return text.decode()


def _pick(allowed: list[int], rng: random.Random) -> int:
    """Plain characters mostly."""
    plain = [at for at in allowed if at == 0 or 33 <= at <= 127]
    return rng.choice(plain if plain and rng.random() < 0.8 else allowed)
