"""A small regular-language toy with derivatives, a small vocabulary, and brute force: what the machine is held against."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from plait.constrained.regular.language import Edges, Language
from plait.constrained.vocabulary import Vocabulary

TOP = 0x10FFFF
ALL = ((0, 0xD7FF), (0xE000, TOP))
Ranges = Sequence[tuple[int, int]]


class Toys:
    """Hash-consed regular expressions with the constructors of ``Languages`` that the tests use."""

    def __init__(self, universe: Ranges = ALL) -> None:
        self.universe = universe
        self.deadline: float | None = None
        self.table: dict[tuple, Toy] = {}
        self.EMPTY = self._make("empty")
        self.EPSILON = self._make("epsilon")
        self.ANY = self.repeat(self.chars(ALL), 0, None)

    def _make(self, *parts: object) -> Toy:
        return self.table.setdefault(parts, Toy(self, parts))

    def chars(self, ranges: Ranges) -> Toy:
        kept = [(max(a, c), min(b, d)) for a, b in ranges for c, d in self.universe if max(a, c) <= min(b, d)]
        return self._make("chars", tuple(sorted(kept))) if kept else self.EMPTY

    def literal(self, text: str) -> Toy:
        return self.concat(*(self.chars(((ord(c), ord(c)),)) for c in text))

    def concat(self, *parts: Toy) -> Toy:
        found = self.EPSILON
        for part in reversed(parts):
            if part is self.EMPTY or found is self.EMPTY:
                return self.EMPTY
            if part is not self.EPSILON:
                found = part if found is self.EPSILON else self._make("concat", part, found)
        return found

    def union(self, *parts: Toy) -> Toy:
        flat: set[Toy] = set()
        for part in parts:
            flat.update(part.parts[1] if part.parts[0] == "union" else (part,))
        flat.discard(self.EMPTY)
        if not flat:
            return self.EMPTY
        return flat.pop() if len(flat) == 1 else self._make("union", frozenset(flat))

    def intersect(self, a: Toy, b: Toy) -> Toy:
        if a is self.EMPTY or b is self.EMPTY:
            return self.EMPTY
        return self._make("and", a, b)

    def repeat(self, part: Toy, low: int, high: int | None) -> Toy:
        if high == 0:
            return self.EPSILON
        return self._make("repeat", part, low, high)

    def without(self, names: Sequence[str]) -> Toy:
        """Every string but these."""
        return self._make("without", frozenset(names))


class Toy(Language):
    def __init__(self, toys: Toys, parts: tuple) -> None:
        self.toys, self.parts = toys, parts

    @cached_property
    def accepting(self) -> bool:  # type: ignore[override]
        kind, *rest = self.parts
        if kind == "concat" or kind == "and":
            return rest[0].accepting and rest[1].accepting
        if kind == "union":
            return any(part.accepting for part in rest[0])
        if kind == "repeat":
            return rest[1] == 0 or rest[0].accepting
        if kind == "without":
            return "" not in rest[0]
        return kind == "epsilon"

    @property
    def shortest(self) -> int:  # type: ignore[override]
        return 0

    @property
    def longest(self) -> int | None:  # type: ignore[override]
        return 0 if self.parts[0] == "epsilon" else None

    @cached_property
    def _edges(self) -> Edges:
        kind, *rest = self.parts
        toys = self.toys
        if kind == "chars":
            return tuple((a, b, toys.EPSILON) for a, b in rest[0])
        if kind == "concat":
            found = [(a, b, toys.concat(t, rest[1])) for a, b, t in rest[0]._edges]
            return joined(toys, found + list(rest[1]._edges) if rest[0].accepting else found)
        if kind == "union":
            return joined(toys, [edge for part in rest[0] for edge in part._edges])
        if kind == "and":
            found = []
            for a, b, t in rest[0]._edges:
                for c, d, u in rest[1]._edges:
                    if max(a, c) <= min(b, d) and (both := toys.intersect(t, u)) is not toys.EMPTY:
                        found.append((max(a, c), min(b, d), both))
            return joined(toys, [e for e in found if alive(e[2])])
        if kind == "repeat":
            low, high = max(rest[1] - 1, 0), None if rest[2] is None else rest[2] - 1
            return tuple((a, b, toys.concat(t, toys.repeat(rest[0], low, high))) for a, b, t in rest[0]._edges)
        if kind == "without":
            firsts = sorted({name[0] for name in rest[0] if name})
            found = [(ord(c), ord(c), toys.without([n[1:] for n in rest[0] if n[:1] == c])) for c in firsts]
            at, others = 0, []
            for c in [ord(c) for c in firsts] + [TOP + 1]:
                if at < c:
                    others.append((at, c - 1))
                at = c + 1
            other = toys.chars([(max(a, c), min(b, d)) for a, b in others for c, d in ALL if max(a, c) <= min(b, d)])
            return joined(toys, found + [(a, b, toys.ANY) for a, b in other.parts[1]])
        return ()

    def edges(self) -> Edges:
        return self._edges

    def capped(self, length: int) -> Language:
        kind, *rest = self.parts
        if kind == "concat" and rest[0].parts[0] == "repeat":
            return self.toys.concat(rest[0].capped(length), rest[1])
        if kind == "repeat" and rest[0].parts[0] == "chars":
            high = None if rest[2] is None or rest[2] > length else rest[2]
            return self.toys.repeat(rest[0], min(rest[1], length + 1), high)
        return self


def alive(language: Language) -> bool:
    seen, todo = {language}, [language]
    while todo:
        at = todo.pop()
        if at.accepting:
            return True
        for _, _, target in at.edges():
            if target not in seen:
                seen.add(target)
                todo.append(target)
    return False


def joined(toys: Toys, edges: list) -> Edges:
    """Overlapping edges made disjoint, adjacent ones merged."""
    cuts = sorted({a for a, _, _ in edges} | {b + 1 for _, b, _ in edges})
    found: list = []
    for low, end in zip(cuts, cuts[1:], strict=False):
        targets = [t for a, b, t in edges if a <= low <= b]
        if targets:
            target = toys.union(*targets)
            if found and found[-1][1] + 1 == low and found[-1][2] is target:
                found[-1] = (found[-1][0], end - 1, target)
            else:
                found.append((low, end - 1, target))
    return tuple(found)


def small_vocabulary(tokens: Sequence[bytes], size: int | None = None, eos: Sequence[int] = ()) -> Vocabulary:
    by_bytes = {data: at for at, data in reversed(list(enumerate(tokens))) if data}

    def encode(data: bytes) -> list[int]:
        ids, at = [], 0
        while at < len(data):
            end = next(e for e in range(len(data), at, -1) if data[at:e] in by_bytes)
            ids.append(by_bytes[data[at:end]])
            at = end
        return ids

    return Vocabulary(tokens, size=size or len(tokens), eos_ids=eos, encode=encode)
