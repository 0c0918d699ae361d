"""Where white space stands between the tokens of a JSON text, once that is decided (see :mod:`.undecided`).

::

    single   {"a":1, "b": [1,2]}      at most one space after each comma and colon
    compact  {"a":1,"b":[1,2]}        none                spaced  {"a": 1, "b": [1, 2]}   exactly one
    indent   as json.dumps(indent=n): newlines, n spaces a level; empty containers as {} and []
"""

from __future__ import annotations

from ..pushdown.rules import Item, Rules


class Layout:
    """The pieces around the keys, values and items of one container. ``again``: its rules say once more what those of
    another layout say (:attr:`Rules.again`)."""

    def __init__(self, gap: Item, *, again: bool = False) -> None:
        """``gap``: what stands after a colon and a comma."""
        self.again = again
        #: a layout whose texts are no longer than these, of which there are not endlessly many; None: this one
        self.shallow: Layout | None = None
        self.gap = gap
        self.colon: tuple[Item, ...] = _joined(b":", gap)
        self.comma: tuple[Item, ...] = _joined(b",", gap)

    @property
    def inside(self) -> Layout:
        """The layout of a container's parts."""
        return self

    @property
    def first(self) -> tuple[Item, ...]:
        """Before the first part."""
        return ()

    def close(self, bracket: bytes) -> bytes:
        """After the last part."""
        return bracket


class Indented(Layout):
    """``unit``: the white space of one level; ``depth`` counts open containers. Each depth has rules of its own, so how
    long values are is asked of those of the first level."""

    def __init__(self, unit: bytes, depth: int = 0, *, again: bool = False) -> None:
        super().__init__(b" ", again=again)
        self.comma = (b",\n" + unit * (depth + 1),)
        self._unit = unit
        self._depth = depth
        self._inside: Indented | None = None

    @property
    def inside(self) -> Layout:
        if self._inside is None:
            self._inside = Indented(self._unit, self._depth + 1, again=self.again)
            if self._depth:
                self._inside.shallow = self.shallow or self
        return self._inside

    @property
    def first(self) -> tuple[Item, ...]:
        return (b"\n" + self._unit * (self._depth + 1),)

    def close(self, bracket: bytes) -> bytes:
        return b"\n" + self._unit * self._depth + bracket


def layout_of(rules: Rules, whitespace: str | int) -> Layout:
    """The layout that an option names; not "auto"."""
    if isinstance(whitespace, int):
        return Indented(b" " * whitespace)
    if whitespace == "single":
        return Layout(rules.add(lambda: ((b" ",), ())))
    return Layout(b"" if whitespace == "compact" else b" ")


def _joined(mark: bytes, gap: Item) -> tuple[Item, ...]:
    return (mark + gap,) if isinstance(gap, bytes) else (mark, gap)
