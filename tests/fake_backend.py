"""A Backend in plain Python for tests of the language: one thread, one word of each running gen per step.

Texts are a function of (run seed, fork path, op, choice, text so far), unless ``answer`` says otherwise. A token is a
word with the space before it. Keeps what it received.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections import deque
from collections.abc import Callable, Sequence
from re import _constants as sre  # type: ignore[attr-defined]  # private; only to sample a text for a regex
from re import _parser as sre_parser  # type: ignore[attr-defined]  # private; only to sample a text for a regex
from typing import Any

from plait.runtime.backend import Listener
from plait.runtime.errors import BackendClosed
from plait.runtime.protocol import (
    Abort,
    Action,
    Close,
    Closed,
    ConstraintSpec,
    Delta,
    Done,
    Extend,
    Failed,
    Fork,
    Gen,
    Ids,
    Info,
    Join,
    Lost,
    Op,
    Open,
    PromptLogprobs,
    Regex,
    RoleBegin,
    RoleEnd,
    Select,
    Text,
    TokenLogprob,
    TopLogprob,
    Usage,
    VarRef,
)

WORDS = ("river", "stone", "lamp", "seven", "blue", "quiet", "garden", "wire", "north", "bread", "glass", "tide")

Answer = Callable[[str, Gen], str | None]
Fault = Callable[[str, Op], Failed | None]


class _Strand:
    def __init__(self, id: int, program: int, seed: int, path: tuple[int, ...], listener: Listener) -> None:
        self.id = id
        self.program = program
        self.seed = seed
        self.path = path
        self.listener = listener
        self.text = ""
        self.base = 0  # where its own text begins
        self.queue: deque[Op | Fork | Join | Close] = deque()
        self.started = True
        self.closed = False
        self.failed: int | None = None  # the op that failed
        self.running: _Running | None = None

    @property
    def idle(self) -> bool:
        return self.closed or (self.started and self.running is None and not self.queue)


class _Running:
    """A gen under way: for each choice, the words still to come and the text so far."""

    def __init__(self, op: Gen, words: list[list[str]], ends: list[tuple[str, str | None]]) -> None:
        self.op = op
        self.words = words
        self.ends = ends
        self.texts = [""] * len(words)
        self.counts = [0] * len(words)


class FakeBackend:
    """``answer(text so far, gen)`` may give a gen's text; ``fault(text so far, op)`` a failure (only its code, field
    and message count). While paused, gens take only the steps that :meth:`allow` gives."""

    def __init__(self, *, answer: Answer | None = None, fault: Fault | None = None) -> None:
        self.answer = answer
        self.fault = fault
        self.actions: list[Action] = []
        self.submissions: list[tuple[Action, ...]] = []
        self.aborts: list[Abort] = []
        self.prompts: list[tuple[str, Op]] = []  # what stood before each gen and select
        self.closed = False
        self._changed = threading.Condition()
        self._inbox: deque[tuple[tuple[Action, ...], Listener] | Abort] = deque()
        self._credit: int | None = None  # None: not paused
        self._next_id = 0
        self._strands: dict[int, _Strand] = {}
        self._texts: dict[tuple[int, int, int], str | None] = {}  # None: failed
        self._thread = threading.Thread(target=self._serve, name="fake-backend", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------ Backend

    def allocate(self) -> int:
        with self._changed:
            self._next_id += 1
            return self._next_id

    def submit(self, actions: Sequence[Action], listener: Listener) -> None:
        with self._changed:
            if self.closed:
                raise BackendClosed("the backend is closed")
            self.actions += actions
            self.submissions.append(tuple(actions))
            self._inbox.append((tuple(actions), listener))
            self._changed.notify_all()

    def abort(self, *, strand: int | None = None, program: int | None = None) -> None:
        with self._changed:
            message = Abort(strand=strand, program=program)
            self.aborts.append(message)
            self._inbox.append(message)
            self._changed.notify_all()

    def info(self) -> Info:
        if self.closed:
            raise BackendClosed("the backend is closed")
        return Info("fake", 4096, 512, 4096, "reference", "cpu", "0", True)

    def close(self) -> None:
        with self._changed:
            self.closed = True
            self._changed.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    # ------------------------------------------------------------ what tests steer and see

    def pause(self) -> None:
        with self._changed:
            self._credit = 0

    def allow(self, steps: int) -> None:
        with self._changed:
            assert self._credit is not None
            self._credit += steps
            self._changed.notify_all()

    def resume(self) -> None:
        with self._changed:
            self._credit = None
            self._changed.notify_all()

    def until(self, condition: Callable[[], bool], timeout: float = 20.0) -> None:
        """Waits until ``condition`` holds; it is looked at after every submission and step."""
        with self._changed:
            assert self._changed.wait_for(condition, timeout)

    def ops(self, kind: type[Any]) -> list[Any]:
        """The ops of a kind, in the order they came."""
        return [
            op for action in self.actions if isinstance(action, Extend) for op in action.ops if isinstance(op, kind)
        ]

    def of(self, kind: type[Any]) -> list[Any]:
        """The actions of a kind."""
        return [action for action in self.actions if isinstance(action, kind)]

    def text_of(self, strand: int) -> str:
        return self._strands[strand].text

    @property
    def open_strands(self) -> int:
        return sum(not strand.closed for strand in self._strands.values())

    # ------------------------------------------------------------ the thread

    def _serve(self) -> None:
        while True:
            with self._changed:
                while not self.closed and not self._inbox and not self._can_step():
                    self._changed.wait()
                if self.closed:
                    break
                inbox, self._inbox = self._inbox, deque()
            for item in inbox:
                if isinstance(item, Abort):
                    self._abort(item)
                else:
                    self._take(*item)
            self._settle()
            if self._can_step():
                self._step()
                self._settle()
            with self._changed:
                self._changed.notify_all()
        listeners = [strand.listener for strand in self._strands.values()]
        listeners += [item[1] for item in self._inbox if not isinstance(item, Abort)]  # accepted, and never begun
        for listener in dict.fromkeys(listeners):
            listener(Lost("shutdown", "the backend was closed"))

    def _can_step(self) -> bool:
        return self._credit != 0 and any(strand.running is not None for strand in self._strands.values())

    def _take(self, actions: tuple[Action, ...], listener: Listener) -> None:
        for action in actions:
            if isinstance(action, Open):
                self._strands[action.strand] = _Strand(action.strand, action.program, action.seed or 0, (), listener)
                continue
            strand = self._strands[action.strand]
            assert not strand.closed or strand.failed is not None, f"{action} after the strand was closed"
            if isinstance(action, Extend):
                strand.queue.extend(action.ops)
            else:
                strand.queue.append(action)
            if isinstance(action, Fork):
                for index, child in enumerate(action.children):
                    path = (*strand.path, action.op, index)
                    made = self._strands[child] = _Strand(child, strand.program, strand.seed, path, listener)
                    made.started = False

    def _abort(self, abort: Abort) -> None:
        for strand in list(self._strands.values()):
            if strand.closed or (strand.id != abort.strand and strand.program != abort.program):
                continue
            if strand.running is not None:
                for choice in range(len(strand.running.words)):
                    strand.running.ends[choice] = ("abort", None)
                    strand.running.words[choice] = []
                self._end_gen(strand)
            for op in strand.queue:
                if not isinstance(op, Close):
                    self._fail(strand, op, "aborted", None, "aborted")
            strand.queue.clear()
            strand.closed = True
            strand.listener(Closed(strand.id))

    def _settle(self) -> None:
        """Everything that takes no step, until nothing more can happen."""
        while sum(self._one_op(strand) for strand in list(self._strands.values())):
            pass

    def _one_op(self, strand: _Strand) -> bool:
        """Whether the strand got on."""
        if not strand.started or strand.running is not None or not strand.queue or strand.closed:
            return False
        op = strand.queue[0]
        if isinstance(op, VarRef) and strand.failed is None:
            key = (op.strand, op.ref_op, op.choice)
            if key not in self._texts:
                return False
        if isinstance(op, Join) and not all(self._strands[child].idle for child in op.children):
            return False
        strand.queue.popleft()
        if isinstance(op, Close):
            strand.closed = True
            strand.listener(Closed(strand.id))
            return True
        if isinstance(op, Fork):
            for child in op.children:
                self._start_child(strand, self._strands[child])
        if strand.failed is not None:
            self._fail(strand, op, "upstream", None, "an earlier op failed")
            return True
        fault = None if self.fault is None or isinstance(op, Fork | Join) else self.fault(strand.text, op)
        if fault is not None:
            self._fail(strand, op, fault.code, fault.field, fault.message)
            return True
        self._run(strand, op)
        return True

    def _start_child(self, parent: _Strand, child: _Strand) -> None:
        child.started = True
        child.text = parent.text
        child.base = len(parent.text)
        child.failed = parent.failed

    def _run(self, strand: _Strand, op: Op | Fork | Join) -> None:
        match op:
            case Text(text=text):
                strand.text += text
            case Ids():
                raise AssertionError("the language sends no ids")
            case VarRef():
                text = self._texts[op.strand, op.ref_op, op.choice]
                if text is None:
                    self._fail(strand, op, "upstream", None, "what it refers to failed")
                else:
                    strand.text += text
            case RoleBegin(role=role):
                self._said(strand, op.op, f"<|im_start|>{role}\n")
            case RoleEnd():
                self._said(strand, op.op, "<|im_end|>\n")
            case Select():
                self.prompts.append((strand.text, op))
                scores = tuple(-self._number(strand, op.op, choice) for choice in op.choices)
                winner = max(range(len(scores)), key=lambda index: scores[index])
                strand.text += op.choices[winner]
                self._texts[strand.id, op.op, 0] = op.choices[winner]
                strand.listener(
                    Done(
                        strand.id,
                        op.op,
                        text=op.choices[winner],
                        scores=scores,
                        winner=winner,
                        choice_logprobs=tuple(
                            (logprob(0, choice, score),) for choice, score in zip(op.choices, scores)
                        ),
                    )
                )
            case Gen():
                self.prompts.append((strand.text, op))
                if op.sampling.logprob_start_len >= 0:
                    read = list(enumerate(re.findall(r"\s*\S+|\s+", strand.text)))[op.sampling.logprob_start_len :]
                    told = tuple(logprob(i, token, -0.5 if i else None) for i, token in read)
                    strand.listener(PromptLogprobs(strand.id, op.op, told[:1], last=False))
                    strand.listener(PromptLogprobs(strand.id, op.op, told[1:], last=True))
                self._begin_gen(strand, op)
            case Fork():
                strand.listener(Done(strand.id, op.op))
            case Join():
                children = [self._strands[child] for child in op.children]
                if op.append:
                    bad = next((child for child in children if child.failed is not None), None)
                    if bad is not None:
                        self._fail(strand, op, "upstream", None, "a branch failed")
                        return
                    strand.text += "".join(child.text[child.base :] for child in children)
                strand.listener(Done(strand.id, op.op))

    def _said(self, strand: _Strand, op: int, text: str) -> None:
        strand.text += text
        self._texts[strand.id, op, 0] = text
        strand.listener(Done(strand.id, op, text=text))

    def _begin_gen(self, strand: _Strand, op: Gen) -> None:
        words, ends = [], []
        for choice in range(op.n):
            text = self._text_for(strand, op, choice)
            matched, cut = None, len(text)
            for stop in op.sampling.stop:
                if 0 <= (at := text.find(stop)) < cut:
                    cut, matched = at, stop
            tokens = re.findall(r"\s*\S+|\s+", text[:cut])
            limit = op.sampling.max_tokens
            if limit is not None and (len(tokens) > limit or limit == 0):
                words.append(tokens[:limit])
                ends.append(("length", None))
            else:
                words.append(tokens)
                ends.append(("stop", matched))
        strand.running = _Running(op, words, ends)
        if not any(words):
            self._end_gen(strand)

    def _text_for(self, strand: _Strand, op: Gen, choice: int) -> str:
        given = None if self.answer is None else self.answer(strand.text, op)
        if given is not None:
            return given
        if op.constraint is not None:
            return sample_constraint(op.constraint)
        seed = op.sampling.seed if op.sampling.seed is not None else (strand.seed, strand.path, op.op)
        state = hashlib.sha256(repr((seed, choice, strand.text)).encode()).digest()
        return "".join(" " + WORDS[byte % len(WORDS)] for byte in state[1 : 4 + state[0] % 6])

    def _number(self, strand: _Strand, op: int, choice: str) -> float:
        digest = hashlib.sha256(repr((strand.text, op, choice)).encode()).digest()
        return int.from_bytes(digest[:4], "little") / 2**32

    def _step(self) -> None:
        with self._changed:
            if self._credit is not None:
                self._credit -= 1
        for strand in list(self._strands.values()):
            running = strand.running
            if running is None:
                continue
            for choice, words in enumerate(running.words):
                if words:
                    word = words.pop(0)
                    running.texts[choice] += word
                    running.counts[choice] += 1
                    if running.op.stream:
                        strand.listener(Delta(strand.id, running.op.op, choice, word))
            if not any(running.words):
                self._end_gen(strand)

    def _end_gen(self, strand: _Strand) -> None:
        running = strand.running
        assert running is not None
        strand.running = None
        op = running.op
        prompt = len(strand.text.split())
        for choice, text in enumerate(running.texts):
            reason, matched = running.ends[choice]
            logprobs = None
            if op.sampling.logprobs:
                tokens = re.findall(r"\s*\S+|\s+", text)
                logprobs = tuple(logprob(i, token, -0.5) for i, token in enumerate(tokens))
            likely = range(op.sampling.top_logprobs if op.sampling.max_tokens == 0 else 0)
            strand.listener(
                Done(
                    strand.id,
                    op.op,
                    choice,
                    reason=reason,  # type: ignore[arg-type]  # one of the three literals, from _begin_gen or _abort
                    matched=matched,
                    text=text,
                    ids=tuple(range(running.counts[choice])),
                    partial=op.constraint is not None and reason == "length",
                    usage=Usage(prompt=prompt, sampled=running.counts[choice], steps=running.counts[choice]),
                    seed=op.sampling.seed if op.sampling.seed is not None else strand.seed,
                    logprobs=logprobs,
                    next_top=tuple(
                        TopLogprob(i, word := WORDS[i % len(WORDS)], word.encode(), -1.0 - i) for i in likely
                    ),
                )
            )
            self._texts[strand.id, op.op, choice] = text
        strand.text += running.texts[0]

    def _fail(self, strand: _Strand, op: Op | Fork | Join, code: str, field: str | None, message: str) -> None:
        cause = strand.failed
        if strand.failed is None:
            strand.failed = op.op
        for choice in range(op.n if isinstance(op, Gen) else 1):
            self._texts[strand.id, op.op, choice] = None
            strand.listener(Failed(strand.id, op.op, choice, code, field, message, cause))


def logprob(token: int, text: str, number: float | None) -> TokenLogprob:
    return TokenLogprob(token, text, text.encode(), number)


def sample_constraint(spec: ConstraintSpec) -> str:
    return sample_regex(spec.pattern) if isinstance(spec, Regex) else _sample_spec(json.loads(spec.source))


def _sample_spec(data: Any) -> str:
    """A short text of a specification's plain data; of a grammar, the one that docs/language.md uses."""
    kind = next(iter(data))
    value = data[kind]
    if kind == "json_schema":
        return json.dumps(_sample_schema(value, value))
    if kind == "seq":
        return "".join(map(_sample_spec, value))
    if kind in ("any_of", "choices"):
        return str(value[0]) if kind == "choices" else _sample_spec(value[0])
    if kind == "repeat":
        return _sample_spec(value) * data["min"]
    return {"regex": sample_regex, "literal": str}.get(kind, lambda value: "1 + 1")(value)


