"""A seeded Llama-shaped model of a few hundred kilobytes, made at test time: as a folder, or as a GGUF file.

The folder has what a model hub's folder has (config, weights, tokenizer, chat template), so transformers loads it
too. The GGUF file is written by a minimal writer of our own, so that a test of the reader does not lean on the
package that most GGUF files come from.
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
ENDOFTEXT, IM_START, IM_END = 0, 1, 2

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

# What the merges are learned from: English words, digits, JSON and a little of other scripts.
_CORPUS = """
the quick brown fox jumps over the lazy dog and then the dog sleeps in the sun while the fox runs to the river
system user assistant question answer yes no true false null name age city number string value list of items
What is the capital of France? The capital of France is Paris. Tell me a story about a dragon and a princess.
{"name": "Anna", "age": 31, "city": "Oslo"} {"name": "Ben", "age": 27, "city": "Rome"} [1, 2, 3, 10, 20, 100, 2024]
one two three four five six seven eight nine ten I think that we should go there with them because it is good
Das ist ein Satz über Bäume. C'est déjà l'été. Привет, мир. 你好，世界 😀
"""


def byte_alphabet() -> dict[int, str]:
    """Byte -> the printable character that byte-level BPE writes it as (the map of GPT-2's encoder)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {b: chr(b) for b in printable}
    for n, b in enumerate(b for b in range(256) if b not in alphabet):
        alphabet[b] = chr(256 + n)
    return alphabet


def _learn_merges(count: int) -> list[tuple[str, str]]:
    """The ``count`` most frequent pairs in turn, ties broken by spelling, so the result never depends on the run."""
    alphabet = byte_alphabet()
    words: Counter[tuple[str, ...]] = Counter()
    for line in _CORPUS.strip().splitlines():
        for n, word in enumerate(line.split(" ")):
            data = (" " if n else "").encode() + word.encode()
            words[tuple(alphabet[b] for b in data)] += 1
    merges: list[tuple[str, str]] = []
    made: set[str] = set()
    while len(merges) < count:
        pairs: Counter[tuple[str, str]] = Counter()
        for symbols, times in words.items():
            for pair in pairwise(symbols):
                pairs[pair] += times
        # A second merge that spells an existing token would give one string two ids.
        usable = [(times, pair) for pair, times in pairs.items() if "".join(pair) not in made]
        if not usable:
            raise ValueError(f"the corpus yields only {len(merges)} merges, {count} were asked for")
        _, best = min(usable, key=lambda item: (-item[0], item[1]))
        merges.append(best)
        made.add("".join(best))
        merged: Counter[tuple[str, ...]] = Counter()
        for symbols, times in words.items():
            merged[_merge(symbols, best)] += times
        words = merged
    return merges


def _merge(symbols: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    out: list[str] = []
    i = 0
    while i < len(symbols):
        if symbols[i : i + 2] == pair:
            out.append(pair[0] + pair[1])
            i += 2
        else:
            out.append(symbols[i])
            i += 1
    return tuple(out)


def tiny_vocabulary(vocab: int) -> tuple[list[str], list[tuple[str, str]]]:
    """(tokens in order of id, merges): the specials, 256 bytes, then merges up to ``vocab`` tokens."""
    alphabet = byte_alphabet()
    merges = _learn_merges(vocab - len(SPECIALS) - 256)
    return [*SPECIALS, *(alphabet[b] for b in range(256)), *(a + b for a, b in merges)], merges


def tiny_weights(
    *, seed: int, layers: int, hidden: int, heads: int, kv_heads: int, vocab: int, ff: int
) -> dict[str, NDArray[np.float32]]:
    """Hugging Face names -> float32. Scaled so that logits are spread and depend on the whole context."""
    rng = np.random.default_rng(seed)
    dim = hidden // heads

    def matrix(rows: int, columns: int, gain: float = 1.0) -> NDArray[np.float32]:
        return (rng.standard_normal((rows, columns)) * (gain / columns**0.5)).astype(np.float32)

    def norm() -> NDArray[np.float32]:
        return (1 + 0.1 * rng.standard_normal(hidden)).astype(np.float32)

    weights = {"model.embed_tokens.weight": rng.standard_normal((vocab, hidden)).astype(np.float32)}
    for n in range(layers):
        prefix = f"model.layers.{n}."
        weights[prefix + "input_layernorm.weight"] = norm()
        weights[prefix + "self_attn.q_proj.weight"] = matrix(heads * dim, hidden, 2.0)
        weights[prefix + "self_attn.k_proj.weight"] = matrix(kv_heads * dim, hidden, 2.0)
        weights[prefix + "self_attn.v_proj.weight"] = matrix(kv_heads * dim, hidden)
        weights[prefix + "self_attn.o_proj.weight"] = matrix(hidden, heads * dim, 2.0)
        weights[prefix + "post_attention_layernorm.weight"] = norm()
        weights[prefix + "mlp.gate_proj.weight"] = matrix(ff, hidden)
        weights[prefix + "mlp.up_proj.weight"] = matrix(ff, hidden)
        weights[prefix + "mlp.down_proj.weight"] = matrix(hidden, ff, 2.0)
    weights["model.norm.weight"] = norm()
    weights["lm_head.weight"] = matrix(vocab, hidden, 3.0)
    return weights


def make_tiny_model(
    folder: Path,
    *,
    seed: int = 0,
    layers: int = 2,
    hidden: int = 64,
    heads: int = 4,
    kv_heads: int = 2,
    vocab: int = 512,
    context: int = 2048,
    padded: int = 0,
) -> Path:
    """Write a Llama folder (config, weights, byte-level BPE tokenizer, ChatML template) and return it.

    ``vocab`` counts the tokenizer's tokens; ``padded`` adds rows to the embedding that no token has, as many real
    models do. The same arguments give the same bytes. Chat turns end with ``<|im_end|>`` (2); no BOS is added.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tokens, merges = tiny_vocabulary(vocab)
    ff = 2 * hidden
    shape = {"layers": layers, "hidden": hidden, "heads": heads, "kv_heads": kv_heads, "vocab": vocab + padded}
    save_file(tiny_weights(seed=seed, ff=ff, **shape), folder / "model.safetensors", metadata={"format": "pt"})
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": ff,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": hidden // heads,
        "hidden_act": "silu",
        "max_position_embeddings": context,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "vocab_size": vocab + padded,
        "bos_token_id": ENDOFTEXT,
        "eos_token_id": IM_END,
        "torch_dtype": "float32",
    }
    _write_json(folder / "config.json", config)
    _write_json(folder / "generation_config.json", {"bos_token_id": ENDOFTEXT, "eos_token_id": [IM_END, ENDOFTEXT]})
    _write_json(folder / "tokenizer.json", _tokenizer_json(tokens, merges))
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "add_bos_token": False,
            "bos_token": "<|endoftext|>",
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "chat_template": CHAT_TEMPLATE,
            "clean_up_tokenization_spaces": False,
            "model_max_length": context,
        },
    )
    return folder


def _tokenizer_json(tokens: Sequence[str], merges: Sequence[tuple[str, str]]) -> dict[str, Any]:
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": n, "content": text, **flags} for n, text in enumerate(SPECIALS)],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: n for n, token in enumerate(tokens)},
            "merges": [list(pair) for pair in merges],
        },
    }


def _write_json(path: Path, data: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(data, ensure_ascii=False, indent=1), encoding="utf-8")


# ---------------------------------------------------------------- GGUF

GGUF_TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 8, "BF16": 30}
_SCALARS = {"u32": (4, "<I"), "i32": (5, "<i"), "f32": (6, "<f"), "bool": (7, "<?"), "u64": (10, "<Q")}


def encode_tensor(values: NDArray[np.float32], kind: str) -> bytes:
    """A float32 array as GGUF stores it. Blocks of 32 run along the last axis."""
    if kind == "F32":
        return values.astype("<f4").tobytes()
    if kind == "F16":
        return values.astype("<f2").tobytes()
    if kind == "BF16":
        bits = values.astype("<f4").view("<u4")
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()
    blocks = values.reshape(-1, 32).astype(np.float32)
    if kind == "Q8_0":
        scale = (np.abs(blocks).max(axis=1, keepdims=True) / 127).astype("<f2")
        quants = np.rint(blocks / np.maximum(scale.astype(np.float32), 1e-12)).clip(-127, 127).astype(np.int8)
        return np.concatenate([scale.view(np.uint8), quants.view(np.uint8)], axis=1).tobytes()
    if kind == "Q4_1":
        low = blocks.min(axis=1, keepdims=True).astype("<f2")
        scale = ((blocks.max(axis=1, keepdims=True) - low) / 15).astype("<f2")
        quants = np.rint((blocks - low) / np.maximum(scale.astype(np.float32), 1e-12)).clip(0, 15).astype(np.uint8)
        packed = quants[:, :16] | (quants[:, 16:] << 4)
        return np.concatenate([scale.view(np.uint8), low.view(np.uint8), packed], axis=1).tobytes()
    raise ValueError(f"this writer has no {kind}")


def encode_gguf(
    metadata: Mapping[str, tuple[str, Any]],
    tensors: Iterable[tuple[str, NDArray[np.float32], str]],
    *,
    alignment: int = 32,
) -> bytes:
    """A whole GGUF v3 file. ``metadata`` values are (type, value), type ``"[]T"`` for an array of T."""
    tensors = list(tensors)
    head = bytearray(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata)))
    for key, (kind, value) in metadata.items():
        head += _string(key)
        if kind.startswith("[]"):
            items = b"".join(_value(kind[2:], item)[1] for item in value)
            head += struct.pack("<IIQ", 9, _value_type(kind[2:]), len(value)) + items
        else:
            code, data = _value(kind, value)
            head += struct.pack("<I", code) + data
    body = bytearray()
    for name, values, kind in tensors:
        body += bytes(-len(body) % alignment)
        head += _string(name) + struct.pack("<I", values.ndim)
        head += b"".join(struct.pack("<Q", n) for n in reversed(values.shape))
        head += struct.pack("<IQ", GGUF_TYPES[kind], len(body))
        body += encode_tensor(values, kind)
    head += bytes(-len(head) % alignment)
    return bytes(head + body)


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value_type(kind: str) -> int:
    return 8 if kind == "str" else _SCALARS[kind][0]


def _value(kind: str, value: Any) -> tuple[int, bytes]:
    if kind == "str":
        return 8, _string(value)
    code, layout = _SCALARS[kind]
    return code, struct.pack(layout, value)


def interleave(rows: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Reorder the rows of a q or k projection as llama's GGUF files have them: rotated pairs side by side."""
    out, columns = rows.shape
    return rows.reshape(heads, 2, out // heads // 2, columns).swapaxes(1, 2).reshape(out, columns)


def gguf_tensor_name(name: str) -> str:
    """``model.layers.0.mlp.up_proj.weight`` -> ``blk.0.ffn_up.weight``."""
    parts = {
        "model.layers.": "blk.",
        "model.embed_tokens": "token_embd",
        "model.norm": "output_norm",
        "lm_head": "output",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }
    for old, new in parts.items():
        name = name.replace(old, new)
    return name


def tiny_gguf_metadata(
    *, layers: int = 2, hidden: int = 64, heads: int = 4, kv_heads: int = 2, vocab: int = 512, context: int = 2048
) -> dict[str, tuple[str, Any]]:
    """The metadata of the tiny model's GGUF file, for tests that spoil one entry."""
    tokens, merges = tiny_vocabulary(vocab)
    return {
        "general.architecture": ("str", "llama"),
        "general.name": ("str", "Tiny"),
        "llama.block_count": ("u32", layers),
        "llama.context_length": ("u32", context),
        "llama.embedding_length": ("u32", hidden),
        "llama.feed_forward_length": ("u32", 2 * hidden),
        "llama.attention.head_count": ("u32", heads),
        "llama.attention.head_count_kv": ("u32", kv_heads),
        "llama.attention.layer_norm_rms_epsilon": ("f32", 1e-5),
        "llama.rope.freq_base": ("f32", 10000.0),
        "llama.rope.dimension_count": ("u32", hidden // heads),
        "llama.vocab_size": ("u32", vocab),
        "tokenizer.ggml.model": ("str", "gpt2"),
        "tokenizer.ggml.pre": ("str", "gpt-2"),
        "tokenizer.ggml.tokens": ("[]str", tokens),
        "tokenizer.ggml.token_type": ("[]i32", [3 if n < len(SPECIALS) else 1 for n in range(len(tokens))]),
        "tokenizer.ggml.merges": ("[]str", [f"{a} {b}" for a, b in merges]),
        "tokenizer.ggml.bos_token_id": ("u32", ENDOFTEXT),
        "tokenizer.ggml.eos_token_id": ("u32", IM_END),
        "tokenizer.ggml.padding_token_id": ("u32", ENDOFTEXT),
        "tokenizer.ggml.add_bos_token": ("bool", False),
        "tokenizer.chat_template": ("str", CHAT_TEMPLATE),
    }


def write_tiny_gguf(folder: Path, *, kind: str = "F32", seed: int = 0, name: str | None = None) -> Path:
    """The default tiny model as one GGUF file; its matrices are stored as ``kind``, its norms as F32."""
    shape = {"layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "vocab": 512}
    tensors: list[tuple[str, NDArray[np.float32], str]] = []
    for hf_name, values in tiny_weights(seed=seed, ff=128, **shape).items():
        if hf_name.endswith("q_proj.weight"):
            values = interleave(values, shape["heads"])
        elif hf_name.endswith("k_proj.weight"):
            values = interleave(values, shape["kv_heads"])
        tensors.append((gguf_tensor_name(hf_name), values, "F32" if values.ndim == 1 else kind))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (name or f"tiny-{kind}.gguf")
    path.write_bytes(encode_gguf(tiny_gguf_metadata(**shape), tensors))
    return path
