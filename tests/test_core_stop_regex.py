"""Stop regexes in the core: the gen ends in the step in which a match ends, and the text ends where it began."""

from __future__ import annotations

import re

import pytest
from core_kit import EOS, OTHER_EOS, Driver, greedy, hot, prompt

from plait.constrained.compiler import compile_spec
from plait.runtime.protocol import Usage
from plait.runtime.wire import Append, Define, OpFailed, Sample, SampleParams

STOPS = (EOS, OTHER_EOS)


def played(params: SampleParams, constraint: str | None = None, **how: object) -> Driver:
    driver = Driver()
    if constraint is not None:
        driver.send(Define(constraint, compile_spec("regex", constraint)))
    sample = Sample(1, params, constraint=constraint, **how)  # type: ignore[arg-type]  # by name
    driver.open(1, Append(0, prompt(20)), sample, Append(2, (65,)), Sample(3, greedy(2)))
    driver.run()
    return driver


@pytest.mark.parametrize("seed", range(5))
def test_a_free_gen_ends_where_the_first_match_began(seed: int) -> None:
    free = played(hot(400, seed=seed))
    text = free.text(1).decode("latin-1")
    pattern = "[a-z][0-9A-Z]"
    found = min(re.finditer(f"(?=({pattern}))", text), key=lambda match: match.start())
    driver = played(hot(400, seed=seed, stop_regex=(pattern,)))
    ended = driver.ended(1)
    assert (ended.reason, ended.matched) == ("stop", found[1])
    assert driver.text(1).decode("latin-1") == text[: found.start()]
    assert driver.vocabulary.decode(ended.ids) == driver.text(1)
    after = driver.model.expect([*prompt(20), *ended.ids, 65], greedy(2))
    assert list(driver.ended(1, 3).ids) == after, "the strand goes on from what was kept"


def test_a_stop_regex_beside_a_constraint_and_inside_a_forced_run() -> None:
    driver = played(greedy(40, stop_ids=STOPS, stop_regex=("s+t",)), "[x]qrssstuvw[0-8]")
    ended = driver.ended(1)
    assert (driver.text(1), ended.reason, ended.matched, ended.partial) == (b"xqr", "stop", "ssst", True)


def test_the_earliest_end_wins_over_stop_strings() -> None:
    for stop, pattern, matched, text in (
        (b"rss", "s+t", "rss", b"xq"),
        (b"tu", "s+t", "ssst", b"xqr"),
        (b"sst", "rs+t", "rssst", b"xq"),
    ):
        driver = played(greedy(40, stop=(stop,), stop_regex=(pattern,), stop_ids=STOPS), "[x]qrssstuvw[0-8]")
        assert (driver.ended(1).matched, driver.text(1)) == (matched, text)


def test_what_was_held_back_comes_when_nothing_matched() -> None:
    driver = played(greedy(40, stop_ids=STOPS, stop_regex=(".*z",)), "[x]qrs")
    assert (driver.text(1), driver.ended(1).reason, driver.ended(1).matched) == (b"xqrs", "stop", None)


def test_a_replay_falls_on_the_same_match() -> None:
    params = hot(200, seed=1, stop_regex=("[a-z][0-9A-Z]",))
    whole = played(params)
    sampled = whole.sent_ids(1)
    for cut in (1, len(sampled) // 2, len(sampled)):
        usage = Usage(prompt=20)
        again = played(params, resume_ids=tuple(sampled[:cut]), resume_usage=usage)
        assert again.ended(1).ids == whole.ended(1).ids and again.ended(1).matched == whole.ended(1).matched


def test_a_stop_regex_that_holds_too_much_open_fails_its_strand() -> None:
    driver = played(greedy(3000, stop_ids=STOPS, stop_regex=("a.{1,4000}b",)), "a{2900}")
    failed = [event for event in driver.of(1) if isinstance(event, OpFailed)]
    assert [(event.code, event.field) for event in failed] == [("invalid_value", "stop_regex")]
