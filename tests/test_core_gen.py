"""One strand and a few: sampling, stops, limits, usage, and that nothing around a strand changes its output."""

from __future__ import annotations

import pytest
from core_kit import EOS, OTHER_EOS, Driver, FakeModel, greedy, hot, prompt

from plait.runtime.protocol import Usage
from plait.runtime.wire import (
    AbortStrand,
    Append,
    CloseStrand,
    Ended,
    ForkAt,
    OpenStrand,
    OpFailed,
    Sample,
    Started,
    Tokens,
)


def test_greedy_equals_a_plain_loop() -> None:
    driver = Driver()
    driver.open(1, Append(0, prompt(40)), Sample(1, greedy(20)))
    driver.run()
    ended = driver.ended(1)
    assert list(ended.ids) == driver.model.expect(prompt(40), greedy(20))
    assert ended.reason == "length" and ended.matched is None and ended.tail == 0 and not ended.partial
    assert driver.text(1) == driver.vocabulary.decode(ended.ids)
    assert driver.sent_ids(1) == list(ended.ids)
    usage = ended.usage
    assert (usage.prompt, usage.cached, usage.sampled, usage.forced, usage.recomputed) == (40, 0, 20, 0, 0)
    assert usage.steps == 20 and 0 < usage.first_token_s < usage.total_s


def test_the_first_event_is_started_and_names_the_prompt() -> None:
    driver = Driver()
    driver.open(1, Append(0, prompt(40)), Sample(1, greedy(2)))
    events = driver.run()
    assert isinstance(events[0], Started)
    assert events[0].usage.prompt == 40 and events[0].usage.cached == 0
    assert sum(isinstance(event, Started) for event in events) == 1


@pytest.mark.parametrize("step_tokens", [1, 7, 64, 2048])
def test_chunk_size_does_not_change_the_output(step_tokens: int) -> None:
    driver = Driver(step_tokens=step_tokens, mixed_tokens=step_tokens)
    for sid in range(1, 5):
        driver.open(sid, Append(0, prompt(50, sid)), Sample(1, hot(10, seed=sid)))
    driver.run()
    for sid in range(1, 5):
        assert list(driver.ended(sid).ids) == driver.model.expect(prompt(50, sid), hot(10, seed=sid))


def test_batch_and_warm_cache_do_not_change_the_output() -> None:
    params = hot(12, seed=99, repetition_penalty=1.3, presence_penalty=0.4, frequency_penalty=0.2, top_p=0.9)
    driver = Driver()
    expected = driver.model.expect(prompt(30), params)
    for sid in range(1, 10):
        driver.open(sid, Append(0, prompt(30)), Sample(1, params))
        if sid % 3 == 0:
            driver.run()
    for sid in range(1, 10):
        assert list(driver.ended(sid).ids) == expected


def test_choices_of_one_seed_differ() -> None:
    driver = Driver()
    driver.open(1, Append(0, prompt(30)), Sample(1, hot(12), choice=0))
    driver.open(2, Append(0, prompt(30)), Sample(1, hot(12), choice=1))
    driver.run()
    assert driver.ended(1).ids != driver.ended(2).ids
    assert list(driver.ended(2).ids) == driver.model.expect(prompt(30), hot(12), choice=1)


def test_the_next_op_starts_without_a_round_trip() -> None:
    driver = Driver()
    driver.open(1, Append(0, prompt(10)), Sample(1, greedy(3)), Append(2, (65, 66)), Sample(3, greedy(3)))
    driver.run()
    # 3 tokens, then [last token, 65, 66] in one forward, then 2 more
    assert driver.model.rows == [10, 1, 1, 3, 1, 1]
    first = list(driver.ended(1).ids)
    assert list(driver.ended(1, 3).ids) == driver.model.expect([*prompt(10), *first, 65, 66], greedy(3))
    assert driver.ended(1, 3).usage.prompt == 15 and driver.ended(1, 3).usage.cached == 12


def test_generated_tokens_are_found_by_the_next_turn() -> None:
    driver = Driver()
    driver.open(1, Append(0, prompt(100)), Sample(1, greedy(50)))
    driver.run()
    driver.send(CloseStrand(1))
    driver.run()
    history = [*prompt(100), *driver.ended(1).ids]
    driver.open(2, Append(0, (*history, 70, 71)), Sample(1, greedy(1)))
    driver.run()
    assert driver.ended(2).usage.cached == 149  # all that had KV: the very last token had none


