"""Ending within max_tokens: constrained texts come out whole, and say what was written in the model's place."""

from __future__ import annotations

import json
import re

import msgspec
import pytest
from core_kit import EOS, OTHER_EOS, Driver, FakeModel, greedy, hot, prompt
from layout_kit import is_dump

from plait.constrained.compiler import compile_spec
from plait.constrained.interface import ConstraintError, Matcher, Unfinished, WayOut
from plait.constrained.pushdown.matcher import PushdownConstraint, PushdownMatcher
from plait.runtime.core.closing import Closing
from plait.runtime.wire import Append, Define, Ended, Sample, SampleParams, Started, Tokens

STOPS = (EOS, OTHER_EOS)
#: a model that never ends a string by itself
ENDLESS = {ord('"'): -30.0, ord("\\"): -30.0, 266: -30.0, 267: -30.0}
TREE = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "size": {"type": "integer", "minimum": 10, "maximum": 99},
        "parts": {"type": "array", "items": {"$ref": "#"}},
    },
    "required": ["name", "size"],
    "additionalProperties": False,
}


def run(payload: bytes, params: SampleParams, bias: dict[int, float] | None = None, **how: object) -> Driver:
    driver = Driver(model=FakeModel(bias=bias))
    driver.send(Define("it", payload))
    driver.open(1, Append(0, prompt(20)), Sample(1, params, constraint="it", **how))  # type: ignore[arg-type]  # resume_ids by name
    driver.run()
    return driver


def regex(pattern: str) -> bytes:
    return compile_spec("regex", pattern)


def schema(value: object, **options: object) -> bytes:
    return compile_spec("spec", json.dumps({"json_schema": value, "options": options}))


def holds(value: object) -> bool:
    """Whether it is one of TREE."""
    return (
        isinstance(value, dict)
        and isinstance(value["name"], str)
        and value["size"] in range(10, 100)
        and value.keys() <= {"name", "size", "parts"}
        and all(holds(part) for part in value.get("parts", []))
    )


def test_an_open_string_is_closed_in_time() -> None:
    pattern = r'\{"a":"[^"\\]*","b":[0-9]{3}\}'
    cut = run(regex(pattern), hot(40, stop_ids=STOPS, wrap_up=False), ENDLESS)
    assert (cut.ended(1).reason, cut.ended(1).partial, cut.ended(1).usage.wrapped) == ("length", True, 0)
    driver = run(regex(pattern), hot(40, stop_ids=STOPS), ENDLESS)
    ended = driver.ended(1)
    assert re.fullmatch(pattern.encode(), driver.text(1), re.DOTALL)
    assert (ended.reason, ended.partial) == ("length", False) and ended.usage.wrapped > 0
    assert 30 <= len(ended.ids) <= 40, "most of the tokens are the model's own"
    assert driver.vocabulary.decode(ended.ids) == driver.text(1)
    assert ended.usage.completion == len(ended.ids)


def test_a_whole_text_can_say_stop() -> None:
    pattern = r'\{"a":"[^"\\]*","b":[0-9]{3}\}'
    length = run(regex(pattern), hot(40, stop_ids=STOPS), ENDLESS).ended(1)
    stop = run(regex(pattern), hot(40, stop_ids=STOPS, wrap_up="stop"), ENDLESS).ended(1)
    assert (length.reason, stop.reason) == ("length", "stop")
    assert (stop.ids, stop.usage.wrapped, stop.partial) == (length.ids, length.usage.wrapped, False)
    cut = run(regex(r'"[a-z]{99}"'), hot(40, stop_ids=STOPS, wrap_up="stop")).ended(1)
    assert (cut.reason, cut.partial) == ("length", True)
    number = run(
        regex(r"[0-9]+"), hot(40, stop_ids=STOPS, wrap_up="stop", end="eos"), dict.fromkeys(STOPS, -90.0)
    ).ended(1)
    assert (number.reason, number.usage.wrapped) == ("length", 0), "max_tokens ended it, and nothing gave way"


@pytest.mark.parametrize("limit", [24, 40, 80, 300])
@pytest.mark.parametrize("seed", range(8))
def test_every_text_of_a_recursive_schema_is_whole(seed: int, limit: int) -> None:
    bias = ENDLESS if seed % 2 else {ord(","): 6.0, ord("{"): 6.0}
    driver = run(schema(TREE), hot(limit, seed=seed, stop_ids=STOPS), bias)
    ended = driver.ended(1)
    assert not ended.partial and len(ended.ids) <= limit
    assert holds(json.loads(driver.text(1)))
    assert ended.reason == ("length" if ended.usage.wrapped else "stop")


