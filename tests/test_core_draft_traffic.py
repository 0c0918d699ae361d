"""Drafts among other traffic: forks, scores, small pools, faults and replays leave every text as it is without them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from core_kit import EOS, OTHER_EOS, Driver, FakeModel, greedy, hot, prompt
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plait.constrained.compiler import compile_spec
from plait.runtime.core import drafting
from plait.runtime.core.gen import Gen
from plait.runtime.models.interface import ForwardBatch
from plait.runtime.protocol import Usage
from plait.runtime.wire import (
    AbortStrand,
    Append,
    CloseStrand,
    Define,
    Ended,
    ForkAt,
    OpFailed,
    Sample,
    SampleParams,
    Score,
    Started,
    Tokens,
)

STOPS = (EOS, OTHER_EOS)
SPACE = ord(" ")
RECORD = r'\{"name": ?"[a-c]{1,4}", ?"age": ?[0-9]{1,3}, ?"height": ?[0-9]{1,3}, ?"ok": ?(true|false)\}'
PATTERNS = (
    RECORD,
    r"[xy]qrstuv, ?the abc[0-9], ?(, ?[ab])*end",
    r'the": ?"name(, ?[ab]){2,9}!',
    r"[a-c]{1,3}(; ?|, ?)yes[ab], ?no",
    r"[xy]qrst",
)
COMPILED = {pattern: compile_spec("regex", pattern) for pattern in PATTERNS}
CHOICES = ((65, 66, 67), (65, 66), (80,))
LIKES = (-20.0, 0.0, 4.0, 20.0)


def driver_of(likes: float = 20.0, context: int = 4096, **how: Any) -> Driver:
    """``likes``: how much the model wants spaces."""
    driver = Driver(model=FakeModel(context, bias={SPACE: likes}), **how)
    driver.send(*(Define(pattern, payload) for pattern, payload in COMPILED.items()))
    return driver


def said(driver: Driver, sid: int) -> object:
    """All that a gen told, but what it cost in passes and seconds, and what was cached for it."""
    ended, frames = driver.ended(sid), [event for event in driver.of(sid, 1) if isinstance(event, Tokens)]
    usage = ended.usage
    return (
        (ended.reason, ended.ids, ended.tail, ended.matched, ended.partial, ended.logprobs),
        (usage.prompt, usage.sampled, usage.forced, usage.wrapped),
        driver.text(sid),
        driver.sent_ids(sid),
        [entry for event in frames for entry in event.logprobs],
    )


def played(pattern: str | None, params: SampleParams, ids: tuple[int, ...] = prompt(20), **how: Any) -> Driver:
    driver = driver_of(**how)
    driver.open(1, Append(0, ids), Sample(1, params, constraint=pattern))
    driver.run()
    return driver


def late(patch: pytest.MonkeyPatch) -> None:
    """Two of three looks of a gen for what its constraint allows are in vain: a step goes by without it."""
    prepare, calls = Gen.prepare, 0

    def sometimes(self: Gen, seconds: float | None = None) -> bool:
        nonlocal calls
        calls += 1
        return prepare(self, seconds) if calls % 3 == 0 or seconds is None else self.ready

    patch.setattr(Gen, "prepare", sometimes)


@st.composite
def gens(draw: st.DrawFn) -> SampleParams:
    logprobs = draw(st.booleans())
    return hot(
        draw(st.sampled_from((1, 2, 3, 5, 9, 17, 40))),
        seed=draw(st.integers(0, 3)),
        temperature=draw(st.sampled_from((0.0, 1.0))),
        stop_ids=STOPS,
        stop=draw(st.sampled_from(((), (b",",), (b"am",), (b"st", b"hei"), (b"e ab",)))),
        stop_regex=draw(st.sampled_from(((), ("[ ,]t",)))),
        logprobs=logprobs,
        top_logprobs=2 * logprobs,
        wrap_up=draw(st.booleans()),
        frequency_penalty=draw(st.sampled_from((0.0, 0.5))),
    )


# ---------------------------------------------------------------- among others


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_every_text_is_as_it_is_alone_and_without_drafts(data: st.DataObject) -> None:
    draw = data.draw
    likes, context = draw(st.sampled_from(LIKES)), draw(st.sampled_from((60, 4096)))
    kv_tokens = draw(st.sampled_from((90, 200, 4096)))
    driver = driver_of(
        likes,
        context,
        kv_tokens=kv_tokens,
        mixed_tokens=draw(st.sampled_from((1, 3, 8, 128))),
        step_tokens=draw(st.sampled_from((5, 40, 512))),
        max_running=draw(st.sampled_from((1, 3, 256))),
        reserve_share=draw(st.sampled_from((0.0, 0.5, 1.0))),
        forward_rows=draw(st.sampled_from((0.5, 8.0, 100.0))),
    )
    jobs: dict[int, tuple[tuple[int, ...], SampleParams, str | None]] = {}
    disturbed: set[int] = set()
    for sid in range(1, draw(st.integers(2, 7)) + 1):
        ids = prompt(draw(st.sampled_from((1, 20, 45))), draw(st.integers(0, 1)))
        jobs[sid] = ids, draw(gens()), draw(st.sampled_from((*PATTERNS, None)))
        driver.open(
            sid, Append(0, ids), Sample(1, jobs[sid][1], constraint=jobs[sid][2]), priority=draw(st.integers(0, 1))
        )
        then = draw(st.sampled_from((None, "fork", "score")))
        if then == "fork":
            driver.extend(sid, ForkAt(2, (100 + sid, 200 + sid)))
            for child in (100 + sid, 200 + sid):
                driver.extend(child, Append(3, (65,)), Sample(4, greedy(9, stop_ids=STOPS), constraint=RECORD))
        elif then == "score":
            driver.extend(sid, Score(2, CHOICES, "unconditional_likelihood_normalized", 0.0, 1, (7,)))
        for _ in range(draw(st.integers(0, 4))):
            move = draw(st.sampled_from(("step", "step", "retract", "evict", "abort", "close")))
            live = [sid for sid in jobs if sid in driver.core.state.strands]
            if move == "retract" and driver.core.state.running:
                driver.core.state.retract(draw(st.sampled_from(driver.core.state.running)))
            elif move == "evict":
                driver.core.state.tree.evict(draw(st.integers(1, 100)))
            elif move in ("abort", "close") and live:
                gone = draw(st.sampled_from(live))
                disturbed.add(gone)
                driver.send(AbortStrand(gone) if move == "abort" else CloseStrand(gone))
            driver.check()
            driver.step()
    driver.run()
    for sid, (ids, params, pattern) in jobs.items():
        failed = [event for event in driver.of(sid, 1) if isinstance(event, OpFailed)]
        if failed:
            assert failed[0].code in ("kv_exhausted", "aborted")
            continue
        alone = played(pattern, params, ids, likes=likes, context=context, draft_s=0.0)
        ends = [event for event in driver.of(sid, 1) if isinstance(event, Ended)]
        if ends and ends[0].reason != "abort":
            assert said(driver, sid) == said(alone, 1)
        else:
            sent = driver.sent_ids(sid)
            assert sid in disturbed and sent == alone.sent_ids(1)[: len(sent)]
    for sid in list(driver.core.state.strands):
        driver.send(AbortStrand(sid))
        driver.check()
    assert driver.core.state.tree.cached + driver.core.state.pool.free == kv_tokens
    assert driver.core.state.tree.locked == 0


# ---------------------------------------------------------------- where a draft ends early


@pytest.mark.parametrize("logprobs", [False, True])
def test_no_row_is_computed_that_no_text_could_need(logprobs: bool) -> None:
    """Whatever max_tokens cuts: the last token's row is never computed, and none beyond the context."""
    for most in range(1, 40, 2):
        for context in (4096, 20 + most):
            told: list[object] = []
            for draft_s in (60.0, 0.0):
                seen: list[int] = []
                driver = driver_of(context=context, draft_s=draft_s)
                driver.model.break_when = lambda batch, seen=seen: bool(seen.append(int(batch.positions.max())))  # type: ignore[misc]  # never broken
                params = greedy(most if context == 4096 else 99, stop_ids=STOPS, logprobs=logprobs)
                driver.open(1, Append(0, prompt(20)), Sample(1, params, constraint=RECORD))
                driver.run()
                told.append(said(driver, 1))
                assert max(seen, default=0) < max(20, 20 + most - 1)
            assert told[0] == told[1]


