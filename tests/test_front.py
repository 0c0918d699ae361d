"""The front over a core without a model: lowering, failures, forks, joins, aborts, text."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from fake_core import Client, FakeWorld, served, tiny_tokenizer

from plait.runtime import wire
from plait.runtime.front.constraints import Compile, Refused
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


async def fake_compile(kind: str, source: str, backend: str) -> bytes:
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
    compile: Compile = fake_compile,
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
            compile,
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


def test_ops_after_an_unresolved_reference_wait(tiny: tuple[Tokenizer, str]) -> None:
    """The script goes out up to the last hard edge before a VarRef; text around it is joined."""

    async def body(b: Bench) -> None:
        b.world.hold = True
        b.send(Open(1, 1), Open(2, 1))
        b.send(Extend(1, (Text(1, "one"), gen(2), Text(3, " A:"), VarRef(4, 2, 2), Text(5, "!"), gen(6))))
        assert [type(op).__name__ for op in b.world.ops(wire.CoreOp.__args__)] == ["Append", "Sample"]  # type: ignore[attr-defined]
        b.send(Extend(2, (Text(1, "two"), gen(2))))
        b.world.hold = False
        b.world.core._schedule()
        await b.done(1, 6)
        text = (await b.done(2, 2)).text
        sample = [op for op in b.world.ops(wire.Append) if op.op == 6]  # type: ignore[attr-defined]
        assert list(sample[0].ids) == tiny[0].encode(f" A:{text}!", special=True)  # type: ignore[attr-defined]

    bench(tiny, body)


def test_reference_to_a_closed_strand_of_a_live_program(tiny: tuple[Tokenizer, str]) -> None:
    async def body(b: Bench) -> None:
        b.send(Open(1, 1), Text_gen(1, "a", 2), Fork(1, 3, (5,)), Text_gen(5, " b", 2), Close(5), Join(1, 4, (5,)))
        await b.closed(5)
        text = (await b.done(5, 2)).text
        b.send(Extend(1, (VarRef(6, 5, 2), gen(7))))
        await b.done(1, 7)
        assert list(b.world.ops(wire.Append)[-1].ids) == tiny[0].encode(text, special=True)  # type: ignore[attr-defined]
        b.send(Close(1))
        await b.closed(1)
        b.clean()

    bench(tiny, body)


def test_reference_to_a_program_that_ends_before_the_reference_is_read(tiny: tuple[Tokenizer, str]) -> None:
    """It was accepted while that program lived, so it holds what that program said."""

    async def body(b: Bench) -> None:
        b.send(
            *(Open(strand, program=strand) for strand in (1, 2, 3)),
            Extend(1, (Text(1, "slow"), gen(2, max_tokens=30))),
            Extend(2, (Text(1, "fast"), gen(2, max_tokens=1))),
            Extend(3, (VarRef(1, 1, 2), VarRef(2, 2, 2), gen(3))),
            Close(2),
        )
        await b.closed(2)
        assert (1, 2, 0) not in b.answers()
        await b.done(3, 3)
        text = (await b.done(1, 2)).text + (await b.done(2, 2)).text
        assert list(b.world.ops(wire.Append)[-1].ids) == tiny[0].encode(text, special=True)  # type: ignore[attr-defined]
        b.send(Close(1), Close(3))
        await b.closed(3)
        b.clean()

    bench(tiny, body)


def test_wrong_references_are_refused(tiny: tuple[Tokenizer, str]) -> None:
    async def body(b: Bench) -> None:
        for strand, op in ((1, VarRef(1, 77, 1)), (2, VarRef(1, 2, 1)), (3, VarRef(5, 3, 4))):
            b.send(Open(strand, 1), Extend(strand, (op,)))
            assert (await b.failed(strand, op.op)).code == "invalid_request"
        b.send(Open(4, 1), Extend(4, (Text(1, "x"), gen(2), VarRef(3, 4, 1))))
        assert "no text" in (await b.failed(4, 3)).message
        # two strands that wait for each other
        b.send(Open(5, 1), Open(6, 1), Extend(5, (VarRef(1, 6, 2), gen(2))), Extend(6, (VarRef(1, 5, 2), gen(2))))
        failures = [await b.answer(5, 2), await b.answer(6, 2)]
        assert any(isinstance(event, Failed) for event in failures)

    bench(tiny, body)


def test_reference_to_a_failed_op_fails(tiny: tuple[Tokenizer, str]) -> None:
    async def body(b: Bench) -> None:
        b.send(Open(1, 1), Open(2, 1), Extend(2, (VarRef(1, 1, 2), gen(3))))
        b.send(Extend(1, (Text(1, "x"), gen(2, temperature=float("nan")))))
        failed = await b.failed(2, 1)
        assert (failed.code, failed.cause_op) == ("upstream", 2)
        assert (await b.failed(2, 3)).code == "upstream"

    bench(tiny, body)


def Text_gen(strand: int, text: str, op: int, **fields: object) -> Extend:
    return Extend(strand, (Text(op - 1, text), gen(op, **fields)))  # type: ignore[arg-type]


def test_bos_only_when_the_strand_holds_no_ids(tiny: tuple[Tokenizer, str]) -> None:
    async def body(b: Bench) -> None:
        b.send(Open(1, 1), Extend(1, (gen(1), Text(2, "x"), gen(3))))
        await b.done(1, 3)
        assert b.appended() == [0, *tiny[0].encode("x", special=True)]
        # a fork before any text works, and each child gets its own BOS
        b.world.frames.clear()
        b.send(Open(2, 1), Fork(2, 1, (3, 4)), Text_gen(3, "y", 2), Text_gen(4, "z", 2))
        await b.done(3, 2)
        await b.done(4, 2)
        assert sorted(op.ids[0] for op in b.world.ops(wire.Append)) == [0, 0]  # type: ignore[attr-defined]
        # written by hand, it is not doubled
        b.world.frames.clear()
        b.send(Open(5, 1), Text_gen(5, "<|endoftext|>y", 2))
        await b.done(5, 2)
        assert b.appended()[:2] == [0, *tiny[0].encode("y", special=True)][:2]

    bench(tiny, body, add_bos=True)


def test_an_empty_prompt_without_bos_is_refused(tiny: tuple[Tokenizer, str]) -> None:
    async def body(b: Bench) -> None:
        b.send(Open(1, 1), Extend(1, (Text(1, ""), gen(2))))
        assert (await b.failed(1, 2)).field == "prompt"
        b.send(Open(2, 1), Text_gen(2, "still served", 2))
        await b.done(2, 2)

    bench(tiny, body)


def test_literal_ids(tiny: tuple[Tokenizer, str]) -> None:
    async def body(b: Bench) -> None:
        b.send(Open(1, 1), Extend(1, (Text(1, "a"), Ids(2, (5, 6, 7)), gen(3))))
        await b.done(1, 3)
        assert b.appended() == [*tiny[0].encode("a", special=True), 5, 6, 7]
        b.send(Open(2, 1), Extend(2, (Ids(1, (512,)), gen(2))))
        failed = await b.failed(2, 1)
        assert (failed.code, failed.field) == ("invalid_value", "ids")

    bench(tiny, body)


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("op", "field"),
    [
        (gen(2, temperature=float("nan")), "temperature"),
        (gen(2, max_tokens=-1), "max_tokens"),
        (gen(2, stop=("",)), "stop"),
        (gen(2, top_p=-0.5), "top_p"),
        (gen(2, stop_token_ids=(512,)), "stop_token_ids"),
        (gen(2, n=0), "n"),
        (gen(2, n=129), "n"),
        (gen(2, top_logprobs=3), "top_logprobs"),
        (Gen(2, Sampling(), Regex("")), "regex"),
        (Select(2, ()), "choices"),
        (Select(2, ("a", "")), "choices"),
        (Select(2, ("a",), temperature=float("nan")), "temperature"),
    ],
)
def test_bad_fields_are_named(tiny: tuple[Tokenizer, str], op: Gen | Select, field: str) -> None:
    async def body(b: Bench) -> None:
        b.send(Open(1, 1), Extend(1, (Text(1, "x"), op, gen(3))), Close(1))
        failed = await b.failed(1, 2)
        assert (failed.code, failed.field) == ("invalid_value", field)
        assert field in failed.message
        later = await b.failed(1, 3)
        assert (later.code, later.cause_op) == ("upstream", 2)
        await b.closed(1)
        b.send(Open(2, 1), Text_gen(2, "next", 2), Close(2))
        await b.closed(2)
        b.clean()

    bench(tiny, body)


def test_wrong_types_from_a_client_in_process(tiny: tuple[Tokenizer, str]) -> None:
    async def body(b: Bench) -> None:
        b.send(Open(1, 1), Text_gen(1, "x", 2, max_tokens="many"))
        assert (await b.failed(1, 2)).code == "invalid_value"

    bench(tiny, body)


def test_malformed_actions_harm_nobody(tiny: tuple[Tokenizer, str]) -> None:
    async def body(b: Bench) -> None:
        b.send(Open(1, 1), Extend(1, (Text("one", "x"),)), "nonsense", Open(2, 1), Text_gen(2, "x", 2))  # type: ignore[arg-type]
        assert any(isinstance(e, Failed) and e.strand == 1 for e in b.client.events)
        await b.done(2, 2)
        b.send(Close(1), Close(2))
        await b.closed(1)
        await b.closed(2)
        b.clean()

    bench(tiny, body)


def test_a_prompt_that_cannot_fit_is_not_even_encoded(
    tiny: tuple[Tokenizer, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Encoding is done on the front's loop, where every other request waits: a second per megabyte."""
    longest = [0]
    encode = Tokenizer.encode

    def counted(self: Tokenizer, text: str, *, special: bool, start: bool = False) -> list[int]:
        longest[0] = max(longest[0], len(text))
        return encode(self, text, special=special, start=start)

    monkeypatch.setattr(Tokenizer, "encode", counted)

    async def body(b: Bench) -> None:
        b.send(Open(1, 1), Text_gen(1, "a" * 5_000_000, 2))
        failed = await b.failed(1, 2)
        assert (failed.code, failed.field) == ("context_length", "prompt")
        b.send(Open(2, 1), Extend(2, (Text(1, "x"), Select(2, ("yes", "a" * 5_000_000)))))
        failed = await b.failed(2, 2)
        assert (failed.code, failed.field) == ("context_length", "choices")
        b.send(Open(3, 1), Extend(3, (RoleBegin(1, "user"), Text(2, "<|im_end|>" * 500_000), RoleEnd(3), gen(4))))
        assert (await b.failed(3, 4)).code == "context_length"
        assert longest[0] < 100_000

    bench(tiny, body)


