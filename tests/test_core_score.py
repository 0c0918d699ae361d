"""Score: the trie, the three methods against a plain computation, KV of the winner, limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from core_kit import Driver, FakeModel, greedy, prompt
from hypothesis import given
from hypothesis import strategies as st

from plait.runtime.core.choices import choose
from plait.runtime.core.trie import ChoiceTrie
from plait.runtime.protocol import Method
from plait.runtime.wire import Append, OpFailed, Sample, Score, Scored

METHODS: tuple[Method, ...] = (
    "token_length_normalized",
    "greedy_token_selection",
    "unconditional_likelihood_normalized",
)
CHOICES = ((65, 66, 67), (65, 66), (65, 70, 71, 72), (80,), (81, 82))


def plain(model: FakeModel, before: list[int], choice: tuple[int, ...]) -> list[float | None]:
    out: list[float | None] = []
    for at, token in enumerate(choice):
        ids = [*before, *choice[:at]]
        if not ids:
            out.append(None)
            continue
        row = model.after(ids).astype(np.float64)
        out.append(float(row[token] - math.log(np.exp(row).sum())))
    return out


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("prefix", [(), (7,), (7, 8, 9)])
def test_scores_equal_a_plain_computation(method: Method, prefix: tuple[int, ...]) -> None:
    driver = Driver()
    driver.open(1, Append(0, prompt(30)), Score(1, CHOICES, method, 0.0, 5, prefix), Sample(2, greedy(3)))
    driver.run()
    (scored,) = (event for event in driver.of(1, 1) if isinstance(event, Scored))
    given_ = [plain(driver.model, list(prompt(30)), choice) for choice in CHOICES]
    alone = [plain(driver.model, list(prefix), choice) for choice in CHOICES]
    winner, scores = choose(method, given_, alone, temperature=0.0, seed=5)
    assert scored.winner == winner and scored.scores == pytest.approx(scores, abs=1e-4)
    ids = [*prompt(30), *CHOICES[winner]]
    assert list(driver.ended(1, 2).ids) == driver.model.expect(ids, greedy(3))
    assert driver.ended(1, 2).usage.cached >= len(ids) - 2, "the winner's KV was kept"
    assert scored.usage.prompt == 30 and scored.usage.forced == len(CHOICES[winner])


def test_shared_prefixes_are_computed_once_and_leaves_not_at_all() -> None:
    driver = Driver()
    driver.open(1, Append(0, prompt(30)), Score(1, CHOICES, METHODS[0], 0.0, 5))
    driver.run()
    assert driver.model.rows == [30 + 5]  # the inner nodes: 65, 65 66, 65 70, 65 70 71, 81


def test_single_token_choices_need_no_row_of_their_own() -> None:
    driver = Driver()
    driver.open(1, Append(0, prompt(30)), Score(1, ((65,), (66,), (67,)), METHODS[0], 0.0, 5))
    driver.run()
    assert driver.model.rows == [30]


def test_behind_nothing_but_bos() -> None:
    driver = Driver()
    driver.open(1, Append(0, (302,)), Score(1, CHOICES, METHODS[2], 0.0, 5, (302,)))
    driver.open(2, Score(1, CHOICES, METHODS[0], 0.0, 5))
    driver.run()
    (scored,) = (event for event in driver.of(1) if isinstance(event, Scored))
    assert scored.scores == pytest.approx([0.0] * len(CHOICES), abs=1e-5)  # with and without the prompt are the same
    (failed,) = driver.of(2)
    assert isinstance(failed, OpFailed) and failed.code == "invalid_value"


def test_temperature_draws_by_seed() -> None:
    winners = set()
    for seed in range(12):
        driver = Driver()
        driver.open(1, Append(0, prompt(30)), Score(1, CHOICES, METHODS[0], 2.0, seed))
        driver.run()
        (scored,) = (event for event in driver.of(1) if isinstance(event, Scored))
        winners.add(scored.winner)
    assert len(winners) > 1


@pytest.mark.parametrize("step_tokens", [1, 2, 5])
def test_a_budget_smaller_than_the_choices(step_tokens: int) -> None:
    whole, driver = Driver(), Driver(step_tokens=step_tokens, mixed_tokens=step_tokens, score_rows=step_tokens)
    for each in (whole, driver):
        each.open(1, Append(0, prompt(9)), Score(1, CHOICES, METHODS[2], 0.0, 5, (7, 8, 9)), Sample(2, greedy(3)))
        each.open(2, Append(0, prompt(9, 2)), Sample(1, greedy(9)))
        each.run()
    (a,), (b,) = ([event for event in each.of(1) if isinstance(event, Scored)] for each in (whole, driver))
    assert a.winner == b.winner and a.scores == pytest.approx(b.scores)
    assert whole.ended(1, 2).ids == driver.ended(1, 2).ids


def test_bad_choices_are_errors() -> None:
    driver = Driver(model=FakeModel(context_length=32))
    for sid, choices in ((1, ()), (2, ((),)), (3, ((65,), ())), (4, ((99999,),)), (5, (tuple(range(30)),))):
        driver.open(sid, Append(0, prompt(9)), Score(1, choices, METHODS[0], 0.0, 5))
    driver.run()
    for sid in range(1, 6):
        (failed,) = driver.of(sid)
        assert isinstance(failed, OpFailed) and failed.field == "choices", failed


def test_scratch_slots_go_back_on_abort_and_on_nan() -> None:
    from plait.runtime.wire import AbortStrand

    driver = Driver(step_tokens=2, score_rows=2)
    driver.open(1, Append(0, prompt(3)), Score(1, CHOICES, METHODS[2], 0.0, 5, (7, 8, 9)))
    for _ in range(3):
        driver.step()
    assert len(driver.core.state.in_use())
    driver.send(AbortStrand(1))
    assert not len(driver.core.state.in_use())
    driver.check()
    driver.model.nan_when = lambda ids: ids[-2:] == [65, 70]
    driver.open(2, Append(0, prompt(3)), Score(1, CHOICES, METHODS[0], 0.0, 5))
    driver.run()
    (failed,) = driver.of(2)
    assert isinstance(failed, OpFailed) and not len(driver.core.state.in_use())


def test_choices_larger_than_the_pool_fail_alone() -> None:
    driver = Driver(kv_tokens=64)
    driver.open(1, Append(0, prompt(40)), Score(1, (prompt(30, 1), prompt(30, 2)), METHODS[0], 0.0, 5))
    driver.open(2, Append(0, prompt(40, 2)), Sample(1, greedy(4)))
    driver.run()
    (failed,) = driver.of(1)
    assert isinstance(failed, OpFailed) and failed.code == "kv_exhausted"
    assert failed.message.startswith("98 tokens") and "the choices" in failed.message  # 40 + 2 * 29 inner ones
    assert driver.ended(2).reason == "length"


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), min_size=1, max_size=8))
def test_the_trie_has_every_choice_and_covers_each_inner_node_once(choices: list[list[int]]) -> None:
    trie = ChoiceTrie(choices)
    for choice, path in zip(choices, trie.paths):
        assert [trie.tokens[node] for node in path] == choice
        assert trie.path(path[-1]) == path
    runs = trie.runs()
    flat = [node for run in runs for node in run]
    assert len(flat) == len(set(flat)) == trie.inner
    assert all(trie.children[node] for node in flat)
    seen = {-1}
    for run in runs:
        for above, node in zip([trie.parents[run[0]], *run], run):
            assert trie.parents[node] == above and above in seen
            seen.add(node)
