"""ScorePrompt: numbers against a plain computation, whatever is cached, however it is chunked; what it costs."""

from __future__ import annotations

import numpy as np
import pytest
from core_kit import SIZE, Driver, FakeModel, greedy, hot, prompt
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.runtime.wire import (
    AbortStrand,
    Append,
    CorePromptLogprob,
    ForkAt,
    OpFailed,
    PromptScored,
    Sample,
    Score,
    ScorePrompt,
)


def plain(model: FakeModel, ids: tuple[int, ...], start: int, top: int) -> list[CorePromptLogprob]:
    out = []
    for at in range(start, len(ids)):
        if not at:
            out.append(CorePromptLogprob(ids[0], None))
            continue
        row = model.after(ids[:at]).astype(np.float64)
        logp = row - np.log(np.exp(row).sum())
        best = np.argsort(-logp, kind="stable")[:top]
        rank = int((logp > logp[ids[at]]).sum()) + 1
        out.append(
            CorePromptLogprob(ids[at], float(logp[ids[at]]), rank, tuple((int(i), float(logp[i])) for i in best))
        )
    return out


def scored(driver: Driver, sid: int, op: int = 1) -> PromptScored:
    """All its events as one."""
    *first, last = (event for event in driver.of(sid, op) if isinstance(event, PromptScored))
    assert last.usage is not None and all(event.usage is None and event.logprobs for event in first)
    told = tuple(entry for event in (*first, last) for entry in event.logprobs)
    return PromptScored(sid, op, told, last.usage)


def same(found: PromptScored, wanted: list[CorePromptLogprob]) -> None:
    assert [entry.id for entry in found.logprobs] == [entry.id for entry in wanted]
    for entry, plain_one in zip(found.logprobs, wanted):
        if plain_one.logprob is None:
            assert (entry.logprob, entry.rank, entry.top) == (None, 0, ())
            continue
        assert entry.logprob == pytest.approx(plain_one.logprob, abs=1e-4)
        assert entry.rank == plain_one.rank
        assert [token for token, _ in entry.top] == [token for token, _ in plain_one.top]
        assert [number for _, number in entry.top] == pytest.approx([number for _, number in plain_one.top], abs=1e-4)


@pytest.mark.parametrize("start", [0, 1, 2, 17, 39, 40, 41, 1000])
@pytest.mark.parametrize("top", [0, 3])
def test_numbers_equal_a_plain_computation(start: int, top: int) -> None:
    driver = Driver()
    ids = prompt(40)
    driver.open(1, Append(0, ids), ScorePrompt(1, start, top), Sample(1, greedy(3)))
    driver.run()
    same(scored(driver, 1), plain(driver.model, ids, start, top))
    assert list(driver.ended(1).ids) == driver.model.expect(ids, greedy(3))
    assert driver.model.computed == 40 + 2, "each row is computed once"
    first, then = scored(driver, 1).usage, driver.ended(1).usage
    assert (first.prompt, first.cached) == (39, 0) or start >= 40
    assert then.prompt - then.cached + first.prompt - first.cached == 40


def test_a_token_and_its_alternative_have_the_very_same_number() -> None:
    """Readers compare them for equality to see whether a text is the greedy one."""
    driver = Driver()
    ids = prompt(40)
    driver.open(1, Append(0, ids), ScorePrompt(1, 0, SIZE))
    driver.run()
    for entry in scored(driver, 1).logprobs[1:]:
        assert dict(entry.top)[entry.id] == entry.logprob
        assert entry.top[entry.rank - 1][1] == entry.logprob


@pytest.mark.parametrize("start", [0, 25])
def test_what_is_cached_is_computed_again_where_its_logits_are_wanted(start: int) -> None:
    driver = Driver()
    ids = prompt(40)
    driver.open(1, Append(0, ids), Sample(1, greedy(0)))
    driver.run()
    assert driver.model.computed == 40
    driver.open(2, Append(0, ids), ScorePrompt(1, start, 1), Sample(1, greedy(1)))
    driver.run()
    same(scored(driver, 2), plain(driver.model, ids, start, 1))
    cached = max(0, start - 1)
    assert driver.model.computed == 40 + (39 - cached) + 1
    usage = scored(driver, 2).usage
    assert (usage.prompt, usage.cached) == (39, cached)
    counters = driver.core.stats()
    assert (counters.prompt_tokens, counters.cached_tokens) == (40 + 40, cached), "one prompt, counted once"


def test_logits_of_a_step_have_a_bound() -> None:
    driver = Driver(score_rows=8)
    wanted: list[int] = []
    driver.model.break_when = lambda batch: bool(wanted.append(len(batch.logit_rows)))
    ids = prompt(60)
    for sid in (1, 2):  # the second finds everything cached
        driver.open(sid, Append(0, ids), ScorePrompt(1, 20, 2))
        driver.run()
        same(scored(driver, sid), plain(driver.model, ids, 20, 2))
    assert max(wanted) == 8 and sum(wanted) == 2 * 40


def test_numbers_have_a_bound() -> None:
    driver = Driver(score_numbers=100)
    driver.open(1, Append(0, prompt(40)), ScorePrompt(1, 0, 2), Sample(1, greedy(3)))
    driver.open(2, Append(0, prompt(40)), ScorePrompt(1, 7, 2), Sample(1, greedy(3)))
    driver.run()
    (failed,) = (event for event in driver.of(1) if isinstance(event, OpFailed))
    assert (failed.code, failed.field) == ("invalid_value", "logprob_start_len")
    assert "120 numbers" in failed.message and "at most 100" in failed.message
    assert len(scored(driver, 2).logprobs) == 33