def test_a_full_hit_still_computes_one_token() -> None:
    driver = Driver()
    for sid in (1, 2):
        driver.open(sid, Append(0, prompt(64)), Sample(1, greedy(4)))
        driver.run()
    assert driver.ended(2).usage.cached == 63
    assert driver.ended(2).ids == driver.ended(1).ids


def test_same_prefix_in_one_step_is_computed_once() -> None:
    for strands in (2, 8):
        driver = Driver()
        suffixes = {sid: prompt(sid - 1, 50 + sid) for sid in range(1, strands + 1)}
        for sid, suffix in suffixes.items():
            driver.open(sid, Append(0, prompt(600) + suffix), Sample(1, greedy(1)))
        driver.run()
        computed = sum(driver.ended(sid).usage.computed for sid in suffixes)
        assert computed <= 600 + sum(max(1, len(suffix)) for suffix in suffixes.values())
        assert computed == driver.model.computed
        for sid, suffix in suffixes.items():
            assert list(driver.ended(sid).ids) == driver.model.expect(prompt(600) + suffix, greedy(1))


def test_namespaces_share_nothing() -> None:
    driver = Driver()
    driver.open(1, Append(0, prompt(64)), Sample(1, greedy(2)), namespace="a")
    driver.open(2, Append(0, prompt(64)), Sample(1, greedy(2)), namespace="b")
    driver.run()
    assert driver.ended(1).usage.cached == driver.ended(2).usage.cached == 0
    assert driver.ended(1).ids == driver.ended(2).ids


# ---------------------------------------------------------------- ends


def test_eos_ends_and_never_enters_the_ids() -> None:
    model = FakeModel()
    ids = model.expect(prompt(20), greedy(10))
    driver = Driver(model=model)
    driver.open(1, Append(0, prompt(20)), Sample(1, greedy(10, stop_ids=(EOS, ids[4]))), Append(2, (65,)))
    driver.run()
    ended = driver.ended(1)
    assert (ended.reason, ended.matched) == ("stop", ids[4])
    stop_at = ids.index(ids[4])
    assert list(ended.ids) == ids[:stop_at]
    assert ended.usage.sampled == stop_at + 1
    assert driver.sent_ids(1) == ids[:stop_at]
    assert driver.core.state.strands[1].seq.ids.tolist() == [*prompt(20), *ids[:stop_at], 65]


def test_every_eos_id_stops_and_ignore_eos_lets_both_pass() -> None:
    model = FakeModel(bias={EOS: 3.9, OTHER_EOS: 4.0})
    driver = Driver(model=model)
    driver.open(1, Append(0, prompt(20)), Sample(1, greedy(30, stop_ids=(EOS, OTHER_EOS))))
    driver.open(2, Append(0, prompt(20)), Sample(1, greedy(30)))
    driver.run()
    assert driver.ended(1).reason == "stop" and driver.ended(1).matched in (EOS, OTHER_EOS)
    assert driver.ended(2).reason == "length" and len(driver.ended(2).ids) == 30


def test_min_tokens_masks_the_stop_ids() -> None:
    model = FakeModel(bias={EOS: 40.0})
    driver = Driver(model=model)
    driver.open(1, Append(0, prompt(20)), Sample(1, greedy(30, stop_ids=(EOS,), min_tokens=5)))
    driver.run()
    assert len(driver.ended(1).ids) == 5 and driver.ended(1).matched == EOS


def test_max_tokens_zero_is_prefill_only() -> None:
    driver = Driver()
    driver.open(1, Append(0, prompt(20)), Sample(1, greedy(0)))
    driver.run()
    ended = driver.ended(1)
    assert (ended.reason, ended.ids, driver.text(1)) == ("length", (), b"")
    assert (ended.usage.prompt, ended.usage.computed, ended.usage.completion) == (20, 20, 0)
    driver.open(2, Append(0, prompt(20)), Sample(1, greedy(1)))
    driver.run()
    assert driver.ended(2).usage.cached == 19


def test_an_empty_prompt_and_a_bad_id_are_errors_and_the_next_is_served() -> None:
    driver = Driver()
    driver.open(1, Sample(1, greedy(3)))
    driver.open(2, Append(0, (5, 99999)), Sample(1, greedy(3)))
    driver.open(3, Append(0, (5,)), Sample(1, greedy(3)))
    driver.run()
    assert [event.code for event in driver.of(1) if isinstance(event, OpFailed)] == ["invalid_value"]
    failed = driver.of(2)
    assert len(failed) == 1 and isinstance(failed[0], OpFailed) and failed[0].op == 0 and failed[0].field == "ids"
    assert driver.ended(3).reason == "length"
    assert set(driver.core.state.strands) == {3}