def test_prompt_longer_than_the_context(tiny: tuple[Tokenizer, str]) -> None:
    async def body(b: Bench) -> None:
        b.send(Open(1, 1), Extend(1, (Ids(1, (5,) * 65), gen(2))))
        failed = await b.failed(1, 1)
        assert failed.code == "context_length" and "65" in failed.message and "64" in failed.message
        b.send(Open(2, 1), Extend(2, (Ids(1, (5,) * 64), gen(2))))
        assert (await b.failed(2, 2)).code == "context_length"
        b.send(Open(3, 1), Extend(3, (Ids(1, (5,) * 64), gen(2, max_tokens=0))))
        done = await b.done(3, 2)
        assert (done.text, done.reason) == ("", "length")
        b.send(Open(4, 1), Extend(4, (Ids(1, (5,) * 60), gen(2, max_tokens=None))))
        assert len((await b.done(4, 2)).ids) == 4
        b.send(Open(5, 1), Extend(5, (Ids(1, (5,) * 60), gen(2, max_tokens=None, min_tokens=5))))
        assert (await b.failed(5, 2)).code == "context_length"
        b.send(Open(6, 1), Extend(6, (Ids(1, (5,) * 63), Select(2, ("abcdef",)))))
        assert (await b.failed(6, 2)).field == "choices"

    bench(tiny, body, context_length=64)


