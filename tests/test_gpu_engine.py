"""The whole engine on a CUDA device: the same programs give what they give on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from plait import assistant, function, gen, select, user
from plait.runtime import Runtime

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore::plait.PlaitWarning"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]


@function
def program(s: Any, i: int) -> None:
    s += user(f"program {i}: " + "word " * (40 * i))
    s += assistant(gen("a", max_tokens=40, temperature=0, ignore_eos=True))
    s += gen("b", regex=r"[a-z]{4}: forced bytes; [0-9]{2,6}", max_tokens=60, temperature=0)
    forks = s.fork(3)
    for n, fork in enumerate(forks):
        fork += f"branch {n}" + gen("c", max_tokens=12, temperature=0, ignore_eos=True)
    forks.join()
    s += select("d", ["yes", "no", "maybe"])


def texts(model: Path, device: str, mode: str, **options: Any) -> list[Any]:
    with Runtime(model, mode=mode, device=device, **options) as runtime:
        assert runtime.info().device.startswith(device)
        states = program.run_batch([(i,) for i in range(8)], backend=runtime, seed=1)
        found = [(state.text(), state["c"]) for state in states]
        stats = runtime.stats()
        assert stats.kv_free + stats.kv_cached == stats.kv_total
    return found


def test_reference_mode_equals_the_cpu(tiny_model_path: Path) -> None:
    assert texts(tiny_model_path, "cuda", "reference") == texts(tiny_model_path, "cpu", "reference")


def test_a_small_pool_and_bf16(tiny_model_path: Path) -> None:
    cold, small = (texts(tiny_model_path, "cuda", "exact", kv_tokens=kv) for kv in (16384, 1200))
    assert [text[:20] for text, _ in cold] == [text[:20] for text, _ in small]
    assert all(branches and all(branches) for _, branches in small)
