"""Log-probabilities of the raw logits: before bias, penalties, mask and temperature."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

from .filters import keep_top_k

Top = tuple[tuple[int, float], ...]


def log_normalizer(row: NDArray[np.float32]) -> float:
    """log of the sum of exp(row), float32[V] -> float. NaN if the row has a NaN or +inf, or nothing but -inf."""
    peak = row.max()
    if not np.isfinite(peak):
        return math.nan
    with np.errstate(over="ignore", under="ignore"):  # far below the peak is 0, and meant to be
        return float(peak) + math.log(float(np.exp(row - peak).sum(dtype=np.float64)))


def logprob(row: NDArray[np.float32], token: int, top: int = 0) -> tuple[float, Top]:
    """log p(token) of one row of logits, and the ``top`` most likely (id, logprob), best first, ties by id."""
    norm = log_normalizer(row)
    return float(row[token]) - norm, top_of(row, norm, top)


def of_rows(logits: torch.Tensor, tokens: NDArray[np.int32], top: int = 0) -> list[tuple[float, int, Top]] | None:
    """For each row of ``logits`` (float32[R, V], on any device): log p of its token, its rank (1: likeliest) and the
    ``top`` most likely (id, logprob). None if a row is not finite. Only what is asked for leaves the device."""
    wanted = torch.from_numpy(tokens.astype(np.int64)).to(logits.device).unsqueeze(1)
    norms = torch.logsumexp(logits, dim=-1).double()
    if not bool(torch.isfinite(norms).all()):
        return None
    values = logits.gather(1, wanted)
    above = logits > values
    # numpy counts bools several times faster than torch does on a CPU
    ranks = np.count_nonzero(above.numpy(), axis=-1) if above.device.type == "cpu" else above.sum(-1).cpu().numpy()
    numbers = (values.squeeze(1).double() - norms).tolist()
    best: list[Top] = [()] * len(numbers)
    if top > 0:
        found = logits.topk(min(top, logits.shape[1]), dim=-1)
        pairs = zip(found.indices.tolist(), (found.values.double() - norms.unsqueeze(1)).tolist())
        best = [tuple(sorted(zip(ids, logs), key=lambda pair: (-pair[1], pair[0]))) for ids, logs in pairs]
    return list(zip(numbers, (ranks + 1).tolist(), best))


def top_of(row: NDArray[np.float32], norm: float, n: int) -> Top:
    if n <= 0 or math.isnan(norm):
        return ()
    kept = keep_top_k(row, n)
    best = kept[np.argsort(-row[kept], kind="stable")]
    return tuple((int(i), float(row[i]) - norm) for i in best)
