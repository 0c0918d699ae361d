"""``plait demo``: the quickstart, as it streams, and what it cost."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Protocol

from rich.console import Console
from rich.table import Table

from ..protocol import Usage
from .backends import started


class HasUsage(Protocol):
    """A ``Result`` of the language, which the runtime does not import."""

    @property
    def usage(self) -> Usage: ...


def run_demo(**options: Any) -> None:
    with started(**options) as backend:
        info = backend.info()
        print(f"plait: {info.model}, {info.mode} mode on {info.device}\n", file=sys.stderr, flush=True)
        from ...examples.quickstart import run_demo as quickstart

        def on_text(text: str) -> None:
            sys.stdout.write(text)
            sys.stdout.flush()

        results = quickstart(backend, on_text)
        print("\n", flush=True)
        Console().print(table(results))


def table(results: Sequence[tuple[str, HasUsage]]) -> Table:
    """One row per gen: prompt tokens computed and reused, output tokens forced and sampled, and how fast."""
    made = Table(title=None, pad_edge=False)
    made.add_column("gen")
    for name in ("computed", "reused", "forced", "sampled", "first token", "tokens/s"):
        made.add_column(name, justify="right")
    for name, result in results:
        made.add_row(name, *row(result))
    usages = [result.usage for _, result in results]
    sums = (sum(u.computed for u in usages), sum(u.cached for u in usages))
    outs = (sum(u.forced for u in usages), sum(u.sampled for u in usages))
    made.add_section()
    made.add_row("all", *(str(number) for number in (*sums, *outs)), "", "")
    return made


def row(result: HasUsage) -> tuple[str, ...]:
    usage = result.usage
    first = f"{usage.first_token_s * 1000:.0f} ms" if usage.first_token_s else ""
    seconds = usage.total_s - usage.first_token_s  # what comes after the first token; a select samples none
    rate = f"{(usage.completion - 1) / seconds:.0f}" if usage.sampled and usage.completion > 1 and seconds > 0 else ""
    return str(usage.computed), str(usage.cached), str(usage.forced), str(usage.sampled), first, rate
