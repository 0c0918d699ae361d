"""Ids to bytes and back, and the flat trie over them."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.constrained.trie import TokenTrie
from plait.constrained.vocabulary import Vocabulary, single_bytes, utf8_pieces

TEXTS = [b"a", b"ab", b"abc", b"b", "é".encode(), b"\xf0\x9f", b" "]


def make(tokens: list[bytes | None], size: int | None = None, **fields: object) -> Vocabulary:
    made = Vocabulary(tokens, size=size or len(tokens), encode=lambda data: made.longest_tokens(data), **fields)  # type: ignore[arg-type]  # test shorthand
    return made


def test_special_and_padded_ids_have_no_bytes() -> None:
    vocabulary = make([b"</s>", b"a", None, b"<x>"], size=40, eos_ids=[0], special_ids=[3])
    assert [vocabulary.bytes(token) for token in range(5)] == [b"", b"a", b"", b"", b""]
    assert vocabulary.mask_words == 2
    assert vocabulary.eos_ids == (0,)
    assert vocabulary.special_ids == {0, 3}
    assert vocabulary.id_of == {b"a": 1}
    assert vocabulary.decode([1, 0, 1, 39]) == b"aa"


def test_ids_outside_are_refused() -> None:
    with pytest.raises(ValueError, match="2 tokens do not fit"):
        make([b"a", b"b"], size=1)
    with pytest.raises(ValueError, match="special id 7"):
        make([b"a", b"b"], eos_ids=[7])


def test_hash_tells_vocabularies_apart() -> None:
    base = make([b"a", b"b", None], size=4, eos_ids=[2])
    assert base.hash == make([b"a", b"b", b"</s>"], size=4, eos_ids=[2]).hash
    others = [
        make([b"ab", b"", None], size=4, eos_ids=[2]),
        make([b"a", b"b", None], size=5, eos_ids=[2]),
        make([b"a", b"b", None], size=4, eos_ids=[3]),
    ]
    assert len({base.hash, *(other.hash for other in others)}) == 4


@given(st.binary(max_size=40))
def test_utf8_pieces_cut_exactly(data: bytes) -> None:
    pieces = utf8_pieces(data)
    assert b"".join(piece for piece, _ in pieces) == data
    for at, (piece, valid) in enumerate(pieces):
        assert piece
        assert at == 0 or pieces[at - 1][1] != valid
        if valid:
            piece.decode()
        else:
            assert all(not ok for _, ok in utf8_pieces(piece))


@given(st.binary(max_size=40), st.text(max_size=10))
def test_encode_gives_every_byte_back(data: bytes, text: str) -> None:
    tokens: list[bytes | None] = [*TEXTS, *(bytes([b]) for b in range(256))]
    seen: list[bytes] = []

    def encoder(piece: bytes) -> list[int]:
        seen.append(piece)
        piece.decode()  # the tokenizer is only ever asked for valid text
        return [len(TEXTS) + b for b in piece.lower()]  # and this one changes capitals

    vocabulary = Vocabulary(tokens, size=len(tokens), encode=encoder)
    for sample in (data, text.encode(), data + text.encode() + data):
        assert vocabulary.decode(vocabulary.encode(sample)) == sample


def test_encode_uses_the_tokenizer_where_it_can_and_longest_tokens_elsewhere() -> None:
    tokens: list[bytes | None] = [*TEXTS, *(bytes([b]) for b in range(0x80, 0x100))]
    vocabulary = Vocabulary(tokens, size=len(tokens), encode=lambda data: [TEXTS.index(bytes([b])) for b in data])
    assert vocabulary.encode(b"ab") == [0, 3]  # as the tokenizer says, not the longest
    assert vocabulary.encode(b"ab\xf0\x9f") == [0, 3, 5]
    assert vocabulary.encode(b"") == []
    short = Vocabulary([b"a"], size=1, encode=lambda data: [])  # drops what it does not know
    assert short.encode(b"aa") == [0, 0]
    with pytest.raises(ValueError, match="0x62"):
        short.encode(b"ab")


@settings(max_examples=60)
@given(st.lists(st.one_of(st.binary(max_size=4), st.text("abc", max_size=4).map(str.encode)), max_size=30))
def test_trie_holds_every_token_once(tokens: list[bytes]) -> None:
    trie = TokenTrie(tokens)
    prefixes = {data[:end] for data in tokens for end in range(1, len(data) + 1)}
    assert trie.nodes == len(prefixes) + 1
    assert trie.max_depth == max(map(len, tokens), default=0)
    for prefix in prefixes:
        node = trie.node(prefix)
        assert node is not None
        here = trie.token_ids[trie.first[node] : trie.first[node + 1]].tolist()
        assert trie.token[node] == (here[0] if len(here) == 1 else -2 if here else -1)
        assert here == [token for token, data in enumerate(tokens) if data == prefix]
        below = trie.token_ids[trie.first[node] : trie.first[trie.skip[node]]].tolist()
        assert sorted(below) == [token for token, data in enumerate(tokens) if data.startswith(prefix)]
    assert trie.node(b"zz") is None
    paths = {0: b""}
    for level in trie.levels:
        for node, parent in zip(level.nodes.tolist(), level.parents.tolist()):
            paths[node] = paths[parent] + trie.byte_at[node : node + 1]
    assert set(paths.values()) == prefixes | {b""}


def test_trie_of_many_tokens_finds_them() -> None:
    rng = random.Random(0)
    tokens = [bytes(rng.choices(range(256), k=rng.randint(1, 6))) for _ in range(2000)]
    trie = TokenTrie(tokens)
    assert all(trie.node(data) is not None for data in tokens)
    assert sorted(trie.token_ids.tolist()) == list(range(2000))


def test_bytes_without_a_token_and_the_mask_of_end_tokens() -> None:
    tokens: list[bytes | None] = [bytes((value,)) for value in range(256)]
    tokens[7], tokens[200] = b"two", None
    vocabulary = Vocabulary(tokens, size=300, eos_ids=[290, 256], encode=list)
    assert vocabulary.missing_bytes == {7, 200}
    bits = np.unpackbits(vocabulary.eos_mask.view(np.uint8), bitorder="little")
    assert np.flatnonzero(bits).tolist() == [256, 290] and not vocabulary.eos_mask.flags.writeable
    assert single_bytes().missing_bytes == frozenset()
