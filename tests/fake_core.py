"""A core without a model: it executes scripts in this process, with a seeded hash of the ids for a model.

``FakeWorld`` outlives epochs and holds the knobs; ``world.link`` is the front's LinkFactory. Each step gives every
running strand one token and sends one frame, like the real core. What a strand samples depends on nothing but its
ids, seed, choice and position, so a replay must give the same text.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from tiny_model import make_tiny_model

from plait.runtime import wire
from plait.runtime.errors import ModelError
from plait.runtime.front.front import Front
from plait.runtime.front.link import CoreItem, OnDeath, OnEvents
from plait.runtime.front.settings import ServedModel
from plait.runtime.protocol import FrontMessage, Usage
from plait.runtime.tokenizer import Tokenizer


def tiny_tokenizer(folder: Path, *, add_bos: bool = False) -> tuple[Tokenizer, str]:
    """The tiny model's tokenizer and its chat template."""
    make_tiny_model(folder)
    data = json.loads((folder / "tokenizer.json").read_text())
    config = json.loads((folder / "tokenizer_config.json").read_text())
    template = config.get("chat_template") or (folder / "chat_template.jinja").read_text()
    tokenizer = Tokenizer(data, size=512, bos_id=0, eos_ids=(2,), add_bos=add_bos)
    return tokenizer, template


@dataclass
class FakeStrand:
    sid: int
    namespace: str = ""
    ids: list[int] | None = None
    ops: deque[wire.CoreOp] = field(default_factory=deque)
    closing: bool = False
    out: list[int] = field(default_factory=list)  # of the running sample
    held: bytes = b""
    released: int = 0  # bytes of the running sample
    usage: Usage | None = None
    recomputed: int = 0
    steps: int = 0
    resumed: int = 0  # tokens of the running sample that an earlier core sampled
    read: int = 0  # of the running ScorePrompt


@dataclass
class FakeWorld:
    """``die(event)`` is asked before each event is sent; True kills the core there: that event is lost.
    ``next_id`` overrides the model: (strand's ids, position in the op) -> id or None. ``hold``: steps only run when
    the test calls :meth:`FakeCore.step`. ``deaths``: how often on_death is called (it must count once)."""

    tokenizer: Tokenizer
    context_length: int = 512
    eos_every: int = 0  # 1 in so many tokens ends the gen; 0: never
    die: Callable[[wire.CoreEvent], bool] | None = None
    next_id: Callable[[list[int], int], int | None] | None = None
    hold: bool = False
    deaths_reported: int = 1
    fail_starts: int = 0
    start_error: Exception = field(default_factory=lambda: ModelError("the fake model is broken"))
    pools: list[int] = field(default_factory=list)  # KV slots of the next cores; then 4096
    stillborn: int = 0  # cores that die between their Ready and its being heard
    fail_op: Callable[[wire.CoreOp], str | wire.OpFailed | None] | None = None
    epochs: list[FakeCore] = field(default_factory=list)
    frames: list[tuple[CoreItem, ...]] = field(default_factory=list)  # everything every core was sent
    seen: list[list[int]] = field(default_factory=list)  # of the present epoch: for cached counts

    def link(self) -> FakeCore:
        core = FakeCore(self)
        self.epochs.append(core)
        self.seen = []
        return core

    @property
    def core(self) -> FakeCore:
        return self.epochs[-1]

    def sent(self, kind: type) -> list[CoreItem]:
        return [item for frame in self.frames for item in frame if isinstance(item, kind)]

    def ops(self, kind: type) -> list[wire.CoreOp]:
        return [op for item in self.sent(wire.ExtendStrand) for op in item.ops if isinstance(op, kind)]


