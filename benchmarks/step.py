"""Where a step's time goes, without transport: the core driven in this process.

    python benchmarks/step.py [--mode exact] [--model PATH] [--repeats 3] [--json FILE]

First table: milliseconds per decode step by batch size, split into schedule, forward, sample and emit (events made
into frames). Second: what one prefill of a 1,000-token prefix, 32 suffixes of 24 tokens and 16 decode steps of
batch 32 take one after another, which is the yardstick for ``32 x shared`` in peers.py.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the core's process has it, before torch is imported

from plait.runtime import wire as w
from plait.runtime.core.core import Core
from plait.runtime.core.settings import CoreSettings
from plait.runtime.models.card import read_card
from plait.runtime.models.load import load_model
from plait.runtime.store import resolve
from plait.runtime.tokenizer import load_tokenizer

CONTEXT = 100  # tokens of each prompt in the first table


class Bench:
    def __init__(self, core: Core, vocab: int) -> None:
        self.core, self.vocab = core, vocab
        self.sid = 0
        self.random = np.random.default_rng(0)

    def ids(self, n: int) -> tuple[int, ...]:
        return tuple(self.random.integers(100, self.vocab - 100, n).tolist())

    def start(self, prompts: list[tuple[int, ...]], tokens: int, temperature: float = 0.0) -> None:
        items: list[Any] = []
        for ids in prompts:
            self.sid += 1
            params = w.SampleParams(max_tokens=tokens, seed=self.sid, temperature=temperature)
            items += [
                w.OpenStrand(self.sid),
                w.ExtendStrand(self.sid, (w.Append(1, ids), w.Sample(2, params))),
                w.CloseStrand(self.sid),
            ]
        self.core.receive(w.ToCore(tuple(items)))

    def step(self) -> float:
        """Seconds of one step, its frame encoded."""
        timings = self.core.timings
        start = time.perf_counter()
        events = self.core.step()
        computed = time.perf_counter()
        w.encode(w.ToFront(tuple(events)))
        end = time.perf_counter()
        timings.emit += end - computed
        return end - start

    def prefill(self) -> float:
        """Seconds until every strand started so far has its prompt computed and decodes."""
        total = self.step()
        state = self.core.state
        while state.waiting or any(s.current is not None and s.current.rows() > 1 for s in state.running):
            total += self.step()
        return total

    def drain(self) -> float:
        total = 0.0
        while not self.core.idle:
            total += self.step()
        return total

    def decode(self, batch: int, steps: int, temperature: float) -> dict[str, float]:
        """Milliseconds per decode step, by part."""
        self.start([self.ids(CONTEXT) for _ in range(batch)], steps + 64, temperature)
        self.prefill()
        before = self.parts()
        for _ in range(steps):
            self.step()
            assert len(self.core.state.running) == batch
        after = self.parts()
        self.drain()
        return {name: (after[name] - before[name]) * 1e3 / steps for name in before}

    def parts(self) -> dict[str, float]:
        t = self.core.timings
        return {"schedule": t.schedule, "forward": t.forward, "sample": t.sample, "emit": t.emit}

    def yardstick(self) -> dict[str, float]:
        """Seconds of the three parts of 32 x shared, each on its own."""
        prefix = self.ids(1000)
        self.start([prefix], 0)
        one = self.drain()
        self.start([(*prefix, *self.ids(24)) for _ in range(32)], 64)
        suffixes = self.prefill()
        decode = sum(self.step() for _ in range(16))
        self.drain()
        return {"prefix": one, "suffixes": suffixes, "decode": decode, "sum": one + suffixes + decode}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", default="exact", choices=["reference", "exact"])
    parser.add_argument("--model", help="any model (default: the default model)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()

    card = read_card(resolve(args.model))
    model = load_model(card, mode=args.mode, device=args.device, threads=args.threads)
    model.allocate(16384)
    core = Core(model, load_tokenizer(card).vocabulary, CoreSettings(kv_tokens=16384))
    bench = Bench(core, model.vocab_size)
    bench.decode(4, 4, 0.0)  # warm-up

    console = Console()
    table = Table(title=f"ms per decode step at {CONTEXT} tokens of context, {args.mode}, median of {args.repeats}")
    for name in ("batch", "sampling", "schedule", "forward", "sample", "emit", "total", "outside forward"):
        table.add_column(name, justify="right")
    rows = []
    for batch in (1, 4, 16, 32):
        for label, temperature in (("greedy", 0.0), ("T = 1", 1.0)):
            runs = [bench.decode(batch, 16, temperature) for _ in range(args.repeats)]
            part = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
            total = sum(part.values())
            rows.append({"batch": batch, "sampling": label, **part, "total": total})
            share = f"{100 * (1 - part['forward'] / total):.0f} %"
            table.add_row(str(batch), label, *(f"{v:.2f}" for v in part.values()), f"{total:.2f}", share)
    console.print(table)

    runs = [bench.yardstick() for _ in range(args.repeats)]
    median = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    table = Table(title="seconds: 32 x (1,000 shared + 24), 16 steps, part by part")
    for name in median:
        table.add_column(name, justify="right")
    table.add_row(*(f"{v:.3f}" for v in median.values()))
    console.print(table)
    if args.json:
        args.json.write_text(json.dumps({"steps": rows, "yardstick": median}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
