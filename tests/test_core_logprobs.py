"""Every entry has a number: of a token that a stop cut, of what wrap-up takes, of the end token."""

from __future__ import annotations

import numpy as np
import pytest
from core_kit import EOS, Driver, FakeModel, greedy, hot, prompt
from hypothesis import given, settings
from hypothesis import strategies as st
from test_core_closing import ENDLESS, STOPS, regex

from plait.runtime.wire import Append, CoreLogprob, Define, OpFailed, Sample, Score, Scored, Tokens

THE = 256 + 3  # b" the"


def raw(model: FakeModel, ids: list[int]) -> np.ndarray:
    row = model.after(ids).astype(np.float64)
    return row - np.log(np.exp(row).sum())


def best(logp: np.ndarray, n: int) -> list[int]:
    return np.argsort(-logp, kind="stable")[:n].tolist()


@pytest.mark.parametrize("top", [0, 2])
def test_a_token_cut_by_a_stop_keeps_its_number(top: int) -> None:
    """Two of " the" with the stop "e t": b" th" stands for the first, in two ids."""
    driver = Driver(model=FakeModel(bias={THE: 2.0}))
    params = greedy(9, stop=(b"e t",), logprobs=True, top_logprobs=top, logit_bias={THE: 30.0})
    driver.open(1, Append(0, prompt(20)), Sample(1, params))
    driver.run()
    ended = driver.ended(1)
    assert ended.tail == 2 and ended.logprobs is not None
    logp = raw(driver.model, list(prompt(20)))
    first, second = ended.logprobs
    assert (first.id, second.id) == ended.ids
    assert first.logprob == pytest.approx(logp[THE], abs=1e-4) and first.logprob < -1.0
    assert second.logprob == 0.0
    for entry in ended.logprobs:
        assert [token for token, _ in entry.top] == best(logp, top)


def test_a_cut_that_a_replay_finds_has_its_number_from_the_front() -> None:
    """The token was drawn by an earlier epoch, which told its number; this one does not know it and says so."""
    driver = Driver(model=FakeModel(bias={THE: 30.0}))
    params = greedy(9, stop=(b"e t",), logprobs=True, top_logprobs=2)
    driver.open(1, Append(0, prompt(20)), Sample(1, params, resume_ids=(THE, THE)))
    driver.run()
    ended = driver.ended(1)
    assert ended.tail == 2 and ended.logprobs is not None
    assert [(entry.logprob, entry.top) for entry in ended.logprobs] == [(None, ()), (None, ())]


def test_a_cut_token_stands_for_its_beginning() -> None:
    drawn = CoreLogprob(9, -1.5, False, ((9, -1.5), (8, -2.0)))
    assert drawn.cut_to(()) == ()
    parts = drawn.cut_to((3, 4, 5))
    assert [part.id for part in parts] == [3, 4, 5]
    assert sum(part.logprob or 0.0 for part in parts) == drawn.logprob
    assert {part.top for part in parts} == {drawn.top}


@given(
    seed=st.integers(0, 1000),
    stop=st.lists(st.sampled_from([b"e", b"th", b"he", b" t", b"ab", b"c", b"\xa9", b"2"]), max_size=3, unique=True),
    limit=st.integers(1, 30),
    top=st.integers(0, 3),
)
@settings(deadline=None)
def test_every_entry_has_a_number(seed: int, stop: list[bytes], limit: int, top: int) -> None:
    likes = dict.fromkeys(range(256, 268), 4.0)
    driver = Driver(model=FakeModel(bias=likes))
    params = hot(limit, seed=seed, stop=tuple(stop), logprobs=True, top_logprobs=top, stop_ids=STOPS)
    driver.open(1, Append(0, prompt(10, seed)), Sample(1, params))
    driver.run()
    ended = driver.ended(1)
    assert ended.logprobs is not None and [entry.id for entry in ended.logprobs] == list(ended.ids)
    told = [entry for event in driver.of(1) if isinstance(event, Tokens) for entry in event.logprobs]
    kept = len(ended.ids) - ended.tail
    assert list(ended.logprobs[:kept]) == told[:kept]
    for entry in ended.logprobs:
        assert entry.logprob is not None and len(entry.top) == top
    if ended.tail:
        assert sum(entry.logprob or 0.0 for entry in ended.logprobs[kept:]) == told[kept].logprob


