"""A Sample at work: takes tokens one at a time, sampled or forced, and knows when and how it ends.

::

    ids of the op   t0 t1 t2 t3 t4 | pending forced ids
    bytes           ----------------
                    released | held back by the stop scanner
    on the wire     out ........ new since the last Tokens frame

What a gen says is a function of (params, seed, constraint, the ids so far); a replay relies on that. In how many
forwards also hangs on its drafts (:mod:`.speculation`).

What a constraint allows next may take long to find out. :meth:`Gen.prepare` does that in slices; until it is done the
gen is not :attr:`Gen.ready`: it may compute its prompt, but its last row, whose logits need the mask, sits out.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from ...constrained.interface import ConstraintError, Matcher, Unfinished
from ...constrained.jump import settled_prefix
from ...radix import SlotPool
from ..protocol import Reason
from ..wire import CoreLogprob, Ended, Sample, Started, Tokens
from .account import Account
from .batch import IntArray, Op, Segment
from .closing import END, Closing
from .constraints import Defined
from .ending import End, draws_freely, fits, mask_of, natural_end
from .kit import Kit, OpError
from .logprobs import Top, log_normalizer, logprob, top_of
from .prefill import prefill
from .sampler import Row, Sampled, SamplerRow
from .speculation import Speculation
from .stops import Match, StopScanner, cut_tokens
from .strand import Strand


class Gen(Op):
    """One Sample. ``end`` is set once it is over; then :meth:`finish` settles the strand's ids."""

    def __init__(self, strand: Strand, request: Sample, constraint: Defined | None, kit: Kit) -> None:
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
        self._constraint = constraint
        self._matcher: Matcher | None = None  # once the constraint is built
        wrap_up = constraint is not None and request.params.wrap_up is not False
        self._closing = Closing(kit.vocabulary, self._limit) if wrap_up else None
        self._drawn: Sampled | None = None  # not yet taken, see pick
        self._free = False  # what is drawn next is held to no mask
        self.ahead = Speculation(seq, kit.vocabulary, scored=request.params.logprobs)
        stops, patterns = request.params.stop, request.params.stop_regex
        self._scanner = StopScanner(stops, patterns) if stops or patterns else None
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
        self._last: CoreLogprob | None = None  # of the draw that ended it, which is no token of the text
        self._next_top: Top = ()
        self._started: Started | None = None
        self._known = constraint is None or self._limit <= 0  # what may come next
        self._again: deque[int] = deque()  # sampled by an earlier epoch, still to be gone over
        if self._limit > 0 and (request.resume_ids or request.resume_usage is not None):
            self._again.extend(request.resume_ids)
            self.account.wrapped = 0 if request.resume_usage is None else request.resume_usage.wrapped
            self._resumes: Sample | None = request
        else:
            self._resumes = None

    # ------------------------------------------------------------ Op

    def rows(self) -> int:
        left = self.need()
        return left if self.ready or self._limit <= 0 else max(0, left - 1)

    def need(self) -> int:
        return self.strand.seq.n - self.strand.seq.kv_len

    def growth(self) -> int:
        return max(0, self._limit - len(self._pieces) - 1)

    def schedule(self, rows: int, pool: SlotPool) -> list[Segment]:
        wanted = (self._limit > 0 or self.peeks) and rows == self.need()
        return [prefill(self, self.account, rows, pool, wanted=wanted)]

    def retract(self) -> None:
        self.account.lose(self.strand.seq.kv_len)
        self.ahead.forget()

    def held(self) -> list[IntArray]:
        return [self.ahead.slots] if len(self.ahead.slots) else []

    # ------------------------------------------------------------ one turn

    def admitted(self, cached: int) -> bool:
        """The first admission fixes the prompt accounting. True if this was it."""
        if not self.account.start(self._base, min(cached, self._base)):
            return False
        self._started = Started(self.strand.sid, self.op, self.choice, self.account.usage())
        return True

    @property
    def peeks(self) -> bool:
        """Nothing may come, and what would come next is asked for."""
        return self._limit <= 0 and self.params.top_logprobs > 0

    def peek(self, row: Row) -> None:
        """``row``: the logits after the last id. Raises OpError if they are not finite."""
        self._next_top = top_of(row, log_normalizer(row), self.params.top_logprobs)
        if not self._next_top:
            raise OpError("internal", "the logits hold NaN")

    def computed(self) -> None:
        """A forward without logits for us is over: a prefill-only gen ends when all ids have KV."""
        if self._limit <= 0 and not self.need():
            self.end = End("length")

    @property
    def undrafted(self) -> bool:
        """:meth:`propose` may find something."""
        return self._matcher is not None and not self.ahead.proposed and not self.ahead.off

    def propose(self, seconds: float) -> None:
        """Draft what most likely comes next, for up to about ``seconds``."""
        assert self._matcher is not None
        before = self._pieces[-1] if self._pieces else b""
        left = self._limit - len(self._pieces)
        self.ahead.propose(self._matcher, before, tuple(self._pending), left, seconds)

    def next_row(self) -> int | None:
        """Which row of its logits of this step's forward is the next to draw from; None: it needs another forward."""
        return self.ahead.next_row() if self.end is None and self.ready else None

    @property
    def forced_next(self) -> int | None:
        """With logprobs, forced ids wait for the logits that score them; this is the one whose logits are here."""
        return self._pending[0] if self._pending else None

    def row(self) -> SamplerRow:
        """What the sampler needs to pick our next token."""
        matcher, row = self._matcher, self._row
        if matcher is not None:
            self._free = draws_freely(matcher, self.params, len(self._pieces), self._size)
            row.mask = None if self._free else mask_of(matcher, self.params, self._kit.vocabulary)
        return row

    def pick(self, sampled: Sampled) -> None:
        """Take what the sampler picked. What the constraint forces after it comes with :meth:`prepare`; so does the
        token itself where it may have to give way to the end of the text."""
        if self._pending:
            self._pending.popleft()
            self._take(sampled.id, True, sampled.logprob, sampled.top)
        elif self._closing is None or self._matcher is None or sampled.id in self._kit.vocabulary.eos_ids:
            self._take(sampled.id, False, sampled.logprob, sampled.top)
        else:
            self._drawn = sampled.kept()

    @property
    def ready(self) -> bool:
        """Nothing is left for :meth:`prepare` to do."""
        return self.end is not None or (
            self._drawn is None
            and self._known
            and self._resumes is None
            and (not self._pending or self.params.logprobs)
        )

    def prepare(self, seconds: float | None = None) -> bool:
        """Work for up to about ``seconds`` (None: to the end) on what may come next, and take what is forced.

        True once the gen is :attr:`ready`. Raises OpError where the constraint exceeds a limit.
        """
        until = None if seconds is None else time.monotonic() + seconds
        while self.end is None:
            if self._drawn is not None:
                if not self._decide(self._drawn, until):
                    return False
            elif not self._known:
                if not self._look(until):
                    return False
            elif self._again:
                self._take_again(self._again.popleft())
            elif self._resumes is not None:
                self._resumed()
            elif self._pending and not self.params.logprobs:
                self._take(self._pending.popleft(), True, None)
            else:
                return True
        self._resumed()
        return True

    def abort(self) -> None:
        if self._resumes is not None:
            self.prepare()  # what an earlier epoch said is part of the text
        self.end = End("abort")

    # ------------------------------------------------------------ what goes out

    def outgoing(self) -> list[Started | Tokens]:
        """Started once, and what is new since the last call."""
        events: list[Started | Tokens] = []
        if self._started is not None:
            events.append(self._started)
            self._started = None
        if self._resumes is not None:
            return events  # an earlier epoch said it all
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
                    wrapped=self.account.wrapped,
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
        vocabulary = self._kit.vocabulary
        kept, tail, data = len(self._pieces), end.tail, b""
        if end.start >= 0:
            kept, leftover = cut_tokens(self._pieces, end.start)
            seq.cut(self._base + kept)
            tail = tuple(vocabulary.encode(leftover))
        else:
            leftover = vocabulary.decode(tail)
            data = leftover if self._scanner is None else self._scanner.flush() + leftover
        seq.append(tail)
        logprobs: tuple[CoreLogprob, ...] | None = None
        if self.params.logprobs:
            cut = self._logprobs[kept] if kept < len(self._logprobs) else self._last
            logprobs = (*self._logprobs[:kept], *(cut.cut_to(tail) if cut is not None else ()))
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
            end=self._last if isinstance(end.matched, int) else None,
            next_top=self._next_top,
        )

    def _partial(self, kept: int, leftover: bytes) -> bool:
        """The text ends before the constraint accepts."""
        matcher = self._matcher
        if matcher is None:
            return self._constraint is not None
        matcher.rollback(len(self._pieces) - kept)
        if leftover and not matcher.advance_bytes(leftover):
            return True
        return not matcher.accepting

    # ------------------------------------------------------------ inside

    def _take(self, token: int, forced: bool, logprob: float | None, top: Sequence[tuple[int, float]] = ()) -> None:
        self.account.token(forced=forced)
        if token in self._stop_ids or (self._matcher is not None and token in self._kit.vocabulary.eos_ids):
            if self.params.logprobs:
                self._last = CoreLogprob(token, logprob, forced, tuple(top))
            self._over(token)
            return
        if self._matcher is not None:
            free, self._free = self._free, False
            if free and not fits(self._matcher, token):
                self._ends_with(CoreLogprob(token, logprob, forced, tuple(top)))
                return
            if not self._matcher.advance(token):
                raise OpError("internal", f"token {token} does not fit the constraint that allowed it")
        piece = self._kit.vocabulary.bytes(token)
        self.strand.seq.push(token)
        self._row.observe(token)
        self._pieces.append(piece)
        self._ends.append(self._size + len(piece))
        if self.params.logprobs:
            self._logprobs.append(CoreLogprob(token, logprob, forced, tuple(top)))
        if self._scanner is None:
            self._release(piece)
        else:
            released, match = self._scan(self._scanner, piece)
            self._release(released)
            if match is not None:
                self.end = End("stop", match.stop.decode("utf-8", "replace"), match.start)
                return
        if self._matcher is not None and self._matcher.finished:
            self._over()
        elif len(self._pieces) >= self._limit:
            wrapped = self._matcher is not None and self.account.wrapped > 0 and self._matcher.accepting
            self.end = End(self._whole_reason if wrapped else "length")
        else:
            self._known = self._constraint is None or bool(self._pending)

    @property
    def _size(self) -> int:
        """Bytes of the text so far."""
        return self._ends[-1] if self._ends else 0

    @staticmethod
    def _scan(scanner: StopScanner, piece: bytes) -> tuple[bytes, Match | None]:
        with _stop_limits():
            return scanner.feed(piece)

    def _ends_with(self, drawn: CoreLogprob) -> None:
        """The text is whole, and the model would go on with a token with which it cannot."""
        assert self._matcher is not None
        vocabulary, left = self._kit.vocabulary, self._limit - len(self._pieces)
        data, stop = vocabulary.bytes(drawn.id), None
        if data and self._scanner is not None:
            with _stop_limits():
                stop = self._scanner.completes(data)
        end = natural_end(self._matcher, vocabulary, data, stop, self._size, left)
        if self.params.logprobs:
            self._last = drawn
        self.end = replace(end, reason=self._whole_reason) if end.matched is None else end

    def _release(self, data: bytes) -> None:
        self._data += data
        self._released += len(data)

    def _look(self, until: float | None) -> bool:
        """Find out what may come next, and queue the settled ids of a forced run that starts here."""
        try:
            if self._matcher is None:
                assert self._constraint is not None
                if not self._constraint.prepare(_left(until)):
                    return False
                self._matcher = self._constraint.matcher()
            matcher = self._matcher
            if not matcher.prepare(_left(until)):
                return False
            if self._closing is not None:
                try:
                    self._closing.prepare(matcher, self._limit - len(self._pieces), _left(until))
                except Unfinished:
                    return False
            self._known = True
            run = matcher.forced()
            if run:
                ids, _ = settled_prefix(matcher, self._kit.vocabulary, run)
                self._pending.extend(ids)
        except ConstraintError as error:
            raise OpError("invalid_constraint", str(error), "constraint") from error
        if not run and matcher.finished:
            self.end = End("stop")  # the language holds nothing but the empty string
        return True

    def _decide(self, drawn: Sampled, until: float | None) -> bool:
        """Take what was sampled, or what must be taken in its place for the text to end whole within max_tokens."""
        assert self._closing is not None and self._matcher is not None
        try:
            left = self._limit - len(self._pieces)
            instead = self._closing.instead(self._matcher, drawn.id, left, _left(until))
        except Unfinished:
            return False
        except ConstraintError as error:
            raise OpError("invalid_constraint", str(error), "constraint") from error
        self._drawn = None
        if instead is None:
            self._take(drawn.id, False, drawn.logprob, drawn.top)
        else:
            self.account.wrapped += 1
            if instead == END:
                self._over()
            else:
                scored = (None, ()) if drawn.row is None else logprob(drawn.row, instead, self.params.top_logprobs)
                self._take(instead, True, *scored)
        return True

    def _over(self, matched: int | None = None) -> None:
        """The text is whole. Where max_tokens had its part in that, it is not what the model would have written."""
        self.end = End(self._whole_reason, matched)

    @property
    def _whole_reason(self) -> Reason:
        return "length" if self.account.wrapped and self.params.wrap_up != "stop" else "stop"

    def _take_again(self, token: int) -> None:
        """Go over what an earlier epoch sampled, as it did."""
        forced = bool(self._pending) and self._pending[0] == token
        if forced:
            self._pending.popleft()
        else:
            self._pending.clear()
        self._take(token, forced, None)

    def _resumed(self) -> None:
        """All that an earlier epoch sampled was gone over: nothing is emitted for it."""
        if self._resumes is None:
            return
        self.account.resume(self._resumes.resume_usage, self.strand.seq.n - 1)
        self._resumes = None
        self._again.clear()
        self._sent = len(self._pieces)
        self._data.clear()


@contextmanager
def _stop_limits() -> Iterator[None]:
    """What a stop regex that exceeds a limit raises, as the op's fault."""
    try:
        yield
    except ValueError as error:
        raise OpError("invalid_value", str(error), "stop_regex") from error


def _left(until: float | None) -> float | None:
    return None if until is None else max(0.0, until - time.monotonic())