@pytest.mark.parametrize("seed", range(6))
def test_a_text_that_ends_long_before_is_as_without(seed: int) -> None:
    pattern = r'\{"id": "[a-z]{2,9}", "of": [0-9]{1,3}\}'
    one, other = (run(regex(pattern), hot(300, seed=seed, stop_ids=STOPS, wrap_up=up)) for up in (True, False))
    assert one.ended(1).ids == other.ended(1).ids and one.ended(1).reason == "stop"
    assert one.ended(1).usage.wrapped == 0


def test_what_cannot_be_whole_is_cut_as_the_model_writes_it() -> None:
    pattern = r'"[a-z]*"[0-9]{50}'
    one, other = (run(regex(pattern), hot(30, stop_ids=STOPS, wrap_up=up), ENDLESS) for up in (True, False))
    assert one.ended(1).ids == other.ended(1).ids
    assert (one.ended(1).reason, one.ended(1).partial, one.ended(1).usage.wrapped) == ("length", True, 0)


def test_where_the_text_may_end_anyhow_nothing_is_changed() -> None:
    one, other = (run(regex(r"[a-z ]*"), hot(30, stop_ids=(), wrap_up=up), {EOS: -50.0}) for up in (True, False))
    assert one.ended(1).ids == other.ended(1).ids and not one.ended(1).partial


def test_values_after_the_endless_one_are_still_written() -> None:
    wanted = {
        "type": "object",
        "properties": {"story": {"type": "string"}, "score": {"enum": [3, 7]}, "tag": {"enum": ["red", "blue"]}},
        "required": ["story", "score", "tag"],
        "additionalProperties": False,
    }
    driver = run(schema(wanted, whitespace="compact"), hot(100, stop_ids=STOPS), ENDLESS)
    value = json.loads(driver.text(1))
    assert value["score"] in (3, 7) and value["tag"] in ("red", "blue") and len(value["story"]) > 30


@pytest.mark.parametrize(("lines", "most"), [(False, 100), (True, 200)])
def test_a_layout_that_the_text_itself_began_is_kept_to_the_end(lines: bool, most: int) -> None:
    wanted = {
        "type": "object",
        "properties": {
            "story": {"type": "string"},
            "score": {"enum": [3, 7]},
            "tags": {"type": "array", "minItems": 2},
        },
        "required": ["story", "score", "tags"],
    }
    likes = ENDLESS | {ord("\n"): 40.0 if lines else -40.0}
    driver = run(schema(wanted), hot(most, stop_ids=STOPS), likes)
    text = driver.text(1).decode()
    assert driver.ended(1).usage.wrapped > 0 and ("\n" in text) is lines
    assert is_dump(text) and json.loads(text)["score"] in (3, 7)


def test_logprobs_stay_aligned() -> None:
    pattern = r'\{"a":"[^"\\]*","b":[0-9]{3}\}'
    driver = run(regex(pattern), hot(40, stop_ids=STOPS, logprobs=True), ENDLESS)
    ended = driver.ended(1)
    assert ended.ids == run(regex(pattern), hot(40, stop_ids=STOPS), ENDLESS).ended(1).ids
    assert ended.logprobs is not None and [entry.id for entry in ended.logprobs] == list(ended.ids)
    assert sum(entry.forced for entry in ended.logprobs) == ended.usage.forced
    streamed = [entry for event in driver.of(1) if isinstance(event, Tokens) for entry in event.logprobs]
    assert tuple(streamed) == ended.logprobs


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("limit", [8, 9])
def test_a_text_that_just_fits_is_the_models_own(seed: int, limit: int) -> None:
    pattern = regex("[1-9]{3}-[1-9]{4}")
    one, other = (run(pattern, hot(limit, seed=seed, stop_ids=STOPS, wrap_up=up)) for up in (True, False))
    assert one.ended(1).ids == other.ended(1).ids and one.ended(1).usage.wrapped == 0


def test_where_nothing_is_left_to_choose_no_room_is_kept() -> None:
    likes_x = {ord("x"): 30.0}
    driver = run(regex("xbcdefgh|ok"), hot(8, stop_ids=STOPS), likes_x)
    assert driver.text(1) == b"xbcdefgh" and driver.ended(1).usage.wrapped == 0
    driver = run(regex("xbcdefgh|ok"), hot(7, stop_ids=STOPS), likes_x)
    assert driver.text(1) == b"ok" and driver.ended(1).usage.wrapped > 0


def test_a_text_that_is_whole_ends_where_another_part_does_not_fit() -> None:
    pattern = r"([a-z]{3,9}=[0-9]+\n)+"
    for seed in range(12):
        driver = run(regex(pattern), hot(20, seed=seed, stop_ids=()), {EOS: -50.0, OTHER_EOS: -50.0})
        ended = driver.ended(1)
        assert re.fullmatch(pattern.encode(), driver.text(1)) and not ended.partial and ended.reason == "length"
        assert ended.usage.wrapped > 0 or len(ended.ids) == 20


