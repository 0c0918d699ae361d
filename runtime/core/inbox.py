"""What the front asks, applied in order. Nothing here waits for the model."""

from __future__ import annotations

from ..wire import (
    AbortStrand,
    CloseStrand,
    Define,
    ExtendStrand,
    Forget,
    ForkAt,
    OpenStrand,
    Stop,
    ToCore,
)
from .state import State
from .strand import Status, Strand


class Inbox:
    """Messages for a strand that is gone are dropped: the front may not know yet that it failed."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.stopped = False

    def receive(self, message: ToCore) -> None:
        for item in message.items:
            if isinstance(item, OpenStrand):
                self._state.open(item.sid, item.namespace, item.priority)
            elif isinstance(item, ExtendStrand):
                self._extend(item)
            elif isinstance(item, CloseStrand):
                self._close(item)
            elif isinstance(item, AbortStrand):
                strand = self._state.strands.get(item.sid)
                if strand is not None:
                    self._state.abort(strand)
            elif isinstance(item, Define):
                self._state.constraints.define(item.key, item.payload)
            elif isinstance(item, Forget):
                self._state.constraints.forget(item.key)
            elif isinstance(item, Stop):
                self.stopped = True

    def _extend(self, item: ExtendStrand) -> None:
        strand = self._state.strands.get(item.sid)
        if strand is None:
            return
        for op in item.ops:
            if isinstance(op, ForkAt):
                for child in op.children:
                    self._state.open(child, strand.seq.namespace, strand.priority, status=Status.BLOCKED)
        strand.queue.extend(item.ops)
        self._wake(strand)

    def _close(self, item: CloseStrand) -> None:
        strand = self._state.strands.get(item.sid)
        if strand is not None:
            strand.queue.append(item)
            self._wake(strand)

    def _wake(self, strand: Strand) -> None:
        if strand.status is Status.IDLE:
            self._state.ready.append(strand)
