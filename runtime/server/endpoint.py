"""The two generating routes, as one ASGI application each: everything a request holds is let go in one place."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
from starlette.types import Receive, Scope, Send

from ..backend import Backend
from ..errors import PlaitError
from ..protocol import Info
from .aside import LONG_BODY, MANY_NUMBERS, aside
from .guard import Admission, Bodies, ClientGone
from .job import Job, Jobs, Piece
from .metrics import Metrics
from .problems import HttpProblem, from_exception
from .reply import send_problem, send_whole
from .settings import ServerSettings
from .shapes import Json, shape_for, usage_json
from .stream import events
from .work import Work

log = logging.getLogger("plait.server")
T = TypeVar("T")


class Endpoint:
    def __init__(
        self,
        backend: Backend,
        settings: ServerSettings,
        admission: Admission,
        bodies: Bodies,
        jobs: Jobs,
        metrics: Metrics,
        read: Callable[[bytes, Info, ServerSettings], Work],
    ) -> None:
        self._backend = backend
        self._settings = settings
        self._admission = admission
        self._bodies = bodies
        self._jobs = jobs
        self._metrics = metrics
        self._read = read

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def noting(message: Any) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._serve(scope, receive, noting)
        except Unread:
            self._metrics.gone()
            if (abort := scope.get("state", {}).get("abort")) is not None:
                abort()  # closing would wait for the client to take what is written already
                await asyncio.sleep(0)  # the server notes it, and does not complain of half an answer
        except (ClientGone, OSError):  # OSError: how a server says that writing found nobody
            self._metrics.gone()
        except HttpProblem as problem:
            await send_problem(send, problem)
        except PlaitError as error:
            await send_problem(send, from_exception(error))
        except Exception:
            log.exception("a request failed")
            if begun:
                raise
            await send_problem(send, HttpProblem(500, "internal error", code="internal", type="server_error"))

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await self._bodies.read(scope, receive)
        info = self._backend.info()
        if len(body) > LONG_BODY:
            with self._bodies.keep(body):
                work = await unless_gone(receive, aside(self._read, body, info, self._settings))
        else:
            work = self._read(body, info, self._settings)
        del body
        param = "n" if work.n > 1 else work.names["text"]
        with self._admission.hold(work.choices, param, work.numbers(info.context_length)):
            async with Job(self._backend, work, self._jobs) as job:
                answer = self._stream if work.stream else self._whole
                await unless_gone(receive, answer(job, info, send), job.cut)

    async def _whole(self, job: Job, info: Info, send: Send) -> None:
        await job.finish()
        for done in job.results.values():
            self._metrics.finished(done)
        many = job.numbers + sum(len(done.logprobs or ()) for done in job.results.values()) > MANY_NUMBERS
        body = await aside(whole, job, info) if many else whole(job, info)
        await send_whole(send, 200, body)

    async def _stream(self, job: Job, info: Info, send: Send) -> None:
        first: list[Piece] = []
        with suppress(TimeoutError):  # still waiting for room: the stream begins, and what fails now is data
            async with asyncio.timeout(self._settings.verdict_s):
                first = await job.take()
        shape = shape_for(job.work, job.prompts)
        fields = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
        await send({"type": "http.response.start", "status": 200, "headers": fields})
        async for data in events(job, first, shape, head(shape.id_prefix, info), self._metrics.finished):
            await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def whole(job: Job, info: Info) -> bytes:
    """The body of an answer that has come to its end."""
    shape = shape_for(job.work, job.prompts)
    choices = [shape.choice(index, job.results[index]) for index in range(job.work.choices)]
    answer = head(shape.id_prefix, info) | {"object": shape.whole_object, "choices": choices} | shape.beside()
    return msgspec.json.encode(answer | {"usage": usage_json(job.usage())})


def head(prefix: str, info: Info) -> Json:
    return {
        "id": f"{prefix}-{uuid.uuid4().hex}",
        "created": int(time.time()),
        "model": info.model,
        "system_fingerprint": f"plait-{info.version}-{info.mode}",
    }


class Unread(Exception):
    """The client leaves so much unread that the answer ends here."""


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, T], cut: asyncio.Event | None = None) -> T:
    """Result of ``work``, or ClientGone as soon as the client hangs up, Unread once ``cut`` is set; ``work`` is
    cancelled then."""

    async def hung_up() -> None:
        while (await receive())["type"] != "http.disconnect":
            continue

    task = asyncio.create_task(work)
    watches: list[asyncio.Task[Any]] = [asyncio.create_task(hung_up())]
    if cut is not None:
        watches.append(asyncio.create_task(cut.wait()))
    try:
        await asyncio.wait({task, *watches}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGone if watches[0].done() else Unread
        return task.result()
    finally:
        for each in (task, *watches):
            each.cancel()
        await asyncio.gather(task, *watches, return_exceptions=True)
