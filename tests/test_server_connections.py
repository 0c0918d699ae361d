"""Connections that wait for their client, over real sockets: none is kept for ever, and none keeps others out."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from server_fake import Script, ScriptedBackend

from plait.runtime import descriptors
from plait.runtime.errors import BackendError, RequestError
from plait.runtime.front.core_process import CoreCommand, CoreProcess
from plait.runtime.server.app import create_app
from plait.runtime.server.draining import DrainingServer
from plait.runtime.server.settings import ServerSettings

HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"


class Served:
    def __init__(self, server: DrainingServer, port: int) -> None:
        self.server, self.port = server, port
        self.url = f"http://127.0.0.1:{port}"

    def connect(self, data: bytes = b"", receive_bytes: int | None = None) -> socket.socket:
        client = socket.socket()
        if receive_bytes is not None:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        client.settimeout(20)
        client.connect(("127.0.0.1", self.port))
        client.sendall(data)
        return client

    def ok(self) -> None:
        assert httpx.get(self.url + "/health").status_code == 200

    @property
    def open(self) -> int:
        return len(self.server.server_state.connections)


def until(what: Callable[[], bool]) -> None:
    for _ in range(4000):
        if what():
            return
        time.sleep(0.005)
    raise AssertionError("it never happened")


@contextmanager
def serving(backend: ScriptedBackend | None = None, **settings: Any) -> Iterator[Served]:
    bounds = ServerSettings(**settings)
    server = DrainingServer(create_app(backend or ScriptedBackend(), bounds), 0, settings=bounds)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            until(lambda: server.started)
            yield Served(server, listening.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join(30)
            assert not thread.is_alive()


def ended(client: socket.socket) -> bytes:
    """What came until the server closed. Fails if it does not."""
    got = b""
    try:
        while piece := client.recv(65536):
            got += piece
    except ConnectionResetError:
        pass
    client.close()
    return got


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"GET /health HT",
        HEAD,
        b"GET /health HTTP/1.1\r\nHost: a\r\n\r\nGET /health HTTP/1.1\r\nHos",  # half of a second request
        # a body that nobody reads any more: the answer is there
        b"GET /health HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nx",
        HEAD + b"Content-Length: 99999999\r\n\r\nx",
    ],
)
def test_a_connection_that_sends_no_more_is_ended(data: bytes) -> None:
    with serving(head_s=0.2) as served:
        client = served.connect(data)
        got = ended(client)
        assert got == b"" or got.startswith((b"HTTP/1.1 200", b"HTTP/1.1 413"))
        until(lambda: served.open == 0)
        served.ok()


@pytest.mark.parametrize(
    "data", [b"GET /health HTTP/1.1\r\nX: ", b"GET /health HTTP/1.1\r\nHost: a\r\nContent-Length: 9999\r\n\r\n"]
)
def test_bytes_that_trickle_in_do_not_prolong_it(data: bytes) -> None:
    with serving(head_s=0.3) as served:
        client = served.connect(b"GET /health HTTP/1.1\r\n" + data)

        def trickles() -> bool:
            try:
                client.sendall(b"x")
                time.sleep(0.02)
                return False
            except OSError:
                return True

        until(trickles)
        client.close()
        until(lambda: served.open == 0)


def test_a_body_that_does_not_come_is_told_so() -> None:
    with serving(body_s=0.2) as served:
        client = served.connect(HEAD + b"Content-Length: 1000\r\n\r\n{")
        assert client.recv(100).startswith(b"HTTP/1.1 408")
        client.close()


def test_a_request_that_runs_long_is_not_ended() -> None:
    backend = ScriptedBackend(lambda sent, choice: Script(held=True))
    with serving(backend, head_s=0.1, write_s=0.1) as served:
        body = json.dumps({"prompt": "x", "stream": True}).encode()
        client = served.connect(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        assert client.recv(100).startswith(b"HTTP/1.1 200")
        time.sleep(1.5)  # more than one sweep
        client.setblocking(False)
        while True:
            try:
                assert client.recv(65536), "the server hung up"
            except BlockingIOError:
                break
        client.close()
        until(lambda: backend.aborted != [])


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_says_it_sends_no_more_leaves_no_request_behind(stream: bool) -> None:
    """It is taken for one that is gone, as asyncio takes it: nothing of it goes on."""
    backend = ScriptedBackend(lambda sent, choice: Script(held=True))
    body = json.dumps({"prompt": "x", "stream": stream}).encode()
    with serving(backend) as served:
        client = served.connect(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        until(lambda: bool(backend.strands))
        client.shutdown(socket.SHUT_WR)
        until(lambda: len(backend.aborted) == 1 and served.open == 0)
        client.close()


def test_who_waits_longest_makes_room() -> None:
    with serving(head_s=60, max_connections=3) as served:
        idle = [served.connect(b"GET /h") for _ in range(3)]
        until(lambda: served.open == 3)
        served.ok()
        assert ended(idle[0]) == b""
        for client in idle[1:]:
            client.close()


def test_half_a_body_makes_room_too() -> None:
    with serving(max_connections=2) as served:
        clients = [served.connect(HEAD + b"Content-Length: 1000\r\n\r\n{") for _ in range(2)]
        until(lambda: served.open == 2)
        time.sleep(0.1)
        served.ok()
        assert ended(clients[0]) == b""
        clients[1].close()


def test_only_where_all_are_at_work_is_a_newcomer_turned_away() -> None:
    backend = ScriptedBackend(lambda sent, choice: Script(held=True))
    body = json.dumps({"prompt": "x", "stream": True}).encode()
    with serving(backend, max_connections=2) as served:
        clients = [served.connect(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body) for _ in range(2)]
        for client in clients:
            assert client.recv(100).startswith(b"HTTP/1.1 200")
        got = ended(served.connect())
        assert got.startswith(b"HTTP/1.1 503") and b"too_many_connections" in got
        clients[0].close()
        until(lambda: served.open == 1)
        served.ok()
        clients[1].close()


@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_that_nobody_takes_is_ended(stream: bool) -> None:
    backend = ScriptedBackend(lambda sent, choice: Script(tokens=[b"x" * 1000] * 20_000))
    body = json.dumps({"prompt": "x", "stream": stream}).encode()
    with serving(backend, write_s=0.2, max_unsent=10**9, max_unsent_all=10**9) as served:
        client = served.connect(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body, 4096)
        until(lambda: served.open == 1)
        until(lambda: served.open == 0)
        if stream:
            until(lambda: len(backend.aborted) == 1)
        client.close()
        served.ok()


def test_an_answer_that_is_taken_slowly_is_not() -> None:
    backend = ScriptedBackend(lambda sent, choice: Script(tokens=[b"x" * 1000] * 16_000))
    body = json.dumps({"prompt": "x"}).encode()
    with serving(backend, write_s=1.5) as served:
        client = served.connect(HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        got = 0
        for _ in range(40):  # for longer than write_s, and always something
            got += len(client.recv(100_000))
            time.sleep(0.06)
        assert got + len(ended(client)) > 16_000_000


# ---------------------------------------------------------------- descriptors


def test_no_descriptor_left_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    async def go() -> None:
        loop = asyncio.get_running_loop()
        server = DrainingServer(create_app(ScriptedBackend()), 0)
        context = {"message": "socket.accept() out of system resource", "exception": OSError(24, "Too many open files")}
        for _ in range(500):
            server._fault(loop, context)
        server._fault(loop, {"message": "something else"})

    with caplog.at_level(logging.ERROR):
        asyncio.run(go())
    assert sum("no connection can be accepted" in record.message for record in caplog.records) == 1
    assert sum("something else" in record.message for record in caplog.records) == 1


def test_connections_leave_room_for_the_core(monkeypatch: pytest.MonkeyPatch) -> None:
    for soft, wanted, fit in ((100_000, 1024, 1024), (resource.RLIM_INFINITY, 7, 7)):
        monkeypatch.setattr(resource, "getrlimit", lambda what, soft=soft: (soft, soft))
        assert descriptors.connections_that_fit(wanted) == fit
    monkeypatch.setattr(resource, "getrlimit", lambda what: (512, 512))
    assert 0 < descriptors.connections_that_fit(1024) <= 512 - 128
    assert descriptors.clients_that_fit(1000) == 128
    assert descriptors.connections_that_fit(1024, 128) == descriptors.connections_that_fit(1024) - 128
    monkeypatch.setattr(resource, "getrlimit", lambda what: (64, 64))
    with pytest.raises(RequestError, match="ulimit -n"):
        descriptors.connections_that_fit(1024)


def test_the_soft_limit_is_raised_and_never_lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda what, limits: said.append(limits))
    for soft, hard in ((256, 4096), (4096, 4096), (1024, resource.RLIM_INFINITY), (2**20, 2**20)):
        monkeypatch.setattr(resource, "getrlimit", lambda what, both=(soft, hard): both)
        descriptors.raise_limit()
    assert said == [(4096, 4096), (65_536, resource.RLIM_INFINITY)]


def test_zeromq_is_not_asked_where_it_would_end_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(_: int) -> int:
        raise OSError(24, "Too many open files")

    descriptors.check_spare()
    monkeypatch.setattr("os.dup", none_left)
    with pytest.raises(BackendError, match="ulimit -n"):
        descriptors.check_spare()


def test_the_folder_of_the_socket_goes_where_no_descriptor_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "plait-x"
    folder.mkdir()
    (folder / "core").touch()
    link = CoreProcess(CoreCommand(tmp_path, "exact"), 1.0)
    link._folder = folder
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(2)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            os.dup(2)
        link._remove_folder()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert not folder.exists()
