"""The process that gives the verdict on specifications, behind limits of time and memory.

``python -P -m plait.constrained.compiler_child`` reads requests on stdin and answers each on stdout, in order. A frame
is a little-endian uint32 length and that many bytes of MessagePack (:class:`Request` in, :class:`Reply` out). The first
frame out is ``Reply(id=0, ok=True)``, sent once it can serve. The parent may kill it at any time: it holds nothing.

::

    parent  ── Request(id, kind, source, ...) ──>  child: compiler.compile_spec
            <── Reply(id, ok, payload | error) ──         past a bound: ok=False, or it dies

It imports no torch and no tokenizer.
"""

from __future__ import annotations

import argparse
import gc
import os
import resource
import signal
import struct
import sys
import time
import traceback
from pathlib import Path
from types import FrameType
from typing import BinaryIO

import msgspec

from .compiler import DEFAULT_SECONDS, Late, Limits, compile_spec, warm
from .interface import ConstraintError

#: longest frame either way
MAX_FRAME_BYTES = 60 * 1024 * 1024
DEFAULT_MEMORY_BYTES = 2 * 1024**3
_GARBAGE = 50_000  # objects made since the last collection that call for another
_TICK = 0.25  # seconds between two looks at the clock and at the parent


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``kind``: "regex" or "stop_regex" (``source`` is the pattern), or "spec" (the JSON text of a specification, see
    :mod:`.spec`). ``seconds``: CPU and wall time this one may take. ``backend``: which engine compiles it."""

    id: int
    kind: str
    source: str
    seconds: float = DEFAULT_SECONDS
    backend: str = "plait"


class Reply(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """``payload`` if ``ok``, else ``error``: one sentence for the user; ``late`` if only time was missing."""

    id: int
    ok: bool
    payload: bytes = b""
    error: str = ""
    late: bool = False


def frame(message: Request | Reply) -> bytes:
    data = msgspec.msgpack.encode(message)
    return struct.pack("<I", len(data)) + data


def write_frame(stream: BinaryIO, message: Request | Reply) -> None:
    stream.write(frame(message))
    stream.flush()


def read_frame(stream: BinaryIO) -> bytes | None:
    """One frame's bytes; None at the end of the stream. Raises ValueError for a frame that is too long or cut off."""
    head = stream.read(4)
    if not head:
        return None
    length = int.from_bytes(head, "little")
    if len(head) < 4 or length > MAX_FRAME_BYTES:
        raise ValueError(f"a frame of {length} bytes, or half a frame")
    data = stream.read(length)
    if len(data) < length:
        raise ValueError("half a frame")
    return data


def decode_request(data: bytes) -> Request:
    return msgspec.msgpack.decode(data, type=Request)


def decode_reply(data: bytes) -> Reply:
    return msgspec.msgpack.decode(data, type=Reply)


def answer(request: Request) -> Reply:
    """Compile one request; every refusal is a Reply. An alarm catches what takes long between two looks at the clock,
    and ends the process if its parent was killed meanwhile."""
    seconds = min(max(request.seconds, 0.01), 600.0)
    if request.backend != "plait":
        from . import backends

        backends.preload(request.backend)  # before the alarm, which would leave half an import
    parent, end = os.getppid(), time.monotonic() + seconds

    def ring(signum: int, frame: FrameType | None) -> None:
        if os.getppid() != parent:
            os._exit(0)
        if time.monotonic() >= end:
            raise Late(seconds)  # and again at the next tick, if a finalizer swallowed it

    before = signal.signal(signal.SIGALRM, ring)
    tick = min(seconds, _TICK)
    signal.setitimer(signal.ITIMER_REAL, tick, tick)
    try:
        payload = compile_spec(request.kind, request.source, Limits(seconds=seconds), request.backend)
        signal.setitimer(signal.ITIMER_REAL, 0)
        return Reply(request.id, True, payload)
    except Late as error:
        return Reply(request.id, False, error=str(error), late=True)
    except ConstraintError as error:
        return Reply(request.id, False, error=str(error), late=time.monotonic() >= end)
    except MemoryError:
        return Reply(request.id, False, error="it needs too much memory to compile; make it simpler")
    except RecursionError:
        return Reply(request.id, False, error="it is nested too deeply")
    except Exception as error:  # a fault of ours: said, and the next request is served
        traceback.print_exc()
        return Reply(request.id, False, error=f"the compiler failed on it ({type(error).__name__}: {error})")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def serve(source: BinaryIO, target: BinaryIO) -> None:
    """Answer requests until the stream ends."""
    gc.disable()  # a compilation makes little garbage; what it leaves is collected between two of them
    write_frame(target, Reply(0, True))
    while (data := read_frame(source)) is not None:
        write_frame(target, answer(decode_request(data)))
        if gc.get_count()[0] > _GARBAGE:
            gc.collect()


def _address_space() -> int:
    """Bytes mapped now: numpy reserves some for every CPU, which must not count as what a pattern needs."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except (OSError, ValueError):
        return 0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m plait.constrained.compiler_child", description="compiler child")
    parser.add_argument("--memory-bytes", type=int, default=DEFAULT_MEMORY_BYTES, help="memory it may take on top")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this child by closing stdin
    most = _address_space() + options.memory_bytes
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warm()
    try:
        serve(sys.stdin.buffer, sys.stdout.buffer)
    except BrokenPipeError:  # the parent was killed: nobody is left to tell
        os._exit(0)


if __name__ == "__main__":
    main()
