"""The front's turn has a bound in time, whatever one client asks or leaves behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from fake_core import Client, FakeWorld, served, tiny_tokenizer
from test_front import Bench, gen

from plait.runtime import wire
from plait.runtime.front.front import Front
from plait.runtime.front.settings import Settings
from plait.runtime.protocol import (
    Abort,
    Close,
    Closed,
    Done,
    Extend,
    Failed,
    Fork,
    Fragment,
    Ids,
    Join,
    Open,
    RoleBegin,
    RoleEnd,
    Select,
    Text,
)
from plait.runtime.tokenizer import Tokenizer

Body = Callable[[Bench], Awaitable[None]]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tokenizer, str]:
    return tiny_tokenizer(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.runtime.front.session._STEPS", 4)


class Ticking:
    """A clock on which every look at it takes a second: a turn of 30 has room for a few dozen steps."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def bench(tiny: tuple[Tokenizer, str], body: Body, *, sliced: bool = True, **settings: Any) -> None:
    world = FakeWorld(tiny[0], context_length=100_000)
    if sliced:
        settings |= {"clock": Ticking(), "turn": 30.0}

    async def main() -> None:
        front = Front(served(tiny[0], tiny[1], 100_000), world.link, Settings(**settings))
        await front.start()
        try:
            async with asyncio.timeout(60):
                await body(Bench(front, world, Client(front)))
        finally:
            await front.close()

    asyncio.run(main())


async def turns(until: Callable[[], bool]) -> int:
    """How often the loop had time for others until then."""
    count = 0
    while not until():
        await asyncio.sleep(0)
        count += 1
    return count


# ---------------------------------------------------------------- slices


def test_a_large_fragment_is_looked_at_in_slices(tiny: tuple[Tokenizer, str]) -> None:
    async def body(b: Bench) -> None:
        many = [
            action for at in range(1, 400) for action in (Open(at, at), Extend(at, (Text(1, "x"), gen(2))), Close(at))
        ]
        b.send(*many)
        assert b.client.session.backlog > 0  # it came back before all was looked at
        b.client.session.receive(Fragment((Open(1000, 1000), Extend(1000, (Text(1, "y"), gen(2))), Close(1000))))
        await b.client.until(lambda c: sum(isinstance(event, Closed) for event in c.events) == 400)
        assert not [event for event in b.client.events if isinstance(event, Failed)]
        assert b.client.session.backlog == 0
        b.clean()

    bench(tiny, body)


def test_many_texts_are_lowered_in_slices(tiny: tuple[Tokenizer, str]) -> None:
    async def body(b: Bench) -> None:
        b.world.hold = True
        messages = [
            op for at in range(200) for op in (RoleBegin(3 * at, "user"), Text(3 * at + 1, "x"), RoleEnd(3 * at + 2))
        ]
        b.send(Open(1, 1), Extend(1, tuple(messages)), Extend(1, (gen(1000),)))
        assert await turns(lambda: bool(b.world.ops(wire.Sample))) > 5

    bench(tiny, body)


def test_others_go_on_between_the_slices(tiny: tuple[Tokenizer, str]) -> None:
    """A client that asks for much takes turns with one that asks for little."""

    async def body(b: Bench) -> None:
        many = [
            action for at in range(1, 1500) for action in (Open(at, at), Extend(at, (Text(1, "x"), gen(2))), Close(at))
        ]
        b.send(*many)
        other = Client(b.front, "the other client")
        other.session.receive(Fragment((Open(1, 1), Extend(1, (Text(1, "y"), gen(2))), Close(1))))
        await other.until(lambda c: any(isinstance(event, Done) for event in c.events))
        assert b.client.session.backlog > 0
        await b.client.until(lambda c: sum(isinstance(event, Closed) for event in c.events) == 1499)

    bench(tiny, body)


def test_the_order_of_messages_is_kept(tiny: tuple[Tokenizer, str]) -> None:
    """An abort behind a fragment that is still looked at does not overtake it."""

    async def body(b: Bench) -> None:
        b.world.hold = True
        children = tuple(range(2, 300))
        ops = [Extend(child, (Text(1, "x"), gen(2))) for child in children]
        b.send(Open(1, 1), Extend(1, (Text(1, "a"),)), Fork(1, 2, children), *ops)
        b.client.session.receive(Abort(program=1))
        await b.client.until(lambda c: sum(isinstance(event, Closed) for event in c.events) == 299)
        failed = [event for event in b.client.events if isinstance(event, Failed)]
        assert {event.code for event in failed} <= {"aborted", "upstream"}
        await turns(lambda: not b.client.session.program_of)
        b.clean()

    bench(tiny, body)


def test_what_a_client_leaves_behind_is_cleared_in_slices(tiny: tuple[Tokenizer, str]) -> None:
    async def body(b: Bench) -> None:
        b.world.hold = True
        session = b.client.session
        many = [action for at in range(1, 500) for action in (Open(at, at), Extend(at, (Text(1, "x"), gen(2, n=2))))]
        b.send(*many)
        await turns(lambda: session.backlog == 0 and not b.front._ready)
        session.end("lease_expired", "gone")
        assert b.front.live > 0
        assert await turns(lambda: b.front.live == 0) > 2
        assert (b.front.pending, b.front.sids) == (0, {})

    bench(tiny, body)


