"""Every example runs over the fake backend and prints what it promises."""

from __future__ import annotations

import importlib
import itertools
import json
import re
from collections.abc import Iterator

import pytest
from fake_backend import FakeBackend

from plait.runtime.protocol import Fork, Gen, Join, RoleBegin, Select, VarRef

EXAMPLES = ["quickstart", "regex_json", "extract", "chat", "tree_of_thought", "few_shot_select", "judge"]


@pytest.fixture
def backend() -> Iterator[FakeBackend]:
    fake = FakeBackend()
    yield fake
    fake.close()


@pytest.mark.parametrize("name", EXAMPLES)
def test_main_prints_and_leaves_nothing_open(
    name: str, backend: FakeBackend, capsys: pytest.CaptureFixture[str]
) -> None:
    importlib.import_module(f"plait.examples.{name}").main(backend)
    assert len(capsys.readouterr().out.splitlines()) >= 2
    backend.until(lambda: backend.open_strands == 0)


def test_the_quickstart_streams_its_text_and_reports_each_gen(backend: FakeBackend) -> None:
    from plait.examples import quickstart

    shown: list[str] = []
    results = quickstart.run_demo(backend, shown.append)
    assert [name for name, _ in results] == ["famous for", "tip 1", "tip 2", "better tip", "facts"]
    assert all(result.error is None and result.text for _, result in results)
    for name, result in results:
        assert result.text in "".join(shown), name
    assert re.fullmatch(quickstart.FACTS, results[-1][1].text)
    for kind in (RoleBegin, Gen, Select, VarRef):
        assert backend.ops(kind), kind
    assert backend.of(Fork) and backend.of(Join)


def test_the_tree_has_all_its_leaves(backend: FakeBackend) -> None:
    from plait.examples import tree_of_thought

    state = tree_of_thought.solve.run("Why?", branches=3, backend=backend)
    assert [len(inner) for inner in state["answer"]] == [3, 3, 3]
    assert len(backend.ops(Gen)) == 3 + 9 * 2


def test_extraction_gives_records(backend: FakeBackend) -> None:
    from plait.examples import regex_json

    state = regex_json.extract.run("Anna is 27.", backend=backend)
    assert state.ret_value == json.loads(state["person"])
    assert set(state.ret_value) == {"name", "age", "city"}


def test_typed_extraction_gives_instances(backend: FakeBackend) -> None:
    from plait.examples import extract

    state = extract.extract.run("Anna is 27.", backend=backend)
    assert isinstance(state.ret_value, extract.Person) and state.ret_value == state["person"]


def test_the_chat_s_turns_see_those_before_them(backend: FakeBackend) -> None:
    from plait.examples import chat

    chat.main(backend)
    prompts = [prompt for prompt, _ in backend.prompts]
    assert len(prompts) == len(chat.QUESTIONS)
    for before, after in itertools.pairwise(prompts):
        assert after.startswith(before)
