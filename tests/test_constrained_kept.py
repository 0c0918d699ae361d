"""What a process remembers of the texts that it was given has a bound in bytes, not only in items."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable

import pytest

from plait.constrained.charset import folded
from plait.constrained.regular.properties import lookup
from plait.constrained.regular.python_syntax import check
from plait.constrained.schema.uri import resolve


@pytest.mark.parametrize(
    "use",
    [
        lambda n: check(f"{n}" + "(ab[c-d]?)" * 600),
        lambda n: check(f"{n} " + "word|" * 10_000),
        lambda n: folded(tuple((200 + 3 * k + n, 200 + 3 * k + n) for k in range(2100)), False),
        lambda n: resolve(f"http://x/{n}" + "y" * 50_000, "#/a"),
        lambda n: resolve("http://x/", f"{n}" + "y" * 50_000),
        lambda n: lookup(f"{n}" + "y" * 50_000),
    ],
    ids=["regex", "words", "class", "base", "reference", "property"],
)
def test_long_texts_are_not_kept(use: Callable[[int], object]) -> None:
    for n in range(3):  # tables that are made once
        use(n)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for n in range(3, 23):
            use(n)
        gc.collect()  # what ``re`` parses is tied in knots
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 20 * 6000, "each of them has 6,000 bytes and more"


def test_short_texts_mean_what_long_ones_do() -> None:
    letters = tuple((code, code) for code in range(97, 123, 2))
    assert set(folded(letters, True)) == {(code, code) for code in (*range(97, 123, 2), *range(65, 91, 2))}
    many = tuple((code, code) for code in range(0x400, 0x430, 2))
    assert {chr(low) for low, high in folded(many, False)} >= {chr(low).lower() for low, _ in many}
    assert resolve("http://x/a/b", "c" * 600) == "http://x/a/" + "c" * 600
    assert resolve("http://x/a/b", "c" * 60) == "http://x/a/" + "c" * 60
    assert lookup("L") is not None and lookup("L" * 101) is None
