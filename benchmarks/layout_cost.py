"""What ``whitespace="auto"`` costs beside a fixed layout: compile and first mask, on real schemas, in one process.

    python benchmarks/layout_cost.py --tools DIR --cases DIR [--limit N]

Both are measured in turn, three times each; the least of each counts. ``constraints.py --only layout`` runs it.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import time
from pathlib import Path

from plait.constrained.compiler import build
from plait.constrained.interface import ConstraintError
from plait.constrained.vocabulary import Vocabulary

FILES = ("maskbench_open", "tool_schemas_open")
LAYOUTS = ("compact", "auto")
ROUNDS = 3


def measure(tools: Path, cases: Path, limit: int = 0) -> dict[str, float]:
    """Schemas; and the milliseconds of each layout, their sum and their median."""
    sys.path[:0] = [str(tools), str(Path(__file__).resolve().parent)]
    import maskbench_lite
    from maskbench_adapter import PlaitEngine

    engine = PlaitEngine()
    engine.setup(maskbench_lite.TokInfo(str(cases / "smollm2_tokenizer.json")))
    taken: dict[str, list[float]] = {layout: [] for layout in LAYOUTS}
    for name in FILES:
        lines = gzip.decompress((cases / f"{name}.jsonl.gz").read_bytes()).decode().splitlines()
        for number, line in enumerate(lines[: limit or None]):
            schema = json.loads(line)["schema"]
            try:
                _once(schema, "compact", engine.vocabulary)  # what a vocabulary's constraints share is there now
                rounds = [
                    (layout, _once(schema, layout, engine.vocabulary))
                    for at in range(ROUNDS)
                    for layout in (LAYOUTS if (number + at) % 2 else LAYOUTS[::-1])
                ]
            except ConstraintError:
                continue
            for layout in LAYOUTS:
                taken[layout].append(min(seconds for one, seconds in rounds if one == layout))
    made = {"schemas": float(len(taken["auto"]))}
    for layout, all_of_it in taken.items():
        made[f"{layout}_ms"] = 1e3 * sum(all_of_it)
        made[f"{layout}_p50_ms"] = 1e3 * sorted(all_of_it)[len(all_of_it) // 2]
    return made


_number = 0


def _once(schema: object, whitespace: str, vocabulary: Vocabulary) -> float:
    global _number
    _number += 1
    began = time.perf_counter()
    build({"json_schema": schema, "options": {"whitespace": whitespace}}, vocabulary, str(_number)).matcher().mask()
    return time.perf_counter() - began


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", type=Path, required=True)
    parser.add_argument("--cases", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=0)
    options = parser.parse_args()
    print(json.dumps(measure(options.tools, options.cases, options.limit)))
