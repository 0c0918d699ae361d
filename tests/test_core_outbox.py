"""The way to the front: coalescing, never blocking, losing nothing; and the loop and the process around it."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import zmq
from core_kit import Driver, greedy, prompt
from hypothesis import given
from hypothesis import strategies as st

from plait.runtime.core.loop import Loop, SocketSender
from plait.runtime.core.outbox import Outbox
from plait.runtime.front.core_process import CoreCommand, CoreProcess, CoreProcesses
from plait.runtime.wire import (
    Append,
    CoreEvent,
    CoreLogprob,
    Ended,
    ExtendStrand,
    Fatal,
    OpenStrand,
    Ready,
    Sample,
    Stats,
    Stop,
    ToCore,
    ToFront,
    Tokens,
    decode_to_core,
    decode_to_front,
    encode,
)


class Peer:
    """Takes ``room`` frames, then would block."""

    def __init__(self, room: int = 0) -> None:
        self.room = room
        self.frames: list[ToFront] = []

    def ready(self) -> bool:
        return self.room > 0

    def send(self, frame: bytes) -> bool:
        if not self.room:
            return False
        self.room -= 1
        self.frames.append(decode_to_front(frame))
        return True

    @property
    def events(self) -> list[CoreEvent]:
        return [event for frame in self.frames for event in frame.events]


def tokens(sid: int, *ids: int, data: bytes = b"") -> Tokens:
    return Tokens(sid, 1, 0, ids, data, len(ids), tuple(CoreLogprob(token, -1.0) for token in ids))


def ended(sid: int) -> Ended:
    return Ended(sid, 1, 0, "stop", ())


def test_a_ready_peer_gets_one_frame_per_step() -> None:
    peer = Peer(room=10)
    outbox = Outbox(peer)
    for step in range(3):
        outbox.add([tokens(1, step), tokens(2, step)])
        assert outbox.flush()
    assert [len(frame.events) for frame in peer.frames] == [2, 2, 2]


def test_a_peer_that_sleeps_costs_a_bounded_number_of_events() -> None:
    peer = Peer()
    outbox = Outbox(peer)
    for step in range(20_000):
        outbox.add([msgspec.structs.replace(tokens(1, step, data=b"x"), wrapped=step), stats_at(step)])
        assert not outbox.flush()
    assert outbox.pending == 2
    peer.room = 100
    assert outbox.flush() and outbox.pending == 0
    (one, stats) = peer.events
    assert isinstance(one, Tokens) and one.ids == tuple(range(20_000)) and one.data == b"x" * 20_000
    assert len(one.logprobs) == 20_000 and one.wrapped == 19_999
    assert isinstance(stats, Stats) and stats.steps == 19_999


class Pump:
    """The front's socket: takes ``room`` frames."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.frames: list[ToCore] = []

    def send(self, frames: list[bytes]) -> None:
        if len(self.frames) >= self.room:
            raise zmq.Again
        self.frames.append(decode_to_core(frames[0]))


def test_every_core_is_asked_for_the_pool_of_the_first(tmp_path: Path) -> None:
    async def main() -> None:
        cores = CoreProcesses(CoreCommand(tmp_path, "exact"), 1.0)
        for slots, asked in ((900, None), (500, "900"), (700, "900")):
            core = cores()
            arguments = core._command.arguments("ipc:///x", 3)
            before = arguments[arguments.index("--kv-before") + 1] if "--kv-before" in arguments else None
            assert before == asked and "--kv-tokens" not in arguments
            core._ready = asyncio.get_running_loop().create_future()
            core._on_events = lambda events: None
            core._frame([encode(ToFront((Ready(slots, 512, 64, "exact", "cpu", "cpu"),)))])

    asyncio.run(main())


def test_what_the_core_is_told_is_cut_into_frames_it_takes(tmp_path: Path) -> None:
    """A replay of many strands is longer than one frame may be."""

    async def main() -> None:
        link = CoreProcess(CoreCommand(tmp_path, "exact"), 1.0, max_frame=200)
        link._loop = asyncio.get_running_loop()
        pump = link._pump = Pump(room=2)  # type: ignore[assignment] # as far as send needs one
        items = [OpenStrand(sid) for sid in range(100)]
        link.send(items[:50])
        link.send(items[50:])
        assert len(pump.frames) == 2
        pump.room = 1000
        link._flush()
        assert [item for frame in pump.frames for item in frame.items] == items
        assert 4 < len(pump.frames) < 50

    asyncio.run(main())


def stats_at(steps: int) -> Stats:
    return msgspec.structs.replace(Stats.empty(0), steps=steps)


