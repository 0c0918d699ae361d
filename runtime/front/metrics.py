"""Counters of one front, for /metrics and ``plait serve``. Core totals go on rising over restarts."""

from __future__ import annotations

from collections import Counter

from .. import wire

_TOTALS = (
    "steps",
    "prompt_tokens",
    "cached_tokens",
    "sampled_tokens",
    "forced_tokens",
    "recomputed_tokens",
    "drafted_tokens",
    "accepted_tokens",
    "retractions",
    "evicted_tokens",
    "step_s",
    "forward_s",
)


class Metrics:
    """Plain numbers; read at any time from any thread."""

    def __init__(self) -> None:
        self.done = 0  # ops that ended well
        self.failed: Counter[str] = Counter()  # by Failed.code
        self.core_deaths = 0
        self.stats: wire.Stats | None = None  # the core's last word; gauges are read from it
        self._earlier = dict.fromkeys(_TOTALS, 0.0)

    def take(self, stats: wire.Stats) -> None:
        self.stats = stats

    def epoch_ended(self) -> None:
        """The core died: what it counted stays counted."""
        self._earlier = self.totals()
        self.stats = None
        self.core_deaths += 1

    def totals(self) -> dict[str, float]:
        """Totals over all epochs, by the names of :class:`wire.Stats`."""
        stats = self.stats
        return {
            name: value + (getattr(stats, name) if stats is not None else 0) for name, value in self._earlier.items()
        }

    def gauges(self) -> dict[str, float]:
        """What holds now: running, waiting, kv_total, kv_free, kv_cached. Zeros while the core is down."""
        names = ("running", "waiting", "kv_total", "kv_free", "kv_cached")
        return {name: float(getattr(self.stats, name)) if self.stats is not None else 0.0 for name in names}
