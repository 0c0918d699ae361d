"""Real JSON Schema patterns against Python's ``re``: python -m benchmarks.patterns_check FILE [--strings 30]

FILE holds one JSON object a line with the key "pattern" (gzip if its name ends in .gz). Each pattern is compiled with
flavour "ecma" and compared, on members of its language and mutations of them, with ``re.search`` under re.ASCII where
``$`` is read as the very end. Counted: compiled, refused (by message), disagreements, and the time of each step.
Texts hold no character on which ECMA-262 and ``re`` differ by definition (line separators for ``.``, white space
beyond ASCII for ``\\s``).
"""

from __future__ import annotations

import argparse
import collections
import gzip
import json
import random
import re
import signal
import statistics
import time
import warnings
from pathlib import Path

from plait.constrained.charset import ALL, complement, intersect
from plait.constrained.interface import ConstraintError
from plait.constrained.regular.language import Language
from plait.constrained.regular.languages import Languages

DIFFER = ((11, 13), (28, 31), (133, 133), (160, 160), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029))
DIFFER += ((0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF))
UNIVERSE = intersect(ALL, complement(DIFFER))


def to_python(pattern: str) -> str:
    """The same in Python's syntax, as far as the data needs it."""
    found, at, inside = "", 0, False
    while at < len(pattern):
        char = pattern[at]
        if char == "\\" and at + 1 < len(pattern):
            found += char + pattern[at + 1] if pattern[at + 1] not in '"/_@' else pattern[at + 1]
            at += 2
            continue
        if char == "[":
            inside = True
        elif char == "]":
            inside = False
        found += r"\Z" if char == "$" and not inside else char
        at += 1
    return found


def sample(language: Language, rng: random.Random) -> str:
    at, text = language, ""
    for step in range(400):
        edges = at.edges()
        if at.accepting and (not edges or rng.random() < 0.15 or step > 60):
            return text
        if step > 60:
            low, high, at = min(edges, key=lambda edge: edge[2].shortest)
        else:
            low, high, at = rng.choice(edges)
        text += chr(rng.randint(low, min(high, 126) if low < 126 and rng.random() < 0.9 else high))
    return text


def too_slow(*_: object) -> None:
    raise TimeoutError


def searched(expected: re.Pattern[str], text: str) -> bool | None:
    """What ``re`` says; None if it backtracks for more than 0.2 s."""
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        return expected.search(text) is not None
    except TimeoutError:
        return None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def mutated(text: str, rng: random.Random) -> str:
    at = rng.randrange(len(text) + 1)
    other = rng.choice('aZ09 -_./\n{"é\u20ac😀') if rng.random() < 0.6 or not text else rng.choice(text)
    kind = rng.randrange(4)
    if kind == 0:
        return text[:at] + other + text[at:]
    if kind == 1:
        return text[:at] + text[at + 1 :]
    if kind == 2:
        return text[:at] + other + text[at + 1 :]
    return text[:at] + text[at:] + text[:at]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("file", type=Path)
    options.add_argument("--strings", type=int, default=30)
    options.add_argument("--show", type=int, default=20)
    given = options.parse_args()
    data = given.file.read_bytes()
    lines = (gzip.decompress(data) if given.file.suffix == ".gz" else data).decode().splitlines()
    patterns = [json.loads(line)["pattern"] for line in lines]
    rng = random.Random(0)
    counts: collections.Counter[str] = collections.Counter()
    refused: list[tuple[str, str]] = []
    wrong: list[tuple[str, str, bool]] = []
    compile_us, walk_us, edge_us = [], [], []
    slow: list[tuple[float, str]] = []
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, too_slow)
    for pattern in patterns:
        languages = Languages(UNIVERSE)
        start = time.thread_time()
        try:
            language = languages.regex(pattern, "ecma")
        except ConstraintError as error:
            counts["refused"] += 1
            refused.append((pattern, str(error)))
            continue
        took = (time.thread_time() - start) * 1e6
        compile_us.append(took)
        slow.append((took, pattern))
        if language is languages.EMPTY:
            counts["matches nothing"] += 1
            refused.append((pattern, "matches nothing"))
            continue
        try:
            expected = re.compile(to_python(pattern), re.ASCII)
        except re.error:
            counts["compiled, but not by re"] += 1
            continue
        counts["compiled"] += 1
        for number in range(given.strings):
            text = sample(language, rng)
            if number % 3:
                text = mutated(text, rng)
            if any(low <= ord(char) <= high for char in text for low, high in DIFFER):
                continue
            start = time.thread_time()
            got = language.matches(text)
            walk_us.append((time.thread_time() - start) * 1e6 / (len(text) + 1))
            truth = searched(expected, text)
            if truth is None:
                counts["strings too slow for re"] += 1
                break
            counts["strings"] += 1
            if got != truth:
                counts["disagreements"] += 1
                wrong.append((pattern, text, got))
        fresh = Languages(UNIVERSE)
        at, steps = fresh.regex(pattern, "ecma"), 0
        start = time.thread_time()
        while (edges := at.edges()) and steps < 50:
            at, steps = edges[steps % len(edges)][2], steps + 1
        edge_us.append((time.thread_time() - start) * 1e6 / (steps + 1))
    print(f"{len(patterns)} patterns:", ", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    for name, figures in (("compile", compile_us), ("new position", edge_us), ("known position", walk_us)):
        ranked = sorted(figures)
        print(
            f"{name}: median {statistics.median(ranked):.1f} us, p99 {ranked[int(len(ranked) * 0.99)]:.1f}, "
            f"max {ranked[-1]:.0f}"
        )
    for pattern, message in refused[: given.show]:
        print("refused:", pattern[:80], "--", message)
    for pattern, text, got in wrong[: given.show]:
        print(f"wrong: {pattern[:160]!r} on {text[:80]!r}: here {got}")
    for took, pattern in sorted(slow, reverse=True)[:5]:
        print(f"slowest: {took:.0f} us {pattern[:100]}")


if __name__ == "__main__":
    main()
