"""How Select picks: pure functions from per-token log-probabilities to one score for each choice.

``given[i]`` holds log p(token t of choice i | prompt, its earlier tokens), ``alone[i]`` the same without the prompt.
An entry is None where there was nothing to condition on (the very first token without a BOS). 0.0 is a probability
of one and counts like every other number.

The methods are those of SGLang's frontend ("SGLang: Efficient Execution of Structured Language Model Programs",
arXiv 2312.07104, and its ``choices`` module), with exact means. The best score wins, the first of equals;
with a temperature the winner is drawn from softmax(score / temperature).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ..protocol import Method
from .noise import uniform

Logprobs = Sequence[Sequence[float | None]]


class Choice(NamedTuple):
    """``scores`` by choice, higher is better."""

    winner: int
    scores: tuple[float, ...]


def choose(
    method: Method,
    given: Logprobs,
    alone: Logprobs | None = None,
    *,
    temperature: float = 0.0,
    seed: int = 0,
) -> Choice:
    """Score and pick. ``alone`` is needed by "unconditional_likelihood_normalized" only.

    Raises ValueError if there is no choice, a choice has no scored token, or a log-probability is NaN.
    """
    _check(given)
    if method == "token_length_normalized":
        scores = token_length_normalized(given)
    elif method == "greedy_token_selection":
        scores = greedy_token_selection(given)
    else:
        if alone is None:
            raise ValueError(f"{method} needs the log-probabilities without the prompt")
        scores = unconditional_likelihood_normalized(given, alone)
    return Choice(pick(scores, temperature, seed), tuple(scores))


def token_length_normalized(given: Logprobs) -> list[float]:
    """Mean log-probability of the choice's tokens."""
    return [_mean(values) for values in map(_scored, given)]


def greedy_token_selection(given: Logprobs) -> list[float]:
    """The choice that wins token by token: 0 for what is left, else by how much it lost where it fell behind (< 0).

    Choices are compared at their first token, those that hold its maximum at their second, and so on until one is
    left. A choice that has ended competes with its own mean.
    """
    rows = [_scored(values) for values in given]
    means = [_mean(values) for values in rows]
    scores = [0.0] * len(rows)
    alive = list(range(len(rows)))
    for column in range(max(map(len, rows))):
        if len(alive) == 1:
            break
        here = {i: rows[i][column] if column < len(rows[i]) else means[i] for i in alive}
        best = max(here.values())
        alive = [i for i in alive if here[i] == best]
        for i in here.keys() - set(alive):
            scores[i] = here[i] - best
    return scores


def unconditional_likelihood_normalized(given: Logprobs, alone: Logprobs) -> list[float]:
    """Mean of (log p given the prompt - log p alone): how much the prompt raises the choice. A None alone counts 0."""
    if list(map(len, given)) != list(map(len, alone)):
        raise ValueError("every choice needs as many log-probabilities alone as given the prompt")
    _check(alone, allow_none=True)
    return [_mean(_gains(with_prompt, without)) for with_prompt, without in zip(given, alone)]


def pick(scores: Sequence[float], temperature: float, seed: int) -> int:
    """The first best score; with a temperature above 0, a draw from softmax(score / temperature) keyed by ``seed``."""
    best = max(scores)
    if temperature == 0.0:
        return scores.index(best)
    # Equal scores (also all -inf) differ by 0 from the best, not by inf - inf.
    weights = [1.0 if score == best else math.exp((score - best) / temperature) for score in scores]
    left = uniform(seed, 0, 0) * math.fsum(weights)
    for index, weight in enumerate(weights):
        left -= weight
        if left < 0.0:
            return index
    return max(index for index, weight in enumerate(weights) if weight > 0.0)  # rounding at the very end


def _gains(given: Sequence[float | None], alone: Sequence[float | None]) -> list[float]:
    # An impossible token stays impossible, whatever it is alone (-inf minus -inf would be NaN).
    return [
        value if value == -math.inf else value - (0.0 if base is None else base)
        for value, base in zip(given, alone)
        if value is not None
    ]


def _scored(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _check(logprobs: Logprobs, allow_none: bool = False) -> None:
    if not logprobs:
        raise ValueError("there are no choices to score")
    for index, values in enumerate(logprobs):
        scored = _scored(values)
        if not scored and not allow_none:
            raise ValueError(f"choice {index} has no scored token")
        if any(math.isnan(value) for value in scored):
            raise ValueError(f"choice {index} has a log-probability that is not a number")
