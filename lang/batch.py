"""Many runs at once, in bounded company: results in order, failures kept with their item."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from ..runtime.errors import Aborted

log = logging.getLogger("plait")

if TYPE_CHECKING:
    from .state import State

#: Makes an item's state, and what runs it: a call that returns at its end, or the coroutine that does.
Start = Callable[[], "tuple[State, Callable[[], Coroutine[Any, Any, None] | None]]"]


def run_all(starts: Sequence[Start], *, is_async: bool, limit: int, progress_bar: bool, window: int) -> Iterator[State]:
    """The states in the order of ``starts``. At most ``limit`` run at once, at most ``window`` wait to be taken.

    What is still running when the iteration is left, or interrupted, is aborted.
    """
    crew = _Crew()
    progress = _Progress(len(starts)) if progress_bar else None
    workers: _Threads | _Loop = _Loop(limit) if is_async else _Threads(limit)
    waiting: deque[Future[State]] = deque()
    following = iter(starts)
    try:
        while True:
            while len(waiting) < max(1, window) and (start := next(following, None)) is not None:
                future = workers.submit(start, crew)
                if progress is not None:
                    future.add_done_callback(progress.step)
                waiting.append(future)
            if not waiting:
                return
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
        crew.abort()
        workers.close()
        if progress is not None:
            progress.close()


def with_a_word_on_failures(name: str, states: Iterator[State]) -> Iterator[State]:
    """``states``, and one line of log at their end if programs among them failed: whoever reads no error would take
    the batch for a good one. (A log, and no warning: where those are errors, the batch would be lost.)"""
    done, kinds, first = 0, Counter[str](), ""
    try:
        for state in states:
            error = state.error()
            if error is not None:
                kinds[type(error).__name__] += 1
                first = first or f"item {done}: {type(error).__name__}: {error}"
            done += 1
            yield state
    finally:
        if isinstance(states, Generator):
            states.close()  # the workers and the bar go first
        if kinds:
            counts = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
            message = "%s.run_batch(): %d of %d items failed (%s). The first is %s. state.error() tells each"
            log.warning(message, name, kinds.total(), done, counts, first[:500])


class _Crew:
    """The states that are running now."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[State] = set()
        self._over = False

    def enter(self, state: State) -> None:
        with self._lock:
            self._running.add(state)
            over = self._over
        if over:
            state._program.abort(_left())

    def leave(self, state: State) -> None:
        with self._lock:
            self._running.discard(state)

    def abort(self) -> None:
        with self._lock:
            self._over = True
            running = list(self._running)
        for state in running:
            state._program.abort(_left())


def _left() -> Aborted:
    return Aborted("the batch was left before this item had ended", "aborted")


class _Threads:
    def __init__(self, limit: int) -> None:
        self._pool = ThreadPoolExecutor(max_workers=limit, thread_name_prefix="plait-batch")

    def submit(self, start: Start, crew: _Crew) -> Future[State]:
        return self._pool.submit(contextvars.copy_context().run, self._item, start, crew)

    @staticmethod
    def _item(start: Start, crew: _Crew) -> State:
        state, run = start()
        crew.enter(state)
        try:
            run()
        except Exception as error:
            # The item's own: its state tells it (see run_batch).
            state._program.abort(error)
        finally:
            crew.leave(state)
        return state

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


class _Loop:
    """An event loop in a thread of its own, so that a batch works whether or not the caller has a loop."""

    def __init__(self, limit: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._gate = asyncio.Semaphore(limit)
        self._thread = threading.Thread(target=self._loop.run_forever, name="plait-batch", daemon=True)
        self._thread.start()

    def submit(self, start: Start, crew: _Crew) -> Future[State]:
        return asyncio.run_coroutine_threadsafe(self._item(start, crew), self._loop)

    async def _item(self, start: Start, crew: _Crew) -> State:
        async with self._gate:
            state, run = start()
            crew.enter(state)
            try:
                coroutine = run()
                assert coroutine is not None
                await coroutine
            except Exception as error:
                # The item's own: its state tells it (see run_batch).
                state._program.abort(error)
            finally:
                crew.leave(state)
            return state

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end_tasks(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @staticmethod
    async def _end_tasks() -> None:
        rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)


class _Progress:
    """A tqdm bar; tqdm is imported only for it."""

    def __init__(self, total: int) -> None:
        from tqdm import tqdm

        self._lock = threading.Lock()
        self._bar = tqdm(total=total, unit="program")

    def step(self, future: Future[State]) -> None:
        with self._lock:
            self._bar.update()

    def close(self) -> None:
        with self._lock:
            self._bar.close()
