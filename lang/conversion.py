"""JSON values as instances of the type hints that :mod:`.hints` reads."""

from __future__ import annotations

import datetime
import ipaddress
import pathlib
import re
import types as builtin
import typing
import uuid
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin, is_typeddict

from .hints import DICTS, LISTS, hints_of, is_named_tuple, is_record, required_keys, unwrapped

_FROM_TEXT: dict[Any, typing.Callable[[str], Any]] = {
    datetime.datetime: datetime.datetime.fromisoformat,
    datetime.date: datetime.date.fromisoformat,
    datetime.time: datetime.time.fromisoformat,
    datetime.timedelta: lambda text: _duration(text),
    **{
        kind: kind
        for kind in (
            *(
                uuid.UUID,
                pathlib.Path,
                pathlib.PurePath,
                pathlib.PurePosixPath,
                ipaddress.IPv4Address,
                ipaddress.IPv6Address,
            ),
            *(ipaddress.IPv4Network, ipaddress.IPv6Network, ipaddress.IPv4Interface, ipaddress.IPv6Interface),
        )
    },
}


def convert(value: Any, hint: Any) -> Any:
    """A parsed JSON value as ``hint`` says. Raises ValueError if it is none."""
    hint = unwrapped(hint)
    origin, args = get_origin(hint), get_args(hint)
    if hint in (Any, object):
        return value
    if origin is Annotated:
        return convert(value, args[0])
    if origin is Literal:
        return _one_of(value, args)
    if origin is Union or origin is builtin.UnionType:
        return _first(value, args)
    kind = origin or hint
    if kind is tuple:
        return _to_tuple(value, args)
    if kind in LISTS:
        items = _checked(value, list)
        return LISTS[kind]([convert(item, args[0]) for item in items] if args else items)
    if kind in DICTS:
        entries = _checked(value, dict)
        return {convert(key, args[0]): convert(item, args[1]) for key, item in entries.items()} if args else entries
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _member(value, hint)
    if is_record(hint):
        return _to_record(value, hint)
    if hint in _FROM_TEXT:
        return _FROM_TEXT[hint](_checked(value, str))
    if hint is Decimal and isinstance(value, int | float) and not isinstance(value, bool):
        return Decimal(str(value))
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint is int and isinstance(value, float) and value.is_integer():
        return int(value)  # 1.0 is an integer in JSON Schema
    return _checked(value, type(None) if hint is None else hint)


def _checked(value: Any, kind: type) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{value!r} is not of type {kind.__name__}")
    return value


#: with years of 365 days and months of 30, as Pydantic has them
_DAYS = {"Y": 365, "M": 30, "W": 7, "D": 1}
_UNIT = re.compile(r"(\d+)([YMWDHS])", re.ASCII)


def _duration(text: str) -> datetime.timedelta:
    """ISO 8601's, as RFC 3339 has it."""
    days, _, time = text.partition("T")
    if not text.startswith("P") or _UNIT.sub("", days) != "P" or _UNIT.sub("", time) or not _UNIT.search(text):
        raise ValueError(f"{text!r} is no duration")
    names = {"H": "hours", "M": "minutes", "S": "seconds"}
    found = datetime.timedelta(**{names[unit]: int(number) for number, unit in _UNIT.findall(time)})
    return found + datetime.timedelta(sum(int(number) * _DAYS[unit] for number, unit in _UNIT.findall(days)))


def _one_of(value: Any, args: tuple[Any, ...]) -> Any:
    for arg in args:
        plain = arg.value if isinstance(arg, Enum) else arg
        if plain == value and isinstance(plain, bool) == isinstance(value, bool):
            return arg
    raise ValueError(f"{value!r} is none of {', '.join(map(repr, args))}")


def _member(value: Any, kind: type[Enum]) -> Any:
    for member in kind:
        if member.value == value and isinstance(member.value, bool) == isinstance(value, bool):
            return member
    raise ValueError(f"{value!r} is no {kind.__name__}")


def _first(value: Any, options: tuple[Any, ...]) -> Any:
    problems = []
    exact = [option for option in options if unwrapped(option) is type(value)]  # True is no int, 1 no float
    for option in (*exact, *options):
        try:
            return convert(value, option)
        except (ValueError, TypeError) as error:
            problems.append(str(error))
    raise ValueError("; ".join(dict.fromkeys(problems)))


def _to_tuple(value: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    items = _checked(value, list)
    if not args:
        return tuple(items)
    if len(args) == 2 and args[1] is Ellipsis:
        return tuple(convert(item, args[0]) for item in items)
    if len(items) != len(args):
        raise ValueError(f"{len(items)} items where {len(args)} belong")
    return tuple(convert(item, arg) for item, arg in zip(items, args, strict=True))


def _to_record(value: Any, record: type) -> Any:
    hints = hints_of(record)
    if is_named_tuple(record):
        return record(*_to_tuple(value, tuple(hints.values())))
    entries = _checked(value, dict)
    unknown = [name for name in entries if name not in hints]
    if unknown:
        raise ValueError(f"{record.__name__} has no field {unknown[0]!r}")
    found = {name: convert(item, hints[name]) for name, item in entries.items()}
    if is_typeddict(record):
        missing = [name for name in required_keys(record, hints) if name not in found]
        if missing:
            raise ValueError(f"{record.__name__} lacks {missing[0]!r}")
        return found
    try:
        return record(**found)
    except TypeError as error:
        raise ValueError(str(error)) from error