def test_the_context_bounds_prompt_and_output() -> None:
    driver = Driver(model=FakeModel(context_length=32))
    driver.open(1, Append(0, prompt(33)), Sample(1, greedy(3)))
    driver.open(2, Append(0, prompt(30)), Sample(1, greedy(9)))
    driver.run()
    (failed,) = driver.of(1)
    assert isinstance(failed, OpFailed) and failed.code == "context_length" and "32" in failed.message
    assert driver.ended(2).reason == "length" and len(driver.ended(2).ids) == 2


# ---------------------------------------------------------------- stop strings


def stop_case(stop: bytes, n: int = 20, seed: int = 3) -> tuple[Driver, list[int]]:
    model = FakeModel()
    ids = model.expect(prompt(20, seed), greedy(n))
    driver = Driver(model=model)
    driver.open(
        1, Append(0, prompt(20, seed)), Sample(1, greedy(n, stop=(stop,))), Append(2, (65,)), Sample(3, greedy(2))
    )
    return driver, ids


def test_a_stop_string_cuts_ids_kv_and_text() -> None:
    ids = FakeModel().expect(prompt(20, 3), greedy(20))
    text = Driver().vocabulary.decode(ids)
    stop = text[7:10]
    start = text.index(stop)
    driver, _ = stop_case(stop)
    driver.run()
    ended = driver.ended(1)
    assert driver.text(1) == text[:start]
    assert (ended.reason, ended.matched) == ("stop", stop.decode("utf-8", "replace"))
    assert driver.vocabulary.decode(ended.ids) == text[:start]
    # the next op goes on from the cut ids
    kept = [*prompt(20, 3), *ended.ids, 65]
    assert list(driver.ended(1, 3).ids) == driver.model.expect(kept, greedy(2))


def test_nothing_of_a_stop_is_ever_emitted_and_settled_ids_are_never_cut() -> None:
    ids = FakeModel().expect(prompt(20, 3), greedy(20))
    text = Driver().vocabulary.decode(ids)
    for length in (1, 2, 5, 9):
        stop = text[8 : 8 + length]
        driver, _ = stop_case(stop)
        seen, settled = b"", 0
        for _ in range(60):
            if driver.core.idle:
                break
            for event in driver.step():
                if isinstance(event, Tokens) and event.op == 1:
                    seen += event.data
                    settled = event.settled
                    assert stop not in seen
        ended = driver.ended(1)
        assert text[: text.index(stop)].startswith(seen)
        assert list(ended.ids[:settled]) == ids[:settled]


def test_a_stop_in_the_middle_of_a_token_re_encodes_what_is_left() -> None:
    the = 256 + 3  # b" the"
    model = FakeModel(bias={the: 30.0})
    driver = Driver(model=model)
    driver.open(1, Append(0, prompt(20)), Sample(1, greedy(9, stop=(b"e t",), logprobs=True)))
    driver.run()
    ended = driver.ended(1)
    # " the the" matches at byte 3: the first token goes, b" th" is encoded alone
    assert driver.text(1) == b" th"
    assert list(ended.ids) == driver.vocabulary.encode(b" th") and ended.tail == len(ended.ids) == 2
    assert ended.logprobs is not None and [entry.id for entry in ended.logprobs] == list(ended.ids)
    assert ended.usage.sampled == 2  # tokens that the stop cut are counted
    assert driver.core.state.strands[1].seq.ids.tolist() == [*prompt(20), *ended.ids]


def test_held_bytes_are_released_when_the_gen_ends() -> None:
    ids = FakeModel().expect(prompt(20, 3), greedy(8))
    text = Driver().vocabulary.decode(ids)
    driver = Driver()
    driver.open(1, Append(0, prompt(20, 3)), Sample(1, greedy(8, stop=(text[-3:] + b"zzz",))))
    driver.run()
    ended = driver.ended(1)
    assert ended.reason == "length" and driver.text(1) == text and ended.data == text[-3:]


def test_prompt_bytes_never_take_part_in_a_stop_or_in_the_text() -> None:
    model = FakeModel(bias={0xA9: 30.0})
    driver = Driver(model=model)
    driver.open(1, Append(0, (65, 0xC3)), Sample(1, greedy(2, stop=("é".encode(),))))
    driver.run()
    ended = driver.ended(1)
    assert ended.reason == "length" and driver.text(1) == b"\xa9\xa9"


# ---------------------------------------------------------------- logprobs


