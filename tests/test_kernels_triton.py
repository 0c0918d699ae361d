"""The Triton kernels: everywhere in Triton's interpreter, and on a GPU where there is one."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")


@needs_triton
def test_interpreted() -> None:
    """In a process of its own: TRITON_INTERPRET counts when triton is imported, and torch may import it at any time."""
    program = Path(__file__).parent / "triton_check.py"
    done = subprocess.run(
        [sys.executable, str(program)],
        env={**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    errors = json.loads(done.stdout)
    assert len(errors) > 30
    assert {case: error for case, error in errors.items() if not error < 1} == {}


@needs_triton
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_on_a_gpu() -> None:
    from triton_check import check

    assert {case: error for case, error in check("cuda").items() if not error < 1} == {}


@needs_triton
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_selected_on_a_gpu() -> None:
    from plait.runtime.kernels import select

    assert select("cuda").name == "triton"
