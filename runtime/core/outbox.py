"""Events on their way to the front: one frame per step, never blocking, nothing lost.

While the peer does not drain, events wait here and coalesce: all Tokens of one (sid, op, choice) become one, and of
Stats only the newest stays. So what waits is bounded by the live ops and their text, not by the time the peer sleeps.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from ..protocol import MAX_FRAME_BYTES
from ..wire import CoreEvent, CoreLogprob, Ended, OpFailed, Stats, ToFront, Tokens, fill

_EVENTS_PER_FRAME = 4096


class Sender(Protocol):
    def ready(self) -> bool:
        """A frame would be taken now."""

    def send(self, frame: bytes) -> bool:
        """Hand over one frame. False if it would block; then nothing was sent."""


class _Merged:
    """Tokens of one op that wait. Lists, so that a peer that sleeps for long costs linear time."""

    __slots__ = ("_data", "_ids", "_logprobs", "_newest")

    def __init__(self, first: Tokens) -> None:
        self._ids: list[int] = []
        self._data = bytearray()
        self._logprobs: list[CoreLogprob] = []
        self.join(first)

    def join(self, event: Tokens) -> None:
        self._ids += event.ids
        self._data += event.data
        self._logprobs += event.logprobs
        self._newest = event

    def event(self) -> Tokens:
        newest = self._newest
        return Tokens(
            sid=newest.sid,
            op=newest.op,
            choice=newest.choice,
            ids=tuple(self._ids),
            data=bytes(self._data),
            settled=newest.settled,
            logprobs=tuple(self._logprobs),
            wrapped=newest.wrapped,
        )


class Outbox:
    """``add`` what a step produced, ``flush`` as often as you like."""

    def __init__(self, sender: Sender, *, max_frame: int = MAX_FRAME_BYTES) -> None:
        self._sender = sender
        self._max_frame = max_frame
        self._events: list[CoreEvent | _Merged] = []
        self._tokens: dict[tuple[int, int, int], int] = {}  # where in _events an op's Tokens wait
        self._stats: int | None = None

    @property
    def pending(self) -> int:
        """Events that wait."""
        return len(self._events)

    def add(self, events: Iterable[CoreEvent]) -> None:
        for event in events:
            if isinstance(event, Tokens):
                self._add_tokens(event)
            elif isinstance(event, Stats):
                if self._stats is None:
                    self._stats = len(self._events)
                    self._events.append(event)
                else:
                    self._events[self._stats] = event
            else:
                if isinstance(event, Ended | OpFailed):
                    self._tokens.pop((event.sid, event.op, event.choice), None)
                self._events.append(event)

    def _add_tokens(self, event: Tokens) -> None:
        key = (event.sid, event.op, event.choice)
        at = self._tokens.get(key)
        if at is None:
            self._tokens[key] = len(self._events)
            self._events.append(event)
            return
        before = self._events[at]
        if isinstance(before, Tokens):
            self._events[at] = before = _Merged(before)
        assert isinstance(before, _Merged)
        before.join(event)

    def flush(self) -> bool:
        """Send what the peer takes. True if nothing waits any more."""
        while self._events and self._sender.ready():
            first = self._events[:_EVENTS_PER_FRAME]
            events = [event.event() if isinstance(event, _Merged) else event for event in first]
            frame, count = fill(ToFront, events, self._max_frame)
            if not self._sender.send(frame):
                return False
            self._drop(count)
        return not self._events

    def _drop(self, count: int) -> None:
        del self._events[:count]
        if not self._events:
            self._tokens.clear()
            self._stats = None
            return
        self._tokens = {key: at - count for key, at in self._tokens.items() if at >= count}
        if self._stats is not None:
            self._stats = self._stats - count if self._stats >= count else None
