"""The core as the front sees it. One link is one epoch: it starts once, dies once and is never started again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ..wire import (
    AbortStrand,
    CloseStrand,
    CoreEvent,
    Define,
    ExtendStrand,
    Forget,
    OpenStrand,
    Ready,
    Stop,
)

CoreItem = OpenStrand | ExtendStrand | CloseStrand | AbortStrand | Define | Forget | Stop
OnEvents = Callable[[Sequence[CoreEvent]], None]
OnDeath = Callable[[str], None]


class CoreLink(Protocol):
    @property
    def pid(self) -> int | None:
        """Of the core, if it is a process of its own."""

    async def start(self, on_events: OnEvents, on_death: OnDeath) -> Ready:
        """Start the core and wait until it can serve. Both callables run on the event loop; ``on_death`` at most
        once, after the last event, with what is known of the cause. Raises ModelError or BackendError."""

    def send(self, items: Sequence[CoreItem]) -> None:
        """Never blocks. What a dead core was sent is lost: the front replays."""

    async def close(self) -> None:
        """Stop the core and wait for its end. Idempotent; ``on_death`` is not called afterwards."""


LinkFactory = Callable[[], CoreLink]
