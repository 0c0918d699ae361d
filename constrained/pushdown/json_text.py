"""Which JSON value a text ends with, found from its end, so that it does not matter what stands before it."""

from __future__ import annotations

_SPACE = b" \t\n\r"
_SCALAR = frozenset(b"+-.0123456789eEtrufalsn")
_QUOTE, _BACKSLASH = 0x22, 0x5C
_OPEN, _CLOSE = frozenset(b"[{"), frozenset(b"]}")


def last_value(text: bytes, whole: bool) -> bytes | None:
    """The JSON value that ``text`` ends with (white space after it is left out). None if none ends there.

    ``whole`` is False if text may stand before ``text``: then None also if the value might begin there. In JSON a
    string's opening quote never follows a backslash and a quote inside always does, so strings can be read backwards.
    """
    end = len(text.rstrip(_SPACE))
    if not end:
        return None
    start = _start(text, end)
    if start < 0 or (start == 0 and not whole):
        return None
    return text[start:end]


def _start(text: bytes, end: int) -> int:
    """Where the value that ends before ``end`` begins; -1 if that is not in ``text`` or no value ends there."""
    last = text[end - 1]
    if last == _QUOTE:
        return _opening_quote(text, end - 1)
    at = end
    if last in _CLOSE:
        depth = 0
        while at > 0:
            at -= 1
            value = text[at]
            if value == _QUOTE:
                at = _opening_quote(text, at)
                if at < 0:
                    return -1
            elif value in _CLOSE:
                depth += 1
            elif value in _OPEN:
                depth -= 1
                if depth == 0:
                    return at
        return -1
    while at > 0 and text[at - 1] in _SCALAR:
        at -= 1
    return at if at < end else -1


def _opening_quote(text: bytes, closing: int) -> int:
    at = closing
    while (at := text.rfind(b'"', 0, at)) >= 0:
        if at == 0 or text[at - 1] != _BACKSLASH:
            return at
    return -1
