"""Every installed engine over the same cases: ours is right in all of them, and what the others do otherwise is known.

constraint_disagreements.md explains each difference by backend and case. A difference that is not in it fails, and so
does one that is in it and did not happen, where the library has the version that the table was made with.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from constraint_cases import CASES, Case

import plait
from plait.constrained import backends
from plait.constrained.compiler import compile_spec, load
from plait.constrained.interface import Constraint, ConstraintError, Matcher
from plait.constrained.vocabulary import Vocabulary
from plait.runtime.errors import InvalidConstraint

TABLE = Path(__file__).with_name("constraint_disagreements.md")
MADE_WITH = {
    "outlines": ("outlines_core", "0.2.14"),
    "llguidance": ("llguidance", "1.9.1"),
    "xgrammar": ("xgrammar", "0.2.9"),
}
EOS = 0
PIECES = [
    "ab",
    "abc",
    "true",
    "null",
    '{"',
    '":',
    '","',
    '"}',
    "12",
    "00",
    "  ",
    ": ",
    ", ",
    "[]",
    "Größe",
    "日本",
    "w" * 8,
]


@lru_cache
def vocabulary() -> Vocabulary:
    """Every byte, a few longer tokens and two ids that spell nothing: 300 ids in all."""
    tokens: list[bytes | None] = [None, *(bytes([value]) for value in range(256))]
    tokens += [piece.encode() for piece in PIECES]
    made = Vocabulary(tokens, size=300, eos_ids=[EOS], special_ids=[299], encode=lambda data: made.longest_tokens(data))
    return made


def compiled(backend: str, spec: dict[str, Any]) -> Constraint:
    """As the compiler child and the core do it: the verdict, then the load over the model's vocabulary."""
    payload = compile_spec("spec", json.dumps(spec), backend=backend)
    return load(payload, vocabulary(), "test")


