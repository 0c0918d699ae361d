"""Who may ask a server that asks for no key: not a page of another site that has its own name point at this machine.

A browser sends the name it connected by (Host) and the site of the page (Origin). Both must be ours.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from ..address import is_loopback
from .problems import HttpProblem
from .reply import send_problem


class AllowedHosts:
    """``hosts``: names beside those of this machine itself; ``*.example.com`` for all below one, ``*`` for any.
    ``origins``: sites whose pages may ask though they are elsewhere."""

    def __init__(self, app: ASGIApp, hosts: tuple[str, ...], origins: tuple[str, ...] = ()) -> None:
        self._app = app
        self._hosts = tuple(host.lower() for host in hosts)
        self._origins = frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or "*" in self._hosts or (problem := self._problem(scope)) is None:
            await self._app(scope, receive, send)
        else:
            await send_problem(send, problem)

    def _problem(self, scope: Scope) -> HttpProblem | None:
        sent = {b"host": "", b"origin": ""}
        for name, value in scope["headers"]:
            if name in sent:
                sent[name] = value.decode("latin-1")
        host, origin = sent[b"host"], sent[b"origin"]
        if host and not self._is_ours(host):  # HTTP/1.0 may leave it out; a browser never does
            message = f"Host {host!r} is none of this server's names: plait serve --allowed-hosts NAME adds one"
            return HttpProblem(400, message, code="host_not_allowed")
        if not origin or "*" in self._origins or origin in self._origins:
            return None
        if host and urlsplit(origin).netloc.lower() == host.lower():
            return None
        message = f"pages of {origin!r} may not use this server: plait serve --cors-origin ORIGIN lets them"
        return HttpProblem(403, message, code="origin_not_allowed")

    def _is_ours(self, host: str) -> bool:
        name = host.rpartition("]")[0][1:] if host.startswith("[") else host.partition(":")[0]
        name = name.lower().removesuffix(".")
        if is_loopback(name) or name.endswith(".localhost"):
            return True
        return any(name == one or (one.startswith("*.") and name.endswith(one[1:])) for one in self._hosts)
