"""What stands before the routes: the key, the body's limit, the number of requests in flight."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.types import ASGIApp, Receive, Scope, Send

from .problems import HttpProblem, bad_field, busy
from .reply import send_problem

#: Exactly these paths need no key.
OPEN_PATHS = frozenset({"/health"})


class RequireKey:
    """Refuses everything that is not open and does not carry a key: routes that exist and routes that do not."""

    def __init__(self, app: ASGIApp, keys: tuple[str, ...]) -> None:
        self._app = app
        self._keys = [key.encode() for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or scope["path"] in OPEN_PATHS or not self._keys:
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            if self._knows(scope):
                await self._app(scope, receive, send)
            else:
                message = "a valid API key is needed: Authorization: Bearer KEY"
                headers = (("www-authenticate", "Bearer"),)
                await send_problem(send, HttpProblem(401, message, code="invalid_api_key", headers=headers))

    def _knows(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name.lower() == b"authorization"]
        if len(given) != 1:
            return False
        scheme, _, token = given[0].partition(b" ")
        # every key is compared, in constant time, so the answer's timing tells nothing about any of them
        matches = [hmac.compare_digest(token.strip(), key) for key in self._keys]
        return scheme.lower() == b"bearer" and any(matches)


class Admission:
    """A bounded number of choices in flight, and of log-probabilities that they may hold. Nobody waits here: what does
    not fit is refused at once."""

    def __init__(self, limit: int, most_numbers: int = 2**20, most_numbers_held: int = 2**23) -> None:
        self.limit = limit
        self.held = 0
        self._most_numbers = most_numbers
        self._most_numbers_held = most_numbers_held
        self._numbers = 0

    @contextmanager
    def hold(self, choices: int, param: str, numbers: int = 0) -> Iterator[None]:
        """``numbers``: log-probabilities that the answer may hold. One choice may always hold its own, alone."""
        if choices > self.limit:
            raise bad_field(param, f"{choices} choices in one request; this server takes {self.limit} at a time")
        if choices > 1 and numbers > self._most_numbers:
            raise bad_field(
                "logprobs",
                f"logprobs: {choices} choices may hold {numbers:,} log-probabilities with their alternatives, and at "
                f"most {self._most_numbers:,} fit: lower n, max_tokens or the number of alternatives",
            )
        if self.held + choices > self.limit:
            raise busy(f"{self.held} choices are in flight, of {self.limit}: try again later")
        if self._numbers and self._numbers + numbers > self._most_numbers_held:
            raise busy("the log-probabilities of other requests take all the room there is: try again later")
        self.held += choices
        self._numbers += numbers
        try:
            yield
        finally:
            self.held -= choices
            self._numbers -= numbers


class Bodies:
    """Reads JSON bodies: each within ``limit`` bytes and ``seconds``, all that are being read within ``limit_all``."""

    def __init__(self, limit: int, limit_all: int, seconds: float) -> None:
        self._limit = limit
        self._limit_all = max(limit, limit_all)
        self._seconds = seconds
        self.held = 0  # bytes

    async def read(self, scope: Scope, receive: Receive) -> bytes:
        """The whole body, or 408, 413, 415, 429; raises ClientGone when the client hangs up."""
        headers = dict(scope["headers"])
        kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
        if kind != b"application/json":
            # a browser sends other types across origins without asking; a JSON API has no use for them
            raise HttpProblem(
                415, "the body must be JSON: Content-Type: application/json", code="unsupported_media_type"
            )
        declared = headers.get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > self._limit:
            raise _too_large(self._limit)
        body = bytearray()
        try:
            async with asyncio.timeout(self._seconds):
                while await self._piece(body, receive):
                    continue
        except TimeoutError:
            raise HttpProblem(408, f"the body was not there after {self._seconds:g} s", code="body_timeout") from None
        finally:
            self.held -= len(body)
        return bytes(body)

    @contextmanager
    def keep(self, body: bytes) -> Iterator[None]:
        """``body`` is still needed: it counts as those that are being read."""
        self.held += len(body)
        try:
            if self.held > self._limit_all:
                raise self._busy()
            yield
        finally:
            self.held -= len(body)

    def _busy(self) -> HttpProblem:
        return busy(f"{self.held:,} bytes of requests are being read at once: try again later")

    async def _piece(self, body: bytearray, receive: Receive) -> bool:
        """Adds what comes next; whether there is more."""
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        piece = message.get("body", b"")
        body += piece
        self.held += len(piece)
        if len(body) > self._limit:
            raise _too_large(self._limit)
        if self.held > self._limit_all:
            raise self._busy()
        return bool(message.get("more_body", False))


def _too_large(limit: int) -> HttpProblem:
    return HttpProblem(413, f"the body is larger than {limit:,} bytes", code="body_too_large")


class ClientGone(Exception):
    """The client hung up; there is nobody to answer."""
