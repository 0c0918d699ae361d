"""Clients over sockets, and the core as a process of its own (a fake one: no model is loaded)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket as sockets
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import psutil
import pytest
import zmq
from fake_core import FakeWorld, served, tiny_tokenizer

from plait.runtime import protocol as p
from plait.runtime.client import Client, Pulse, connect
from plait.runtime.errors import (
    BackendClosed,
    BackendError,
    ConnectTimeout,
    InvalidValue,
    ModelError,
    ProtocolMismatch,
    RequestError,
)
from plait.runtime.front.core_process import CoreCommand
from plait.runtime.front.front import Front
from plait.runtime.front.settings import Settings
from plait.runtime.front.transport import Transport, Waiting
from plait.runtime.runtime import Runtime
from plait.runtime.tokenizer import Tokenizer

FAKE = (sys.executable, "-P", str(Path(__file__).with_name("fake_core_process.py")))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tiny")


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return tiny_tokenizer(folder)[0]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Raw:
    """A client that is only a socket."""

    def __init__(self, endpoint: str, session: str = "session-1", hello: bool = True) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.connect(endpoint)
        if hello:
            self.send(p.Hello(p.PROTOCOL_VERSION, session))

    def send(self, message: p.ClientMessage | bytes) -> None:
        self.socket.send(message if isinstance(message, bytes) else p.encode(message))

    async def receive(self) -> p.FrontMessage:
        async with asyncio.timeout(10):
            while not self.socket.poll(0):
                await asyncio.sleep(0.005)
        return p.decode_front(self.socket.recv())

    async def events(self, enough: Callable[[list[object]], bool]) -> list[object]:
        found: list[object] = []
        while not enough(found):
            found += getattr(await self.receive(), "events", ())
        return found

    def close(self) -> None:
        self.context.destroy(linger=0)


class Bench:
    def __init__(self, front: Front, transport: Transport, world: FakeWorld, clock: Clock) -> None:
        self.front, self.transport, self.world, self.clock = front, transport, world, clock
        self.raws: list[Raw] = []

    def raw(self, session: str = "session-1", *, hello: bool = True) -> Raw:
        self.raws.append(Raw(self.transport.endpoint, session, hello))
        return self.raws[-1]

    async def until(self, what: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not what():
                await asyncio.sleep(0.005)


def bench(
    tokenizer: Tokenizer,
    tmp_path: Path,
    body: Callable[[Bench], Awaitable[None]],
    address: str = "",
    settings: dict[str, int] | None = None,
    **knobs: object,
) -> None:
    async def main() -> None:
        clock = Clock()
        world = FakeWorld(tokenizer, **knobs)  # type: ignore[arg-type] # knobs of FakeWorld
        front = Front(served(tokenizer, None), world.link, Settings(clock=clock, probe=3600.0, **(settings or {})))
        await front.start()
        transport = Transport(front, address or f"ipc://{tmp_path}/s")
        transport.start()
        b = Bench(front, transport, world, clock)
        try:
            async with asyncio.timeout(30):
                await body(b)
        finally:
            for raw in b.raws:
                raw.close()
            transport.close()
            await front.close()

    asyncio.run(main())


def program(strand: int, text: str = "x", *, stream: bool = True, max_tokens: int = 8) -> p.Fragment:
    sampling = p.Sampling(max_tokens=max_tokens, temperature=0.0)
    return p.Fragment(
        (
            p.Open(strand, strand),
            p.Extend(strand, (p.Text(1, text), p.Gen(2, sampling, stream=stream))),
            p.Close(strand),
        )
    )


def whole(found: list[object], strand: int = 1) -> tuple[str, p.Done]:
    deltas = [e for e in found if isinstance(e, p.Delta) and e.strand == strand]
    (done,) = (e for e in found if isinstance(e, p.Done) and e.strand == strand)
    return "".join(e.text for e in deltas), done


def ended(strand: int) -> Callable[[list[object]], bool]:
    return lambda found: p.Closed(strand) in found


# ---------------------------------------------------------------- the server's side


@pytest.mark.parametrize("address", ["", "tcp://127.0.0.1:0"])
def test_a_program_over_the_wire(tokenizer: Tokenizer, tmp_path: Path, address: str) -> None:
    async def body(b: Bench) -> None:
        raw = b.raw()
        welcome = await raw.receive()
        assert isinstance(welcome, p.Welcome) and welcome.info.model == "tiny"
        raw.send(p.Ping(7))
        assert await raw.receive() == p.Pong(7)
        raw.send(program(1))
        text, done = whole(await raw.events(ended(1)))
        assert text == done.text != ""

    bench(tokenizer, tmp_path, body, address)


def test_refusals(tokenizer: Tokenizer, tmp_path: Path) -> None:
    async def body(b: Bench) -> None:
        for message, word in (
            (p.Hello(p.PROTOCOL_VERSION + 1, "session-1"), str(p.PROTOCOL_VERSION)),
            (p.Hello(p.PROTOCOL_VERSION, "short"), "session id"),
            (p.Ping(1), "Hello"),
            (b"\xc1 rubbish", "cannot be read"),
            (p.encode(p.Ping(1))[:-1] + b"\xff\xff", "cannot be read"),
        ):
            raw = b.raw(hello=False)
            raw.send(message)
            lost = await raw.receive()
            assert isinstance(lost, p.Lost) and word in lost.message, lost
        good = b.raw("session-good")
        assert isinstance(await good.receive(), p.Welcome)
        good.send(program(1))
        await good.events(ended(1))
        good.send(b"\x81\xa4type\xa6Nobody")
        assert isinstance(await good.receive(), p.Lost)
        assert not b.front.sids

    bench(tokenizer, tmp_path, body)


def test_nothing_is_dropped_for_a_client_that_does_not_read(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """More frames than any high-water mark holds: deltas merge, every answer arrives, the order stands."""

    async def body(b: Bench) -> None:
        raw = b.raw()
        await raw.receive()
        for strand in range(1, 11):
            raw.send(program(strand, f"prompt {strand}", max_tokens=450))
        quick = b.raw("session-2")
        quick.send(program(1, "quick"))
        text, done = whole(await quick.events(ended(1)))
        assert text == done.text
        await b.until(lambda: not b.front.sids)  # all computed while nobody read
        found = await raw.events(lambda f: all(p.Closed(s) in f for s in range(1, 11)))
        for strand in range(1, 11):
            text, done = whole(found, strand)
            assert text == done.text and len(done.ids) == 450

    bench(tokenizer, tmp_path, body)


def test_deltas_merge_while_they_wait() -> None:
    waiting = Waiting()
    waiting.add(p.Pong(0))
    waiting.add(p.Pong(0))
    for text in "abc":
        waiting.add(p.Batch((p.Delta(1, 2, 0, text, (ord(text),)), p.Delta(1, 2, 1, text.upper()))))
    waiting.add(p.Batch((p.Done(1, 2, 0, text="abc"), p.Closed(1))))
    waiting.add(p.Batch((p.Delta(1, 2, 0, "again"),)))  # the number was taken for a new strand
    pong, batch = waiting.take()
    assert pong == p.Pong(0) and isinstance(batch, p.Batch)
    assert batch.events == (
        p.Delta(1, 2, 0, "abc", (97, 98, 99)),
        p.Delta(1, 2, 1, "ABC"),
        p.Done(1, 2, 0, text="abc"),
        p.Closed(1),
        p.Delta(1, 2, 0, "again"),
    )
    assert not waiting


def test_more_than_a_frame_holds_goes_in_several(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(bench: Bench) -> None:
        raw = bench.raw()
        assert isinstance(await raw.receive(), p.Welcome)
        session = bench.transport._by_session["session-1"].session
        assert session is not None
        monkeypatch.setattr(p, "MAX_FRAME_BYTES", 2_000)
        for op in range(200):
            session.emit(p.Done(strand=1, op=op, text="x" * 100))
        session.flush()
        found = await raw.events(lambda events: len(events) == 200)
        assert [event.op for event in found if isinstance(event, p.Done)] == list(range(200))

    bench(tokenizer, tmp_path, body)


@contextlib.contextmanager
def nobody_reads(transport: Transport) -> Iterator[list[bytes]]:
    """Connections take nothing; the frames that were tried."""
    tried: list[bytes] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Transport, "push", lambda self, peer, frame: tried.append(frame))
        yield tried


def test_what_a_client_does_not_read_has_a_bound(tokenizer: Tokenizer, tmp_path: Path) -> None:
    async def body(b: Bench) -> None:
        raw, other = b.raw(), b.raw("session-2")
        await raw.receive()
        await other.receive()
        with nobody_reads(b.transport):
            raw.send(program(1, max_tokens=400))
            await b.until(lambda: "session-1" not in b.transport._by_session)
        assert (b.front.live, b.front.sids) == (0, {})
        other.send(program(1))
        await other.events(lambda events: p.Closed(1) in events)

    bench(tokenizer, tmp_path, body, settings={"max_unread": 2_000})


def test_a_client_that_asks_and_never_reads_ends_with_the_lease(tokenizer: Tokenizer, tmp_path: Path) -> None:
    async def body(b: Bench) -> None:
        b.world.hold = True
        raw = b.raw()
        await raw.receive()
        with nobody_reads(b.transport):
            raw.send(program(1))
            await b.until(lambda: bool(b.front.sids))
            for now in (0.0, 50.0, 61.0):
                b.clock.now = now
                heard = b.transport._by_session["session-1"]
                raw.send(p.Ping(int(now)))  # a sign of life each time
                await b.until(lambda now=now, heard=heard: heard.heard == now)  # type: ignore[misc]
                b.transport.probe()
        assert not b.front.sids and not b.transport._by_session

    bench(tokenizer, tmp_path, body)


def test_trying_again_costs_one_frame(tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(b: Bench) -> None:
        raw = b.raw()
        await raw.receive()
        peer = b.transport._by_session["session-1"]
        with nobody_reads(b.transport) as tried:
            raw.send(program(1, max_tokens=100))
            await b.until(lambda: b.front.metrics.done > 0 and b.front.live == 0)
            assert len(tried) == 1
            for _ in range(3):
                b.transport._flush()
            assert len(tried) == 4 and len(set(tried)) == 1
        b.transport._flush()
        assert not peer.blocked
        events = await raw.events(lambda events: p.Closed(1) in events)
        done = next(event for event in events if isinstance(event, p.Done) and event.op == 2)
        assert "".join(event.text for event in events if isinstance(event, p.Delta)) == done.text

    bench(tokenizer, tmp_path, body)


def test_what_a_client_asks_before_it_is_looked_at_has_a_bound(tokenizer: Tokenizer, tmp_path: Path) -> None:
    async def body(b: Bench) -> None:
        raw = b.raw()
        await raw.receive()
        session = b.transport._by_session["session-1"].session
        assert session is not None
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Front, "turn", lambda self: None)  # it never comes to it
            for at in range(1, 40):
                raw.send(program(at))
            await b.until(lambda: session.closed)
        assert session.backlog == 0
        lost = await raw.receive()
        assert isinstance(lost, p.Lost) and lost.code == "queue_full"

    bench(tokenizer, tmp_path, body, settings={"max_backlog_ops": 100})


def test_connections_have_a_bound(tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever they say: libzmq would accept until no descriptor is left, and then end the process."""
    monkeypatch.setattr("plait.runtime.front.transport.clients_that_fit", lambda wanted: 4)

    async def body(b: Bench) -> None:
        raw = b.raw()
        await raw.receive()
        door = b.transport._door
        assert door is not None
        silent = []
        for _ in range(12):
            client = sockets.socket(sockets.AF_UNIX)
            client.connect(str(tmp_path / "s"))
            silent.append(client)
        await b.until(lambda: door.refused == 9)
        raw.send(program(1))  # who is in goes on
        await raw.events(lambda events: p.Closed(1) in events)
        for client in silent:
            client.close()
        await b.until(lambda: len(door._inside) == 1)
        other = b.raw("session-2")
        assert isinstance(await other.receive(), p.Welcome)

    bench(tokenizer, tmp_path, body)