def test_ops_must_rise_and_strands_must_exist(tiny: tuple[Tokenizer, str]) -> None:
    async def body(b: Bench) -> None:
        b.send(Extend(9, (gen(1),)))
        assert (await b.failed(9, 1)).field == "strand"
        b.send(Open(1, 1), Extend(1, (Text(5, "x"), gen(4))))
        assert (await b.failed(1, 4)).field == "op"
        b.send(Fork(1, 6, (1,)))
        assert (await b.failed(1, 6)).field == "children"
        b.send(Open(2, 1), Open(2, 1), Text_gen(2, "x", 2))
        assert "twice" in (await b.failed(2, 1)).message
        b.send(Open(3, 1), Open(4, 1), Join(3, 1, (4,)))
        assert (await b.failed(3, 1)).field == "children"
        b.send(Open(5, 1), Close(5), Extend(5, (Text(1, "x"),)))
        assert (await b.failed(5, 1)).field == "strand"
        b.send(Close(77))
        await b.closed(77)

    bench(tiny, body)


def test_a_salt_reaches_the_core_as_a_digest(tiny: tuple[Tokenizer, str]) -> None:
    async def body(b: Bench) -> None:
        b.send(*(Open(n, n, salt=salt) for n, salt in enumerate(("", "a", "b" * 1024, "a"), start=1)))
        b.send(Open(5, 5, salt="s" * 1025), Text_gen(5, "x", 2))
        error = await b.failed(5, 2)
        assert (error.code, error.field) == ("invalid_value", "salt") and "1,025 bytes" in error.message
        b.send(Text_gen(4, "x", 2), Fork(4, 3, (6,)))
        await b.done(4, 3)
        spaces = [item.namespace for item in b.world.sent(wire.OpenStrand)]  # type: ignore[union-attr]
        assert spaces[0] == "" and spaces[1] == spaces[3] != spaces[2] and {*map(len, spaces[1:])} == {64}
        b.send(Close(4), Close(5), Close(6), Close(1), Close(2), Close(3))
        await b.closed(3)

    bench(tiny, body)


