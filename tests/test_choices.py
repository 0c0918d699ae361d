"""The three ways to score choices, with the published vectors and the published faults."""

import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.runtime.core.choices import (
    choose,
    greedy_token_selection,
    pick,
    token_length_normalized,
    unconditional_likelihood_normalized,
)
from plait.runtime.protocol import Method

ORGAN, ORGANISM, LONG = 0, 1, 2
GIVEN = [[-0.1], [-0.1, -0.3], [-0.2, -0.125, -0.05, *[-0.005] * 5]]
ALONE = [[None], [None, -1.4], [None, -0.125, -0.05, *[-0.03] * 5]]


@pytest.mark.parametrize(
    ("method", "winner"),
    [
        ("token_length_normalized", LONG),
        ("greedy_token_selection", ORGAN),
        ("unconditional_likelihood_normalized", ORGANISM),
    ],
)
def test_each_method_has_its_own_winner(method: Method, winner: int) -> None:
    assert choose(method, GIVEN, ALONE).winner == winner


def test_scores() -> None:
    assert token_length_normalized(GIVEN) == pytest.approx([-0.1, -0.2, -0.05])
    # The third fell behind at its first token, the second at its second (against the first's mean).
    assert greedy_token_selection(GIVEN) == pytest.approx([0.0, -0.2, -0.1])
    assert unconditional_likelihood_normalized(GIVEN, ALONE) == pytest.approx([-0.1, 0.5, -0.009375])


def test_zero_is_a_number() -> None:
    """Means that skip 0.0, or divide by the wrong length, pick the other one (or divide by zero)."""
    assert token_length_normalized([[0.0, -3.0], [-2.0, -2.0]]) == [-1.5, -2.0]
    assert choose("token_length_normalized", [[-1.0], [0.0, 0.0]]).winner == 1
    assert choose("greedy_token_selection", [[0.0], [0.0, -1.0]]).winner == 0
    assert unconditional_likelihood_normalized([[0.0, 0.0]], [[0.0, -1.0]]) == [0.5]


def test_none_is_left_out_of_a_mean_and_counts_zero_alone() -> None:
    assert token_length_normalized([[None, -1.0, -2.0]]) == [-1.5]
    assert unconditional_likelihood_normalized([[-1.0, -1.0]], [[None, -3.0]]) == [0.5]


def test_first_of_equals() -> None:
    for method in ("token_length_normalized", "greedy_token_selection"):
        assert choose(method, [[-2.0], [-1.0], [-1.0]]).winner == 1
    assert greedy_token_selection([[-1.0, -2.0], [-1.0, -2.0]]) == [0.0, 0.0]


def test_greedy_only_compares_what_is_still_alive() -> None:
    scores = greedy_token_selection([[-1.0, -5.0], [-1.0, -6.0], [-2.0, -0.1]])
    assert scores == [0.0, -1.0, -1.0]


def test_impossible_tokens() -> None:
    assert choose("token_length_normalized", [[-math.inf, 0.0], [-9.0]]).winner == 1
    assert choose("token_length_normalized", [[-math.inf], [-math.inf]]).winner == 0
    assert unconditional_likelihood_normalized([[-math.inf]], [[-math.inf]]) == [-math.inf]
    assert pick([-math.inf, -math.inf], 1.0, 3) in (0, 1)


@pytest.mark.parametrize(
    ("given_", "fault"),
    [([], "no choices"), ([[-1.0], []], "choice 1 has no scored token"), ([[math.nan]], "choice 0 .* not a number")],
)
def test_bad_input(given_: list[list[float]], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        choose("token_length_normalized", given_)


def test_unconditional_needs_its_second_pass() -> None:
    with pytest.raises(ValueError, match="without the prompt"):
        choose("unconditional_likelihood_normalized", [[-1.0]])
    with pytest.raises(ValueError, match="as many"):
        choose("unconditional_likelihood_normalized", [[-1.0]], [[-1.0, -1.0]])


def test_temperature_draws_from_the_softmax() -> None:
    """Chi-square, 2 degrees of freedom: 13.8 is passed once in 1,000; the seeds are fixed."""
    scores, temperature, n = [-1.0, -0.5, -2.0], 0.7, 6000
    weights = [math.exp(score / temperature) for score in scores]
    counts = Counter(pick(scores, temperature, seed) for seed in range(n))
    expected = [n * weight / sum(weights) for weight in weights]
    assert sum((counts[i] - e) ** 2 / e for i, e in enumerate(expected)) < 13.8
    assert [pick(scores, temperature, 5) for _ in range(3)] == [pick(scores, temperature, 5)] * 3


lists = st.lists(st.lists(st.integers(-12, 0).map(lambda k: k / 4), min_size=1, max_size=5), min_size=1, max_size=6)


@settings(max_examples=200)
@given(choices=lists, seed=st.integers(0, 2**64 - 1))
def test_the_winner_has_the_best_score_and_a_tiny_temperature_changes_nothing(
    choices: list[list[float]], seed: int
) -> None:
    for method in ("token_length_normalized", "greedy_token_selection"):
        winner, scores = choose(method, choices)
        assert scores[winner] == max(scores) and winner == scores.index(max(scores))
        drawn = choose(method, choices, temperature=1e-9, seed=seed).winner
        assert scores[drawn] == max(scores)


def column_scan(rows: list[list[float]]) -> int:
    """The matrix form of greedy selection, as the field describes it."""
    width = max(map(len, rows))
    table = [row + [math.fsum(row) / len(row)] * (width - len(row)) for row in rows]
    alive = list(range(len(rows)))
    for column in zip(*table):
        best = max(column[i] for i in alive)
        alive = [i for i in alive if column[i] == best]
    return alive[0]


@given(choices=lists)
def test_greedy_equals_the_matrix_form(choices: list[list[float]]) -> None:
    assert choose("greedy_token_selection", choices).winner == column_scan(choices)
