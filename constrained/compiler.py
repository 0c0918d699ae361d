"""Specification -> verdict -> constraint, and the child process that gives the verdict behind limits.

``python -P -m plait.constrained.compiler`` reads requests on stdin and answers each on stdout, in order. A frame is
a little-endian uint32 length and that many bytes of MessagePack (:class:`Request` in, :class:`Reply` out). The first
frame out is ``Reply(id=0, ok=True)``, sent once it can serve. The parent may kill it at any time: it holds nothing.

::

    child    Request(id, kind, source, ...) -> read it -> build and open every rule -> the first mask
                                               -> Reply(id, ok, payload | error); past a bound: ok=False, or it dies
    core     load(payload, vocabulary, key) -> the root; everything else when a text first reaches it

The payload is the checked specification itself: rules and automata are unfolded lazily, so building again what a text
reaches costs less than moving all of it. The child uses a vocabulary of single bytes: what it finds holds for every
model. It imports no torch and no tokenizer.
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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO

import msgspec

from . import spec
from .interface import Constraint, ConstraintError, Unfinished
from .lexicon import Lexicon, lexicon_of
from .pushdown import machine as machines
from .pushdown.matcher import PushdownConstraint
from .pushdown.rules import Lexeme, Rules
from .schema.values import parse_json
from .vocabulary import Vocabulary, single_bytes

#: longest frame either way
MAX_FRAME_BYTES = 60 * 1024 * 1024
DEFAULT_SECONDS = 10.0
DEFAULT_MEMORY_BYTES = 2 * 1024**3
_FORMAT = 2
_GARBAGE = 50_000  # objects made since the last collection that call for another
_TICK = 0.25  # seconds between two looks at the clock and at the parent


@dataclass(frozen=True)
class Limits:
    """Bounds of one compilation; each is a named refusal.

    ``seconds``: wall clock. ``build_seconds``: of it, for reading the specification and making its root, which the core
    does again. ``rules``, ``open_seconds``: how many rules are opened and looked at, and for how long; a specification
    that has more is taken on trust beyond (what cannot be kept there is met, if ever, when a text gets to it).
    ``source_bytes``: of the specification.
    """

    seconds: float = DEFAULT_SECONDS
    build_seconds: float = 1.0
    rules: int = 20_000
    open_seconds: float = 0.2
    source_bytes: int = 8 * 1024 * 1024


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


class Late(ConstraintError):
    """It was not done in the time it had."""


class Payload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``build_s``: CPU seconds, to two places, that the child needed for what :func:`load` does. ``notes``: what was
    relaxed."""

    format: int
    kind: str
    source: str
    backend: str
    build_s: float
    notes: tuple[str, ...]


# ---------------------------------------------------------------- pure functions


def compile_spec(kind: str, source: str, limits: Limits | None = None, backend: str = "plait") -> bytes:
    """The payload for a specification. Raises ConstraintError naming what is wrong, where, and what to write.

    The same specification gives the same payload, but for ``build_s``.
    """
    limits = limits or Limits()
    if len(source) > limits.source_bytes:
        raise ConstraintError(f"it has {len(source):,} characters; at most {limits.source_bytes:,} are read")
    until = time.monotonic() + limits.seconds
    notes: tuple[str, ...] = ()
    build_s = 0.0
    if kind == "stop_regex":
        check_stop_regex(source)
    elif backend != "plait":
        from . import backends

        backends.verdict(backend, _data(kind, source))
    else:
        build_s, notes = _check(_data(kind, source), limits, until)
    return msgspec.msgpack.encode(Payload(_FORMAT, kind, source, backend, round(build_s, 2), notes))


def load(payload: bytes, vocabulary: Vocabulary, key: str, lexicon: Lexicon | None = None) -> Constraint:
    """The constraint that :func:`compile_spec` allowed, over one vocabulary; only its root is built. ``lexicon``: None
    for the one that the vocabulary's constraints share.

    Raises ConstraintError if the payload is damaged or of another version, or if the vocabulary cannot write any
    match.
    """
    data = read_payload(payload)
    if data.backend != "plait":
        from . import backends

        return backends.load(data.backend, _data(data.kind, data.source), vocabulary, key)
    try:
        return build(_data(data.kind, data.source), vocabulary, key, lexicon)
    except ConstraintError as error:  # the child could: it has every byte
        raise ConstraintError(f"this model's vocabulary cannot write it: {error}") from error


def build(
    data: Mapping[str, Any], vocabulary: Vocabulary, key: str, lexicon: Lexicon | None = None
) -> PushdownConstraint:
    """The constraint of plain data (see :mod:`.spec`), with our own engine and without any check of its own."""
    lexicon = lexicon or lexicon_of(vocabulary)
    rules = Rules()
    start = spec.build(data, lexicon.languages, rules)
    return PushdownConstraint(machines.build(rules, start, lexicon.lexemes, vocabulary, lexicon.masks, key))


def warm() -> None:
    """Import and read what every constraint needs, so that the first one is not slower than the others. Takes some
    seconds where the native library is built first."""
    patient = Limits(seconds=600.0, build_seconds=600.0)
    for data in ({"json_schema": {"properties": {"a": {"type": "string"}}}}, {"regex": "a"}, {"ready": "arithmetic"}):
        _check(data, patient, time.monotonic() + patient.seconds)


def read_payload(payload: bytes) -> Payload:
    """Raises ConstraintError."""
    try:
        data = msgspec.msgpack.decode(payload, type=Payload)
    except msgspec.MsgspecError as error:
        raise ConstraintError(f"not a compiled constraint: {error}") from None
    if data.format != _FORMAT or data.kind not in ("regex", "spec", "stop_regex"):
        raise ConstraintError("not a compiled constraint of this version")
    return data


