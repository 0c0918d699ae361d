"""Every figure of docs/constraints.md on right answers and speed, from the project's harnesses and their data.

    python benchmarks/constraints.py --tools DIR --cases DIR [--only open,jsts,...] [--out DIR] [--limit N]

``--tools`` has maskbench_lite.py, run_cases.py and regex_bench.py; ``--cases`` has the data (neither is part of this
repository). Sections: open, order, jsts, cases, patterns, speed, layout, memory, regex, forced. Each harness runs in a
process of its own. ``speed`` runs llguidance beside plait, one after the other on one thread, each in a fresh process.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ADAPTER = HERE / "maskbench_adapter.py"


class Bench:
    """``rows``: (what, what must hold, what was measured, whether it holds or None)."""

    def __init__(self, tools: Path, cases: Path, out: Path, limit: int) -> None:
        self.tools, self.cases, self.out, self.limit = tools, cases, out, limit
        self.rows: list[tuple[str, str, str, bool | None]] = []

    def add(self, what: str, wanted: str, measured: str, holds: bool | None = None) -> None:
        self.rows.append((what, wanted, measured, holds))
        print(
            f"{what}: {measured} (must hold: {wanted}) {'' if holds is None else 'yes' if holds else 'NO'}", flush=True
        )

    def tool(self, name: str, *arguments: str) -> str:
        """Its output. One thread of whatever library uses several."""
        environment = os.environ | {"OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
        done = subprocess.run(
            [
                sys.executable,
                str(self.tools / name),
                "--tokenizer",
                str(self.cases / "smollm2_tokenizer.json"),
                *arguments,
            ],
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"{name} failed: {done.stderr[-2000:]}")
        return done.stdout

    def maskbench(self, data: str, engine: str, *more: str) -> dict[str, Any]:
        out = self.out / f"{data}-{engine}{'-masks' if more else ''}.json"
        spec = engine if engine == "llguidance" else f"{ADAPTER}:{engine}"
        limit = ["--limit", str(self.limit)] if self.limit else []
        path = self.cases / f"{data}.jsonl.gz"
        self.tool("maskbench_lite.py", "--engine", spec, "--data", str(path), "--out", str(out), *limit, *more)
        made: dict[str, Any] = json.loads(out.read_text())
        made["path"] = str(out)
        return made

    # ---- sections

    def open(self) -> None:
        from maskbench_adapter import MODE

        print(f"mode: {MODE}", flush=True)
        self._right("maskbench_open", "PlaitEngine", 0.94)

    def order(self) -> None:
        from maskbench_adapter import MODE_ANY_ORDER

        print(f"mode: {MODE_ANY_ORDER}", flush=True)
        self._right("maskbench_open", "PlaitAnyOrder", 0.965)

    def _right(self, data: str, engine: str, wanted: float) -> None:
        made = self.maskbench(data, engine)
        summary = made["summary"]
        name = f"{data}, {engine}"
        self.add(
            f"{name}: schemas fully right",
            f">= {100 * wanted:g} %",
            f"{100 * summary['schema_fully_right']:.1f} % of {summary['n']}",
            summary["schema_fully_right"] >= wanted,
        )
        invalid = summary["default"]["format_invalid_accepted"] + summary["compact"]["format_invalid_accepted"]
        accepted = summary["invalid_accepted_any_form"]
        self.add(
            f"{name}: invalid instances accepted",
            "0",
            f"{100 * accepted:.2f} % (by format alone: {100 * invalid / 2:.2f} %)",
            accepted + invalid == 0,
        )
        killed = {why: count for why, count in summary["errors"].items() if why != "refused"}
        slowest = summary["compile_ms"]["max"]
        self.add(
            f"{name}: refused; killed; slowest compile",
            "none killed, <= 1 s",
            f"{summary['errors'].get('refused', 0)}; {killed or 'none'}; {slowest:.0f} ms",
            not killed and slowest <= 1000,
        )
        for row in made["results"]:
            if "error" in row:
                print(f"    {row['id']}: {row['error'][:200]}")

    def jsts(self) -> None:
        for data in ("jsts_2020_rows", "jsts_7_rows"):
            made = self.maskbench(data, "PlaitEngine")["summary"]
            self.add(
                f"{data}: groups right",
                ">= 85 %",
                f"{100 * made['schema_fully_right']:.1f} % of {made['n']}",
                made["schema_fully_right"] >= 0.85,
            )
            accepted = made["invalid_accepted_any_form"]
            self.add(f"{data}: invalid accepted", "<= 0.5 %", f"{100 * accepted:.2f} %", accepted <= 0.005)

    def small(self) -> None:
        for name in ("open_cases", "production_open", "extraction_open"):
            out = self.out / f"{name}.json"
            path = self.cases / f"{name}.json"
            self.tool("run_cases.py", "--cases", str(path), "--engine", f"{ADAPTER}:PlaitEngine", "--out", str(out))
            made = json.loads(out.read_text())
            wrong = [row["id"] for row in made if row["status"] != "ok"]
            measured = f"{len(made) - len(wrong)} of {len(made)} {wrong or ''}"
            if wrong and not (
                wrong := [name for name in wrong if not self._as_written(json.loads(path.read_text()), name)]
            ):
                # run_cases.py takes a text for accepted if its compact form is, which is another text
                measured += ", which refuses its texts as they are written (the harness tries them compact, too)"
            self.add(name, "all", measured, not wrong)

    def _as_written(self, cases: list[dict[str, Any]], name: str) -> bool:
        """Whether the case with this id is right on its texts as they stand, without the harness's compact form."""
        sys.path.insert(0, str(self.tools))
        import maskbench_lite
        import run_cases
        from maskbench_adapter import PlaitEngine

        case = next(case for case in map(run_cases.normal, cases) if case and case["id"] == name)
        engine, tok = PlaitEngine(), maskbench_lite.TokInfo(str(self.cases / "smollm2_tokenizer.json"))
        engine.setup(tok)
        first = engine.compile(case["spec"])

        def accepted(text: str) -> bool:
            return bool(maskbench_lite.step_through(first.fresh(), tok.encode(text), tok, [])[0])

        return all(map(accepted, case["accept"])) and not any(map(accepted, case["reject"]))

    def patterns(self) -> None:
        lines = gzip.decompress((self.cases / "patterns.jsonl.gz").read_bytes()).decode().splitlines()
        rows = [json.loads(line) for line in lines][: self.limit or None]
        checked = check_patterns([row["pattern"] for row in rows])
        total = len(rows)
        compiled = total - len(checked.refused)
        share = compiled / total
        self.add("patterns: compile", ">= 99 %", f"{100 * share:.2f} % ({compiled} of {total})", share >= 0.99)
        self.add(
            "patterns: differ from re",
            "0",
            f"{len(checked.wrong)} of {checked.compared} compared on {checked.strings} strings",
            not checked.wrong,
        )
        for line in (*checked.refused, *checked.wrong[:20]):
            print(f"    {line[:300]}")

    def speed(self) -> None:
        ours = self.maskbench("maskbench_open", "PlaitEngine", "--keep-masks")["path"]
        peer = self.maskbench("maskbench_open", "llguidance", "--keep-masks")["path"]
        table = self.tool("maskbench_lite.py", "--compare", ours, peer)
        print(table)
        ratios = [float(cell) for cell in table.strip().splitlines()[-1].split("|")[2:-1]]
        for what, value, most in (
            ("compile + first mask p50", ratios[0], 0.6),
            ("mask mean", ratios[2], 1.0),
            ("mask p50", ratios[3], 0.3),
            ("mask p99", ratios[4], 1.0),
        ):
            self.add(f"beside llguidance: {what}", f"<= {most:g} x", f"{value:.2f} x", value <= most)

    def layout(self) -> None:
        """What the default layout costs beside a fixed one."""
        limit = ["--limit", str(self.limit)] if self.limit else []
        command = [sys.executable, str(HERE / "layout_cost.py"), "--tools", str(self.tools), "--cases", str(self.cases)]
        done = subprocess.run([*command, *limit], capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr[-2000:])
        made = json.loads(done.stdout.strip().splitlines()[-1])
        for what, name in (("all together", "ms"), ("p50", "p50_ms")):
            ratio = made[f"auto_{name}"] / made[f"compact_{name}"]
            self.add(
                f'whitespace="auto" beside "compact": compile + first mask, {what}',
                "<= 1.1 x",
                f"{ratio:.2f} x ({made[f'auto_{name}']:.2f} and {made[f'compact_{name}']:.2f} ms, "
                f"{made['schemas']:.0f} schemas)",
                ratio <= 1.1,
            )

    def memory(self) -> None:
        """RSS after every schema and instance of maskbench_open against RSS after setup, in a process of its own."""
        code = (
            "import sys; sys.path[:0] = sys.argv[1:3]\n"
            "import maskbench_lite as mb, constraints\n"
            "constraints.measure_memory(mb, sys.argv[3], sys.argv[4])\n"
        )
        data = self.cases / "maskbench_open.jsonl.gz"
        paths = [str(self.tools), str(HERE), str(data), str(self.cases / "smollm2_tokenizer.json")]
        done = subprocess.run([sys.executable, "-c", code, *paths], capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr[-2000:])
        made = json.loads(done.stdout.strip().splitlines()[-1])
        self.add(
            "RSS growth over maskbench_open",
            "<= 1 MB a schema",
            f"{made['growth_mb'] / made['schemas']:.2f} MB ({made['growth_mb']:.0f} MB, {made['schemas']} schemas)",
            made["growth_mb"] <= made["schemas"],
        )
        self.add(
            "step: accept + mask, us p50 / mean / p99", "-", " / ".join(f"{value:.1f}" for value in made["total_us"])
        )

    def regex(self) -> None:
        out = self.out / "regex.json"
        self.tool("regex_bench.py", "--engines", f"{ADAPTER}:PlaitEngine", "--out", str(out))
        made = json.loads(out.read_text())
        wrong = [name.split("/")[0] for name, row in made.items() if not row.get("ok")]
        self.add(
            "regex_bench: right on their samples",
            "all",
            f"{len(made) - len(wrong)} of {len(made)} {wrong or ''}",
            not wrong,
        )
        for name in ("rep5000", "alt1000"):
            row = next(row for key, row in made.items() if key.startswith(name))
            self.add(f"regex_bench: {name} compile", "<= 20 ms", f"{row['build_ms']:.2f} ms", row["build_ms"] <= 20)
            self.add(f"regex_bench: {name} first mask", "-", f"{row['first_mask_ms']:.2f} ms")

    def forced(self) -> None:
        data = ["--data", str(self.cases / "maskbench_open.jsonl.gz"), "--forced"]
        share = {}
        for engine in ("llguidance", f"{ADAPTER}:PlaitEngine"):
            said = self.tool("maskbench_lite.py", "--engine", engine, *data).strip().splitlines()[-1]
            print(f"    {said}")
            share[engine] = float(re.findall(r"([\d.]+)%", said)[0])
        peer, ours = share.values()
        self.add("forced bytes of valid instances", f">= llguidance's {peer:g} %", f"{ours:g} %", ours >= peer)
        self._settled()

    def _settled(self) -> None:
        """Every forced run met on the way through the valid instances: its settled tokens are a prefix of encode(run),
        and how often they are also what the tokenizer makes of the whole text."""
        sys.path.insert(0, str(self.tools))
        import maskbench_lite
        from maskbench_adapter import PlaitEngine

        from plait.constrained.jump import settled_prefix

        engine, tok = PlaitEngine(), maskbench_lite.TokInfo(str(self.cases / "smollm2_tokenizer.json"))
        engine.setup(tok)
        vocabulary = engine.vocabulary
        runs = prefixes = whole = settled = 0
        for row in maskbench_lite.read_rows(str(self.cases / "maskbench_open.jsonl.gz"))[: self.limit or None]:
            try:
                first = engine.compile(row["schema"])
            except ValueError:
                continue
            for test in row["tests"]:
                if not test["valid"]:
                    continue
                text = json.dumps(test["data"], separators=(",", ":"), ensure_ascii=False)
                ids, matcher = tok.encode(text), first.fresh().matcher
                for at, token in enumerate(ids):
                    run = matcher.forced()
                    if run:
                        tokens, _ = settled_prefix(matcher, vocabulary, run)
                        if tokens:
                            runs, settled = runs + 1, settled + len(tokens)
                            prefixes += tokens == vocabulary.encode(run)[: len(tokens)]
                            whole += tokens == ids[at : at + len(tokens)]
                    if not matcher.advance(token):
                        break
        self.add(
            "settled tokens of forced runs are a prefix of encode(run)",
            "every run",
            f"{prefixes} of {runs} runs ({settled} tokens)",
            prefixes == runs,
        )
        self.add("and are those of the whole text's encoding", "-", f"{whole} of {runs} runs")