def _sample_schema(schema: Any, root: Any) -> Any:
    if schema is True or not schema:
        return None
    if "$ref" in schema:
        return _sample_schema(root["$defs"][schema["$ref"].rsplit("/", 1)[1]], root)
    if "enum" in schema:
        return schema["enum"][0]
    if "anyOf" in schema:
        return _sample_schema(schema["anyOf"][0], root)
    if "properties" in schema:
        return {name: _sample_schema(part, root) for name, part in schema["properties"].items()}
    samples = {"array": [], "object": {}, "string": "word", "integer": 7, "number": 0.5, "boolean": True, "null": None}
    least = {"integer": "minimum", "string": "formatMinimum"}.get(schema["type"])
    return schema.get(least, samples[schema["type"]])


def sample_regex(pattern: str) -> str:
    """A short text that matches ``pattern``."""
    return _sample(sre_parser.parse(pattern))


def _sample(items: Any) -> str:
    return "".join(_sample_one(kind, value) for kind, value in items)


def _sample_one(kind: Any, value: Any) -> str:
    if kind is sre.LITERAL:
        return chr(value)
    if kind is sre.ANY:
        return "a"
    if kind is sre.NOT_LITERAL:
        return "a" if value != ord("a") else "b"
    if kind is sre.IN:
        return _sample_class(value)
    if kind is sre.BRANCH:
        return _sample(value[1][0])
    if kind is sre.SUBPATTERN:
        return _sample(value[3])
    if kind in (sre.MAX_REPEAT, sre.MIN_REPEAT):
        low, high, inner = value
        return _sample(inner) * max(low, min(1, int(high)))
    if kind is sre.AT:
        return ""
    raise ValueError(f"cannot sample {kind}")


def _sample_class(items: Any) -> str:
    negated = items[0][0] is sre.NEGATE
    for char in "aA1 -_.\n,;":
        if any(_in_item(char, kind, value) for kind, value in items if kind is not sre.NEGATE) != negated:
            return char
    for kind, value in items:
        if kind is sre.LITERAL and not negated:
            return chr(value)
        if kind is sre.RANGE and not negated:
            return chr(value[0])
    raise ValueError("an empty class")


def _in_item(char: str, kind: Any, value: Any) -> bool:
    if kind is sre.LITERAL:
        return ord(char) == value
    if kind is sre.RANGE:
        return bool(value[0] <= ord(char) <= value[1])
    matching = {sre.CATEGORY_DIGIT: r"\d", sre.CATEGORY_WORD: r"\w", sre.CATEGORY_SPACE: r"\s"}
    return re.fullmatch(matching[value], char) is not None
