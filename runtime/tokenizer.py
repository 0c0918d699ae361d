"""Text to ids and ids to bytes, for a model card. Uses the ``tokenizers`` library; no torch, no transformers.

A safetensors folder brings a tokenizer.json; for a GGUF file :mod:`.gguf_tokenizer` puts one together.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tokenizers

from ..constrained.vocabulary import Vocabulary
from .errors import ModelError
from .gguf_tokenizer import tokenizer_json
from .protocol import without_surrogates

if TYPE_CHECKING:
    from .models.card import ModelCard, TokenizerSource

Json = dict[str, Any]
_LONG = 4096  # characters: some milliseconds


def load_tokenizer(card: ModelCard) -> Tokenizer:
    """The tokenizer of a model. Raises ModelError naming the file and what is wrong with it."""
    source = card.tokenizer
    where = str(source.tokenizer_json or card.path)
    try:
        data = _read_json(source.tokenizer_json) if source.tokenizer_json else _from_gguf(source, where)
        return Tokenizer(
            data,
            size=card.config.vocab,
            bos_id=card.bos_id,
            eos_ids=tuple(card.eos_ids),
            add_bos=card.add_bos,
            where=where,
        )
    except ModelError:
        raise
    except Exception as error:  # tokenizers raises bare Exception for a malformed file
        raise ModelError(f"{where}: the tokenizer cannot be read ({error}); fetch the model again") from error


class Tokenizer:
    """A tokenizer.json (as parsed JSON) for a model with ``size`` logits. Thread safe; never adds BOS itself."""

    def __init__(
        self,
        data: Json,
        *,
        size: int,
        bos_id: int | None = None,
        eos_ids: tuple[int, ...] = (),
        add_bos: bool = False,
        where: str = "tokenizer",
    ) -> None:
        self.bos_id = bos_id
        self.eos_ids = eos_ids
        self.add_bos = add_bos
        self.size = size
        self._json = data
        self._variants: dict[tuple[bool, bool], tokenizers.Tokenizer] = {}
        self.has_dummy_space = _without_prefix_space(data) != data
        tokens = self._variant(special=True, start=False).get_vocab(with_added_tokens=True)
        top = max(tokens.values(), default=-1)
        if top >= size:
            raise ModelError(
                f"{where}: token id {top} does not fit the model's {size} logits; "
                "the tokenizer and the weights do not belong together"
            )
        added = {entry["id"]: entry for entry in data.get("added_tokens") or ()}
        self.special_tokens: dict[str, int] = {e["content"]: i for i, e in added.items() if e.get("special")}
        self._spelling: list[bytes | None] = [None] * size
        to_bytes = _spelling_of(data, where)
        for text, token in tokens.items():
            self._spelling[token] = text.encode() if token in added else to_bytes(text)

    def encode(self, text: str, *, special: bool, start: bool = False) -> list[int]:
        """Ids of ``text``, without BOS.

        ``special=False``: a typed ``<|im_end|>`` becomes the ids of its characters, never the special id.
        ``start=True``: the text opens a strand, so a SentencePiece tokenizer puts its dummy space before it.
        Unpaired surrogates, which no encoder can spell, become U+FFFD.
        """
        if not text:
            return []
        tokenizer = self._variant(special, start and self.has_dummy_space)
        text = without_surrogates(text)
        if len(text) > _LONG:  # encode holds the interpreter's lock all the while, encode_batch does not
            found = tokenizer.encode_batch([text], add_special_tokens=False)[0]
        else:
            found = tokenizer.encode(text, add_special_tokens=False)
        ids: list[int] = found.ids
        return ids

    def fewest(self, text: str) -> int:
        """``text`` has at least this many ids. Costs next to nothing, so nobody need encode what cannot fit."""
        return -(-len(text.encode("utf-8", "replace")) // self._most_bytes) if self._most_bytes else 0

    @cached_property
    def _most_bytes(self) -> int:
        """How many bytes of a text one id can stand for; 0: there is no telling."""
        longest = max((len(spelling) for spelling in self._spelling if spelling), default=1)
        shrink = 1
        for step in _parts(self._json.get("normalizer")):
            if step["type"] in ("NFC", "NFD", "NFKC", "NFKD"):
                shrink = 4  # three letters of Hangul, nine bytes, become one of three
            elif step["type"] == "Replace":
                pattern = step["pattern"].get("String")
                if pattern is None or len(step["content"]) < len(pattern):
                    return 0
            elif step["type"] != "Prepend":
                return 0
        return longest * shrink

    def token_bytes(self, token: int) -> bytes:
        """What to show for an id: its bytes, or the name of a special token; b"" for padded ids."""
        return self._spelling[token] or b""

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Ids as text bytes (special ids are never text), with the canonical encoder."""
        return Vocabulary(
            self._spelling,
            size=self.size,
            eos_ids=self.eos_ids,
            special_ids=tuple(self.special_tokens.values()),
            encode=lambda data: self.encode(data.decode(), special=False),
        )

    def _variant(self, special: bool, start: bool) -> tokenizers.Tokenizer:
        # The library keeps both choices as state of the tokenizer; separate objects need no lock around encode.
        found = self._variants.get((special, start))
        if found is None:
            data = self._json if start else _without_prefix_space(self._json)
            found = tokenizers.Tokenizer.from_str(json.dumps(data))
            found.encode_special_tokens = not special
            found.no_truncation()
            found.no_padding()
            self._variants[special, start] = found
        return found


