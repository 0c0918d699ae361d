"""The default model in transformers, with the same dequantized weights: what we compare against."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def transformers_model(gguf: Path, dtype: str) -> Any:
    """A ``LlamaForCausalLM`` on the CPU. ``dtype``: "float32" or "bfloat16". Needs transformers, accelerate, gguf."""
    import torch
    from transformers import AutoModelForCausalLM, GgufConfig

    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=getattr(torch, dtype),
        quantization_config=GgufConfig(dequantize=True),
    ).eval()
    model.generation_config.eos_token_id = None
    return model


def greedy_ids(model: Any, prompts: list[list[int]], tokens: int, pad: int = 2) -> list[list[int]]:
    """Greedy continuation of a static, left-padded batch. Returns the new ids of each prompt."""
    import torch

    longest = max(map(len, prompts))
    ids = torch.tensor([[pad] * (longest - len(prompt)) + list(prompt) for prompt in prompts])
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    with torch.inference_mode():
        out = model.generate(
            input_ids=ids,
            attention_mask=mask,
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            do_sample=False,
            pad_token_id=pad,
        )
    return [row[longest:].tolist() for row in out]
