"""The front over a core without a model: lowering, failures, forks, joins, aborts, text."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from fake_core import Client, FakeWorld, served, tiny_tokenizer

from plait.runtime import wire
from plait.runtime.front.constraints import Refused
from plait.runtime.front.front import Front
from plait.runtime.front.settings import Settings
from plait.runtime.protocol import (
    Abort,
    Close,
    Closed,
    Delta,
    Done,
    Extend,
    Failed,
    Fork,
    Fragment,
    Gen,
    Ids,
    Join,
    Open,
    Regex,
    RoleBegin,
    RoleEnd,
    Sampling,
    Select,
    Text,
    VarRef,
)
from plait.runtime.tokenizer import Tokenizer

Body = Callable[["Bench"], Awaitable[None]]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tokenizer, str]:
    return tiny_tokenizer(tmp_path_factory.mktemp("tiny"))


class Bench:
    """A front, a client, and short words for what tests say to it."""

    def __init__(self, front: Front, world: FakeWorld, client: Client) -> None:
        self.front, self.world, self.client = front, world, client

    def send(self, *actions: object) -> None:
        self.client.session.receive(Fragment(tuple(actions)))  # type: ignore[arg-type] # tests send wrong ones too

    def answers(self, strand: int | None = None) -> dict[tuple[int, int, int], Done | Failed]:
        found = {}
        for event in self.client.events:
            if isinstance(event, Done | Failed) and strand in (None, event.strand):
                key = (event.strand, event.op, event.choice)
                assert key not in found, f"two answers for {key}"
                found[key] = event
        return found

    async def answer(self, strand: int, op: int, choice: int = 0) -> Done | Failed:
        await self.client.until(lambda _: (strand, op, choice) in self.answers())
        return self.answers()[strand, op, choice]

    async def done(self, strand: int, op: int, choice: int = 0) -> Done:
        event = await self.answer(strand, op, choice)
        assert isinstance(event, Done), event
        return event

    async def failed(self, strand: int, op: int, choice: int = 0) -> Failed:
        event = await self.answer(strand, op, choice)
        assert isinstance(event, Failed), event
        return event

    async def closed(self, strand: int) -> None:
        await self.client.until(lambda c: Closed(strand) in c.events)

    def deltas(self, strand: int, op: int, choice: int = 0) -> list[Delta]:
        where = (strand, op, choice)
        return [e for e in self.client.events if isinstance(e, Delta) and (e.strand, e.op, e.choice) == where]

    def appended(self) -> list[int]:
        return [i for op in self.world.ops(wire.Append) for i in op.ids]

    def clean(self) -> None:
        """Nothing is left of the strands that were closed."""
        self.world.core.step()
        assert not self.front.sids
        assert self.front.live == 0
        assert self.front.pending == 0
        assert not self.client.session.strands
        assert not self.client.session.program_of
        assert all(not core.strands for core in self.world.epochs[-1:])


def gen(op: int, *, n: int = 1, stream: bool = False, constraint: Regex | None = None, **fields: object) -> Gen:
    fields.setdefault("max_tokens", 8)
    fields.setdefault("temperature", 0.0)
    return Gen(op, Sampling(**fields), constraint, n, stream)  # type: ignore[arg-type] # tests send wrong ones too


async def fake_compile(kind: str, source: str) -> bytes:
    await asyncio.sleep(0)
    if source.startswith("bad"):
        raise Refused(f"{source!r}: unterminated group at position 3")
    return source.encode()


def bench(
    tiny: tuple[Tokenizer, str],
    body: Body,
    *,
    settings: Settings | None = None,
    template: str | None = "",
    add_bos: bool = False,
    **knobs: object,
) -> None:
    tokenizer, chatml = tiny
    if add_bos:
        data = tokenizer._json
        tokenizer = Tokenizer(data, size=512, bos_id=0, eos_ids=(2,), add_bos=True)
    world = FakeWorld(tokenizer, **knobs)  # type: ignore[arg-type]

    async def main() -> None:
        front = Front(
            served(tokenizer, chatml if template == "" else template, world.context_length),
            world.link,
            settings or Settings(),
            fake_compile,
        )
        await front.start()
        try:
            async with asyncio.timeout(20):
                await body(Bench(front, world, Client(front)))
        finally:
            await front.close()

    asyncio.run(main())


# ---------------------------------------------------------------- lowering


def test_adjacent_text_is_encoded_once(tiny: tuple[Tokenizer, str]) -> None:
    async def body(b: Bench) -> None:
        b.send(Open(1, 1), Extend(1, (Text(1, "The qui"), Text(2, "ck brown "), Text(3, "fox"), gen(4))))
        done = await b.done(1, 4)
        assert b.appended() == tiny[0].encode("The quick brown fox", special=True)
        assert len(done.ids) == 8 and done.reason == "length"
        assert done.text.encode() == tiny[0].vocabulary.decode(done.ids).decode("utf-8", "replace").encode()
        assert done.usage.prompt == len(b.appended())
        b.send(Close(1))
        await b.closed(1)
        b.clean()

    bench(tiny, body)


def test_the_whole_script_leaves_in_one_frame(tiny: tuple[Tokenizer, str]) -> None:
    async def body(b: Bench) -> None:
        ops = (Text(1, "a"), gen(2), Text(3, " b"), Select(4, (" yes", " no")), Text(5, " c"), gen(6))
        b.send(Open(1, 1), Extend(1, ops), Close(1))
        await b.closed(1)
        kinds = [type(op).__name__ for op in b.world.frames[0][1].ops]  # type: ignore[union-attr]
        assert kinds == ["Append", "Sample", "Append", "Score", "Append", "Sample"]
        assert len(b.world.frames) == 1
        select = await b.done(1, 4)
        assert select.winner is not None and select.text == (" yes", " no")[select.winner]
        assert select.ids == tuple(tiny[0].encode(select.text, special=False))
        b.clean()

    bench(tiny, body)
