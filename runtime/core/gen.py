"""A Sample at work: takes tokens one at a time, sampled or forced, and knows when and how it ends.

::

    ids of the op   t0 t1 t2 t3 t4 | pending forced ids
    bytes           ----------------
                    released | held back by the stop scanner
    on the wire     out ........ new since the last Tokens frame

Everything here is a function of (params, seed, constraint, the ids so far); :meth:`Gen.replay` relies on that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from ...constrained.interface import Constraint, Matcher
from ...constrained.jump import settled_prefix
from ...radix import SlotPool
from ..protocol import Reason
from ..wire import CoreLogprob, Ended, Sample, Started, Tokens
from .account import Account
from .batch import IntArray, Op, Segment
from .kit import Kit, OpError
from .prefill import prefill
from .sampler import Sampled, SamplerRow
from .stops import StopScanner, cut_tokens
from .strand import Strand


@dataclass(frozen=True, slots=True)
class End:
    """``start``: where a stop string begins, in bytes from the op's first; -1 when nothing is cut."""

    reason: Reason
    matched: str | int | None = None
    start: int = -1


class Gen(Op):
    """One Sample. ``end`` is set once it is over; then :meth:`finish` settles the strand's ids."""

    def __init__(self, strand: Strand, request: Sample, constraint: Constraint | None, kit: Kit) -> None:
        seq = strand.seq
        if not seq.n:
            raise OpError("invalid_value", "there is nothing to continue: the prompt holds no tokens", "prompt")
        if seq.n > kit.context_length:
            raise OpError(
                "context_length",
                f"the prompt of {seq.n} tokens does not fit the model's context of {kit.context_length}",
                "prompt",
            )
        self.strand = strand
        self.op = request.op
        self.choice = request.choice
        self.params = request.params
        self.end: End | None = None
        self.account = Account(kit.clock)
        self._kit = kit
        self._base = seq.n
        self._limit = min(request.params.max_tokens, kit.context_length - seq.n)
        self._matcher: Matcher | None = None if constraint is None else constraint.matcher()
        self._scanner = StopScanner(request.params.stop) if request.params.stop else None
        self._row = SamplerRow(request.params, seq.ids, choice=request.choice)
        self._stop_ids = frozenset(request.params.stop_ids)
        self._pieces: list[bytes] = []
        self._ends: list[int] = []  # bytes up to the end of each token
        self._pending: deque[int] = deque()  # forced, settled, not yet appended
        self._released = 0  # bytes
        self._settled = 0  # tokens that end within the released bytes
        self._sent = 0  # tokens on the wire
        self._data = bytearray()  # released, not yet on the wire
        self._logprobs: list[CoreLogprob] = []
        self._started: Started | None = None
        if self._limit > 0:
            self._jump()
            self._replay(request)
            self._drain()
            if self.end is None and self._matcher is not None and self._matcher.finished:
                self.end = End("stop")  # the language holds nothing but the empty string

    # ------------------------------------------------------------ Op

    def rows(self) -> int:
        return self.strand.seq.n - self.strand.seq.kv_len

    def need(self) -> int:
        return self.rows()

    def growth(self) -> int:
        return max(0, self._limit - len(self._pieces) - 1)

    def schedule(self, rows: int, pool: SlotPool) -> list[Segment]:
        wanted = 1 if self._limit > 0 and rows == self.rows() else 0
        return [prefill(self, self.account, rows, pool, wanted)]

    def retract(self) -> None:
        self.account.lose(self.strand.seq.kv_len)

    def held(self) -> list[IntArray]:
        return []

    # ------------------------------------------------------------ one turn

    def admitted(self, cached: int) -> bool:
        """The first admission fixes the prompt accounting. True if this was it."""
        if not self.account.start(self._base, min(cached, self._base)):
            return False
        self._started = Started(self.strand.sid, self.op, self.choice, self.account.usage())
        return True

    def computed(self) -> None:
        """A forward without logits for us is over: a prefill-only gen ends when all ids have KV."""
        if self._limit <= 0 and not self.rows():
            self.end = End("length")

    @property
    def forced_next(self) -> int | None:
        """With logprobs, forced ids wait for the logits that score them; this is the one whose logits are here."""
        return self._pending[0] if self._pending else None

    def row(self) -> SamplerRow:
        """What the sampler needs to pick our next token."""
        self._row.mask = None if self._matcher is None else self._matcher.mask()
        return self._row

    def pick(self, sampled: Sampled) -> None:
        """Take what the sampler picked, and then whatever the constraint forces after it."""
        forced = bool(self._pending)
        if forced:
            self._pending.popleft()
        self._take(sampled.id, forced, sampled.logprob, sampled.top)
        if self.end is None and not self._pending:
            self._jump()
            self._drain()

    def abort(self) -> None:
        self.end = End("abort")

    # ------------------------------------------------------------ what goes out

    def outgoing(self) -> list[Started | Tokens]:
        """Started once, and what is new since the last call."""
        events: list[Started | Tokens] = []
        if self._started is not None:
            events.append(self._started)
            self._started = None
        if self._sent < len(self._pieces) or self._data:
            while self._settled < len(self._ends) and self._ends[self._settled] <= self._released:
                self._settled += 1
            events.append(
                Tokens(
                    sid=self.strand.sid,
                    op=self.op,
                    choice=self.choice,
                    ids=tuple(self.strand.seq.ids[self._base + self._sent :].tolist()),
                    data=bytes(self._data),
                    settled=self._settled,
                    logprobs=tuple(self._logprobs[self._sent :]) if self.params.logprobs else (),
                )
            )
            self._sent = len(self._pieces)
            self._data.clear()
        return events

    def finish(self) -> Ended:
        """Cut or complete the strand's ids; the answer. Call :meth:`outgoing` before."""
        end = self.end
        assert end is not None
        seq = self.strand.seq
        kept, leftover, data = len(self._pieces), b"", b""
        if end.start >= 0:
            kept, leftover = cut_tokens(self._pieces, end.start)
            seq.cut(self._base + kept)
        elif self._scanner is not None:
            data = self._scanner.flush()
        tail = self._kit.vocabulary.encode(leftover) if leftover else []
        seq.append(tail)
        logprobs: tuple[CoreLogprob, ...] | None = None
        if self.params.logprobs:
            logprobs = (*self._logprobs[:kept], *(CoreLogprob(token, None) for token in tail))
        return Ended(
            sid=self.strand.sid,
            op=self.op,
            choice=self.choice,
            reason=end.reason,
            ids=tuple(seq.ids[self._base :].tolist()),
            data=data,
            tail=len(tail),
            matched=end.matched,
            partial=self._partial(kept, leftover),
            usage=self.account.usage(),
            logprobs=logprobs,
        )

    def _partial(self, kept: int, leftover: bytes) -> bool:
        """The text ends before the constraint accepts."""
        matcher = self._matcher
        if matcher is None:
            return False
        matcher.rollback(len(self._pieces) - kept)
        if leftover and not matcher.advance_bytes(leftover):
            return True
        return not matcher.accepting

    # ------------------------------------------------------------ inside

    def _take(self, token: int, forced: bool, logprob: float | None, top: Sequence[tuple[int, float]] = ()) -> None:
        self.account.token(forced=forced)
        if token in self._stop_ids or (self._matcher is not None and token in self._kit.vocabulary.eos_ids):
            self.end = End("stop", token)
            return
        if self._matcher is not None and not self._matcher.advance(token):
            raise OpError("internal", f"token {token} does not fit the constraint that allowed it")
        piece = self._kit.vocabulary.bytes(token)
        self.strand.seq.push(token)
        self._row.observe(token)
        self._pieces.append(piece)
        self._ends.append((self._ends[-1] if self._ends else 0) + len(piece))
        if self.params.logprobs:
            self._logprobs.append(CoreLogprob(token, logprob, forced, tuple(top)))
        if self._scanner is None:
            self._release(piece)
        else:
            released, match = self._scanner.feed(piece)
            self._release(released)
            if match is not None:
                self.end = End("stop", match.stop.decode("utf-8", "replace"), match.start)
                return
        if self._matcher is not None and self._matcher.finished:
            self.end = End("stop")
        elif len(self._pieces) >= self._limit:
            self.end = End("length")

    def _release(self, data: bytes) -> None:
        self._data += data
        self._released += len(data)

    def _jump(self) -> None:
        """Queue the settled ids of a forced run that starts here."""
        if self._matcher is None:
            return
        run = self._matcher.forced()
        if run:
            ids, _ = settled_prefix(self._matcher, self._kit.vocabulary, run)
            self._pending.extend(ids)

    def _drain(self) -> None:
        """Append what is forced, up to a stop or max_tokens. With logprobs each waits for its logits instead."""
        if self.params.logprobs:
            return
        while self._pending and self.end is None:
            self._take(self._pending.popleft(), True, None)

    def _replay(self, request: Sample) -> None:
        """Go over what an earlier epoch sampled, as it did, and emit nothing for it."""
        if not request.resume_ids and request.resume_usage is None:
            return
        for token in request.resume_ids:
            if self.end is not None:
                break
            forced = bool(self._pending) and self._pending[0] == token
            if forced:
                self._pending.popleft()
            else:
                self._pending.clear()
            self._take(token, forced, None)
            if self.end is None and not self._pending:
                self._jump()
        self.account.resume(request.resume_usage, self.strand.seq.n - 1)
        self._sent = len(self._pieces)
        self._data.clear()