def test_a_silent_client_keeps_its_strands_until_the_lease_ends(tokenizer: Tokenizer, tmp_path: Path) -> None:
    async def body(b: Bench) -> None:
        b.world.hold = True
        raw = b.raw()
        await raw.receive()
        raw.send(program(1))
        await b.until(lambda: bool(b.front.sids))
        b.clock.now = 59.0
        b.transport.probe()
        assert b.front.sids
        raw.send(p.Ping(1))  # a sign of life
        assert {type(await raw.receive()) for _ in range(2)} == {p.Pong}
        b.clock.now = 118.0
        b.transport.probe()
        assert b.front.sids
        b.clock.now = 120.0
        b.transport.probe()
        assert not b.front.sids
        raw.send(program(2))
        messages = [await raw.receive() for _ in range(3)]
        assert all(isinstance(m, p.Lost) and m.code == "lease_expired" for m in messages[1:]), messages

    bench(tokenizer, tmp_path, body)


def test_a_client_that_is_gone_is_noticed_at_the_next_probe(tokenizer: Tokenizer, tmp_path: Path) -> None:
    async def body(b: Bench) -> None:
        b.world.hold = True
        raw = b.raw()
        await raw.receive()
        raw.send(program(1))
        await b.until(lambda: bool(b.front.sids))
        raw.close()

        def gone() -> bool:
            b.transport.probe()
            return not b.front.sids

        await b.until(gone)

    bench(tokenizer, tmp_path, body)


