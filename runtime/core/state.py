"""All of a core that lives longer than one step, and the moves of a strand between its statuses."""

from __future__ import annotations

import itertools
import logging
import time
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from ...constrained.vocabulary import Vocabulary
from ...radix import FCFS, Order, RadixTree, SlotPool
from ..models.interface import Model
from ..wire import Append, CloseStrand, CoreEvent, CoreOp, ForkAt, Forked, OpFailed, Sample, Score, ScorePrompt
from .batch import IntArray, Op
from .budget import Budget, Purse
from .constraints import Constraints, Defined
from .counters import Counters
from .forking import Forking
from .gen import Gen
from .kit import Kit, Limits, OpError
from .logits import Sieve
from .prompt_scores import PromptScoring
from .scoring import Scoring
from .sequence import Sequence
from .settings import CoreSettings
from .strand import Status, Strand, urgency

log = logging.getLogger("plait.core")


class State:
    """Strands, pool, tree and what is to be told to the front. Actions and the inbox change it; nothing else does."""

    def __init__(
        self,
        model: Model,
        vocabulary: Vocabulary,
        settings: CoreSettings,
        clock: Callable[[], float] = time.monotonic,
        order: Order[Strand] | None = None,
    ) -> None:
        self.model = model
        self.settings = settings
        self.clock = clock
        self.order: Order[Strand] = FCFS() if order is None else order
        self.kit = Kit(vocabulary, model.context_length, clock)
        self.sieve = Sieve(vocabulary.blank_ids)
        self.pool = SlotPool(settings.kv_tokens)
        self.tree = RadixTree(self.pool)
        self.strands: dict[int, Strand] = {}
        self.running: list[Strand] = []
        self.waiting: list[Strand] = []  # the most urgent first
        self.ready: deque[Strand] = deque()  # may take up the next op
        self.resting: dict[Strand, None] = {}  # may hold KV and do not run, the longest idle first
        self._limits = Limits(settings.score_rows, settings.score_numbers)
        self.constraints = Constraints(vocabulary, settings.constraint_bytes)
        share = settings.constraint_slice_s
        self.budget = Budget(
            (settings.constraint_first_s, settings.constraint_more_s, settings.draft_s),
            (share, share, settings.draft_s / 2),
        )
        #: gens that look for what their constraints allow, the longest waiting first, and the seconds spent so far
        self.unready: dict[Gen, float] = {}
        self.events: list[CoreEvent] = []
        self.counters = Counters()
        self._arrivals = itertools.count()

    # ------------------------------------------------------------ births

    def open(self, sid: int, namespace: str, priority: int, status: Status = Status.IDLE) -> Strand:
        if sid in self.strands:
            raise ValueError(f"strand {sid} is open already")
        strand = Strand(
            sid,
            Sequence(self.tree, self.pool, namespace),
            priority=priority,
            arrival=next(self._arrivals),
            status=status,
        )
        self.strands[sid] = strand
        return strand

    # ------------------------------------------------------------ an op begins and ends

    def proceed(self, strand: Strand) -> None:
        """Take up ops until one needs the model, or none is left."""
        while strand.status is Status.IDLE and strand.queue:
            item = strand.queue.popleft()
            if isinstance(item, CloseStrand):
                self.close(strand)
                return
            with self.guard(strand, item):
                if isinstance(item, Append):
                    strand.seq.append(self._checked(item.ids, "ids"))
                else:
                    self._begin(strand, item)

    def _checked(self, ids: tuple[int, ...], field: str) -> tuple[int, ...]:
        size = self.kit.vocabulary.size
        if ids and not (min(ids) >= 0 and max(ids) < size):
            bad = next(token for token in ids if not 0 <= token < size)
            raise OpError("invalid_value", f"{bad} is not a token id (0 to {size - 1})", field)
        return ids

    def _begin(self, strand: Strand, request: Sample | Score | ScorePrompt | ForkAt) -> None:
        """Make the op. One that needs no forward ends at once, the others wait for admission."""
        if isinstance(request, Sample):
            gen = Gen(strand, request, self._constraint(request.constraint), self.kit)
            strand.current = gen
            self.look(gen)
            if gen.end is not None:
                gen.admitted(strand.seq.n)
                self.end_gen(gen)
                return
        elif isinstance(request, ForkAt):
            forking = Forking(strand, request, self.clock)
            strand.current = forking
            if not forking.rows():
                forking.admitted(strand.seq.n)
                self.end_fork(forking)
                return
        elif isinstance(request, ScorePrompt):
            reading = PromptScoring(strand, request, self.clock, self._limits, self.pool)
            strand.current = reading
            if reading.done:
                reading.admitted(strand.seq.n)
                self.end_prompt_score(reading)
                return
        else:
            for choice in request.choices:
                self._checked(choice, "choices")
            strand.current = Scoring(strand, request, self.kit, self._limits)
        self._wait(strand)

    def _constraint(self, key: str | None) -> Defined | None:
        return None if key is None else self.constraints[key]

    def look(self, gen: Gen) -> None:
        """Let a gen find out what may come next, as far as this step's budget goes. It may end of that.

        Raises OpError for one that takes longer than a setting allows.
        """
        spent = self.unready.pop(gen, 0.0)
        if gen.ready:
            return
        purse = Purse.MORE if spent > 0.0 else Purse.FIRST
        seconds = self.budget.slice(purse)
        if seconds > 0.0:
            began = time.monotonic()
            ready = gen.prepare(seconds)
            took = time.monotonic() - began
            self.budget.spent(purse, took)
            if ready:
                return
            spent += took
            if spent > self.settings.constraint_s:
                raise OpError(
                    "invalid_constraint",
                    f"finding out what the constraint allows next takes more than {self.settings.constraint_s:g} "
                    "seconds: make it simpler",
                    "constraint",
                )
        self.unready[gen] = spent  # at the end: whoever takes long gives way

    def end_gen(self, gen: Gen) -> None:
        self.events += gen.outgoing()
        self.events.append(gen.finish())
        self._settle(gen)

    def end_score(self, scoring: Scoring) -> None:
        self.events.append(scoring.finish(self.pool))
        self._settle(scoring)

    def end_prompt_score(self, reading: PromptScoring) -> None:
        self.events.append(reading.finish())
        self._settle(reading)

    def end_fork(self, forking: Forking) -> None:
        parent = forking.strand
        parent.seq.publish(parent.seq.kv_len)
        self.events.append(Forked(parent.sid, forking.op, forking.account.usage()))
        for sid in forking.children:
            child = self.strands.get(sid)
            if child is not None and child.status is Status.BLOCKED:
                child.seq.inherit(parent.seq)
                self._idle(child)
        self._settle(forking)

    def _settle(self, op: Op) -> None:
        """The op is over: commit its KV, so that what it generated can be found, and go on with the next."""
        strand = op.strand
        self._look_no_more(op)
        self._count(op)
        strand.seq.forget_fresh()
        strand.seq.publish(strand.seq.kv_len)
        self._leave(strand)
        self._idle(strand)

    def _look_no_more(self, op: Op | None) -> None:
        if isinstance(op, Gen):
            self.unready.pop(op, None)

    def _count(self, op: Op) -> None:
        counters, account = self.counters, op.account
        counters.sampled_tokens += account.sampled
        counters.forced_tokens += account.forced
        counters.recomputed_tokens += account.recomputed

    def _idle(self, strand: Strand) -> None:
        strand.current = None
        strand.retracted = False
        strand.status = Status.IDLE
        self.resting.pop(strand, None)
        self.resting[strand] = None
        if strand.queue:
            self.ready.append(strand)

    def _leave(self, strand: Strand) -> None:
        if strand.status is Status.RUNNING:
            self.running.remove(strand)
        elif strand.status is Status.WAITING:
            self._waits_no_more(strand)

    def _wait(self, strand: Strand) -> None:
        strand.status = Status.WAITING
        insort(self.waiting, strand, key=urgency)

    def _waits_no_more(self, strand: Strand) -> None:
        del self.waiting[bisect_left(self.waiting, urgency(strand), key=urgency)]

    # ------------------------------------------------------------ admission and retraction

    def admit(self, strand: Strand, cached: int) -> None:
        op = strand.current
        assert op is not None
        self._waits_no_more(strand)
        self.resting.pop(strand, None)
        self.running.append(strand)
        strand.status = Status.RUNNING
        strand.retracted = False
        if op.admitted(cached):
            account, counted = op.account, strand.counted[1] if strand.counted[0] == op.op else 0
            self.counters.prompt_tokens += account.prompt - min(counted, account.prompt)
            self.counters.cached_tokens += account.cached - min(counted, account.cached)
            if isinstance(op, PromptScoring):
                strand.counted = (op.op, account.prompt)

    def retract(self, strand: Strand, *, keep: bool = True) -> None:
        """Take the KV of a running strand away; it goes on from its ids when there is room. ``keep``: the KV is
        sound and may be found again until it is evicted."""
        op = strand.current
        assert op is not None and strand.status is Status.RUNNING
        scratch = op.held()
        op.retract()
        for slots in scratch:
            self.pool.release(slots)
        if keep:
            strand.seq.shelve()
        else:
            strand.seq.release(keep=False)
        self.running.remove(strand)
        strand.retracted = True
        self._wait(strand)
        self.counters.retractions += 1

    # ------------------------------------------------------------ deaths

    @contextmanager
    def guard(self, strand: Strand, op: CoreOp | None = None) -> Iterator[None]:
        """A fault in one op, the client's or our own, fails that strand and no other."""
        try:
            yield
        except OpError as error:
            self.fail(strand, error, op)
        except Exception as error:
            log.exception("strand %d failed", strand.sid)
            self.fail(strand, OpError("internal", f"{type(error).__name__}: {error}"), op)

    def fail(self, strand: Strand, error: OpError, op: CoreOp | Op | None = None) -> None:
        """The op fails; the strand and the children it has not reached go silently."""
        what = op if op is not None else strand.current
        assert what is not None
        choice = 0 if isinstance(what, Append | Score | ScorePrompt | ForkAt) else what.choice
        self.events.append(OpFailed(strand.sid, what.op, choice, error.code, error.message, error.field))
        self.close(strand)

    def abort(self, strand: Strand) -> None:
        """The running op ends with what it has; everything after it is dropped."""
        if _resumes(strand):
            self.proceed(strand)  # an earlier epoch began it, so the front waits for how it ends
        if strand.status is Status.CLOSED:
            return
        op = strand.current
        if isinstance(op, Gen):
            op.abort()
            op.admitted(strand.seq.kv_len)
            self.events += op.outgoing()
            self.events.append(op.finish())
            self._count(op)
        elif op is not None:
            self.events.append(OpFailed(strand.sid, op.op, op.choice, "aborted", "the strand was aborted"))
        self.close(strand)

    def close(self, strand: Strand) -> None:
        """Forget the strand and every child it has not forked yet. What it computed stays findable."""
        op = strand.current
        self._look_no_more(op)
        if op is not None:
            for slots in op.held():
                self.pool.release(slots)
        self._leave(strand)
        strand.seq.release(keep=True)
        pending = [item for item in strand.queue if isinstance(item, ForkAt)]
        unborn = [sid for fork in pending for sid in fork.children]
        if isinstance(op, Forking):
            unborn += op.children
        strand.queue.clear()
        strand.current = None
        strand.status = Status.CLOSED
        del self.strands[strand.sid]
        self.resting.pop(strand, None)
        for sid in unborn:
            child = self.strands.get(sid)
            if child is not None and child.status is Status.BLOCKED:
                self.close(child)

    def poison(self, strand: Strand, message: str) -> None:
        """The model gave no usable result for this strand: it fails, and the KV it made is never found again."""
        op = strand.current
        if op is not None:
            for slots in op.held():
                self.pool.release(slots)
            op.retract()
        strand.seq.poison()
        self.fail(strand, OpError("internal", message))

    def rescue(self) -> None:
        """Strands that built on KV found to be wrong compute it again."""
        for strand in list(self.strands.values()):
            if strand.seq.stale:
                if strand.status is Status.RUNNING:
                    self.retract(strand, keep=False)
                else:
                    strand.seq.release(keep=False)

    # ------------------------------------------------------------ accounting

    def in_use(self) -> IntArray:
        """Every slot that a strand holds outside the tree."""
        parts = [strand.seq.tail for strand in self.strands.values()]
        for strand in self.running:
            if strand.current is not None:
                parts += strand.current.held()
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int32)

    def check(self) -> None:
        """Raise IntegrityError unless free + cached + in use == total and every slot is owned once."""
        self.tree.check(self.in_use())


def _resumes(strand: Strand) -> bool:
    """It has not taken up its op yet, which was running in an earlier epoch."""
    if strand.status is not Status.IDLE:
        return False
    following = next((item for item in strand.queue if not isinstance(item, Append)), None)
    return isinstance(following, Sample) and following.resume_usage is not None
