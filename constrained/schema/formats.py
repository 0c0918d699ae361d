"""Which names of ``format`` are asserted: those whose language is known. Any other name is an annotation."""

from __future__ import annotations

from functools import cache


@cache
def _known() -> frozenset[str]:
    from ..regular import formats  # not at the top: a schema without formats need not load it

    return formats.known()


def asserted(name: str) -> bool:
    return name in _known()