def test_a_killed_client_frees_its_strands(tokenizer: Tokenizer, tmp_path: Path) -> None:
    script = (
        "import sys, time\n"
        "from plait.runtime import connect\n"
        "from plait.runtime.protocol import *\n"
        "c = connect(sys.argv[1])\n"
        "gen = Gen(2, Sampling(max_tokens=400), stream=True)\n"
        "c.submit([Open(1, 1), Extend(1, (Text(1, 'x'), gen))], lambda e: None)\n"
        "time.sleep(60)\n"
    )

    async def body(b: Bench) -> None:
        b.world.hold = True
        process = subprocess.Popen([sys.executable, "-c", script, b.transport.endpoint])
        try:
            await b.until(lambda: bool(b.front.sids))
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()

        def gone() -> bool:
            b.world.core.step()  # a delta is sent, or tried
            b.transport.probe()
            return not b.front.sids

        await b.until(gone)

    bench(tokenizer, tmp_path, body)


def test_a_session_is_taken_up_again(tokenizer: Tokenizer, tmp_path: Path) -> None:
    async def body(b: Bench) -> None:
        b.world.hold = True
        first = b.raw("the-session")
        await first.receive()
        first.send(program(1))
        await b.until(lambda: bool(b.front.sids))
        for _ in range(3):
            b.world.core.step()
        second = b.raw("the-session")
        assert isinstance(await second.receive(), p.Welcome)
        while b.world.core.step():
            pass
        found = await second.events(ended(1))
        text, done = whole(found)
        assert text and done.text.endswith(text)  # what the first connection was told is not told again

    bench(tokenizer, tmp_path, body)


