"""What the server asks of whatever executes its requests: ``Runtime`` and ``connect`` provide it.

The same shape as ``plait.lang.backend.Backend``, said again because the runtime does not import the language.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ..protocol import Action, Event, Info

#: Called on the backend's own thread, in order; must return quickly and never raise.
Listener = Callable[[Event], None]


class Backend(Protocol):
    """Thread-safe."""

    def allocate(self) -> int: ...

    def submit(self, actions: Sequence[Action], listener: Listener) -> None: ...

    def abort(self, *, strand: int | None = None, program: int | None = None) -> None: ...

    def info(self) -> Info: ...

    def close(self) -> None: ...
