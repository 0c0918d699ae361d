"""Constrained gens: masks, jump-forward, stops and limits inside a forced run, partial, replay."""

from __future__ import annotations

import re

import numpy as np
import pytest
from core_kit import EOS, OTHER_EOS, Driver, FakeModel, greedy, hot, prompt

from plait.constrained.compiler import compile_spec
from plait.constrained.pushdown.matcher import PushdownMatcher
from plait.runtime.protocol import Usage
from plait.runtime.wire import Append, Define, Ended, Forget, OpFailed, Sample, SampleParams, Started, Tokens

STOPS = (EOS, OTHER_EOS)


def constrained(
    pattern: str, params: SampleParams, *more: object, driver: Driver | None = None, **how: object
) -> Driver:
    driver = driver or Driver()
    driver.send(Define(pattern, compile_spec("regex", pattern)))
    driver.open(1, Append(0, prompt(20)), Sample(1, params, constraint=pattern, **how), *more)  # type: ignore[arg-type]  # resume_ids by name
    driver.run()
    return driver


@pytest.mark.parametrize("seed", range(6))
def test_the_text_matches_and_the_gen_ends_without_another_forward(seed: int) -> None:
    pattern = r'\{"name": "[a-z]{2,9}", "age": [0-9]{1,3}\}'
    driver = constrained(pattern, hot(60, seed=seed, stop_ids=STOPS))
    ended = driver.ended(1)
    assert ended.reason == "stop" and ended.matched is None and not ended.partial
    assert re.fullmatch(pattern.encode(), driver.text(1))
    assert driver.vocabulary.decode(ended.ids) == driver.text(1)
    assert ended.usage.forced > 0 and ended.usage.completion == len(ended.ids)
    assert ended.usage.steps <= ended.usage.sampled + 1


def test_a_wholly_forced_text_needs_no_forward_at_all() -> None:
    driver = constrained(r"the abc", greedy(60, stop_ids=STOPS), Append(2, (65,)), Sample(3, greedy(2)))
    ended = driver.ended(1)
    assert driver.text(1) == b"the abc" and ended.ids == tuple(driver.vocabulary.encode(b"the abc"))
    assert (ended.usage.sampled, ended.usage.forced, ended.usage.steps) == (0, len(ended.ids), 0)
    assert list(driver.ended(1, 3).ids) == driver.model.expect([*prompt(20), *ended.ids, 65], greedy(2))
    assert driver.model.rows[0] == 20 + len(ended.ids) + 1


def test_forced_ids_are_computed_in_one_chunk() -> None:
    driver = constrained(r"(xx|yy)hello world[ab]", greedy(60, stop_ids=STOPS))
    assert re.fullmatch(rb"(xx|yy)hello world[ab]", driver.text(1))
    assert max(driver.model.rows[1:]) >= 10
    assert len(driver.model.rows) == driver.ended(1).usage.sampled


def test_an_empty_language_member_ends_at_once() -> None:
    driver = constrained(r"", greedy(60, stop_ids=STOPS))
    ended = driver.ended(1)
    assert (ended.reason, ended.ids, driver.text(1)) == ("stop", (), b"") and not ended.partial


def test_eos_ends_an_accepting_constraint_even_when_eos_is_ignored() -> None:
    for stop_ids in (STOPS, ()):
        driver = constrained(r"a*", greedy(60, stop_ids=stop_ids), driver=Driver(model=FakeModel(bias={EOS: 20.0})))
        ended = driver.ended(1)
        assert (ended.reason, ended.matched, ended.ids) == ("stop", EOS, ())


def test_a_constraint_beats_min_tokens() -> None:
    driver = constrained(r"[ab]{2}", greedy(60, stop_ids=STOPS, min_tokens=20))
    assert len(driver.text(1)) == 2 and driver.ended(1).reason == "stop"


def test_max_tokens_cuts_a_forced_run() -> None:
    driver = constrained(r"[xyz]qrstuvw[0-9]", greedy(4, stop_ids=STOPS), Append(2, (65,)), Sample(3, greedy(2)))
    ended = driver.ended(1)
    assert (ended.reason, len(ended.ids), ended.partial) == ("length", 4, True)
    assert driver.text(1)[1:] == b"qrs"
    assert (ended.usage.sampled, ended.usage.forced) == (1, 3)
    assert list(driver.ended(1, 3).ids) == driver.model.expect([*prompt(20), *ended.ids, 65], greedy(2))


def test_max_tokens_inside_a_run_that_starts_the_gen() -> None:
    driver = constrained(r"qrstuvw[0-9]", greedy(3, stop_ids=STOPS))
    assert driver.text(1) == b"qrs" and driver.ended(1).reason == "length" and driver.ended(1).usage.steps == 0


@pytest.mark.parametrize(("stop", "text"), [(b"stu", b"qr"), (b"w9", b""), (b"tuvw", b"qrs")])
def test_a_stop_inside_a_forced_run_wins(stop: bytes, text: bytes) -> None:
    driver = constrained(r"[x]qrstuvw[0-8]", greedy(20, stop=(stop,), stop_ids=STOPS))
    ended = driver.ended(1)
    if stop == b"w9":
        assert not ended.partial and ended.matched is None
    else:
        assert (driver.text(1), ended.reason, ended.matched) == (b"x" + text, "stop", stop.decode())
        assert ended.partial, "the constraint does not accept here"
    assert driver.vocabulary.decode(ended.ids) == driver.text(1)


