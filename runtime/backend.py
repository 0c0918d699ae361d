"""What executes programs, as its callers see it. ``Runtime`` and ``connect`` provide it; ``lang``, the HTTP server and
the command line use it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from .protocol import Action, Event, Info

#: Called on the backend's own thread, in order; must return quickly and never raise.
Listener = Callable[[Event], None]


class Backend(Protocol):
    """Thread-safe. Executes actions; tells the listener of each strand what came of them."""

    def allocate(self) -> int:
        """A fresh id, for a strand or a program. Never 0, never reused within this backend."""

    def submit(self, actions: Sequence[Action], listener: Listener) -> None:
        """Send actions in order, without waiting. Events of every strand that ``actions`` opens or forks go to
        ``listener``, until its Closed; a ``Lost`` ends all. Raises BackendClosed once the backend is closed."""

    def abort(self, *, strand: int | None = None, program: int | None = None) -> None:
        """End one strand, or every strand of a program, at once. One that is over already is no error."""

    def info(self) -> Info:
        """The model behind the backend and its limits."""

    def close(self) -> None:
        """Idempotent. Live listeners get ``Lost``."""
