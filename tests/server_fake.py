"""A backend that plays scripted tokens, for tests of the HTTP server: what is generated is the test's choice."""

from __future__ import annotations

import codecs
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from plait.runtime.backend import Listener
from plait.runtime.errors import BackendClosed
from plait.runtime.protocol import (
    Action,
    Close,
    Closed,
    Delta,
    Done,
    Extend,
    Failed,
    Gen,
    Ids,
    Info,
    Lost,
    Open,
    PromptLogprobs,
    RoleBegin,
    RoleEnd,
    Text,
    TokenLogprob,
    TopLogprob,
    Usage,
)


@dataclass
class Script:
    """What one choice answers. ``held``: deltas go out, the Done never comes (until ``release``)."""

    tokens: Sequence[bytes] = (b"Hello", b",", b" world")
    reason: str = "stop"
    matched: str | int | None = None
    fail: tuple[str, str | None, str] | None = None  # code, field, message
    fail_after: int = 0  # tokens before the failure
    held: bool = False
    cached: int = 0
    tail: int = 0  # tokens at the end that come with the Done
    prompt: Sequence[bytes] = (b"Say", b" hi")  # its tokens, where they are asked for
    top: Callable[[int, int], Sequence[TopLogprob]] | None = None  # (position, how many) -> alternatives
    next_top: Sequence[TopLogprob] = ()
    end: TokenLogprob | None = None


@dataclass
class Sent:
    """One strand that was opened."""

    opened: Open
    ops: list[object] = field(default_factory=list)

    @property
    def gen(self) -> Gen:
        assert isinstance(self.ops[-1], Gen)
        return self.ops[-1]

    def rendered(self) -> str:
        parts = []
        for op in self.ops[:-1]:
            match op:
                case RoleBegin(role=role):
                    parts.append(f"<{role}>")
                case RoleEnd():
                    parts.append("</>")
                case Text(text=text):
                    parts.append(text)
                case Ids(ids=ids):
                    parts.append(repr(list(ids)))
        return "".join(parts)


class ScriptedBackend:
    def __init__(self, script: Callable[[Sent, int], Script] | None = None, *, template: bool = True) -> None:
        self.script = script or (lambda sent, choice: Script())
        self.strands: dict[int, Sent] = {}
        self.aborted: list[int | None] = []
        self.closed = False
        self._template = template
        self._listeners: list[Listener] = []
        self._last = 0
        self.submitted = threading.Event()

    def allocate(self) -> int:
        self._last += 1
        return self._last

    def info(self) -> Info:
        if self.closed:
            raise BackendClosed("the runtime was shut down")
        return Info("tiny", 2048, 300, 10_000, "exact", "cpu", "0.1.0", self._template)

    def abort(self, *, strand: int | None = None, program: int | None = None) -> None:
        if self.closed:
            raise BackendClosed("the runtime was shut down")
        self.aborted.append(program)

    def close(self) -> None:
        self.closed = True
        for listener in self._listeners:
            listener(Lost("shutdown", "the runtime was shut down"))

    def submit(self, actions: Sequence[Action], listener: Listener) -> None:
        if self.closed:
            raise BackendClosed("the runtime was shut down")
        self._listeners.append(listener)
        for action in actions:
            match action:
                case Open(strand=strand):
                    self.strands[strand] = Sent(action)
                case Extend(strand=strand, ops=ops):
                    self.strands[strand].ops += ops
                case Close(strand=strand):
                    threading.Thread(target=self._play, args=(strand, listener)).start()
                case _:
                    raise AssertionError(f"the server never sends {action}")
        self.submitted.set()

    def _play(self, strand: int, listener: Listener) -> None:
        sent = self.strands[strand]
        for op in sent.ops:
            if isinstance(op, RoleBegin | RoleEnd):
                listener(Done(strand, op.op, text="…"))
        scripts = [self.script(sent, choice) for choice in range(sent.gen.n)]
        if sent.gen.sampling.logprob_start_len >= 0:
            self._prompt(strand, sent.gen, scripts[0], listener)
        for choice, script in enumerate(scripts):
            self._choice(strand, sent.gen, choice, script, listener)
        if not any(script.held for script in scripts):
            listener(Closed(strand))

    @staticmethod
    def _prompt(strand: int, gen: Gen, script: Script, listener: Listener) -> None:
        """In two pieces."""
        top = tuple(TopLogprob(100 + k, f"t{k}", b"t", -0.5 - k) for k in range(gen.sampling.prompt_top_logprobs))
        first, *rest = script.prompt
        entries = [TokenLogprob(0, first.decode("utf-8", "replace"), first, None)]
        for i, data in enumerate(rest, 1):
            entries.append(TokenLogprob(i, data.decode("utf-8", "replace"), data, -0.25, top=top, rank=i))
        listener(PromptLogprobs(strand, gen.op, tuple(entries[:1]), False))
        listener(PromptLogprobs(strand, gen.op, tuple(entries[1:]), True))

    def _choice(self, strand: int, gen: Gen, choice: int, script: Script, listener: Listener) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        tokens = script.tokens[: script.fail_after] if script.fail else script.tokens
        top = gen.sampling.top_logprobs
        logprobs = tuple(
            TokenLogprob(
                i,
                data.decode("utf-8", "replace"),
                data,
                -0.5,
                top=tuple(
                    (TopLogprob(100 + k, f"t{k}", b"t", -0.5 - k) for k in range(top))
                    if script.top is None
                    else script.top(i, top)
                ),
            )
            for i, data in enumerate(tokens)
        )
        wanted = gen.sampling.logprobs
        text = ""
        for i, data in enumerate(tokens):
            piece = decoder.decode(data)
            text += piece
            if gen.stream and i < len(tokens) - script.tail:
                listener(Delta(strand, gen.op, choice, piece, (i,), logprobs[i : i + 1] if wanted else ()))
        text += decoder.decode(b"", final=True)
        if script.fail:
            code, name, message = script.fail
            listener(Failed(strand, gen.op, choice, code, name, message))
        elif not script.held:
            listener(
                Done(
                    strand,
                    gen.op,
                    choice,
                    reason=script.reason,  # type: ignore[arg-type]
                    matched=script.matched,
                    text=text,
                    ids=tuple(range(len(tokens))),
                    usage=Usage(10, script.cached if choice == 0 else 9, len(tokens), 0, steps=len(tokens)),
                    seed=1,
                    logprobs=logprobs if wanted else None,
                    end_logprob=script.end if wanted else None,
                    next_top=tuple(script.next_top),
                )
            )
