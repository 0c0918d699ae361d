"""What takes longer than some milliseconds to read or to write is left to a thread of its own, one after the other, so
that whoever sends or asks for little does not wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

#: beyond these: bytes of a body, log-probabilities of an answer
LONG_BODY, MANY_NUMBERS = 64 * 1024, 4096
_thread = ThreadPoolExecutor(1, "plait-server-aside")


async def aside(work: Callable[..., T], *given: object) -> T:
    """``work(*given)``, beside the loop."""
    return await asyncio.get_running_loop().run_in_executor(_thread, work, *given)
