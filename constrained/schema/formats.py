"""Which names of ``format`` are asserted: those whose language is known. Any other name is an annotation.

Some of these have an order, and take bounds.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..regular.ranges import Bounds


@cache
def _known() -> frozenset[str]:
    from ..regular import formats  # not at the top: a schema without formats need not load it

    return formats.known()


def asserted(name: str) -> bool:
    return name in _known()


def ordered(name: object) -> bool:
    from ..regular import ranges

    return isinstance(name, str) and name in ranges.ORDERED


def with_bound(bounds: Bounds | None, field: str, name: str, text: str) -> Bounds:
    """``bounds`` and one more, of the format ``name``. Raises ValueError for a text that is none of it."""
    from ..regular import ranges

    ranges.read(name, text)
    return (bounds or ranges.Bounds())._replace(**{field: text})


def crossed(name: str, bounds: Bounds) -> bool:
    """Whether there is nothing between the bounds."""
    from ..regular import ranges

    return ranges.crossed(name, bounds)
