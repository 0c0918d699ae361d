"""A regex as a picture: its automaton over characters, with one-way chains drawn as one edge, in graphviz' language.

::

    (0) -- "https" --> ... becomes      s ==== https?:// ====> ((t))
         state: a position of the language      edge: the classes read one after another, "abc" or "[a-z0-9]"
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass, field

from .charset import ALL, Ranges, complement, normalize
from .interface import ConstraintError
from .regular.language import Language

MAX_STATES = 500
_MAX_LABEL = 60


@dataclass(slots=True)
class Automaton:
    """State 0 is the start. ``edges[s]``: target -> what is read. ``open``: states whose edges were not followed."""

    edges: list[dict[int, Ranges]] = field(default_factory=list)
    accepting: list[bool] = field(default_factory=list)
    open: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Edge:
    source: int
    target: int
    reads: list[Ranges]


def explored(language: Language, most: int = MAX_STATES) -> Automaton:
    """Breadth first from its start; what lies behind ``most`` states is left open."""
    made = Automaton()
    numbers: dict[Language, int] = {language: 0}
    todo = [language]
    for position in todo:
        made.accepting.append(position.accepting)
        leaves: dict[int, list[tuple[int, int]]] = {}
        for low, high, target in position.edges():
            if target not in numbers:
                if len(todo) >= most:
                    made.open.add(numbers[position])
                    continue
                numbers[target] = len(todo)
                todo.append(target)
            leaves.setdefault(numbers[target], []).append((low, high))
        made.edges.append({target: normalize(ranges) for target, ranges in leaves.items()})
    return made


def compressed(automaton: Automaton) -> list[Edge]:
    """Its edges, where a state that is only passed through is part of the edge."""
    arrivals = [0] * len(automaton.edges)
    arrivals[0] = 2  # always drawn
    for leaves in automaton.edges:
        for target in leaves:
            arrivals[target] += 1
    passed = [
        arrivals[state] == 1 and len(leaves) == 1 and not automaton.accepting[state] and state not in automaton.open
        for state, leaves in enumerate(automaton.edges)
    ]
    found = []
    for source, leaves in enumerate(automaton.edges):
        if passed[source]:
            continue
        for target, ranges in leaves.items():
            reads, at = [ranges], target
            while passed[at]:
                (following,) = automaton.edges[at]
                reads.append(automaton.edges[at][following])
                at = following
            found.append(Edge(source, at, reads))
    return found


def dot(language: Language, most: int = MAX_STATES) -> str:
    """The picture as text for graphviz. Dashed: more states than ``most`` lie behind."""
    automaton = explored(language, most)
    edges = compressed(automaton)
    drawn = sorted({0} | {edge.source for edge in edges} | {edge.target for edge in edges})
    number = {state: place for place, state in enumerate(drawn)}
    lines = ["digraph regex {", "  rankdir=LR;", '  node [shape=circle, label="", width=0.3];']
    lines += ["  start [shape=none, width=0];", "  start -> 0;"]
    for state in drawn:
        looks = []
        if automaton.accepting[state]:
            looks.append("shape=doublecircle")
        if state in automaton.open:
            looks.append('style=dashed, label="…"')
        lines.append(f"  {number[state]} [{', '.join(looks)}];" if looks else f"  {number[state]};")
    for edge in edges:
        label = _quoted(_label(edge.reads))
        lines.append(f"  {number[edge.source]} -> {number[edge.target]} [label={label}];")
    return "\n".join([*lines, "}"]) + "\n"


def svg(text: str) -> str:
    """What graphviz draws of :func:`dot`'s text. Raises ConstraintError where it is not installed, or fails."""
    program = shutil.which("dot")
    if program is None:
        raise ConstraintError("an SVG needs graphviz' program dot, which is not on the PATH: install it, or use --dot")
    try:
        done = subprocess.run([program, "-Tsvg"], input=text, capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        raise ConstraintError("graphviz took more than a minute to lay the picture out: use --dot") from None
    if done.returncode:
        raise ConstraintError(f"graphviz failed: {done.stderr.strip()[:200]}")
    return done.stdout


def _label(reads: list[Ranges]) -> str:
    text = "".join(class_name(ranges) for ranges in reads)
    return text if len(text) <= _MAX_LABEL else f"{text[: _MAX_LABEL - 1]}… ({len(reads)} characters)"


def class_name(ranges: Ranges) -> str:
    """``a``, ``[a-z0-9]``, ``[^"]`` or ``any``."""
    if ranges == ALL:
        return "any"
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return _char(ranges[0][0])
    rest = complement(ranges)
    negated = sum(high - low + 1 for low, high in rest) < sum(high - low + 1 for low, high in ranges)
    parts = []
    for low, high in rest if negated else ranges:
        if high - low < 2:
            parts += [_char(code, inside=True) for code in range(low, high + 1)]
        else:
            parts.append(f"{_char(low, inside=True)}-{_char(high, inside=True)}")
    shown = "".join(parts[:24]) + ("…" if len(parts) > 24 else "")
    return f"[^{shown}]" if negated else f"[{shown}]"


def _char(code: int, inside: bool = False) -> str:
    char = chr(code)
    if char in "\n\r\t":
        return {"\n": r"\n", "\r": r"\r", "\t": r"\t"}[char]
    if not char.isprintable():
        return f"\\x{code:02x}" if code < 256 else f"\\u{{{code:x}}}"
    if char in ("\\", "[", "]") or (inside and char in "^-"):
        return "\\" + char
    return "␣" if char == " " else char


def _quoted(label: str) -> str:
    """A string of graphviz' language, in which a backslash would begin an escape."""
    return '"' + label.replace("\\", "\\\\").replace('"', '\\"') + '"'
