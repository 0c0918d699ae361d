"""Dates, times and durations of Python within bounds, as JSON Schema: ``formatMinimum`` and its kin.

Moments with a zone are written in UTC or at the offset of a bound, those without a zone without one. What a bound of
one kind says about a value of the other is what Pydantic takes it to say: the clocks are compared.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any, Literal

Schema = dict[str, Any]
Zone = Literal["aware", "naive"] | None
#: of a date or a time: RFC 3339 has a year 0, leap seconds and small letters; Python's classes have none of them
PYTHON_TIME = "^(?!0000|.*[tz]|.*:60)"
#: the bounds of a type, by their names in annotated_types
BOUNDS = {
    "ge": "formatMinimum",
    "gt": "formatExclusiveMinimum",
    "le": "formatMaximum",
    "lt": "formatExclusiveMaximum",
}
NO_TIME = dt.timedelta(0)
KINDS = (dt.datetime, dt.date, dt.time, dt.timedelta)


def dates(bounds: Mapping[str, dt.date | None]) -> Schema:
    return _bounded("date", {name: one.isoformat() for name, one in bounds.items() if one is not None})


def moments(name: Literal["date-time", "time"], bounds: Mapping[str, Any], zone: Zone = None) -> Schema:
    """``bounds``: datetimes or times."""
    given = {key: one for key, one in bounds.items() if one is not None}
    aware = [one for one in given.values() if one.utcoffset() is not None]
    if zone is None:
        zone = "aware" if aware or not given else "naive"
    if zone == "naive":
        return _bounded(f"{name}-local", {key: one.replace(tzinfo=None).isoformat() for key, one in given.items()})
    if len(aware) < len(given):  # the clock at UTC is held to both
        given = {key: _in_utc(one) for key, one in given.items()}
    return _bounded(name, {key: _with_offset(one) for key, one in given.items()})


def durations(bounds: Mapping[str, dt.timedelta | None]) -> Schema:
    """Of no negative ones, which ISO 8601 does not write."""
    texts = {}
    for key, one in bounds.items():
        if one is None:
            continue
        if one >= NO_TIME:
            fraction = f".{one.microseconds:06}" if one.microseconds else ""
            texts[key] = f"P{one.days}DT{one.seconds}{fraction}S"
        elif key in ("le", "lt"):
            texts["lt"] = "PT0S"
    return _bounded("duration", texts)


def _bounded(format: str, texts: Mapping[str, str]) -> Schema:
    found: Schema = {"type": "string", "format": format}
    if not texts and format in ("date", "date-time", "time"):
        return {**found, "pattern": PYTHON_TIME}
    return {**found, **{BOUNDS[key]: text for key, text in texts.items()}}


def _in_utc(moment: Any) -> Any:
    offset = moment.utcoffset()
    if offset is None:
        return moment.replace(tzinfo=dt.UTC)
    if isinstance(moment, dt.datetime):
        return moment.astimezone(dt.UTC)
    day = dt.datetime.combine(dt.date(2000, 1, 1), moment).astimezone(dt.UTC)
    if day.date() != dt.date(2000, 1, 1):
        raise ValueError(f"the bound {moment} is another day in UTC; give it in UTC")
    return day.timetz()


def _with_offset(moment: Any) -> str:
    """RFC 3339 has offsets of whole minutes; others go to UTC."""
    offset = moment.utcoffset()
    if offset % dt.timedelta(minutes=1):
        moment = _in_utc(moment)
    text: str = moment.isoformat()
    return text.removesuffix("+00:00") + "Z" if not moment.utcoffset() else text


# ---------------------------------------------------------------- the past and the future


def hour() -> int:
    """The hour that it is, for what depends on the time: a bound made in it holds for the next hour too."""
    return int(dt.datetime.now(dt.UTC).timestamp()) // 3600


def beside_now(kind: Literal["date", "date-time"], op: str, offset: int | None, zone: Zone) -> dict[str, Any]:
    """The bound of what must lie in the past or the future: for the past the hour that has begun, for the future that
    after the next, so that a value is still in the future when it is read. ``offset``: of the clock, in seconds."""
    past = op == "past"
    at = dt.datetime.fromtimestamp((hour() + (0 if past else 2)) * 3600, dt.UTC)
    local = at.astimezone(None if offset is None else dt.timezone(dt.timedelta(seconds=offset)))
    bound: Any = local.date() if kind == "date" else local.replace(tzinfo=None) if zone == "naive" else at
    return {"lt" if past else "gt": bound}


def tighter(bounds: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Both; of two bounds of one kind the narrower one."""
    found = dict(bounds)
    for key, one in more.items():
        other = found.get(key)
        if other is None:
            found[key] = one
        elif isinstance(one, dt.datetime) and (one.utcoffset() is None) != (other.utcoffset() is None):
            found[key] = (max if key in ("ge", "gt") else min)(_in_utc(one), _in_utc(other))
        else:
            found[key] = (max if key in ("ge", "gt") else min)(one, other)
    return found
