"""The backend that programs run on when nobody names one."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable

from ..runtime.backend import Backend
from ..runtime.errors import BackendClosed, BackendError, InvalidValue

_lock = threading.Lock()
_backend: Backend | None = None
_started: Backend | None = None  # what the factory made, ours to close
_factory: Callable[[], Backend] | None = None


def set_default_backend(backend: Backend | None) -> None:
    """Programs run on ``backend`` unless their run names another; None goes back to starting one when needed."""
    global _backend
    if backend is not None:
        check_backend(backend)
    with _lock:
        _backend = backend


def check_backend(backend: object) -> None:
    """Raises InvalidValue for what is none: an address, say, or a class."""
    if isinstance(backend, type) or not callable(getattr(backend, "submit", None)):
        raise InvalidValue(f"backend must be a Runtime or what connect(address) returns, not {backend!r}", "backend")


def register_factory(factory: Callable[[], Backend]) -> None:
    """How to start a backend at the first run without one. ``plait`` registers the Runtime here."""
    global _factory
    with _lock:
        _factory = factory


def default_backend() -> Backend:
    """One that we started and that has ended since (its server went away, say) is started anew.

    Raises BackendError when there is none and none can be started.
    """
    global _started
    with _lock:
        if _backend is not None:
            return _backend
        if _started is None or _has_ended(_started):
            if _factory is None:
                raise BackendError("there is no default backend; give run(backend=...) or call set_default_backend")
            _started = _factory()
        return _started


def _has_ended(backend: Backend) -> bool:
    try:
        backend.info()
    except BackendClosed:
        return True
    return False


@atexit.register
def _close_started() -> None:
    global _started
    with _lock:
        backend, _started = _started, None
    if backend is not None:
        backend.close()
