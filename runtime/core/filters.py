"""Which tokens may be drawn, and the draw: pure functions over one row.

They take one row at a time on purpose. A row of 49,152 floats fits a core's cache, so a loop over rows costs no more
than whole-batch operations, and a row's result cannot depend on what shares the batch.

Filters return the indices they keep, ascending. Ties at a cut keep the lower index, and at least one index is kept.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Indices = NDArray[np.intp]

_BLOCK = 256
_SMALL = 2048  # below this one pass is cheaper than two levels


def keep_top_k(values: Floats, k: int) -> Indices:
    """The ``k`` largest (all, if there are fewer)."""
    n = len(values)
    if k >= n:
        return np.arange(n)
    cut = np.partition(values, n - k)[n - k]
    kept = np.flatnonzero(values >= cut)
    return _drop_ties(kept, values[kept] == cut, len(kept) - k)


def keep_top_p(weights: Floats, share: float) -> Indices:
    """The smallest set of largest weights that holds at least ``share`` of their sum."""
    target = share * _total(weights)
    cut = _nucleus_cut(weights, target)
    kept = np.flatnonzero(weights >= cut)
    inside = weights[kept]
    ties = inside == cut
    if np.count_nonzero(ties) > 1:
        missing = target - float(inside[~ties].sum(dtype=np.float64))
        wanted = max(1, math.ceil(missing / float(cut))) if cut > 0 else 1
        return _drop_ties(kept, ties, int(np.count_nonzero(ties)) - wanted)
    return kept


def keep_min_p(weights: Floats, share: float) -> Indices:
    """Those of at least ``share`` times the largest weight."""
    return np.flatnonzero(weights >= np.float32(share) * weights.max())


def draw(weights: Floats, noise: NDArray[np.uint32]) -> int:
    """An index with probability proportional to its weight, from 32 random bits for each; never one of weight 0.

    An exponential race (the Gumbel-max trick): index i arrives at E_i / w_i with E_i = -log(1 - u_i), and the first
    wins. Unlike an inverse CDF, whose edges crowd together in a vocabulary's tail, it changes its winner only where
    two arrivals nearly tie, so a seed survives the last bits of the logits.
    """
    # E >= u, so w / u bounds every speed w / E from above; only the few that may beat the best bound need a log.
    bound = noise.astype(np.float32)
    bound += np.float32(0.5)
    bound *= np.float32(2.0**-32)
    np.divide(weights, bound, out=bound)
    best = np.array([bound.argmax()])
    able = np.flatnonzero(bound >= (1 - 1e-5) * float(_speeds(weights, noise, best)[0]))
    if len(able) == 1:
        return int(able[0])
    return int(able[_speeds(weights, noise, able).argmax()])


def _speeds(weights: Floats, noise: NDArray[np.uint32], at: Indices) -> NDArray[np.float64]:
    uniform = (noise[at] + 0.5) * 2.0**-32  # float64, inside (0, 1)
    speeds: NDArray[np.float64] = weights[at] / -np.log1p(-uniform)
    return speeds


def exponentials(values: Floats, peak: np.float32, temperature: float, out: Floats) -> Floats:
    """``exp((values - peak) / temperature)`` written to ``out`` (float32[n]); the peak's is exactly 1."""
    np.subtract(values, peak, out=out)
    if temperature != 1.0:
        # Below 1e-30 the float32 quotient 0 / temperature could be 0 / 0; everything but the peak is 0 long before.
        np.divide(out, np.float32(max(temperature, 1e-30)), out=out)
    return np.exp(out, out=out)


def _block_sums(weights: Floats) -> Floats:
    whole = len(weights) // _BLOCK * _BLOCK
    sums = np.add.reduce(weights[:whole].reshape(-1, _BLOCK), axis=1)
    return sums if whole == len(weights) else np.append(sums, weights[whole:].sum())


def _total(weights: Floats) -> float:
    sums = _block_sums(weights) if len(weights) > _SMALL else weights
    return float(sums.sum(dtype=np.float64))


def _nucleus_cut(weights: Floats, target: float) -> np.float32:
    """The smallest weight inside the nucleus: a quickselect by mass, O(n) where a sort of a flat row takes 4 ms."""
    rest, want, guess, inside = weights, target, 2 * _SMALL, False
    while len(rest) > 2 * _SMALL:
        split = len(rest) - min(guess, len(rest) // 2)
        parts = np.partition(rest, split)
        mass = _total(parts[split:])
        if mass >= want:
            rest, inside = parts[split:], True
        else:
            rest, want = parts[:split], want - mass
        # Real nuclei are small: grow from the top until one is inside, then halve.
        guess = len(rest) // 2 if inside else 8 * guess
    falling = np.sort(rest)[::-1]
    index = int(np.searchsorted(np.cumsum(falling, dtype=np.float64), want, side="left"))
    cut: np.float32 = falling[min(index, len(falling) - 1)]
    return cut


def _drop_ties(kept: Indices, ties: NDArray[np.bool_], surplus: int) -> Indices:
    """Without the last ``surplus`` of the ties."""
    if surplus <= 0:
        return kept
    return np.delete(kept, np.flatnonzero(ties)[-surplus:])
