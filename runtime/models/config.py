"""The shape of a decoder: what a config.json or a GGUF file's metadata says, checked, in our own words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ..errors import ModelError

if TYPE_CHECKING:
    from .gguf import GGUFFile

ARCHITECTURES = ("llama", "mistral", "qwen2", "qwen3")
_GGUF_ARCHITECTURES = ("llama", "qwen2", "qwen3")  # llama.cpp writes Mistral as llama

# Larger than any model we know of by a wide margin; a number beyond it is a damaged file.
_LIMIT = 1 << 24
_LAYER_LIMIT = 4096


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """How rotary frequencies are stretched for long contexts.

    linear: every frequency divided by ``factor``. llama3: low ones divided, high ones kept, a ramp between.
    table: divisors stored as a tensor of the GGUF file (how llama3 scaling is written there).
    """

    kind: Literal["linear", "llama3", "table"]
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context: int = 8192


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """A Llama-shaped decoder: pre-norm, rotary positions, grouped-query attention, gated SiLU feed-forward.

    ``context`` in tokens; ``cut_from`` is what it would be without a sliding window: up to the window, windowed
    attention is plain attention, and beyond it we would be wrong. ``qkv_bias``, ``output_bias``, ``mlp_bias``: which
    projections add a bias. ``qk_norm``: q and k are RMS-normed per head before rotation (Qwen3).
    """

    architecture: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    vocab: int
    context: int
    norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None = None
    tied_embeddings: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    cut_from: int | None = None

    @property
    def cut(self) -> str | None:
        """What to tell whoever loads a model whose context is cut to its sliding window."""
        if self.cut_from is None:
            return None
        return (
            f"its context of {self.cut_from:,} tokens is cut to {self.context:,}: beyond its sliding window, which is "
            "not computed, its texts would be wrong"
        )

    def checked(self, where: str) -> DecoderConfig:
        """Itself, or ModelError naming the first number that cannot be. ``where``: the file, for the message."""
        sizes = {
            "hidden size": self.hidden,
            "layer count": self.layers,
            "attention head count": self.heads,
            "key/value head count": self.kv_heads,
            "head dimension": self.head_dim,
            "feed-forward size": self.feed_forward,
            "vocabulary size": self.vocab,
            "context length": self.context,
        }
        for name, size in sizes.items():
            if not 0 < size <= _LIMIT:
                raise ModelError(f"{where}: the {name} is {size}; the file is damaged, download it again")
        if self.layers > _LAYER_LIMIT:
            raise ModelError(f"{where}: the layer count is {self.layers}; the file is damaged, download it again")
        if self.heads % self.kv_heads:
            raise ModelError(f"{where}: {self.heads} heads cannot share {self.kv_heads} key/value heads evenly")
        if self.head_dim % 2:
            raise ModelError(f"{where}: rotary positions need an even head dimension, not {self.head_dim}")
        for label, number in (("norm epsilon", self.norm_eps), ("rope theta", self.rope_theta)):
            if not (math.isfinite(number) and number > 0):
                raise ModelError(f"{where}: the {label} is {number}; the file is damaged, download it again")
        scaling = self.rope_scaling
        if scaling is not None and not (math.isfinite(scaling.factor) and scaling.factor > 0):
            raise ModelError(f"{where}: the rope scaling factor is {scaling.factor}, which must be above 0")
        return self


class _Fields:
    """Typed reads out of untrusted JSON or GGUF metadata; a missing or wrong one is a ModelError naming it."""

    def __init__(self, where: str, data: Mapping[str, Any]) -> None:
        self.where = where
        self.data = data

    def integer(self, key: str, default: int | None = None) -> int:
        value = self.data.get(key)
        if value is None:
            value = default
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(key, value, "an integer")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self.data.get(key)
        if value is None:
            value = default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(key, value, "a number")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self.data.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self._wrong(key, value, "true or false")
        return value

    def _wrong(self, key: str, value: object, wanted: str) -> ModelError:
        if value is None:
            return ModelError(f"{self.where}: lacks {key}; take the model's original, complete files")
        return ModelError(f"{self.where}: {key} is {value!r}, not {wanted}; take the model's original files")


def _check_architecture(where: str, architecture: object, known: tuple[str, ...]) -> str:
    if architecture not in known:
        raise ModelError(
            f"{where}: the architecture {architecture!r} is not supported; use a model of one of: {', '.join(known)}"
        )
    return str(architecture)


def config_from_json(where: str, data: Mapping[str, Any]) -> DecoderConfig:
    """DecoderConfig of a Hugging Face config.json. Raises ModelError."""
    architecture = _check_architecture(where, data.get("model_type"), ARCHITECTURES)
    if data.get("quantization_config") is not None:
        raise ModelError(
            f"{where}: quantized safetensors weights are not supported; use the unquantized model or a GGUF file of it"
        )
    fields = _Fields(where, data)
    if data.get("hidden_act", "silu") not in ("silu", "swish"):
        raise ModelError(f"{where}: the activation {data['hidden_act']!r} is not supported, only 'silu' is")
    hidden, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    if heads < 1:
        raise ModelError(f"{where}: num_attention_heads is {heads}; the file is damaged, download it again")
    layers = fields.integer("num_hidden_layers")
    full = fields.integer("max_position_embeddings", 2048)
    context = min(full, _window(fields, architecture, layers) or full)
    rope = _Fields(where, _rope_entries(data))
    if rope.number("partial_rotary_factor", 1.0) != 1.0:
        raise ModelError(f"{where}: partial_rotary_factor is not supported; use a model that rotates whole heads")
    bias = fields.flag("attention_bias", architecture == "qwen2")
    return DecoderConfig(
        architecture=architecture,
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=fields.integer("num_key_value_heads", heads),
        head_dim=fields.integer("head_dim", hidden // heads),
        feed_forward=fields.integer("intermediate_size"),
        vocab=fields.integer("vocab_size"),
        context=context,
        cut_from=full if context < full else None,
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        rope_theta=rope.number("rope_theta", 10000.0),
        rope_scaling=_scaling_from_json(where, rope),
        tied_embeddings=fields.flag("tie_word_embeddings", False),
        qkv_bias=bias,
        output_bias=bias and architecture != "qwen2",
        mlp_bias=fields.flag("mlp_bias", False),
        qk_norm=architecture == "qwen3",
    ).checked(where)


def _window(fields: _Fields, architecture: str, layers: int) -> int | None:
    """How many tokens back some layer sees, where that is not all of them. The defaults are those of transformers."""
    if architecture == "mistral":
        return fields.integer("sliding_window", 4096) if fields.data.get("sliding_window", 4096) is not None else None
    if not fields.flag("use_sliding_window", False):
        return None
    kinds = fields.data.get("layer_types")
    first = fields.integer("max_window_layers", 28)
    windowed = "sliding_attention" in kinds if isinstance(kinds, list) else first < layers
    return fields.integer("sliding_window", 4096) if windowed else None


def _rope_entries(data: Mapping[str, Any]) -> dict[str, Any]:
    """Rotary settings from wherever this generation of config.json keeps them."""
    entries = {key: data[key] for key in ("rope_theta", "partial_rotary_factor") if key in data}
    for key in ("rope_scaling", "rope_parameters"):
        if isinstance(data.get(key), Mapping):
            entries.update(data[key])
    return entries


def _scaling_from_json(where: str, rope: _Fields) -> RopeScaling | None:
    kind = rope.data.get("rope_type", rope.data.get("type", "default"))
    if kind == "default":
        return None
    if kind == "linear":
        return RopeScaling("linear", factor=rope.number("factor"))
    if kind == "llama3":
        return RopeScaling(
            "llama3",
            factor=rope.number("factor"),
            low_freq_factor=rope.number("low_freq_factor"),
            high_freq_factor=rope.number("high_freq_factor"),
            original_context=rope.integer("original_max_position_embeddings"),
        )
    raise ModelError(f"{where}: the rope scaling {kind!r} is not supported; use a model with linear, llama3 or none")


def config_from_gguf(file: GGUFFile) -> DecoderConfig:
    """DecoderConfig of a GGUF file's metadata. Raises ModelError."""
    where = str(file.path)
    name = _check_architecture(where, file.metadata.get("general.architecture"), _GGUF_ARCHITECTURES)
    fields = _Fields(where, file.metadata)
    if fields.integer(f"{name}.expert_count", 0) > 0:
        raise ModelError(f"{where}: mixture-of-experts models are not supported; use a dense model")
    hidden, heads = fields.integer(f"{name}.embedding_length"), fields.integer(f"{name}.attention.head_count")
    if heads < 1:
        raise ModelError(f"{where}: {name}.attention.head_count is {heads}; the file is damaged, download it again")
    head_dim = fields.integer(f"{name}.attention.key_length", hidden // heads)
    if fields.integer(f"{name}.rope.dimension_count", head_dim) != head_dim:
        raise ModelError(f"{where}: partly rotated heads are not supported; use a model that rotates whole heads")
    context = fields.integer(f"{name}.context_length")
    window = fields.integer(f"{name}.attention.sliding_window", context) or context
    embedding = file.tensors.get("token_embd.weight")
    tokens = file.metadata.get("tokenizer.ggml.tokens", [])
    listed = len(tokens) if isinstance(tokens, list) else 0
    return DecoderConfig(
        architecture=name,
        hidden=hidden,
        layers=fields.integer(f"{name}.block_count"),
        heads=heads,
        kv_heads=fields.integer(f"{name}.attention.head_count_kv", heads),
        head_dim=head_dim,
        feed_forward=fields.integer(f"{name}.feed_forward_length"),
        vocab=embedding.shape[0] if embedding else fields.integer(f"{name}.vocab_size", listed),
        context=min(context, window),
        cut_from=context if window < context else None,
        norm_eps=fields.number(f"{name}.attention.layer_norm_rms_epsilon"),
        rope_theta=fields.number(f"{name}.rope.freq_base", 10000.0),
        rope_scaling=_scaling_from_gguf(where, name, fields, "rope_freqs.weight" in file.tensors),
        tied_embeddings="output.weight" not in file.tensors,
        qkv_bias="blk.0.attn_q.bias" in file.tensors,
        output_bias="blk.0.attn_output.bias" in file.tensors,
        mlp_bias="blk.0.ffn_up.bias" in file.tensors,
        qk_norm="blk.0.attn_q_norm.weight" in file.tensors,
    ).checked(where)


def _scaling_from_gguf(where: str, name: str, fields: _Fields, has_table: bool) -> RopeScaling | None:
    kind = fields.data.get(f"{name}.rope.scaling.type", "none")
    if has_table:
        return RopeScaling("table")
    if kind == "none":
        return None
    if kind == "linear":
        return RopeScaling("linear", factor=fields.number(f"{name}.rope.scaling.factor"))
    raise ModelError(f"{where}: the rope scaling {kind!r} is not supported; use a model with linear, llama3 or none")
