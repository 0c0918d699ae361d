"""The core dies and is started again: every strand goes on as if nothing had happened."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from fake_core import Client, FakeWorld, served, tiny_tokenizer

from plait.runtime import wire
from plait.runtime.errors import BackendError, ModelError
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
    Join,
    Open,
    Regex,
    Sampling,
    Select,
    Text,
    VarRef,
)
from plait.runtime.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return tiny_tokenizer(tmp_path_factory.mktemp("tiny"))[0]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def gen(op: int, **fields: object) -> Gen:
    n = fields.pop("n", 1)
    constraint = fields.pop("constraint", None)
    fields = {"max_tokens": 8, "temperature": 1.0, **fields}
    return Gen(op, Sampling(**fields), constraint, n, stream=True)  # type: ignore[arg-type]


def programs() -> Fragment:
    """Gens, selects, forks, n, a constraint, a join and a reference: one strand of each kind."""
    return Fragment(
        (
            Open(1, 1, seed=1),
            Extend(
                1, (Text(1, "first"), gen(2, stop=("zz",)), Text(3, " and"), Select(4, (" yes", " no")), gen(5, n=3))
            ),
            Fork(1, 6, (2, 3)),
            Extend(2, (Text(1, " two"), gen(2, logprobs=True), gen(3))),
            Extend(3, (Text(1, " three"), gen(2, constraint=Regex("abcdefg")), VarRef(3, 2, 2), gen(4))),
            Close(3),
            Join(1, 7, (2, 3), append=True),
            Extend(1, (gen(8),)),
            Close(2),
            Close(1),
        )
    )


async def compile_literal(kind: str, source: str, backend: str) -> bytes:
    return source.encode()


Result = tuple[dict[tuple[int, int, int], Done | Failed], dict[tuple[int, int, int], str]]


def play(
    tokenizer: Tokenizer,
    die: Callable[[wire.CoreEvent], bool] | None = None,
    *,
    fragment: Fragment | None = None,
    closes: int = 3,
    settings: Settings | None = None,
    during: Callable[[Front, FakeWorld, Client], None] | None = None,
    **knobs: object,
) -> tuple[Result, FakeWorld, Front]:
    world = FakeWorld(tokenizer, die=die, **knobs)  # type: ignore[arg-type]

    async def main() -> tuple[Result, Front]:
        front = Front(served(tokenizer, None), world.link, settings or Settings(), compile_literal)
        await front.start()
        client = Client(front)
        client.session.receive(fragment or programs())
        if during is not None:
            during(front, world, client)
        await client.until(lambda c: sum(isinstance(e, Closed) for e in c.events) >= closes)
        assert not front.sids and front.live == 0 and front.pending == 0
        await front.close()
        answers: dict[tuple[int, int, int], Done | Failed] = {}
        streams: dict[tuple[int, int, int], str] = {}
        for event in client.events:
            if isinstance(event, Done | Failed):
                assert (event.strand, event.op, event.choice) not in answers
                answers[event.strand, event.op, event.choice] = event
            elif isinstance(event, Delta):
                key = (event.strand, event.op, event.choice)
                streams[key] = streams.get(key, "") + event.text
        return (answers, streams), front

    result, front = asyncio.run(main())
    return result, world, front


class DieAt:
    """Kill the core when the n-th event that matters is about to be sent."""

    def __init__(self, *at: int) -> None:
        self.at, self.seen = at, 0

    def __call__(self, event: wire.CoreEvent) -> bool:
        self.seen += 1
        return self.seen in self.at


def texts(answers: dict[tuple[int, int, int], Done | Failed]) -> dict[tuple[int, int, int], object]:
    return {
        key: (e.text, e.ids, e.reason, e.seed, e.logprobs, e.end_logprob, e.winner, e.choice_logprobs)
        if isinstance(e, Done)
        else e
        for key, e in answers.items()
    }


@pytest.mark.parametrize("at", range(1, 80, 3))
def test_a_death_anywhere_changes_nothing(tokenizer: Tokenizer, at: int) -> None:
    (want, streams), _, _ = play(tokenizer)
    assert all(isinstance(event, Done) for event in want.values())
    (answers, again), world, front = play(tokenizer, DieAt(at))
    assert texts(answers) == texts(want)
    assert again == streams
    for key, text in again.items():
        done = answers[key]
        assert isinstance(done, Done) and text == done.text
    assert len(world.epochs) == 2 and front.metrics.core_deaths == 1
    for key, event in answers.items():
        one = want[key]
        assert isinstance(event, Done) and isinstance(one, Done)
        assert event.usage.prompt == one.usage.prompt


def test_many_deaths_far_apart(tokenizer: Tokenizer) -> None:
    clock = Clock()
    at = DieAt(*range(5, 60, 7))

    def die(event: wire.CoreEvent) -> bool:
        if at(event):
            clock.now += 61
            return True
        return False

    (answers, _), world, _ = play(tokenizer, die, settings=Settings(clock=clock))
    (want, _), _, _ = play(tokenizer)
    assert texts(answers) == texts(want)
    assert len(world.epochs) > 4


def poison(event: wire.CoreEvent) -> bool:
    return isinstance(event, wire.Tokens) and event.op == 66


def test_second_death_on_a_strand_fails_it_and_others_go_on(tokenizer: Tokenizer) -> None:
    fragment = Fragment(
        (
            Open(1, 1, seed=1),
            Extend(1, (Text(1, "poison"), gen(66), gen(67))),
            Fork(1, 68, (4,)),
            Extend(4, (Text(1, "child"), gen(2))),
            Close(1),
            Close(4),
            Open(2, 2, seed=1),
            Extend(2, (Text(1, "idle"), VarRef(2, 1, 66), gen(3))),
            Open(3, 3, seed=1),
        )
    )

    world = FakeWorld(tokenizer, die=poison)

    async def main() -> list[object]:
        front = Front(served(tokenizer, None), world.link, Settings(), compile_literal)
        await front.start()
        client = Client(front)
        client.session.receive(fragment)
        await client.until(lambda c: any(isinstance(e, Failed) and e.op == 66 for e in c.events))
        client.session.receive(Fragment((Extend(3, (Text(1, "other"), gen(2))), Close(3), Close(2))))
        await client.until(lambda c: sum(isinstance(e, Closed) for e in c.events) == 4)
        await front.close()
        return client.events

    events = asyncio.run(main())
    failed = {(e.strand, e.op): e for e in events if isinstance(e, Failed)}
    assert failed[1, 66].code == "core_crashed" and "SIGKILL" in failed[1, 66].message
    assert failed[1, 67].code == failed[4, 2].code == failed[2, 2].code == "upstream"
    assert [e.op for e in events if isinstance(e, Done) and e.strand == 3] == [2]
    assert len(world.epochs) == 3


def test_a_strand_that_was_not_running_is_not_blamed(tokenizer: Tokenizer) -> None:
    """Strand 2 waits for strand 1 at the first death and runs at the second."""
    fragment = Fragment(
        (
            Open(1, 1, seed=1),
            Extend(1, (Text(1, "a"), gen(2))),
            Open(2, 2, seed=1),
            Extend(2, (Text(1, "b"), VarRef(2, 1, 2), gen(3))),
            Close(1),
            Close(2),
        )
    )
    seen: set[int] = set()

    def die(event: wire.CoreEvent) -> bool:
        if isinstance(event, wire.Tokens) and event.op not in seen:
            seen.add(event.op)
            return True
        return False

    (answers, _), world, _ = play(tokenizer, die, fragment=fragment, closes=2)
    assert all(isinstance(event, Done) for event in answers.values())
    assert len(world.epochs) == 3


def test_a_death_reported_twice_counts_once(tokenizer: Tokenizer) -> None:
    (answers, _), world, front = play(tokenizer, DieAt(20), deaths_reported=2)
    assert all(isinstance(event, Done) for event in answers.values())
    assert len(world.epochs) == 2 and front.metrics.core_deaths == 1


@pytest.mark.parametrize("error", [ModelError("broken"), OSError("broken: no space left on device")])
def test_a_core_that_does_not_start_again_fails_what_runs(tokenizer: Tokenizer, error: Exception) -> None:
    def die(event: wire.CoreEvent) -> bool:
        world.fail_starts = 2
        return len(world.epochs) == 1 and isinstance(event, wire.Tokens)

    world = FakeWorld(tokenizer, die=die, start_error=error)

    async def main() -> list[object]:
        front = Front(served(tokenizer, None), world.link, Settings(max_restarts=2), compile_literal)
        await front.start()
        client = Client(front)
        client.session.receive(programs())
        await client.until(lambda c: sum(isinstance(e, Closed) for e in c.events) == 3)
        assert all(isinstance(e, Failed) for e in client.events if not isinstance(e, Closed | Delta))
        first = next(e for e in client.events if isinstance(e, Failed))
        assert first.code == "core_crashed" and "broken" in first.message
        # the next request starts it again
        client.session.receive(Fragment((Open(9, 9), Extend(9, (Text(1, "x"), gen(2))), Close(9))))
        await client.until(lambda c: Closed(9) in c.events)
        assert any(isinstance(e, Done) and e.strand == 9 for e in client.events)
        await front.close()
        return client.events

    asyncio.run(main())


def test_a_core_that_dies_before_its_ready_is_heard_is_started_again(tokenizer: Tokenizer) -> None:
    def die(event: wire.CoreEvent) -> bool:
        world.stillborn = int(len(world.epochs) == 1)
        return len(world.epochs) == 1 and isinstance(event, wire.Tokens)

    world = FakeWorld(tokenizer, die=die)

    async def main() -> None:
        front = Front(served(tokenizer, None), world.link, Settings(), compile_literal)
        await front.start()
        client = Client(front)
        client.session.receive(programs())
        await client.until(lambda c: sum(isinstance(e, Closed) for e in c.events) == 3)
        assert len(world.epochs) == 3
        assert not any(isinstance(e, Failed) for e in client.events)
        await front.close()

    asyncio.run(main())


def test_a_first_core_that_dies_before_its_ready_is_heard_is_an_error(tokenizer: Tokenizer) -> None:
    world = FakeWorld(tokenizer, stillborn=1)

    async def main() -> None:
        front = Front(served(tokenizer, None), world.link, Settings(), compile_literal)
        with pytest.raises(BackendError, match="still unread"):
            await front.start()
        await front.close()

    asyncio.run(main())


def test_an_aborted_strand_ends_when_the_core_dies(tokenizer: Tokenizer) -> None:
    world = FakeWorld(tokenizer, hold=True)

    async def main() -> None:
        front = Front(served(tokenizer, None), world.link, Settings(), compile_literal)
        await front.start()
        client = Client(front)
        client.session.receive(Fragment((Open(1, 1), Extend(1, (Text(1, "x"), gen(2, n=2), gen(3))))))
        for _ in range(3):
            world.core.step()
        world.core._on_events = lambda events: None  # type: ignore[method-assign] # its answer is lost
        client.session.receive(Abort(strand=1))
        world.core.kill()
        await client.until(lambda c: Closed(1) in c.events)
        done = [e for e in client.events if isinstance(e, Done)]
        assert [e.reason for e in done] == ["abort", "abort"]
        assert all(e.text for e in done)
        await front.close()

    asyncio.run(main())


def test_an_abort_while_no_core_is_there_ends_the_strand(tokenizer: Tokenizer) -> None:
    world = FakeWorld(tokenizer, hold=True)

    async def main() -> None:
        front = Front(served(tokenizer, None), world.link, Settings(), compile_literal)
        await front.start()
        client = Client(front)
        client.session.receive(Fragment((Open(1, 1), Extend(1, (Text(1, "x"), gen(2, n=2), gen(3))))))
        for _ in range(3):
            world.core.step()
        world.core.kill()
        client.session.receive(Abort(strand=1))
        assert Closed(1) in client.events
        done = [e for e in client.events if isinstance(e, Done)]
        assert [e.reason for e in done] == ["abort", "abort"] and all(e.text for e in done)
        while len(world.epochs) < 2 or front.epochs._task is not None:
            await asyncio.sleep(0)
        assert not world.core.opened
        await front.close()

    asyncio.run(main())


def test_a_pool_that_changes_is_said(tokenizer: Tokenizer, caplog: pytest.LogCaptureFixture) -> None:
    world = FakeWorld(tokenizer, pools=[5000, 5000, 300])

    async def main() -> None:
        front = Front(served(tokenizer, None), world.link, Settings(), compile_literal)
        await front.start()
        assert front.info.kv_tokens == 5000
        for deaths in (1, 2):
            world.core.kill()
            while len(world.epochs) == deaths or front.epochs._task is not None:
                await asyncio.sleep(0)
            assert front.info.kv_tokens == (5000 if deaths == 1 else 300)
            told = [record.getMessage() for record in caplog.records if "tokens of KV" in record.getMessage()]
            assert told == ([] if deaths == 1 else ["the core has 300 tokens of KV now, 5000 before"])
        assert "a pool of 300" in caplog.messages
        await front.close()

    asyncio.run(main())


def test_closed_strands_are_not_replayed(tokenizer: Tokenizer) -> None:
    world = FakeWorld(tokenizer)

    async def main() -> None:
        front = Front(served(tokenizer, None), world.link, Settings(), compile_literal)
        await front.start()
        client = Client(front)
        client.session.receive(programs())
        await client.until(lambda c: sum(isinstance(e, Closed) for e in c.events) == 3)
        client.session.receive(Fragment((Open(7, 7), Extend(7, (Text(1, "kept"), gen(2))))))
        await client.until(lambda c: any(isinstance(e, Done) and e.strand == 7 for e in c.events))
        world.frames.clear()
        world.core.kill()
        client.session.receive(Fragment((Extend(7, (gen(3),)),)))
        await client.until(lambda c: any(isinstance(e, Done) and (e.strand, e.op) == (7, 3) for e in c.events))
        assert len(world.sent(wire.OpenStrand)) == 1
        await front.close()

    asyncio.run(main())
