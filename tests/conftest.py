"""Fixtures shared by all tests. Helper modules of this folder and of benchmarks/ import by their plain name."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

hypothesis.settings.register_profile(
    "plait", deadline=None
)  # no test asserts wall-clock time, however busy the machine
hypothesis.settings.load_profile("plait")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background job: tests of Ctrl-C want it heard
    signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
TESTS = Path(__file__).parent
sys.path[:0] = [str(TESTS), str(TESTS.parent / "benchmarks")]


@pytest.fixture(autouse=True)
def nothing_said_yet() -> None:
    """A warning comes once for each place; each test begins anew."""
    from plait.lang import notices

    notices.forget()


@pytest.fixture(scope="session")
def tiny_model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A seeded two-layer Llama with a 512-token byte-level vocabulary and a ChatML template, made in under a second."""
    from tiny_model import make_tiny_model

    return make_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def default_model_path() -> Iterator[Path]:
    """The default model's GGUF: $PLAIT_TEST_MODEL, or fetched into the user's cache. For tests marked real_model."""
    override = os.environ.get("PLAIT_TEST_MODEL")
    if override:
        yield Path(override)
        return
    from plait.runtime.store import default_model

    yield default_model()
