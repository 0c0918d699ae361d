"""Token ids in, Done out: drives any backend below the language, for benchmarks and acceptance tests."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from plait.runtime import protocol as p
from plait.runtime.backend import Backend
from plait.runtime.errors import from_code


@dataclass
class Pending:
    """One submitted strand: its deltas so far, and its end."""

    strand: int
    program: int
    deltas: list[p.Delta] = field(default_factory=list)
    done: p.Done | None = None
    failed: p.Failed | p.Lost | None = None
    first_delta: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)

    def __call__(self, event: p.Event) -> None:
        if isinstance(event, p.Delta):
            self.deltas.append(event)
            self.first_delta.set()
        elif isinstance(event, p.Done):
            self.done = event
            self.ended.set()
        elif isinstance(event, p.Failed | p.Lost):
            self.failed = event
            self.first_delta.set()
            self.ended.set()

    def result(self, timeout: float = 600.0) -> p.Done:
        if not self.ended.wait(timeout):
            raise TimeoutError(f"strand {self.strand} has not ended after {timeout} s")
        if self.failed is not None:
            raise from_code(self.failed.code, getattr(self.failed, "field", None), self.failed.message)
        assert self.done is not None
        return self.done


def submit(
    backend: Backend,
    ids: Sequence[int],
    sampling: p.Sampling,
    *,
    stream: bool = False,
    salt: str = "",
    seed: int = 0,
    constraint: p.ConstraintSpec | None = None,
) -> Pending:
    """Open a strand with the prompt ``ids``, sample once, close it."""
    pending = Pending(backend.allocate(), backend.allocate())
    backend.submit(
        [
            p.Open(pending.strand, pending.program, seed=seed, salt=salt),
            p.Extend(pending.strand, (p.Ids(1, tuple(ids)), p.Gen(2, sampling, constraint, stream=stream))),
            p.Close(pending.strand),
        ],
        pending,
    )
    return pending


def generate(
    backend: Backend, prompts: Sequence[Sequence[int]], sampling: p.Sampling, *, salt: str = ""
) -> list[p.Done]:
    """All prompts at once; results in order."""
    return [pending.result() for pending in [submit(backend, ids, sampling, salt=salt) for ids in prompts]]


def greedy(tokens: int) -> p.Sampling:
    return p.Sampling(max_tokens=tokens, temperature=0.0, ignore_eos=True)
