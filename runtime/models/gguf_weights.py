"""A GGUF file's tensors, under the names and in the row order that the decoder's builder expects."""

from __future__ import annotations

from pathlib import Path

import torch

from .config import DecoderConfig
from .gguf import GGUFFile

ROPE_TABLE = "rope_freqs.weight"
_TOP_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
    ROPE_TABLE: ROPE_TABLE,
}
_LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


class GGUFWeights:
    """A GGUF file's tensors under Hugging Face's names, dequantized, q and k in Hugging Face's row order."""

    def __init__(self, path: Path, config: DecoderConfig) -> None:
        self.where = str(path)
        self._file = GGUFFile(path)
        self._config = config
        names = dict(_TOP_NAMES)
        for n in range(config.layers):
            for ours, theirs in _LAYER_NAMES.items():
                for part in ("weight", "bias"):
                    names[f"model.layers.{n}.{ours}.{part}"] = f"blk.{n}.{theirs}.{part}"
        self._names = {ours: theirs for ours, theirs in names.items() if theirs in self._file.tensors}
        # What we know no name for keeps its own, and the builder refuses it.
        self._names |= {name: name for name in self._file.tensors.keys() - set(self._names.values())}

    def names(self) -> set[str]:
        return set(self._names)

    def tensor(self, name: str) -> torch.Tensor:
        tensor = torch.from_numpy(self._file.tensor(self._names[name]))
        if self._config.architecture == "llama":
            if ".q_proj." in name:
                return _halves(tensor, self._config.heads)
            if ".k_proj." in name:
                return _halves(tensor, self._config.kv_heads)
        return tensor


def _halves(tensor: torch.Tensor, heads: int) -> torch.Tensor:
    """Undo the row order of Llama's GGUF files, which puts the two rows of a rotated pair side by side."""
    rows = tensor.shape[0]
    if rows % (2 * heads):
        return tensor  # the shape check names it
    pairs = tensor.view(heads, rows // heads // 2, 2, *tensor.shape[1:])
    return pairs.transpose(1, 2).reshape(tensor.shape)