def allowed(matcher: Matcher, token: int) -> bool:
    return bool(int(matcher.mask()[token // 32]) >> token % 32 & 1)


class Inconsistent(Exception):
    """A matcher that contradicts itself; the message is the behaviour."""


def accepts(constraint: Constraint, text: str, tokens: list[int]) -> bool:
    """Step by step through the masks, as generation would; and the forced bytes are what comes."""
    matcher = constraint.matcher()
    data = text.encode()
    at = 0
    broken: list[bytes] = []  # forced bytes that did not come
    for token in tokens:
        assert matcher.prepare()
        forced = matcher.forced()
        if not data.startswith(forced, at):
            broken.append(forced)
        if not allowed(matcher, token):
            if matcher.advance(token):
                raise Inconsistent(f"its mask leaves out {vocabulary().tokens[token].decode()}, which it takes")
            return False
        assert matcher.advance(token), "a token that the mask allows was not taken"
        at += len(vocabulary().tokens[token])
    assert allowed(matcher, EOS) == matcher.accepting
    if matcher.accepting and broken:
        raise Inconsistent(f"forces {broken[0]!r} where something else may come")
    return matcher.accepting


def spellings(text: str) -> Iterator[list[int]]:
    yield vocabulary().longest_tokens(text.encode())
    yield [vocabulary().id_of[bytes([value])] for value in text.encode()]


def behaviour(backend: str, case: Case) -> str:
    """ "right", or what is not: as the table writes it."""
    try:
        constraint = compiled(backend, case.spec)
    except ConstraintError:
        return "right" if case.refuse else "refuses"
    if case.refuse:
        return "compiles"
    wrong = []
    for texts, want in ((case.accept, True), (case.reject, False), (case.policy, False)):
        for text in texts:
            try:
                got = [accepts(constraint, text, tokens) for tokens in spellings(text)]
            except Inconsistent as error:
                wrong.append(str(error))
                continue
            if got != [want] * len(got):
                said = "rejects" if want else "accepts"
                wrong.append(f"{said} {text if len(text) < 40 else text[:37] + '...'}".replace("\n", "↵"))
    return "; ".join(dict.fromkeys(wrong)) or "right"


def explained() -> dict[tuple[str, str], str]:
    """(backend, case) -> what it does; each row of the table says why too."""
    rows = {}
    for line in TABLE.read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and cells[0] in backends.NAMES:
            backend, case, what, why = cells
            assert why, line
            rows[backend, case] = what
    return rows


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_labels(case: Case) -> None:
    """``re`` and ``jsonschema`` agree with what the case says; duplicate keys and spaces are beyond them."""
    if case.refuse or not case.spec.keys() & {"regex", "json_schema"}:
        return
    if "regex" in case.spec:
        right = re.compile(case.spec["regex"]).fullmatch
    else:
        schema = case.spec["json_schema"]
        kind = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
        validator = kind(schema, format_checker=kind.FORMAT_CHECKER)

        def right(text: str) -> bool:
            try:
                return bool(validator.is_valid(json.loads(text)))
            except json.JSONDecodeError:
                return False

    assert [text for text in (*case.accept, *case.policy) if not right(text)] == []
    assert [text for text in case.reject if right(text)] == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_ours_is_right(case: Case) -> None:
    assert behaviour("plait", case) == "right"


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of what the libraries import
@pytest.mark.parametrize("backend", backends.NAMES[1:])
def test_every_disagreement_is_explained(backend: str) -> None:
    if backend not in backends.installed():
        pytest.skip(f"{backend} is not installed")
    table = {case: what for (name, case), what in explained().items() if name == backend}
    found = {case.id: what for case in CASES if (what := behaviour(backend, case)) != "right"}
    unexplained = {case: what for case, what in found.items() if table.get(case) != what}
    assert unexplained == {}
    module, version = MADE_WITH[backend]
    if importlib.metadata.version(module) == version:
        assert sorted(table.keys() - found.keys()) == [], "explained, and did not happen"


def test_unknown_and_missing_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConstraintError, match=r"'xgramar' is not known \(known: plait, outlines, llguidance, xgrammar"):
        backends.load("xgramar", {"regex": "a"}, vocabulary(), "")
    monkeypatch.setattr(backends, "installed", lambda: ())
    with pytest.raises(ConstraintError, match=r"needs the package outlines_core.*pip install 'plait\[outlines\]'"):
        backends.load("outlines", {"regex": "a"}, vocabulary(), "")


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("backend", backends.NAMES[1:])
def test_matchers_go_back_and_part(backend: str) -> None:
    if backend not in backends.installed():
        pytest.skip(f"{backend} is not installed")
    matcher = compiled(backend, {"regex": r"(ab|cd)*e"}).matcher()
    start = matcher.mask().copy()
    ids = vocabulary().id_of
    assert matcher.advance(ids[b"ab"])
    assert matcher.advance_bytes(b"cd")
    twin = matcher.fork()
    assert matcher.advance(ids[b"e"])
    assert matcher.accepting
    assert matcher.advance(EOS)
    assert matcher.finished
    assert not matcher.advance(ids[b"a"])
    assert matcher.forced() == b""
    matcher.rollback(1)
    assert not matcher.advance(EOS + 299)
    assert not twin.advance(EOS), "the text may not end there"
    assert twin.allows(b"abe")
    assert not twin.allows(b"ae")
    assert not twin.advance_bytes(b"x")
    assert twin.advance(ids[b"c"])
    assert twin.forced() in (b"d", b"")
    assert bool(twin.forced()) == (backend != "outlines")
    twin.rollback(3)
    assert np.array_equal(twin.mask(), start)
    matcher.rollback(3)
    assert np.array_equal(matcher.mask(), start)
    with pytest.raises(ValueError, match="read-only"):
        matcher.mask()[0] = 1


@pytest.mark.parametrize(
    ("backend", "spec", "said"),
    [
        (
            "outlines",
            {"json_schema": {"type": "string"}, "options": {"any_order": True}},
            "any_order cannot be changed",
        ),
        (
            "outlines",
            {"json_schema": {"type": "string"}, "options": {"whitespace": 2}},
            "whitespace 2 is not supported",
        ),
        *(
            (name, {"json_schema": {}, "options": {"whitespace": "auto"}}, "whitespace 'auto' is not supported")
            for name in ("outlines", "llguidance", "xgrammar")
        ),
        ("outlines", {"grammar": 'root ::= "a"'}, "it has no grammars"),
        ("llguidance", {"json_schema": {}, "documents": {"http://x": {}}}, "documents are not supported"),
        ("llguidance", {"seq": [{"literal": "a"}]}, "'seq' is not supported there; the default"),
        (
            "llguidance",
            {"json_schema": {"items": {"format": "date", "formatMinimum": "2024-01-01"}}},
            "bounds of a format",
        ),
        ("xgrammar", {"regex": "(?=a)b"}, "Lookahead is not supported"),
    ],
)
def test_refusals_name_the_backend(backend: str, spec: dict[str, Any], said: str) -> None:
    if backend not in backends.installed():
        pytest.skip(f"{backend} is not installed")
    with pytest.raises(ConstraintError, match=f"constraint_backend='{backend}'.*{re.escape(said)}"):
        backends.verdict(backend, spec)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::plait.PlaitWarning")
def test_programs_choose_a_backend(tiny_model_path: Path, tmp_path: Path) -> None:
    """Through the compiler child and the core, on a random model; a refusal reaches the program."""
    number = {"enum": [1, 22, 333]}
    schema = {"type": "object", "properties": {"n": number}, "required": ["n"], "additionalProperties": False}

    @plait.function
    def program(s: plait.State) -> None:
        s += "x" + plait.gen("word", 20, regex=r"(ab|cd){2}") + plait.gen("value", 60, json_schema=schema)

    @plait.function
    def refused(s: plait.State) -> None:
        s += "x" + plait.gen("word", 20, regex=r"(?!a)[ab]")

    address = f"ipc://{tmp_path}/s"
    with plait.Runtime(str(tiny_model_path), mode="reference", threads=1, address=address) as runtime:
        for name in ("plait", *backends.installed()):
            state = program.run(backend=runtime, constraint_backend=name, seed=1)
            assert re.fullmatch("(ab|cd){2}", state["word"]), name
            assert state["value"]["n"] in (1, 22, 333), name
            state = refused.run(backend=runtime, constraint_backend=name)
            error = state.result("word").error
            if name == "plait":
                assert error is None
            else:
                assert isinstance(error, InvalidConstraint)
                assert f"constraint_backend={name!r}" in str(error)
