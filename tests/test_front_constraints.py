"""Constraints in the front: which verdicts a gen waits for, whose field an error names, who waits for whom."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_core import Client, FakeWorld, served, tiny_tokenizer

from plait.constrained.compiler import Payload
from plait.runtime import wire
from plait.runtime.front.compiling import Compilers
from plait.runtime.front.constraints import Compile, Refused, wanted
from plait.runtime.front.front import Front
from plait.runtime.front.settings import Settings
from plait.runtime.protocol import (
    MAX_CONSTRAINT_BYTES,
    Done,
    Extend,
    Failed,
    Fragment,
    Gen,
    Open,
    Regex,
    Sampling,
    Spec,
    Text,
)
from plait.runtime.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tokenizer]:
    yield tiny_tokenizer(Path(tmp_path_factory.mktemp("model")))[0]


def play(
    tokenizer: Tokenizer, gens: list[Gen], compile: Compile, settings: Settings | None = None, **how: Any
) -> tuple[list[Done | Failed], FakeWorld]:
    """What comes of one strand for each gen."""

    async def main() -> tuple[list[Done | Failed], FakeWorld]:
        world = FakeWorld(tokenizer, **how)
        front = Front(served(tokenizer, None), world.link, settings or Settings(), compile)
        await front.start()
        client = Client(front)
        for number, gen in enumerate(gens, 1):
            client.session.receive(Fragment((Open(number, number), Extend(number, (Text(1, "x"), gen)))))

        def answers(of: Client) -> list[Done | Failed]:
            found = [event for event in of.events if isinstance(event, Done | Failed)]
            return sorted(found, key=lambda answer: answer.strand)

        try:
            await client.until(lambda of: len(answers(of)) >= len(gens))
        finally:
            await front.close()
        return answers(client), world

    return asyncio.run(main())


def gen(constraint: Regex | Spec | None = None, **fields: object) -> Gen:
    sampling = Sampling(**{"max_tokens": 4, "temperature": 0.0, **fields})  # type: ignore[arg-type]  # by name
    return Gen(2, sampling, constraint)


async def taken(kind: str, source: str, backend: str) -> bytes:
    if "bad" in source:
        raise Refused("bad: it is")
    return b"word"


def test_what_a_verdict_is_asked_for(tiny: Tokenizer) -> None:
    asked: list[tuple[str, str, str]] = []

    async def compile(kind: str, source: str, backend: str) -> bytes:
        asked.append((kind, source, backend))
        return b"word"

    spec = Spec('{"json_schema": {}}', "llguidance", "schema")
    gens = [
        gen(Regex("a")),
        gen(spec, stop_regex=("b", "c")),
        gen(stop_regex=("b",)),
        gen(Regex("a", "outlines")),
        gen(),
    ]
    answers, world = play(tiny, gens, compile)
    assert all(isinstance(answer, Done) for answer in answers)
    assert sorted(asked) == sorted(
        [
            ("regex", "a", "plait"),
            ("regex", "a", "outlines"),
            ("spec", spec.source, "llguidance"),
            ("stop_regex", "b", "plait"),
            ("stop_regex", "c", "plait"),
        ]
    ), "each once"
    samples = [op for item in world.sent(wire.ExtendStrand) for op in item.ops if isinstance(op, wire.Sample)]
    assert [sample.params.stop_regex for sample in samples].count(("b", "c")) == 1
    assert len(world.sent(wire.Define)) == 3, "a stop regex needs none"
    assert len({wanted(one).key for one in (Regex("a"), Regex("a", "outlines"), Spec("a"), spec)}) == 4


def test_a_refusal_names_the_caller_s_field(tiny: Tokenizer) -> None:
    gens = [
        gen(Regex("bad")),
        gen(Spec('{"bad": 1}', field="schema")),
        gen(Spec('{"bad": 1}', field="json_schema")),
        gen(stop_regex=("good", "bad")),
        gen(Spec("", field="grammar")),
        gen(Spec("x" * (MAX_CONSTRAINT_BYTES + 1), field="grammar")),
        gen(Regex("a", "")),
        gen(stop_regex=("",)),
    ]
    answers, _ = play(tiny, gens, taken)
    said = [(answer.code, answer.field) for answer in answers if isinstance(answer, Failed)]
    assert said == [
        ("invalid_constraint", "regex"),
        ("invalid_constraint", "schema"),
        ("invalid_constraint", "json_schema"),
        ("invalid_constraint", "stop_regex"),
        ("invalid_value", "grammar"),
        ("invalid_value", "grammar"),
        ("invalid_value", "constraint_backend"),
        ("invalid_value", "stop_regex"),
    ]


def test_what_the_core_finds_wrong_has_the_caller_s_field_too(tiny: Tokenizer) -> None:
    def fault(op: wire.CoreOp) -> wire.OpFailed | None:
        if isinstance(op, wire.Sample):
            return wire.OpFailed(0, op.op, op.choice, "invalid_constraint", "it takes too long", "constraint")
        return None

    specs = [Regex("a"), *(Spec('{"a": 1}', field=name) for name in ("response_format", "grammar", "constraint"))]
    answers, _ = play(tiny, [*map(gen, specs), Gen(2, Sampling(max_tokens=4), Regex("b"), 2)], taken, fail_op=fault)
    said = {(answer.strand, answer.code, answer.field) for answer in answers if isinstance(answer, Failed)}
    fields = ["regex", "response_format", "grammar", "constraint", "regex"]
    assert said == {(number, "invalid_constraint", field) for number, field in enumerate(fields, 1)}


def test_a_refusal_that_quotes_a_client_is_cut(tiny: Tokenizer) -> None:
    """It is remembered for a minute, with up to ten thousand others."""

    async def quotes(kind: str, source: str, backend: str) -> bytes:
        raise Refused(f"the name {source!r} is not known: use another")

    (answer,), _ = play(tiny, [gen(Regex("q" * 1_000_000))], quotes)
    assert isinstance(answer, Failed) and len(answer.message) < 2100
    assert answer.message.startswith("the name 'qqq") and answer.message.endswith("is not known: use another")


def test_notes_come_with_the_answer(tiny: Tokenizer) -> None:
    import msgspec

    async def compile(kind: str, source: str, backend: str) -> bytes:
        return msgspec.msgpack.encode(Payload(2, kind, source, backend, 0.0, ("pattern at #/a: left out",)))

    answers, _ = play(tiny, [gen(Spec("{}"))], compile)
    assert isinstance(answers[0], Done) and answers[0].notes == ("pattern at #/a: left out",)


# ---------------------------------------------------------------- the real children

#: allOf of many overlapping patternProperties: their combinations take long to open
SLOW = json.dumps(
    {
        "json_schema": {
            "allOf": [
                {"type": "object", "patternProperties": {"a" * at + "+b": {"minLength": at}}} for at in range(1, 40)
            ]
        }
    }
)


def with_compilers(settings: Settings, body: Callable[[Compilers], Awaitable[None]]) -> None:
    async def main() -> None:
        compilers = Compilers(settings)
        try:
            async with asyncio.timeout(100):
                await body(compilers)
        finally:
            await compilers.close()

    asyncio.run(main())


def test_one_that_takes_long_keeps_no_other_waiting() -> None:
    async def body(compilers: Compilers) -> None:
        await compilers.compile("regex", "warm", "plait")
        slow = [
            asyncio.create_task(compilers.compile("spec", SLOW.replace("+b", f"+b{at}"), "plait")) for at in range(3)
        ]
        await asyncio.sleep(0.05)
        began = time.monotonic()
        assert await compilers.compile("regex", "quick", "plait")
        waited = time.monotonic() - began
        assert not any(task.done() for task in slow), "they take their time in the slow lane, one after another"
        assert waited < 0.3 * 3 * 4, "what was before it in the quick lane got 0.3 s each"
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)

    with_compilers(Settings(compile_timeout=60.0, compile_quick=0.3), body)


def test_one_that_takes_too_long_in_both_lanes_is_refused() -> None:
    async def body(compilers: Compilers) -> None:
        with pytest.raises(Refused, match=r"more than 0\.5 seconds"):
            await compilers.compile("spec", SLOW, "plait")
        assert await compilers.compile("regex", "next", "plait")

    with_compilers(Settings(compile_timeout=1.0, compile_quick=0.1), body)
