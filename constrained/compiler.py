"""Specification -> verdict -> constraint.

::

    compiler child    compile_spec(kind, source)      read it -> build and open every rule -> the first mask
    (:mod:`.compiler_child`)                          -> payload, or ConstraintError
    core              load(payload, vocabulary, key)  the root; everything else when a text first reaches it

The payload is the checked specification itself: rules and automata are unfolded lazily, so building again what a text
reaches costs less than moving all of it. The verdict is made over a vocabulary of single bytes: what it finds holds for
every model.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from . import spec
from .interface import RELAXABLE, Constraint, ConstraintError, Unfinished
from .lexicon import Lexicon, lexicon_of
from .pushdown import machine as machines
from .pushdown import native_library
from .pushdown.matcher import PushdownConstraint
from .pushdown.rules import Lexeme, Rules
from .schema.values import parse_json
from .vocabulary import Vocabulary, single_bytes

DEFAULT_SECONDS = 10.0
_FORMAT = 2


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


class Late(ConstraintError):
    """It was not done in the ``seconds`` it had."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"it takes more than {seconds:g} seconds to compile; make it simpler")


class Payload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``build_s``: CPU seconds, to two places, that the child needed for what :func:`load` does. ``notes``: what was
    relaxed."""

    format: int
    kind: str
    source: str
    backend: str
    build_s: float
    notes: tuple[str, ...]


def compile_spec(kind: str, source: str, limits: Limits | None = None, backend: str = "plait") -> bytes:
    """The payload for a specification. Raises ConstraintError naming what is wrong, where, and what to write.

    The same specification gives the same payload, but for ``build_s``.
    """
    limits = limits or Limits()
    if len(source) > limits.source_bytes:
        raise ConstraintError(f"it has {len(source):,} characters; at most {limits.source_bytes:,} are read")
    notes: tuple[str, ...] = ()
    build_s = 0.0
    if kind == "stop_regex":
        check_stop_regex(source)
    elif backend != "plait":
        from . import backends

        backends.verdict(backend, _data(kind, source))
    else:
        native_library.library()  # built at its first use, for which nobody's source is to blame
        build_s, notes = _check(_data(kind, source), limits, time.monotonic() + limits.seconds)
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
    lexicon = lexicon or lexicon_of(vocabulary)
    lexicon.languages.trusting = True
    try:
        return build(_data(data.kind, data.source), vocabulary, key, lexicon)
    except ConstraintError as error:  # the child could: it has every byte
        raise ConstraintError(f"this model's vocabulary cannot write it: {error}") from error
    finally:
        lexicon.languages.trusting = False


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
        raise Late(limits.seconds)
    if build_s > limits.build_seconds:
        raise ConstraintError(
            f"reading it takes {build_s:.1f} seconds; at most {limits.build_seconds:g} are allowed: make it smaller"
        )
    matcher = constraint.matcher()
    machine = constraint.machine
    if not matcher.prepare(until - time.monotonic()):
        raise Late(limits.seconds)
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
        if at in rules.again:
            continue
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
        hint = "" if report.errors else RELAXABLE
        raise ConstraintError(f"{shown}{more}{hint}")
    return [_said(problem) for problem in report.relaxed]


def _said(problem: Any) -> str:
    where = f" at {problem.pointer}" if problem.pointer else ""
    return f"{problem.keyword}{where}: {problem.message}" if problem.keyword else f"{problem.message}{where}"
