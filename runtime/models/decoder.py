"""One Llama-shaped decoder, described by its config; what it spends its time in are the kernels' few calls."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from ..errors import ModelError
from ..kernels import AttentionMeta, Kernels
from .config import DecoderConfig
from .interface import ForwardBatch
from .rope import cos_sin


@dataclass(slots=True)
class LayerWeights:
    """Matrices are [out, in]. ``qkv``: q, k, v rows stacked; ``gate_up``: gate, then up."""

    attention_norm: torch.Tensor
    qkv: torch.Tensor
    output: torch.Tensor
    mlp_norm: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor
    qkv_bias: torch.Tensor | None = None
    output_bias: torch.Tensor | None = None
    gate_up_bias: torch.Tensor | None = None
    down_bias: torch.Tensor | None = None
    q_norm: torch.Tensor | None = None
    k_norm: torch.Tensor | None = None


@dataclass(slots=True)
class DecoderWeights:
    """``head`` [vocab, hidden] may be the very tensor ``embedding`` (tied). ``rope_frequencies``: float32 [D / 2]."""

    embedding: torch.Tensor
    layers: list[LayerWeights]
    norm: torch.Tensor
    head: torch.Tensor
    rope_frequencies: torch.Tensor


class Decoder:
    """A :class:`~plait.runtime.models.interface.Model`.

    Weights, activations and KV pool share the dtype of ``weights.embedding``; all live on its device.
    """

    def __init__(self, config: DecoderConfig, weights: DecoderWeights, kernels: Kernels) -> None:
        self.config = config
        self.kernels = kernels
        self.vocab_size = config.vocab
        self.context_length = config.context
        self._weights = weights
        self._dtype = weights.embedding.dtype
        self._device = weights.embedding.device
        self._scale = config.head_dim**-0.5
        self.kv_bytes_per_token = 2 * config.layers * config.kv_heads * config.head_dim * self._dtype.itemsize
        self._k_pools: list[torch.Tensor] = []
        self._v_pools: list[torch.Tensor] = []

    def allocate(self, slots: int) -> None:
        """Make the KV pool of ``slots`` tokens. Raises ValueError if there is one already, or none is asked for, and
        ModelError if the machine does not give so much memory. On a CPU a page of it is taken when it is written."""
        if self._k_pools:
            raise ValueError("the KV pool is already allocated")
        if slots < 1:
            raise ValueError(f"a KV pool needs at least one slot, not {slots}")
        config = self.config
        shape = (slots, config.kv_heads, config.head_dim)
        self._k_pools = [_zeros(shape, self._dtype, self._device) for _ in range(config.layers)]
        self._v_pools = [_zeros(shape, self._dtype, self._device) for _ in range(config.layers)]
        # No sequence can be longer than the pool, whatever context the file claims.
        cos, sin = cos_sin(self._weights.rope_frequencies, min(config.context, slots))
        self._cos, self._sin = cos.to(self._device), sin.to(self._device)

    def _check(self, batch: ForwardBatch) -> None:
        rows = len(batch.ids)
        slots = len(self._k_pools[0]) if self._k_pools else 0
        limits = (
            ("ids", batch.ids, self.vocab_size),
            ("positions", batch.positions, min(self.context_length, slots)),
            ("out_slots", batch.out_slots, slots),
            ("kv_slots", batch.kv_slots, slots),
            ("logit_rows", batch.logit_rows, rows),
        )
        for name, values, limit in limits:
            # As unsigned, a negative number is a huge one: one pass finds both kinds of stray.
            if len(values) and int(values.view(np.uint32).max()) >= limit:
                raise ValueError(f"{name} of the batch leave their range of 0 to {limit - 1}")
        ends = (int(batch.query_starts[-1]), len(batch.positions), len(batch.out_slots))
        if ends != (rows, rows, rows) or int(batch.kv_starts[-1]) != len(batch.kv_slots):
            raise ValueError("the arrays of the batch disagree about its number of rows or slots")

    @torch.inference_mode()
    def forward(self, batch: ForwardBatch) -> torch.Tensor:
        """float32 [R, vocab] logits of ``batch.logit_rows``. Writes K and V of every row to its slot.

        Raises ValueError for a batch whose sequences have no rows or fewer slots than rows, and for a slot, position
        or row that does not exist: native code would write wherever they point.
        """
        self._check(batch)
        kernels, config, weights = self.kernels, self.config, self._weights
        heads, kv_heads, dim, eps = config.heads, config.kv_heads, config.head_dim, config.norm_eps
        meta = AttentionMeta.from_batch(batch, self._device)
        rows = len(batch.ids)
        wanted = None  # rows that the last layer's second half computes; None: all
        if len(batch.logit_rows) < rows:
            wanted = torch.from_numpy(batch.logit_rows).to(self._device)
        residual = weights.embedding.index_select(0, torch.from_numpy(batch.ids).to(self._device))
        x = kernels.rms_norm(residual, weights.layers[0].attention_norm, eps)
        last = config.layers - 1
        for n, layer in enumerate(weights.layers):
            qkv = kernels.linear(x, layer.qkv, layer.qkv_bias).view(rows, heads + 2 * kv_heads, dim)
            q, k, v = qkv[:, :heads], qkv[:, heads : heads + kv_heads], qkv[:, heads + kv_heads :]
            if layer.q_norm is not None and layer.k_norm is not None:
                q = kernels.rms_norm(q.contiguous(), layer.q_norm, eps)
                k = kernels.rms_norm(k.contiguous(), layer.k_norm, eps)
            k_pool, v_pool = self._k_pools[n], self._v_pools[n]
            q = kernels.rope_and_store(q, k, v, meta.positions, self._cos, self._sin, k_pool, v_pool, meta.out_slots)
            if n == last and len(batch.logit_rows) == 0:
                break  # K and V are stored; nobody asks for more
            mixed = kernels.attention(q, k_pool, v_pool, meta, self._scale).view(rows, heads * dim)
            if n == last and wanted is not None:
                mixed, residual = mixed.index_select(0, wanted), residual.index_select(0, wanted)
            x = kernels.linear(mixed, layer.output, layer.output_bias)
            x = kernels.add_rms_norm(x, residual, layer.mlp_norm, eps)
            x = kernels.silu_mul(kernels.linear(x, layer.gate_up, layer.gate_up_bias))
            x = kernels.linear(x, layer.down, layer.down_bias)
            following = weights.norm if n == last else weights.layers[n + 1].attention_norm
            x = kernels.add_rms_norm(x, residual, following, eps)
        if len(batch.logit_rows) == 0:
            return torch.empty((0, config.vocab), dtype=torch.float32, device=self._device)
        return kernels.linear(x, weights.head, out_dtype=torch.float32)


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Zeros that cost a CPU's memory only where they are written: torch fills its own, numpy leaves it to the kernel,
    whose fresh pages are zero."""
    try:
        if device.type != "cpu":
            return torch.zeros(shape, dtype=dtype, device=device)
        count = math.prod(shape) * dtype.itemsize
        return torch.from_numpy(np.zeros(count, dtype=np.uint8)).view(dtype).view(shape)
    except (MemoryError, ValueError, torch.OutOfMemoryError) as error:
        raise ModelError(f"kv_tokens={shape[0]} needs more memory than there is ({error}); ask for fewer") from error
