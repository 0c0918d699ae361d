"""A tokenizer.json (as parsed JSON) put together from what a GGUF file says of its tokenizer.

GGUF keeps the tokens, their types, merges or scores, and the *name* of the pre-tokenizer (``tokenizer.ggml.pre``);
the names and their expressions are those llama.cpp documents for the same key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .errors import ModelError

Json = dict[str, Any]

# tokenizer.ggml.token_type
UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 2, 3, 4, 5, 6

_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_BYTES: Json = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
_GPT2: Json = {**_BYTES, "use_regex": True}


def _split(pattern: str) -> Json:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


_PRE: dict[str, list[Json]] = {
    "gpt2": [_GPT2],
    "smollm": [{"type": "Digits", "individual_digits": True}, _GPT2],
    "llama3": [_split(_LLAMA3), _BYTES],
    "qwen2": [_split(_QWEN2), _BYTES],
}
#: tokenizer.ggml.pre -> entry of _PRE
_NAMES = {
    "": "gpt2",
    "default": "gpt2",
    "gpt-2": "gpt2",
    "gpt2": "gpt2",
    "smollm": "smollm",
    "llama-bpe": "llama3",
    "llama3": "llama3",
    "llama-v3": "llama3",
    "smaug-bpe": "llama3",
    "qwen2": "qwen2",
    "deepseek-r1-qwen": "qwen2",
}


def tokenizer_json(
    *,
    model: str,
    tokens: Sequence[str],
    token_types: Sequence[int] | None,
    merges: Sequence[str] | None,
    scores: Sequence[float] | None = None,
    pre: str | None = None,
    add_space_prefix: bool = True,
    where: str = "GGUF",
) -> Json:
    """``model`` is ``tokenizer.ggml.model``: "gpt2" (byte-level BPE) or "llama" (SentencePiece with byte fallback).

    Raises ModelError naming the kind of tokenizer that is not supported, or the key that is missing.
    """
    types = list(token_types) if token_types is not None else [1] * len(tokens)
    if len(types) != len(tokens):
        raise ModelError(f"{where}: {len(types)} token types for {len(tokens)} tokens; the file is damaged")
    added = [
        {
            "id": token,
            "content": tokens[token],
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": kind != USER_DEFINED,
        }
        for token, kind in enumerate(types)
        if kind in (UNKNOWN, CONTROL, USER_DEFINED, UNUSED) and tokens[token]
    ]
    vocab = {text: token for token, text in enumerate(tokens)}
    if model == "gpt2":
        if merges is None:
            raise ModelError(f"{where}: tokenizer.ggml.merges is missing")
        name = _NAMES.get(pre or "")
        if name is None:
            known = ", ".join(sorted(filter(None, _NAMES)))
            raise ModelError(f"{where}: pre-tokenizer {pre!r} is not supported (known: {known})")
        return {
            "version": "1.0",
            "added_tokens": added,
            "normalizer": {"type": "NFC"} if name == "qwen2" else None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": _PRE[name]},
            "post_processor": None,
            "decoder": _GPT2,
            "model": {
                **_bpe(vocab, [_pair(merge, where) for merge in merges]),
                "ignore_merges": name == "llama3",
            },
        }
    if model == "llama":
        if scores is None:
            raise ModelError(f"{where}: tokenizer.ggml.scores is missing")
        space = [{"type": "Prepend", "prepend": "▁"}] if add_space_prefix else []
        unknown = next((tokens[t] for t, kind in enumerate(types) if kind == UNKNOWN), None)
        return {
            "version": "1.0",
            "added_tokens": added,
            "normalizer": {
                "type": "Sequence",
                "normalizers": [*space, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}],
            },
            "pre_tokenizer": None,
            "post_processor": None,
            "decoder": {
                "type": "Sequence",
                "decoders": [
                    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                    {"type": "ByteFallback"},
                    {"type": "Fuse"},
                ],
            },
            "model": {
                **_bpe(vocab, _merges_by_score(tokens, types, scores, vocab)),
                "unk_token": unknown,
                "fuse_unk": True,
                "byte_fallback": True,
            },
        }
    raise ModelError(f"{where}: tokenizer model {model!r} is not supported (known: gpt2, llama)")


def _bpe(vocab: dict[str, int], merges: list[tuple[str, str]]) -> Json:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": vocab,
        "merges": merges,
    }


def _pair(merge: str, where: str) -> tuple[str, str]:
    left, found, right = merge.partition(" ")
    if not (left and found and right):
        raise ModelError(f"{where}: {merge!r} in tokenizer.ggml.merges is not a pair")
    return left, right


def _merges_by_score(
    tokens: Sequence[str], types: Sequence[int], scores: Sequence[float], vocab: dict[str, int]
) -> list[tuple[str, str]]:
    """SentencePiece joins the adjacent pair whose union scores highest; as ranked merges that is: by falling score
    of the union, each union by every pair of tokens that spells it."""
    found: list[tuple[float, int, tuple[str, str]]] = []
    for token, text in enumerate(tokens):
        if types[token] in (UNKNOWN, CONTROL, UNUSED, BYTE):
            continue
        for cut in range(1, len(text)):
            left, right = text[:cut], text[cut:]
            if left in vocab and right in vocab:
                found.append((-scores[token], token, (left, right)))
    found.sort(key=lambda item: item[:2])
    return [pair for _, _, pair in found]
