"""Logprobs as their readers expect, on a real engine with the tiny model, against transformers' own numbers."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from test_server_engine import chat, complete, plait_eos

import plait
from plait.runtime.runtime import Runtime

Ids = list[int]
CONTEXT = "What is the capital of France? The capital of France is"
CHOICES = (" Paris", " the river", " a 😀", " Oslo and Rome")


@pytest.fixture(scope="module")
def runtime(tiny_model_path: Path) -> Iterator[Runtime]:
    with Runtime(tiny_model_path, mode="reference", kv_tokens=4096, threads=1) as runtime:
        yield runtime


@pytest.fixture(scope="module")
def reference(tiny_model_path: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(tiny_model_path, dtype=torch.float32).eval()


def numbers(reference: Any, ids: Sequence[int]) -> torch.Tensor:
    """[len(ids), V]: row i is what comes after ids[: i + 1]."""
    with torch.inference_mode():
        return torch.log_softmax(reference(torch.tensor([list(ids)])).logits[0].double(), dim=-1)


def encode(runtime: Runtime, text: str) -> list[int]:
    return runtime.front.model.tokenizer.encode(text, special=False)


# ---------------------------------------------------------------- lm-eval


def lm_eval(
    runtime: Runtime, requests: Sequence[tuple[list[int], list[int]]], **extra: Any
) -> list[tuple[float, bool]]:
    """What lm-eval's local-completions sends for multiple choice, and how it reads the answer."""
    response = complete(
        runtime,
        prompt=[context + choice for context, choice in requests],
        temperature=0,
        max_tokens=1,
        logprobs=1,
        seed=1234,
        echo=True,
        **extra,
    )
    assert response.status_code == 200, response.text
    results = []
    choices = sorted(response.json()["choices"], key=itemgetter("index"))
    for choice, (context, _) in zip(choices, requests, strict=True):
        begin = len(context)
        found = choice["logprobs"]["token_logprobs"][begin:-1]
        greedy = all(
            number == max(top.values())
            for number, top in zip(found, choice["logprobs"]["top_logprobs"][begin:-1], strict=True)
        )
        results.append((sum(found), greedy))
    return results


def wanted(reference: Any, context: list[int], choice: list[int]) -> tuple[float, bool]:
    logp = numbers(reference, context + choice)[len(context) - 1 : -1]
    total = sum(float(row[token]) for row, token in zip(logp, choice, strict=True))
    return total, logp.argmax(-1).tolist() == choice


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("eos", [False, True])
def test_multiple_choice_as_lm_eval_runs_it(runtime: Runtime, reference: Any, warm: bool, eos: bool) -> None:
    """Cold and from the cache; and where the one token that it lets the model write is its end token."""
    context = encode(runtime, CONTEXT)
    best = list(context)
    for _ in range(3):
        best.append(int(numbers(reference, best)[-1].argmax()))
    choices = [*(encode(runtime, text) for text in CHOICES), best[len(context) :]]
    salt = {} if warm else {"cache_salt": f"cold {eos}"}
    bias = {"logit_bias": {str(plait_eos(runtime)): 100}} if eos else {}
    found = lm_eval(runtime, [(context, choice) for choice in choices], **salt, **bias)
    if warm:
        found = lm_eval(runtime, [(context, choice) for choice in choices], **bias)
    assert found[-1][1], "what the model itself would write is greedy"
    assert sum(greedy for _, greedy in found) < len(found)
    for choice, (total, greedy) in zip(choices, found, strict=True):
        right = wanted(reference, context, choice)
        assert total == pytest.approx(right[0], abs=1e-3) and greedy == right[1]


# ---------------------------------------------------------------- echo and prompt_logprobs


def check_prompt(reference: Any, ids: Sequence[int], entries: Sequence[Any], start: int = 0) -> None:
    """``entries``: (id, logprob) from ``start`` on."""
    logp = numbers(reference, ids)
    assert [token for token, _ in entries] == list(ids[start:])
    for at, (token, number) in enumerate(entries, start):
        assert number == (pytest.approx(float(logp[at - 1, token]), abs=1e-4) if at else None)


