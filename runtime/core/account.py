"""What one op cost: the counts behind its Usage."""

from __future__ import annotations

from collections.abc import Callable

from ..protocol import Usage


class Account:
    """``prompt = cached + computed`` is fixed by :meth:`start`; later work on the same tokens is ``recomputed``."""

    __slots__ = (
        "_began",
        "_clock",
        "_first",
        "_high",
        "cached",
        "forced",
        "prompt",
        "recomputed",
        "sampled",
        "started",
        "steps",
        "wrapped",
    )

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began = clock()
        self._first: float | None = None
        self._high = 0  # KV below this position was computed for this op before
        self.started = False
        self.prompt = 0
        self.cached = 0
        self.sampled = 0
        self.forced = 0
        self.recomputed = 0
        self.steps = 0
        self.wrapped = 0

    def start(self, prompt: int, cached: int) -> bool:
        """Fix the prompt accounting. False if an earlier admission did."""
        if self.started:
            return False
        self.started = True
        self.prompt, self.cached = prompt, cached
        return True

    def resume(self, usage: Usage | None, computed: int) -> None:
        """An earlier epoch began this op: its accounting stays, and the first ``computed`` tokens are done again."""
        if usage is not None:
            self.start(usage.prompt, usage.cached)
        self._high = computed

    def compute(self, start: int, rows: int) -> None:
        """Rows are scheduled from position ``start`` on; those that were computed before are done again."""
        self.recomputed += max(0, min(self._high, start + rows) - start)

    def lose(self, kv_len: int) -> None:
        """KV up to here goes; computing it again is not new work."""
        self._high = max(self._high, kv_len)

    def token(self, *, forced: bool) -> None:
        if forced:
            self.forced += 1
        else:
            self.sampled += 1
        if self._first is None:
            self._first = self._clock()

    def usage(self) -> Usage:
        return Usage(
            prompt=self.prompt,
            cached=self.cached,
            sampled=self.sampled,
            forced=self.forced,
            recomputed=self.recomputed,
            steps=self.steps,
            wrapped=self.wrapped,
            first_token_s=0.0 if self._first is None else self._first - self._began,
            total_s=self._clock() - self._began,
        )
