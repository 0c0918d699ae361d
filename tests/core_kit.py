"""A model without weights for tests of the core: its logits are a hash of what a row sees THROUGH the slots.

The fake pool stores (token, position) per slot. A row's logits depend on the set of pairs behind its visible slots
and nothing else, and a row that does not see exactly the positions 0 to its own raises: so wrong bookkeeping of slots
cannot go unnoticed, and right bookkeeping gives the same output in any batch, chunking and cache state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from plait.constrained.vocabulary import Vocabulary
from plait.runtime.core.core import Core
from plait.runtime.core.sampler import SamplerRow, sample
from plait.runtime.core.settings import CoreSettings
from plait.runtime.core.strand import Status
from plait.runtime.models.interface import ForwardBatch
from plait.runtime.wire import (
    CoreEvent,
    Ended,
    ExtendStrand,
    OpenStrand,
    SampleParams,
    Stats,
    ToCore,
    Tokens,
)

EOS = 300
OTHER_EOS = 301
MERGES = (b"th", b"he", b"the", b" the", b"ab", b"abc", b"\n\n", b"\xc3\xa9", b"  ", b"12", b'{"', b'":')
TEXTS: tuple[bytes | None, ...] = (*(bytes([b]) for b in range(256)), *MERGES)
SIZE = 304
#: ids that no token has; the model gives them logits like any other
BLANK = [*range(len(TEXTS), EOS), 303]


def _encode(data: bytes) -> list[int]:
    ids, at = [], 0
    while at < len(data):
        best = max((m for m in MERGES if data.startswith(m, at)), key=len, default=b"")
        ids.append(256 + MERGES.index(best) if best else data[at])
        at += len(best) or 1
    return ids


def vocabulary() -> Vocabulary:
    return Vocabulary(TEXTS, size=SIZE, eos_ids=(EOS, OTHER_EOS), special_ids=(EOS, OTHER_EOS, 302), encode=_encode)


def _mix(x: np.ndarray) -> np.ndarray:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _pairs(positions: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return _mix(positions.astype(np.uint64) * np.uint64(1_000_003) + tokens.astype(np.uint64) + np.uint64(17))


def _logits(key: np.uint64, bias: np.ndarray | None) -> np.ndarray:
    with np.errstate(over="ignore"):
        noise = _mix(key + np.arange(1, SIZE + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    row = (noise >> np.uint64(40)).astype(np.float32) / np.float32(2**24) * 8 - 4
    return row if bias is None else row + bias


class FakeModel:
    """``bias``: added to every row of logits. ``break_when(batch) -> bool``: raise in that forward.
    ``nan_when(ids so far) -> bool``: that row's logits are NaN. ``likes(ids so far)``: the id that the model goes on
    with by all means, or None."""

    vocab_size = SIZE
    kv_bytes_per_token = 8

    def __init__(self, context_length: int = 4096, bias: dict[int, float] | None = None) -> None:
        self.context_length = context_length
        self.bias: np.ndarray | None = None
        if bias:
            self.bias = np.zeros(SIZE, dtype=np.float32)
            for token, value in bias.items():
                self.bias[token] = value
        self.rows: list[int] = []  # of each forward
        self.batches = 0
        self.break_when: Callable[[ForwardBatch], bool] = lambda batch: False
        self.nan_when: Callable[[list[int]], bool] = lambda ids: False
        self.likes: Callable[[list[int]], int | None] = lambda ids: None

    def allocate(self, slots: int) -> None:
        self._token = np.full(slots, -1, dtype=np.int64)
        self._position = np.full(slots, -1, dtype=np.int64)

    @property
    def computed(self) -> int:
        return sum(self.rows)

    def forward(self, batch: ForwardBatch) -> torch.Tensor:
        rows = len(batch.ids)
        assert rows == len(batch.positions) == len(batch.out_slots) == batch.query_starts[-1]
        assert len(batch.kv_slots) == batch.kv_starts[-1] and len(batch.query_starts) == len(batch.kv_starts)
        assert len(set(batch.out_slots.tolist())) == rows, "two rows write one slot"
        assert list(batch.logit_rows) == sorted(set(batch.logit_rows.tolist()))
        for name in ("ids", "positions", "out_slots", "query_starts", "kv_slots", "kv_starts", "logit_rows"):
            assert getattr(batch, name).dtype == np.int32, name
        self.rows.append(rows)
        if self.break_when(batch):
            raise RuntimeError("broken on purpose")
        self._token[batch.out_slots] = batch.ids
        self._position[batch.out_slots] = batch.positions
        out = np.zeros((len(batch.logit_rows), SIZE), dtype=np.float32)
        at = {int(row): index for index, row in enumerate(batch.logit_rows)}
        for s in range(len(batch.query_starts) - 1):
            q0, q1 = int(batch.query_starts[s]), int(batch.query_starts[s + 1])
            slots = batch.kv_slots[int(batch.kv_starts[s]) : int(batch.kv_starts[s + 1])]
            tokens, positions = self._token[slots], self._position[slots]
            assert np.array_equal(positions, np.arange(len(slots))), "a row sees wrong slots"
            assert np.array_equal(slots[len(slots) - (q1 - q0) :], batch.out_slots[q0:q1])
            with np.errstate(over="ignore"):
                keys = np.cumsum(_pairs(positions, tokens), dtype=np.uint64)
            for row in range(q0, q1):
                if row in at:
                    end = len(slots) - (q1 - q0) + (row - q0)
                    out[at[row]] = self._row(keys[end], tokens[: end + 1].tolist())
                    if self.nan_when(tokens[: end + 1].tolist()):
                        out[at[row]] = np.nan
        return torch.from_numpy(out)

    def after(self, ids: Sequence[int]) -> np.ndarray:
        """The logits after ``ids``, computed straight from them, without the ids that no token has: float32[V]."""
        tokens = np.asarray(ids)
        with np.errstate(over="ignore"):
            key = np.cumsum(_pairs(np.arange(len(tokens)), tokens), dtype=np.uint64)[-1]
        row = self._row(key, tokens.tolist())
        row[BLANK] = -np.inf
        return row

    def _row(self, key: np.uint64, ids: list[int]) -> np.ndarray:
        row = _logits(key, self.bias)
        liked = self.likes(ids)
        if liked is not None:
            row[liked] += 100.0
        return row

    def expect(self, ids: Sequence[int], params: SampleParams, choice: int = 0, n: int | None = None) -> list[int]:
        """What an undisturbed, unconstrained Sample without stop strings gives."""
        row, out = SamplerRow(params, np.asarray(ids), choice), list(ids)
        for _ in range(params.max_tokens if n is None else n):
            token = sample(self.after(out)[None], [row])[0].id
            if token in params.stop_ids:
                break
            row.observe(token)
            out.append(token)
        return out[len(ids) :]


#: seconds of a step
BUDGETS = ("constraint_first_s", "constraint_more_s", "constraint_slice_s", "draft_s")


class Writer(FakeModel):
    """Goes on with ``ids`` behind a prompt of ``start`` ids, whatever came so far, and then as any fake model."""

    def __init__(self, ids: Sequence[int], start: int = 20, **how: object) -> None:
        super().__init__(**how)  # type: ignore[arg-type]  # by name
        self.likes = lambda so_far: ids[len(so_far) - start] if 0 <= len(so_far) - start < len(ids) else None


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


class Driver:
    """A core with a fake model, checked after every step; keeps every event. A step has all the time it wants for its
    constraints unless a test says otherwise: what a busy machine does in milliseconds must not decide a test."""

    def __init__(self, kv_tokens: int = 4096, *, model: FakeModel | None = None, **settings: object) -> None:
        self.model = model or FakeModel()
        self.model.allocate(kv_tokens)
        self.vocabulary = vocabulary()
        settings = {**dict.fromkeys(BUDGETS, 60.0), **settings}
        self.core = Core(self.model, self.vocabulary, CoreSettings(kv_tokens, **settings), Clock())  # type: ignore[arg-type]  # settings by name
        self.events: list[CoreEvent] = []
        self.core.check()

    def send(self, *items: object) -> None:
        self.core.receive(ToCore(tuple(items)))  # type: ignore[arg-type]  # any item of ToCore

    def open(self, sid: int, *ops: object, **how: object) -> None:
        self.send(OpenStrand(sid, **how), ExtendStrand(sid, tuple(ops)))  # type: ignore[arg-type]  # as above

    def extend(self, sid: int, *ops: object) -> None:
        self.send(ExtendStrand(sid, tuple(ops)))  # type: ignore[arg-type]  # as above

    def check(self) -> None:
        """Every slot is owned once, and what a strand takes for committed lies locked on the path to its node.
        Nothing stays pinned for a strand that is gone."""
        self.core.check()
        state = self.core.state
        for strand in state.strands.values():
            holds = strand.seq.kv_len and strand.status is not Status.RUNNING
            assert not holds or strand in state.resting, f"{strand} holds KV that nobody could take from it"
        if not any(strand.seq.shelved for strand in state.strands.values()):
            assert not any(node.pins for node in state.tree._walk())
        for strand in self.core.state.strands.values():
            seq, path = strand.seq, []
            node = seq.node
            while node is not None and len(node.tokens):
                assert node.locks, f"{strand} stands on an unlocked node"
                path.append(node.slots)
                node = node.parent
            slots = np.concatenate(path[::-1]) if path else np.empty(0, np.int32)
            assert np.array_equal(slots[: seq.committed], seq.slots[: seq.committed]), f"{strand} sees foreign slots"

    def step(self) -> list[CoreEvent]:
        events = self.core.step()
        self.check()
        self.events += events
        return events

    def run(self, limit: int = 5000) -> list[CoreEvent]:
        """Step until idle; what came of it."""
        start = len(self.events)
        for _ in range(limit):
            if self.core.idle:
                return self.events[start:]
            self.step()
        raise AssertionError(f"not idle after {limit} steps: {list(self.core.state.strands.values())}")

    def of(self, sid: int, op: int | None = None, choice: int | None = None) -> list[CoreEvent]:
        return [
            event
            for event in self.events
            if not isinstance(event, Stats)
            and getattr(event, "sid", None) == sid
            and (op is None or getattr(event, "op", None) == op)
            and (choice is None or getattr(event, "choice", None) == choice)
        ]

    def ended(self, sid: int, op: int = 1) -> Ended:
        found = [event for event in self.of(sid, op) if isinstance(event, Ended)]
        assert len(found) == 1, self.of(sid)
        return found[0]

    def text(self, sid: int, op: int = 1) -> bytes:
        """Streamed bytes and what Ended adds."""
        streamed = b"".join(event.data for event in self.of(sid, op) if isinstance(event, Tokens))
        return streamed + self.ended(sid, op).data

    def sent_ids(self, sid: int, op: int = 1) -> list[int]:
        return [token for event in self.of(sid, op) if isinstance(event, Tokens) for token in event.ids]


def greedy(max_tokens: int, **how: object) -> SampleParams:
    return SampleParams(**{"max_tokens": max_tokens, "seed": 1, "temperature": 0.0, **how})  # type: ignore[arg-type]  # by name


def hot(max_tokens: int, seed: int = 7, **how: object) -> SampleParams:
    return SampleParams(**{"max_tokens": max_tokens, "seed": seed, "temperature": 1.0, **how})  # type: ignore[arg-type]  # by name


def prompt(n: int, seed: int = 0) -> tuple[int, ...]:
    """``n`` text ids, the same for the same seed."""
    return tuple(np.random.default_rng(seed).integers(32, 127, n).tolist())
