"""Whole programs on the real runtime and the tiny model: what the fake backend cannot know."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import plait
from plait.runtime.errors import ContextLengthExceeded, InvalidConstraint

pytestmark = pytest.mark.filterwarnings("ignore::plait.PlaitWarning")  # a random model does not know when to stop


@pytest.fixture(scope="module")
def backend(tiny_model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[plait.Runtime]:
    address = f"ipc://{tmp_path_factory.mktemp('runtime')}/s"
    with plait.Runtime(str(tiny_model_path), mode="reference", threads=1, address=address) as runtime:
        yield runtime


@plait.function
def everything(s: plait.State, item: int) -> str:
    s += plait.system("be brief") + plait.user(f"item {item}")
    with s.assistant():
        s += "well," + plait.gen("several", max_tokens=6, n=2)
    with s.copy() as c:
        c += "?" + plait.gen("guess", max_tokens=4)
    forks = s.fork(2)
    forks += lambda i: f"[{i}]" + plait.gen_int("number", max_tokens=24)
    forks.join("append")
    with s.var_scope("scope"):
        s += "w" + plait.gen(max_tokens=3)
    s += s.ref("scope") + plait.select("choice", ["left", "right"]) + plait.gen("last", max_tokens=5, logprobs=True)
    if item == 2:
        raise ZeroDivisionError("two")
    return s.text()


def test_a_batch_of_programs_with_everything_in_them(backend: plait.Backend) -> None:
    states = everything.run_batch([(item,) for item in range(6)], backend=backend, seed=3)
    again = everything.run_batch([(item,) for item in range(6)], backend=backend, seed=3)
    for item, (state, twin) in enumerate(zip(states, again)):
        if item == 2:
            assert isinstance(state.error(), ZeroDivisionError)
            continue
        assert state.error() is None
        assert state.ret_value == state.text() == "".join(state.text_iter()) == twin.text()
        first, second = state["number"]
        assert isinstance(first, int) and isinstance(second, int)
        assert state["scope"] * 2 in state.text()
        last = state.result("last")
        assert len(last.logprobs) == len(last.tokens) and last.usage.cached > 0
    assert len({state.text() for item, state in enumerate(states) if item != 2}) == 5


def test_a_stream_is_the_text(backend: plait.Backend) -> None:
    streamed = everything.stream(1, backend=backend, seed=5)
    assert "".join(streamed.text_iter()) == streamed.ret_value == everything.run(1, backend=backend, seed=5).text()


def test_async_programs_share_a_runtime(backend: plait.Backend) -> None:
    @plait.function
    async def ask(s: plait.State, question: str) -> str:
        s += plait.user(question) + plait.assistant(plait.gen("x", max_tokens=6))
        return str(await s.get("x"))

    async def main() -> None:
        states = await asyncio.gather(*(ask.arun(f"q{i}", backend=backend, seed=i) for i in range(5)))
        for state in states:
            assert state.ret_value == state["x"] == (await state.messages_async())[1]["content"]

    asyncio.run(main())


def test_a_branch_and_its_parent_may_refer_to_each_other(backend: plait.Backend) -> None:
    """Neither waits for the other for ever: what each needs is on its way before it waits."""

    @plait.function
    def program(s: plait.State) -> None:
        s += "a" + plait.gen("x", max_tokens=8)
        forks = s.fork(2)
        forks += "about" + s.ref("x") + plait.gen("y", max_tokens=8)
        s += forks[0].ref("y") + s.ref("x") + forks[1].ref("y") + plait.gen("z", max_tokens=4)
        forks.join()

    state = program.run(backend=backend, seed=1)
    assert state.error() is None
    first, second = state["y"]
    assert state.text() == f"a{state['x']}{first}{state['x']}{second}{state['z']}"


def test_references_to_programs_that_end_meanwhile(backend: plait.Backend) -> None:
    @plait.function
    def writer(s: plait.State, tokens: int) -> None:
        s += "w" + plait.gen("x", max_tokens=tokens, ignore_eos=True)

    @plait.function
    def reader(s: plait.State, slow: plait.State, fast: plait.State) -> None:
        s += slow.ref("x") + fast.ref("x")
        fast.sync()
        assert fast["x"]
        s += plait.gen("y", max_tokens=4)

    slow, fast = (writer.stream(tokens, backend=backend, seed=1) for tokens in (200, 1))
    state = reader.run(slow, fast, backend=backend, seed=1)
    assert state.text() == slow["x"] + fast["x"] + state["y"]


def test_bad_requests_name_their_field_and_leave_the_rest_alone(backend: plait.Backend) -> None:
    @plait.function
    def too_long(s: plait.State) -> None:
        s += "x" * 100_000 + plait.gen("x") + plait.gen("y")

    state = too_long.run(backend=backend)
    with pytest.raises(ContextLengthExceeded, match="context"):
        state["x"]

    @plait.function
    def impossible(s: plait.State) -> None:
        s += plait.gen("x", regex="(?=a)b")

    assert isinstance(impossible.run(backend=backend).error(), InvalidConstraint)
    assert everything.run(0, backend=backend).error() is None


def test_a_timeout_ends_the_work(backend: plait.Backend) -> None:
    @plait.function
    def long(s: plait.State) -> None:
        s += "go" + plait.gen("x", max_tokens=1500, ignore_eos=True)

    with pytest.raises(plait.RunTimeout):
        long.run(backend=backend, timeout=0.2)
    assert everything.run(0, backend=backend).error() is None


def test_a_script_under_edit_reuses_a_warm_server(backend: plait.Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """With $PLAIT_BACKEND, a run without a backend connects instead of starting one."""
    from plait.lang import defaults
    from plait.runtime.client import Client

    assert backend.address is not None
    monkeypatch.setattr(defaults, "_started", None)
    monkeypatch.setenv("PLAIT_BACKEND", backend.address)
    state = everything.run(0, seed=1)
    assert isinstance(defaults.default_backend(), Client)
    assert state.text() == everything.run(0, seed=1, backend=backend).text()
    defaults._close_started()


BASE_INSTALL = """
import importlib.abc, sys

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {"torch", "numpy", "tokenizers", "safetensors", "jinja2", "typer", "fastapi"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import plait
try:
    plait.Runtime()
except ModuleNotFoundError as error:
    assert "install 'plait[runtime]'" in str(error), error

@plait.function
def program(s):
    s += "a" + plait.gen("x", regex="[ab]{3}")

try:
    program.run()
except plait.errors.BackendError as error:
    assert "install 'plait[runtime]'" in str(error), error
with plait.connect(sys.argv[1]) as backend:
    print(program.run(backend=backend, seed=1)["x"])
"""


def test_the_base_install_is_language_and_client(backend: plait.Runtime) -> None:
    assert backend.address is not None
    command = [sys.executable, "-c", BASE_INSTALL, backend.address]
    found = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    assert re.fullmatch("[ab]{3}\n", found)


def test_the_demo(tiny_model_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from plait.runtime.cli import demo

    demo.run_demo(model=str(tiny_model_path), mode="reference", threads=1, kv_tokens=8192)
    shown = capsys.readouterr()
    assert "reference mode" in shown.err
    assert "What is Paris famous for?" in shown.out, "the text as it comes"
    rows = {row[0]: row[1:] for line in shown.out.splitlines() if (row := line.replace("│", " ").split())}
    for name in ("facts", "all"):
        computed, _, forced, sampled = map(int, rows[name][:4])
        assert computed and forced and sampled


@pytest.mark.parametrize("name", ["quickstart", "regex_json", "chat", "tree_of_thought", "few_shot_select", "judge"])
def test_the_examples_run(backend: plait.Backend, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    import importlib

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", plait.PlaitWarning)
        importlib.import_module(f"plait.examples.{name}").main(backend)
    assert len(capsys.readouterr().out.splitlines()) >= 2
