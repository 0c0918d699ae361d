"""Warnings of the language: one class, each said once for the place that caused it."""

from __future__ import annotations

import sys
import threading
import warnings
from types import CodeType
from typing import NamedTuple


class PlaitWarning(UserWarning):
    """A program does something that is allowed and probably not meant; the message names it and the fix."""


class Site(NamedTuple):
    """Where in the user's code something stands. ``code`` tells apart what has no file of its own (``<stdin>``)."""

    filename: str
    line: int
    code: CodeType


def caller() -> Site:
    """The nearest frame outside this package."""
    frame = sys._getframe(1)
    package = __package__ or ""
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith(package + "."):
        frame = frame.f_back
    return Site(frame.f_code.co_filename, frame.f_lineno, frame.f_code)


#: (kind, file, line, hash of the code) of what was said: equal code made anew has an equal hash
_said: dict[tuple[str, str, int, int], None] = {}
_MOST = 4096
_lock = threading.Lock()


def say(kind: str, site: Site, message: str) -> None:
    """Warns once for each ``kind`` and place, also when the program there is made anew each time."""
    key = (kind, site.filename, site.line, hash(site.code))
    with _lock:
        if key in _said:
            return
        if len(_said) >= _MOST:
            del _said[next(iter(_said))]
        _said[key] = None
    warnings.warn_explicit(message, PlaitWarning, site.filename, site.line)


def forget() -> None:
    """As if nothing had been said yet; for tests."""
    with _lock:
        _said.clear()
