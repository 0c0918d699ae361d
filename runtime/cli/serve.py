"""``plait serve``: a Runtime and the HTTP server over it, in one process beside the core's."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import Any

from .. import store
from ..address import is_loopback
from ..descriptors import clients_that_fit, connections_that_fit, raise_limit
from ..errors import RequestError
from ..front.settings import Settings
from ..server.settings import ServerSettings
from .backends import started

#: As many as uvicorn asks for when it serves.
_BACKLOG = 2048


def serve(
    settings: ServerSettings, options: dict[str, Any], *, host: str, port: int, drain: int, access_log: bool
) -> None:
    """Returns when a signal has ended it: running requests get ``drain`` seconds, a second signal none."""
    if not all(key.strip() for key in settings.api_keys):
        raise RequestError(
            "--api-key is empty: give a key, or leave it out to serve everyone who can connect", "api_key"
        )
    raise_limit()
    clients = 0 if options.get("address") is None else clients_that_fit(Settings().max_sessions)
    settings = replace(settings, max_connections=connections_that_fit(settings.max_connections, clients))
    if not settings.api_keys and is_loopback(host) and settings.allowed_hosts is None:
        settings = replace(settings, allowed_hosts=())  # a page elsewhere could send its readers' browsers here
    if not settings.api_keys and not is_loopback(host):
        print(f"plait: warning: {host} is reachable from outside, and there is no --api-key", file=sys.stderr)
    with bound(host, port) as listening, terminable():
        from ..server.app import create_app
        from ..server.draining import DrainingServer

        with started(**options) as backend:
            info = backend.info()
            name = store.called(options["model"])
            if name is not None and name not in (info.model, *settings.names):
                settings = replace(settings, names=(*settings.names, name))
            app = create_app(backend, settings, counters=backend.front.metrics)
            shown = f"[{host}]" if ":" in host else host
            number = listening.getsockname()[1]
            ready = (
                f"plait: {info.model} ({info.mode}, {info.context_length} tokens of context, {info.kv_tokens} of KV) "
                f"at http://{shown}:{number}/v1"
            )
            DrainingServer(app, drain, access_log, settings, ready).run(sockets=[listening])


@contextmanager
def bound(host: str, port: int) -> Iterator[socket.socket]:
    """The address is taken before the model is loaded, so a port in use is said at once.

    It listens at once too: two sockets that are bound and do not listen may share a port (SO_REUSEADDR, which a restart
    needs), and then two servers would load a model for it. Who connects while the model loads waits for its answer.
    """
    listening = None
    try:
        family, kind, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(where)
        listening.listen(_BACKLOG)
    except OSError as error:
        if listening is not None:
            listening.close()
        raise RequestError(f"cannot listen on {host}:{port}: {error}. Pick another --host or --port", "port") from error
    with listening:
        yield listening


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM and SIGINT unwind the stack, so the core is let go in order, while loading too.

    uvicorn takes both over while it serves, and raises them again when it has drained: they end here.
    """

    def leave(number: int, frame: FrameType | None) -> None:
        raise Leave

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    except Leave:
        return
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Leave(BaseException):
    """A signal asked the server to go."""
