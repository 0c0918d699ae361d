"""Constraints, whole path: the language, the front, the compiler child, the core, a tiny model of random weights."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import jsonschema
import pydantic
import pytest

import plait
from plait import constraints as c
from plait import function, gen
from plait.runtime import Runtime
from plait.runtime.errors import InvalidConstraint

pytestmark = pytest.mark.filterwarnings("ignore::plait.PlaitWarning")


@pytest.fixture(scope="module")
def runtime(tiny_model_path: Path) -> Iterator[Runtime]:
    with Runtime(tiny_model_path, mode="reference", kv_tokens=8192, threads=1) as runtime:
        yield runtime


class Color(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Item:
    name: str
    count: int


class Order(pydantic.BaseModel):
    color: Color
    paid: bool
    note: str = pydantic.Field(max_length=8)


SCHEMA = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["cat", "dog"]},
        "age": {"type": "integer", "minimum": 0, "maximum": 30},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 4}, "maxItems": 2, "uniqueItems": True},
    },
    "required": ["kind", "age", "tags"],
    "additionalProperties": False,
}


def one(runtime: Runtime, max_tokens: int = 300, seed: int = 1, **arguments: Any) -> plait.Result:
    @function
    def program(s: Any) -> None:
        s += "Write:" + gen("x", max_tokens, temperature=1.0, **arguments)

    result: plait.Result = program.run(backend=runtime, seed=seed).result("x")
    return result


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_json_by_a_schema(runtime: Runtime, seed: int) -> None:
    result = one(runtime, seed=seed, json_schema=SCHEMA)
    assert result.finish_reason == "stop" and not result.partial and result.error is None
    jsonschema.validate(result.value, SCHEMA)
    assert result.value == json.loads(result.text) and list(result.value) == ["kind", "age", "tags"]
    assert result.usage.forced > 0


@pytest.mark.parametrize("seed", [1, 2])
def test_values_of_types(runtime: Runtime, seed: int) -> None:
    assert isinstance(one(runtime, seed=seed, schema=Color).value, Color)
    order = one(runtime, seed=seed, schema=Order).value
    assert isinstance(order, Order) and len(order.note) <= 8
    small = c.json(Item, whitespace="compact")
    assert small.data["options"] == {"whitespace": "compact"}


def test_a_cut_object_is_what_is_there_so_far(runtime: Runtime) -> None:
    result = one(runtime, 14, json_schema=SCHEMA)
    assert (result.finish_reason, result.partial) == ("length", True) and result.error is None
    assert isinstance(result.value, dict) and set(result.value) <= {"kind", "age", "tags"}


def test_a_text_near_max_tokens_ends_whole_and_says_so(runtime: Runtime) -> None:
    story = {"type": "object", "properties": {"story": {"type": "string", "minLength": 400}}, "required": ["story"]}
    wide = {**story, "properties": {"story": {"type": "string"}, "end": {"const": True}}, "required": ["story", "end"]}
    for seed in range(8):
        state = program_of(wide, 40, seed).run(backend=runtime)
        result = state.result("x")
        assert set(result.value) == {"story", "end"} and result.value["end"] is True, result.text
        assert not result.partial and len(result.tokens) <= 40
        assert result.finish_reason == ("length" if result.usage.wrapped else "stop")
        if result.usage.wrapped:
            break
    assert result.usage.wrapped, "this model ends no text within 40 tokens by itself"
    cut = program_of(wide, 40, seed, wrap_up=False).run(backend=runtime).result("x")
    assert (cut.finish_reason, cut.partial, cut.usage.wrapped) == ("length", True, 0)
    hopeless = program_of(story, 40, seed).run(backend=runtime).result("x")
    assert (hopeless.finish_reason, hopeless.partial) == ("length", True)


def test_a_text_ends_where_the_model_does_not_go_on_with_it(runtime: Runtime) -> None:
    """The free text, and the same model held to a pattern that a beginning of it matches."""

    @function
    def program(s: Any, prompt: str, **options: Any) -> None:
        s += prompt + gen("x", 24, temperature=0.0, **options)

    tried = 0
    for prompt in ("Write: a", "b", "the c", "one", "two", "d d", "e"):
        free = program.run(prompt, backend=runtime, ignore_eos=True, logprobs=True).result("x")
        text, first = free.text, free.logprobs[0].token
        end = next((char for char in text[len(first) : len(first) + 8] if char not in first), None)
        if end is None or "\ufffd" in text[: text.index(end) + 1]:  # a token of this model may be no whole character
            continue
        tried += 1
        begun, pattern = text[: text.index(end)], f"[^{re.escape(end)}]+"
        natural = program.run(prompt, regex=pattern, backend=runtime).result("x")
        assert (natural.text, natural.finish_reason, natural.matched) == (begun, "stop", None)
        assert not natural.partial and natural.usage.completion > 0
        stopped = program.run(prompt, regex=pattern, stop=[end], backend=runtime).result("x")
        assert (stopped.text, stopped.matched) == (begun, end)
        held = program.run(prompt, regex=pattern, end="eos", backend=runtime).result("x")
        assert len(held.text) > len(begun) and end not in held.text
        assert program.run(prompt, regex=pattern, n=2, backend=runtime)["x"] == [begun] * 2
    assert tried >= 2


def program_of(schema: object, limit: int, seed: int, **options: Any) -> Any:
    @function
    def program(s: Any) -> None:
        s += "Tell: " + gen("x", limit, json_schema=schema, temperature=1.0, seed=seed, undeclared=False, **options)

    return program


def test_grammars_and_parts(runtime: Runtime) -> None:
    result = one(runtime, grammar='root ::= term ("+" term)*\nterm ::= [0-9]{1,2}', max_tokens=12)
    assert re.match(r"[0-9]{1,2}(\+[0-9]{1,2})*\+?", result.text)
    step = "Step: " + c.regex("[a-z]{1,5}") + "\n"
    whole = step.repeat(1, 3) + (c.lit("Answer: ") | "Result: ") + c.json({"type": "boolean"})
    text = one(runtime, constraint=whole).text
    assert re.fullmatch(r"(Step: [a-z]{1,5}\n){1,3}(Answer|Result): (true|false)", text), text


def test_a_stop_regex(runtime: Runtime) -> None:
    free = one(runtime, 60, ignore_eos=True)
    pattern = "[a-z][^a-z]"
    found = re.search(pattern, free.text)
    assert found is not None
    result = one(runtime, 60, ignore_eos=True, stop_regex=pattern)
    assert (result.text, result.matched, result.finish_reason) == (free.text[: found.start()], found[0], "stop")


def test_choices_of_one_gen_and_branches(runtime: Runtime) -> None:
    @function
    def program(s: Any) -> None:
        s += "Write:" + gen("many", 200, n=3, json_schema=SCHEMA, temperature=1.0)
        forks = s.fork(2)
        forks += " and " + gen("branch", 200, schema=Color, temperature=1.0)
        forks.join()

    state = program.run(backend=runtime, seed=4)
    assert len(state["many"]) == 3 and all(isinstance(color, Color) for color in state["branch"])
    for value in state["many"]:
        jsonschema.validate(value, SCHEMA)


@pytest.mark.parametrize(
    ("arguments", "field", "words"),
    [
        ({"json_schema": {"type": "objekt"}}, "json_schema", "objekt"),
        ({"json_schema": {"$ref": "#/nowhere"}}, "json_schema", "nowhere"),
        ({"json_schema": False}, "json_schema", ""),
        ({"json_schema": {"type": "string", "minLength": 3, "maxLength": 2}}, "json_schema", ""),
        ({"grammar": "root ::= nothing"}, "grammar", "nothing"),
        ({"constraint": c.lit("a") + c.regex(r"(a)\1")}, "constraint", "back-reference"),
        ({"constraint": c.ready("poem")}, "constraint", "poem"),
        ({"stop_regex": "x*"}, "stop_regex", "empty"),
        ({"regex": "a", "constraint_backend": "poem"}, "regex", "poem"),
    ],
)
def test_what_cannot_be_kept_is_refused_by_name(
    runtime: Runtime, arguments: dict[str, Any], field: str, words: str
) -> None:
    result = one(runtime, **arguments)
    assert isinstance(result.error, InvalidConstraint), result
    assert result.error.field == field and words in str(result.error)


def test_strict_off_says_what_it_leaves_out(runtime: Runtime) -> None:
    schema = {"type": "string", "pattern": r"^(a)\1$", "maxLength": 5}
    assert isinstance(one(runtime, json_schema=schema).error, InvalidConstraint)
    with pytest.warns(plait.PlaitWarning, match="relaxes"):
        result = one(runtime, json_schema=schema, strict=False)
    assert result.error is None and len(result.value) <= 5 and "pattern" in result.notes[0]


def test_a_hostile_constraint_makes_nobody_wait(runtime: Runtime) -> None:
    """Its combinations take long to open: the others' gens, constrained ones too, go on meanwhile."""
    hostile = {
        "allOf": [{"type": "object", "patternProperties": {"a" * at + "+b": {"minLength": at}}} for at in range(1, 30)]
    }

    @function
    def bad(s: Any) -> None:
        s += "x" + gen("x", 50, json_schema=hostile)

    pending = [bad.stream(backend=runtime) for _ in range(2)]
    began = time.monotonic()
    for seed in range(5):
        assert one(runtime, seed=seed, regex=f"[a-c]{{{seed + 3}}}").error is None
        assert one(runtime, 8, seed=seed).error is None
    assert time.monotonic() - began < 15
    for state in pending:
        state.abort()


def test_a_killed_core_changes_no_value(tiny_model_path: Path) -> None:
    @function
    def program(s: Any) -> None:
        s += "Write:" + gen("a", 300, json_schema=SCHEMA, temperature=1.0)
        s += " then " + gen("b", 200, schema=Item, temperature=1.0, stop_regex="zzz+")

    with Runtime(tiny_model_path, mode="reference", kv_tokens=8192, threads=1) as runtime:
        expected = program.run(backend=runtime, seed=9).text()
        core = runtime.core_pid
        assert core is not None
        states = [program.stream(backend=runtime, seed=9) for _ in range(3)]
        next(iter(states[0].text_iter("a")))
        os.kill(core, signal.SIGKILL)
        assert [state.text() for state in states] == [expected] * 3
