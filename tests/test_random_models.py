"""What the constraint of a Pydantic type writes, the type takes: random models, random texts."""

from __future__ import annotations

import random
import warnings

import pytest
from random_models import Models, compiled, write

from plait.lang.schemas import read_type


def values(seeds: range, each: int) -> int:
    count = 0
    for seed in seeds:
        rng = random.Random(seed)
        hint = Models(rng).model()
        typed = read_type(hint)
        assert not typed.notes, (hint, typed.notes)
        constraint = compiled(typed.schema)
        for _ in range(each):
            text = write(constraint, rng, rng.choice([5, 40, 120]))
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    typed.parse(text)
            except ValueError as error:
                pytest.fail(f"seed {seed}: {text}\n{error}\n{typed.schema}")
            count += 1
    return count


def test_none_is_refused() -> None:
    assert values(range(40), 3) == 120


@pytest.mark.slow
def test_none_of_two_thousand_is_refused() -> None:
    assert values(range(1000, 1500), 4) == 2000
