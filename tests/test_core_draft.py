"""Drafts: what they save, and that nothing else of a gen changes by them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from core_kit import EOS, OTHER_EOS, Driver, FakeModel, greedy, hot, prompt, vocabulary
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.constrained.compiler import compile_spec, load
from plait.constrained.draft import Habits, draft
from plait.constrained.interface import Matcher
from plait.runtime.wire import AbortStrand, Append, Define, Ended, OpFailed, Sample, SampleParams

STOPS = (EOS, OTHER_EOS)
SPACE = ord(" ")
RECORD = r'\{"name": ?"[a-c]{1,4}", ?"age": ?[0-9]{1,3}, ?"height": ?[0-9]{1,3}, ?"ok": ?(true|false)\}'
VOCABULARY = vocabulary()


def spaced(model: float, **how: Any) -> Driver:
    """``model``: how much it wants spaces."""
    return Driver(model=FakeModel(bias={SPACE: model}), **how)


def run(driver: Driver, pattern: str, params: SampleParams, sids: int = 1) -> list[Ended]:
    driver.send(Define(pattern, compile_spec("regex", pattern)))
    for sid in range(1, sids + 1):
        driver.open(sid, Append(0, prompt(20, seed=sid)), Sample(1, params, constraint=pattern))
    driver.run()
    return [driver.ended(sid) for sid in range(1, sids + 1)]


def said(ended: Ended) -> object:
    """All of it but what it cost in passes and seconds."""
    usage = ended.usage
    return (
        ended.reason,
        ended.ids,
        ended.matched,
        ended.partial,
        ended.logprobs,
        (usage.prompt, usage.cached, usage.sampled, usage.forced, usage.wrapped),
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


# ---------------------------------------------------------------- what must not change


@dataclass
class World:
    pattern: str
    params: SampleParams
    sids: int
    kv_tokens: int
    mixed_tokens: int
    likes: float


@st.composite
def worlds(draw: st.DrawFn) -> World:
    words = st.sampled_from(["[a-c]{1,3}", "[0-9]+", '"name"', "the abc", "(true|false)", '"height": ?', "(, ?[ab])*"])
    joint = st.sampled_from([", ?", ": ?", ",", " ", '": ?"', r"\n{0,2}", "! *"])
    parts = draw(st.lists(st.tuples(words, joint), min_size=1, max_size=6))
    return World(
        pattern="".join(word + mark for word, mark in parts) + draw(words),
        params=hot(
            draw(st.integers(1, 50)),
            seed=draw(st.integers(0, 99)),
            stop_ids=STOPS,
            stop=draw(st.sampled_from([(), (b", b",), (b"me",), (b"e ab",)])),
            logprobs=draw(st.booleans()),
            wrap_up=draw(st.booleans()),
            repetition_penalty=draw(st.sampled_from([1.0, 1.3])),
        ),
        sids=draw(st.integers(1, 4)),
        kv_tokens=draw(st.integers(75, 300)),
        mixed_tokens=draw(st.sampled_from([1, 3, 8, 128])),
        likes=draw(st.sampled_from([-20.0, 0.0, 4.0, 20.0])),
    )


@settings(max_examples=150, deadline=None)
@given(worlds())
def test_a_draft_changes_nothing_but_the_number_of_passes(world: World) -> None:
    told: list[object] = []
    for draft_s in (60.0, 0.0):
        how: dict[str, Any] = {"kv_tokens": world.kv_tokens, "mixed_tokens": world.mixed_tokens, "draft_s": draft_s}
        driver = spaced(world.likes, **how)
        told.append([said(ended) for ended in run(driver, world.pattern, world.params, world.sids)])
        assert driver.core.state.pool.total == world.kv_tokens
    drafted, plain = told
    assert drafted == plain


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
    for kv_tokens in range(90, 130):
        retractions = []
        for draft_s in (60.0, 0.0):
            driver = spaced(20.0, kv_tokens=kv_tokens, draft_s=draft_s, reserve_share=0.0)
            run(driver, RECORD, greedy(60, stop_ids=STOPS), 2)
            retractions.append(driver.core.stats().retractions)
        assert retractions[0] <= retractions[1]


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
