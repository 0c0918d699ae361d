"""Bytes of a running gen -> text. No text is ever taken back: ``concat(pieces) == whole``."""

from __future__ import annotations

import codecs

_utf8 = codecs.getincrementaldecoder("utf-8")


class TextStream:
    """Collects the bytes of one op. :meth:`take` hands out whole code points; U+FFFD stands only for bytes that can
    never become one, or that the op's end cut off. A gen nobody streams is decoded once, at its end."""

    __slots__ = ("_data", "_decoder", "_pieces")

    def __init__(self) -> None:
        self._data = bytearray()
        self._decoder: codecs.IncrementalDecoder | None = None
        self._pieces: list[str] = []

    def feed(self, data: bytes) -> None:
        self._data += data

    def take(self, *, final: bool = False) -> str:
        """The text that became certain since the last call."""
        if self._decoder is None:
            self._decoder = _utf8("replace")
        text = self._decoder.decode(bytes(self._data), final)
        self._data.clear()
        if text:
            self._pieces.append(text)
        return text

    @property
    def text(self) -> str:
        """Everything handed out so far."""
        return "".join(self._pieces)
