"""From a model card to a Decoder: tensors found by name, checked against the config, fused and put on the device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

import torch

from ..errors import ModelError
from ..kernels import select
from .card import ModelCard
from .config import DecoderConfig
from .decoder import Decoder, DecoderWeights, LayerWeights
from .gguf_weights import ROPE_TABLE, GGUFWeights
from .rope import frequencies
from .safetensors_ import SafetensorsWeights

Mode = Literal["reference", "exact"]
DTYPES: Mapping[Mode, torch.dtype] = {"reference": torch.float32, "exact": torch.bfloat16}


class Weights(Protocol):
    """Named tensors under the names of Hugging Face's Llama."""

    where: str

    def names(self) -> set[str]: ...

    def tensor(self, name: str) -> torch.Tensor: ...


def load_model(
    card: ModelCard, *, mode: Mode = "exact", device: torch.device | str = "cpu", threads: int | None = None
) -> Decoder:
    """The card's model, ready for ``allocate``.

    mode: "reference" keeps weights, activations and KV in float32 and computes in plain torch; "exact" keeps them in
    bfloat16, sums in float32 and uses the fastest kernels of the device. ``threads`` sets the CPU threads of this
    process (torch's and the kernels'); None leaves them. Raises ModelError naming the file and what it lacks.
    """
    if mode not in DTYPES:
        raise ModelError(f"mode {mode!r} is not known; use one of: {', '.join(DTYPES)}")
    if threads is not None:
        if threads < 1:
            raise ModelError(f"threads is {threads}; use at least 1")
        torch.set_num_threads(threads)
    weights = open_weights(card)
    built = _Builder(card.config, weights, DTYPES[mode], torch.device(device)).decoder_weights()
    return Decoder(card.config, built, select(device, threads=threads, native=mode != "reference"))


def open_weights(card: ModelCard) -> Weights:
    """The card's tensors, read one by one on demand. Raises ModelError."""
    if card.format == "gguf":
        return GGUFWeights(card.path, card.config)
    return SafetensorsWeights(card.path)


# ---------------------------------------------------------------- building


class _Builder:
    """Takes named tensors, checks their shapes, and lays them out as the decoder wants them."""

    def __init__(self, config: DecoderConfig, weights: Weights, dtype: torch.dtype, device: torch.device) -> None:
        self.config = config
        self.weights = weights
        self.dtype = dtype
        self.device = device
        self.names = weights.names()
        self.used: set[str] = set()

    def decoder_weights(self) -> DecoderWeights:
        config = self.config
        embedding = self.stacked([("model.embed_tokens.weight", config.vocab)], config.hidden)
        head = embedding if config.tied_embeddings else self.stacked([("lm_head.weight", config.vocab)], config.hidden)
        table = None
        if config.rope_scaling is not None and config.rope_scaling.kind == "table":
            table = self.checked(ROPE_TABLE, (config.head_dim // 2,))
        built = DecoderWeights(
            embedding=embedding,
            layers=[self.layer(f"model.layers.{n}.") for n in range(config.layers)],
            norm=self.vector([("model.norm.weight", config.hidden)]),
            head=head,
            rope_frequencies=frequencies(config, table),
        )
        self.refuse_extra()
        return built

    def layer(self, prefix: str) -> LayerWeights:
        config = self.config
        q_rows, kv_rows = config.heads * config.head_dim, config.kv_heads * config.head_dim

        def parts(kind: str, *names: tuple[str, int]) -> list[tuple[str, int]]:
            return [(f"{prefix}{name}.{kind}", rows) for name, rows in names]

        qkv = (("self_attn.q_proj", q_rows), ("self_attn.k_proj", kv_rows), ("self_attn.v_proj", kv_rows))
        output = (("self_attn.o_proj", config.hidden),)
        gate_up = (("mlp.gate_proj", config.feed_forward), ("mlp.up_proj", config.feed_forward))
        down = (("mlp.down_proj", config.hidden),)
        return LayerWeights(
            attention_norm=self.vector(parts("weight", ("input_layernorm", config.hidden))),
            qkv=self.stacked(parts("weight", *qkv), config.hidden),
            output=self.stacked(parts("weight", *output), q_rows),
            mlp_norm=self.vector(parts("weight", ("post_attention_layernorm", config.hidden))),
            gate_up=self.stacked(parts("weight", *gate_up), config.hidden),
            down=self.stacked(parts("weight", *down), config.feed_forward),
            qkv_bias=self.vector(parts("bias", *qkv)) if config.qkv_bias else None,
            output_bias=self.vector(parts("bias", *output)) if config.output_bias else None,
            gate_up_bias=self.vector(parts("bias", *gate_up)) if config.mlp_bias else None,
            down_bias=self.vector(parts("bias", *down)) if config.mlp_bias else None,
            q_norm=self.vector(parts("weight", ("self_attn.q_norm", config.head_dim))) if config.qk_norm else None,
            k_norm=self.vector(parts("weight", ("self_attn.k_norm", config.head_dim))) if config.qk_norm else None,
        )

    def stacked(self, parts: list[tuple[str, int]], columns: int) -> torch.Tensor:
        """The named [rows, columns] matrices under each other, in the model's dtype, on the device."""
        rows = sum(count for _, count in parts)
        tensors = [self.checked(name, (count, columns)) for name, count in parts]
        fused = torch.empty((rows, columns), dtype=self.dtype, device=self.device)
        start = 0
        for tensor in tensors:
            fused[start : start + len(tensor)] = tensor
            start += len(tensor)
        return fused

    def vector(self, parts: list[tuple[str, int]]) -> torch.Tensor:
        tensors = [self.checked(name, (count,)) for name, count in parts]
        return torch.cat(tensors).to(dtype=self.dtype, device=self.device)

    def checked(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        if name not in self.names:
            raise ModelError(f"{self.weights.where}: lacks the tensor {name}; take the model's complete files")
        self.used.add(name)
        tensor = self.weights.tensor(name)
        if tuple(tensor.shape) != shape:
            raise ModelError(
                f"{self.weights.where}: the tensor {name} has the shape {tuple(tensor.shape)}, but the config asks for "
                f"{shape}; take config and weights from the same model"
            )
        return tensor

    def refuse_extra(self) -> None:
        """A tensor left over (a bias, a norm, an expert) means that this is not the model its config says."""
        extra = {name for name in self.names - self.used if not name.endswith("rotary_emb.inv_freq")}
        if self.config.tied_embeddings:
            extra.discard("lm_head.weight")
        if extra:
            listed = ", ".join(sorted(extra)[:3]) + (f" and {len(extra) - 3} more" if len(extra) > 3 else "")
            raise ModelError(
                f"{self.weights.where}: holds tensors that its config does not account for: {listed}; "
                "this is another kind of model than it says"
            )