def test_full_queues_refuse(tiny: tuple[Tokenizer, str]) -> None:
    async def body(b: Bench) -> None:
        b.world.hold = True
        b.send(Open(1, 1), Text_gen(1, "x", 2), Open(2, 1), Text_gen(2, "x", 2), Open(3, 1), Text_gen(3, "x", 2))
        assert (await b.failed(3, 2)).code == "queue_full"
        b.send(Fork(2, 3, (4,)), Text_gen(4, "x", 2), Close(4))
        assert (await b.failed(2, 3)).code == "queue_full"
        assert (await b.failed(4, 2)).code == "upstream"
        b.send(Close(3))
        await b.closed(3)

    bench(tiny, body, settings=Settings(max_strands=2))

    async def records(b: Bench) -> None:
        b.world.hold = True
        b.send(Open(1, 1), Text_gen(1, "x", 2))
        b.send(*(Open(number, 1) for number in range(2, 100)), Fork(1, 3, tuple(range(100, 1000))))
        assert b.front.live <= 6  # what is refused must not grow without a bound either
        b.send(Text_gen(99, "x", 2), Text_gen(999, "x", 2))
        assert (await b.failed(99, 2)).code == "queue_full"
        assert (await b.failed(999, 2)).code == "queue_full"
        b.world.hold = False
        b.send(*(Close(number) for number in range(1, 1000)))
        for number in range(1, 1000):
            await b.closed(number)
        b.clean()
        b.send(Open(5000, 1), Text_gen(5000, "x", 2))
        await b.done(5000, 2)

    bench(tiny, records, settings=Settings(max_strands=3))

    async def ops(b: Bench) -> None:
        b.world.hold = True
        b.send(Open(1, 1), Extend(1, (Text(1, "x"), gen(2), gen(3), gen(4))))
        assert (await b.failed(1, 4)).code == "queue_full"

    bench(tiny, ops, settings=Settings(max_pending_ops=2))

    async def choices(b: Bench) -> None:
        b.world.hold = True
        b.send(Open(1, 1), Extend(1, (Text(1, "x"), gen(2, n=2), gen(3, n=2))))
        assert (await b.failed(1, 3, 1)).code == "queue_full"
        b.world.hold = False
        b.send(Close(1))
        await b.done(1, 2, 1)
        await b.closed(1)
        b.clean()

    bench(tiny, choices, settings=Settings(max_pending_ops=2))

    async def silent(b: Bench) -> None:
        b.world.hold = True
        b.send(Open(1, 1), Text_gen(1, "x", 2), Open(2, 1), Extend(2, (VarRef(1, 1, 2),)))
        b.send(Extend(2, tuple(Text(op, "x") for op in range(2, 50))))
        assert (await b.failed(2, 10)).code == "queue_full"  # texts are not answered, but they wait too
        assert (await b.failed(2, 49)).code == "upstream"

    bench(tiny, silent, settings=Settings(max_strand_ops=9))