def test_a_session_that_ends_leaves_nothing_of_what_it_had_not_been_heard_with(tiny: tuple[Tokenizer, str]) -> None:
    async def body(b: Bench) -> None:
        b.send(*[Open(at, at) for at in range(1, 1000)])
        session = b.client.session
        assert session.backlog > 0
        session.end("lease_expired", "gone")
        b.send(Open(5000, 5000))  # too late
        await turns(lambda: b.front.live == 0)
        for _ in range(50):
            await asyncio.sleep(0)
        assert (b.front.live, session.backlog, b.front.sids) == (0, 0, {})

    bench(tiny, body)


# ---------------------------------------------------------------- texts that take long


class Held:
    """A tokenizer whose long texts wait for ``go_on``, on whatever thread they are encoded."""

    def __init__(self, tokenizer: Tokenizer, patch: pytest.MonkeyPatch) -> None:
        self.go_on = threading.Event()
        self.threads: list[int] = []
        encode = tokenizer.encode

        def held(text: str, **options: Any) -> list[int]:
            if len(text) > 1000:
                self.threads.append(threading.get_ident())
                assert self.go_on.wait(30)
            return encode(text, **options)

        patch.setattr(tokenizer, "encode", held)


def test_a_long_text_is_encoded_beside_the_others(tiny: tuple[Tokenizer, str], monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(b: Bench) -> None:
        held = Held(tiny[0], monkeypatch)
        long = "one two three " * 2000
        b.send(Open(1, 1), Extend(1, (Text(1, long), gen(2), Text(3, " and"), gen(4))), Close(1))
        b.send(Open(2, 2), Extend(2, (Text(1, "short"), gen(2))), Close(2))
        await b.done(2, 2)
        assert (1, 2, 0) not in b.answers()
        held.go_on.set()
        await b.done(1, 4)
        await b.closed(1)
        assert held.threads and threading.get_ident() not in held.threads
        want = tiny[0].encode(long, special=True)
        assert next(op.ids for op in b.world.ops(wire.Append) if len(op.ids) > 1000) == tuple(want)
        b.clean()

    bench(tiny, body, sliced=False)


@pytest.mark.parametrize("how", ["role", "select", "close", "fork", "ids", "join"])
def test_wherever_a_long_text_is_needed(tiny: tuple[Tokenizer, str], monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """It gives the ids that it gives when it is encoded at once."""
    long = "four five six <|im_end|> " * 400

    def play(inline: int) -> list[tuple[int, ...]]:
        found: list[tuple[int, ...]] = []

        async def body(b: Bench) -> None:
            match how:
                case "role":
                    b.send(
                        Open(1, 1),
                        Extend(1, (RoleBegin(1, "user"), Text(2, long), RoleEnd(3), RoleBegin(4, "assistant"))),
                    )
                    b.send(Extend(1, (gen(5),)), Close(1))
                case "select":
                    b.send(
                        Open(1, 1),
                        Extend(1, (Text(1, long), Select(2, (long[:500], long[3:900])), Text(3, long), gen(5))),
                    )
                    b.send(Close(1))
                case "close":
                    b.send(Open(1, 1), Extend(1, (Text(1, long),)), Close(1))
                case "fork":
                    b.send(
                        Open(1, 1),
                        Extend(1, (Text(1, long),)),
                        Fork(1, 2, (2, 3)),
                        Extend(2, (gen(1),)),
                        Extend(3, (gen(1),)),
                    )
                    b.send(Close(2), Close(3), Close(1))
                case "ids":
                    b.send(Open(1, 1), Extend(1, (Text(1, long), Ids(2, (5, 6, 7)), gen(5))), Close(1))
                case "join":
                    b.send(
                        Open(1, 1),
                        Extend(1, (Text(1, "a"),)),
                        Fork(1, 2, (2,)),
                        Extend(2, (Text(1, long),)),
                        Join(1, 3, (2,), True),
                    )
                    b.send(Extend(1, (gen(5),)), Close(2), Close(1))
            await b.closed(1)
            assert not [event for event in b.client.events if isinstance(event, Failed)]
            found.extend(op.ids for op in b.world.ops(wire.Append))
            found.extend(ids for op in b.world.ops(wire.Score) for ids in op.choices)

        bench(tiny, body, sliced=False, encode_inline=inline)
        return found

    assert play(100) == play(10**9)


def test_a_strand_that_is_aborted_while_its_text_is_encoded(
    tiny: tuple[Tokenizer, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(b: Bench) -> None:
        held = Held(tiny[0], monkeypatch)
        b.send(Open(1, 1), Extend(1, (Text(1, "one two " * 5000), gen(2))))
        while not held.threads:
            await asyncio.sleep(0.001)
        b.client.session.receive(Abort(strand=1))
        assert (await b.failed(1, 2)).code == "aborted"
        held.go_on.set()
        await b.closed(1)
        b.clean()

    bench(tiny, body, sliced=False)


# ---------------------------------------------------------------- counts


def test_ids_are_counted_before_they_are_looked_at(tiny: tuple[Tokenizer, str]) -> None:
    async def body(b: Bench) -> None:
        b.send(Open(1, 1), Extend(1, (Ids(1, (10**9,) * 100_001), gen(2))))
        failed = await b.failed(1, 1)
        assert (failed.code, failed.field) == ("context_length", "ids")

    bench(tiny, body, sliced=False)


def test_stop_token_ids_have_a_bound(tiny: tuple[Tokenizer, str]) -> None:
    async def body(b: Bench) -> None:
        b.send(Open(1, 1), Extend(1, (Text(1, "x"), gen(2, stop_token_ids=(3,) * 20_000))))
        assert (await b.failed(1, 2)).field == "stop_token_ids"

    bench(tiny, body, sliced=False)
