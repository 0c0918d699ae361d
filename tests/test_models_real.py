"""The default model's file, decoded by us, against transformers' own reading of it. No runtime in between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from reference import greedy_ids, transformers_model

from plait.runtime.models.card import read_card
from plait.runtime.models.interface import ForwardBatch
from plait.runtime.models.load import Mode, load_model
from plait.runtime.tokenizer import load_tokenizer

pytestmark = [pytest.mark.real_model, pytest.mark.timeout(600)]
TOKENS = 64
PROMPTS = [
    "<|im_start|>user\nWhat is the capital of France, and why?<|im_end|>\n<|im_start|>assistant\n",
    "def fib(n):",
]


def one(ids: np.ndarray, start: int, logits: np.ndarray) -> ForwardBatch:
    """One sequence whose first ``start`` ids have their KV in slots 0, 1, 2, ..."""
    slots = np.arange(len(ids), dtype=np.int32)
    new = slots[start:].copy()
    ends = [np.array([0, count], dtype=np.int32) for count in (len(new), len(ids))]
    return ForwardBatch(ids[start:].astype(np.int32), new, new, ends[0], slots, ends[1], logits.astype(np.int32))


@pytest.fixture(scope="module")
def theirs(default_model_path: Path) -> Any:
    return transformers_model(default_model_path, "float32")


@pytest.fixture(scope="module")
def expected(default_model_path: Path, theirs: Any) -> list[tuple[int, np.ndarray, torch.Tensor]]:
    """Per prompt: its length, prompt and greedy ids, float32 logits of all rows but the last."""
    tokenizer = load_tokenizer(read_card(default_model_path))
    made = []
    for text in PROMPTS:
        prompt = list(tokenizer.encode(text, special=True))
        ids = prompt + greedy_ids(theirs, [prompt], TOKENS)[0]
        with torch.inference_mode():
            made.append((len(prompt), np.array(ids), theirs(torch.tensor([ids[:-1]])).logits[0]))
    return made


def test_reference_mode_equals_transformers(default_model_path: Path, expected: Any) -> None:
    model = load_model(read_card(default_model_path), mode="reference")
    model.allocate(256)
    for length, ids, logits in expected:
        ours = model.forward(one(ids[:-1], 0, np.arange(len(ids) - 1)))
        torch.testing.assert_close(ours, logits, rtol=1e-3, atol=1e-3)
        mine, start = ids[:length], 0
        for _ in range(TOKENS):
            row = model.forward(one(mine, start, np.array([len(mine) - start - 1])))[0]
            start = len(mine)
            mine = np.append(mine, int(row.argmax()))
        assert mine.tolist() == ids.tolist()


@pytest.mark.parametrize("step", [False, True], ids=["one pass", "row by row"])
def test_exact_mode_is_within_its_bounds(default_model_path: Path, expected: Any, step: bool) -> None:
    """Teacher-forced: argmax equal wherever the top-2 gap exceeds 0.25, 97 % overall, mean KL at most 0.002."""
    mode: Mode = "exact"
    model = load_model(read_card(default_model_path), mode=mode)
    model.allocate(256)
    agree, divergence, rows = 0, 0.0, 0
    for length, ids, logits in expected:
        wanted = logits[length - 1 :]
        if step:
            model.forward(one(ids[: length - 1], 0, np.array([], dtype=np.int32)))
            zero = np.array([0])
            ours = torch.cat([model.forward(one(ids[: n + 1], n, zero)) for n in range(length - 1, len(ids) - 1)])
        else:
            ours = model.forward(one(ids[:-1], 0, np.arange(length - 1, len(ids) - 1)))
        top = wanted.topk(2).values
        equal = ours.argmax(-1) == wanted.argmax(-1)
        assert equal[top[:, 0] - top[:, 1] > 0.25].all()
        agree += int(equal.sum())
        rows += len(equal)
        kept, got = wanted.log_softmax(-1), ours.log_softmax(-1)
        divergence += float((kept.exp() * (kept - got)).sum())
    assert agree / rows >= 0.97
    assert divergence / rows <= 0.002