@pytest.mark.parametrize("text", [CONTEXT, "Ünïcödé 😀 你好"])
@pytest.mark.parametrize("max_tokens", [0, 3])
def test_an_echo_has_the_numbers_of_the_prompt(runtime: Runtime, reference: Any, text: str, max_tokens: int) -> None:
    ids = encode(runtime, text)
    both = [
        complete(runtime, prompt=prompt, echo=True, logprobs=3, max_tokens=max_tokens, ignore_eos=True).json()[
            "choices"
        ][0]
        for prompt in (text, ids)
    ]
    assert both[0] == both[1], "text and its ids are one prompt"
    shape = both[0]["logprobs"]
    assert both[0]["text"].startswith(text)
    assert {len(shape[name]) for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset")} == {
        len(ids) + max_tokens
    }
    check_prompt(reference, ids, list(zip(ids, shape["token_logprobs"])))
    logp = numbers(reference, ids)
    for at, top in enumerate(shape["top_logprobs"][1 : len(ids)]):
        best = sorted(top.values(), reverse=True)[:3]
        assert best == pytest.approx(logp[at].topk(3).values.tolist(), abs=1e-4)
        assert top[shape["tokens"][at + 1]] == shape["token_logprobs"][at + 1]
    for token, offset in zip(shape["tokens"], shape["text_offset"]):
        assert token.startswith("bytes:") or both[0]["text"][offset:].startswith(token)
    assert ("next_top_logprobs" in shape) == (max_tokens == 0)


def test_prompt_logprobs_over_http(runtime: Runtime, reference: Any) -> None:
    ids = encode(runtime, CONTEXT)
    answer = complete(runtime, prompt=CONTEXT, prompt_logprobs=2, max_tokens=1).json()
    (first, *rest) = answer["choices"][0]["prompt_logprobs"]
    assert first is None and len(rest) == len(ids) - 1
    logp = numbers(reference, ids)
    for at, (token, found) in enumerate(zip(ids[1:], rest, strict=True)):
        rank = int((logp[at] > logp[at, token]).sum()) + 1
        assert found[str(token)]["rank"] == rank
        assert found[str(token)]["logprob"] == pytest.approx(float(logp[at, token]), abs=1e-4)
        assert len(found) == (2 if rank <= 2 else 3)
    usage = answer["usage"]
    assert usage["prompt_tokens"] == len(ids) and usage["prompt_tokens_details"]["cached_tokens"] == 0
    messages = [{"role": "user", "content": "hi"}]
    talked = chat(runtime, messages=messages, prompt_logprobs=0, max_tokens=1).json()
    assert len(talked["prompt_logprobs"]) == talked["usage"]["prompt_tokens"]
    assert talked["prompt_logprobs"][0] is None
    for found in talked["prompt_logprobs"][1:]:
        (only,) = found.values()
        assert only["decoded_token"] and only["rank"] >= 1


def test_streams_say_the_same(runtime: Runtime) -> None:
    import json

    body: dict[str, Any] = {"prompt": [CONTEXT, "hi"], "echo": True, "logprobs": 2, "n": 2, "stop": ["e"], "seed": 3}
    body |= {"temperature": 1, "max_tokens": 12}
    whole = complete(runtime, **body).json()["choices"]
    response: httpx.Response = complete(runtime, stream=True, **body)
    parts = [json.loads(line[6:]) for line in response.text.split("\n\n") if line.startswith("data: {")]
    for want in whole:
        mine = [part["choices"][0] for part in parts if part["choices"][0]["index"] == want["index"]]
        assert "".join(part["text"] for part in mine) == want["text"]
        for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
            assert [item for part in mine for item in part["logprobs"][name]] == want["logprobs"][name], name
        assert None not in want["logprobs"]["token_logprobs"][1:]


