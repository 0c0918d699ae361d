"""What the logits of a forward must be before anybody reads them: blank ids out, single NaNs out, NaN rows left."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from core_kit import BLANK, SIZE, Driver, FakeModel, greedy, hot, prompt

from plait.runtime.core.logits import Sieve
from plait.runtime.models.interface import ForwardBatch
from plait.runtime.wire import Append, OpFailed, Sample, Score


class Holed(FakeModel):
    """The logits of these ids are NaN in every row."""

    holes = (5, 6, 40)

    def forward(self, batch: ForwardBatch) -> torch.Tensor:
        out = super().forward(batch)
        out[:, list(self.holes)] = math.nan
        return out


def test_blank_ids_and_single_nans_never_come_and_whole_rows_stay() -> None:
    table = torch.tensor(
        [[1.0, math.nan, 3.0, 4.0], [math.nan] * 4, [0.0, 1.0, 2.0, 3.0], [math.inf, math.nan, 1.0, 9.0]]
    )
    Sieve(np.array([3])).apply(table)
    assert table[0].tolist() == [1.0, -math.inf, 3.0, -math.inf]
    assert table[1].isnan().tolist() == [True, True, True, False] and table[1, 3] == -math.inf
    assert table[2].tolist() == [0.0, 1.0, 2.0, -math.inf]
    assert table[3].tolist() == [math.inf, -math.inf, 1.0, -math.inf]
    Sieve(np.array([], dtype=np.intp)).apply(torch.empty(0, 4))


def test_logits_made_in_inference_mode_are_taken() -> None:
    with torch.inference_mode():
        table = torch.zeros(2, 4)
    Sieve(np.array([1])).apply(table)
    assert table[0].tolist() == [0.0, -math.inf, 0.0, 0.0]


@pytest.mark.parametrize("params", [greedy(30), hot(30, logprobs=True, top_logprobs=5), hot(30, top_p=0.5, top_k=9)])
def test_a_row_with_some_nans_draws_from_the_others(params: object) -> None:
    driver = Driver(model=Holed())
    driver.open(1, Append(0, prompt(20)), Sample(1, params))  # type: ignore[arg-type]  # SampleParams
    driver.run()
    ended = driver.ended(1)
    assert len(ended.ids) == 30 and not set(Holed.holes) & set(ended.ids)
    for entry in ended.logprobs or ():
        assert entry.logprob is not None and math.isfinite(entry.logprob)
        assert all(math.isfinite(value) and token not in Holed.holes for token, value in entry.top)


def test_a_choice_of_a_nan_is_impossible_and_the_others_are_scored() -> None:
    driver = Driver(model=Holed())
    driver.open(1, Append(0, prompt(20)), Score(1, ((5,), (65, 66)), "token_length_normalized", 0.0, 1))
    driver.run()
    (scored,) = (event for event in driver.of(1) if not isinstance(event, OpFailed))
    assert scored.winner == 1  # type: ignore[union-attr]  # Scored


@pytest.mark.parametrize("bias", [{}, dict.fromkeys(BLANK, 100.0)])
def test_ids_without_a_token_are_never_drawn_nor_listed(bias: dict[int, float]) -> None:
    model = FakeModel(bias=dict.fromkeys(BLANK, 30.0))
    driver = Driver(model=model)
    params = hot(40, logit_bias=bias, logprobs=True, top_logprobs=20)
    driver.open(1, Append(0, prompt(20)), Sample(1, params))
    driver.run()
    ended = driver.ended(1)
    assert len(ended.ids) == 40 and not set(BLANK) & set(ended.ids)
    assert list(ended.ids) == model.expect(prompt(20), params)
    assert ended.logprobs is not None
    listed = {token for entry in ended.logprobs for token, _ in entry.top}
    assert listed and not listed & set(BLANK) and max(listed) < SIZE
