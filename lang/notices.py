"""Warnings of the language: one class, each said once for the place that caused it."""

from __future__ import annotations

import sys
import threading
import warnings
from typing import NamedTuple


class PlaitWarning(UserWarning):
    """A program does something that is allowed and probably not meant; the message names it and the fix."""


class Site(NamedTuple):
    """Where in the user's code a gen was written."""

    filename: str
    line: int


def caller() -> Site:
    """The nearest frame outside this package."""
    frame = sys._getframe(1)
    package = __package__ or ""
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith(package + "."):
        frame = frame.f_back
    return Site(frame.f_code.co_filename, frame.f_lineno)


class Notices:
    """What was already said. Each ``@function`` has one, so a program in a loop does not repeat itself."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._said: set[tuple[str, Site]] = set()

    def say(self, kind: str, site: Site, message: str) -> None:
        with self._lock:
            if (kind, site) in self._said:
                return
            self._said.add((kind, site))
        warnings.warn_explicit(message, PlaitWarning, site.filename, site.line)