def test_what_follows_an_end_does_not_join_what_came_before() -> None:
    peer = Peer()
    outbox = Outbox(peer)
    outbox.add([tokens(1, 5), ended(1), tokens(2, 6), Ended(1, 2, 0, "stop", ())])
    peer.room = 9
    outbox.flush()
    assert [type(event).__name__ for event in peer.events] == ["Tokens", "Ended", "Tokens", "Ended"]


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 99), st.integers(0, 3)), max_size=60))
def test_nothing_is_lost_or_reordered_within_an_op(moves: list[tuple[int, int, int]]) -> None:
    peer = Peer()
    outbox = Outbox(peer, max_frame=90)
    want: dict[int, list[int]] = {}
    for sid, token, room in moves:
        peer.room = room
        outbox.add([tokens(sid, token, data=bytes([token]))])
        want.setdefault(sid, []).append(token)
        outbox.flush()
    for sid in want:
        outbox.add([ended(sid)])
    peer.room = 1000
    assert outbox.flush()
    got: dict[int, list[int]] = {}
    over: set[int] = set()
    for event in peer.events:
        if isinstance(event, Tokens):
            assert event.sid not in over and event.data == bytes(event.ids)
            got.setdefault(event.sid, []).extend(event.ids)
        elif isinstance(event, Ended):
            over.add(event.sid)
    assert got == want and over == set(want)


# ---------------------------------------------------------------- loop


@contextlib.contextmanager
def sockets(tmp_path: Path, hwm: int = 1000) -> Iterator[tuple[zmq.Socket[bytes], zmq.Socket[bytes]]]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    front, core = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
    for socket in (front, core):
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.SNDHWM, hwm)
        socket.setsockopt(zmq.RCVHWM, hwm)
    front.setsockopt(zmq.RCVTIMEO, 20_000)
    front.bind(f"ipc://{tmp_path}/s")
    core.connect(f"ipc://{tmp_path}/s")
    try:
        yield front, core
    finally:
        front.close()
        core.close()
        context.term()


def receive(socket: zmq.Socket[bytes]) -> list[CoreEvent]:
    return list(decode_to_front(socket.recv()).events)


class OnIdle(Outbox):
    """Calls ``then`` once, when the core has nothing left to do."""

    def __init__(self, driver: Driver, socket: zmq.Socket[bytes], then: Callable[[], object]) -> None:
        super().__init__(SocketSender(socket))
        self._driver = driver
        self._then: list[Callable[[], object]] = [then]

    def flush(self) -> bool:
        done = super().flush()
        if self._driver.core.idle and self._driver.core.state.strands and self._then:
            self._then.pop()()
        return done


def test_the_loop_serves_and_stops(tmp_path: Path) -> None:
    driver = Driver()
    with sockets(tmp_path) as (front, core):
        script = ExtendStrand(1, (Append(0, prompt(20)), Sample(1, greedy(5))))
        front.send(encode(ToCore((OpenStrand(1), script))))
        Loop(driver.core, core, None, OnIdle(driver, core, lambda: front.send(encode(ToCore((Stop(),)))))).run()
        events: list[CoreEvent] = []
        while not any(isinstance(event, Ended) for event in events):
            frame = receive(front)
            assert sum(isinstance(event, Tokens) for event in frame) <= 1, "one frame per step"
            events += frame
        assert [token for event in events if isinstance(event, Tokens) for token in event.ids] == driver.model.expect(
            prompt(20), greedy(5)
        )


def test_a_front_that_does_not_drain_blocks_nothing_and_loses_nothing(tmp_path: Path) -> None:
    driver = Driver(kv_tokens=4096)
    read, write = os.pipe()
    with sockets(tmp_path, hwm=1) as (front, core):
        script = ExtendStrand(1, (Append(0, prompt(20)), Sample(1, greedy(1500))))
        front.send(encode(ToCore((OpenStrand(1), script))))
        outbox = OnIdle(driver, core, lambda: os.close(write))
        Loop(driver.core, core, read, outbox).run()
        os.close(read)
        assert driver.core.idle, "the core waited for a peer that never drained"
        events: list[CoreEvent] = []
        while not any(isinstance(event, Ended) for event in events):
            outbox.flush()
            events += receive(front)
        ids = [token for event in events if isinstance(event, Tokens) for token in event.ids]
        assert ids == driver.model.expect(prompt(20), greedy(1500))


def test_the_loop_ends_when_the_pipe_closes(tmp_path: Path) -> None:
    driver = Driver()
    read, write = os.pipe()
    os.close(write)
    with sockets(tmp_path) as (_, core):
        Loop(driver.core, core, read).run()
    os.close(read)


# ---------------------------------------------------------------- the process


