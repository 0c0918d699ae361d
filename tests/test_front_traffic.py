"""Any traffic: every op is answered once, every Close once, and nothing is left behind."""

from __future__ import annotations

import asyncio
import logging
import random

import pytest
from fake_core import Client, FakeWorld, served, tiny_tokenizer
from hypothesis import example, given, settings
from hypothesis import strategies as st

from plait.runtime import protocol as p
from plait.runtime.front.front import Front
from plait.runtime.front.settings import Settings
from plait.runtime.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tokenizer, str]:
    return tiny_tokenizer(tmp_path_factory.mktemp("tiny"))


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Traffic:
    """One client that does anything, sensible or not."""

    def __init__(self, rng: random.Random, client: Client, world: FakeWorld, clock: Clock) -> None:
        self.rng, self.client, self.world, self.clock = rng, client, world, clock
        self.ops: dict[int, int] = {}  # strand -> last op
        self.family: dict[int, list[int]] = {}
        self.roles: dict[int, bool] = {}
        self.want: dict[tuple[int, int], int] = {}  # op -> choices to be answered
        self.closes: dict[int, int] = {}
        self.next = 1

    def op(self, strand: int, choices: int = 1) -> int:
        self.ops[strand] += 1
        self.want[strand, self.ops[strand]] = choices
        return self.ops[strand]

    def silent(self, strand: int) -> int:
        self.ops[strand] += 1
        return self.ops[strand]

    def send(self, *actions: p.Action) -> None:
        self.client.session.receive(p.Fragment(actions))

    def open(self) -> None:
        strand, self.next = self.next, self.next + 1
        self.ops[strand], self.family[strand], self.closes[strand] = 0, [], 0
        self.send(p.Open(strand, self.rng.randint(1, 3), seed=self.rng.randint(0, 99)))

    def gen(self, strand: int) -> None:
        rng = self.rng
        n = rng.choice([1, 1, 1, 2, 3])
        bad = {"temperature": float("nan")} if rng.random() < 0.05 else {"temperature": rng.choice([0.0, 1.0])}
        sampling = p.Sampling(max_tokens=rng.randint(0, 6), stop=rng.choice([(), ("e",)]), **bad)  # type: ignore[arg-type]
        constraint = rng.choice([None, None, p.Regex("abc"), p.Regex("bad(")])
        self.send(p.Extend(strand, (p.Gen(self.op(strand, n), sampling, constraint, n, rng.random() < 0.5),)))

    def text(self, strand: int) -> None:
        self.send(p.Extend(strand, (p.Text(self.silent(strand), self.rng.choice(["x", " yes", "", "<|im_end|>"])),)))

    def reference(self, strand: int) -> None:
        other = self.rng.choice(list(self.ops))
        ref = p.VarRef(self.silent(strand), other, self.rng.randint(0, self.ops[other] + 1), self.rng.randint(0, 1))
        self.send(p.Extend(strand, (ref,)))

    def select(self, strand: int) -> None:
        self.send(p.Extend(strand, (p.Select(self.op(strand), self.rng.choice([("a", "b c"), ("q",), ()])),)))

    def role(self, strand: int) -> None:
        begin = p.RoleBegin(self.op(strand), self.rng.choice(["user", "assistant"]))  # type: ignore[arg-type]
        self.send(p.Extend(strand, (begin, p.RoleEnd(self.op(strand)))))

    def fork(self, strand: int) -> None:
        children = tuple(range(self.next, self.next + self.rng.randint(1, 3)))
        self.next += len(children)
        for child in children:
            self.ops[child], self.family[child], self.closes[child] = 0, [], 0
        self.family[strand] += children
        self.send(p.Fork(strand, self.op(strand), children))

    def join(self, strand: int) -> None:
        children = tuple(self.rng.sample(self.family[strand], min(2, len(self.family[strand]))))
        self.send(p.Join(strand, self.op(strand), children, append=self.rng.random() < 0.3))

    def close(self, strand: int) -> None:
        self.closes[strand] += 1
        self.send(p.Close(strand))

    def abort(self, strand: int) -> None:
        if self.rng.random() < 0.2:
            self.client.session.receive(p.Abort(program=self.rng.randint(1, 3)))
        else:
            self.client.session.receive(p.Abort(strand=strand))

    async def step(self) -> None:
        rng = self.rng
        if not self.ops or rng.random() < 0.1:
            self.open()
            return
        strand = rng.choice(list(self.ops)[-8:])
        what = rng.choices(
            [self.gen, self.text, self.reference, self.select, self.role, self.fork, self.join, self.close, self.abort],
            [8, 8, 2, 3, 2, 3, 2, 1, 1],
        )[0]
        what(strand)
        chance = rng.random()
        if chance < 0.4:
            self.world.core.step()
        elif chance < 0.5:
            await asyncio.sleep(0)
        elif chance < 0.53:
            self.clock.now += rng.choice([1.0, 100.0])
            self.world.core.kill()


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32))
@example(24090)  # an abort between a replay and its first step
def test_everything_is_answered_once(tiny: tuple[Tokenizer, str], seed: int) -> None:
    async def compile_literal(kind: str, source: str, backend: str) -> bytes:
        from plait.runtime.front.constraints import Refused

        await asyncio.sleep(0)
        if source.startswith("bad"):
            raise Refused("bad")
        return source.encode()

    logging.getLogger("plait.runtime.front.epochs").setLevel(logging.ERROR)

    async def main() -> None:
        rng, clock = random.Random(seed), Clock()
        world = FakeWorld(tiny[0], hold=True)
        front = Front(served(tiny[0], tiny[1]), world.link, Settings(clock=clock, payload_bytes=2), compile_literal)
        await front.start()
        client = Client(front)
        traffic = Traffic(rng, client, world, clock)
        for _ in range(rng.randint(5, 60)):
            await traffic.step()
        for strand in list(traffic.ops):
            traffic.close(strand)
        # Strands that wait for what never comes are for the client to abort.
        for _ in range(400):
            await asyncio.sleep(0)
            if not world.core.dead and not world.core.step() and front.epochs._task is None:
                stuck = list(client.session.strands)
                if not stuck:
                    break
                client.session.receive(p.Abort(strand=stuck[0]))
        assert not client.session.strands and not client.session.program_of and not client.session.hidden
        assert not front.sids and front.live == 0 and front.pending == 0
        assert all(entry.users == 0 for entry in front.constraints._entries.values())
        world.core.step()
        assert not world.core.strands
        assert not [e for e in client.events if isinstance(e, p.Failed) and e.code == "internal"]
        answers: dict[tuple[int, int, int], object] = {}
        closed: dict[int, int] = {}
        texts: dict[tuple[int, int, int], str] = {}
        for event in client.events:
            if isinstance(event, p.Closed):
                closed[event.strand] = closed.get(event.strand, 0) + 1
                continue
            assert isinstance(event, p.Done | p.Failed | p.Delta)
            key = (event.strand, event.op, event.choice)
            assert key not in answers, event
            if isinstance(event, p.Delta):
                assert event.text
                texts[key] = texts.get(key, "") + event.text
            else:
                answers[key] = event
            if isinstance(event, p.Done) and key in texts:
                assert texts[key] == event.text
        for (strand, op), choices in traffic.want.items():
            for choice in range(choices):
                assert (strand, op, choice) in answers, (strand, op, choice)
        assert set(closed) == set(traffic.ops)
        await front.close()

    asyncio.run(main())
