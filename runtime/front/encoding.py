"""Encoding that takes long happens beside the loop, on a thread: everybody else's turn goes on.

A megabyte takes a second. Long texts wait for each other, short ones for nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from .strand import Strand

T = TypeVar("T")


class Encoding(Exception):
    """Not an error: what the op needs is being encoded, and whoever :attr:`waiting` holds is woken then."""

    def __init__(self, job: Job) -> None:
        super().__init__("the text is being encoded")
        self.waiting = job.waiting


class Job:
    """One text on its way, kept by the strand whose it is."""

    def __init__(self, future: asyncio.Future[Any]) -> None:
        self.future = future
        self.waiting: dict[Strand, None] = {}


class Encoder:
    """``wake`` is told which strands may go on."""

    def __init__(self, inline: int, wake: Callable[[Sequence[Strand]], None]) -> None:
        self._inline = inline
        self._wake = wake
        self._pool = ThreadPoolExecutor(1, "plait-encode")

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def get(self, owner: Strand, key: Hashable, size: int, encode: Callable[[], T]) -> T:
        """``encode()``, at once if ``size`` characters are few; else raises :class:`Encoding` until it is there.

        ``key`` is what is encoded. An op that needs two texts asks again for the first when the second is there.
        """
        if size <= self._inline:
            return encode()
        job = owner.encoding.get(key)
        if job is None:
            job = owner.encoding[key] = Job(asyncio.get_running_loop().run_in_executor(self._pool, encode))
            job.future.add_done_callback(partial(self._done, job))
        if not job.future.done():
            raise Encoding(job)
        del owner.encoding[key]
        return job.future.result()  # type: ignore[no-any-return]  # what encode gave

    def _done(self, job: Job, future: asyncio.Future[Any]) -> None:
        if not future.cancelled():
            future.exception()  # raised where it is asked for
            self._wake(list(job.waiting))
