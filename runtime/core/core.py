"""The core without its sockets: messages in, steps, events out."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from ...constrained.vocabulary import Vocabulary
from ...radix import Order
from ..models.interface import Model
from ..wire import CoreEvent, Stats, ToCore
from .capacity import Capacity
from .compute import Deliver, Forward, Prepare
from .counters import Timings
from .drafting import Draft
from .inbox import Inbox
from .schedule import Admit, Continue, Preempt, Turn
from .settings import CoreSettings
from .state import State
from .strand import Strand


class Action(Protocol):
    def run(self, state: State, turn: Turn) -> None: ...


class Proceed:
    """Strands whose op ended, or that got their first, take up the next: no round trip to the front."""

    def run(self, state: State, turn: Turn) -> None:
        while state.ready:
            state.proceed(state.ready.popleft())


class Core:
    """``receive`` what the front asks, ``step`` while not ``idle``. ``model.allocate(kv_tokens)`` is the caller's.

    ``clock`` (seconds) stamps usage; ``timer`` (seconds) only feeds :attr:`timings`.
    """

    def __init__(
        self,
        model: Model,
        vocabulary: Vocabulary,
        settings: CoreSettings,
        clock: Callable[[], float] = time.monotonic,
        *,
        timer: Callable[[], float] = time.perf_counter,
        order: Order[Strand] | None = None,
    ) -> None:
        self.state = State(model, vocabulary, settings, clock, order)
        self.inbox = Inbox(self.state)
        self._timer = timer
        capacity = Capacity(self.state)
        self._before: tuple[Action, ...] = (
            Proceed(),
            Preempt(capacity),
            Continue(capacity),
            Admit(capacity),
            Draft(capacity),
        )
        self._forward = Forward(timer)
        self._after: tuple[Action, ...] = (Deliver(), Prepare(), Proceed())

    def receive(self, message: ToCore) -> None:
        """Apply one frame. Raises ValueError if it opens a strand that is open already (a fault of the front)."""
        self.inbox.receive(message)

    @property
    def idle(self) -> bool:
        """Nothing to compute, and nothing to tell."""
        state = self.state
        return not (state.ready or state.running or state.waiting or state.events)

    @property
    def stopped(self) -> bool:
        """The front said Stop."""
        return self.inbox.stopped

    @property
    def timings(self) -> Timings:
        return self.state.counters.timings

    def step(self) -> list[CoreEvent]:
        """One turn: take up ops, admit, draft, batch, forward, sample, advance. Returns what to tell the front."""
        state, turn, timings = self.state, Turn(), self.timings
        state.budget.renew()
        began = self._timer()
        for action in self._before:
            action.run(state, turn)
        scheduled = self._timer()
        timings.schedule += scheduled - began
        known = timings.forward
        self._forward.run(state, turn)
        computed = self._timer()
        timings.schedule += computed - scheduled - (timings.forward - known)
        for action in self._after:
            action.run(state, turn)
        timings.sample += self._timer() - computed
        events, state.events = state.events, []
        return events

    def check(self) -> None:
        """Raise :class:`plait.radix.IntegrityError` unless free + cached + in use == total, each slot owned once."""
        self.state.check()

    def stats(self) -> Stats:
        state, counters = self.state, self.state.counters
        return Stats(
            running=len(state.running),
            waiting=len(state.waiting),
            kv_total=state.pool.total,
            kv_free=state.pool.free,
            kv_cached=state.tree.cached,
            steps=counters.steps,
            prompt_tokens=counters.prompt_tokens,
            cached_tokens=counters.cached_tokens,
            sampled_tokens=counters.sampled_tokens,
            forced_tokens=counters.forced_tokens,
            recomputed_tokens=counters.recomputed_tokens,
            drafted_tokens=counters.drafted_tokens,
            accepted_tokens=counters.accepted_tokens,
            retractions=counters.retractions,
            evicted_tokens=counters.evicted_tokens,
            step_s=counters.timings.step,
            forward_s=counters.timings.forward,
        )