@contextlib.contextmanager
def process(tmp_path: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], zmq.Socket[bytes], io.FileIO]]:
    read, end = os.pipe()
    write = io.FileIO(end, "w")  # closed once, whoever closes it: its number may be a socket's by then
    with sockets(tmp_path) as (front, _):
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        front = context.socket(zmq.PAIR)
        front.setsockopt(zmq.LINGER, 0)
        front.setsockopt(zmq.RCVTIMEO, 60_000)
        front.bind(f"ipc://{tmp_path}/p")
        command = [sys.executable, "-P", "-m", "plait.runtime.core", "--connect", f"ipc://{tmp_path}/p"]
        child = subprocess.Popen([*command, "--pipe", str(read), *arguments], pass_fds=(read,), stderr=subprocess.PIPE)
        os.close(read)
        try:
            yield child, front, write
        finally:
            write.close()
            child.kill()
            child.wait()
            if child.stderr is not None:
                child.stderr.close()
            front.close()
            context.term()


def test_the_process_loads_a_model_serves_ignores_ctrl_c_and_ends_with_its_parent(
    tmp_path: Path, tiny_model_path: Path
) -> None:
    arguments = ("--model", str(tiny_model_path), "--mode", "reference", "--kv-tokens", "500", "--threads", "1")
    with process(tmp_path, *arguments) as (child, front, write):
        (ready,) = receive(front)
        assert isinstance(ready, Ready) and ready.kv_tokens == 500 and ready.mode == "reference"
        child.send_signal(signal.SIGINT)
        script = ExtendStrand(1, (Append(0, (65, 66, 67)), Sample(1, greedy(5))))
        front.send(encode(ToCore((OpenStrand(1), script))))
        events: list[CoreEvent] = []
        while not any(isinstance(event, Ended) for event in events):
            events += receive(front)
        write.close()
        assert child.wait(30) == 0


def test_a_parent_that_is_killed_while_the_model_loads_leaves_nothing(tmp_path: Path, tiny_model_path: Path) -> None:
    folder = tmp_path / "plait-x"
    folder.mkdir()
    with process(folder, "--model", str(tiny_model_path), "--mode", "reference") as (child, _, write):
        write.close()
        assert child.wait(30) == 0
    assert not (folder / "p").exists()


def test_a_core_gets_the_pool_of_the_one_before_it(tmp_path: Path, tiny_model_path: Path) -> None:
    arguments = ("--model", str(tiny_model_path), "--mode", "reference", "--kv-tokens", "900", "--kv-before", "500")
    with process(tmp_path, *arguments) as (_, front, _):
        (ready,) = receive(front)
        assert isinstance(ready, Ready) and ready.kv_tokens == 500 and ready.notes == ()


def test_a_pool_that_no_memory_holds_is_fatal_and_named(tmp_path: Path, tiny_model_path: Path) -> None:
    arguments = ("--model", str(tiny_model_path), "--mode", "reference", "--kv-tokens", str(2**45))
    with process(tmp_path, *arguments) as (child, front, _):
        (fatal,) = receive(front)
        assert isinstance(fatal, Fatal) and f"kv_tokens={2**45}" in fatal.message and "use at most" in fatal.message
        assert child.wait(30) == 1


def test_sigterm_ends_the_process(tmp_path: Path, tiny_model_path: Path) -> None:
    with process(tmp_path, "--model", str(tiny_model_path), "--mode", "reference") as (child, front, _):
        (ready,) = receive(front)
        assert isinstance(ready, Ready) and ready.kv_tokens > 500
        child.send_signal(signal.SIGTERM)
        assert child.wait(30) == 0


def test_a_model_that_does_not_load_is_fatal_and_said(tmp_path: Path) -> None:
    with process(tmp_path, "--model", str(tmp_path / "nothing.gguf")) as (child, front, _):
        (fatal,) = receive(front)
        assert isinstance(fatal, Fatal) and "nothing.gguf" in fatal.message
        assert child.wait(30) == 1


@pytest.mark.parametrize("arguments", [(), ("--mode", "fast")])
def test_bad_arguments_are_refused(arguments: tuple[str, ...]) -> None:
    from plait.runtime.core.__main__ import arguments as parser

    with pytest.raises(SystemExit):
        parser().parse_args(["--connect", "ipc:///x", *arguments])


def test_an_idle_loop_checks_its_slots_and_ends_rather_than_go_on_with_wrong_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from plait.radix import IntegrityError
    from plait.runtime.core import loop

    monkeypatch.setattr(loop, "_CHECK_AFTER_MS", 1)
    driver = Driver()
    with sockets(tmp_path) as (front, core):
        script = ExtendStrand(1, (Append(0, prompt(20)), Sample(1, greedy(5))))
        front.send(encode(ToCore((OpenStrand(1), script))))
        outbox = OnIdle(driver, core, lambda: driver.core.state.pool.allocate(1))
        with pytest.raises(IntegrityError):
            Loop(driver.core, core, None, outbox).run()


def test_a_device_that_is_not_there_is_named() -> None:
    from plait.runtime.core.process import choose_device
    from plait.runtime.errors import ModelError

    assert choose_device("auto") in ("cpu", "cuda")
    with pytest.raises(ModelError, match="xyz"):
        choose_device("xyz")
