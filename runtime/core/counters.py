"""Totals of one core since it started, and where its seconds went."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Timings:
    """Seconds, summed over steps. ``schedule``: ops taken up, admission and the batch; ``sample``: tokens picked and
    ops advanced; ``emit``: events made into frames and handed to the socket (by the loop)."""

    schedule: float = 0.0
    forward: float = 0.0
    sample: float = 0.0
    emit: float = 0.0

    @property
    def step(self) -> float:
        return self.schedule + self.forward + self.sample + self.emit


@dataclass(slots=True)
class Counters:
    """All rise monotonically."""

    steps: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    sampled_tokens: int = 0
    forced_tokens: int = 0
    recomputed_tokens: int = 0
    drafted_tokens: int = 0  # rows computed ahead
    accepted_tokens: int = 0  # of which were right
    retractions: int = 0
    evicted_tokens: int = 0
    timings: Timings = field(default_factory=Timings)
