"""The core dies again and again: only the strands that kill it fail, the others go on as if nothing had happened."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest
from fake_core import Client, FakeWorld, served, tiny_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.runtime import wire
from plait.runtime.front.front import Front
from plait.runtime.front.settings import Settings
from plait.runtime.protocol import (
    Abort,
    Action,
    Close,
    Closed,
    Done,
    Event,
    Extend,
    Failed,
    Fork,
    Fragment,
    Gen,
    Join,
    Open,
    Sampling,
    Text,
)
from plait.runtime.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return tiny_tokenizer(tmp_path_factory.mktemp("tiny"))[0]


class Killers:
    """``die`` of a world: op -> how many tokens of it one core survives."""

    def __init__(self, lives: Mapping[int, int]) -> None:
        self.lives = lives
        self.seen: dict[int, int] = {}

    def __call__(self, event: wire.CoreEvent) -> bool:
        if not isinstance(event, wire.Tokens) or event.op not in self.lives:
            return False
        self.seen[event.op] = self.seen.get(event.op, 0) + 1
        if self.seen[event.op] <= self.lives[event.op]:
            return False
        self.seen.clear()
        return True


def one(strand: int, op: int, tokens: int = 40, n: int = 1) -> list[Action]:
    """A strand with one gen, whose number is ``op``."""
    sampling = Sampling(max_tokens=tokens, temperature=1.0)
    ops = (Text(1, f"strand {strand}"), Gen(op, sampling, n=n, stream=True))
    return [Open(strand, strand, seed=strand), Extend(strand, ops), Close(strand)]


def play(
    tokenizer: Tokenizer,
    actions: list[Action],
    die: Callable[[wire.CoreEvent], bool] | None = None,
    during: Callable[[Front, FakeWorld, Client], None] | None = None,
    later: int | None = None,
    **changes: object,
) -> tuple[dict[tuple[int, int, int], Done | Failed], FakeWorld]:
    """What every op came to, by (strand, op, choice). ``later``: a strand that ``during`` opens."""
    world = FakeWorld(tokenizer, die=die)
    strands = {action.strand for action in actions if isinstance(action, Open)}
    strands |= {child for action in actions if isinstance(action, Fork) for child in action.children}

    strands |= {later} if later is not None else set()

    async def main() -> list[Event]:
        front = Front(served(tokenizer, None), world.link, Settings(**changes))  # type: ignore[arg-type]  # by name
        await front.start()
        client = Client(front)
        client.session.receive(Fragment(tuple(actions)))
        if during is not None:
            during(front, world, client)
        await client.until(lambda c: {e.strand for e in c.events if isinstance(e, Closed)} >= strands)
        await client.until(lambda c: not front.sids)
        assert front.live == front.pending == 0
        await front.close()
        return client.events

    events = asyncio.run(main())
    answers = [event for event in events if isinstance(event, Done | Failed)]
    found = {(event.strand, event.op, event.choice): event for event in answers}
    assert len(found) == len(answers), "one answer each"
    return found, world


def texts(answers: dict[tuple[int, int, int], Done | Failed]) -> dict[tuple[int, int, int], object]:
    return {key: (e.text, e.ids, e.reason) if isinstance(e, Done) else e.code for key, e in answers.items()}


@pytest.mark.parametrize("killer", [1, 4, 8])
def test_only_the_strand_that_kills_fails(tokenizer: Tokenizer, killer: int) -> None:
    actions = [action for n in range(1, 9) for action in one(n, 66 if n == killer else 2)]
    want = texts(play(tokenizer, actions)[0])
    answers, world = play(tokenizer, actions, Killers({66: 0}))
    failed = answers[killer, 66, 0]
    assert isinstance(failed, Failed) and failed.code == "core_crashed" and "SIGKILL" in failed.message
    assert texts(answers) == {**want, (killer, 66, 0): "core_crashed"}
    # Two deaths together, one beside those that were tried already (if any), one alone.
    assert len(world.epochs) == (4 if killer == 1 else 5)


def test_who_comes_meanwhile_waits_and_is_served(tokenizer: Tokenizer) -> None:
    """Also children of the suspects, whose forks are still to come, and choices of one gen."""
    actions = [*one(1, 2), *one(2, 66), *one(3, 2, n=3)]
    actions += [
        Open(4, 4, seed=4),
        Extend(4, (Text(1, "parent"), Gen(2, Sampling(max_tokens=30, temperature=1.0)))),
        Fork(4, 3, (5, 6)),
        *(Extend(n, (Text(1, "child"), Gen(2, Sampling(max_tokens=30, temperature=1.0)))) for n in (5, 6)),
        Close(5),
        Close(6),
        Join(4, 4, (5, 6), append=True),
        Extend(4, (Gen(5, Sampling(max_tokens=5)),)),
        Close(4),
    ]
    late = one(9, 2)
    sids: list[int] = []

    def during(front: Front, world: FakeWorld, client: Client) -> None:
        def come() -> None:
            if len(world.epochs) < 3 or not world.core.strands:
                asyncio.get_running_loop().call_soon(come)
                return
            client.session.receive(Fragment(tuple(late)))
            sids.append(client.session.strands[9].sid)

        come()

    want = texts(play(tokenizer, [*actions, *late])[0])
    answers, world = play(tokenizer, actions, Killers({66: 0}), during, later=9)
    assert texts(answers) == {**want, (2, 66, 0): "core_crashed"}
    told = [core for core in world.epochs if sids[0] in core.opened]
    assert told == world.epochs[-1:], "only the last core heard of it: those before were to be alone with a suspect"


def test_a_strand_that_kills_late_is_found_in_the_end(tokenizer: Tokenizer) -> None:
    actions = [*one(1, 66, tokens=400), *(action for n in range(2, 6) for action in one(n, 2, tokens=120))]
    want = texts(play(tokenizer, actions)[0])
    answers, world = play(tokenizer, actions, Killers({66: 20}))
    assert texts(answers) == {**want, (1, 66, 0): "core_crashed"}
    assert len(world.epochs) < 15


def test_strands_that_kill_only_together_end_too(tokenizer: Tokenizer) -> None:
    """No one of them is guilty, yet the core must not die for ever."""
    actions = [action for n in range(1, 5) for action in one(n, 60 + n, tokens=400)]
    seen: set[int] = set()

    def die(event: wire.CoreEvent) -> bool:
        if isinstance(event, wire.Tokens):
            seen.add(event.op)
        if {61, 63} <= seen:
            seen.clear()
            return True
        return False

    want = texts(play(tokenizer, actions)[0])
    answers, world = play(tokenizer, actions, die)
    said = texts(answers)
    assert all(said[n, 60 + n, 0] == want[n, 60 + n, 0] for n in (2, 4))
    assert len(world.epochs) < 20


def test_the_time_of_a_quarantine_has_a_bound(tokenizer: Tokenizer) -> None:
    """Everybody goes on when it is up, tried or not; what killed is found at the next deaths."""

    class Clock:
        now = 0.0

        def __call__(self) -> float:
            self.now += 0.05  # a turn of the front looks at it about ten times
            return self.now

    actions = [action for n in range(1, 9) for action in one(n, 66 if n == 8 else 2)]
    want = texts(play(tokenizer, actions)[0])
    answers, world = play(tokenizer, actions, Killers({66: 0}), clock=Clock(), quarantine_s=2.0)
    assert texts(answers) == {**want, (8, 66, 0): "core_crashed"}
    assert 4 < len(world.epochs) < 12


def test_a_trial_that_says_nothing_ends(tokenizer: Tokenizer) -> None:
    """Strand 1 is the first to be tried, and the core computes nothing for it: a clock ends that."""
    actions = [*one(1, 2), *one(2, 66)]
    answers, _ = play(tokenizer, actions, Killers({66: 0}), during=_stuck_in_third_core, trial_s=0.01)
    assert isinstance(answers[1, 2, 0], Done) and isinstance(answers[2, 66, 0], Failed)


def _stuck_in_third_core(front: Front, world: FakeWorld, client: Client) -> None:
    link = world.link

    def slow() -> object:
        core = link()
        if len(world.epochs) == 3:
            real = core._advance
            core._advance = lambda strand: [] if strand.sid == 1 else real(strand)  # type: ignore[method-assign]
        return core

    front.epochs._factory = slow  # type: ignore[assignment]


def test_a_suspect_that_waits_for_its_trial_can_be_aborted(tokenizer: Tokenizer) -> None:
    """The core of now does not know it, and cannot end it."""
    actions = [*one(1, 2, tokens=400), *one(2, 2, tokens=400), *one(3, 66)]

    def during(front: Front, world: FakeWorld, client: Client) -> None:
        def abort() -> None:
            if len(world.epochs) < 3 or not world.core.strands:
                asyncio.get_running_loop().call_soon(abort)
            else:
                assert [strand.sid for strand in world.core.strands.values()] == [1]
                client.session.receive(Abort(strand=2))
                ended = [e for e in client.events if isinstance(e, Done) and e.strand == 2]
                assert [e.reason for e in ended] == ["abort"]

        abort()

    answers, _ = play(tokenizer, actions, Killers({66: 1}), during)
    assert isinstance(answers[1, 2, 0], Done) and isinstance(answers[3, 66, 0], Failed)


@settings(max_examples=40, deadline=None)
@given(
    kinds=st.lists(st.sampled_from(["good", "good", "kills", "later"]), min_size=1, max_size=7),
    lives=st.integers(1, 12),
    tokens=st.integers(1, 60),
)
def test_whoever_kills_the_others_are_served(tokenizer: Tokenizer, kinds: list[str], lives: int, tokens: int) -> None:
    ops = [2 if kind == "good" else 60 + at for at, kind in enumerate(kinds, 1)]
    actions = [action for at, op in enumerate(ops, 1) for action in one(at, op, tokens)]
    want = texts(play(tokenizer, actions)[0])
    deadly = {60 + at: lives if kind == "later" else 0 for at, kind in enumerate(kinds, 1) if kind != "good"}
    answers, world = play(tokenizer, actions, Killers(deadly))
    said = texts(answers)
    assert said.keys() == want.keys()
    for key, text in said.items():
        if deadly.get(key[1]) == 0:
            assert text == "core_crashed"
        else:
            assert text == want[key] or (key[1] in deadly and text == "core_crashed")
    assert len(world.epochs) <= 3 + 6 * len(deadly)
