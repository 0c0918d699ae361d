"""A backend for chats: no model, a fixed answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from server_fake import ScriptedBackend

from plait.runtime.protocol import Action, Delta, Done, Event, Extend, Gen, RoleBegin, Text


class Talker:
    """Answers each turn with the number of roles it was sent; ``fault`` makes the next one go wrong. The answer to
    "hold" never ends."""

    def __init__(self) -> None:
        self.sent: list[Action] = []
        self.aborted: list[int | None] = []
        self.fault: Callable[[int, int], Event] | BaseException | None = None
        self._last = 0

    def allocate(self) -> int:
        self._last += 1
        return self._last

    def info(self) -> Any:
        return ScriptedBackend().info()

    def abort(self, *, strand: int | None = None, program: int | None = None) -> None:
        self.aborted.append(strand)

    def close(self) -> None: ...

    def submit(self, actions: Sequence[Action], listener: Callable[[Event], None]) -> None:
        self.sent += actions
        for action in actions:
            if isinstance(action, Extend):
                gen = next(op for op in action.ops if isinstance(op, Gen))
                listener(Delta(action.strand, gen.op, 0, "answer "))
                fault, self.fault = self.fault, None
                if self.texts()[-1][-1:] == ["hold"]:
                    continue
                if callable(fault):
                    listener(fault(action.strand, gen.op))
                else:
                    count = sum(isinstance(op, RoleBegin) for op in action.ops)
                    listener(Done(action.strand, gen.op, text=f"answer {count}"))

    def texts(self) -> list[list[str]]:
        extends = [action for action in self.sent if isinstance(action, Extend)]
        return [[op.text for op in extend.ops if isinstance(op, Text)] for extend in extends]
