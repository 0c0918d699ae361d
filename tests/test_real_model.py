"""The default model against transformers on the same dequantized weights (issue "A program runs end to end")."""

from __future__ import annotations

import importlib
import os
import re
import signal
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from driver import Pending, generate, greedy, submit
from reference import greedy_ids, transformers_model

import plait
from plait.runtime import Runtime
from plait.runtime.models.card import read_card
from plait.runtime.tokenizer import load_tokenizer

pytestmark = [pytest.mark.real_model, pytest.mark.timeout(900)]
TOKENS = 64

LONG = " ".join(
    f"Clause {i}: the keeper of lighthouse number {i * 7 % 113} records the tide, the wind and the passing ships."
    for i in range(64)
)
PROMPTS = [
    "The capital of France is",
    "def fibonacci(n):\n    ",
    "Die Hauptstadt von Österreich heißt Wien, und der längste Fluss ist",
    "I love pizza 🍕 and dancing 💃🏽! My favourite emojis are",
    "Q: What is 17 + 25?\nA:",
    "<|im_start|>user\nWrite a haiku about rain.<|im_end|>\n<|im_start|>assistant\n",
    "Once upon a time, in a village by the sea,",
    '{"name": "Alice", "age": 31, "tags": ["',
    "    \n\n\tindented\ttext   with   odd   spaces",
    LONG,
]


@pytest.fixture(scope="module")
def prompts(default_model_path: Path) -> list[list[int]]:
    tokenizer = load_tokenizer(read_card(default_model_path))
    ids = [list(tokenizer.encode(text, special=True)) for text in PROMPTS]
    ids[-1] = ids[-1][:1500]
    assert len(ids[-1]) == 1500
    return ids


@pytest.fixture(scope="module")
def reference_model(default_model_path: Path) -> Any:
    return transformers_model(default_model_path, "float32")


@pytest.fixture(scope="module")
def expected(reference_model: Any, prompts: list[list[int]]) -> list[list[int]]:
    return [greedy_ids(reference_model, [ids], TOKENS)[0] for ids in prompts]


@pytest.fixture(scope="module")
def runtime(default_model_path: Path) -> Iterator[Runtime]:
    with Runtime(default_model_path, mode="reference") as runtime:
        yield runtime


@pytest.fixture(scope="module")
def exact(default_model_path: Path) -> Iterator[Runtime]:
    with Runtime(default_model_path) as runtime:
        yield runtime


def test_greedy_alone_equals_transformers(
    runtime: Runtime, prompts: list[list[int]], expected: list[list[int]]
) -> None:
    for ids, want in zip(prompts, expected):
        assert list(generate(runtime, [ids], greedy(TOKENS), salt="alone")[0].ids) == want


def test_greedy_in_a_batch_and_warm(runtime: Runtime, prompts: list[list[int]], expected: list[list[int]]) -> None:
    order = [9, 0, 1, 2, 3, 4, 5, 6]  # 8 at once, the long one among them
    for _ in range(2):  # cold, then with the tree warm
        done = generate(runtime, [prompts[i] for i in order], greedy(TOKENS), salt="batch")
        assert [list(d.ids) for d in done] == [expected[i] for i in order]
    assert all(d.usage.cached == d.usage.prompt - 1 for d in done)


