"""uvicorn, whose requests get some seconds at shutdown and an answer when those are over."""

from __future__ import annotations

import asyncio
import socket
import sys

import uvicorn
from fastapi import FastAPI

#: A client that does not even take that answer is cut off.
_BACKSTOP_S = 5
_HEADER_BYTES = 64 * 1024


class DrainingServer(uvicorn.Server):
    """Serves ``create_app(...)`` until SIGTERM or SIGINT, and ``drain`` seconds more. Prints ``ready`` to stderr once
    it answers."""

    def __init__(self, app: FastAPI, drain: int, access_log: bool = False, ready: str | None = None) -> None:
        config = uvicorn.Config(
            app,
            http="h11",  # the one whose headers have a bound
            h11_max_incomplete_event_size=_HEADER_BYTES,
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

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._ready is not None and self.started:
            print(self._ready, file=sys.stderr, flush=True)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        timer = asyncio.get_running_loop().call_later(self._drain, self._jobs.end_all)
        try:
            await super().shutdown(sockets)
        finally:
            timer.cancel()
