"""Constraints that take long to find out what they allow: their row sits out, nobody else waits, nothing changes."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
import torch
from core_kit import EOS, OTHER_EOS, Driver, FakeModel, greedy, hot, prompt

from plait.constrained.compiler import compile_spec
from plait.constrained.interface import Constraint, ConstraintError, Matcher
from plait.runtime.core.gen import Gen
from plait.runtime.models.interface import ForwardBatch
from plait.runtime.protocol import Usage
from plait.runtime.wire import AbortStrand, Append, CloseStrand, Define, Ended, OpFailed, Sample, SampleParams, Tokens

STOPS = (EOS, OTHER_EOS)
PATTERN = r'\{"name": "[a-z]{2,9}", "age": [0-9]{1,3}\}'


class Slow:
    """A matcher that needs ``calls`` calls of prepare at each new place. ``spend``: seconds each of them takes."""

    def __init__(self, inner: Matcher, world: SlowConstraint) -> None:
        self.inner = inner
        self.world = world
        self.left = world.calls

    def prepare(self, seconds: float | None = None) -> bool:
        if self.world.fault:
            raise ConstraintError("more than 3 positions: make it simpler")
        if seconds is None:
            self.left = 0
        if self.left:
            self.left -= 1
            self.world.looked += 1
            time.sleep(self.world.spend)
            return False
        return self.inner.prepare(seconds)

    def advance(self, token: int) -> bool:
        self.left = self.world.calls
        return self.inner.advance(token)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class SlowConstraint:
    def __init__(self, inner: Constraint, calls: int, spend: float = 0.0) -> None:
        self.inner = inner
        self.calls = calls
        self.spend = spend
        self.fault = False
        self.looked = 0
        self.key = inner.key
        self.nbytes = 0

    def matcher(self) -> Slow:
        return Slow(self.inner.matcher(), self)


def slow(driver: Driver, key: str, pattern: str, calls: int, spend: float = 0.0) -> SlowConstraint:
    """Define ``pattern`` as a constraint that is slow to prepare."""
    driver.send(Define(key, compile_spec("regex", pattern)))
    defined = driver.core.state.constraints[key]
    assert defined.prepare() and defined.built is not None
    made = SlowConstraint(defined.built, calls, spend)
    defined.built = made  # type: ignore[assignment]  # as far as the core looks
    return made


def outcome(calls: int, params: SampleParams, pattern: str = PATTERN, n: int = 20, **how: Any) -> tuple[Ended, bytes]:
    driver = Driver()
    if calls:
        slow(driver, "k", pattern, calls)
    else:
        driver.send(Define("k", compile_spec("regex", pattern)))
    driver.open(
        1, Append(0, prompt(n)), Sample(1, params, constraint="k", **how), Append(2, (65,)), Sample(3, greedy(2))
    )
    driver.run()
    assert not driver.core.state.unready
    return driver.ended(1), driver.text(1)


@pytest.mark.parametrize("n", [1, 2, 20])
@pytest.mark.parametrize("calls", [1, 3])
@pytest.mark.parametrize("seed", [1, 2])
def test_slow_answers_change_nothing_but_time(calls: int, seed: int, n: int) -> None:
    quick, text = outcome(0, hot(60, seed=seed, stop_ids=STOPS), n=n)
    late, same = outcome(calls, hot(60, seed=seed, stop_ids=STOPS), n=n)
    assert same == text and re.fullmatch(PATTERN.encode(), text)
    assert (late.ids, late.reason, late.usage.sampled, late.usage.forced) == (
        quick.ids,
        quick.reason,
        quick.usage.sampled,
        quick.usage.forced,
    )
    assert late.usage.prompt == quick.usage.prompt


@pytest.mark.parametrize("calls", [0, 2])
def test_a_wholly_forced_text_is_not_sampled_however_slow(calls: int) -> None:
    ended, text = outcome(calls, greedy(60, stop_ids=STOPS), "the abc")
    assert text == b"the abc" and ended.usage.sampled == 0
    assert ended.usage.steps == (1 if calls else 0), "only its prompt was computed meanwhile"
    assert ended.usage.prompt == 20 and ended.usage.forced == len(ended.ids)


def test_the_other_rows_go_on_meanwhile() -> None:
    driver = Driver()
    never = slow(driver, "k", "[ab]+x", 10**9)
    driver.open(1, Append(0, prompt(5)), Sample(1, greedy(5), constraint="k"))
    driver.open(2, Append(0, prompt(6)), Sample(1, greedy(8)))
    for _ in range(9):
        driver.step()
    assert len(driver.ended(2).ids) == 8, "one token a step"
    assert not [event for event in driver.of(1) if isinstance(event, Tokens)]
    assert never.looked >= 9, "it is given its slice in each step"
    state = driver.core.state
    assert [gen.strand.sid for gen in state.unready] == [1] and not driver.core.idle
    driver.send(AbortStrand(1))
    driver.run()
    assert driver.ended(1).reason == "abort" and not state.unready


def test_a_step_spends_no_more_than_its_budget() -> None:
    driver = Driver(constraint_first_s=0.02, constraint_more_s=0.02, constraint_slice_s=0.01)
    world = slow(driver, "k", "[ab]+x", 10**9, spend=0.01)
    for sid in range(1, 9):
        driver.open(sid, Append(0, prompt(sid)), Sample(1, greedy(5), constraint="k"))
    for _ in range(20):
        before = world.looked
        driver.step()
        assert 1 <= world.looked - before <= 4, "8 rows share two slices for first looks, and two for others"
    matchers = [gen._matcher for gen in driver.core.state.unready]
    assert len(matchers) == 8
    assert all(isinstance(one, Slow) and one.left < 10**9 for one in matchers), "all of them had their turn"
    for sid in range(1, 9):
        driver.send(CloseStrand(sid), AbortStrand(sid))
    driver.run()


def test_a_slow_forward_takes_nothing_of_the_budget() -> None:
    model = FakeModel()
    forward = model.forward

    def late(batch: ForwardBatch) -> torch.Tensor:
        time.sleep(0.02)
        return forward(batch)

    model.forward = late  # type: ignore[method-assign]  # as slow as a real one
    driver = Driver(model=model, constraint_first_s=0.01, constraint_more_s=0.0, constraint_slice_s=0.01)
    driver.send(Define("k", compile_spec("regex", "[ab]{40}")))
    driver.open(1, Append(0, prompt(9)), Sample(1, greedy(60, stop_ids=STOPS, wrap_up=False), constraint="k"))
    driver.run()
    assert len(driver.ended(1).ids) <= len(model.rows) <= 45, "hardly a row sits out"


def test_a_limit_met_while_looking_fails_that_strand_alone() -> None:
    driver = Driver()
    world = slow(driver, "k", "[ab]+x", 2)
    driver.open(1, Append(0, prompt(5)), Sample(1, hot(50), constraint="k"))
    driver.open(2, Append(0, prompt(6)), Sample(1, greedy(12)))
    for _ in range(4):
        driver.step()
    world.fault = True
    driver.run()
    failed = [event for event in driver.of(1) if isinstance(event, OpFailed)]
    assert len(failed) == 1 and failed[0].code == "invalid_constraint" and "3 positions" in failed[0].message
    assert len(driver.ended(2).ids) == 12


def test_one_that_never_knows_is_refused_in_the_end() -> None:
    driver = Driver(constraint_s=0.05)
    slow(driver, "k", "[ab]+x", 10**9, spend=0.01)
    driver.open(1, Append(0, prompt(5)), Sample(1, hot(50), constraint="k"))
    driver.open(2, Append(0, prompt(6)), Sample(1, greedy(12)))
    driver.run()
    failed = [event for event in driver.of(1) if isinstance(event, OpFailed)]
    assert len(failed) == 1 and "more than 0.05 seconds" in failed[0].message
    assert len(driver.ended(2).ids) == 12


@pytest.mark.parametrize("calls", [1, 4])
def test_a_replay_of_slow_answers_falls_on_the_same_edges(calls: int) -> None:
    whole, text = outcome(0, hot(60, seed=3, stop_ids=STOPS))
    for cut in (0, 1, len(whole.ids) // 2, len(whole.ids) - 1):
        driver = Driver()
        slow(driver, "k", PATTERN, calls)
        resume = Sample(
            1,
            hot(60, seed=3, stop_ids=STOPS),
            constraint="k",
            resume_ids=whole.ids[:cut],
            resume_usage=Usage(prompt=20, cached=0),
        )
        driver.open(1, Append(0, prompt(20)), resume)
        driver.run()
        ended = driver.ended(1)
        assert ended.ids == whole.ids and (ended.usage.sampled, ended.usage.forced) == (
            whole.usage.sampled,
            whole.usage.forced,
        )
        released = driver.vocabulary.decode(whole.ids[:cut])
        assert released + driver.text(1) == text


def test_an_abort_right_behind_a_replay_keeps_what_was_said() -> None:
    whole, _ = outcome(0, hot(60, seed=3, stop_ids=STOPS))
    driver = Driver()
    slow(driver, "k", PATTERN, 5)
    params = hot(60, seed=3, stop_ids=STOPS)
    resume = Sample(1, params, constraint="k", resume_ids=whole.ids[:9], resume_usage=Usage(prompt=20, cached=0))
    driver.open(1, Append(0, prompt(20)), resume)
    driver.send(AbortStrand(1))
    driver.run()
    assert driver.ended(1).reason == "abort" and driver.ended(1).ids[:9] == whole.ids[:9]


def test_forks_and_retraction_with_slow_answers() -> None:
    driver = Driver(kv_tokens=64, reserve_share=0.0)
    slow(driver, "k", "[a-h]{30}", 1)
    for sid in (1, 2, 3):
        driver.open(sid, Append(0, prompt(10, seed=sid)), Sample(1, hot(40, seed=sid, stop_ids=STOPS), constraint="k"))
    driver.run()
    for sid in (1, 2, 3):
        assert re.fullmatch(rb"[a-h]{30}", driver.text(sid)) and driver.ended(sid).reason == "stop"
    assert driver.core.state.counters.retractions > 0


def test_what_was_built_is_bounded_by_bytes() -> None:
    driver = Driver(constraint_bytes=1)
    for key in ("aa", "bb", "cc"):
        driver.send(Define(key, compile_spec("regex", f"{key}[0-9]")))
        driver.open(ord(key[0]), Append(0, prompt(5)), Sample(1, greedy(5, stop_ids=STOPS), constraint=key))
    driver.run()
    for key in ("aa", "bb", "cc"):
        assert re.fullmatch(rb"..[0-9]", driver.text(ord(key[0])))
    store = driver.core.state.constraints
    assert sum(store[key].built is not None for key in ("aa", "bb", "cc")) == 1


def test_a_full_lexicon_is_left_behind() -> None:
    driver = Driver()
    for key in ("aa", "bb"):
        driver.send(Define(key, compile_spec("regex", f"{key}[0-9]")))
    store = driver.core.state.constraints

    def run(sid: int, key: str) -> None:
        driver.open(sid, Append(0, prompt(5)), Sample(1, greedy(5, stop_ids=STOPS), constraint=key))
        driver.run()
        assert re.fullmatch(key.encode() + rb"[0-9]", driver.text(sid))

    run(1, "aa")
    run(2, "bb")
    old = store["aa"].lexicon
    assert old is not None and store["bb"].lexicon is old
    run(3, "aa")
    assert store["aa"].lexicon is old
    old.max_bytes = 0
    run(4, "aa")
    fresh = store["aa"].lexicon
    assert fresh is not old and store["bb"].lexicon is old, "built again when it is needed again"
    run(5, "bb")
    assert store["bb"].lexicon is fresh


def test_ready_is_of_the_gen() -> None:
    driver = Driver()
    driver.open(1, Append(0, prompt(3)), Sample(1, greedy(2)))
    driver.step()
    gen = driver.core.state.strands[1].current
    assert isinstance(gen, Gen) and gen.ready, "no constraint, nothing to look for"
    driver.run()
