"""What can be said about a schema or a regex before anything is generated. Behind ``plait check-schema``."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from .interface import ConstraintError
from .lexicon import Lexicon
from .pushdown.machine import Machine
from .pushdown.matcher import PushdownConstraint
from .pushdown.nearest import FAR, Nearest
from .pushdown.rules import Lexeme, Rules
from .schema.check import check
from .schema.errors import Problem
from .schema.options import SchemaOptions
from .vocabulary import single_bytes

#: the nonterminal of a constraint in the rules
Build = Callable[[Lexicon, Rules], int]
#: bytes of a sample, at most
MAX_SAMPLE = 100_000


@dataclass(slots=True)
class Estimate:
    """Figures of one constraint over single bytes: a model's tokens change none of the states.

    ``sample`` is a shortest text, of which ``forced_share`` (0 to 1) is determined by what stands before it;
    ``states`` were reached on its way. ``compile_ms`` ends when its first byte could be written.
    """

    compile_ms: float
    states: int
    rules: int
    sample: str
    sample_bytes: int
    forced_share: float


@dataclass(slots=True)
class Report:
    """``supported``: a gen takes it as it is. ``problems``: why not. ``relaxable``: what ``strict=False`` would drop.
    ``notes``: what is legal and probably not meant."""

    supported: bool
    draft: str = ""
    schemas: int = 0
    depth: int = 0
    keywords: dict[str, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    relaxable: list[Problem] = field(default_factory=list)
    notes: list[Problem] = field(default_factory=list)
    estimate: Estimate | None = None

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        made = asdict(self)
        for name in ("problems", "relaxable", "notes"):
            made[name] = [problem._asdict() for problem in getattr(self, name)]
        return made


def schema_report(
    schema: Any, options: Mapping[str, Any] | None = None, documents: Mapping[str, Any] | None = None
) -> Report:
    """Everything about a schema, parsed or as JSON text. Raises ConstraintError for ``options`` that are wrong."""
    from .schema.compile import compile_schema
    from .schema.reader import read

    given = SchemaOptions.parse(options or {})
    looked = check(schema, given, documents=documents)
    report = Report(
        looked.ok,
        looked.draft,
        looked.schemas,
        looked.depth,
        looked.keywords,
        [*looked.errors, *looked.unsupported],
        looked.relaxed,
        looked.notes,
    )
    if not looked.ok and not looked.errors:
        relaxed = check(schema, SchemaOptions.parse({**(options or {}), "strict": False}), documents=documents)
        report.relaxable = relaxed.relaxed if relaxed.ok else []
    if report.supported:

        def build(lexicon: Lexicon, rules: Rules) -> int:
            return compile_schema(read(schema, documents=documents, options=given), given, lexicon.languages, rules)

        try:
            report.estimate = _estimate(build)
        except ConstraintError as error:
            report.supported = False
            report.problems.append(getattr(error, "problem", None) or Problem("", "#", str(error)))
    return report


def regex_report(pattern: str) -> Report:
    """The same for a regex of ``gen(regex=)``."""

    def build(lexicon: Lexicon, rules: Rules) -> int:
        language = lexicon.languages.regex(pattern, "python")
        if lexicon.languages.is_empty(language):
            raise ConstraintError("the regex matches nothing, not even the empty string")
        return rules.add(lambda: [(Lexeme(language),)])

    try:
        return Report(True, estimate=_estimate(build))
    except ConstraintError as error:
        return Report(False, problems=[Problem("", "", str(error))])


def _estimate(build: Build) -> Estimate:
    _built(build)  # what is read and imported at the first time is no part of the figure
    began = time.perf_counter()
    machine = _built(build)
    compile_ms = (time.perf_counter() - began) * 1e3
    nearest = Nearest(machine)
    matcher = PushdownConstraint(machine).matcher()
    if nearest.distance(matcher.config) >= FAR:
        raise ConstraintError("nothing can be written for it")
    sample, forced = bytearray(), 0
    while not matcher.accepting and len(sample) < MAX_SAMPLE:
        run = matcher.forced()
        forced += len(run)
        data = run or nearest.next_byte(matcher.config)[0]
        if not data or not matcher.advance_bytes(data):
            break
        sample += data
    return Estimate(
        round(compile_ms, 3),
        machine.configs,
        len(machine.rules),
        sample.decode("utf-8", "replace"),
        len(sample),
        round(forced / len(sample), 3) if sample else 0.0,
    )


def _built(build: Build) -> Machine:
    """A machine whose first mask is there."""
    vocabulary = single_bytes()
    lexicon = Lexicon(vocabulary)
    rules = Rules()
    start = build(lexicon, rules)
    machine = Machine(rules, start, lexicon.lexemes, vocabulary, lexicon.masks, "report")
    machine.mask(machine.start)
    return machine