def test_logprobs_align_and_are_of_the_raw_logits() -> None:
    import numpy as np

    params = hot(6, logprobs=True, top_logprobs=3, logit_bias={70: 50.0}, temperature=0.5)
    driver = Driver()
    driver.open(1, Append(0, prompt(20)), Sample(1, params))
    driver.run()
    ended = driver.ended(1)
    assert ended.logprobs is not None and [entry.id for entry in ended.logprobs] == list(ended.ids) == [70] * 6
    streamed = [entry for event in driver.of(1) if isinstance(event, Tokens) for entry in event.logprobs]
    assert tuple(streamed) == ended.logprobs
    ids = list(prompt(20))
    for entry in ended.logprobs:
        row = driver.model.after(ids).astype(np.float64)
        logp = row - np.log(np.exp(row).sum())
        assert entry.logprob == pytest.approx(logp[entry.id], abs=1e-4)
        assert [token for token, _ in entry.top] == np.argsort(-logp, kind="stable")[:3].tolist()
        ids.append(entry.id)


def test_without_logprobs_there_are_none() -> None:
    driver = Driver()
    driver.open(1, Append(0, prompt(20)), Sample(1, greedy(3)))
    driver.run()
    assert driver.ended(1).logprobs is None
    assert all(event.logprobs == () for event in driver.of(1) if isinstance(event, Tokens))


# ---------------------------------------------------------------- replay


def test_an_abort_right_behind_a_replay_ends_what_an_earlier_epoch_began() -> None:
    driver = Driver()
    resumed = Sample(1, greedy(9), resume_ids=(65, 66), resume_usage=Usage(prompt=30, cached=4))
    driver.open(1, Append(0, prompt(30)), resumed, Sample(2, greedy(9)))
    driver.send(AbortStrand(1))
    driver.run()
    assert driver.ended(1).reason == "abort" and driver.ended(1).ids == (65, 66)
    assert driver.ended(1).usage.prompt == 30 and not driver.of(1, 2)
    assert not driver.core.state.strands


@pytest.mark.parametrize("cut", [0, 1, 5, 11])
def test_replay_emits_nothing_for_resumed_ids_and_ends_like_an_undisturbed_run(cut: int) -> None:
    text = Driver().vocabulary.decode(FakeModel().expect(prompt(30), hot(12)))
    params = hot(12, repetition_penalty=1.2, frequency_penalty=0.5, stop=(text[3:5] + b"\x00", b"never seen"))
    whole = Driver()
    whole.open(1, Append(0, prompt(30)), Sample(1, params))
    whole.run()
    first = Driver()
    first.open(1, Append(0, prompt(30)), Sample(1, params))
    while len(first.sent_ids(1)) < cut or not first.of(1):
        first.step()
    sent = first.sent_ids(1)
    got = b"".join(event.data for event in first.of(1) if isinstance(event, Tokens))
    (started,) = (event for event in first.of(1) if isinstance(event, Started))
    second = Driver()
    second.open(1, Append(0, prompt(30)), Sample(1, params, resume_ids=tuple(sent), resume_usage=started.usage))
    second.run()
    assert not any(isinstance(event, Started) for event in second.events)
    assert sent + second.sent_ids(1) == whole.sent_ids(1)
    assert got + second.text(1) == whole.text(1)
    old, new = whole.ended(1), second.ended(1)
    assert (new.ids, new.reason, new.matched) == (old.ids, old.reason, old.matched)
    assert (new.usage.prompt, new.usage.cached, new.usage.completion) == (30, 0, 12)
    assert new.usage.recomputed >= 30 + max(0, len(sent) - 1)
    last_settled = [event.settled for event in second.of(1) if isinstance(event, Tokens)]
    assert last_settled[-1] == [event.settled for event in whole.of(1) if isinstance(event, Tokens)][-1]


def test_replay_keeps_the_accounting_of_the_first_admission() -> None:
    driver = Driver()
    driver.open(
        1, Append(0, prompt(30)), Sample(1, greedy(4), resume_ids=(65,), resume_usage=Usage(prompt=30, cached=12))
    )
    driver.run()
    assert (driver.ended(1).usage.prompt, driver.ended(1).usage.cached) == (30, 12)


# ---------------------------------------------------------------- abort and close


def test_abort_ends_with_what_there_is_and_frees_everything_at_once() -> None:
    driver = Driver()
    driver.open(1, Append(0, prompt(30)), Sample(1, greedy(100, stop=(b"never",))), Sample(2, greedy(5)))
    for _ in range(10):
        driver.step()
    driver.send(AbortStrand(1))
    assert not len(driver.core.state.in_use()) and driver.core.state.tree.locked == 0
    driver.check()
    driver.run()
    ended = driver.ended(1)
    assert ended.reason == "abort" and len(ended.ids) == 10
    assert driver.text(1) == driver.vocabulary.decode(ended.ids)
    assert not driver.of(1, 2)
    assert not driver.core.state.strands


