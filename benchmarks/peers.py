"""Plait beside transformers on the same prompts, alternating in one run: columns 1 to 4 of the peers' table.

    python benchmarks/peers.py [--json FILE] [--repeats 3] [--mode exact] [--model PATH]

Plait is measured through ``Runtime``, transport included. Every repeat uses prompts or a cache salt of its own, so
nothing is warm unless the row says so. Medians; the ratio is the median of the ratios within each repeat.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from driver import generate, greedy
from reference import greedy_ids, transformers_model
from rich.console import Console
from rich.table import Table
from workload import DEFAULT_TEXT, Workload, build

from plait.runtime import Runtime
from plait.runtime.models.card import read_card
from plait.runtime.store import resolve
from plait.runtime.tokenizer import load_tokenizer


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


class Plait:
    def __init__(self, runtime: Runtime, work: Workload) -> None:
        self.runtime, self.work = runtime, work

    def single(self, k: int) -> float:
        prompt = self.work.single[k % 4]
        return 128 / seconds(lambda: generate(self.runtime, [prompt], greedy(128), salt=f"single{k}"))

    def prefill(self, k: int) -> float:
        prompt = self.work.prefill[k % 4]
        return len(prompt) / seconds(lambda: generate(self.runtime, [prompt], greedy(1), salt=f"prefill{k}"))

    def many(self, k: int) -> float:
        return 16 * 64 / seconds(lambda: generate(self.runtime, self.work.many, greedy(64), salt=f"many{k}"))

    def shared(self, k: int) -> tuple[float, float]:
        """Seconds cold and warm."""
        run = lambda: generate(self.runtime, self.work.shared, greedy(16), salt=f"shared{k}")  # noqa: E731 - two uses
        return seconds(run), seconds(run)


class Transformers:
    def __init__(self, model: Any, work: Workload) -> None:
        self.model, self.work = model, work

    def single(self, k: int) -> float:
        return 128 / seconds(lambda: greedy_ids(self.model, [self.work.single[k % 4]], 128))

    def prefill(self, k: int) -> float:
        prompt = self.work.prefill[k % 4]
        with torch.inference_mode():
            return len(prompt) / seconds(lambda: self.model(torch.tensor([prompt]), logits_to_keep=1))

    def many(self, k: int) -> float:
        return 16 * 64 / seconds(lambda: greedy_ids(self.model, self.work.many, 64))

    def shared(self, k: int) -> tuple[float, float]:
        """A static batch shares nothing, so cold and warm are the same work, measured once."""
        cold = seconds(lambda: greedy_ids(self.model, self.work.shared, 16))
        return cold, cold


def measure(name: str, ours: Callable[[int], Any], theirs: Callable[[int], Any], repeats: int) -> list[dict[str, Any]]:
    pairs = [(ours(k), theirs(k)) for k in range(repeats)]
    if not isinstance(pairs[0][0], tuple):
        return [row(name, "tok/s", [a for a, _ in pairs], [b for _, b in pairs], higher=True)]
    return [
        row(f"{name}, {which}", "s", [a[i] for a, _ in pairs], [b[i] for _, b in pairs], higher=False)
        for i, which in enumerate(("cold", "warm"))
    ]


def row(name: str, unit: str, ours: list[float], theirs: list[float], higher: bool) -> dict[str, Any]:
    ratios = [a / b if higher else b / a for a, b in zip(ours, theirs)]
    return {
        "workload": name,
        "unit": unit,
        "plait": statistics.median(ours),
        "transformers": statistics.median(theirs),
        "times_faster": statistics.median(ratios),
        "plait_all": ours,
        "transformers_all": theirs,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--mode", default="exact", choices=["reference", "exact"])
    parser.add_argument("--model", help="a Llama-shaped GGUF file (default: the default model)")
    parser.add_argument("--text", type=Path, default=DEFAULT_TEXT, help="an English text of 40 kB or more")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args()

    path = resolve(args.model)
    work = build(load_tokenizer(read_card(path)), args.text)
    torch.set_num_threads(args.threads)
    model = transformers_model(path, "float32" if args.mode == "reference" else "bfloat16")
    theirs = Transformers(model, work)
    rows: list[dict[str, Any]] = []
    with Runtime(path, mode=args.mode, threads=args.threads) as runtime:
        ours = Plait(runtime, work)
        for system in (ours, theirs):  # warm-up: page in weights, compile kernels
            system.single(3)
            system.prefill(3)
        rows += measure("1 stream, 128 tokens", ours.single, theirs.single, args.repeats)
        rows += measure("prefill of 1,000", ours.prefill, theirs.prefill, args.repeats)
        rows += measure("16 x 64", ours.many, theirs.many, args.repeats)
        rows += measure("32 x (1,000 shared + 24) x 16", ours.shared, theirs.shared, max(1, args.repeats // 3))

    table = Table(title=f"{path.name}, {args.mode}, {args.threads} threads, median of {args.repeats}")
    for column in ("workload", "plait", "transformers", "unit", "times faster"):
        table.add_column(column, justify="left" if column in ("workload", "unit") else "right")
    for r in rows:
        table.add_row(
            r["workload"], f"{r['plait']:.2f}", f"{r['transformers']:.2f}", r["unit"], f"{r['times_faster']:.2f}"
        )
    Console().print(table)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
