"""Numbers on their way through the front: of the prompt, of cut tokens, of ends; and the same after a death."""

from __future__ import annotations

import pytest
from fake_core import tiny_tokenizer
from test_front import Bench, bench, spelled
from test_front_replay import DieAt, play

from plait.runtime import wire
from plait.runtime.protocol import (
    Abort,
    Close,
    Done,
    Extend,
    Failed,
    Fragment,
    Gen,
    Open,
    PromptLogprobs,
    Sampling,
    Select,
    Text,
    TokenLogprob,
)
from plait.runtime.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return tiny_tokenizer(tmp_path_factory.mktemp("tiny"))[0]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tokenizer, str]:
    return tiny_tokenizer(tmp_path_factory.mktemp("tiny"))


TEXT = "What is the capital of France?"


def asked(op: int, n: int = 1, **fields: object) -> Gen:
    fields = {"max_tokens": 4, "logprobs": True, "logprob_start_len": 0, **fields}
    return Gen(op, Sampling(**fields), None, n, stream=True)  # type: ignore[arg-type]  # by name


def prompt_of(events: list[object], strand: int, op: int) -> list[TokenLogprob]:
    mine = [event for event in events if getattr(event, "strand", 0) == strand and getattr(event, "op", 0) == op]
    pieces = [event for event in mine if isinstance(event, PromptLogprobs)]
    assert [piece.last for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert mine[: len(pieces)] == pieces, "they come before everything else of the op"
    return [entry for piece in pieces for entry in piece.logprobs]


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("start", [0, 4, 1000])
def test_numbers_of_the_prompt(tiny: tuple[Tokenizer, str], n: int, start: int) -> None:
    ids = tiny[0].encode(TEXT, special=True, start=True)

    async def body(b: Bench) -> None:
        b.send(Open(1, 1), Extend(1, (Text(1, TEXT), asked(2, n, logprob_start_len=start, prompt_top_logprobs=2))))
        done = [await b.done(1, 2, choice) for choice in range(n)]
        entries = prompt_of(b.client.events, 1, 2)
        assert [entry.id for entry in entries] == ids[start:]
        for at, entry in enumerate(entries, start):
            assert entry.data == tiny[0].token_bytes(entry.id) and entry.rank == 1
            assert entry.logprob == (-entry.id / 100 if at else None)
            assert [(top.id, top.logprob) for top in entry.top] == [(entry.id, -0.5)]
        assert all(event.logprobs is not None and len(event.logprobs) == len(event.ids) for event in done)
        first = done[0].usage
        assert (first.prompt, first.cached) == (len(ids), 0), "what was computed for them is not cached"
        assert all(event.usage.prompt == 0 for event in done[1:])

    bench(tiny, body)


def test_without_asking_nothing_is_read(tiny: tuple[Tokenizer, str]) -> None:
    async def body(b: Bench) -> None:
        b.send(Open(1, 1), Extend(1, (Text(1, TEXT), asked(2, logprob_start_len=-1))))
        await b.done(1, 2)
        assert not b.world.ops(wire.ScorePrompt)
        assert not any(isinstance(event, PromptLogprobs) for event in b.client.events)

    bench(tiny, body)


@pytest.mark.parametrize("n", [1, 3])
def test_a_refusal_of_the_prompt_fails_every_choice(tiny: tuple[Tokenizer, str], n: int) -> None:
    async def body(b: Bench) -> None:
        b.world.fail_op = lambda op: "no" if isinstance(op, wire.ScorePrompt) else None
        b.send(Open(1, 1), Extend(1, (Text(1, TEXT), asked(2, n), asked(3))), Close(1))
        for choice in range(n):
            assert (await b.failed(1, 2, choice)).message == "no"
        assert (await b.failed(1, 3)).code == "upstream"
        b.clean()

    bench(tiny, body)


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("steps", [0, 1, 2, 5])
def test_an_abort_while_a_prompt_is_read(tiny: tuple[Tokenizer, str], n: int, steps: int) -> None:
    async def body(b: Bench) -> None:
        b.send(Open(1, 1), Extend(1, (Text(1, TEXT), asked(2, n))))
        for _ in range(steps):
            b.world.core.step()
        b.client.session.receive(Abort(strand=1))
        b.world.core.step()
        for choice in range(n):
            answer = await b.answer(1, 2, choice)
            assert isinstance(answer, Done | Failed)
            assert answer.code == "aborted" if isinstance(answer, Failed) else answer.reason == "abort"
        b.clean()

    bench(tiny, body, hold=True)


def test_the_end_token_and_what_would_come(tiny: tuple[Tokenizer, str]) -> None:
    async def body(b: Bench) -> None:
        b.send(Open(1, 1), Extend(1, (Text(1, TEXT), asked(2, max_tokens=9), asked(3, max_tokens=0, top_logprobs=1))))
        done = await b.done(1, 2)
        assert done.end_logprob is not None and done.matched == done.end_logprob.id == 2
        assert (done.end_logprob.token, done.end_logprob.data) == (tiny[0].token_bytes(2).decode(), b"")
        assert done.next_top == ()
        (top,) = (await b.done(1, 3)).next_top
        assert (top.id, top.data, top.logprob) == (7, tiny[0].token_bytes(7), -0.25)

    bench(tiny, body, next_id=spelled(tiny[0], b"ab"))


def test_choices_of_a_select(tiny: tuple[Tokenizer, str]) -> None:
    async def body(b: Bench) -> None:
        b.send(Open(1, 1), Extend(1, (Text(1, TEXT), Select(2, (" yes", " no")))))
        done = await b.done(1, 2)
        assert done.choice_logprobs is not None
        for text, entries in zip((" yes", " no"), done.choice_logprobs, strict=True):
            assert b"".join(entry.data for entry in entries) == text.encode()
            assert all(entry.logprob == -entry.id / 100 and entry.forced for entry in entries)

    bench(tiny, body)


def cut(at: int) -> Fragment:
    """Two gens that a stop ends inside a token, the second behind numbers of its prompt."""
    stopped = {"stop": ("th",), "max_tokens": 40, "top_logprobs": 1}
    return Fragment(
        (
            Open(1, 1, seed=at),
            Extend(1, (Text(1, TEXT), asked(2, logprob_start_len=-1, **stopped), asked(3, n=2, **stopped))),
            Close(1),
        )
    )


@pytest.mark.parametrize("at", range(1, 60, 2))
def test_a_death_anywhere_changes_no_number(tokenizer: Tokenizer, at: int) -> None:
    """Also where the token that a stop cut was drawn by the core that died."""
    word = [i for i in range(tokenizer.size) if tokenizer.token_bytes(i) == b" the"]
    plain = [i for i in range(tokenizer.size) if tokenizer.token_bytes(i) in (b"a", b" dog", b"e")]

    def next_id(ids: list[int], position: int) -> int:
        return (plain * 2 + word)[position % 7]

    def told(die: DieAt | None) -> tuple[list[Done], list[TokenLogprob]]:
        events: list[object] = []
        (answers, _), _, _ = play(
            tokenizer,
            die,
            fragment=cut(at),
            closes=1,
            next_id=next_id,
            during=lambda front, world, client: events.append(client),
        )
        assert not any(isinstance(event, Failed) for event in answers.values())
        client = events[0]
        return list(answers.values()), prompt_of(client.events, 1, 3)  # type: ignore[attr-defined, return-value]

    want, prompt = told(None)
    got, again = told(DieAt(at))
    assert again == prompt
    for one, other in zip(want, got, strict=True):
        assert one.tail and other.logprobs == one.logprobs
        assert one.logprobs is not None and len(one.logprobs) == len(one.ids)
        assert all(entry.logprob is not None and len(entry.top) == 1 for entry in one.logprobs)
        assert one.logprobs[len(one.ids) - one.tail].logprob == -word[0] / 100
