"""The beginning of a JSON text -> as much of its value as is certain.

::

    {"name": "Ada Love              {"name": "Ada Love"}         a string may be cut anywhere, escapes apart
    {"age": 3                       {}                           a number may go on: 3, or 36
    {"tags": ["a", "b"], "ma        {"tags": ["a", "b"]}         half a key is no key
    {"ok": tr                       {"ok": True}                 nothing else can come of it

What is complete is read as ``json.loads`` reads it.
"""

from __future__ import annotations

import json
from typing import Any

_WORDS = {"true": True, "false": False, "null": None}
_SPACE = " \t\n\r"
_NUMBER = "+-.0123456789eE"


class _Nothing(Exception):
    """Nothing certain stands here."""


def parse_partial(text: str) -> Any:
    """The value so far; None where there is none yet. Never raises: what is no JSON ends the value there."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return _Reader(text).value()
    except (_Nothing, RecursionError):
        return None


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def value(self) -> Any:
        """Reads one value, or what there is of it; :meth:`_char` is "" afterwards if it was cut."""
        first = self._char()
        if first == "{":
            return self._object()
        if first == "[":
            return self._array()
        if first == '"':
            return self._string()
        return self._word()

    def _object(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self._at += 1
        while self._char() == '"':
            try:
                key = self._string(whole=True)
                if self._char() != ":":
                    break
                self._at += 1
                found[key] = self.value()
            except _Nothing:
                break
            if self._char() != ",":
                break
            self._at += 1
        self._close("}")
        return found

    def _array(self) -> list[Any]:
        found: list[Any] = []
        self._at += 1
        while self._char() not in ("", "]"):
            try:
                found.append(self.value())
            except _Nothing:
                break
            if self._char() != ",":
                break
            self._at += 1
        self._close("]")
        return found

    def _close(self, bracket: str) -> None:
        if self._char() == bracket:
            self._at += 1
        else:
            self._at = len(self._text)

    def _string(self, *, whole: bool = False) -> str:
        """A string whose opening quote stands here. ``whole``: raises _Nothing unless its closing quote is there."""
        start = at = self._at + 1
        while at < len(self._text) and self._text[at] != '"':
            at += 2 if self._text[at] == "\\" else 1
        if at < len(self._text):
            self._at = at + 1
            return self._spelled(self._text[start:at])
        self._at = len(self._text)
        if whole:
            raise _Nothing
        body = self._text[start:]
        for cut in range(len(body), max(-1, len(body) - 12), -1):  # half an escape, or half a surrogate pair
            try:
                return self._spelled(body[:cut])
            except _Nothing:
                continue
        raise _Nothing

    @staticmethod
    def _spelled(body: str) -> str:
        try:
            text: str = json.loads(f'"{body}"')
            text.encode()
        except ValueError:
            raise _Nothing from None
        return text

    def _word(self) -> Any:
        start = self._at
        while self._at < len(self._text) and (self._text[self._at].isalnum() or self._text[self._at] in _NUMBER):
            self._at += 1
        word = self._text[start : self._at]
        if word and self._at == len(self._text):
            for name, value in _WORDS.items():
                if name.startswith(word):
                    return value
            raise _Nothing
        try:
            return json.loads(word)
        except ValueError:
            self._at = len(self._text)
            raise _Nothing from None

    def _char(self) -> str:
        """The next character that is no space; "" at the end."""
        while self._at < len(self._text) and self._text[self._at] in _SPACE:
            self._at += 1
        return self._text[self._at : self._at + 1]
