"""Drafts: what they save, and that nothing else of a gen changes by them."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from core_kit import EOS, OTHER_EOS, Driver, FakeModel, greedy, hot, prompt, vocabulary
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.constrained.compiler import compile_spec, load
from plait.constrained.draft import Guess, Habits, draft
from plait.constrained.interface import Matcher
from plait.radix import RadixTree, SlotPool
from plait.runtime.core import drafting, speculation
from plait.runtime.core.budget import Budget, Purse
from plait.runtime.core.gen import Gen
from plait.runtime.core.sequence import Sequence
from plait.runtime.core.speculation import Speculation
from plait.runtime.protocol import Usage
from plait.runtime.wire import AbortStrand, Append, CloseStrand, Define, Ended, OpFailed, Sample, SampleParams

STOPS = (EOS, OTHER_EOS)
SPACE = ord(" ")
RECORD = r'\{"name": ?"[a-c]{1,4}", ?"age": ?[0-9]{1,3}, ?"height": ?[0-9]{1,3}, ?"ok": ?(true|false)\}'
VOCABULARY = vocabulary()


def spaced(likes: float, **how: Any) -> Driver:
    """``likes``: how much the model wants spaces."""
    return Driver(model=FakeModel(bias={SPACE: likes}), **how)


def run(driver: Driver, pattern: str, params: SampleParams, sids: int = 1) -> list[Ended]:
    driver.send(Define(pattern, compile_spec("regex", pattern)))
    for sid in range(1, sids + 1):
        driver.open(sid, Append(0, prompt(20, seed=sid)), Sample(1, params, constraint=pattern))
    driver.run()
    return [driver.ended(sid) for sid in range(1, sids + 1)]


def said(ended: Ended) -> object:
    """All of it but what it cost in passes and seconds, and what happened to be cached when it was admitted."""
    usage = ended.usage
    return (
        ended.reason,
        ended.ids,
        ended.matched,
        ended.partial,
        ended.logprobs,
        (usage.prompt, usage.sampled, usage.forced, usage.wrapped),
    )


# ---------------------------------------------------------------- what is drafted


def matcher(pattern: str, text: bytes) -> Matcher:
    found = load(compile_spec("regex", pattern), VOCABULARY, pattern).matcher()
    assert found.advance_bytes(text)
    return found


def test_the_next_key_is_drafted_behind_the_likelier_space() -> None:
    at = matcher(RECORD, b'{"name": "abc",')
    found = draft(at, VOCABULARY, Habits(), b",", 16)
    assert VOCABULARY.decode(found.ids) == b' "age":', "the space before the digits is followed by nothing certain"
    assert list(found.drawn) == [0] and found.open
    assert at.allows(b" ") and at.allows(b'"'), "the matcher was not moved"


def test_habits_decide_the_space() -> None:
    habits = Habits()
    wrong = draft(matcher(RECORD, b'{"name": "abc",'), VOCABULARY, habits, b",", 16)
    habits.learn(wrong.drawn[0], b'"', right=False)
    found = draft(matcher(RECORD, b'{"name": "abc", "age": 1,'), VOCABULARY, habits, b",", 16)
    assert VOCABULARY.decode(found.ids) == b'"height":'
    habits.learn(found.drawn[0], b" ", right=False)
    again = draft(matcher(RECORD, b'{"name": "abc", "age": 1,'), VOCABULARY, habits, b",", 16)
    assert VOCABULARY.decode(again.ids) == b' "height":'


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"[a-z, ]+", b"hello,"),  # a comma in prose
        (r"[a-z]+ ?[a-z]+!", b"hello"),  # a word
        (r"[ab]+", b""),
    ],
)
def test_nothing_is_drafted_where_anything_may_come(pattern: str, text: bytes) -> None:
    found = draft(matcher(pattern, text), VOCABULARY, Habits(), text[-1:], 16)
    assert found.ids == () and found.open


def test_a_draft_ends_with_the_text_and_at_its_limit() -> None:
    whole = draft(matcher(r"x, ?yes", b"x,"), VOCABULARY, Habits(), b",", 16)
    assert VOCABULARY.decode(whole.ids) == b" yes" and not whole.open, "nothing is drawn after the end"
    cut = draft(matcher(r"x, ?yes", b"x,"), VOCABULARY, Habits(), b",", 2)
    assert VOCABULARY.decode(cut.ids) == b" y" and not cut.open
    none = draft(matcher(r"x, ?yes", b"x,"), VOCABULARY, Habits(), b",", 0)
    assert none.ids == ()


def test_what_is_settled_comes_first() -> None:
    at = matcher(RECORD, b"")
    pending = VOCABULARY.encode(b'{"name":')
    found = draft(at, VOCABULARY, Habits(), b"", 16, settled=pending)
    assert VOCABULARY.decode(found.ids) == b'{"name": "'
    assert list(found.drawn) == [len(pending)]


class Strict:
    """A matcher that answers only where it was prepared."""

    def __init__(self, inner: Matcher, ready: bool = False) -> None:
        self._inner, self._ready = inner, ready

    def prepare(self, seconds: float | None = None) -> bool:
        self._ready = self._inner.prepare(seconds)
        return self._ready

    def forced(self) -> bytes:
        assert self._ready, "forced() of a place that was not prepared may take seconds"
        return self._inner.forced()

    def advance(self, token: int) -> bool:
        self._ready = False
        return self._inner.advance(token)

    def advance_bytes(self, data: bytes) -> bool:
        self._ready = False
        return self._inner.advance_bytes(data)

    def fork(self) -> Strict:
        return Strict(self._inner.fork(), self._ready)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.mark.parametrize("white", [b" ", b""])
def test_a_draft_asks_nothing_that_was_not_prepared(white: bytes) -> None:
    habits = Habits()
    habits.learn(Guess(b" yes", 0, b","), white + b"x", right=False)
    at: Any = Strict(matcher(r"x, ?yes, ?no", b"x,"))
    found = draft(at, VOCABULARY, habits, b",", 16, seconds=60.0)
    assert VOCABULARY.decode(found.ids) == white + b"yes," + white + b"no"


# ---------------------------------------------------------------- what it saves


@pytest.mark.parametrize(("likes", "saved", "right"), [(20.0, 4, 20), (-20.0, 2, 10)])
def test_fewer_passes_for_the_same_text(likes: float, saved: int, right: int) -> None:
    """One pass for a key and the space before it, not two; without spaces once that habit is known."""
    drivers = [spaced(likes), spaced(likes, draft_s=0.0)]
    (drafted,), (plain,) = [run(driver, RECORD, greedy(80, stop_ids=STOPS)) for driver in drivers]
    assert said(drafted) == said(plain) and not plain.partial
    stats, without = [driver.core.stats() for driver in drivers]
    assert stats.steps <= without.steps - saved
    assert (without.drafted_tokens, without.accepted_tokens) == (0, 0)
    assert stats.drafted_tokens >= stats.accepted_tokens > right
    assert drafted.usage.steps == stats.steps


def test_a_right_draft_computes_no_row_more() -> None:
    drivers = [spaced(20.0), spaced(20.0, draft_s=0.0)]
    for driver in drivers:
        run(driver, RECORD, greedy(80, stop_ids=STOPS))
    drafted, plain = [driver.model.computed for driver in drivers]
    stats = drivers[0].core.stats()
    assert drafted - plain == stats.drafted_tokens - stats.accepted_tokens


def test_logprobs_of_a_forced_run_come_in_one_pass() -> None:
    params = greedy(80, logprobs=True, top_logprobs=2, stop_ids=STOPS)
    drivers = [spaced(20.0), spaced(20.0, draft_s=0.0)]
    (drafted,), (plain,) = [run(driver, r"[xy]qrstuvwxyz[0-9]", params) for driver in drivers]
    assert said(drafted) == said(plain)
    assert len(plain.ids) == 12
    assert [driver.core.stats().steps for driver in drivers] == [2, 12]


@pytest.mark.parametrize(("worth", "most", "rows"), [(0.0, 99, 0), (100.0, 99, 6), (100.0, 5, 0), (1.0, 99, 0)])
def test_as_much_flies_as_saves_more_than_it_costs(worth: float, most: int, rows: int) -> None:
    """`, "age":` is one guess with what it forces: five rows of it save nothing, as nothing is drawn behind them."""
    seq = Sequence(RadixTree(SlotPool(64)), SlotPool(64))
    seq.append(prompt(5))
    ahead = Speculation(seq, VOCABULARY, scored=False)
    assert ahead.rows(100.0, 99) == 0, "nothing was proposed"
    ahead.propose(matcher(RECORD, b'{"name": "abc",'), b",", (), 99, 60.0)
    assert ahead.rows(worth, most) == rows
    for _ in range(20):  # wrong again and again
        seq.push(ord("x"))
        ahead.propose(matcher(RECORD, b'{"name": "abc",'), b",", (), 99, 60.0)
    assert ahead.rows(worth / 10, most) == 0


def test_a_draft_without_time_is_empty() -> None:
    at = matcher(r"\w{1,9}, ?(\w{2,7}|[é-ü]+)!", b"")  # nobody has asked for its masks
    assert not at.prepare(0.0)
    assert draft(at, VOCABULARY, Habits(), b"", 16, seconds=0.0).ids == ()


# ---------------------------------------------------------------- what must not change


class Moody(Budget):
    """Gives time or none, as it likes: gens are not ready in the middle of their drafts, or sit out a step."""

    def __init__(self, seed: int, often: float, draft: float) -> None:
        super().__init__((60.0, 60.0, draft), (60.0, 60.0, draft))
        self._random, self._often = Random(seed), often

    def slice(self, purse: Purse) -> float:
        return super().slice(purse) if self._random.random() < self._often else 0.0


@dataclass
class World:
    pattern: str
    params: SampleParams
    prompts: list[int]  # their seeds
    kv_tokens: int
    mixed_tokens: int
    likes: float
    often: float

    def tell(self, draft_s: float) -> list[object]:
        """What each gen said."""
        driver = spaced(self.likes, kv_tokens=self.kv_tokens, mixed_tokens=self.mixed_tokens, draft_s=draft_s)
        driver.core.state.budget = Moody(len(self.pattern), self.often, draft_s)
        driver.send(Define("c", compile_spec("regex", self.pattern)))
        for sid, seed in enumerate(self.prompts):
            params = msgspec.structs.replace(self.params, seed=sid)
            driver.open(sid, Append(0, prompt(20, seed=seed)), Sample(1, params, constraint="c"))
        driver.run()
        stats = driver.core.stats()
        assert stats.kv_free + stats.kv_cached == self.kv_tokens
        return [said(driver.ended(sid)) for sid in range(len(self.prompts))]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    words = st.sampled_from(["[a-c]{1,3}", "[0-9]+", '"name"', "the abc", "(true|false)", '"height": ?', "(, ?[ab])*"])
    joint = st.sampled_from([", ?", ": ?", ",", " ", '": ?"', r"\n{0,2}", "! *"])
    parts = draw(st.lists(st.tuples(words, joint), min_size=1, max_size=6))
    return World(
        pattern="".join(word + mark for word, mark in parts) + draw(words),
        params=hot(
            draw(st.integers(1, 50)),
            stop_ids=STOPS,
            stop=draw(st.sampled_from([(), (b", b",), (b"me",), (b"e ab",)])),
            logprobs=draw(st.booleans()),
            wrap_up=draw(st.booleans()),
            repetition_penalty=draw(st.sampled_from([1.0, 1.3])),
        ),
        prompts=draw(st.lists(st.integers(0, 2), min_size=1, max_size=5)),
        kv_tokens=draw(st.integers(75, 300)),
        mixed_tokens=draw(st.sampled_from([1, 3, 8, 40, 128])),
        likes=draw(st.sampled_from([-20.0, 0.0, 4.0, 20.0])),
        often=draw(st.sampled_from([1.0, 0.6, 0.2])),
    )


@settings(max_examples=150, deadline=None)
@given(worlds())
def test_a_draft_changes_nothing_but_the_number_of_passes(world: World) -> None:
    assert world.tell(60.0) == world.tell(0.0)


def test_a_replay_ends_as_it_would_have() -> None:
    (whole,) = run(spaced(4.0), RECORD, hot(80, stop_ids=STOPS))
    assert len(whole.ids) > 20 and not whole.partial
    for count in range(len(whole.ids)):
        driver = spaced(4.0)
        driver.send(Define("c", compile_spec("regex", RECORD)))
        sample = Sample(1, hot(80, stop_ids=STOPS), constraint="c", resume_ids=whole.ids[:count], resume_usage=Usage())
        driver.open(1, Append(0, prompt(20, seed=1)), sample)
        driver.run()
        assert driver.ended(1).ids == whole.ids


# ---------------------------------------------------------------- nobody waits for a draft


@pytest.mark.parametrize("logprobs", [False, True])
def test_a_newcomer_is_admitted_as_soon_as_without_drafts(logprobs: bool) -> None:
    long = r"([xy]" + "qrstuvwz" * 20 + r", ?){3}"
    steps = []
    for draft_s in (60.0, 0.0):
        driver = spaced(20.0, draft_s=draft_s, mixed_tokens=64, forward_rows=1e6, kv_tokens=20_000)
        driver.send(Define("c", compile_spec("regex", long)))
        for sid in range(1, 9):
            params = greedy(900, stop_ids=STOPS, logprobs=logprobs)
            driver.open(sid, Append(0, prompt(5, seed=sid)), Sample(1, params, constraint="c"))
        for _ in range(6):
            driver.step()
        driver.open(99, Append(0, prompt(300, seed=99)), Sample(1, greedy(1)))
        count = 0
        while not any(isinstance(event, Ended) for event in driver.of(99)):
            driver.step()
            count += 1
        steps.append(count)
    assert steps[0] <= steps[1]


def test_a_full_cache_does_not_end_drafts() -> None:
    drafted = []
    for others in (0, 40):
        driver = spaced(20.0, kv_tokens=2000)
        for sid in range(100, 100 + others):
            driver.open(sid, Append(0, prompt(60, seed=sid)), Sample(1, greedy(2)))
            driver.send(CloseStrand(sid))
            driver.run()
        run(driver, RECORD, greedy(80, stop_ids=STOPS))
        drafted.append(driver.core.stats().drafted_tokens)
    assert drafted[0] == drafted[1] > 0


@pytest.mark.parametrize("limits", [{"mixed_tokens": 20}, {"score_rows": 12}])
def test_drafts_keep_to_the_limits_of_a_step(limits: dict[str, int]) -> None:
    driver = spaced(20.0, forward_rows=1e6, **limits)
    results = run(driver, RECORD, greedy(80, logprobs=True, stop_ids=STOPS), 8)
    assert all(ended.reason == "stop" for ended in results)
    decoding = driver.model.rows[1:]
    assert 12 < max(decoding) <= 20, "eight rows of their own, and the drafts of some"


def test_siblings_that_become_ready_together_share_no_slot() -> None:
    """They have the same ids, and the first puts them into the tree while the second is about to."""
    for draft_s in (60.0, 0.0):
        driver = spaced(20.0, draft_s=draft_s)
        driver.send(Define("c", compile_spec("regex", RECORD)))
        ready, driver.core.state.budget = driver.core.state.budget, Budget((0.0, 0.0, 0.0), (0.0, 0.0, 0.0))
        for sid in (1, 2, 3):
            sample = Sample(1, greedy(80, stop_ids=STOPS), constraint="c")
            driver.open(sid, Append(0, prompt(20)), sample)
        driver.step()
        driver.step()
        driver.core.state.budget = ready
        driver.run()
        assert len({driver.ended(sid).ids for sid in (1, 2, 3)}) == 1


# ---------------------------------------------------------------- when something goes wrong on the way


def test_rows_that_are_not_numbers_fail_the_gen_and_free_its_slots() -> None:
    driver = spaced(20.0)
    driver.model.nan_when = lambda ids: bytes(token for token in ids if token < 256).endswith(b"e")
    driver.send(Define("c", compile_spec("regex", r"[xy], ?yes[ab], ?no[ab]")))
    driver.open(1, Append(0, (65,)), Sample(1, greedy(30, stop_ids=STOPS), constraint="c"))
    driver.open(2, Append(0, prompt(9)), Sample(1, greedy(5)))
    driver.run()
    assert not [event for event in driver.of(1) if isinstance(event, OpFailed)], (
        "those of a forced id are not looked at"
    )
    assert driver.core.stats().drafted_tokens > 0
    driver.model.nan_when = lambda ids: bytes(token for token in ids if token < 256).endswith(b"s")
    driver.open(3, Append(0, (66,)), Sample(1, greedy(30, stop_ids=STOPS), constraint="c"))
    driver.run()
    failed = [event for event in driver.of(3) if isinstance(event, OpFailed)]
    assert len(failed) == 1 and "NaN" in failed[0].message
    assert driver.core.stats().kv_free + driver.core.stats().kv_cached == 4096


def test_a_forward_that_raises_frees_a_drafts_slots() -> None:
    driver = spaced(20.0)
    driver.model.break_when = lambda batch: len(batch.ids) > 4 and len(driver.model.rows) > 2
    driver.send(Define("c", compile_spec("regex", RECORD)))
    driver.open(1, Append(0, (65,)), Sample(1, greedy(80, stop_ids=STOPS), constraint="c"))
    driver.run()
    assert [type(event) for event in driver.of(1)][-1] is OpFailed
    driver.check()
    assert driver.core.stats().kv_free + driver.core.stats().kv_cached == 4096


def test_no_one_is_retracted_for_a_draft() -> None:
    """Two gens fill the pool to the last slot; their drafts must do without."""
    total = 0
    for kv_tokens in range(90, 130):
        retractions = []
        for draft_s in (60.0, 0.0):
            driver = spaced(20.0, kv_tokens=kv_tokens, draft_s=draft_s, reserve_share=0.0)
            run(driver, RECORD, greedy(60, stop_ids=STOPS), 2)
            retractions.append(driver.core.stats().retractions)
        assert retractions[0] <= retractions[1]
        total += retractions[1]
    assert total, "some of these pools are too small"


def test_a_fault_of_a_guess_fails_nobody(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError("on purpose")

    monkeypatch.setattr(speculation, "draft", broken)
    driver = spaced(20.0)
    (drafted,) = run(driver, RECORD, greedy(80, stop_ids=STOPS))
    (plain,) = run(spaced(20.0, draft_s=0.0), RECORD, greedy(80, stop_ids=STOPS))
    assert said(drafted) == said(plain)
    assert "on purpose" in caplog.text


def test_a_gen_whose_drafts_are_late_gets_no_more() -> None:
    seq = Sequence(RadixTree(SlotPool(64)), SlotPool(64))
    ahead = Speculation(seq, VOCABULARY, scored=False)
    for late in (True, True, False, True, True):
        ahead.timed(late=late)
        assert not ahead.off, "now and then is no reason"
    ahead.timed(late=True)
    assert ahead.off


@pytest.mark.parametrize(("share", "off"), [(True, True), (False, False)])
def test_late_is_who_had_all_it_may_have(monkeypatch: pytest.MonkeyPatch, share: bool, off: bool) -> None:
    """A gen that got what others had left of a step's time is not at fault."""
    driver = spaced(20.0, draft_s=2.0)
    now = iter(range(10**6))
    monkeypatch.setattr(drafting, "time", SimpleNamespace(monotonic=lambda: float(next(now))))  # each draft takes 1 s
    if not share:
        driver.core.state.budget.slice = lambda purse: 0.9  # type: ignore[method-assign]
    seen: list[bool] = []
    driver.send(Define("c", compile_spec("regex", RECORD)))
    driver.open(1, Append(0, prompt(20)), Sample(1, greedy(80, stop_ids=STOPS), constraint="c"))
    for _ in range(6):
        driver.step()
        gen = driver.core.state.strands[1].current
        assert isinstance(gen, Gen)
        seen.append(gen.ahead.off)
    assert seen[-1] is off and not seen[0]


def test_logits_after_the_end_of_the_text_are_not_computed() -> None:
    """Though every forced id wants its logprob."""
    params = greedy(80, logprobs=True, stop_ids=STOPS)
    drivers = [spaced(20.0), spaced(20.0, draft_s=0.0)]
    for driver in drivers:
        run(driver, "[xy]qrst", params)
    assert [driver.model.computed for driver in drivers] == [24, 24]


def test_an_abort_between_two_steps_finds_no_draft_in_flight() -> None:
    for steps in range(1, 14):
        driver = spaced(20.0)
        driver.send(Define("c", compile_spec("regex", RECORD)))
        driver.open(1, Append(0, prompt(20)), Sample(1, greedy(80, stop_ids=STOPS), constraint="c"))
        for _ in range(steps):
            driver.step()
        driver.send(AbortStrand(1))
        driver.run()
        ended = driver.ended(1)
        assert ended.reason in ("abort", "stop")
        assert driver.core.stats().kv_free + driver.core.stats().kv_cached == 4096
