"""Work in slices: it moves only while it is waited for, gives what it gives, and leaves no thread behind."""

from __future__ import annotations

import functools
import importlib
import threading
import time
from pathlib import Path

import msgspec
import pytest
from core_kit import EOS, OTHER_EOS, Driver, greedy, prompt

from plait.constrained.compiler import compile_spec
from plait.runtime.core import slices
from plait.runtime.core.slices import Sliced
from plait.runtime.wire import Append, Define, Forget, Sample


@pytest.fixture(autouse=True)
def this_file_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "_OURS", (*slices._OURS, __file__))


def busy(log: list[int], count: int) -> int:
    def one(at: int) -> int:
        end = time.monotonic() + 0.001
        while time.monotonic() < end:
            pass
        log.append(at)
        return at

    return sum(one(at) for at in range(count))


def test_it_moves_only_while_it_is_waited_for() -> None:
    log: list[int] = []
    work = Sliced(lambda: busy(log, 50))
    pauses = 0
    while not work.run(0.005):
        pauses += 1
        seen = len(log)
        time.sleep(0.01)
        assert len(log) == seen
    assert pauses >= 5 and work.result() == sum(range(50)) and log == list(range(50))
    assert work.run(0.0)


def test_it_does_not_pause_in_an_import_or_in_a_cached_property(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would keep a lock that the main thread may want."""

    class Slow:
        @functools.cached_property
        def value(self) -> int:
            return busy([], 30)

    (tmp_path / "slow_to_import.py").write_text(
        "import time\ndef one():\n    time.sleep(0.001)\nfor _ in range(30):\n    one()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    first = Sliced(lambda: Slow().value)
    second = Sliced(lambda: importlib.import_module("slow_to_import"))
    for work in (first, second):
        pauses = 0
        while not work.run(0.001):
            pauses += 1
        assert pauses <= 3, "before and after, if at all"
    assert second.result().__name__ == "slow_to_import"


def test_no_limit_runs_to_the_end() -> None:
    work = Sliced(lambda: busy([], 5))
    assert work.run(None) and work.result() == 10


def test_what_it_raises_comes_with_the_result() -> None:
    def fails() -> int:
        busy([], 3)
        raise ValueError("no")

    work = Sliced(fails)
    while not work.run(0.001):
        pass
    with pytest.raises(ValueError, match="no"):
        work.result()


def test_a_cancelled_one_leaves_no_thread() -> None:
    log: list[int] = []
    work = Sliced(lambda: busy(log, 10_000))
    assert not work.run(0.005)
    work.cancel()
    assert work._thread is not None
    work._thread.join(10)
    assert not work._thread.is_alive()
    seen = len(log)
    time.sleep(0.01)
    assert len(log) == seen
    Sliced(lambda: 1).cancel()  # never begun


def slow_payload(pattern: str) -> bytes:
    """As if the child had needed long."""
    return msgspec.msgpack.encode({**msgspec.msgpack.decode(compile_spec("regex", pattern)), "build_s": 0.5})


def test_a_constraint_that_is_slow_to_build_is_built_in_slices() -> None:
    pattern = "(" + "|".join(f"word{at}" for at in range(300)) + ")x"
    driver = Driver(constraint_first_s=0.0005, constraint_more_s=0.0005, constraint_slice_s=0.0005)
    driver.send(Define("k", slow_payload(pattern)))
    driver.open(1, Append(0, prompt(9)), Sample(1, greedy(40, stop_ids=(EOS, OTHER_EOS)), constraint="k"))
    driver.open(2, Append(0, prompt(8)), Sample(1, greedy(5)))
    steps = 0
    while driver.core.state.constraints["k"].built is None:
        driver.step()
        steps += 1
    assert steps > 1
    driver.run()
    assert driver.text(1).endswith(b"x") and driver.text(1).startswith(b"word")
    assert len(driver.ended(2).ids) == 5


def test_one_that_is_forgotten_while_it_is_built_leaves_no_thread() -> None:
    before = threading.active_count()
    driver = Driver(constraint_first_s=0.0002, constraint_more_s=0.0002, constraint_slice_s=0.0002)
    driver.send(Define("k", slow_payload("(" + "|".join(f"word{at}" for at in range(2000)) + ")x")))
    driver.open(1, Append(0, prompt(9)), Sample(1, greedy(40), constraint="k"))
    driver.step()
    assert threading.active_count() == before + 1
    driver.send(Forget("k"))
    end = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < end:
        time.sleep(0.01)
    assert threading.active_count() == before
