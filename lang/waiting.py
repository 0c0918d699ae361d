"""Waiting without polling: a thread or an event loop sleeps until the thing it looks at changes.

Reads are written once, as generators that yield :class:`Wait` where they cannot go on and text where they have some.
Four small drivers run them: to the end or text by text, blocking or awaiting.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class Changing:
    """Counts its changes, and wakes whoever waits for the next one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wakers: list[Callable[[], None]] = []
        self.version = 0

    def changed(self) -> None:
        """Call after every change. Wakers run on this thread; they only set a flag."""
        with self._lock:
            self.version += 1
            wakers, self._wakers = self._wakers, []
        for wake in wakers:
            wake()

    def wake_after(self, seen: int, wake: Callable[[], None]) -> None:
        """Calls ``wake`` once when ``version`` is no longer ``seen``, at once if it is not now."""
        with self._lock:
            if self.version == seen:
                self._wakers.append(wake)
                return
        wake()


class Wait(NamedTuple):
    """A read cannot go on until ``thing`` has changed from version ``seen``."""

    thing: Changing
    seen: int


#: A read: yields waits and pieces of text, returns its answer.
Read = Generator["Wait | str", None, T]
Block = Callable[[Wait], None]


def wait_blocking(wait: Wait, timeout: float | None) -> bool:
    """False when ``timeout`` seconds passed without a change."""
    event = threading.Event()
    wait.thing.wake_after(wait.seen, event.set)
    return event.wait(timeout)


async def wait_async(wait: Wait) -> None:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def settle() -> None:
        if not future.done():
            future.set_result(None)

    def wake() -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile, and nobody is left to wake
            loop.call_soon_threadsafe(settle)

    wait.thing.wake_after(wait.seen, wake)
    await future


def complete(read: Read[T], block: Block) -> T:
    """The answer of ``read``, blocking where it waits."""
    while True:
        try:
            step = next(read)
        except StopIteration as end:
            answer: T = end.value
            return answer
        if isinstance(step, Wait):
            block(step)


async def complete_async(read: Read[T]) -> T:
    while True:
        try:
            step = next(read)
        except StopIteration as end:
            answer: T = end.value
            return answer
        if isinstance(step, Wait):
            await wait_async(step)


def texts(read: Read[None], block: Block) -> Iterator[str]:
    for step in read:
        if isinstance(step, Wait):
            block(step)
        elif step:
            yield step


async def texts_async(read: Read[None]) -> AsyncIterator[str]:
    for step in read:
        if isinstance(step, Wait):
            await wait_async(step)
        elif step:
            yield step


def on_event_loop() -> bool:
    """Whether blocking here would stop an event loop that other work needs.

    A notebook's loop runs its cells one by one and a blocked cell is what its user asked for, so it does not count.
    """
    if "ipykernel" in sys.modules:
        return False
    return loop_is_running()


def loop_is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