def test_ops_of_a_strand_that_failed_are_refused_one_by_one(
    tiny: tuple[Tokenizer, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each must not walk over all the ops that still wait: a fragment of 250,000 held the front for minutes."""

    async def body(b: Bench) -> None:
        b.world.hold = True
        calls: list[int] = []
        drop_after = b.front.drop_after
        monkeypatch.setattr(b.front, "drop_after", lambda s, op, error: (calls.append(op), drop_after(s, op, error)))
        b.send(Open(1, 1), Extend(1, (Text(1, "x"), *(gen(op) for op in range(2, 6)), gen(6, n=0))))
        b.send(Extend(1, tuple(gen(op, n=2) for op in range(7, 500))), Fork(1, 500, (2, 3)), Text_gen(2, "y", 2))
        assert (await b.failed(1, 499, 1)).cause_op == 6
        assert (await b.failed(1, 500)).cause_op == 6
        assert (await b.failed(2, 2)).code == "upstream"
        assert len([op for op in calls if op >= 0]) == 1
        b.world.hold = False
        b.send(*(Close(number) for number in (1, 2, 3)))
        await b.done(1, 5)
        for number in (1, 2, 3):
            await b.closed(number)
        b.clean()

    bench(tiny, body)


@pytest.mark.parametrize("n", [0, -1, 1000, 2**40, 2**62])
def test_an_absurd_n_is_refused_without_counting_to_it(tiny: tuple[Tokenizer, str], n: int) -> None:
    async def body(b: Bench) -> None:
        b.send(Open(1, 1), Extend(1, (Text(1, "x"), gen(2, n=n), gen(3, n=n))), Text_gen(77, "x", 1), Close(1))
        assert ((await b.failed(1, 2)).code, (await b.failed(1, 2)).field) == ("invalid_value", "n")
        assert (await b.failed(1, 3)).code == "upstream"
        await b.closed(1)
        b.send(Extend(1, (gen(4, n=n),)))  # nor for a strand that is gone
        assert (await b.failed(1, 4)).field == "strand"
        b.clean()

    bench(tiny, body)


def test_a_failure_before_others_leaves_them_alone(tiny: tuple[Tokenizer, str]) -> None:
    """An op refused at the edge does not take back the ops before it."""

    async def body(b: Bench) -> None:
        b.world.hold = True
        b.send(Open(1, 1), Text_gen(1, "x", 2), Extend(1, (VarRef(3, 2, 9), gen(4), gen(5, n=0))), Open(2, 1))
        assert (await b.failed(1, 5)).field == "n"

    bench(tiny, body)


# ---------------------------------------------------------------- constraints


def test_constraint_is_compiled_once_and_defined_once(tiny: tuple[Tokenizer, str]) -> None:
    async def body(b: Bench) -> None:
        b.send(Open(1, 1), Extend(1, (Text(1, "x"), gen(2, constraint=Regex("abc")), gen(3, constraint=Regex("abc")))))
        b.send(Close(1))
        assert (await b.done(1, 2)).text == "abc"
        await b.done(1, 3)
        await b.closed(1)
        assert len(b.world.sent(wire.Define)) == 1

    bench(tiny, body)


def test_what_nobody_waits_for_any_more_is_not_compiled(tiny: tuple[Tokenizer, str]) -> None:
    """Clients that hang up before a slow regex is compiled must not leave a queue of them to the others."""
    begun: list[str] = []
    ended: list[str] = []
    release = asyncio.Event()

    async def compile(kind: str, source: str, backend: str) -> bytes:
        begun.append(source)
        try:
            if source.startswith("slow"):
                await release.wait()
        finally:
            ended.append(source)
        return source.encode()

    async def body(b: Bench) -> None:
        def ask(strand: int, source: str) -> None:
            b.send(Open(strand, strand), Extend(strand, (Text(1, "x"), gen(2, constraint=Regex(source)))))

        for strand in (1, 2, 3):
            ask(strand, "slow, of one" if strand == 1 else "slow, of two")
        await asyncio.sleep(0)
        b.client.session.receive(Abort(strand=1))
        b.client.session.receive(Abort(strand=2))
        await b.closed(1)
        await b.closed(2)
        while ended != ["slow, of one"]:
            await asyncio.sleep(0)
        ask(4, "slow, of one")  # begun anew
        while begun != ["slow, of one", "slow, of two", "slow, of one"]:
            await asyncio.sleep(0)
        release.set()
        assert (await b.done(3, 2)).text and (await b.done(4, 2)).text
        ask(5, "slow, of a session")
        b.client.session.end("shutdown", "gone")
        assert not b.front.sids

    bench(tiny, body, compile=compile)


def test_bad_constraint_is_an_error_and_the_next_is_served(tiny: tuple[Tokenizer, str]) -> None:
    async def body(b: Bench) -> None:
        b.send(Open(1, 1), Extend(1, (Text(1, "x"), gen(2, constraint=Regex("bad(")))), Close(1))
        failed = await b.failed(1, 2)
        assert (failed.code, failed.field) == ("invalid_constraint", "regex") and "position 3" in failed.message
        b.send(Open(2, 1), Extend(2, (Text(1, "x"), gen(2, constraint=Regex("good")))))
        assert (await b.done(2, 2)).text == "good"

    bench(tiny, body)


def test_payloads_are_bounded_and_forgotten(tiny: tuple[Tokenizer, str]) -> None:
    async def body(b: Bench) -> None:
        for strand in range(1, 5):
            b.send(
                Open(strand, strand), Extend(strand, (Text(1, "x"), gen(2, constraint=Regex("p" * 6 + str(strand)))))
            )
            await b.done(strand, 2)
        await asyncio.sleep(0)
        assert len(b.world.core.payloads) <= 3
        assert b.world.sent(wire.Forget)
        b.send(Extend(1, (gen(3, constraint=Regex("p" * 6 + "1")),)))
        assert (await b.done(1, 3)).text == "pppppp1"

    bench(tiny, body, settings=Settings(payload_bytes=15))


# ---------------------------------------------------------------- n > 1


def test_n_choices(tiny: tuple[Tokenizer, str]) -> None:
    async def body(b: Bench) -> None:
        b.send(
            Open(1, 1, seed=7), Extend(1, (Text(1, "a prompt of tokens"), gen(2, n=3, temperature=1.0), Text(3, "!")))
        )
        b.send(Extend(1, (gen(4),)), Close(1))
        await b.closed(1)
        choices = [await b.done(1, 2, choice) for choice in range(3)]
        assert len({c.text for c in choices}) == 3
        assert len({c.seed for c in choices}) == 1
        prompt = len(tiny[0].encode("a prompt of tokens", special=True))
        assert [c.usage.prompt for c in choices] == [prompt, 0, 0]
        assert choices[0].usage.cached == 0  # the fork computed it, which is not a hit
        assert all(len(c.ids) == 8 for c in choices)
        b.clean()

    bench(tiny, body)


def test_one_choice_fails_alone(tiny: tuple[Tokenizer, str]) -> None:
    async def body(b: Bench) -> None:
        b.send(Open(1, 1), Extend(1, (Text(1, "x"), gen(2, n=3), gen(3))), Close(1))
        await b.closed(1)
        assert (await b.failed(1, 2, 1)).code == "internal"
        await b.done(1, 2, 0)
        await b.done(1, 2, 2)
        await b.done(1, 3)
        b.clean()

    bench(tiny, body, fail_op=lambda op: "oom" if getattr(op, "choice", 0) == 1 else None)


def test_core_failure_reaches_all_that_follows(tiny: tuple[Tokenizer, str]) -> None:
    async def body(b: Bench) -> None:
        ops = (Text(1, "x"), gen(2, n=2), gen(3, max_tokens=3), Text(4, "y"), gen(5))
        b.send(Open(1, 1), Extend(1, ops), Fork(1, 6, (2,)), Text_gen(2, "z", 2), Close(2), Close(1))
        await b.closed(1)
        await b.closed(2)
        await b.done(1, 2, 0)
        await b.done(1, 2, 1)
        assert (await b.failed(1, 3)).message == "oom"
        for strand, op in ((1, 5), (1, 6), (2, 2)):
            failed = await b.failed(strand, op)
            assert (failed.code, failed.cause_op) == ("upstream", 3)
        b.clean()

    def fail(op: wire.CoreOp) -> str | None:
        return "oom" if isinstance(op, wire.Sample) and op.params.max_tokens == 3 else None

    bench(tiny, body, fail_op=fail)


# ---------------------------------------------------------------- forks and joins


def test_children_are_extended_at_once(tiny: tuple[Tokenizer, str]) -> None:
    """Parent and children leave in one frame, while the parent's gen has not begun."""

    async def body(b: Bench) -> None:
        b.world.hold = True
        b.send(Open(1, 1), Text_gen(1, "x", 2), Fork(1, 3, (2, 3)), Text_gen(2, " a", 2), Text_gen(3, " b", 2))
        assert len(b.world.ops(wire.Sample)) == 3
        while b.world.core.step():
            pass
        one, two = await b.done(2, 2), await b.done(3, 2)
        assert one.ids != two.ids

    bench(tiny, body)


def test_join_waits_for_what_was_submitted(tiny: tuple[Tokenizer, str]) -> None:
    async def body(b: Bench) -> None:
        b.world.hold = True
        b.send(Open(1, 1), Extend(1, (Text(1, "x"),)), Fork(1, 2, (2, 3)), Text_gen(2, " a", 2), Text_gen(3, " b", 2))
        b.send(Fork(2, 3, (4,)), Text_gen(4, " c", 2, max_tokens=20), Join(2, 4, (4,)), Join(1, 3, (2, 3)))
        for _ in range(10):
            b.world.core.step()
        assert (3, 2, 0) in b.answers() and (1, 3, 0) not in b.answers()
        while b.world.core.step():
            pass
        await b.done(2, 4)
        await b.done(1, 3)

    bench(tiny, body)


def test_join_appends_what_children_added(tiny: tuple[Tokenizer, str]) -> None:
    async def body(b: Bench) -> None:
        b.send(Open(1, 1), Extend(1, (Text(1, "x"),)), Fork(1, 2, (2, 3)))
        b.send(Text_gen(2, " a", 2), Extend(2, (Text(3, "."),)), Text_gen(3, " b", 2), Close(3))
        b.send(Join(1, 3, (2, 3), append=True), Extend(1, (gen(4),)))
        join = await b.done(1, 3)
        two, three = await b.done(2, 2), await b.done(3, 2)
        encode = tiny[0].encode
        want = [
            *encode(" a", special=True),
            *two.ids,
            *encode(".", special=True),
            *encode(" b", special=True),
            *three.ids,
        ]
        assert list(join.ids) == want
        assert join.text == tiny[0].vocabulary.decode(want).decode("utf-8", "replace")
        gen_done = await b.done(1, 4)
        assert gen_done.usage.prompt == len(encode("x", special=True)) + len(want)

    bench(tiny, body)


def test_join_with_a_failed_child(tiny: tuple[Tokenizer, str]) -> None:
    async def body(b: Bench) -> None:
        b.send(Open(1, 1), Extend(1, (Text(1, "x"),)), Fork(1, 2, (2, 3)))
        b.send(Extend(2, (gen(1, n=0),)), Text_gen(3, " b", 2), Join(1, 3, (2, 3)), Extend(1, (gen(4),)))
        await b.done(1, 3)
        await b.done(1, 4)
        b.send(Join(1, 5, (2, 3), append=True), Extend(1, (gen(6),)))
        assert (await b.failed(1, 5)).code == "upstream"
        assert (await b.failed(1, 6)).cause_op == 5

    bench(tiny, body)


def test_closing_a_parent_keeps_its_children(tiny: tuple[Tokenizer, str]) -> None:
    async def body(b: Bench) -> None:
        b.send(Open(1, 1), Text_gen(1, "x", 2), Fork(1, 3, (2,)), Close(1))
        await b.closed(1)
        b.send(Text_gen(2, "y", 2), Close(2))
        await b.closed(2)
        first, second = await b.done(1, 2), await b.done(2, 2)
        assert second.usage.prompt == 1 + len(first.ids) + 1
        b.clean()

    bench(tiny, body)


def test_failed_parent_fails_children_not_born(tiny: tuple[Tokenizer, str]) -> None:
    async def body(b: Bench) -> None:
        b.send(Open(1, 1), Extend(1, (gen(1, n=0),)), Fork(1, 2, (2,)), Text_gen(2, "y", 2), Fork(2, 3, (3,)))
        b.send(Text_gen(3, "z", 2), Close(3), Close(2), Close(1))
        for strand in (1, 2, 3):
            await b.closed(strand)
        assert [(await b.failed(s, o)).cause_op for s, o in ((1, 2), (2, 2), (2, 3), (3, 2))] == [1, 1, 1, 1]
        b.clean()

    bench(tiny, body)


# ---------------------------------------------------------------- abort


def test_abort_ends_the_running_op_with_its_text(tiny: tuple[Tokenizer, str]) -> None:
    async def body(b: Bench) -> None:
        b.world.hold = True
        b.send(Open(1, 1), Text_gen(1, "x", 2, n=2), Extend(1, (Text(3, "y"), gen(4))), Fork(1, 5, (2,)))
        b.send(Text_gen(2, "z", 2), Close(2))
        for _ in range(4):
            b.world.core.step()
        b.client.session.receive(Abort(strand=1))
        for choice in (0, 1):
            done = await b.done(1, 2, choice)
            assert done.reason == "abort" and done.ids
            assert done.text == tiny[0].vocabulary.decode(done.ids).decode("utf-8", "replace")
        assert (await b.failed(1, 4)).code == "aborted"
        assert (await b.failed(1, 5)).code == "aborted"
        assert (await b.failed(2, 2)).code in ("upstream", "aborted")
        await b.closed(1)
        await b.closed(2)
        b.send(Close(1))  # a client that did not know yet
        assert b.client.events.count(Closed(1)) == 2
        b.clean()

    bench(tiny, body)


def test_abort_before_anything_started(tiny: tuple[Tokenizer, str]) -> None:
    async def body(b: Bench) -> None:
        b.world.hold = True
        b.send(Open(1, 1), Text_gen(1, "x", 2, n=3))
        b.client.session.receive(Abort(strand=1))
        for choice in range(3):
            assert (await b.failed(1, 2, choice)).code in ("aborted", "upstream")
        await b.closed(1)
        b.clean()

    bench(tiny, body)


def test_abort_of_a_parent_leaves_live_children(tiny: tuple[Tokenizer, str]) -> None:
    async def body(b: Bench) -> None:
        b.world.hold = True
        b.send(Open(1, 1), Extend(1, (Text(1, "x"),)), Fork(1, 2, (2,)), Extend(1, (gen(3),)), Text_gen(2, "y", 2))
        b.world.core.step()
        b.world.core.step()
        b.client.session.receive(Abort(strand=1))
        while b.world.core.step():
            pass
        assert (await b.done(1, 3)).reason == "abort"
        assert (await b.done(2, 2)).reason == "length"

    bench(tiny, body)


def test_abort_of_a_program_ends_all_of_it(tiny: tuple[Tokenizer, str]) -> None:
    async def body(b: Bench) -> None:
        b.world.hold = True
        b.send(Open(1, 1), Extend(1, (Text(1, "x"),)), Fork(1, 2, (2,)), Extend(1, (gen(3),)), Text_gen(2, "y", 2))
        b.send(Open(9, 2), Text_gen(9, "other", 2), Extend(2, (VarRef(4, 9, 5), gen(5))))
        b.world.core.step()
        b.client.session.receive(Abort(program=1))
        await b.closed(1)
        await b.closed(2)
        assert (await b.failed(2, 5)).code == "aborted"
        while b.world.core.step():
            pass
        await b.done(9, 2)
        b.send(Close(9))
        await b.closed(9)
        b.clean()

    bench(tiny, body)


def test_end_of_a_session_frees_everything(tiny: tuple[Tokenizer, str]) -> None:
    async def body(b: Bench) -> None:
        b.world.hold = True
        b.send(Open(1, 1), Text_gen(1, "x", 2, n=3), Fork(1, 3, (2,)), Text_gen(2, "y", 2))
        b.world.core.step()
        b.client.session.end("lease_expired", "no sign")
        assert b.client.messages[-1].code == "lease_expired"  # type: ignore[union-attr]
        b.clean()

    bench(tiny, body)


# ---------------------------------------------------------------- seeds, text, logprobs


def test_seeds_expand(tiny: tuple[Tokenizer, str]) -> None:
    async def body(b: Bench) -> None:
        for strand in (10, 20):
            b.send(
                Open(strand, strand, seed=42),
                Extend(strand, (Text(1, "x"), gen(2), gen(3, seed=5), Select(4, ("a", "b")))),
            )
            b.send(
                Fork(strand, 5, (strand + 1, strand + 2)), Text_gen(strand + 1, "y", 2), Text_gen(strand + 2, "y", 2)
            )
        keys = [(0, 2), (0, 3), (0, 4), (1, 2), (2, 2)]
        first = [(await b.done(10 + s, op)).seed for s, op in keys]
        again = [(await b.done(20 + s, op)).seed for s, op in keys]
        assert first == again
        assert first[1] == 5
        assert len(set(first)) == len(first)
        b.send(Open(30, 3), Text_gen(30, "x", 2), Open(31, 4), Text_gen(31, "x", 2))
        assert (await b.done(30, 2)).seed != (await b.done(31, 2)).seed
        sent = {op.params.seed for op in b.world.ops(wire.Sample)}  # type: ignore[attr-defined]
        assert set(first) - {first[2]} <= sent

    bench(tiny, body)


def spelled(tokenizer: Tokenizer, data: bytes) -> Callable[[list[int], int], int | None]:
    ids = [tokenizer.vocabulary.id_of[bytes([byte])] for byte in data]
    return lambda _, position: ids[position] if position < len(ids) else 2


@pytest.mark.parametrize("data", ["żółw 😀 你".encode(), b"ok\xff\xfe bad \xf0\x9f", "a😀".encode()[:-1], b""])
def test_stream_is_the_text(tiny: tuple[Tokenizer, str], data: bytes) -> None:
    async def body(b: Bench) -> None:
        b.send(Open(1, 1), Text_gen(1, "x", 2, stream=True, max_tokens=100))
        done = await b.done(1, 2)
        deltas = b.deltas(1, 2)
        assert done.text == data.decode("utf-8", "replace")
        assert "".join(d.text for d in deltas) == done.text
        assert all(d.text for d in deltas)
        shown = [i for d in deltas for i in d.ids]
        assert shown == list(done.ids[: len(shown)])
        if b"\xff" not in data and data.decode("utf-8", "ignore").encode() == data:
            assert not any("�" in d.text for d in deltas)
        assert (done.reason, done.matched) == ("stop", 2)

    bench(tiny, body, next_id=spelled(tiny[0], data))


def test_gens_that_do_not_stream_send_no_deltas(tiny: tuple[Tokenizer, str]) -> None:
    async def body(b: Bench) -> None:
        b.send(Open(1, 1), Text_gen(1, "x", 2))
        done = await b.done(1, 2)
        assert not b.deltas(1, 2) and done.text

    bench(tiny, body)


def test_stop_string_is_never_shown(tiny: tuple[Tokenizer, str]) -> None:
    async def body(b: Bench) -> None:
        b.send(Open(1, 1), Text_gen(1, "x", 2, stream=True, stop=("STOP",), max_tokens=100, logprobs=True))
        done = await b.done(1, 2)
        assert (done.text, done.reason, done.matched) == ("abc STO", "stop", "STOP")
        assert "".join(d.text for d in b.deltas(1, 2)) == done.text
        assert done.logprobs is not None and len(done.logprobs) == len(done.ids)

    bench(tiny, body, next_id=spelled(tiny[0], b"abc STOSTOP and more"))


def test_logprobs(tiny: tuple[Tokenizer, str]) -> None:
    async def body(b: Bench) -> None:
        b.send(Open(1, 1), Text_gen(1, "x", 2, stream=True, logprobs=True, top_logprobs=1))
        done = await b.done(1, 2)
        assert done.logprobs is not None and len(done.logprobs) == len(done.ids) == 8
        for token, item in zip(done.ids, done.logprobs):
            assert (item.id, item.data) == (token, tiny[0].token_bytes(token))
            assert item.token == item.data.decode("utf-8", "replace")
            assert item.logprob == -token / 100 and item.top[0].id == token
        shown = [lp for d in b.deltas(1, 2) for lp in d.logprobs]
        assert shown == list(done.logprobs[: len(shown)])

    bench(tiny, body)


def test_a_special_token_has_a_name_but_adds_no_text(tiny: tuple[Tokenizer, str]) -> None:
    name, special = next(iter(tiny[0].special_tokens.items()))

    async def body(b: Bench) -> None:
        b.send(Open(1, 1), Text_gen(1, "x", 2, logprobs=True, ignore_eos=True))
        done = await b.done(1, 2)
        assert done.logprobs is not None
        assert {(item.token, item.data) for item in done.logprobs} == {(name, b"")}
        assert done.text == ""

    bench(tiny, body, next_id=lambda *_: special)


def test_ignore_eos(tiny: tuple[Tokenizer, str]) -> None:
    async def body(b: Bench) -> None:
        b.send(Open(1, 1), Text_gen(1, "x", 2, ignore_eos=True), Open(2, 1), Text_gen(2, "x", 2, stop_token_ids=(9,)))
        await b.done(1, 2)
        await b.done(2, 2)
        assert [op.params.stop_ids for op in b.world.ops(wire.Sample)] == [(), (2, 9)]  # type: ignore[attr-defined]

    bench(tiny, body)


# ---------------------------------------------------------------- roles


def test_roles_need_a_template(tiny: tuple[Tokenizer, str]) -> None:
    async def body(b: Bench) -> None:
        b.send(Open(1, 1), Extend(1, (RoleBegin(1, "user"), Text(2, "x"), RoleEnd(3), gen(4))))
        failed = await b.failed(1, 1)
        assert (failed.code, failed.field) == ("invalid_request", "role")
        assert (await b.failed(1, 4)).cause_op == 1

    bench(tiny, body, template=None)


def test_roles_must_nest_properly(tiny: tuple[Tokenizer, str]) -> None:
    async def body(b: Bench) -> None:
        b.send(Open(1, 1), Extend(1, (RoleBegin(1, "user"), RoleBegin(2, "user"))))
        assert (await b.failed(1, 2)).field == "role"
        b.send(Open(2, 1), Extend(2, (RoleEnd(1),)))
        assert (await b.failed(2, 1)).field == "role"

    bench(tiny, body)