def test_one_connection_has_one_session(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Hello after Hello must not pile up sessions that nobody can speak for any more, until their lease."""

    async def body(b: Bench) -> None:
        b.world.hold = True
        first = b.raw("session-01")
        await first.receive()
        first.send(program(1))
        await b.until(lambda: bool(b.front.sids))
        for number in range(2, 20):
            first.send(p.Hello(p.PROTOCOL_VERSION, f"session-{number:02}"))
        await b.until(lambda: "session-19" in b.transport._by_session)
        assert list(b.transport._by_session) == ["session-19"]
        assert not b.front.sids

    bench(tokenizer, tmp_path, body)


def test_sessions_are_apart(tokenizer: Tokenizer, tmp_path: Path) -> None:
    async def body(b: Bench) -> None:
        one, two = b.raw("session-1"), b.raw("session-2")
        one.send(program(1, "first"))
        two.send(program(1, "second"))
        first, second = whole(await one.events(ended(1)))[1], whole(await two.events(ended(1)))[1]
        assert first.text != second.text

    bench(tokenizer, tmp_path, body)


# ---------------------------------------------------------------- addresses


def test_addresses_are_checked(tokenizer: Tokenizer, tmp_path: Path) -> None:
    async def body(b: Bench) -> None:
        for address, word in (
            ("http://x", "ipc://"),
            ("junk", "ipc://"),
            ("tcp://[::1", "ipc://"),
            ("ipc://" + "/long" * 30, "bytes"),
            ("ipc://", "path"),
            ("tcp://host", "host:port"),
            ("tcp://0.0.0.0:0", "curve"),
            ("tcp://*:5", "curve"),
            ("tcp://127.0.0.1:5?key=1", "key"),
        ):
            with pytest.raises(InvalidValue, match=word.replace("?", r"\?")):
                Transport(b.front, address).start()
        late = Transport(b.front, f"ipc://{tmp_path}/s")
        with pytest.raises(BackendError, match="already"):
            late.start()
        late.close()
        assert (tmp_path / "s").exists(), "whoever was refused an address does not take it from its owner"
        shared = tmp_path / "shared"
        shared.mkdir()
        shared.chmod(0o777)
        with pytest.raises(InvalidValue, match="writable by others"):
            Transport(b.front, f"ipc://{shared}/s").start()

    bench(tokenizer, tmp_path, body)
    assert not (tmp_path / "s").exists()


def test_the_folder_of_a_socket_is_private(tokenizer: Tokenizer, tmp_path: Path) -> None:
    async def body(b: Bench) -> None:
        assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
        assert (tmp_path / "new/s").stat().st_mode & 0o777 == 0o600

    bench(tokenizer, tmp_path, body, f"ipc://{tmp_path}/new/s")


def test_curve_keys(tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond this machine: only who has the server's public key gets an answer."""
    keys = tmp_path / "keys/server"

    async def body(b: Bench) -> None:
        endpoint = b.transport.endpoint.replace("0.0.0.0", "127.0.0.1")
        assert keys.stat().st_mode & 0o777 == 0o600
        public = keys.with_name("server.pub").read_text().strip()
        with pytest.raises(ConnectTimeout):
            await asyncio.to_thread(connect, endpoint, 0.5)
        other = zmq.curve_keypair()[0].decode()
        with pytest.raises(ConnectTimeout):
            await asyncio.to_thread(connect, f"{endpoint}?curve={quote(other, safe='')}", 0.5)
        with pytest.raises(InvalidValue):
            await asyncio.to_thread(connect, f"{endpoint}?curve=nofile", 0.5)
        for way in (f"?curve={keys}.pub", ""):
            if not way:
                monkeypatch.setenv("PLAIT_CURVE_KEY", public)
            client = await asyncio.to_thread(connect, endpoint + way)
            assert client.info().model == "tiny"
            await asyncio.to_thread(client.close)
        monkeypatch.delenv("PLAIT_CURVE_KEY")

    bench(tokenizer, tmp_path, body, f"tcp://0.0.0.0:0?curve={keys}")
    with pytest.raises(InvalidValue, match="another machine"):
        connect("tcp://192.0.2.1:5")


# ---------------------------------------------------------------- the client's side


class Told:
    """A listener that keeps what it hears."""

    def __init__(self) -> None:
        self.events: list[p.Event] = []
        self._changed = threading.Condition()

    def __call__(self, event: p.Event) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def wait(self, what: Callable[[list[p.Event]], bool]) -> list[p.Event]:
        with self._changed:
            assert self._changed.wait_for(lambda: what(self.events), 20), self.events
            return list(self.events)

    def closed(self, strand: int) -> list[p.Event]:
        return self.wait(lambda events: p.Closed(strand) in events)

    def lost(self) -> p.Lost:
        (found,) = (e for e in self.wait(lambda es: bool(es) and isinstance(es[-1], p.Lost)) if isinstance(e, p.Lost))
        return found


def test_nobody_there(tmp_path: Path) -> None:
    with pytest.raises(ConnectTimeout, match="plait serve"):
        connect(f"ipc://{tmp_path}/nobody", timeout=0.2)


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), "1"])
def test_a_timeout_that_cannot_be_right(tmp_path: Path, timeout: float) -> None:
    with pytest.raises(InvalidValue, match="timeout must be"):
        connect(f"ipc://{tmp_path}/nobody", timeout=timeout)


