"""The token trie against a plain dict of dicts."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from plait.constrained.trie import TokenTrie


def depth_first(tokens: Sequence[bytes]) -> list[tuple[bytes, list[int]]]:
    """(path, ids that end there) of every node, as a walk visits them."""
    paths = {b""} | {data[:end] for data in tokens for end in range(1, len(data) + 1)}
    return [(path, [i for i, data in enumerate(tokens) if data and data == path]) for path in sorted(paths)]


@pytest.mark.parametrize("seed", range(60))
def test_arrays(seed: int) -> None:
    chance = random.Random(seed)
    letters = bytes(range(256)) if seed % 3 == 0 else b"ab"
    tokens = [bytes(chance.choices(letters, k=chance.randrange(7))) for _ in range(chance.randrange(1, 50))]
    trie = TokenTrie(tokens)
    nodes = depth_first(tokens)
    paths = [path for path, _ in nodes]
    assert trie.nodes == len(nodes) and trie.words == (len(tokens) + 31) // 32
    assert trie.depth.tolist() == [len(path) for path in paths] and trie.max_depth == max(map(len, paths))
    assert trie.byte.tolist()[1:] == [path[-1] for path in paths[1:]]
    assert trie.byte_at == trie.byte.tobytes()
    for node, (path, ids) in enumerate(nodes):
        assert trie.token_ids[trie.first[node] : trie.first[node + 1]].tolist() == ids
        assert trie.token[node] == (-1 if not ids else ids[0] if len(ids) == 1 else -2)
        assert trie.skip[node] == node + sum(other.startswith(path) for other in paths)
        assert trie.node(path) == node
    for level in trie.levels:
        for node, parent in zip(level.nodes.tolist(), level.parents.tolist(), strict=True):
            assert paths[parent] == paths[node][:-1]
    assert sorted(np.concatenate([level.nodes for level in trie.levels] or [[]]).tolist()) == list(range(1, len(nodes)))


@pytest.mark.parametrize("tokens", [[b""], [b"", b""], [b"x"], [b"", b"x", b"x", b"xx"]])
def test_small_ones(tokens: list[bytes]) -> None:
    trie = TokenTrie(tokens)
    assert trie.token_ids.tolist() == [token for token, data in enumerate(tokens) if data]
    assert trie.node(b"y") is None
