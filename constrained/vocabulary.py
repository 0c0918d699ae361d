"""What a token id means in bytes, and which ids bytes become. Serves the front, the core and the automata.

The encoder is a callable given from outside, so this room needs no tokenizer library.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from .trie import TokenTrie

Data = bytes  # inside the class, `bytes` is the method


class Vocabulary:
    """The ids of one model, as bytes.

    ``tokens[id]`` is what the id stands for in text; None (or b"") for special, unused and padded ids, which are
    never text. ``size`` is the width of the model's logits and may exceed ``len(tokens)`` (padding).
    ``eos_ids`` end a sequence. ``encode`` is the tokenizer's canonical encoding of valid UTF-8 without special
    ids, without BOS and without a dummy space; see :meth:`encode` for what is built on it.

    Raises ValueError for ids outside ``size`` and for an EOS id that is also text.
    """

    def __init__(
        self,
        tokens: Sequence[Data | None],
        *,
        size: int,
        eos_ids: Sequence[int] = (),
        special_ids: Sequence[int] = (),
        encode: Callable[[Data], list[int]],
    ) -> None:
        if len(tokens) > size:
            raise ValueError(f"{len(tokens)} tokens do not fit a vocabulary of {size} ids")
        special = frozenset(special_ids) | frozenset(eos_ids)
        for token in special:
            if not 0 <= token < size:
                raise ValueError(f"special id {token} is outside 0 to {size - 1}")
        texts = [data or b"" for data in tokens]
        texts.extend([b""] * (size - len(texts)))
        for token in special:
            texts[token] = b""
        self.size = size
        self.mask_words = (size + 31) // 32
        self.tokens: tuple[Data, ...] = tuple(texts)
        self.eos_ids = tuple(sorted(set(eos_ids)))
        self.special_ids = special
        self._encode = encode
        #: what others built over this vocabulary, by name; it lives and goes with it (see :mod:`.lexicon`)
        self.shared: dict[str, object] = {}

    def bytes(self, token: int) -> Data:
        """The id's bytes; b"" for special and padded ids."""
        return self.tokens[token]

    def decode(self, ids: Sequence[int]) -> Data:
        """The bytes of ``ids`` end to end."""
        return b"".join([self.tokens[token] for token in ids])

    def encode(self, data: Data) -> list[int]:
        """Canonical ids of ``data``: always ``decode(encode(data)) == data``, never a special id.

        Valid UTF-8 is encoded by the tokenizer. Where that is impossible (bytes that are not UTF-8) or does not give
        the same bytes back (a tokenizer that normalizes text), the piece is covered by the longest tokens from the
        left. Raises ValueError if the vocabulary cannot spell a byte.
        """
        ids: list[int] = []
        for piece, valid in utf8_pieces(data):
            if valid:
                found = self._encode(piece)
                if self.decode(found) == piece:
                    ids.extend(found)
                    continue
            ids.extend(self.longest_tokens(piece))
        return ids

    def longest_tokens(self, data: Data) -> list[int]:
        """Cover ``data`` by the longest token at each place, from the left. ValueError if a byte cannot be spelled."""
        ids = []
        at = 0
        while at < len(data):
            for end in range(min(len(data), at + self.longest), at, -1):
                token = self.id_of.get(data[at:end])
                if token is not None:
                    ids.append(token)
                    at = end
                    break
            else:
                raise ValueError(f"the vocabulary has no token that spells byte 0x{data[at]:02x}")
        return ids

    @cached_property
    def hash(self) -> str:
        """Hex digest of everything a token mask depends on: size, bytes of each id, EOS ids."""
        digest = hashlib.sha256(f"{self.size} {self.eos_ids} ".encode())
        for data in self.tokens:
            digest.update(len(data).to_bytes(4, "little"))
            digest.update(data)
        return digest.hexdigest()

    @cached_property
    def longest(self) -> int:
        """Bytes of the longest token."""
        return max((len(data) for data in self.tokens), default=0)

    @cached_property
    def id_of(self) -> dict[Data, int]:
        """The lowest id that spells these bytes."""
        found: dict[Data, int] = {}
        for token in range(self.size - 1, -1, -1):
            if self.tokens[token]:
                found[self.tokens[token]] = token
        return found

    @cached_property
    def missing_bytes(self) -> frozenset[int]:
        """The byte values that no token spells alone. Constraints never write them: who needs one may be stuck."""
        return frozenset(value for value in range(256) if bytes((value,)) not in self.id_of)

    @cached_property
    def blank_ids(self) -> NDArray[np.intp]:
        """Ids that no token has (padding of the logits, unused rows), ascending: nothing may ever come of them."""
        named = self.special_ids
        return np.array([i for i, data in enumerate(self.tokens) if not data and i not in named], dtype=np.intp)

    @cached_property
    def eos_mask(self) -> NDArray[np.uint32]:
        """uint32[mask_words] with the bits of ``eos_ids``, read-only."""
        mask = np.zeros(self.mask_words, np.uint32)
        for token in self.eos_ids:
            mask[token // 32] |= np.uint32(1 << token % 32)
        mask.flags.writeable = False
        return mask

    @cached_property
    def eos_address(self) -> int:
        """Where :attr:`eos_mask` lies, for native code."""
        return int(self.eos_mask.ctypes.data)

    @cached_property
    def trie(self) -> TokenTrie:
        """All text tokens as a flat trie, built on first use."""
        return TokenTrie(self.tokens)


def single_bytes() -> Vocabulary:
    """A vocabulary that spells everything byte by byte; its end token is 256. What a constraint says is the same over
    every vocabulary, so this one serves where no model is at hand."""
    tokens: list[bytes | None] = [bytes((value,)) for value in range(256)]
    return Vocabulary(tokens, size=257, eos_ids=[256], encode=list)


def utf8_pieces(data: bytes) -> list[tuple[bytes, bool]]:
    """``data`` cut into runs that are valid UTF-8 (True) and runs that are not (False); no run is empty."""
    pieces: list[tuple[bytes, bool]] = []
    at = bad = 0  # data[bad:at] is an invalid run not yet emitted
    while at < len(data):
        try:
            data[at:].decode()
            good = len(data)
        except UnicodeDecodeError as error:
            good = at + error.start
            skip = error.end - error.start
        if good > at:
            if bad < at:
                pieces.append((data[bad:at], False))
            pieces.append((data[at:good], True))
            bad = at = good
        if at < len(data):
            at += skip
    if bad < at:
        pieces.append((data[bad:at], False))
    return pieces
