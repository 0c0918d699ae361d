"""Rotary position tables: cos and sin per position and frequency, with the known stretchings of frequencies."""

from __future__ import annotations

import math

import torch

from .config import DecoderConfig, RopeScaling


def frequencies(config: DecoderConfig, table: torch.Tensor | None = None) -> torch.Tensor:
    """float32 [D / 2] angles per position step. ``table``: the divisors that a "table" scaling needs."""
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.int64).float() / config.head_dim
    base = 1.0 / (config.rope_theta**exponents)
    scaling = config.rope_scaling
    if scaling is None:
        return base
    if scaling.kind == "linear":
        return base / scaling.factor
    if scaling.kind == "llama3":
        return _llama3(base, scaling)
    assert table is not None, "the loader gives the table whenever the config asks for one"
    return base / table.float()


def _llama3(base: torch.Tensor, scaling: RopeScaling) -> torch.Tensor:
    """Llama 3.1's ramp: waves longer than the original context / low are slowed, shorter than context / high kept."""
    turns = scaling.original_context * base / (2 * math.pi)  # over the original context
    keep = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    keep = keep.clamp(0.0, 1.0)
    return keep * base + (1 - keep) * base / scaling.factor


def cos_sin(freqs: torch.Tensor, positions: int) -> tuple[torch.Tensor, torch.Tensor]:
    """float32 [positions, D / 2] each."""
    angles = torch.arange(positions, dtype=torch.float32)[:, None] * freqs
    return angles.cos(), angles.sin()
