"""Work that cannot be cut into steps by itself, done in slices of the core's time.

::

    core    run(0.002) ──> waits            run(0.002) ──> waits           ... True: result()
    thread                 works ── pauses                  works ── ends

The thread moves only while :meth:`Sliced.run` waits for it, so there is never more than one at work: nothing is
contended, least of all the interpreter's lock that torch's operations need. It looks at the clock at each call of a
Python function, through the profiler's hook, which makes the work two or three times slower; what takes long in one
call into C is not cut. It pauses only where all that is called is Plait's own code, which holds no locks: a thread that
paused in the middle of an import or of a cached_property would hold theirs. The work must touch nothing that the core
uses meanwhile.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Generic, TypeVar

T = TypeVar("T")

_PACKAGE = Path(__file__).resolve().parents[2]
_OURS: tuple[str, ...] = (str(_PACKAGE / "constrained"), str(_PACKAGE / "runtime" / "core"))
_ROOT = "Sliced._main"
#: between two looks at whether others' code is left at last
_PATIENCE_S = 0.0002


class _Cancelled(BaseException):
    """Ends the thread from within."""


class Sliced(Generic[T]):
    """``work`` is begun by the first :meth:`run`. Call :meth:`cancel` if it is not run to its end."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._go = threading.Semaphore(0)
        self._paused = threading.Semaphore(0)
        self._until: float | None = None
        self._cancelled = False
        self._thread: threading.Thread | None = None
        self._answer: list[T] = []
        self._error: BaseException | None = None
        self._done = False

    def run(self, seconds: float | None) -> bool:
        """Let it work for about ``seconds`` (None: to its end). True once it has ended, well or not."""
        if self._done:
            return True
        self._until = None if seconds is None else time.monotonic() + seconds
        if self._thread is None:
            self._thread = threading.Thread(target=self._main, name="plait-slices", daemon=True)
            self._thread.start()
        self._go.release()
        self._paused.acquire()
        return self._done

    def result(self) -> T:
        """What ``work`` returned; raises what it raised."""
        if self._error is not None:
            raise self._error
        return self._answer[0]

    def cancel(self) -> None:
        """It is not wanted any more. Waits until the thread has left it."""
        if self._thread is None or self._done:
            return
        self._cancelled = True
        self._go.release()
        self._paused.acquire()

    # ------------------------------------------------------------ on the thread

    def _main(self) -> None:
        self._go.acquire()
        sys.setprofile(self._tick)
        try:
            self._answer.append(self._work())
        except BaseException as error:  # for result(), whatever it is
            self._error = error
        finally:
            sys.setprofile(None)
            self._done = True
            self._paused.release()

    def _tick(self, frame: FrameType, event: str, argument: object) -> None:
        if self._until is None or event != "call":
            return
        now = time.monotonic()
        if now < self._until:
            return
        if not _may_pause(frame):
            self._until = now + _PATIENCE_S  # asking at each call would make a long one longer still
        else:
            self._paused.release()
            self._go.acquire()
            if self._cancelled:
                raise _Cancelled


def _may_pause(frame: FrameType) -> bool:
    """Every function under way, up to the thread's own, is Plait's."""
    at: FrameType | None = frame
    while at is not None:
        code = at.f_code
        if code.co_qualname == _ROOT:
            return True
        if not code.co_filename.startswith(_OURS):
            return False
        at = at.f_back
    return True