def test_what_needs_more_than_the_last_tokens_is_begun_in_time() -> None:
    keys = [f"key{i}" for i in range(20)]
    wanted = {
        "type": "object",
        "properties": {key: {"type": "string"} for key in keys},
        "required": keys,
        "additionalProperties": False,
    }
    driver = run(schema(wanted, whitespace="compact"), hot(330, stop_ids=STOPS), ENDLESS)
    value = json.loads(driver.text(1))
    assert list(value) == keys and len(value["key0"]) > 20 and driver.ended(1).reason == "length"


@pytest.mark.parametrize("items", [{"type": "string"}, {"type": "integer"}, {"enum": ["a", "bb", "ccc", "dddd", 5]}])
def test_unique_items_to_come_are_estimated(items: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """What they are would hang on each value before them: no value is tried for it."""
    inside, tried = False, 0
    resolve, completion = PushdownConstraint.resolve, PushdownMatcher.completion

    def counted(self: PushdownConstraint, nonterminal: int, value: bytes) -> int | None:
        nonlocal tried
        tried += inside
        return resolve(self, nonterminal, value)

    def watched(self: PushdownMatcher, most: int, seconds: float | None = None) -> WayOut | None:
        nonlocal inside
        inside = True
        try:
            return completion(self, most, seconds)
        finally:
            inside = False

    monkeypatch.setattr(PushdownConstraint, "resolve", counted)
    monkeypatch.setattr(PushdownMatcher, "completion", watched)
    wanted = {"type": "array", "uniqueItems": True, "minItems": 4, "items": items}
    driver = run(schema(wanted), hot(60, stop_ids=STOPS), ENDLESS | {ord("1"): 9.0})
    value = json.loads(driver.text(1))
    assert len(value) >= 4 and len(set(value)) == len(value) and not tried


def test_the_decision_is_looked_for_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    instead, refused = Closing.instead, 0

    def slow(self: Closing, matcher: Matcher, token: int, left: int, seconds: float | None = None) -> int | None:
        nonlocal refused
        refused += 1
        if refused % 3:
            raise Unfinished
        return instead(self, matcher, token, left, seconds)

    pattern = r'\{"a":"[^"\\]*","b":[0-9]{3}\}'
    whole = run(regex(pattern), hot(40, stop_ids=STOPS), ENDLESS)
    monkeypatch.setattr(Closing, "instead", slow)
    again = run(regex(pattern), hot(40, stop_ids=STOPS), ENDLESS)
    assert again.ended(1).ids == whole.ended(1).ids and refused > 60
    assert again.ended(1).usage.wrapped == whole.ended(1).usage.wrapped


@pytest.mark.parametrize("seed", range(3))
def test_replay_falls_on_the_same_edges(seed: int) -> None:
    params = hot(60, seed=seed, stop_ids=STOPS)
    bias = {ord(","): 6.0, ord("{"): 6.0}
    whole = run(schema(TREE), params, bias)
    (started,) = (event for event in whole.of(1) if isinstance(event, Started))
    frames = [event for event in whole.of(1) if isinstance(event, Tokens)]
    assert whole.ended(1).usage.wrapped == frames[-1].wrapped
    for upto in range(len(frames) + 1):
        ids = tuple(token for event in frames[:upto] for token in event.ids)
        usage = msgspec.structs.replace(started.usage, wrapped=frames[upto - 1].wrapped if upto else 0)
        again = run(schema(TREE), params, bias, resume_ids=ids, resume_usage=usage)
        old, new = whole.ended(1), again.ended(1)
        assert (new.ids, new.reason, new.partial) == (old.ids, old.reason, old.partial)
        assert new.usage.wrapped == old.usage.wrapped


def test_another_backend_goes_on_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PushdownMatcher, "completion", lambda self, most, seconds=None: None)
    driver = run(regex(r'"[a-z]*"'), greedy(30, stop_ids=STOPS), ENDLESS)
    ended = driver.ended(1)
    assert isinstance(ended, Ended) and (ended.reason, ended.partial) == ("length", True)


def test_a_limit_met_by_the_search_for_the_way_out_fails_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_large(self: PushdownMatcher, most: int, seconds: float | None = None) -> None:
        raise ConstraintError("more states than there may be")

    pattern = r'"[^"]*"'
    cut = run(regex(pattern), hot(30, stop_ids=STOPS, wrap_up=False), ENDLESS)
    monkeypatch.setattr(PushdownMatcher, "completion", too_large)
    for limit in (30, 600):
        ended = run(regex(pattern), hot(limit, stop_ids=STOPS), ENDLESS).ended(1)
        assert (ended.reason, ended.partial, ended.usage.wrapped) == ("length", True, 0)
        assert ended.ids[:30] == cut.ended(1).ids