def test_a_stop_over_sampled_and_forced_bytes() -> None:
    driver = constrained(r"[xyz]qrst[0-9]", greedy(20, stop=(b"xq", b"yq", b"zq"), stop_ids=STOPS))
    ended = driver.ended(1)
    assert (driver.text(1), ended.ids, ended.partial) == (b"", (), True)
    assert all(event.data == b"" for event in driver.of(1) if isinstance(event, Tokens))


def test_a_stop_where_the_constraint_accepts_is_not_partial() -> None:
    model = FakeModel(bias={33: 20.0})
    driver = constrained(r"[ab]+(!c)?", hot(200, stop=(b"!",), stop_ids=STOPS), driver=Driver(model=model))
    ended = driver.ended(1)
    assert ended.matched == "!" and not ended.partial


def test_logprobs_of_forced_ids_are_marked_and_of_the_raw_logits() -> None:
    pattern = r"[xyz]qrst[0-9]uv"
    driver = constrained(pattern, greedy(20, logprobs=True, top_logprobs=2, stop_ids=STOPS))
    plain = constrained(pattern, greedy(20, stop_ids=STOPS))
    ended = driver.ended(1)
    assert ended.ids == plain.ended(1).ids
    assert (ended.usage.sampled, ended.usage.forced) == (
        plain.ended(1).usage.sampled,
        plain.ended(1).usage.forced,
    )
    assert ended.logprobs is not None
    assert [entry.forced for entry in ended.logprobs] == [
        token not in ended.ids[:1] + ended.ids[5:6] for token in ended.ids
    ]
    ids = list(prompt(20))
    for entry in ended.logprobs:
        row = driver.model.after(ids).astype(np.float64)
        assert entry.logprob == pytest.approx(row[entry.id] - np.log(np.exp(row).sum()), abs=1e-4)
        assert len(entry.top) == 2
        ids.append(entry.id)
    streamed = [entry for event in driver.of(1) if isinstance(event, Tokens) for entry in event.logprobs]
    assert tuple(streamed) == ended.logprobs


@pytest.mark.parametrize("logprobs", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_replay_of_a_constrained_gen_after_every_frame(seed: int, logprobs: bool) -> None:
    pattern = r'\{"id": "[a-z]{2,5}", "of": [0-9]{1,3}\}( the abc)?'
    params = hot(60, seed=seed, stop=(b"]", b"zz"), stop_ids=STOPS, logprobs=logprobs, frequency_penalty=0.3)
    whole = constrained(pattern, params)
    frames = [event for event in whole.of(1) if isinstance(event, Tokens)]
    (started,) = (event for event in whole.of(1) if isinstance(event, Started))
    for upto in range(len(frames)):
        ids = tuple(token for event in frames[:upto] for token in event.ids)
        data = b"".join(event.data for event in frames[:upto])
        again = constrained(pattern, params, resume_ids=ids, resume_usage=started.usage)
        assert [*ids, *again.sent_ids(1)] == whole.sent_ids(1)
        assert data + again.text(1) == whole.text(1)
        old, new = whole.ended(1), again.ended(1)
        assert (new.ids, new.reason, new.partial) == (old.ids, old.reason, old.partial)
        assert (new.usage.sampled, new.usage.forced) == (old.usage.sampled, old.usage.forced)


def test_replay_of_a_whole_gen_just_ends() -> None:
    whole = constrained(r"[xyz]qrst", greedy(20, stop_ids=STOPS))
    again = constrained(
        r"[xyz]qrst", greedy(20, stop_ids=STOPS), resume_ids=whole.ended(1).ids, resume_usage=Usage(prompt=20, cached=0)
    )
    assert again.ended(1).ids == whole.ended(1).ids and again.sent_ids(1) == []
    assert again.model.rows == []


def test_unknown_and_broken_constraints_fail_their_op_only() -> None:
    driver = Driver()
    driver.send(Define("broken", b"nonsense"), Define("good", compile_spec("regex", "ab")), Forget("good"))
    driver.open(1, Append(0, prompt(9)), Sample(1, greedy(3), constraint="broken"))
    driver.open(2, Append(0, prompt(9)), Sample(1, greedy(3), constraint="good"))
    driver.open(3, Append(0, prompt(9)), Sample(1, greedy(3)))
    driver.run()
    (first,), (second,) = driver.of(1), driver.of(2)
    assert isinstance(first, OpFailed) and first.code == "invalid_constraint"
    assert isinstance(second, OpFailed) and "good" in second.message
    assert isinstance(driver.of(3)[-1], Ended)


def test_a_matcher_that_raises_fails_its_strand_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: PushdownMatcher) -> object:
        raise MemoryError("no room for a mask")

    driver = Driver()
    driver.send(Define("k", compile_spec("regex", "[ab]{3}")))
    monkeypatch.setattr(PushdownMatcher, "mask", broken)
    driver.open(2, Append(0, prompt(9)), Sample(1, greedy(3)))
    driver.open(1, Append(0, prompt(20)), Sample(1, greedy(9, stop_ids=STOPS), constraint="k"))
    driver.run()
    (failed,) = (event for event in driver.of(1) if isinstance(event, OpFailed))
    assert "no room for a mask" in failed.message
    assert list(driver.ended(2).ids) == driver.model.expect(prompt(9), greedy(3))
