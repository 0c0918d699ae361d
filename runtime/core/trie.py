"""Choices as a trie of token ids: each distinct prefix is computed once, and leaves not at all.

::

    "yes", "yes please", "no"          rows to compute: the inner nodes  {yes}
        root ── yes* ── please         the logits of root score yes and no,
          └──── no                     those of yes* score please
"""

from __future__ import annotations

from collections.abc import Sequence

ROOT = -1


class ChoiceTrie:
    """Nodes are numbered in depth-first order, so a parent comes before its children. -1 is the root."""

    def __init__(self, choices: Sequence[Sequence[int]]) -> None:
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self.children: dict[int, list[int]] = {ROOT: []}
        self.paths: list[list[int]] = []  # nodes of each choice
        self._found: dict[tuple[int, int], int] = {}  # (parent, token) -> node
        for choice in choices:
            node = ROOT
            path = []
            for token in choice:
                node = self._child(node, token)
                path.append(node)
            self.paths.append(path)

    def _child(self, parent: int, token: int) -> int:
        child = self._found.get((parent, token))
        if child is not None:
            return child
        child = self._found[parent, token] = len(self.tokens)
        self.tokens.append(token)
        self.parents.append(parent)
        self.children[child] = []
        self.children[parent].append(child)
        return child

    @property
    def inner(self) -> int:
        """How many nodes have children: the rows a pass computes after its root."""
        return sum(1 for node, children in self.children.items() if children and node != ROOT)

    def runs(self) -> list[list[int]]:
        """The inner nodes as straight runs, parents before children. Each is one sequence of a batch."""
        runs: list[list[int]] = []
        stack = [child for child in reversed(self.children[ROOT]) if self.children[child]]
        while stack:
            node = stack.pop()
            run = [node]
            while True:
                inner = [child for child in self.children[node] if self.children[child]]
                if not inner:
                    break
                stack.extend(reversed(inner[1:]))
                node = inner[0]
                run.append(node)
            runs.append(run)
        return runs

    def path(self, node: int) -> list[int]:
        """The nodes from the first token down to ``node``."""
        path = []
        while node != ROOT:
            path.append(node)
            node = self.parents[node]
        return path[::-1]