# ---------------------------------------------------------------- patterns against re


class Checked:
    def __init__(self) -> None:
        self.refused: list[str] = []
        self.wrong: list[str] = []
        self.compared = self.strings = 0


def check_patterns(patterns: list[str], strings: int = 16) -> Checked:
    """Each as JSON Schema's ``pattern`` against ``re``, as patterns_check.py does it: on members and mutations."""
    import patterns_check as against

    from plait.constrained.interface import ConstraintError
    from plait.constrained.regular.languages import Languages

    checked = Checked()
    draw = random.Random(0)
    warnings.simplefilter("ignore", FutureWarning)
    signal.signal(signal.SIGALRM, against.too_slow)
    for pattern in patterns:
        try:
            languages = Languages(against.UNIVERSE)
            language = languages.regex(pattern, "ecma")
            empty = language is languages.EMPTY
            members = [""] if empty else [against.sample(language, draw) for _ in range(strings // 2)]
        except ConstraintError as error:
            checked.refused.append(f"refused {pattern!r}: {error}")
            continue
        try:
            expected = re.compile(against.to_python(pattern), re.ASCII)
        except re.error:
            continue
        checked.compared += 1
        for text in [*members, *(against.mutated(draw.choice(members), draw) for _ in range(strings // 2))]:
            found = against.searched(expected, text)
            checked.strings += found is not None
            if found is not None and language.matches(text) != found:
                checked.wrong.append(f"wrong {pattern!r} on {text!r}: re says {found}")
                break
    return checked


# ---------------------------------------------------------------- in the process that measures memory


def measure_memory(harness: Any, data: str, tokenizer: str) -> None:
    """Prints JSON: growth of RSS in MB, and what a step takes with everything that it prepares."""
    import gc

    import numpy as np
    from maskbench_adapter import PlaitEngine

    engine, token_info = PlaitEngine(), harness.TokInfo(tokenizer)
    engine.setup(token_info)
    engine.compile({}).mask(np.zeros(token_info.words, np.int32))
    buffer = np.zeros(token_info.words, np.int32)
    gc.collect()
    before, times, schemas = rss(), [], 0
    for row in harness.read_rows(data):
        schemas += 1
        try:
            first = engine.compile(row["schema"])
        except Exception:
            continue
        for test in row["tests"]:
            matcher = first.fresh()
            for token in token_info.encode(json.dumps(test["data"], separators=(",", ":"), ensure_ascii=False)):
                began = time.perf_counter_ns()
                matcher.mask(buffer)
                accepted = matcher.accept(token)
                times.append(time.perf_counter_ns() - began)
                if not accepted:
                    break
    gc.collect()
    us = np.array(times) / 1e3
    total = [float(np.percentile(us, 50)), float(us.mean()), float(np.percentile(us, 99))]
    print(json.dumps({"schemas": schemas, "growth_mb": (rss() - before) / 1e6, "total_us": total}))


def rss() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", type=Path, required=True)
    parser.add_argument("--cases", type=Path, required=True)
    parser.add_argument("--only", default="open,order,jsts,cases,patterns,speed,layout,memory,regex,forced")
    parser.add_argument("--out", type=Path, help="keep the harnesses' results here")
    parser.add_argument("--limit", type=int, default=0, help="first rows only")
    given = parser.parse_args()
    out = given.out or Path(tempfile.mkdtemp())
    out.mkdir(parents=True, exist_ok=True)
    sys.path.insert(0, str(HERE))
    bench = Bench(given.tools, given.cases, out, given.limit)
    sections: dict[str, Callable[[], None]] = {
        "open": bench.open,
        "order": bench.order,
        "jsts": bench.jsts,
        "cases": bench.small,
        "patterns": bench.patterns,
        "speed": bench.speed,
        "layout": bench.layout,
        "memory": bench.memory,
        "regex": bench.regex,
        "forced": bench.forced,
    }
    for name in given.only.split(","):
        if name not in sections:
            parser.error(f"no section {name!r}: {', '.join(sections)}")
        sections[name]()
    print("\n| what | must hold | measured | holds |\n|---|---|---|---|")
    for what, wanted, measured, holds in bench.rows:
        print(f"| {what} | {wanted} | {measured} | {'-' if holds is None else 'yes' if holds else '**no**'} |")


if __name__ == "__main__":
    main()