def test_a_prompt_with_too_many_numbers_is_refused_by_name(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    from plait.runtime.server import app

    real = app.ServerSettings
    monkeypatch.setattr("test_server_engine.ServerSettings", lambda: real(max_prompt_numbers=50))
    refused = complete(runtime, prompt=CONTEXT, prompt_logprobs=20, max_tokens=1)
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "prompt_logprobs"
    assert complete(runtime, prompt=CONTEXT, prompt_logprobs=0, max_tokens=1).status_code == 200


# ---------------------------------------------------------------- programs


def run(runtime: Runtime, *parts: Any, **options: Any) -> plait.State:
    @plait.function
    def program(s: plait.State) -> None:
        for part in parts:
            s += part

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", plait.PlaitWarning)  # that gens were cut
        return program.run(backend=runtime, temperature=0, **options)


@pytest.mark.parametrize("start", [0, 5, 10_000])
@pytest.mark.parametrize("n", [1, 2])
def test_logprob_start_len(runtime: Runtime, reference: Any, start: int, n: int) -> None:
    ids = encode(runtime, CONTEXT)
    state = run(
        runtime,
        CONTEXT,
        plait.gen("x", max_tokens=2, return_logprob=True, logprob_start_len=start, top_logprobs=4, n=n),
    )
    results = state.result("x") if n > 1 else [state.result("x")]
    for result in results:
        entries = result.prompt_logprobs
        check_prompt(reference, ids, [(entry.id, entry.logprob) for entry in entries], start)
        assert all(len(entry.top) == 4 and entry.rank >= 1 for entry in entries if entry.logprob is not None)
        assert len(result.logprobs) == len(result.tokens)
    assert run(runtime, CONTEXT, plait.gen("x", max_tokens=2, logprobs=True)).result("x").prompt_logprobs is None


def test_logprob_start_len_counts_what_gens_before_it_wrote(runtime: Runtime, reference: Any) -> None:
    state = run(
        runtime,
        CONTEXT,
        plait.gen("a", max_tokens=6, ignore_eos=True),
        " and",
        plait.gen("b", max_tokens=1, logprob_start_len=0),
    )
    ids = [*encode(runtime, CONTEXT), *state.result("a").tokens, *encode(runtime, " and")]
    found = state.result("b").prompt_logprobs
    check_prompt(reference, ids, [(entry.id, entry.logprob) for entry in found])


def test_no_tokens_and_what_would_come(runtime: Runtime, reference: Any) -> None:
    """SGLang's output_top_logprobs[0] of a gen with max_tokens=0."""
    state = run(runtime, CONTEXT, plait.gen("x", max_tokens=0, logprobs=True, top_logprobs=5))
    result = state.result("x")
    best = numbers(reference, encode(runtime, CONTEXT))[-1].topk(5)
    assert (result.text, result.logprobs) == ("", ())
    assert [top.id for top in result.next_top] == best.indices.tolist()
    assert [top.logprob for top in result.next_top] == pytest.approx(best.values.tolist(), abs=1e-4)
    assert run(runtime, CONTEXT, plait.gen("x", max_tokens=1, top_logprobs=5)).result("x").next_top == ()


def test_tokens_of_every_choice(runtime: Runtime, reference: Any) -> None:
    choices = [" Paris", " the river", " a"]
    result = run(runtime, CONTEXT, plait.select("x", choices)).result("x")
    context = encode(runtime, CONTEXT)
    assert list(result.choice_logprobs) == choices
    for at, text in enumerate(choices):
        entries = result.choice_logprobs[text]
        ids = encode(runtime, text)
        assert [entry.id for entry in entries] == ids and b"".join(entry.data for entry in entries) == text.encode()
        logp = numbers(reference, context + ids)
        right = [float(logp[len(context) - 1 + i, token]) for i, token in enumerate(ids)]
        assert [entry.logprob for entry in entries] == pytest.approx(right, abs=1e-4)
        assert result.scores[at] == pytest.approx(sum(right) / len(right), abs=1e-4)
    assert result.logprobs == result.choice_logprobs[result.value]
    assert [entry.id for entry in result.logprobs] == list(result.tokens)


def test_a_token_cut_by_a_stop_has_its_number(runtime: Runtime, reference: Any) -> None:
    assert sum(cuts_of(runtime, reference, seed) for seed in range(4)) > 4


def cuts_of(runtime: Runtime, reference: Any, seed: int) -> int:
    """A text is stopped inside each of its tokens in turn; how many of them a stop could cut."""
    free = run(runtime, CONTEXT, plait.gen("x", max_tokens=8, temperature=1.0, seed=seed, ignore_eos=True)).result("x")
    pieces = [runtime.front.model.tokenizer.vocabulary.bytes(token) for token in free.tokens]
    context = encode(runtime, CONTEXT)
    cuts = 0
    for at, piece in enumerate(pieces):
        before = b"".join(pieces[:at]).decode("utf-8", "replace")
        if len(piece) < 2 or not piece.isascii() or (stop := piece[1:].decode()) in before + piece[:1].decode():
            continue
        gen = plait.gen("x", max_tokens=8, temperature=1.0, seed=seed, ignore_eos=True, stop=stop, top_logprobs=3)
        result = run(runtime, CONTEXT, gen).result("x")
        assert result.logprobs is not None and [entry.id for entry in result.logprobs] == list(result.tokens)
        if result.tokens[:at] != free.tokens[:at] or len(result.tokens) != at + 1:
            continue  # the stop was found earlier, across tokens
        cuts += 1
        logp = numbers(reference, [*context, *free.tokens[:at]])[-1]
        entry = result.logprobs[at]
        assert entry.logprob == pytest.approx(float(logp[free.tokens[at]]), abs=1e-4)
        assert [top.id for top in entry.top] == logp.topk(3).indices.tolist()
    return cuts


def test_a_killed_core_changes_no_number(tiny_model_path: Path) -> None:
    """Some are reading their prompts then, some write, and some have just been cut."""

    @plait.function
    def program(s: plait.State, i: int) -> None:
        s += f"program {i}: " + CONTEXT * (1 + i % 4) + plait.gen("a", logprob_start_len=i, top_logprobs=2, stop="e")
        s += " and" + plait.gen("b", top_logprobs=2, ignore_eos=True, max_tokens=40)
        s += plait.gen("c", logprob_start_len=0, stop=["a", "o"], top_logprobs=1)

    def told(runtime: Runtime, kill: bool) -> list[tuple[list[int], list[float]]]:
        states = [program.run(i, backend=runtime, seed=i, stream=True) for i in range(8)]
        if kill:
            next(iter(states[0].text_iter("b")))
            os.kill(runtime.core_pid, signal.SIGKILL)
        found = []
        for state in states:
            ids: list[int] = []
            numbers: list[float] = []
            for name in ("a", "b", "c"):
                result = state.result(name)
                assert result.error is None
                assert [entry.id for entry in result.logprobs] == list(result.tokens)
                assert all(len(entry.top) >= 1 for entry in result.logprobs)
                for entry in (*(result.prompt_logprobs or ())[1:], *result.logprobs):
                    ids += [entry.id, *(top.id for top in entry.top)]
                    numbers += [entry.logprob, *(top.logprob for top in entry.top)]
            found.append((ids, numbers))
        return found

    with warnings.catch_warnings(), Runtime(tiny_model_path, mode="reference", kv_tokens=8192, threads=1) as runtime:
        warnings.simplefilter("ignore", plait.PlaitWarning)
        undisturbed = told(runtime, kill=False)
        for (ids, numbers), (same, again) in zip(undisturbed, told(runtime, kill=True), strict=True):
            assert ids == same
            assert numbers == pytest.approx(again, abs=1e-4)
