"""Errors as OpenAI's clients expect them: a status, and ``{"error": {message, type, param, code}}``."""

from __future__ import annotations

import msgspec

from ...constrained.interface import RELAXABLE
from ..errors import BackendError, GenerationError, PlaitError, RequestError
from ..protocol import Failed

#: Failed.code -> (status, type). What is missing is a fault of ours: 500.
_STATUS = {
    "invalid_value": (400, "invalid_request_error"),
    "context_length": (400, "invalid_request_error"),
    "invalid_constraint": (400, "invalid_request_error"),
    "invalid_request": (400, "invalid_request_error"),
    "kv_exhausted": (400, "invalid_request_error"),
    "queue_full": (429, "rate_limit_error"),
    "lease_expired": (503, "server_error"),
    "shutdown": (503, "server_error"),
    "aborted": (503, "server_error"),
}
#: how the advice reads here, where nothing says what was dropped
_RELAXABLE = ' ("strict": false beside the response_format drops what cannot be kept)'
_CODES = {"context_length": "context_length_exceeded"}


class HttpProblem(Exception):
    """A refusal or failure on its way to the client."""

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        *,
        code: str | None = None,
        type: str = "invalid_request_error",
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.type = type
        self.headers = headers

    def envelope(self) -> bytes:
        error = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return msgspec.json.encode({"error": error})


def bad_field(param: str, message: str, code: str = "invalid_value") -> HttpProblem:
    return HttpProblem(400, message, param, code=code)


def busy(message: str) -> HttpProblem:
    return HttpProblem(429, message, code="queue_full", type="rate_limit_error", headers=(("retry-after", "1"),))


def from_failed(failed: Failed, names: dict[str, str]) -> HttpProblem:
    """``names`` maps protocol fields to this route's (``text`` is ``messages`` or ``prompt``)."""
    status, kind = _STATUS.get(failed.code, (500, "server_error"))
    if failed.code == "queue_full":
        return busy(failed.message)
    param = names.get(failed.field, failed.field) if failed.field else None
    if param is None and failed.code == "context_length":
        param = names.get("text")
    message = failed.message
    if failed.code == "invalid_constraint":
        bare = message.removesuffix(RELAXABLE)
        if param is not None and param not in bare:
            message = f"{param}: {message}"
        if bare != failed.message:
            message = message.removesuffix(RELAXABLE) + _RELAXABLE
    return HttpProblem(status, message, param, code=_CODES.get(failed.code, failed.code), type=kind)


def from_exception(error: PlaitError) -> HttpProblem:
    if isinstance(error, RequestError):
        return bad_field(error.field or "", error.message, error.code)
    if isinstance(error, BackendError):
        return HttpProblem(503, str(error), code="unavailable", type="server_error")
    code = error.code if isinstance(error, GenerationError) else "internal"
    return HttpProblem(500, str(error), code=code, type="server_error")
