"""A strand as the core sees it: a sequence, the ops still to do, and where it stands."""

from __future__ import annotations

from collections import deque
from enum import Enum

from ..wire import CloseStrand, CoreOp
from .batch import Op
from .sequence import Sequence


class Status(Enum):
    """::

    BLOCKED ──parent forks──> IDLE <──op ends── RUNNING
                               │                 ^   │ retracted
                               └──op needs KV──> WAITING <┘         any ──> CLOSED
    """

    BLOCKED = "blocked"  # a child whose parent has not reached the fork
    IDLE = "idle"
    WAITING = "waiting"  # its current op wants admission
    RUNNING = "running"
    CLOSED = "closed"


class Strand:
    """``arrival`` rises by one with each strand: lower is older, and the older of equal priority goes first."""

    __slots__ = (
        "arrival",
        "counted",
        "current",
        "priority",
        "queue",
        "retracted",
        "seq",
        "sid",
        "status",
    )

    def __init__(self, sid: int, seq: Sequence, *, priority: int, arrival: int, status: Status) -> None:
        self.sid = sid
        self.seq = seq
        self.priority = priority
        self.arrival = arrival
        self.status = status
        self.queue: deque[CoreOp | CloseStrand] = deque()
        self.current: Op | None = None
        self.retracted = False
        self.counted = (-1, 0)  # op, and how many of its prompt's tokens its ScorePrompt has counted

    def __repr__(self) -> str:
        return f"<Strand {self.sid} {self.status.value} n={self.seq.n} kv={self.seq.kv_len} queued={len(self.queue)}>"


def urgency(strand: Strand) -> tuple[int, bool, int]:
    """Lower goes first: by priority, then what was retracted, then by age. Fixed while a strand waits."""
    return -strand.priority, not strand.retracted, strand.arrival
