"""Specification -> flat arrays, and the child process that does it behind limits.

``python -P -m plait.constrained.compiler`` reads requests on stdin and answers each on stdout, in order. A frame is
a little-endian uint32 length and that many bytes of MessagePack (:class:`Request` in, :class:`Reply` out). The first
frame out is ``Reply(id=0, ok=True)``, sent once it can serve. The parent may kill it at any time: it holds nothing.

::

    Request(id, kind, source, seconds)  ->  parse -> NFA -> DFA -> prune -> merge  ->  Reply(id, ok, payload | error)
                                            past the CPU or wall bound: Reply(ok=False), or the child dies

It imports no torch, no tokenizer and no vocabulary: the payload fits every model. :func:`load` meets it with one.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import signal
import struct
import sys
import time
from pathlib import Path
from types import FrameType
from typing import BinaryIO

import msgspec
import numpy as np

from .dfa import Budget, Dfa, Limits, determinize, merge_equal, prune
from .interface import Constraint, ConstraintError
from .lookahead import determinize_with_lookaheads
from .masks import MaskCache
from .matcher import DfaConstraint
from .nfa import Nfa
from .regex import Alt, Anchor, Node, Seq, parse
from .vocabulary import Vocabulary

#: longest frame either way
MAX_FRAME_BYTES = 60 * 1024 * 1024
DEFAULT_SECONDS = 10.0
DEFAULT_MEMORY_BYTES = 2 * 1024**3
_FORMAT = 1
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
    states: int = 0
    late: bool = False


class _Payload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: int
    states: int
    classes: int
    byte_class: bytes  # uint8[256]
    table: bytes  # little-endian int32[states, classes]
    accepting: bytes  # bits, lowest first


# ---------------------------------------------------------------- pure functions


def compile_spec(kind: str, source: str, limits: Limits | None = None, backend: str = "plait") -> bytes:
    """The payload for a specification. Raises ConstraintError naming what is wrong, where, and what to write."""
    if kind == "spec":
        source = _as_regex(source)
    elif kind not in ("regex", "stop_regex"):
        raise ConstraintError(f"constraint kind {kind!r} is not known (known: regex, spec, stop_regex)")
    dfa = compile_regex(source, limits or Limits())
    if kind == "stop_regex" and dfa.accepting[0]:
        raise ConstraintError("the stop regex matches the empty string, so the gen would end at once")
    payload = msgspec.msgpack.encode(
        _Payload(
            format=_FORMAT,
            states=dfa.states,
            classes=dfa.table.shape[1],
            byte_class=dfa.byte_class.tobytes(),
            table=dfa.table.astype("<i4").tobytes(),
            accepting=np.packbits(dfa.accepting, bitorder="little").tobytes(),
        )
    )
    if len(payload) > MAX_FRAME_BYTES:
        raise ConstraintError(f"the compiled constraint has {len(payload):,} bytes; at most {MAX_FRAME_BYTES:,} fit")
    return payload


def load(payload: bytes, vocabulary: Vocabulary, key: str, cache: MaskCache | None = None) -> Constraint:
    """The constraint that :func:`compile_spec` made, over one vocabulary.

    Raises ConstraintError if the payload is damaged or of another version, or if the vocabulary cannot write any
    match.
    """
    try:
        data = msgspec.msgpack.decode(payload, type=_Payload)
    except msgspec.MsgspecError as error:
        raise ConstraintError(f"not a compiled constraint: {error}") from None
    count = data.states * data.classes
    if (
        data.format != _FORMAT
        or data.states < 1
        or data.classes < 1
        or len(data.byte_class) != 256
        or len(data.table) != 4 * count
        or len(data.accepting) != (data.states + 7) // 8
    ):
        raise ConstraintError("not a compiled constraint of this version")
    table = np.frombuffer(data.table, "<i4").astype(np.int32).reshape(data.states, data.classes)
    byte_class = np.frombuffer(data.byte_class, np.uint8)
    if table.max() >= data.states or table.min() < -1 or byte_class.max() >= data.classes:
        raise ConstraintError("a damaged compiled constraint: a number points outside of its tables")
    bits = np.unpackbits(np.frombuffer(data.accepting, np.uint8), count=data.states, bitorder="little")
    return DfaConstraint(Dfa(byte_class, table, bits.astype(bool)), vocabulary, key, cache)


def compile_regex(pattern: str, limits: Limits | None = None) -> Dfa:
    """The automaton of the strings that ``re.fullmatch(pattern, ·)`` accepts, as UTF-8. Raises ConstraintError."""
    budget = Budget(limits or Limits())
    nfa = Nfa(_without_edge_anchors(parse(pattern), True, True))
    dfa = determinize_with_lookaheads(nfa, budget) if nfa.looks else determinize(nfa, budget)
    kept = prune(dfa)
    if kept is None:
        raise ConstraintError("the regex matches nothing, not even the empty string")
    return merge_equal(kept)


def notes_of(payload: bytes) -> tuple[str, ...]:
    return ()


def _as_regex(source: str) -> str:
    data = msgspec.json.decode(source)
    if "regex" in data:
        return str(data["regex"])
    if "literal" in data:
        return re.escape(data["literal"])
    if "choices" in data:
        return "|".join(re.escape(choice) for choice in data["choices"])
    raise ConstraintError(f"{next(iter(data))} is not supported yet")


_EMPTY = Seq(())


def _without_edge_anchors(tree: Node, left: bool, right: bool) -> Node:
    """``tree`` without anchors at the very start (``left``) and end (``right``), where a full match makes them true.

    An automaton without anchors is built several times faster.
    """
    if isinstance(tree, Anchor):
        at_start = tree.kind in ("start", "line_start")
        return _EMPTY if (left if at_start else right) else tree
    if isinstance(tree, Alt):
        return Alt(tuple(_without_edge_anchors(option, left, right) for option in tree.options))
    if isinstance(tree, Seq):
        parts = list(tree.parts)
        for at in range(len(parts)):
            parts[at] = _without_edge_anchors(parts[at], left, right and at == len(parts) - 1)
            if parts[at] != _EMPTY:
                break
        for at in range(len(parts) - 1, -1, -1):
            parts[at] = _without_edge_anchors(parts[at], left and at == 0, right)
            if parts[at] != _EMPTY:
                break
        return Seq(tuple(part for part in parts if part != _EMPTY))
    return tree


# ---------------------------------------------------------------- the child


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
    """Compile one request; every refusal is a Reply. The limits count states and time as it goes; an alarm catches
    what lies between their checks (parsing, sorting), and ends the process if its parent was killed meanwhile."""
    seconds = min(max(request.seconds, 0.01), 600.0)
    late = f"the {request.kind} takes more than {seconds:g} seconds to compile; make it simpler"
    parent, end = os.getppid(), time.monotonic() + seconds

    def ring(signum: int, frame: FrameType | None) -> None:
        if os.getppid() != parent:
            os._exit(0)
        if time.monotonic() >= end:
            raise ConstraintError(late)  # and again at the next tick, if a finalizer swallowed it

    before = signal.signal(signal.SIGALRM, ring)
    tick = min(seconds, _TICK)
    signal.setitimer(signal.ITIMER_REAL, tick, tick)
    try:
        payload = compile_spec(request.kind, request.source, Limits(seconds=seconds), request.backend)
        signal.setitimer(signal.ITIMER_REAL, 0)
        return Reply(request.id, True, payload, states=msgspec.msgpack.decode(payload, type=_Payload).states)
    except ConstraintError as error:
        return Reply(request.id, False, error=str(error), late=time.monotonic() >= end)
    except MemoryError:
        return Reply(request.id, False, error=f"the {request.kind} needs too much memory to compile; make it simpler")
    except RecursionError:
        return Reply(request.id, False, error=f"the {request.kind} is nested too deeply")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def serve(source: BinaryIO, target: BinaryIO) -> None:
    """Answer requests until the stream ends."""
    write_frame(target, Reply(0, True))
    while (data := read_frame(source)) is not None:
        write_frame(target, answer(decode_request(data)))


def _address_space() -> int:
    """Bytes mapped now: numpy reserves some for every CPU, which must not count as what a pattern needs."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except (OSError, ValueError):
        return 0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m plait.constrained.compiler", description="compiler child")
    parser.add_argument("--memory-bytes", type=int, default=DEFAULT_MEMORY_BYTES, help="memory it may take on top")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this child by closing stdin
    most = _address_space() + options.memory_bytes
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        serve(sys.stdin.buffer, sys.stdout.buffer)
    except BrokenPipeError:  # the parent was killed: nobody is left to tell
        os._exit(0)


if __name__ == "__main__":
    main()
