"""Where white space stands between the tokens of a JSON text.

::

    single   {"a":1, "b": [1,2]}      at most one space after each comma and colon
    compact  {"a":1,"b":[1,2]}        none                spaced  {"a": 1, "b": [1, 2]}   exactly one
    indent   as json.dumps(indent=n): newlines, n spaces a level; empty containers as {} and []
"""

from __future__ import annotations

from ..pushdown.rules import Item, Rules


class Layout:
    """The pieces to put around keys, values and items. ``depth`` counts open containers; 0 unless indented."""

    def __init__(self, rules: Rules, whitespace: str | int) -> None:
        self.indent = whitespace if isinstance(whitespace, int) else None
        self.colon: tuple[Item, ...]
        self._comma: tuple[Item, ...]
        if whitespace == "single":
            space = rules.add(lambda: ((b" ",), ()))
            self.colon, self._comma = (b":", space), (b",", space)
        elif whitespace == "compact":
            self.colon, self._comma = (b":",), (b",",)
        else:
            self.colon, self._comma = (b": ",), (b", ",)

    def inside(self, depth: int) -> int:
        """The depth of a container's parts."""
        return depth if self.indent is None else depth + 1

    def comma(self, depth: int) -> tuple[Item, ...]:
        return self._comma if self.indent is None else (b",\n" + self._pad(depth + 1),)

    def first(self, depth: int) -> tuple[Item, ...]:
        """Before the first part."""
        return () if self.indent is None else (b"\n" + self._pad(depth + 1),)

    def close(self, bracket: bytes, depth: int) -> tuple[Item, ...]:
        """After the last part."""
        return (bracket,) if self.indent is None else (b"\n" + self._pad(depth) + bracket,)

    def _pad(self, depth: int) -> bytes:
        return b" " * ((self.indent or 0) * depth)