def test_abort_of_a_gen_that_waits_for_admission() -> None:
    driver = Driver(max_running=1)
    driver.open(1, Append(0, prompt(30)), Sample(1, greedy(10)))
    driver.open(2, Append(0, prompt(30, 1)), Sample(1, greedy(10)))
    driver.step()
    driver.send(AbortStrand(2))
    driver.run()
    assert (driver.ended(2).reason, driver.ended(2).ids) == ("abort", ())
    assert list(driver.ended(1).ids) == driver.model.expect(prompt(30), greedy(10))


def test_close_waits_for_queued_ops_and_says_nothing() -> None:
    driver = Driver()
    driver.open(1, Append(0, prompt(30)), Sample(1, greedy(4)))
    driver.send(CloseStrand(1))
    driver.run()
    assert isinstance(driver.of(1)[-1], Ended)
    assert not driver.core.state.strands and driver.core.state.tree.locked == 0


def test_messages_for_a_dead_strand_are_dropped() -> None:
    driver = Driver()
    driver.open(1, Sample(1, greedy(4)))
    driver.run()
    driver.extend(1, Append(2, (65,)), Sample(3, greedy(4)), ForkAt(4, (9,)))
    driver.extend(9, Sample(1, greedy(1)))
    driver.send(AbortStrand(1), CloseStrand(1), AbortStrand(77))
    assert driver.run() == []


def test_opening_a_sid_twice_is_a_fault_of_the_front() -> None:
    driver = Driver()
    driver.send(OpenStrand(1))
    with pytest.raises(ValueError, match="open already"):
        driver.send(OpenStrand(1))


# ---------------------------------------------------------------- faults


def test_a_raising_forward_fails_its_strands_and_poisons_nothing() -> None:
    driver = Driver()
    driver.open(9, Append(0, prompt(30, 9)), Sample(1, greedy(2)))
    driver.run()
    driver.model.break_when = lambda batch: len(batch.ids) > 20
    driver.open(1, Append(0, prompt(30)), Sample(1, greedy(4)))
    driver.open(2, Append(0, prompt(30)), Sample(1, greedy(4)))
    driver.run()
    for sid in (1, 2):
        (failed,) = (event for event in driver.of(sid) if isinstance(event, OpFailed))
        assert failed.code == "internal" and "broken on purpose" in failed.message
    driver.model.break_when = lambda batch: False
    driver.open(3, Append(0, prompt(30)), Sample(1, greedy(4)))
    driver.extend(9, Sample(2, greedy(2)))
    driver.run()
    assert driver.ended(3).usage.cached == 0, "what a failed forward should have written was found"
    assert list(driver.ended(3).ids) == driver.model.expect(prompt(30), greedy(4))
    assert driver.ended(9, 2).reason == "length"


def test_a_nan_row_fails_one_strand_and_hides_its_kv() -> None:
    driver = Driver()
    bad = prompt(30)
    driver.model.nan_when = lambda ids: ids[:30] == list(bad)
    driver.open(1, Append(0, bad), Sample(1, greedy(4)))
    driver.open(2, Append(0, prompt(30, 2)), Sample(1, greedy(4)))
    driver.run()
    (failed,) = (event for event in driver.of(1) if isinstance(event, OpFailed))
    assert "NaN" in failed.message
    assert list(driver.ended(2).ids) == driver.model.expect(prompt(30, 2), greedy(4))
    driver.model.nan_when = lambda ids: False
    driver.open(3, Append(0, bad), Sample(1, greedy(4)))
    driver.run()
    assert driver.ended(3).usage.cached == 0


def test_a_sibling_on_poisoned_kv_computes_it_again() -> None:
    driver = Driver()
    shared = prompt(30)
    driver.model.nan_when = lambda ids: len(ids) == 30 and ids == list(shared)
    driver.open(1, Append(0, shared), Sample(1, greedy(4)))
    driver.open(2, Append(0, (*shared, 65, 66)), Sample(1, greedy(4)))
    driver.run()
    assert any(isinstance(event, OpFailed) for event in driver.of(1))
    assert list(driver.ended(2).ids) == driver.model.expect((*shared, 65, 66), greedy(4))
    assert driver.ended(2).usage.recomputed > 0
