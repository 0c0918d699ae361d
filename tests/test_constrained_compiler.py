"""The compiler child: its protocol, its limits, and what it never imports."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from io import BytesIO

import msgspec
import pytest

from plait.constrained.compiler import (
    MAX_FRAME_BYTES,
    Reply,
    Request,
    answer,
    compile_spec,
    decode_reply,
    decode_request,
    load,
    read_frame,
    write_frame,
)
from plait.constrained.dfa import Limits
from plait.constrained.interface import ConstraintError
from plait.constrained.vocabulary import Vocabulary

VOCABULARY = Vocabulary([bytes([b]) for b in range(256)], size=256, encode=list)
SLOW = "(?:a|b)*a(?:a|b){40}"


class Child:
    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "plait.constrained.compiler", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def send(self, request: Request) -> None:
        assert self.process.stdin
        write_frame(self.process.stdin, request)  # type: ignore[arg-type]  # IO[bytes] is a BinaryIO in all but name

    def receive(self) -> Reply | None:
        assert self.process.stdout
        data = read_frame(self.process.stdout)  # type: ignore[arg-type]  # as above
        return None if data is None else decode_reply(data)

    def close(self) -> int:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        self.process.stdout.close()
        return self.process.wait(30)


@pytest.fixture
def child() -> Iterator[Child]:
    child = Child()
    assert child.receive() == Reply(0, True)
    yield child
    child.process.kill()
    child.close()


def test_it_serves_good_and_bad_requests_in_order(child: Child) -> None:
    child.send(Request(1, "regex", "a[bc]+"))
    child.send(Request(2, "regex", "a[b"))
    child.send(Request(3, "regex", r"(a)\1"))
    child.send(Request(4, "poem", "a"))
    child.send(Request(5, "regex", "x"))
    replies = [child.receive() for _ in range(5)]
    assert [reply.id for reply in replies if reply] == [1, 2, 3, 4, 5]
    assert [reply.ok for reply in replies if reply] == [True, False, False, False, True]
    first, bad, reference, kind, last = replies
    assert first and first.payload == compile_spec("regex", "a[bc]+") and first.states > 1
    assert bad and "position" in bad.error and not bad.payload
    assert reference and "back-reference at position 3" in reference.error
    assert kind and "'poem'" in kind.error
    assert last and load(last.payload, VOCABULARY, "k").matcher().forced() == b"x"
    assert child.close() == 0


def test_a_request_past_its_time_is_refused_and_the_next_one_served(child: Child) -> None:
    child.send(Request(1, "regex", SLOW, seconds=0.05))
    child.send(Request(2, "regex", "ok"))
    late, good = child.receive(), child.receive()
    assert late and not late.ok and "0.05 seconds" in late.error
    assert good and good.ok


def test_memory_is_limited() -> None:
    child = Child("--memory-bytes", str(24 * 1024 * 1024))
    assert child.receive() == Reply(0, True)
    child.send(Request(1, "regex", r"[^\n]{1,10000}"))  # needs some 100 MB
    reply = child.receive()
    assert reply is None or "too much memory" in reply.error
    child.close()


def test_a_frame_that_is_too_long_ends_it(child: Child) -> None:
    assert child.process.stdin
    child.process.stdin.write((MAX_FRAME_BYTES + 1).to_bytes(4, "little"))
    child.process.stdin.flush()
    assert child.receive() is None
    assert child.close() != 0


def test_it_can_be_killed_while_it_works(child: Child) -> None:
    child.send(Request(1, "regex", SLOW, seconds=60))
    child.process.send_signal(signal.SIGKILL)
    assert child.receive() is None
    assert child.process.wait(30) == -signal.SIGKILL


def test_it_ends_in_the_middle_when_its_parent_was_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Exit(BaseException):
        pass

    def leave(code: int) -> None:
        raise Exit(code)

    parents = iter([100])
    monkeypatch.setattr("os.getppid", lambda: next(parents, 1))
    monkeypatch.setattr("os._exit", leave)
    gc.disable()  # what a handler raises in a callback of the collector is lost: a tick later it would end
    try:
        with pytest.raises(Exit):
            answer(Request(1, "regex", "((a{1,50}){1,50}){1,50}", seconds=600))
    finally:
        gc.enable()


def test_it_says_nothing_when_nobody_is_left_to_hear_it() -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-P", "-m", "plait.constrained.compiler"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=write, stderr=subprocess.PIPE, check=True)
    os.close(write)
    assert not done.stderr


def test_it_imports_no_heavy_package() -> None:
    code = (
        "import sys, plait.constrained.compiler\n"
        "print([m for m in ('torch', 'transformers', 'tokenizers', 'zmq', 'numba') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_frames_round_trip_and_refuse_damage() -> None:
    stream = BytesIO()
    request = Request(7, "regex", "é", 1.5)
    write_frame(stream, request)
    whole = stream.getvalue()
    stream.seek(0)
    data = read_frame(stream)
    assert data is not None and decode_request(data) == request
    assert read_frame(stream) is None
    for cut in (2, len(whole) - 1):
        with pytest.raises(ValueError, match="frame"):
            read_frame(BytesIO(whole[:cut]))
    with pytest.raises(msgspec.MsgspecError):
        decode_request(msgspec.msgpack.encode({"id": 1, "kind": "regex", "source": "a", "extra": 1}))


def test_damaged_payloads_are_refused() -> None:
    payload = compile_spec("regex", "a[bc]{2}")
    data = msgspec.msgpack.decode(payload)
    damaged = [
        payload[:-1],
        b"",
        b"\x80",
        msgspec.msgpack.encode({**data, "states": data["states"] + 1}),
        msgspec.msgpack.encode({**data, "table": b"\xff\xff\xff\x7f" + data["table"][4:]}),
        msgspec.msgpack.encode({**data, "byte_class": b"\xfe" * 256}),
        msgspec.msgpack.encode({**data, "format": 99}),
    ]
    for bad in damaged:
        with pytest.raises(ConstraintError, match="compiled constraint"):
            load(bad, VOCABULARY, "k")


def test_the_same_specification_gives_the_same_payload() -> None:
    assert compile_spec("regex", r"\w+(a|b)?") == compile_spec("regex", r"\w+(a|b)?")


def test_limits_reach_the_compiler() -> None:
    with pytest.raises(ConstraintError, match="more than 10 automaton states"):
        compile_spec("regex", "a{20}", Limits(states=10))
