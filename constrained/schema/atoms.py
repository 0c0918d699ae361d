"""What a clause of an object or an array is made of. A clause is a set of atoms that hold together."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from .goals import Literal

Clause = frozenset[Hashable]
Clauses = tuple[Clause, ...]


class Has(NamedTuple):
    """The object has this key, or has it not."""

    name: str
    there: bool


class Count(NamedTuple):
    """How many keys or items there are."""

    low: int
    high: int | None


class Items(NamedTuple):
    """prefixItems and items of one schema hold; negated: some item violates them, or the number of items does."""

    literal: Literal


class Contains(NamedTuple):
    """So many items satisfy this schema."""

    literal: Literal
    low: int
    high: int | None


class Unique(NamedTuple):
    """No two items are equal; negated: some two are."""

    holds: bool
    pointer: str