def test_a_seed_gives_the_same_text_cold_warm_and_in_a_batch(runtime: Runtime) -> None:
    """At temperature 1, where a vocabulary's tail is drawn from too.

    A batch moves fp32 logits by up to 1e-5. Seed 5 meets no draw as close as that; seed 3 has one of 3e-7.
    """

    @plait.function
    def program(s: plait.State, name: str) -> None:
        s += f"A letter to {name}. Dear {name}," + plait.gen("text", max_tokens=24, ignore_eos=True)

    items = [{"name": f"Amélie {i}"} for i in range(8)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", plait.PlaitWarning)
        cold, warm = ([program.run(**item, backend=runtime, seed=5).text() for item in items] for _ in range(2))
        branches = [program.stream(**item, backend=runtime, seed=5) for item in items]
        together = [branch.text() for branch in branches]
    assert cold == warm == together


def test_greedy_after_forced_retraction(
    default_model_path: Path, prompts: list[list[int]], expected: list[list[int]]
) -> None:
    # Room for the ten prompts (1,650 tokens) and half of what they generate: admitted together, they outgrow the pool.
    with Runtime(default_model_path, mode="reference", kv_tokens=2000) as small:
        done = generate(small, prompts, greedy(TOKENS))
        assert [list(d.ids) for d in done] == expected
        assert small.stats().retractions > 0
        assert sum(d.usage.recomputed for d in done) > 0


def test_greedy_after_killing_the_core(
    default_model_path: Path, prompts: list[list[int]], expected: list[list[int]]
) -> None:
    with Runtime(default_model_path, mode="reference") as victim:
        pending = [submit(victim, ids, greedy(TOKENS), stream=True) for ids in prompts]
        _wait_for_tokens(pending, 5)
        os.kill(victim.core_pid, signal.SIGKILL)
        done = [p.result() for p in pending]
    assert [list(d.ids) for d in done] == expected
    assert ["".join(delta.text for delta in p.deltas) for p in pending] == [d.text for d in done]


def _wait_for_tokens(pending: list[Pending], tokens: int) -> None:
    deadline = time.monotonic() + 120
    while not any(sum(len(d.ids) for d in p.deltas) >= tokens for p in pending):
        assert time.monotonic() < deadline, "no tokens came"
        pending[0].first_delta.wait(0.01)
        time.sleep(0.005)


def test_exact_mode_stays_close_to_the_reference(
    default_model_path: Path, reference_model: Any, prompts: list[list[int]], expected: list[list[int]]
) -> None:
    import torch

    from plait.runtime.models.interface import ForwardBatch
    from plait.runtime.models.load import load_model

    model = load_model(read_card(default_model_path), mode="exact", device="cpu", threads=None)
    model.allocate(2048)
    agree, total, divergence = 0, 0, 0.0
    for ids, new in zip(prompts, expected):
        whole = np.array([*ids, *new[:-1]], dtype=np.int32)
        n = len(whole)
        rows = np.arange(len(ids) - 1, n, dtype=np.int32)
        slots = np.arange(n, dtype=np.int32)
        ends = np.array([0, n], dtype=np.int32)
        ours = model.forward(ForwardBatch(whole, slots, slots, ends, slots, ends, rows))
        with torch.inference_mode():
            theirs = reference_model(torch.from_numpy(whole.astype(np.int64))[None]).logits[0, len(ids) - 1 :]
        ours, theirs = torch.log_softmax(ours.float(), -1), torch.log_softmax(theirs.float(), -1)
        top = theirs.topk(2).values
        clear = (top[:, 0] - top[:, 1]) > 0.25
        same = ours.argmax(-1) == theirs.argmax(-1)
        assert bool(same[clear].all())
        agree, total = agree + int(same.sum()), total + len(rows)
        divergence += float((theirs.exp() * (theirs - ours)).sum())
    print(f"exact: argmax agrees on {agree}/{total}, mean KL {divergence / total:.6f}")
    assert agree / total >= 0.97
    assert divergence / total <= 0.002


@pytest.mark.filterwarnings("ignore::plait.PlaitWarning")  # a gen of the tree may be cut
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("quickstart", r"\{\"city\": \"Paris\", \"country\": \"France\""),
        ("regex_json", r"'Anna', 'age': 27, 'city': 'Berlin'"),
        ("chat", r"capital of France is Paris"),
        ("tree_of_thought", r"best: -?\d+ \(grade [1-5]\)"),
        ("few_shot_select", r"beautiful and funny movie!\n  positive(.|\n)*ten minutes\.\n  negative"),
        ("judge", r"grade: [ABCD]\n"),
    ],
)
def test_the_examples_say_something_sensible(
    exact: Runtime, name: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    importlib.import_module(f"plait.examples.{name}").main(exact)
    assert re.search(says, capsys.readouterr().out)