def _read_json(path: Path) -> Json:
    try:
        data = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: cannot be read ({error}); fetch the model again") from error
    if not isinstance(data, dict) or not isinstance(data.get("model"), dict):
        raise ModelError(f"{path}: not a tokenizer.json")
    return data


def _from_gguf(source: TokenizerSource, where: str) -> Json:
    return tokenizer_json(
        model=source.model,
        tokens=source.tokens,
        token_types=source.types or None,
        merges=source.merges or None,
        scores=source.scores or None,
        pre=source.pre,
        add_space_prefix=source.add_space_prefix,
        where=where,
    )


def _spelling_of(data: Json, where: str) -> Callable[[str], bytes]:
    """How an entry of the vocabulary is spelled: byte-level alphabet, or SentencePiece with <0xNN> bytes."""
    parts = [*_parts(data.get("pre_tokenizer")), *_parts(data.get("decoder"))]
    if any(part["type"] == "ByteLevel" for part in parts):
        alphabet = _byte_alphabet()

        def byte_level(text: str) -> bytes:
            try:
                return bytes([alphabet[c] for c in text])
            except KeyError:
                return text.encode()  # not reachable by merging; kept as it is written

        return byte_level
    if data["model"].get("byte_fallback"):

        def sentence_piece(text: str) -> bytes:
            if len(text) == 6 and text.startswith("<0x") and text.endswith(">"):
                return bytes([int(text[3:5], 16)])
            return text.replace("▁", " ").encode()

        return sentence_piece
    kind = data["model"].get("type")
    raise ModelError(
        f"{where}: a {kind} tokenizer that is neither byte-level nor falls back to bytes is not supported; "
        "it cannot spell every text"
    )


def _byte_alphabet() -> dict[str, int]:
    """The printable stand-ins of byte-level BPE: visible Latin-1 characters are themselves, the others U+0100 on."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(value): value for value in visible}
    hidden = [value for value in range(256) if value not in set(visible)]
    alphabet.update({chr(0x100 + at): value for at, value in enumerate(hidden)})
    return alphabet


def _parts(component: Json | None) -> list[Json]:
    """A normalizer, pre-tokenizer or decoder as the flat list of its steps."""
    if not component:
        return []
    for key in ("pretokenizers", "normalizers", "decoders"):
        if key in component:
            return [part for inner in component[key] for part in _parts(inner)]
    return [component]


def _without_prefix_space(data: Json) -> Json:
    """The same tokenizer, never putting a space before the text."""

    def strip(component: Json | None) -> Json | None:
        if not component:
            return component
        for key in ("pretokenizers", "normalizers"):
            if key in component:
                kept = [part for part in map(strip, component[key]) if part]
                return {**component, key: kept}
        if component["type"] == "Prepend":
            return None
        if component["type"] == "Metaspace":
            return {**component, "prepend_scheme": "never"}
        if component["type"] == "ByteLevel":
            return {**component, "add_prefix_space": False}
        return component

    return {
        **data,
        "normalizer": strip(data.get("normalizer")),
        "pre_tokenizer": strip(data.get("pre_tokenizer")),
    }