@pytest.mark.parametrize("pool", [41, 44, 60])
@pytest.mark.parametrize("cached", [False, True])
def test_a_pool_that_holds_little_more_than_the_prompt_is_enough(pool: int, cached: bool) -> None:
    driver = Driver(pool)
    ids = prompt(40)
    if cached:
        driver.open(1, Append(0, ids), Sample(1, greedy(0)))
        driver.run()
    driver.open(2, Append(0, ids), ScorePrompt(1, 0, 1), Sample(1, greedy(1)))
    driver.run()
    same(scored(driver, 2), plain(driver.model, ids, 0, 1))
    assert list(driver.ended(2).ids) == driver.model.expect(ids, greedy(1))


def test_others_decode_beside_it() -> None:
    """Each step gives every gen its token, and the prompt what is left of the rows."""
    driver = Driver(mixed_tokens=16)
    driver.open(1, Append(0, prompt(10)), Sample(1, greedy(40)))
    driver.step()
    driver.open(2, Append(0, prompt(300, 1)), ScorePrompt(1, 0, 1))
    before = len(driver.sent_ids(1))
    for step in range(10):
        driver.step()
        assert len(driver.sent_ids(1)) == before + step + 1
    assert max(driver.model.rows[1:]) <= 16
    driver.run()
    same(scored(driver, 2), plain(driver.model, prompt(300, 1), 0, 1))


def test_a_fork_behind_it_computes_nothing_again() -> None:
    driver = Driver()
    ids = prompt(40)
    driver.open(1, Append(0, ids), ScorePrompt(1, 0, 1), ForkAt(1, (2, 3)), Sample(1, hot(3)))
    driver.extend(2, Sample(1, hot(3), choice=1))
    driver.extend(3, Sample(1, hot(3), choice=2))
    driver.run()
    for sid in (1, 2, 3):
        assert list(driver.ended(sid).ids) == driver.model.expect(ids, hot(3), sid - 1)
    assert driver.model.computed == 39 + 3 * 3


@pytest.mark.parametrize("cached", [False, True])
def test_a_row_that_is_not_a_number_fails_that_strand_alone(cached: bool) -> None:
    driver = Driver()
    ids = list(prompt(40))
    if cached:
        driver.open(9, Append(0, ids), Sample(1, greedy(0)))
        driver.run()
    driver.model.nan_when = lambda seen: seen == ids[:30]
    driver.open(1, Append(0, ids), ScorePrompt(1, 0, 1), Sample(1, greedy(3)))
    driver.open(2, Append(0, prompt(40, 1)), ScorePrompt(1, 0, 1))
    driver.run()
    assert [event.code for event in driver.of(1) if isinstance(event, OpFailed)] == ["internal"]
    same(scored(driver, 2), plain(driver.model, prompt(40, 1), 0, 1))
    assert driver.core.state.in_use().size == 0


def test_a_forward_that_breaks_gives_its_scratch_back() -> None:
    driver = Driver(score_rows=8)
    ids = prompt(40)
    driver.open(9, Append(0, ids), Sample(1, greedy(0)))
    driver.run()
    driver.open(1, Append(0, ids), ScorePrompt(1, 0, 1))
    driver.step()
    driver.model.break_when = lambda batch: True
    driver.run()
    assert [event.code for event in driver.of(1) if isinstance(event, OpFailed)] == ["internal"]
    assert driver.core.state.in_use().size == 0


def test_an_abort_in_the_middle() -> None:
    driver = Driver(score_rows=8)
    driver.open(1, Append(0, prompt(40)), ScorePrompt(1, 0, 1), Sample(1, greedy(3)))
    driver.step()
    driver.send(AbortStrand(1))
    driver.run()
    assert [event.code for event in driver.of(1) if isinstance(event, OpFailed)] == ["aborted"]
    assert driver.core.state.in_use().size == 0


PROMPTS = [prompt(n, seed) for n, seed in ((30, 0), (50, 0), (50, 1), (21, 2))]
PROMPTS.append((*PROMPTS[1], *prompt(20, 5)))


@given(
    asks=st.lists(
        st.tuples(
            st.integers(0, len(PROMPTS) - 1),
            st.integers(0, 60),  # start
            st.integers(0, 3),  # top
            st.integers(0, 4),  # what comes behind: tokens
            st.integers(0, 6),  # steps until the next arrives
            st.integers(0, 1),  # priority
        ),
        min_size=1,
        max_size=6,
    ),
    pool=st.integers(80, 400),
    score_rows=st.sampled_from([1, 3, 16, 256]),
    step_tokens=st.sampled_from([7, 32, 512]),
)
@settings(max_examples=60, deadline=None)
def test_in_any_traffic_the_numbers_are_the_same(
    asks: list[tuple[int, int, int, int, int, int]], pool: int, score_rows: int, step_tokens: int
) -> None:
    driver = Driver(pool, score_rows=score_rows, step_tokens=step_tokens, mixed_tokens=step_tokens)
    for sid, (which, start, top, tokens, steps, priority) in enumerate(asks, 1):
        ops = [Append(0, PROMPTS[which]), ScorePrompt(1, start, top), Sample(1, hot(tokens, seed=sid))]
        if sid % 3 == 0:
            ops.append(Score(2, ((65, 66), (65, 70, 71)), "token_length_normalized", 0.0, 5))
        driver.open(sid, *ops, priority=priority)
        for _ in range(steps):
            driver.step()
    driver.run()
    for sid, (which, start, top, tokens, _, _) in enumerate(asks, 1):
        same(scored(driver, sid), plain(driver.model, PROMPTS[which], start, top))
        assert list(driver.ended(sid).ids) == driver.model.expect(PROMPTS[which], hot(tokens, seed=sid))