@pytest.mark.parametrize("logprobs", [False, True])
def test_a_constraint_that_finds_out_late_ends_a_draft_and_loses_nothing(
    logprobs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of a draft as well."""
    for wrap_up in (False, True):
        params = greedy(80, stop_ids=STOPS, logprobs=logprobs, wrap_up=wrap_up)
        for pattern in PATTERNS:
            for likes in (-20.0, 20.0):
                plain = played(pattern, params, likes=likes, draft_s=0.0)
                with monkeypatch.context() as patch:
                    late(patch)
                    drafted = played(pattern, params, likes=likes)
                assert said(drafted, 1) == said(plain, 1)


def test_a_gen_that_got_no_time_for_its_draft_goes_on_without(monkeypatch: pytest.MonkeyPatch) -> None:
    propose, calls = Gen.propose, 0

    def sometimes(self: Gen, seconds: float) -> None:
        nonlocal calls
        calls += 1
        if calls % 3 == 0:
            propose(self, seconds)

    params = greedy(80, stop_ids=STOPS)
    plain = played(RECORD, params, draft_s=0.0)
    monkeypatch.setattr(Gen, "propose", sometimes)
    drafted = played(RECORD, params)
    assert said(drafted, 1) == said(plain, 1)
    assert drafted.core.stats().drafted_tokens > 0


# ---------------------------------------------------------------- what a draft may take


def test_a_gen_alone_does_without_a_draft_that_does_not_fit() -> None:
    """Its text needs just as many slots as there are; the draft, which is wrong, would need more."""
    pattern = r"x, ?yes[ab]"
    for kv_tokens in range(25, 30):
        driver = Driver(kv_tokens, model=FakeModel(bias={SPACE: -20.0}))
        driver.send(Define("c", compile_spec("regex", pattern)))
        driver.open(1, Append(0, prompt(20)), Sample(1, greedy(30, stop_ids=STOPS), constraint="c"))
        driver.run()
        assert driver.ended(1).reason == "stop"
        assert driver.text(1)[:-1] == b"x,yes"
        assert (driver.core.stats().drafted_tokens > 0) == (kv_tokens > 25)


@pytest.mark.parametrize(("gens", "mixed_tokens"), [(8, 16), (20, 64)])
def test_a_newcomer_waits_no_longer_for_those_who_draft(gens: int, mixed_tokens: int) -> None:
    """Long forced runs with logprobs are drafts that cannot be wrong: they take what rows a step has left, no more."""
    waited: list[int] = []
    for draft_s in (60.0, 0.0):
        driver = driver_of(mixed_tokens=mixed_tokens, draft_s=draft_s)
        driver.send(Define("c", compile_spec("regex", "([xy]" + "abcdefghijklmnopqrst" * 3 + ")+")))
        for sid in range(1, gens + 1):
            params = greedy(40, stop_ids=STOPS, logprobs=True)
            driver.open(sid, Append(0, prompt(10, sid)), Sample(1, params, constraint="c"))
        driver.step()
        before = len(driver.model.rows)
        driver.open(99, Append(0, prompt(20, 99)), Sample(1, greedy(3)))
        while not [event for event in driver.of(99) if isinstance(event, Tokens)]:
            driver.step()
        waited.append(len(driver.model.rows) - before)
        driver.run()
        assert max(driver.model.rows[before:]) <= mixed_tokens
        assert (driver.core.stats().accepted_tokens > 0) == (draft_s > 0.0)
    assert waited[0] == waited[1]


def test_a_draft_that_costs_more_than_it_saves_is_not_computed() -> None:
    params = greedy(80, stop_ids=STOPS)
    assert played(RECORD, params, forward_rows=0.1).core.stats().drafted_tokens == 0
    assert played(RECORD, params, forward_rows=8.0).core.stats().drafted_tokens > 0


def test_the_rows_computed_in_vain_are_those_counted() -> None:
    for likes in LIKES:
        for pattern in PATTERNS:
            drafted, plain = (
                played(pattern, hot(60, seed=3, stop_ids=STOPS), likes=likes, draft_s=draft_s)
                for draft_s in (60.0, 0.0)
            )
            stats = drafted.core.stats()
            assert drafted.model.computed - plain.model.computed == stats.drafted_tokens - stats.accepted_tokens
            assert stats.recomputed_tokens == 0


def test_drafts_take_no_more_time_than_a_step_has_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that gains a second whenever it is asked: of eight gens three draft, then it is 3 s after 2.5."""
    now = 0.0
    given: list[float] = []

    class Watch:
        @staticmethod
        def monotonic() -> float:
            nonlocal now
            now += 1.0
            return now

    monkeypatch.setattr(drafting, "time", Watch)
    monkeypatch.setattr(Gen, "propose", lambda self, seconds: given.append(seconds))
    driver = driver_of(draft_s=2.5)
    for sid in range(1, 9):
        driver.open(sid, Append(0, prompt(5, sid)), Sample(1, greedy(9, stop_ids=STOPS), constraint=RECORD))
    driver.step()
    assert given == [1.25, 1.25, 0.5], "half of it at most, and no more than is left"


# ---------------------------------------------------------------- faults


@pytest.mark.parametrize("logprobs", [False, True])
def test_rows_that_are_not_numbers_anywhere_in_a_draft(logprobs: bool) -> None:
    """A gen fails where it fails without drafts; who shares its prompt never notices."""
    params = greedy(80, stop_ids=STOPS, logprobs=logprobs)
    start = prompt(20)
    whole = played(RECORD, params)
    for upto in range(0, len(whole.ended(1).ids), 2):
        bad = [*start, *whole.ended(1).ids[:upto]]
        told: list[object] = []
        for draft_s in (60.0, 0.0):
            driver = driver_of(draft_s=draft_s)
            driver.model.nan_when = lambda ids, bad=bad: ids == bad  # type: ignore[misc]  # a default for the loop
            driver.open(1, Append(0, start), Sample(1, params, constraint=RECORD))
            driver.open(2, Append(0, (*start, 65)), Sample(1, params, constraint=RECORD))
            driver.open(3, Append(0, start), Append(1, (66, 67)), Score(2, CHOICES, "token_length_normalized", 0.0, 1))
            driver.run()
            failed = [event for event in driver.of(1) if isinstance(event, OpFailed)]
            assert all("NaN" in event.message or "number" in event.message for event in failed)
            told.append((len(failed), None if failed else repr(said(driver, 1)), said(driver, 2)))
            sent = driver.sent_ids(1)
            assert not failed or sent == list(whole.ended(1).ids[: len(sent)])
            assert driver.core.stats().kv_free + driver.core.stats().kv_cached == 4096
        assert told[0] == told[1]


def test_nothing_is_told_of_what_was_drawn_on_wrong_kv() -> None:
    """The first computes the prompt of both, and its row is no number: the second, whose draft flew with it, begins
    again."""
    driver = driver_of()
    driver.model.nan_when = lambda ids: ids == list(prompt(20))
    params = greedy(30, stop_ids=STOPS, logprobs=True)
    driver.open(1, Append(0, prompt(20)), Sample(1, params, constraint=PATTERNS[1]))
    driver.open(2, Append(0, (*prompt(20), 65)), Sample(1, params, constraint=PATTERNS[2]))
    driver.step()
    assert driver.model.rows[0] > 30, "drafts flew"
    assert not [event for event in driver.of(2) if isinstance(event, Tokens)]
    driver.run()
    alone = played(PATTERNS[2], params, (*prompt(20), 65), draft_s=0.0)
    assert driver.ended(2).ids == alone.ended(1).ids and driver.text(2) == alone.text(1)
    assert driver.ended(2).usage.recomputed == 20 + 1


def test_a_wrong_row_of_a_draft_does_not_condemn_the_prompt_before_it() -> None:
    """The prompt of both was put into the tree for this forward, and its last row was sound."""
    driver = driver_of()
    params = greedy(30, stop_ids=STOPS, logprobs=True)
    written = played(PATTERNS[2], params, draft_s=0.0).ended(1).logprobs
    assert written is not None
    drawn = next(index for index, entry in enumerate(written) if not entry.forced)
    bad = [*prompt(20), *(entry.id for entry in written[:drawn])]
    driver.model.nan_when = lambda ids: ids == bad
    driver.open(1, Append(0, prompt(20)), Sample(1, params, constraint=PATTERNS[2]))
    driver.open(2, Append(0, (*prompt(20), 65)), Sample(1, params, constraint=PATTERNS[2]))
    driver.step()
    assert drawn > 0 and isinstance(driver.of(1)[-1], OpFailed), "it failed in a later row of the first forward"
    driver.run()
    usage = driver.ended(2).usage
    assert (usage.cached, usage.recomputed) == (19, 0) and driver.core.stats().retractions == 0


def test_a_forward_that_raises_at_any_time_frees_what_flew() -> None:
    params = greedy(80, stop_ids=STOPS, logprobs=True)
    for at in range(1, 12):
        driver = driver_of()

        def breaks(batch: ForwardBatch, driver: Driver = driver, at: int = at) -> bool:
            return len(driver.model.rows) == at

        driver.model.break_when = breaks
        for sid in (1, 2):
            driver.open(sid, Append(0, prompt(20)), Sample(1, params, constraint=RECORD))
        driver.run()
        assert all(isinstance(driver.of(sid)[-1], OpFailed) for sid in (1, 2))
        driver.open(3, Append(0, prompt(20)), Sample(1, params, constraint=RECORD))
        driver.run()
        assert said(driver, 3) == said(played(RECORD, params, draft_s=0.0), 1)
        assert driver.core.stats().kv_free + driver.core.stats().kv_cached == 4096


# ---------------------------------------------------------------- replay


@pytest.mark.parametrize("logprobs", [False, True])
@pytest.mark.parametrize("likes", [-20.0, 20.0])
def test_replay_from_every_place_of_a_draft(likes: float, logprobs: bool) -> None:
    for pattern in PATTERNS[:2]:
        params = hot(60, seed=2, stop=(b"]", b'st"'), stop_ids=STOPS, logprobs=logprobs, frequency_penalty=0.3)
        plain = played(pattern, params, likes=likes, draft_s=0.0)
        (started,) = (event for event in plain.of(1) if isinstance(event, Started))
        sent, old = plain.sent_ids(1), plain.ended(1)
        for cut in range(len(sent) + 1):
            again = driver_of(likes)
            resume = Sample(
                1, params, constraint=pattern, resume_ids=tuple(sent[:cut]), resume_usage=Usage(*_prompt(started.usage))
            )
            again.open(1, Append(0, prompt(20)), resume)
            again.run()
            new = again.ended(1)
            assert [*sent[:cut], *again.sent_ids(1)] == sent
            assert (new.ids, new.reason, new.matched, new.partial) == (old.ids, old.reason, old.matched, old.partial)
            assert (new.usage.sampled, new.usage.forced) == (old.usage.sampled, old.usage.forced)


def _prompt(usage: Usage) -> tuple[int, int]:
    return usage.prompt, usage.cached


@pytest.mark.parametrize("slow", [False, True])
def test_a_retraction_at_any_time_changes_nothing(slow: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a gen, too, that does not know yet what comes next, and computes again all but its last row."""
    params = greedy(80, stop_ids=STOPS, logprobs=True)
    plain = played(RECORD, params, draft_s=0.0)
    if slow:
        late(monkeypatch)
    rng = np.random.default_rng(0)
    for _ in range(8):
        driver = driver_of()
        driver.open(1, Append(0, prompt(20)), Sample(1, params, constraint=RECORD))
        while not driver.core.idle:
            driver.step()
            if driver.core.state.running and rng.random() < 0.5:
                driver.core.state.retract(driver.core.state.running[0], keep=bool(rng.random() < 0.5))
                driver.check()
        assert said(driver, 1) == said(plain, 1)