def notes_of(payload: bytes) -> tuple[str, ...]:
    """What was relaxed, as the child said; () of anything else."""
    try:
        return read_payload(payload).notes
    except ConstraintError:
        return ()


def check_stop_regex(pattern: str) -> None:
    """Raises ConstraintError for what cannot be searched for as text comes: see ``runtime/core/stop_search.py``."""
    from .regular.languages import Languages

    for at, atom in _places(pattern):
        raise ConstraintError(
            f"stop_regex: {atom!r} at position {at} looks at what stands around the match, which is not there yet: "
            "leave it out, or write the characters themselves (\\n for the start of a line)"
        )
    language = Languages().regex(pattern, "python")
    if language.accepting:
        raise ConstraintError(
            "stop_regex matches the empty string, so the gen would end at once: make it match something"
        )
    language.edges()


def _places(pattern: str) -> Iterator[tuple[int, str]]:
    """Anchors, boundaries and lookarounds in a pattern, and where they stand."""
    at, inside = 0, False
    while at < len(pattern):
        two = pattern[at : at + 2]
        if two.startswith("\\"):
            if not inside and two in ("\\A", "\\Z", "\\z", "\\b", "\\B"):
                yield at, two
            at += 2
            continue
        if inside:
            inside = two[0] != "]"
        elif two[0] == "[":
            inside = True
            at += 1 + (pattern[at + 1 : at + 2] == "^")  # a bracket that comes first stands for itself
        elif two[0] in "^$":
            yield at, two[0]
        else:
            around = next((mark for mark in ("(?=", "(?!", "(?<=", "(?<!") if pattern.startswith(mark, at)), None)
            if around is not None:
                yield at, around
        at += 1


def _data(kind: str, source: str) -> dict[str, Any]:
    if kind in ("regex", "stop_regex"):
        return {"regex": source}
    if kind != "spec":
        raise ConstraintError(f"constraint kind {kind!r} is not known (known: regex, spec, stop_regex)")
    data = parse_json(source)
    if not isinstance(data, dict) or not data:
        raise ConstraintError('a specification is a JSON object such as {"regex": "..."}')
    return data


def _check(data: dict[str, Any], limits: Limits, until: float) -> tuple[float, tuple[str, ...]]:
    """(seconds for the root, what was relaxed). Opens every rule, so that what cannot be kept is found here."""
    notes = tuple(dict.fromkeys(note for schema in _schemas(data) for note in _schema_notes(schema)))
    vocabulary = single_bytes()
    lexicon = Lexicon(vocabulary)
    began = time.process_time()  # not the clock: others may have the cores, and the first one loads the native library
    constraint = build(data, vocabulary, "", lexicon)
    build_s = time.process_time() - began
    if time.monotonic() >= until:
        raise Late(_late(limits.seconds))
    if build_s > limits.build_seconds:
        raise ConstraintError(
            f"reading it takes {build_s:.1f} seconds; at most {limits.build_seconds:g} are allowed: make it smaller"
        )
    matcher = constraint.matcher()
    machine = constraint.machine
    if not matcher.prepare(until - time.monotonic()):
        raise Late(_late(limits.seconds))
    try:
        machine.deadline = min(until, time.monotonic() + limits.open_seconds)
        _open_all(machine.rules, lexicon, limits.rules, machine.deadline)
    except Unfinished:
        pass
    return build_s, notes


def _open_all(rules: Rules, lexicon: Lexicon, most: int, until: float) -> None:
    """Ask every rule for its productions, and every language in them for its first edges."""
    for at in range(most):
        if at >= len(rules):  # opening one may add others
            return
        for production in rules.productions(at):
            for item in production:
                if isinstance(item, Lexeme):
                    lexicon.lexemes.start(item)
        if at % 64 == 0 and time.monotonic() >= until:
            raise Unfinished


def _schemas(data: Any) -> Iterator[dict[str, Any]]:
    """The forms with a JSON Schema in a specification."""
    todo = [data]
    while todo:
        form = todo.pop()
        if not isinstance(form, dict):
            continue
        if "json_schema" in form:
            yield form
            continue
        for part in form.values():
            todo += part if isinstance(part, list) else [part]


def _schema_notes(form: dict[str, Any]) -> list[str]:
    """What reading the whole schema relaxes. Raises ConstraintError for everything in it that cannot be kept."""
    from .schema.check import check
    from .schema.options import SchemaOptions

    options = SchemaOptions.parse(form.get("options") or {})
    report = check(form["json_schema"], options, documents=form.get("documents"))
    wrong = [*report.errors, *report.unsupported]
    if wrong:
        shown = "; ".join(_said(problem) for problem in wrong[:5])
        more = f"; and {len(wrong) - 5} more" if len(wrong) > 5 else ""
        hint = "" if report.errors else " (strict=False drops what cannot be kept, and says so)"
        raise ConstraintError(f"{shown}{more}{hint}")
    return [_said(problem) for problem in report.relaxed]


def _said(problem: Any) -> str:
    where = f" at {problem.pointer}" if problem.pointer else ""
    return f"{problem.keyword}{where}: {problem.message}" if problem.keyword else f"{problem.message}{where}"


def _late(seconds: float) -> str:
    return f"it takes more than {seconds:g} seconds to compile; make it simpler"


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
            raise Late(_late(seconds))  # and again at the next tick, if a finalizer swallowed it

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
    parser = argparse.ArgumentParser(prog="python -m plait.constrained.compiler", description="compiler child")
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
