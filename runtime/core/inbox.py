"""What the front asks, applied in order. Nothing here waits for the model."""

from __future__ import annotations

import logging

from ...constrained.compiler import load
from ...constrained.interface import ConstraintError
from ...constrained.masks import MaskCache
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
from .kit import OpError
from .state import State
from .strand import Status, Strand

log = logging.getLogger("plait.core")


class Inbox:
    """Messages for a strand that is gone are dropped: the front may not know yet that it failed."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.stopped = False
        self._masks = MaskCache()

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
                self._define(item)
            elif isinstance(item, Forget):
                self._state.constraints.pop(item.key, None)
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

    def _define(self, item: Define) -> None:
        """A payload that cannot be loaded fails the ops that use it, not the core."""
        try:
            constraint = load(item.payload, self._state.kit.vocabulary, item.key, self._masks)
        except (ConstraintError, ValueError) as error:
            log.warning("constraint %s cannot be loaded: %s", item.key, error)
            self._state.constraints[item.key] = OpError("invalid_constraint", str(error), "constraint")
        else:
            self._state.constraints[item.key] = constraint
