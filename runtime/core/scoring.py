"""A Score at work: log-probabilities of every choice, as a token trie behind the strand's ids.

One pass per condition: behind the strand's ids, and for the unconditional method behind ``prefix`` alone. A pass is
a root row (whose logits score the first tokens) and the trie's inner nodes. All its slots are scratch until the end;
then the winner's join the strand and the others go back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ...radix import SlotPool
from ..wire import Score, Scored
from .account import Account
from .batch import IntArray, Op, Segment
from .choices import choose
from .kit import Kit, Limits, OpError
from .prefill import prefill
from .strand import Strand
from .trie import ROOT, ChoiceTrie


@dataclass(frozen=True, slots=True)
class Rows:
    """Which node of which pass each row of a segment is; its logits score that node's children."""

    step: Pass
    nodes: Sequence[int]


class Pass:
    """The trie behind one condition. ``logprobs[node]`` fills as rows come back."""

    def __init__(self, trie: ChoiceTrie) -> None:
        self.trie = trie
        self.slots: dict[int, int] = {}  # scratch, by inner node
        self.logprobs: dict[int, float] = {}
        self.left = trie.inner  # rows not yet scheduled
        self._runs: deque[list[int]] = deque(trie.runs())

    def schedule(self, op: Op, rows: int, before: IntArray, pool: SlotPool) -> list[Segment]:
        """At most ``rows`` inner nodes, behind ``before`` (the slots of the condition itself)."""
        segments: list[Segment] = []
        while rows and self._runs:
            run = self._runs[0]
            nodes = run[:rows]
            if len(nodes) == len(run):
                self._runs.popleft()
            else:
                self._runs[0] = run[len(nodes) :]
            above = [self.slots[node] for node in self.trie.path(self.trie.parents[nodes[0]])]
            out = pool.allocate(len(nodes))
            self.slots.update(zip(nodes, out.tolist()))
            visible = np.concatenate((before, np.asarray(above, dtype=np.int32), out))
            ids = np.asarray([self.trie.tokens[node] for node in nodes], dtype=np.int32)
            start = len(before) + len(above)
            segments.append(Segment(op, ids, start, out, visible, range(len(nodes)), Rows(self, nodes)))
            rows -= len(nodes)
            self.left -= len(nodes)
        return segments

    def receive(self, nodes: Sequence[int], logits: torch.Tensor) -> None:
        total = torch.logsumexp(logits, dim=-1)
        if not bool(torch.isfinite(total).all()):
            raise OpError("internal", "the model's logits are not numbers")
        for index, node in enumerate(nodes):
            children = self.trie.children[node]
            tokens = torch.tensor([self.trie.tokens[child] for child in children])
            values: list[float] = (logits[index, tokens] - total[index]).tolist()
            self.logprobs.update(zip(children, values))

    def of(self, path: Sequence[int]) -> list[float | None]:
        """By token of a choice; None where the condition gives nothing to score it by."""
        return [self.logprobs.get(node) for node in path]