class FakeCore:
    """A CoreLink."""

    def __init__(self, world: FakeWorld) -> None:
        self.world = world
        self.strands: dict[int, FakeStrand] = {}
        self.payloads: dict[str, bytes] = {}
        self.opened: set[int] = set()
        self.dead = False
        self.steps = 0
        self._scheduled = False

    @property
    def pid(self) -> int | None:
        return None

    async def start(self, on_events: OnEvents, on_death: OnDeath) -> wire.Ready:
        self._on_events, self._on_death = on_events, on_death
        if self.world.fail_starts:
            self.world.fail_starts -= 1
            raise self.world.start_error
        size = self.world.tokenizer.size
        if self.world.stillborn:
            self.world.stillborn -= 1
            self.kill("died with its Ready still unread")
        slots = self.world.pools.pop(0) if self.world.pools else 4096
        notes = (f"a pool of {slots}",) if slots < 4096 else ()
        return wire.Ready(slots, size, self.world.context_length, "reference", "fake", "reference", notes)

    def send(self, items: Sequence[CoreItem]) -> None:
        if self.dead:
            return
        # Through the codec, as the real link does: a wrong type must show here.
        items = wire.decode_to_core(wire.encode(wire.ToCore(items=tuple(items)))).items
        self.world.frames.append(items)
        for item in items:
            self._take(item)
        if not self.world.hold:
            self._schedule()

    async def close(self) -> None:
        self.dead = True

    def kill(self, cause: str = "was killed by SIGKILL") -> None:
        if not self.dead:
            self.dead = True
            for _ in range(self.world.deaths_reported):
                self._on_death(cause)

    # ------------------------------------------------------------ scripts

    def _take(self, item: CoreItem) -> None:
        match item:
            case wire.OpenStrand():
                assert item.sid not in self.strands
                self.opened.add(item.sid)
                self.strands[item.sid] = FakeStrand(item.sid, item.namespace, ids=[])
            case wire.ExtendStrand():
                strand = self.strands[item.sid]
                assert not strand.closing
                for op in item.ops:
                    strand.ops.append(op)
                    if isinstance(op, wire.ForkAt):
                        for sid in op.children:
                            assert sid not in self.strands
                            self.strands[sid] = FakeStrand(sid, strand.namespace)
            case wire.CloseStrand():
                self.strands[item.sid].closing = True
            case wire.AbortStrand():
                self._abort(item.sid)
            case wire.Define():
                assert item.key not in self.payloads
                self.payloads[item.key] = item.payload
            case wire.Forget():
                del self.payloads[item.key]
            case wire.Stop():
                self.dead = True

    def _abort(self, sid: int) -> None:
        strand = self.strands.pop(sid, None)
        if strand is None:
            return
        while strand.ids is not None and strand.ops and isinstance(strand.ops[0], wire.Append):
            strand.ids += strand.ops.popleft().ids  # type: ignore[union-attr] # an Append
        first = strand.ops[0] if strand.ops else None
        if isinstance(first, wire.Sample) and strand.usage is None and first.resume_usage is not None:
            strand.usage, strand.out = first.resume_usage, list(first.resume_ids)
            strand.released = len(self._free(strand, first)[0])
        if strand.usage is not None and isinstance(strand.ops[0], wire.Sample):
            self._emit([self._end(strand, strand.ops[0], "abort", None)])
        self._drop_children(strand)

    def _drop_children(self, strand: FakeStrand) -> None:
        for op in strand.ops:
            for sid in op.children if isinstance(op, wire.ForkAt) else ():
                child = self.strands.pop(sid, None)
                if child is not None:
                    self._drop_children(child)

    # ------------------------------------------------------------ steps

    def _schedule(self) -> None:
        if not self._scheduled and not self.dead:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        if not self.dead and self.step() and not self.world.hold:
            self._schedule()

    def step(self) -> bool:
        """One step of all strands; False when there is nothing to do."""
        self.steps += 1
        events: list[wire.CoreEvent] = []
        for strand in list(self.strands.values()):
            if strand.ids is not None:
                events += self._advance(strand)
        self._emit(events)
        return any(strand.ops and strand.ids is not None for strand in self.strands.values())

    def _emit(self, events: list[wire.CoreEvent]) -> None:
        if self.dead or not events:
            return
        for at, event in enumerate(events):
            if self.world.die is not None and self.world.die(event):
                if at:
                    self._deliver(events[:at])
                self.kill()
                return
        self._deliver(events)

    def _deliver(self, events: list[wire.CoreEvent]) -> None:
        self._on_events(wire.decode_to_front(wire.encode(wire.ToFront(events=tuple(events)))).events)

    def _advance(self, strand: FakeStrand) -> list[wire.CoreEvent]:
        events: list[wire.CoreEvent] = []
        assert strand.ids is not None
        while strand.ops:
            op = strand.ops[0]
            reason = self.world.fail_op(op) if self.world.fail_op is not None else None
            if reason is not None:
                self._drop_children(strand)
                del self.strands[strand.sid]
                if isinstance(reason, wire.OpFailed):
                    return [*events, msgspec.structs.replace(reason, sid=strand.sid)]
                return [*events, wire.OpFailed(strand.sid, op.op, getattr(op, "choice", 0), "internal", reason)]
            if isinstance(op, wire.Sample):
                more = self._sample(strand, op)
                events += more
                if not isinstance(more[-1], wire.Ended):
                    return events
                continue
            if isinstance(op, wire.ScorePrompt):
                events.append(self._score_prompt(strand, op))
                if events[-1].usage is None:
                    return events
                continue
            strand.ops.popleft()
            if isinstance(op, wire.Append):
                strand.ids += op.ids
            elif isinstance(op, wire.ForkAt):
                usage = self._prompt(strand)
                self.world.seen.append(list(strand.ids))
                for sid in op.children:
                    if sid in self.strands:
                        self.strands[sid].ids = list(strand.ids)
                events.append(wire.Forked(strand.sid, op.op, usage))
            else:
                winner = _hash(strand.ids, op.choices) % len(op.choices)
                usage = self._prompt(strand)
                strand.ids += op.choices[winner]
                scores = tuple(-1.0 if at == winner else -2.0 for at in range(len(op.choices)))
                numbers = tuple(tuple(-token / 100 for token in choice) for choice in op.choices)
                events.append(wire.Scored(strand.sid, op.op, winner, scores, usage, numbers))
        if strand.closing:
            del self.strands[strand.sid]
        return events

    def _score_prompt(self, strand: FakeStrand, op: wire.ScorePrompt) -> wire.PromptScored:
        """Three numbers a step."""
        assert strand.ids is not None
        ids = strand.ids[op.start :]
        numbers = tuple(
            wire.CorePromptLogprob(token, -token / 100 if op.start + at else None, 1, ((token, -0.5),) * min(op.top, 1))
            for at, token in enumerate(ids)
        )[strand.read : strand.read + 3]
        strand.read += 3
        if strand.read < len(ids):
            return wire.PromptScored(strand.sid, op.op, numbers)
        strand.read = 0
        strand.ops.popleft()
        usage = self._prompt(strand)
        self.world.seen.append(list(strand.ids))
        return wire.PromptScored(strand.sid, op.op, numbers, usage)

    def _prompt(self, strand: FakeStrand) -> Usage:
        assert strand.ids is not None
        best = 0
        for other in self.world.seen:
            same = 0
            for a, b in zip(strand.ids, other):
                if a != b:
                    break
                same += 1
            best = max(best, same)
        return Usage(prompt=len(strand.ids), cached=max(0, min(best, len(strand.ids) - 1)))

    def _sample(self, strand: FakeStrand, op: wire.Sample) -> list[wire.CoreEvent]:
        assert strand.ids is not None
        events: list[wire.CoreEvent] = []
        if strand.usage is None:
            assert strand.ids, "the core never samples without an id"
            strand.usage = op.resume_usage or self._prompt(strand)
            if op.resume_usage is not None:
                strand.recomputed = len(strand.ids) + len(op.resume_ids)
            strand.out, strand.released, strand.steps = list(op.resume_ids), 0, 0
            strand.released = len(self._free(strand, op)[0])
            strand.resumed = len(strand.out)
            events.append(wire.Started(strand.sid, op.op, op.choice, strand.usage))
            match = self._free(strand, op)[1]  # an earlier epoch may have died between the last token and the end
            if match is not None:
                return [*events, self._end(strand, op, "stop", match.decode())]
            if len(strand.out) >= op.params.max_tokens:
                return [*events, self._end(strand, op, "length", None)]
        token = self._next(strand, op)
        if token is None:
            return [*events, self._end(strand, op, "stop", None)]
        strand.steps += 1
        if token in op.params.stop_ids:
            return [*events, self._end(strand, op, "stop", token)]
        strand.out.append(token)
        free, match = self._free(strand, op)
        data, strand.released = free[strand.released :], len(free)
        settled = len(strand.out) - 1
        logprobs = (self._logprob(token, op),) if op.params.logprobs else ()
        events.append(wire.Tokens(strand.sid, op.op, op.choice, (token,), data, settled, logprobs))
        if match is not None:
            events.append(self._end(strand, op, "stop", match.decode()))
        elif len(strand.out) >= op.params.max_tokens:
            events.append(self._end(strand, op, "length", None))
        return events

    def _next(self, strand: FakeStrand, op: wire.Sample) -> int | None:
        position = len(strand.out)
        assert strand.ids is not None
        if op.constraint is not None:
            text = self.payloads[op.constraint].decode("utf-8", "replace")
            ids = self.world.tokenizer.encode(text, special=False)
            return ids[position] if position < len(ids) else None
        if self.world.next_id is not None:
            return self.world.next_id(strand.ids + strand.out, position)
        seed = (op.params.seed, op.choice) if op.params.temperature else ()
        number = _hash(strand.ids, strand.out, seed)
        if self.world.eos_every and number % self.world.eos_every == 0 and op.params.stop_ids:
            return op.params.stop_ids[0]
        return 3 + number % (self.world.tokenizer.size - 3)

    def _free(self, strand: FakeStrand, op: wire.Sample) -> tuple[bytes, bytes | None]:
        """(bytes that may be shown, the stop that matched)."""
        data = self.world.tokenizer.vocabulary.decode(strand.out)
        ends = [(data.find(stop) + len(stop), stop) for stop in op.params.stop if stop in data]
        if ends:
            end, stop = min(ends)
            return data[: end - len(stop)], stop
        hold = 0
        for stop in op.params.stop:
            for size in range(len(stop) - 1, 0, -1):
                if data.endswith(stop[:size]):
                    hold = max(hold, size)
        return data[: len(data) - hold], None

    def _end(self, strand: FakeStrand, op: wire.Sample, reason: str, matched: str | int | None) -> wire.Ended:
        assert strand.usage is not None and strand.ids is not None
        vocabulary = self.world.tokenizer.vocabulary
        data = vocabulary.decode(strand.out)
        ids, tail = list(strand.out), []
        known = [
            wire.CoreLogprob(i, None) if at < strand.resumed else self._logprob(i, op)
            for at, i in enumerate(strand.out)
        ]
        if isinstance(matched, str):
            text = self._free(strand, op)[0]
            ids = []
            for token in strand.out:
                if len(vocabulary.decode([*ids, token])) > len(text):
                    break
                ids.append(token)
            tail = vocabulary.encode(text[len(vocabulary.decode(ids)) :])
            data = text
        logprobs = (*known[: len(ids)], *(known[len(ids)].cut_to(tail) if tail else ()))
        usage = msgspec.structs.replace(
            strand.usage, sampled=len(strand.out), recomputed=strand.recomputed, steps=strand.steps
        )
        event = wire.Ended(
            strand.sid,
            op.op,
            op.choice,
            reason,  # type: ignore[arg-type] # a Reason
            tuple(ids + tail),
            data[strand.released :],
            len(tail),
            matched,
            False,
            usage,
            logprobs if op.params.logprobs else None,
            self._logprob(matched, op) if op.params.logprobs and isinstance(matched, int) else None,
            ((7, -0.25),) if not op.params.max_tokens and op.params.top_logprobs else (),
        )
        strand.ids += ids + tail
        self.world.seen.append(list(strand.ids))
        strand.usage, strand.recomputed = None, 0
        if strand.ops:
            strand.ops.popleft()
        return event

    def _logprob(self, token: int, op: wire.Sample) -> wire.CoreLogprob:
        return wire.CoreLogprob(token, -token / 100, False, ((token, -0.5),) * min(op.params.top_logprobs, 1))


def _hash(*parts: object) -> int:
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "little")


# ---------------------------------------------------------------- a front on it, and a client that listens


class Client:
    """A session of a front, with everything it was told."""

    def __init__(self, front: Front, name: str = "client") -> None:
        self.messages: list[FrontMessage] = []
        self.events: list[object] = []
        self._news = asyncio.Event()
        self.front = front
        self.session = front.open_session(self._deliver, name)

    def _deliver(self, message: FrontMessage) -> None:
        self.messages.append(message)
        self.events += getattr(message, "events", ())
        self._news.set()

    async def until(self, enough: Callable[[Client], bool]) -> None:
        async with asyncio.timeout(10):
            while not enough(self):
                self._news.clear()
                await self._news.wait()


def served(tokenizer: Tokenizer, template: str | None, context_length: int = 512) -> ServedModel:
    return ServedModel("tiny", tokenizer, tokenizer.size, context_length, template)
