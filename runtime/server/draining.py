"""uvicorn, whose connections have bounds, and whose requests get some seconds at shutdown and an answer after those."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import time
from typing import Any

import uvicorn
from fastapi import FastAPI

from ..descriptors import BURST
from .connection import Connections
from .settings import ServerSettings

log = logging.getLogger("plait.server")

#: A client that does not even take that answer is cut off.
_BACKSTOP_S = 5
_HEADER_BYTES = 64 * 1024
_BACKLOG = 1024  # connections that the kernel keeps for us
_SWEEP_TICKS = 10  # of uvicorn, a second
_SAY_AGAIN_S = 60.0


class DrainingServer(uvicorn.Server):
    """Serves ``create_app(...)`` until SIGTERM or SIGINT, and ``drain`` seconds more. Prints ``ready`` to stderr once
    it answers."""

    def __init__(
        self,
        app: FastAPI,
        drain: int,
        access_log: bool = False,
        settings: ServerSettings | None = None,
        ready: str | None = None,
    ) -> None:
        settings = settings or ServerSettings()
        self._connections = Connections(settings.max_connections, settings.head_s, settings.write_s)
        config = uvicorn.Config(
            app,
            http=self._connections.protocol(),  # h11: the one whose headers have a bound
            h11_max_incomplete_event_size=_HEADER_BYTES,
            backlog=BURST,
            ws="none",
            lifespan="off",
            proxy_headers=False,
            server_header=False,
            access_log=access_log,
            log_level="info" if access_log else "warning",
            timeout_graceful_shutdown=drain + _BACKSTOP_S,
        )
        super().__init__(config)
        self._jobs = app.state.jobs
        self._drain = drain
        self._ready = ready
        self._said = float("-inf")

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_exception_handler(self._fault)
        await super().startup(sockets)
        for each in sockets or ():
            each.listen(_BACKLOG)  # uvicorn's backlog is also how many it accepts in one turn
        if self._ready is not None and self.started:
            print(self._ready, file=sys.stderr, flush=True)

    async def on_tick(self, counter: int) -> bool:
        if counter % _SWEEP_TICKS == 0:
            self._connections.sweep(self.server_state.connections)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        timer = asyncio.get_running_loop().call_later(self._drain, self._jobs.end_all)
        try:
            await super().shutdown(sockets)
        finally:
            timer.cancel()

    def _fault(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """asyncio says for every try to accept that no descriptor is left, with its stack: said once is enough."""
        if "socket.accept() out of system resource" not in str(context.get("message")):
            loop.default_exception_handler(context)
            return
        now = time.monotonic()
        if now - self._said > _SAY_AGAIN_S:
            self._said = now
            log.error("no connection can be accepted: %s; those that are open go on", context.get("exception"))
