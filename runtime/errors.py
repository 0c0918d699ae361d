"""Every exception that Plait raises to its users, in one tree.

::

    PlaitError
    ├── RequestError (ValueError)      a request was refused; has code, field, message
    │   ├── InvalidValue               a field is out of range or of the wrong type
    │   ├── ContextLengthExceeded      prompt (plus min_tokens) does not fit the model's context
    │   └── InvalidConstraint          a regex, schema or grammar cannot be compiled
    ├── ModelError                     a model cannot be found, read or run
    ├── GenerationError                an accepted op failed; has code, field, message, op
    │   ├── UpstreamFailed             an earlier op of the strand (or its parent) failed
    │   ├── Aborted                    the strand or program was aborted
    │   └── CoreCrashed                the core died too often on this strand
    ├── ForkError                      branches of a fork failed; has errors: dict[int, Exception]
    ├── BackendError                   the runtime cannot be reached, or was closed
    │   ├── ConnectTimeout
    │   ├── ProtocolMismatch
    │   ├── LeaseExpired
    │   └── BackendClosed
    ├── NotReady                       a variable was read on an event loop before it was there
    └── RunTimeout (TimeoutError)      run(timeout=) elapsed

``constrained`` stands below this room and raises its own ``ConstraintError``; the front turns it into
:class:`InvalidConstraint`.
"""

from __future__ import annotations


class PlaitError(Exception):
    """Base of everything Plait raises on purpose."""


class RequestError(PlaitError, ValueError):
    """A request was refused at the edge. ``field`` names what to change, ``message`` says how."""

    code = "invalid_request"

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field


class InvalidValue(RequestError):
    code = "invalid_value"


class ContextLengthExceeded(RequestError):
    code = "context_length"


class InvalidConstraint(RequestError):
    code = "invalid_constraint"


class ModelError(PlaitError):
    """A model cannot be found, read or run; the message names the path and the fix."""


class GenerationError(PlaitError):
    """An accepted op failed. ``code`` is one of :data:`plait.runtime.protocol.CODES`."""

    def __init__(self, message: str, code: str = "internal", field: str | None = None, op: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.field = field
        self.op = op


class UpstreamFailed(GenerationError):
    pass


class Aborted(GenerationError):
    pass


class CoreCrashed(GenerationError):
    pass


class ForkError(PlaitError):
    """Branches of a fork failed. ``errors`` maps the branch's index to its exception."""

    def __init__(self, message: str, errors: dict[int, Exception]) -> None:
        super().__init__(message)
        self.errors = errors


class BackendError(PlaitError):
    """The runtime cannot be reached, or is closed."""


class ConnectTimeout(BackendError):
    pass


class ProtocolMismatch(BackendError):
    pass


class LeaseExpired(BackendError):
    pass


class BackendClosed(BackendError):
    pass


class NotReady(PlaitError):
    """A variable was read on an event-loop thread before it was there."""


class RunTimeout(PlaitError, TimeoutError):
    """``run(timeout=)`` elapsed; the program was aborted."""


_REQUEST: dict[str, type[RequestError]] = {
    "invalid_value": InvalidValue,
    "context_length": ContextLengthExceeded,
    "invalid_constraint": InvalidConstraint,
    "invalid_request": RequestError,
}
_GENERATION: dict[str, type[GenerationError]] = {
    "upstream": UpstreamFailed,
    "aborted": Aborted,
    "core_crashed": CoreCrashed,
}


def from_code(code: str, field: str | None, message: str, op: int | None = None) -> PlaitError:
    """The exception for a ``Failed(code, field, message)`` of the wire."""
    if code in _REQUEST:
        return _REQUEST[code](message, field)
    if code == "lease_expired":
        return LeaseExpired(message)
    if code == "shutdown":
        return BackendClosed(message)
    return _GENERATION.get(code, GenerationError)(message, code, field, op)
