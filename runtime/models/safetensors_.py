"""Weights of a model folder: one safetensors file, or shards listed by an index file. Never a pickle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..errors import ModelError

if TYPE_CHECKING:
    import torch

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
_READABLE = ("F32", "F16", "BF16")


def weight_files(folder: Path) -> list[Path]:
    """The folder's safetensors files, from the index if it has one. Raises ModelError if any is missing."""
    index = folder / INDEX
    if not index.is_file():
        if (folder / SINGLE).is_file():
            return [folder / SINGLE]
        if any(folder.glob("*.bin")) or any(folder.glob("*.pt*")):
            raise ModelError(f"{folder}: has only pickled weights, which are never loaded; convert them to {SINGLE}")
        raise ModelError(f"{folder}: lacks {SINGLE} (and {INDEX}); put the model's weights there")
    try:
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{index}: is no index of safetensors shards ({error!r}); download it again") from error
    files: list[Path] = []
    for name in sorted(names, key=str):
        if not isinstance(name, str) or Path(name).name != name:
            raise ModelError(f"{index}: names the shard {name!r}, which is no plain file name; download it again")
        if not (folder / name).is_file():
            raise ModelError(f"{folder}: lacks the shard {name} that {INDEX} names; download it")
        files.append(folder / name)
    if not files:
        raise ModelError(f"{index}: names no shards; download it again")
    return files


class SafetensorsWeights:
    """Named tensors of a folder, read one at a time. ``where`` is the folder, for messages.

    Opening reads and checks every shard's header only; ``framework="numpy"`` does so without importing torch.
    """

    def __init__(self, folder: Path, framework: Literal["pt", "numpy"] = "pt") -> None:
        from safetensors import SafetensorError, safe_open

        self.where = str(folder)
        self._owner: dict[str, Any] = {}  # tensor name -> the open shard that holds it
        for path in weight_files(folder):
            try:
                shard: Any = safe_open(path, framework=framework)
                names = list(shard.keys())
            except (SafetensorError, OSError) as error:
                raise ModelError(f"{path}: cannot be read ({error}); download it again") from error
            for name in names:
                kind = shard.get_slice(name).get_dtype()
                if kind not in _READABLE:
                    raise ModelError(
                        f"{path}: tensor {name} has the type {kind}, which is not supported; "
                        f"use unquantized weights ({', '.join(_READABLE)})"
                    )
                self._owner[name] = shard

    def names(self) -> set[str]:
        return set(self._owner)

    def tensor(self, name: str) -> torch.Tensor:
        """The named tensor on the host, in the dtype it is stored in. KeyError if there is none of that name."""
        tensor: torch.Tensor = self._owner[name].get_tensor(name)
        return tensor