@pytest.mark.parametrize("draft_s", [0.0, 60.0])
def test_what_wrap_up_takes_instead_has_a_number(draft_s: float) -> None:
    pattern = r'\{"a":"[^"\\]*","b":[0-9]{3}\}'
    params = hot(40, stop_ids=STOPS, logprobs=True, top_logprobs=2)
    driver = Driver(model=FakeModel(bias=ENDLESS), draft_s=draft_s)
    driver.send(Define("it", regex(pattern)))
    driver.open(1, Append(0, prompt(20)), Sample(1, params, constraint="it"))
    driver.run()
    ended = driver.ended(1)
    assert ended.usage.wrapped and ended.logprobs is not None
    ids = list(prompt(20))
    for entry in ended.logprobs:
        logp = raw(driver.model, ids)
        assert entry.logprob == pytest.approx(logp[entry.id], abs=1e-4)
        assert [token for token, _ in entry.top] == best(logp, 2)
        ids.append(entry.id)


@pytest.mark.parametrize("logprobs", [False, True])
def test_the_end_token_is_told_beside_the_text(logprobs: bool) -> None:
    driver = Driver()
    params = greedy(9, logprobs=logprobs, top_logprobs=2 * logprobs, stop_ids=(EOS,), logit_bias={EOS: 90.0})
    driver.open(1, Append(0, prompt(20)), Sample(1, params))
    driver.run()
    ended = driver.ended(1)
    assert ended.ids == () and ended.matched == EOS and (ended.end is not None) == logprobs
    if ended.end is not None:
        logp = raw(driver.model, list(prompt(20)))
        assert ended.logprobs == () and ended.end.id == EOS
        assert ended.end.logprob == pytest.approx(logp[EOS], abs=1e-4)
        assert [token for token, _ in ended.end.top] == best(logp, 2)


@pytest.mark.parametrize("cached", [False, True])
def test_without_tokens_what_would_come_is_told(cached: bool) -> None:
    driver = Driver()
    ids = prompt(20)
    if cached:
        driver.open(2, Append(0, ids), Sample(1, greedy(0)), Sample(2, greedy(0)))
        driver.run()
    driver.open(1, Append(0, ids), Sample(1, greedy(0, logprobs=True, top_logprobs=5)), Sample(2, greedy(3)))
    driver.run()
    ended = driver.ended(1)
    logp = raw(driver.model, list(ids))
    assert (ended.reason, ended.ids, ended.logprobs) == ("length", (), ())
    assert [token for token, _ in ended.next_top] == best(logp, 5)
    assert [number for _, number in ended.next_top] == pytest.approx(logp[best(logp, 5)].tolist(), abs=1e-4)
    assert list(driver.ended(1, 2).ids) == driver.model.expect(ids, greedy(3))
    assert ended.usage.cached == (19 if cached else 0)


def test_without_tokens_a_row_that_is_not_a_number_fails_that_strand_alone() -> None:
    driver = Driver()
    ids = list(prompt(20))
    driver.model.nan_when = lambda seen: seen == ids
    driver.open(1, Append(0, ids), Sample(1, greedy(0, logprobs=True, top_logprobs=5)))
    driver.open(2, Append(0, prompt(20, 1)), Sample(1, greedy(0, logprobs=True, top_logprobs=1)))
    driver.run()
    assert any(isinstance(event, OpFailed) for event in driver.of(1))
    assert len(driver.ended(2).next_top) == 1


def test_a_prefill_alone_asks_for_no_logits() -> None:
    driver = Driver()
    seen: list[int] = []
    driver.model.break_when = lambda batch: bool(seen.append(len(batch.logit_rows)))
    driver.open(1, Append(0, prompt(20)), Sample(1, greedy(0, logprobs=True)))
    driver.run()
    assert seen == [0] and driver.ended(1).next_top == ()


def test_every_choice_of_a_score_tells_its_tokens() -> None:
    choices = ((65, 66, 67), (65, 66), (80,))
    driver = Driver()
    driver.open(1, Append(0, prompt(30)), Score(1, choices, "token_length_normalized", 0.0, 5))
    driver.run()
    (scored,) = (event for event in driver.of(1) if isinstance(event, Scored))
    for choice, numbers in zip(choices, scored.logprobs, strict=True):
        ids = list(prompt(30))
        for token, number in zip(choice, numbers, strict=True):
            assert number == pytest.approx(raw(driver.model, ids)[token], abs=1e-4)
            ids.append(token)


def test_numbers_of_choices_have_a_bound() -> None:
    choices = ((65, 66, 67), (65, 66), (80,))
    driver = Driver(score_numbers=5)
    driver.open(1, Append(0, prompt(30)), Score(1, choices, "token_length_normalized", 0.0, 5))
    driver.run()
    (scored,) = (event for event in driver.of(1) if isinstance(event, Scored))
    assert len(scored.scores) == 3 and scored.logprobs == ()
