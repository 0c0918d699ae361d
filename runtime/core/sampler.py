"""From logits to tokens. One row of logits belongs to one :class:`SamplerRow`, and nothing crosses rows.

Order, per row::

    raw log-softmax (only if logprobs are asked for)
    -> logit_bias -> repetition (prompt + output) -> presence, frequency (output)
    -> stop ids off while min_tokens are missing -> constraint mask
    -> temperature -> top_k -> top_p -> min_p -> an exponential race of the tokens left

Temperature 0 takes the first maximum. A row that is not finite gives :attr:`Sampled.error` and leaves the others
alone. The noise is keyed by (seed, choice, position of the token in its op; token), see :mod:`.noise`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..wire import SampleParams
from .filters import draw, exponentials, keep_min_p, keep_top_k, keep_top_p
from .logprobs import Top, logprob
from .noise import token_noise, word

if TYPE_CHECKING:
    import torch

Row = NDArray[np.float32]
_NEVER = np.float32(-np.inf)


@dataclass(slots=True, frozen=True)
class Sampled:
    """``id`` is -1 when ``error`` says why nothing could be sampled. ``logprob``, ``top`` and the ``row`` of logits
    that they are of only when asked for."""

    id: int
    logprob: float | None = None
    top: Top = ()
    error: str | None = None
    row: Row | None = field(default=None, compare=False, repr=False)

    def kept(self) -> Sampled:
        """To be looked at in a later step: its row is its own, and no view of all rows of this one."""
        return self if self.row is None else replace(self, row=self.row.copy())


class SamplerRow:
    """The sampling state of one (op, choice): parameters, how many tokens it has, and what penalties must know.

    ``prompt``: every id of the strand before the op. :meth:`observe` every id the op gains, sampled or forced,
    and set :attr:`mask` (``Matcher.mask()``, or None) before each call of :func:`sample`. All of it costs O(1) per
    token; the prompt is read once, and only if there is a repetition penalty.
    """

    __slots__ = ("_bias_ids", "_bias_values", "_output", "_seen", "_stop_ids", "choice", "mask", "params", "position")

    def __init__(self, params: SampleParams, prompt: Sequence[int] | NDArray[np.int32] = (), choice: int = 0) -> None:
        self.params = params
        self.choice = choice
        self.position = 0
        self.mask: NDArray[np.uint32] | None = None
        self._bias_ids = np.fromiter(params.logit_bias.keys(), dtype=np.intp, count=len(params.logit_bias))
        self._bias_values = np.fromiter(params.logit_bias.values(), dtype=np.float32, count=len(params.logit_bias))
        self._stop_ids = np.array(params.stop_ids, dtype=np.intp)
        self._seen = Counts() if params.repetition_penalty != 1.0 else None
        self._output = Counts() if params.presence_penalty or params.frequency_penalty else None
        if self._seen is not None:
            for token in np.unique(np.asarray(prompt, dtype=np.int64)).tolist():
                self._seen.add(token)

    def observe(self, token: int) -> None:
        """The op gained ``token``."""
        self.position += 1
        if self._seen is not None:
            self._seen.add(token)
        if self._output is not None:
            self._output.add(token)

    @property
    def waits_for_min_tokens(self) -> bool:
        return self.position < self.params.min_tokens and len(self._stop_ids) > 0

    @property
    def adjusts(self) -> bool:
        """Something changes the logits before temperature."""
        return (
            len(self._bias_ids) > 0
            or self._seen is not None
            or self._output is not None
            or self.mask is not None
            or self.waits_for_min_tokens
        )

    def adjusted(self, raw: Row) -> tuple[Row, NDArray[np.intp] | None]:
        """``raw`` (float32[V], unchanged) after bias, penalties, min_tokens and mask, -inf where nothing may come.

        With a mask, only the allowed ids are returned: (values[m], ids[m]), ids ascending; else (values[V], None).
        """
        params = self.params
        row = raw.copy()
        if len(self._bias_ids):
            row[self._bias_ids] += self._bias_values
        if self._seen is not None:
            ids = self._seen.ids
            seen, factor = row[ids], np.float32(params.repetition_penalty)
            row[ids] = np.where(seen > 0, seen / factor, seen * factor)
        if self._output is not None:
            row[self._output.ids] -= (
                np.float32(params.presence_penalty) + np.float32(params.frequency_penalty) * self._output.counts
            )
        allowed = None if self.mask is None else _allowed(self.mask, len(row))
        if self.waits_for_min_tokens and not self._only_stop_ids(allowed):
            row[self._stop_ids] = _NEVER
        if allowed is None:
            return row, None
        return row[allowed], allowed

    def _only_stop_ids(self, allowed: NDArray[np.intp] | None) -> bool:
        """The constraint leaves nothing but stop ids: then it wins over min_tokens."""
        if allowed is None or len(allowed) > len(self._stop_ids):
            return False
        return bool(np.isin(allowed, self._stop_ids).all())


class Counts:
    """How often each id was seen: growing arrays, so that a penalty is one indexed operation and an add is O(1)."""

    __slots__ = ("_counts", "_ids", "_where")

    def __init__(self) -> None:
        self._where: dict[int, int] = {}
        self._ids = np.empty(64, dtype=np.intp)
        self._counts = np.empty(64, dtype=np.float32)

    def add(self, token: int) -> None:
        at = self._where.get(token)
        if at is not None:
            self._counts[at] += 1
            return
        at = len(self._where)
        if at == len(self._ids):
            self._ids = np.concatenate((self._ids, np.empty_like(self._ids)))
            self._counts = np.concatenate((self._counts, np.empty_like(self._counts)))
        self._where[token] = at
        self._ids[at] = token
        self._counts[at] = 1

    @property
    def ids(self) -> NDArray[np.intp]:
        return self._ids[: len(self._where)]

    @property
    def counts(self) -> NDArray[np.float32]:
        return self._counts[: len(self._where)]


def sample(logits: torch.Tensor | NDArray[np.float32], rows: Sequence[SamplerRow]) -> list[Sampled]:
    """One token for each row of ``logits`` (float32[R, V], unchanged). The rows are not advanced: call ``observe``.

    Raises ValueError if the number of rows differs.
    """
    table = logits if isinstance(logits, np.ndarray) else logits.detach().float().cpu().numpy()
    if len(table) != len(rows):
        raise ValueError(f"{len(table)} rows of logits for {len(rows)} sampler rows")
    scratch = np.empty(table.shape[1], dtype=np.float32)
    # -inf logits and tiny temperatures overflow and underflow on purpose; NaN is looked for, not warned of.
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return [_sample_row(raw, row, scratch) for raw, row in zip(table, rows, strict=True)]


def _sample_row(raw: Row, row: SamplerRow, scratch: Row) -> Sampled:
    params = row.params
    values, ids = row.adjusted(raw) if row.adjusts else (raw, None)
    if not len(values):
        return Sampled(-1, error="the constraint allows no token here")
    if params.temperature == 0.0 or params.top_k == 1 or params.top_p == 0.0:
        index = int(values.argmax())
        peak = values[index]  # argmax finds a NaN first, so a bad row is seen here
        if not np.isfinite(peak):
            return Sampled(-1, error=_fault(raw))
    else:
        peak = values.max()
        if not np.isfinite(peak):
            return Sampled(-1, error=_fault(raw))
        index = _draw_filtered(values, ids, peak, row, scratch)
    token = index if ids is None else int(ids[index])
    if not params.logprobs:
        return Sampled(token)
    value, top = logprob(raw, token, params.top_logprobs)
    return Sampled(token, value, top, row=raw)


def _draw_filtered(values: Row, ids: NDArray[np.intp] | None, peak: np.float32, row: SamplerRow, scratch: Row) -> int:
    params = row.params
    kept: NDArray[np.intp] | None = None
    if 0 < params.top_k < len(values):
        kept = keep_top_k(values, params.top_k)
        values = values[kept]
    weights = exponentials(values, peak, params.temperature, scratch[: len(values)])
    if params.top_p < 1.0:
        inside = keep_top_p(weights, params.top_p)
        kept, weights = inside if kept is None else kept[inside], weights[inside]
    if params.min_p > 0.0:
        inside = keep_min_p(weights, params.min_p)
        kept, weights = inside if kept is None else kept[inside], weights[inside]
    noise = token_noise(word(params.seed, row.choice, row.position), _tokens(len(weights), ids, kept))
    index = draw(weights, noise)
    return index if kept is None else int(kept[index])


def _tokens(size: int, ids: NDArray[np.intp] | None, kept: NDArray[np.intp] | None) -> NDArray[np.uint32]:
    """Token ids of what is left of a row."""
    if ids is None and kept is None:
        return _all_ids(size)
    left = ids if kept is None else kept if ids is None else ids[kept]
    assert left is not None
    return left.astype(np.uint32)


@functools.lru_cache(maxsize=4)
def _all_ids(size: int) -> NDArray[np.uint32]:
    ids = np.arange(size, dtype=np.uint32)
    ids.flags.writeable = False
    return ids


def _allowed(mask: NDArray[np.uint32], size: int) -> NDArray[np.intp]:
    """Ids below ``size`` whose bit is set, ascending. Bit i % 32 of word i // 32 is token i."""
    bits = np.unpackbits(mask.astype("<u4", copy=False).view(np.uint8), bitorder="little")[:size]
    return np.flatnonzero(bits.view(np.bool_))


def _fault(raw: Row) -> str:
    if np.isnan(raw).any():
        return "the logits hold NaN"
    if np.isposinf(raw).any():
        return "the logits hold +inf"
    return "every allowed token has a logit of -inf"
