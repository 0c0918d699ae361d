"""Who listens to which strand. Shared by the backend in this process and the one behind a socket."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Sequence

import msgspec

from .backend import Listener
from .errors import BackendClosed, InvalidValue, RequestError
from .protocol import (
    MAX_FRAME_BYTES,
    Action,
    Closed,
    Delta,
    Done,
    Event,
    Failed,
    Fork,
    Fragment,
    Lost,
    Open,
    PromptLogprobs,
    decode_client,
    encode,
)

log = logging.getLogger(__name__)


def packed(actions: Sequence[Action]) -> tuple[Fragment, bytes]:
    """The actions as the other side will read them, and as the frame it reads them from.

    A backend in this process takes no frame, but its callers are held to the same types: what the codec cannot carry
    would reach the core, and end it. Raises InvalidValue, or RequestError for more than a frame holds.
    """
    try:
        frame = encode(Fragment(tuple(actions)))
        if len(frame) <= MAX_FRAME_BYTES:
            fragment = decode_client(frame)
            assert isinstance(fragment, Fragment)
            return fragment, frame
    except UnicodeEncodeError as error:
        character = f"U+{ord(error.object[error.start]):04X}"
        raise InvalidValue(f"a text holds the unpaired surrogate {character}, which no encoding carries") from error
    except (TypeError, OverflowError, msgspec.MsgspecError) as error:
        raise InvalidValue(f"a field has the wrong type or size: {error}") from error
    raise RequestError(f"{len(frame):,} bytes in one message, and at most {MAX_FRAME_BYTES:,} fit: send less")


class Dispatch:
    """Thread-safe. ``take`` and ``end`` run on the backend's own thread."""

    def __init__(self) -> None:
        self._listeners: dict[int, Listener] = {}
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._lost: Lost | None = None

    def allocate(self) -> int:
        return next(self._numbers)

    def add(self, actions: Sequence[Action], listener: Listener) -> None:
        """Strands that ``actions`` open or fork belong to ``listener``. Raises BackendClosed after the end."""
        with self._lock:
            if self._lost is not None:
                raise BackendClosed(self._lost.message)
            for action in actions:
                if isinstance(action, Open):
                    self._listeners[action.strand] = listener
                elif isinstance(action, Fork):
                    self._listeners.update(dict.fromkeys(action.children, listener))

    def take(self, events: Sequence[Delta | PromptLogprobs | Done | Failed | Closed]) -> None:
        for event in events:
            if isinstance(event, Closed):
                with self._lock:
                    listener = self._listeners.pop(event.strand, None)
            else:
                listener = self._listeners.get(event.strand)
            if listener is not None:
                self._tell(listener, event)

    def end(self, lost: Lost) -> None:
        """Tell everybody, once each, that nothing more will come. Idempotent."""
        with self._lock:
            if self._lost is not None:
                return
            self._lost = lost
            listeners = list({id(listener): listener for listener in self._listeners.values()}.values())
            self._listeners.clear()
        for listener in listeners:
            self._tell(listener, lost)

    @property
    def strands(self) -> list[int]:
        """Those that are not closed yet."""
        with self._lock:
            return list(self._listeners)

    @staticmethod
    def _tell(listener: Listener, event: Event) -> None:
        try:
            listener(event)
        except Exception:  # one listener's fault must not cost the others their events
            log.exception("a listener raised on %s", type(event).__name__)