class Scoring(Op):
    """One Score. When :meth:`need` has fallen to 0 and all rows are back, :meth:`finish` appends the winner."""

    def __init__(self, strand: Strand, request: Score, kit: Kit, limits: Limits) -> None:
        if not strand.seq.n:
            raise OpError("invalid_value", "there is nothing to score after: the prompt holds no tokens", "prompt")
        if not request.choices or not all(request.choices):
            raise OpError("invalid_value", "every choice must hold at least one token", "choices")
        longest = max(len(choice) for choice in request.choices)
        if strand.seq.n + longest > kit.context_length:
            raise OpError(
                "context_length",
                f"the prompt of {strand.seq.n} tokens and a choice of {longest} do not fit the model's context of "
                f"{kit.context_length}",
                "choices",
            )
        self.strand = strand
        self.op = request.op
        self.choice = 0
        self.account = Account(kit.clock)
        self._request = request
        self._limits = limits
        self._trie = ChoiceTrie(request.choices)
        self._reset()

    def _reset(self) -> None:
        self._given = Pass(self._trie)
        self._alone: Pass | None = None
        self._prefix = np.empty(0, dtype=np.int32)
        self._prefix_slots = np.empty(0, dtype=np.int32)
        if self._request.method == "unconditional_likelihood_normalized":
            self._alone = Pass(self._trie)
            self._prefix = np.asarray(self._request.prefix, dtype=np.int32)

    # ------------------------------------------------------------ Op

    def rows(self) -> int:
        own = self._own_left()
        return own + min(self.need() - own, self._limits.rows)

    def need(self) -> int:
        rows = self._own_left() + self._given.left
        if self._alone is not None:
            rows += len(self._prefix) - len(self._prefix_slots) + self._alone.left
        return rows

    def growth(self) -> int:
        return 0

    def schedule(self, rows: int, pool: SlotPool) -> list[Segment]:
        segments: list[Segment] = []
        own = min(rows, self._own_left())
        if own:
            last = own == self._own_left()
            segment = prefill(self, self.account, own, pool, wanted=last)
            segment.note = Rows(self._given, (ROOT,))
            segments.append(segment)
        else:
            self.account.steps += 1
        if not self._own_left():
            segments += self._given.schedule(self, rows - own, self.strand.seq.slots, pool)
        if self._alone is not None:
            rows -= sum(len(segment.ids) for segment in segments)
            segments += self._schedule_alone(self._alone, rows, pool)
        return segments

    def retract(self) -> None:
        self.account.lose(self.strand.seq.kv_len)
        self._reset()

    def held(self) -> list[IntArray]:
        passes = [self._given] if self._alone is None else [self._given, self._alone]
        slots = [np.fromiter(step.slots.values(), dtype=np.int32, count=len(step.slots)) for step in passes]
        return [part for part in (*slots, self._prefix_slots) if len(part)]

    # ------------------------------------------------------------ results

    def admitted(self, cached: int) -> bool:
        """The first admission fixes the prompt accounting. True if this was it."""
        return self.account.start(self.strand.seq.n, cached)

    def receive(self, segment: Segment, logits: torch.Tensor) -> None:
        """``logits`` float32 [wanted, V]. Raises OpError if they are not finite."""
        if segment.wanted:
            note = segment.note
            assert isinstance(note, Rows)
            note.step.receive(note.nodes, logits)

    def finish(self, pool: SlotPool) -> Scored:
        """Choose, append the winner with what KV it has, give the other scratch back."""
        request, seq = self._request, self.strand.seq
        winner, scores = choose(
            request.method,
            [self._given.of(path) for path in self._trie.paths],
            None if self._alone is None else [self._alone.of(path) for path in self._trie.paths],
            temperature=request.temperature,
            seed=request.seed,
        )
        logprobs: tuple[tuple[float, ...], ...] = ()
        if sum(map(len, self._trie.paths)) <= self._limits.numbers:
            logprobs = tuple(tuple(self._given.logprobs[node] for node in path) for path in self._trie.paths)
        path = self._trie.paths[winner]
        for _ in path:
            self.account.token(forced=True)
        kept = [self._given.slots.pop(node) for node in path if node in self._given.slots]
        held = self.held()
        seq.append(request.choices[winner])
        seq.take(np.asarray(kept, dtype=np.int32))
        for slots in held:
            pool.release(slots)
        self._reset()
        return Scored(
            sid=self.strand.sid,
            op=self.op,
            winner=winner,
            scores=tuple(scores),
            usage=self.account.usage(),
            logprobs=logprobs,
        )

    # ------------------------------------------------------------ inside

    def _own_left(self) -> int:
        """Rows of the strand's own ids; 0 once the root's logits are on their way."""
        return self.strand.seq.n - self.strand.seq.kv_len

    def _schedule_alone(self, alone: Pass, rows: int, pool: SlotPool) -> list[Segment]:
        segments: list[Segment] = []
        done = len(self._prefix_slots)
        if rows and done < len(self._prefix):
            ids = self._prefix[done : done + rows]
            out = pool.allocate(len(ids))
            self._prefix_slots = np.concatenate((self._prefix_slots, out))
            wanted = (len(ids) - 1,) if len(self._prefix_slots) == len(self._prefix) else ()
            segments.append(Segment(self, ids, done, out, self._prefix_slots, wanted, Rows(alone, (ROOT,))))
            rows -= len(ids)
        if len(self._prefix_slots) == len(self._prefix):
            segments += alone.schedule(self, rows, self._prefix_slots, pool)
        return segments
