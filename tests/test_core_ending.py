"""Where a constrained text ends that could go on: where the model would not go on with it."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from core_kit import BLANK, EOS, OTHER_EOS, Driver, FakeModel, Writer, greedy, hot, prompt, vocabulary
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.constrained.backends import installed
from plait.constrained.compiler import compile_spec, load
from plait.runtime.core.sampler import SamplerRow, sample
from plait.runtime.wire import Append, Define, Sample, SampleParams, Started, Tokens

STOPS = (EOS, OTHER_EOS)
SPECIAL = 302
VOCABULARY = vocabulary()
encode = VOCABULARY.encode


def run(
    pattern: str, params: SampleParams, model: FakeModel, *more: object, backend: str = "plait", **how: object
) -> Driver:
    driver = Driver(model=model)
    driver.send(Define("k", compile_spec("regex", pattern, backend=backend)))
    driver.open(1, Append(0, prompt(20)), Sample(1, params, constraint="k", **how), *more)  # type: ignore[arg-type]  # resume_ids by name
    driver.run()
    return driver


def natural(max_tokens: int = 20, **how: object) -> SampleParams:
    return greedy(max_tokens, **{"end": "natural", "stop_ids": STOPS, **how})


def written(*ids: int | bytes) -> Writer:
    return Writer([token for part in ids for token in ([part] if isinstance(part, int) else encode(part))])


# ---------------------------------------------------------------- where it ends


@pytest.mark.parametrize("pattern", [r"[0-9]+", r"-?(0|[1-9][0-9]{0,18})", r"[0-9]{2,}", r"([0-9]+)( [0-9]+)*"])
def test_a_number_ends_where_the_model_goes_on_with_a_word(pattern: str) -> None:
    driver = run(pattern, natural(), written(b"24", b" the"), Append(2, (65,)), Sample(3, greedy(2)))
    ended = driver.ended(1)
    assert driver.text(1) == b"24" and ended.ids == tuple(encode(b"24")) and ended.tail == 0
    assert (ended.reason, ended.matched, ended.partial) == ("stop", None, False)
    assert (ended.usage.sampled, ended.usage.steps) == (3, 3), "the drawn token counts as an end token does"
    assert driver.core.state.strands[1].seq.ids.tolist()[:23] == [*prompt(20), *encode(b"24"), 65]


def test_held_to_the_mask_it_would_go_on() -> None:
    ended = run(r"[0-9]+", natural(end="eos"), written(b"24", b" the")).ended(1)
    assert ended.ids[:2] == tuple(encode(b"24")) and len(ended.ids) > 2


def test_a_token_that_goes_on_is_taken() -> None:
    driver = run(r"[0-9]+( the)?", natural(), written(b"24", b" the", b"!"))
    assert driver.text(1) == b"24 the" and driver.ended(1).usage.sampled == 3


def test_inside_the_text_the_mask_rules() -> None:
    driver = run(r"[0-9]+ the abc", natural(), written(b"24", b"x"))
    assert re.fullmatch(rb"24[0-9]* the abc", driver.text(1)) or driver.ended(1).reason == "length"


@pytest.mark.parametrize("token", [*STOPS, SPECIAL])
def test_special_ids_end_it_and_only_end_tokens_are_named(token: int) -> None:
    ended = run(r"[0-9]+", natural(), written(b"24", token)).ended(1)
    assert (ended.reason, ended.ids, ended.usage.sampled) == ("stop", tuple(encode(b"24")), 3)
    assert ended.matched == (token if token in STOPS else None)


def test_a_stop_token_is_named_and_gives_nothing_to_the_text() -> None:
    twelve = VOCABULARY.id_of[b"12"]
    ended = run(r"1{1,2}", natural(stop_ids=(*STOPS, twelve)), written(b"1", twelve)).ended(1)
    assert (ended.reason, ended.matched, ended.ids, ended.tail) == ("stop", twelve, (ord("1"),), 0)


def test_an_empty_text_is_masked_and_an_end_token_ends_it() -> None:
    driver = run(r"[0-9]*", natural(3), written(b" the"))
    assert re.fullmatch(rb"[0-9]{1,3}", driver.text(1))
    ended = run(r"[0-9]*", natural(3), written(EOS)).ended(1)
    assert (ended.ids, ended.matched) == ((), EOS)


def test_min_tokens_masks_until_it_is_reached() -> None:
    driver = run(r"[0-9]+", natural(min_tokens=4), written(b"24", b" the", b"7", b" the"))
    assert re.fullmatch(rb"24[0-9]7", driver.text(1)) and driver.ended(1).reason == "stop"


def test_ignore_eos_goes_on_while_the_text_can() -> None:
    model = written(b"24", EOS, b" the")
    ended = run(r"[0-9]+", natural(9, end="never", stop_ids=()), model).ended(1)
    assert (ended.reason, len(ended.ids)) == ("length", 9) and not set(STOPS) & set(ended.ids)
    ended = run(r"[0-9]{3}", natural(9, end="never", stop_ids=()), model).ended(1)
    assert (ended.reason, len(ended.ids)) == ("stop", 3)


# ---------------------------------------------------------------- what of the drawn token belongs to the text


def test_the_longest_whole_beginning_of_the_drawn_token_is_taken() -> None:
    driver = run(r"(ab)+", natural(), written(b"ab", VOCABULARY.id_of[b"abc"]))
    ended = driver.ended(1)
    assert driver.text(1) == b"abab" and ended.tail == 1 and not ended.partial
    assert ended.ids == (VOCABULARY.id_of[b"ab"],) * 2 and ended.usage.completion == 2
    assert driver.sent_ids(1) == [VOCABULARY.id_of[b"ab"]], "the tail comes with the end, as a stop's does"


def test_it_is_marked_in_the_logprobs_as_a_stops_tail_is() -> None:
    driver = run(r"(ab)+", natural(logprobs=True), written(b"ab", VOCABULARY.id_of[b"abc"]))
    logprobs = driver.ended(1).logprobs
    assert logprobs is not None and [entry.id for entry in logprobs] == list(driver.ended(1).ids)
    row = driver.model.after([*prompt(20), *encode(b"ab")]).astype(np.float64)
    drawn = row[VOCABULARY.id_of[b"abc"]] - np.log(np.exp(row - row.max()).sum()) - row.max()
    assert logprobs[-1].logprob == pytest.approx(drawn, abs=1e-4), "it has the number of the token that was drawn"


def test_it_never_passes_max_tokens() -> None:
    the = VOCABULARY.id_of[b" the"]
    for limit, text in ((2, b"a"), (3, b"a t")):
        driver = run(r"a( t)?", natural(limit), written(b"a", the))
        ended = driver.ended(1)
        assert driver.text(1) == text and len(ended.ids) <= limit and ended.reason == "stop", limit


@pytest.mark.parametrize("logprobs", [False, True])
def test_logprobs_leave_the_drawn_token_out(logprobs: bool) -> None:
    ended = run(r"[0-9]+", natural(logprobs=logprobs), written(b"24", b" the")).ended(1)
    assert ended.logprobs is None or [entry.id for entry in ended.logprobs] == list(ended.ids)
    assert (ended.logprobs is None) == (not logprobs)


# ---------------------------------------------------------------- stops


@pytest.mark.parametrize(
    ("stop", "drawn", "text", "matched"),
    [
        ((b",", b"}"), b",", b"24", ","),
        ((b",", b"}"), b"!", b"24", None),
        ((b" t",), b" the", b"24", " t"),
        ((b"4 the",), b" the", b"2", "4 the"),
        ((b"24 the",), b" the", b"", "24 the"),
        ((b"4x",), b"x", b"2", "4x"),
        ((b"4xy",), b"x", b"24", None),
    ],
)
def test_the_stop_that_the_text_and_the_drawn_token_complete(
    stop: tuple[bytes, ...], drawn: bytes, text: bytes, matched: str | None
) -> None:
    driver = run(r"[0-9]+", natural(stop=stop), written(b"24", drawn))
    ended = driver.ended(1)
    assert (driver.text(1), ended.reason, ended.matched) == (text, "stop", matched)
    assert ended.partial == (not text) and VOCABULARY.decode(ended.ids) == text


def test_a_stop_within_the_drawn_token_bounds_what_is_taken_of_it() -> None:
    driver = run(r"(ab|c)+", natural(stop=(b"c",), end="natural"), written(b"ab", VOCABULARY.id_of[b"abc"]))
    assert driver.text(1) == b"abab" and driver.ended(1).matched == "c"
    driver = run(r"(ab)+", natural(stop=(b"c",)), written(b"ab", VOCABULARY.id_of[b"abc"]))
    assert driver.text(1) == b"abab" and driver.ended(1).matched == "c" and driver.ended(1).tail == 1
    driver = run(r"(ab)+", natural(stop=(b"bc",)), written(b"ab", VOCABULARY.id_of[b"abc"]))
    assert driver.text(1) == b"ab" and driver.ended(1).matched == "bc" and not driver.ended(1).partial


def test_a_stop_regex_is_named_too() -> None:
    driver = run(r"[0-9]+", natural(stop_regex=(r" t[a-z]e",)), written(b"24", b" the"))
    assert (driver.text(1), driver.ended(1).matched) == (b"24", " the")


def test_held_back_bytes_are_released_where_no_stop_came() -> None:
    driver = run(r"[0-9]+", natural(stop=(b"4x",)), written(b"24", b" the"))
    assert driver.text(1) == b"24" and driver.ended(1).matched is None


# ---------------------------------------------------------------- beside everything else


def test_a_wrapped_up_text_says_length_where_it_ends_so() -> None:
    pattern = r'"[^"]*"( the)*'
    model = FakeModel(bias={ord("x"): 30.0})
    ended = run(pattern, natural(12), model).ended(1)
    assert (ended.reason, ended.partial) == ("length", False) and ended.usage.wrapped > 0


@pytest.mark.parametrize("params", [{"logit_bias": {ord("7"): 500.0}}, {"logit_bias": {ord("!"): 500.0}}])
def test_bias_counts_where_the_mask_does_not(params: dict[str, object]) -> None:
    driver = run(r"[0-9]+", natural(4, **params), written(b"24", b" the"))
    if ord("7") in params["logit_bias"]:  # type: ignore[operator]  # a dict
        assert driver.text(1) == b"7777"
    else:
        assert re.fullmatch(rb"[0-9]", driver.text(1)) and driver.ended(1).reason == "stop"


def test_ids_without_a_token_are_never_drawn() -> None:
    bias = dict.fromkeys(BLANK, 50.0)
    for params in (natural(30), natural(30, logit_bias=dict.fromkeys(BLANK, 90.0)), hot(30, end="natural")):
        driver = Driver(model=FakeModel(bias=bias))
        driver.send(Define("k", compile_spec("regex", r"[a-z0-9 ]+")))
        driver.open(1, Append(0, prompt(20)), Sample(1, params, constraint="k"))
        driver.open(2, Append(0, prompt(21)), Sample(1, params))
        driver.run()
        for sid in (1, 2):
            assert not set(driver.ended(sid).ids) & set(BLANK)
        assert driver.ended(2).ids


@pytest.mark.parametrize("backend", installed())
def test_other_engines_end_by_their_mask_bits(backend: str) -> None:
    driver = run(r"[0-9]+", natural(), written(b"24", b" the"), backend=backend)
    assert driver.text(1) == b"24" and driver.ended(1).reason == "stop"
    driver = run(r"(ab)+", natural(), written(b"ab", VOCABULARY.id_of[b"abc"]), backend=backend)
    assert driver.text(1) == b"abab" and driver.ended(1).tail == 1


#: nothing in them is forced: what is, takes no draw, and its tokens are the encoder's
OPEN = [
    r"[a-z]+",
    r"[A-Z][a-z]*( [A-Z][a-z]*)*",
    r"-?[0-9]+(\.[0-9]+)?",
    r"[ab]+([0-9 ]{1,3}[!?])?",
    r"[^x]{1,9}",
]
PATTERNS = [*OPEN, r"(the|ab|abc)+( [0-9]{1,3})?", r'\{"[a-c]{1,4}": ?[0-9]{1,3}\}( |!)*']


def whole(pattern: str, text: bytes) -> bool:
    try:
        return re.fullmatch(pattern, text.decode()) is not None
    except UnicodeDecodeError:
        return False


def expected(pattern: str, params: SampleParams, model: FakeModel, ids: Sequence[int]) -> tuple[bytes, int]:
    """The text, and how many tokens were drawn for it: the rule, in a loop without an engine."""
    matcher = load(compile_spec("regex", pattern), VOCABULARY, "k").matcher()
    row, out, text, drawn = SamplerRow(params, np.asarray(ids)), list(ids), b"", 0
    while len(out) - len(ids) < params.max_tokens:
        if matcher.finished:
            break
        free = bool(text) and whole(pattern, text) and len(out) - len(ids) >= params.min_tokens
        row.mask = None if free else matcher.mask()
        token = sample(model.after(out)[None], [row])[0].id
        drawn += 1
        if token in STOPS:
            break
        data = VOCABULARY.bytes(token)
        if not matcher.advance(token):
            for end in range(len(data), 0, -1):
                tail = encode(data[:end])
                if whole(pattern, text + data[:end]) and len(out) - len(ids) + len(tail) <= params.max_tokens:
                    return text + data[:end], drawn
            break
        text += data
        out.append(token)
        row.observe(token)
    return text, drawn


@settings(max_examples=60)
@given(
    pattern=st.sampled_from(OPEN),
    seed=st.integers(0, 2**32),
    liked=st.lists(st.integers(0, 267), max_size=6),
    limit=st.integers(1, 14),
    least=st.integers(0, 3),
    heat=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_it_is_the_rule_in_a_loop(
    pattern: str, seed: int, liked: list[int], limit: int, least: int, heat: float
) -> None:
    params = SampleParams(
        limit, seed, min(least, limit), temperature=heat, stop_ids=STOPS, end="natural", wrap_up=False, top_p=0.95
    )
    model = FakeModel(bias=dict.fromkeys(liked, 6.0))
    text, drawn = expected(pattern, params, model, prompt(20))
    driver = run(pattern, params, model)
    ended = driver.ended(1)
    assert driver.text(1) == text
    assert ended.usage.completion == drawn
    assert ended.partial == (not whole(pattern, text))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("pattern", PATTERNS)
def test_replay_after_every_frame_ends_as_it_did(pattern: str, seed: int) -> None:
    params = hot(12, seed=seed, stop=(b"zz", b"!"), stop_ids=STOPS, end="natural", frequency_penalty=0.3)
    model = FakeModel(bias={ord("a"): 3.0, ord("1"): 3.0})
    whole = run(pattern, params, model)
    frames = [event for event in whole.of(1) if isinstance(event, Tokens)]
    (started,) = (event for event in whole.of(1) if isinstance(event, Started))
    for upto in range(len(frames) + 1):
        ids = tuple(token for event in frames[:upto] for token in event.ids)
        usage = msgspec.structs.replace(started.usage, wrapped=frames[upto - 1].wrapped if upto else 0)
        again = run(pattern, params, FakeModel(bias=model_bias(model)), resume_ids=ids, resume_usage=usage)
        old, new = whole.ended(1), again.ended(1)
        assert (new.ids, new.reason, new.matched, new.tail) == (old.ids, old.reason, old.matched, old.tail)
        assert (new.usage.completion, new.usage.wrapped) == (old.usage.completion, old.usage.wrapped)


def model_bias(model: FakeModel) -> dict[int, float]:
    assert model.bias is not None
    return {token: float(value) for token, value in enumerate(model.bias) if value}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("pattern", PATTERNS)
def test_neighbours_chunks_and_drafts_change_nothing(pattern: str, seed: int) -> None:
    params = hot(14, seed=seed, stop_ids=STOPS, end="natural")
    alone = run(pattern, params, FakeModel()).ended(1)
    for how in ({"forward_rows": 0.0}, {"step_tokens": 7, "mixed_tokens": 7}):
        driver = Driver(**how)  # type: ignore[arg-type]  # settings by name
        driver.send(Define("k", compile_spec("regex", pattern)))
        for sid in (1, 2, 3):
            driver.open(sid, Append(0, prompt(20)), Sample(1, params, constraint="k"))
        driver.run()
        for sid in (1, 2, 3):
            ended = driver.ended(sid)
            assert (ended.ids, ended.reason, ended.matched) == (alone.ids, alone.reason, alone.matched)
