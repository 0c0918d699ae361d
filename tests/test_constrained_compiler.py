"""The compiler child: its protocol, its limits, and what it never imports."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from io import BytesIO

import msgspec
import pytest

from plait.constrained.compiler import (
    Limits,
    Payload,
    check_stop_regex,
    compile_spec,
    load,
    notes_of,
    read_payload,
)
from plait.constrained.compiler_child import (
    MAX_FRAME_BYTES,
    Reply,
    Request,
    answer,
    decode_reply,
    decode_request,
    read_frame,
    write_frame,
)
from plait.constrained.interface import ConstraintError
from plait.constrained.lexicon import lexicon_of
from plait.constrained.regular import python_syntax
from plait.constrained.vocabulary import Vocabulary

VOCABULARY = Vocabulary([bytes([b]) for b in range(256)], size=256, encode=list)
#: a schema whose combinations take long to open
SLOW = json.dumps(
    {
        "json_schema": {
            "allOf": [
                {"type": "object", "patternProperties": {"a" * at + "+b": {"minLength": at}}} for at in range(1, 40)
            ]
        }
    }
)


def said(payload: bytes) -> Payload:
    """All but the time it took."""
    return msgspec.structs.replace(read_payload(payload), build_s=0.0)


class Child:
    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "plait.constrained.compiler_child", *arguments],
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
    child.send(Request(5, "spec", '{"regex": "x"}'))
    child.send(Request(6, "spec", '{"regex": "x"}', backend="poem"))
    child.send(Request(7, "spec", '{"json_schema": {"type": "strin"}}'))
    child.send(Request(8, "stop_regex", "a+"))
    child.send(Request(9, "stop_regex", "a*"))
    replies = [child.receive() for _ in range(9)]
    assert [reply.id for reply in replies if reply] == list(range(1, 10))
    assert [reply.ok for reply in replies if reply] == [True, False, False, False, True, False, False, True, False]
    first, bad, reference, kind, fifth, backend, schema, _, empty = replies
    assert first and said(first.payload) == said(compile_spec("regex", "a[bc]+"))
    assert bad and bad.error and not bad.payload
    assert reference and "back-reference" in reference.error
    assert kind and "'poem'" in kind.error
    assert fifth and load(fifth.payload, VOCABULARY, "k").matcher().forced() == b"x"
    assert backend and "constraint_backend='poem' is not known" in backend.error
    assert schema and "type" in schema.error and "strin" in schema.error
    assert empty and "empty string" in empty.error
    assert child.close() == 0


def test_a_request_past_its_time_is_refused_and_the_next_one_served(child: Child) -> None:
    child.send(Request(1, "spec", SLOW, seconds=0.05))
    child.send(Request(2, "regex", "ok"))
    late, good = child.receive(), child.receive()
    assert late and not late.ok and "0.05 seconds" in late.error and late.late
    assert good and good.ok


def test_memory_is_limited() -> None:
    child = Child("--memory-bytes", str(16 * 1024 * 1024))
    assert child.receive() == Reply(0, True)
    child.send(Request(1, "spec", json.dumps({"choices": [str(at) * 3 for at in range(200_000)]})))
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
    child.send(Request(1, "spec", SLOW, seconds=60))
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
            answer(Request(1, "spec", SLOW, seconds=600))
    finally:
        gc.enable()


def test_it_says_nothing_when_nobody_is_left_to_hear_it() -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-P", "-m", "plait.constrained.compiler_child"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=write, stderr=subprocess.PIPE, check=True)
    os.close(write)
    assert not done.stderr


def test_it_imports_no_heavy_package() -> None:
    code = (
        "import sys, plait.constrained.compiler_child\n"
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
        msgspec.msgpack.encode({**data, "kind": "poem"}),
        msgspec.msgpack.encode({**data, "source": 3}),
        msgspec.msgpack.encode({**data, "extra": 1}),
        msgspec.msgpack.encode({**data, "format": 99}),
    ]
    for bad in damaged:
        with pytest.raises(ConstraintError, match="compiled constraint"):
            load(bad, VOCABULARY, "k")
        assert notes_of(bad) == ()


def test_the_same_specification_gives_the_same_payload() -> None:
    assert said(compile_spec("regex", r"\w+(a|b)?")) == said(compile_spec("regex", r"\w+(a|b)?"))


def test_limits_reach_the_compiler() -> None:
    with pytest.raises(ConstraintError, match="at most 10 are read"):
        compile_spec("regex", "a{20}bbbbbbb", Limits(source_bytes=10))
    with pytest.raises(ConstraintError, match="more than 0 seconds"):
        compile_spec("regex", "a", Limits(seconds=0.0))


def test_what_is_wrong_deep_inside_is_found_before_anything_is_generated() -> None:
    schema = {"properties": {"a": {"items": {"properties": {"b": {"pattern": "(a)\\1"}}}}}}
    with pytest.raises(ConstraintError, match="#/properties/a/items/properties/b"):
        compile_spec("spec", json.dumps({"seq": [{"literal": "x"}, {"json_schema": schema}]}))


def test_what_is_relaxed_is_said() -> None:
    source = {"json_schema": {"type": "string", "pattern": "(a)\\1"}, "options": {"strict": False}}
    notes = notes_of(compile_spec("spec", json.dumps(source)))
    assert len(notes) == 1 and "pattern" in notes[0]
    assert notes_of(compile_spec("regex", "a")) == ()


@pytest.mark.parametrize("pattern", ["^a", "a$", r"\ba", r"a\Z", "(?=a)b", "(?<!a)b", "a(?!b)", "a*", "(a|)", "(a)\\1"])
def test_a_stop_regex_that_cannot_be_searched_for_is_refused(pattern: str) -> None:
    with pytest.raises(ConstraintError):
        check_stop_regex(pattern)


@pytest.mark.parametrize("pattern", ["a", r"[$^]", r"[\b]", r"\^\$", "[]^]", r"\\b", "(?:a)(?P<x>b)(?i:c)", r"\d+\n"])
def test_other_stop_regexes_are_taken(pattern: str) -> None:
    check_stop_regex(pattern)


def test_what_the_child_checked_is_not_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's ``re`` takes a second for 10,000 alternatives, in one go: the core would stand still."""
    payloads = [
        compile_spec("regex", "one|two{2}"),
        compile_spec("spec", json.dumps({"grammar": "start: /a+b/ X\nX: /x{2}/", "syntax": "lark"})),
    ]
    monkeypatch.setattr(python_syntax, "check", lambda pattern: pytest.fail(f"{pattern!r} is checked again"))
    vocabulary = Vocabulary([bytes([b]) for b in range(256)], size=256, encode=list)
    for payload in payloads:
        load(payload, vocabulary, "k").matcher().mask()
    monkeypatch.undo()
    with pytest.raises(ConstraintError):  # it is for that load alone
        lexicon_of(vocabulary).languages.regex("(")
