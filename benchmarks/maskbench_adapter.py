"""Plait's engine behind the interface of maskbench_lite.py, run_cases.py and regex_bench.py.

    python maskbench_lite.py --engine benchmarks/maskbench_adapter.py:PlaitEngine --data ROWS --tokenizer TOKENIZER ...

Everything runs in this process, through the function with which the core builds a constraint: one Lexicon per
vocabulary, one machine per schema, native where it was built. (The compiler child's check of the whole specification,
which a front awaits first, is not in it.) ``accept`` advances and fills what the next mask needs, as the core does
while the forward pass runs; ``total_us`` of benchmarks/constraints.py counts both.

The rows of JSON-Schema-Test-Suite need two things that the harness's ``compile(schema)`` does not hand over, so they
are looked up: the dataset (groups of ``format`` mean an annotation, those of ``optional/format`` an assertion) in the
row that the harness is working on, and the draft (the rows of draft 7 have no ``$schema``) in the name of the data
file. The suite's ``remotes`` come from jsts_cases.json.gz: ``$PLAIT_JSTS_CASES``, or beside the data.
"""

from __future__ import annotations

import gc
import gzip
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait.constrained.compiler import build, warm
from plait.constrained.interface import Constraint, Matcher
from plait.constrained.lexicon import lexicon_of
from plait.constrained.vocabulary import Vocabulary
from plait.native import loader

MODE = "declared key order, undeclared keys after them, at most one optional space after ':' and ',', otherwise compact"
MODE_ANY_ORDER = "keys in any order, at most one optional space after ':' and ',', otherwise compact"
REMOTES_AT = "http://localhost:1234/"
_DRAFTS = {
    "4": "4",
    "6": "6",
    "7": "7",
    "2019": "2019-09",
    "2020": "2020-12",
}


class PlaitMatcher:
    """One text being stepped through; ``constraint`` is shared by all of them."""

    def __init__(self, constraint: Constraint) -> None:
        self._constraint = constraint
        self.matcher: Matcher = constraint.matcher()

    def mask(self, out: NDArray[np.int32]) -> None:
        out[:] = self.matcher.mask().view(np.int32)

    def accept(self, token: int) -> bool:
        if not self.matcher.advance(token):
            return False
        self.matcher.prepare()
        return True

    def is_done(self) -> bool:
        return self.matcher.accepting

    def forced(self) -> bytes:
        return self.matcher.forced()

    def fresh(self) -> PlaitMatcher:
        return PlaitMatcher(self._constraint)


class PlaitEngine:
    """``compile`` raises ConstraintError for what is refused: the keyword, its pointer and the reason."""

    name = "plait"
    mode = MODE
    any_order = False

    def setup(self, tok: Any) -> None:
        """``tok``: the harness's TokInfo."""
        self.vocabulary = Vocabulary(
            tok.token_bytes,
            size=tok.vocab_size,
            eos_ids=[tok.eos_id],
            special_ids=list(tok.special),
            encode=lambda data: tok.encode(data.decode()),
        )
        loader.load()  # builds the native code if the sources are new: not a part of the first row's time
        # what the core does once, when it has loaded a model (runtime/core/process.py)
        lexicon_of(self.vocabulary)
        warm()
        gc.collect()
        gc.freeze()
        gc.set_threshold(5_000, 20, 200)
        data = _option("--data")
        self.documents = _remotes(data)
        found = re.search(r"jsts_(\d+)", data.name) if data else None
        self.draft = _DRAFTS.get(found[1]) if found else None
        self.number = 0
        print(f"plait: {self.mode}", flush=True)

    def compile(self, schema: Any) -> PlaitMatcher:
        options: dict[str, Any] = {"whitespace": "single", "undeclared": True}
        if self.any_order:
            options["any_order"] = True
        if self.draft is not None:
            options["draft"] = self.draft
            if _dataset(schema) == "format":
                options["format"] = "annotate"
        return self._matcher({"json_schema": schema, "options": options, "documents": self.documents})

    def compile_regex(self, pattern: str) -> PlaitMatcher:
        return self._matcher({"regex": pattern})

    def compile_ebnf(self, grammar: str) -> PlaitMatcher:
        return self._matcher({"grammar": grammar, "syntax": "auto"})

    def _matcher(self, data: dict[str, Any]) -> PlaitMatcher:
        self.number += 1
        return PlaitMatcher(build(data, self.vocabulary, str(self.number)))


class PlaitAnyOrder(PlaitEngine):
    name = "plait-any-order"
    mode = MODE_ANY_ORDER
    any_order = True


def _dataset(schema: Any) -> str:
    """The dataset of the row whose schema this is: a local variable of the harness's loop over its rows."""
    frame = sys._getframe(1)
    while frame is not None:
        row = frame.f_locals.get("row")
        if isinstance(row, dict) and row.get("schema") is schema:
            return str(row.get("dataset", ""))
        frame = frame.f_back  # type: ignore[assignment]
    return ""


def _option(name: str) -> Path | None:
    """The value of a command line option: the harness's worker is spawned with the arguments of its parent."""
    if name in sys.argv[:-1]:
        return Path(sys.argv[sys.argv.index(name) + 1])
    return None


def _remotes(data: Path | None) -> dict[str, Any]:
    """The suite's documents by URI, for its rows only: other data must get by with what the engine has."""
    given = os.environ.get("PLAIT_JSTS_CASES")
    if given is None and (data is None or not data.name.startswith("jsts_")):
        return {}
    path = Path(given) if given else data.with_name("jsts_cases.json.gz")  # type: ignore[union-attr]
    if not path.exists():
        return {}
    with gzip.open(path, "rt", encoding="utf-8") as file:
        remotes = json.load(file)["remotes"]
    return {REMOTES_AT + name: document for name, document in remotes.items()}