def test_a_server_of_another_version(tmp_path: Path) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    router = context.socket(zmq.ROUTER)
    router.linger = 0
    router.bind(f"ipc://{tmp_path}/old")

    def answer() -> None:
        identity, _ = router.recv_multipart()
        router.send_multipart([identity, p.encode(p.Lost("invalid_request", "the server speaks protocol 0"))])

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        with pytest.raises(ProtocolMismatch, match="protocol 0"):
            connect(f"ipc://{tmp_path}/old")
    finally:
        thread.join()
        context.destroy(linger=0)


@pytest.mark.parametrize("way", ["stuck", "gone"])
def test_a_server_that_stops_answering(tmp_path: Path, tokenizer: Tokenizer, way: str) -> None:
    """No Pong: every listener hears the cause, and later use raises."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    router = context.socket(zmq.ROUTER)
    router.linger = 0
    router.bind(f"ipc://{tmp_path}/s")
    info = p.Info("m", 1, 1, 1, "exact", "cpu", "0", False)

    def answer() -> None:
        identity, _ = router.recv_multipart()
        router.send_multipart([identity, p.encode(p.Welcome(info))])

    thread = threading.Thread(target=answer)
    thread.start()
    client = Client(f"ipc://{tmp_path}/s", pulse=Pulse(0.05, 3))
    thread.join()
    told = Told()
    client.submit(list(program(1).actions), told)
    if way == "gone":
        context.destroy(linger=0)
    lost = told.lost()
    assert ("not answered" in lost.message) == (way == "stuck")
    with pytest.raises(BackendClosed):
        client.submit(list(program(2).actions), told)
    client.close()
    client.close()
    context.destroy(linger=0)


# ---------------------------------------------------------------- Runtime on a core process


@contextlib.contextmanager
def running(folder: Path, tokenizer: Tokenizer, address: str | None = None, **changes: object) -> Iterator[Runtime]:
    runtime = Runtime.__new__(Runtime)
    start(runtime, folder, tokenizer, address, **changes)
    try:
        yield runtime
    finally:
        runtime.close()


def start(runtime: Runtime, model: Path, tokenizer: Tokenizer, address: str | None = None, **changes: object) -> None:
    """A Runtime whose core is the fake one."""
    command = CoreCommand(model, "reference", 4096, None, program=FAKE)
    settings = replace(Settings(), **changes)  # type: ignore[arg-type]
    runtime._begin(served(tokenizer, None), command, settings, address)


@pytest.fixture(scope="module")
def runtime(folder: Path, tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    address = f"ipc://{tmp_path_factory.mktemp('r')}/s"
    with running(folder, tokenizer, address) as runtime:
        yield runtime


def test_in_process_and_over_the_socket_are_the_same(runtime: Runtime) -> None:
    assert runtime.address is not None
    with connect(runtime.address) as remote:
        assert remote.info() == runtime.info()
        texts = []
        for backend in (runtime, remote):
            told, strand = Told(), backend.allocate()
            backend.submit(list(program(strand).actions), told)
            texts.append(whole(list(told.closed(strand)), strand)[1].text)
        assert texts[0] == texts[1]


def test_a_message_longer_than_a_frame_is_refused_alone(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    assert runtime.address is not None
    with connect(runtime.address) as client:
        monkeypatch.setattr("plait.runtime.dispatch.MAX_FRAME_BYTES", 20_000)
        with pytest.raises(RequestError, match="at most 20,000"):
            client.submit((p.Open(1, 1), p.Extend(1, (p.Text(1, "x" * 30_000),))), lambda event: None)
        told = Told()
        client.submit(list(program(1).actions), told)
        assert whole(list(told.closed(1)), 1)[1].text


@pytest.mark.parametrize(
    "actions",
    [
        (p.Open(1, 1, salt="\ud800"),),
        (p.Open(1, 1, priority=2**70),),
        (p.Open(1, 1, priority="high"),),  # type: ignore[arg-type] # on purpose
        (p.Open(1, 1), p.Extend(1, (p.Ids(1, (1.5,)),))),  # type: ignore[arg-type] # on purpose
        (p.Open(1, 1), p.Extend(1, (p.Text(1, "x"), p.Gen(2, p.Sampling(max_tokens=2.5))))),  # type: ignore[arg-type] # on purpose
        (p.Open(1, 1), p.Extend(1, (p.Text(1, "x"), p.Select(2, ("a", "b"), method="best")))),  # type: ignore[arg-type] # on purpose
        (p.Open(1, 1), p.Extend(1, (p.Text(1, "x"), p.Select(2, ("a", 5))))),  # type: ignore[arg-type] # on purpose
        (p.Open(1, 1), p.Extend(1, (object(),))),  # type: ignore[arg-type] # on purpose
    ],
)
def test_what_no_frame_carries_is_refused_before_it_touches_anybody(
    runtime: Runtime, actions: tuple[p.Action, ...]
) -> None:
    assert runtime.address is not None
    with connect(runtime.address) as remote:
        for backend in (runtime, remote):
            with pytest.raises(RequestError):
                backend.submit(actions, lambda event: None)
            told, strand = Told(), backend.allocate()
            backend.submit(list(program(strand).actions), told)
            assert whole(list(told.closed(strand)), strand)[1].text


def test_closing_a_client_frees_its_strands(runtime: Runtime) -> None:
    assert runtime.address is not None
    client, told = connect(runtime.address), Told()
    client.submit(list(program(1, max_tokens=480).actions), told)
    told.wait(lambda events: bool(events))
    client.close()
    assert told.lost().code == "shutdown"
    for _ in range(1000):
        if not runtime.front.sids:
            break
        threading.Event().wait(0.01)
    assert not runtime.front.sids


def test_a_listener_that_raises_harms_nobody(runtime: Runtime, caplog: pytest.LogCaptureFixture) -> None:
    def bad(event: p.Event) -> None:
        raise RuntimeError("deliberate")

    told, one, two = Told(), runtime.allocate(), runtime.allocate()
    runtime.submit(list(program(one).actions), bad)
    runtime.submit(list(program(two).actions), told)
    told.closed(two)
    assert "deliberate" in caplog.text


def test_kill_the_core_process(runtime: Runtime) -> None:
    def texts(kill: bool) -> list[str]:
        told = Told()
        strands = [runtime.allocate() for _ in range(10)]
        for strand in strands:
            runtime.submit(list(program(strand, f"prompt {strand - strands[0]}", max_tokens=60).actions), told)
        if kill:
            told.wait(lambda events: len(events) > 50)
            assert runtime.core_pid is not None
            os.kill(runtime.core_pid, signal.SIGKILL)
        events = told.wait(lambda events: all(p.Closed(s) in events for s in strands))
        found = [whole(list(events), strand) for strand in strands]
        assert all(text == done.text for text, done in found)
        return [done.text for _, done in found]

    undisturbed, pid = texts(kill=False), runtime.core_pid
    assert texts(kill=True) == undisturbed
    assert runtime.core_pid != pid


@pytest.mark.parametrize(
    ("model", "error", "word"),
    [
        ("fatal", ModelError, "cut short"),
        ("broken", BackendError, "no such instruction"),
        ("silent", BackendError, "0.3 s"),
    ],
)
def test_a_core_that_cannot_start(tokenizer: Tokenizer, model: str, error: type[Exception], word: str) -> None:
    children = set(psutil.Process().children())
    with pytest.raises(error, match=word):
        start(Runtime.__new__(Runtime), Path(model), tokenizer, start_timeout=0.3 if model == "silent" else 30.0)
    assert set(psutil.Process().children()) <= children


def test_shutdown_is_idempotent_and_says_so(folder: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    with running(folder, tokenizer, f"ipc://{tmp_path}/s") as runtime:
        told, remote_told = Told(), Told()
        remote = connect(f"ipc://{tmp_path}/s")
        strand = runtime.allocate()
        runtime.submit(list(program(strand, max_tokens=400).actions), told)
        remote.submit(list(program(1, max_tokens=400).actions), remote_told)
        remote_told.wait(lambda events: bool(events))
        pid = runtime.core_pid
        runtime.shutdown()
        runtime.close()
        assert told.lost().code == "shutdown"
        assert remote_told.lost().code in ("shutdown", "internal")
        remote.close()
        for call in (runtime.info, lambda: runtime.submit([], told), lambda: runtime.abort(strand=1)):
            with pytest.raises(BackendClosed):
                call()
        assert pid is not None and not psutil.pid_exists(pid)
        assert not (tmp_path / "s").exists()


def test_inside_a_running_event_loop(folder: Path, tokenizer: Tokenizer) -> None:
    async def main() -> None:
        with running(folder, tokenizer) as runtime:
            told = Told()
            runtime.submit(list(program(1).actions), told)
            await asyncio.to_thread(told.closed, 1)

    asyncio.run(main())


def test_use_after_fork_is_a_clear_error(runtime: Runtime) -> None:
    with connect(str(runtime.address)) as remote:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:  # no pytest in here: only what the child may say
            said = []
            for backend in (runtime, remote):
                try:
                    backend.submit([], lambda event: None)
                    said.append("nothing")
                except BackendError as error:
                    said.append(str(error))
                backend.close()  # must not touch the parent's
            os.write(write, "\n".join(said).encode())
            os._exit(0)
        os.waitpid(child, 0)
        os.close(write)
        lines = os.read(read, 65536).decode().splitlines()
        os.close(read)
        assert len(lines) == 2 and all("fork" in line for line in lines)
        told, strand = Told(), runtime.allocate()
        runtime.submit(list(program(strand).actions), told)
        told.closed(strand)


def test_no_folder_is_left_to_a_kill(
    folder: Path, tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once both ends are connected nothing lies in the file system any more that a kill -9 would leave there."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with running(folder, tokenizer) as runtime:
        assert not list(tmp_path.iterdir())
        os.kill(runtime.core_pid or 0, signal.SIGKILL)
        told, strand = Told(), runtime.allocate()
        runtime.submit(list(program(strand).actions), told)
        told.closed(strand)
        assert not list(tmp_path.iterdir())


def test_the_core_ends_with_its_parent(folder: Path, tmp_path: Path) -> None:
    """kill -9 of the process that owns a Runtime leaves no core behind."""
    script = (
        "import sys, time\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from pathlib import Path\n"
        "import test_transport as t\n"
        "from fake_core import tiny_tokenizer\n"
        "from plait.runtime.runtime import Runtime\n"
        "r = Runtime.__new__(Runtime)\n"
        f"t.start(r, Path({str(folder)!r}), tiny_tokenizer(Path({str(tmp_path)!r}))[0])\n"
        "print(r.core_pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout as stdout:
        core = psutil.Process(int(stdout.readline()))
    process.kill()
    process.wait()
    _, alive = psutil.wait_procs([core], timeout=20)
    assert not alive


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mode", "quick"),
        ("threads", 0),
        ("kv_tokens", -1),
        ("kv_tokens", 1.5),
        ("address", "junk"),
        ("address", Path("/x")),
    ],
)
def test_arguments_of_runtime(name: str, value: object) -> None:
    with pytest.raises(InvalidValue) as caught:
        Runtime("unused", **{name: value})  # type: ignore[arg-type]
    assert caught.value.field == name


def test_a_pool_too_small_for_a_chat_is_refused(tiny_model_path: Path) -> None:
    with pytest.raises(InvalidValue, match=r"kv_tokens=255 holds no chat.*Use at least 256") as caught:
        Runtime(tiny_model_path, kv_tokens=255)
    assert caught.value.field == "kv_tokens"


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"missing\.gguf"):
        Runtime(tmp_path / "missing.gguf")
