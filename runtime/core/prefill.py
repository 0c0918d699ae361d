"""The next rows of a strand's own sequence: a chunk of a prompt, a forced run, or the one row of a decode step."""

from __future__ import annotations

from ...radix import SlotPool
from .account import Account
from .batch import Op, Segment


def prefill(op: Op, account: Account, rows: int, pool: SlotPool, *, wanted: bool) -> Segment:
    """Plan ``rows`` rows from where the KV ends; ``wanted``: the last wants logits.

    A chunk without a tail before it goes into the tree now, before its forward: every K and V of a layer is written
    before attention reads, so a strand that is scheduled later in this very step finds it and computes its suffix
    only. The last id stays in the tail, since each strand that samples from here computes that row itself.
    """
    seq = op.strand.seq
    start = seq.kv_len
    slots = pool.allocate(rows)
    seq.take(slots)
    end = seq.kv_len
    segment = Segment(op, seq.ids[start:end], start, slots, seq.slots, (rows - 1,) if wanted else ())
    if rows > 1 and seq.committed == start:
        seq.publish(min(end, seq.n - 1))
    account.steps += 1
    account.compute(start, rows)
    return segment
