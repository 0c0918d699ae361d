"""Options of gens, selects, runs and runtimes: what is left out, what has no effect, and slips in their names."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from typing import Any

import pytest
from fake_backend import FakeBackend

import plait
from plait import constraints as c
from plait.lang.sampling import ALIASES, NOT_AVAILABLE, SamplingOptions
from plait.runtime.errors import InvalidValue
from plait.runtime.protocol import Gen, Sampling, Select


@pytest.fixture
def backend() -> Iterator[FakeBackend]:
    fake = FakeBackend()
    yield fake
    fake.close()


def test_options_that_a_select_cannot_use_are_taken_with_one_warning(backend: FakeBackend) -> None:
    def made(**more: Any) -> plait.Expr:
        return plait.gen("x", choices=["a", "b"], max_new_tokens=10, stop="\n", whitespace="compact", seed=3, **more)

    with pytest.warns(plait.PlaitWarning, match=r"gen 'x'.*max_new_tokens, stop, whitespace") as caught:
        exprs = [made(top_k=None, regex=None, temperature=0.5) for _ in range(3)]
    assert len(caught) == 1 and caught[0].filename == __file__
    state = plait.function(lambda s: s.__iadd__(exprs[0])).run(backend=backend)
    (op,) = backend.ops(Select)
    assert (op.temperature, op.seed) == (0.5, 3) and state["x"] in ("a", "b")
    with pytest.raises(TypeError, match=r"'temprature'; did you mean temperature\?"):
        made(temprature=1)


def test_none_is_not_given_of_every_option(backend: FakeBackend) -> None:
    nothing = dict.fromkeys(inspect.signature(plait.gen).parameters)
    del nothing["options"]
    options: dict[str, Any] = dict.fromkeys(
        [*SamplingOptions.__annotations__, *ALIASES, *NOT_AVAILABLE, "return_text_in_logprobs"]
    )

    @plait.function
    def program(s: plait.State) -> None:
        s += plait.gen(**{**nothing, **options}) + plait.gen("x", return_text_in_logprobs=True)
        s += plait.select("y", ["a"], None, None, seed=None, max_tokens=None) + plait.gen(
            "z", choices=["a"], **{**options, "n": None}
        )
        s += plait.gen_int(**options) + plait.gen_string(**options)
        s.fork(None, None).join(None)

    def batch(**more: Any) -> plait.State:
        return program.run_batch([()], num_threads=None, progress_bar=None, generator_style=None, **more)[0]  # type: ignore[arg-type]

    def on_a_loop(**more: Any) -> plait.State:
        return asyncio.run(program.arun(**more))

    for run in (program.run, program.stream, batch, on_a_loop):
        state = run(backend=backend, timeout=None, stream=None, **options)
        assert state.error() is None, state.error()
    assert [gen.sampling for gen in backend.ops(Gen)[:2]] == [Sampling(max_tokens=128), Sampling(max_tokens=128)]
    constraint = c.sep_by("a", ",", None, None) + c.json(None) + c.grammar("root ::= [a]", syntax=None, start=None)
    assert constraint == c.sep_by("a", ",") + c.json() + c.grammar("root ::= [a]")
    assert plait.function(num_api_spec_tokens=None)(lambda s: None)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: plait.gen("x", max_token=3), "did you mean max_tokens"),
        (lambda: plait.select("x", ["a"], max_tokens=3), "select takes name, choices, .* not 'max_tokens'"),
        (lambda: plait.gen("x", jsonschema={}), "did you mean json_schema"),
        (lambda: plait.function(lambda s, topic: None).run(topics="x"), "did you mean topic"),
        (
            lambda: plait.function(lambda s, topic: None).bind(topics="x"),
            "no parameter 'topics' to bind; did you mean topic",
        ),
        (lambda: plait.function(lambda s: None).run(time_out=3), "did you mean timeout"),
        (lambda: plait.function(lambda s: None).run_batch([()], numthreads=3), "did you mean num_threads"),
        (lambda: plait.function(lambda s: None).run_batch([()], stream=True), r"no stream=; program\.stream"),
        (lambda: plait.function(num_api_spec_tokens=64), "num_api_spec_tokens= is not available.*leave it out"),
        (lambda: plait.Runtime(model_path="m"), "'model_path'; it is called model here"),
        (lambda: plait.Runtime(thread=2), "did you mean threads"),
        (lambda: plait.Runtime(foo=2), "it takes model, mode"),
        (lambda: plait.Runtime(tokenizer_path=None, mode="magic"), "mode must be one of"),
    ],
)
def test_a_name_that_nobody_takes_says_which_one_was_meant(call: Any, match: str) -> None:
    with pytest.raises((TypeError, InvalidValue), match=match):
        call()


def test_a_choice_that_cannot_be_says_what_to_write() -> None:
    with pytest.raises(InvalidValue, match=r"not 1: write str\(\.\.\.\)"):
        plait.select("x", [1, 2])  # type: ignore[list-item]  # the point of the test
    with pytest.raises(InvalidValue, match=r"optional\(\)"):
        plait.select("x", ["", "a"])


def test_a_fork_names_what_it_lacks(backend: FakeBackend) -> None:
    program = plait.function(lambda s: s.fork(2, [0, 1000]))
    with pytest.raises(TypeError, match=r"position_ids_offset= is not available.*leave it out"):
        program.run(backend=backend)
