"""The HTTP server over a real Runtime with the tiny model: what only both together can get wrong."""

from __future__ import annotations

import asyncio
import json
import re
import warnings
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpx
import openai
import pydantic
import pytest
from layout_kit import is_dump
from openai.types.chat import ParsedChatCompletion
from test_server import USER, chunks
from test_server_lifecycle import Wire

import plait
from plait.runtime.runtime import Runtime
from plait.runtime.server.app import create_app
from plait.runtime.server.settings import ServerSettings

T = TypeVar("T")
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 24}


@pytest.fixture(scope="module")
def runtime(tiny_model_path: Path) -> Iterator[Runtime]:
    with Runtime(tiny_model_path, mode="reference", kv_tokens=8192, threads=1) as runtime:
        yield runtime


def over(
    runtime: Runtime, use: Callable[[httpx.AsyncClient], Awaitable[T]], settings: ServerSettings | None = None
) -> T:
    async def go() -> T:
        app = create_app(runtime, settings or ServerSettings(), counters=runtime.front.metrics)
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=60) as http:
            return await use(http)

    return asyncio.run(go())


def chat(runtime: Runtime, **body: Any) -> httpx.Response:
    return over(runtime, lambda http: http.post("/v1/chat/completions", json={"messages": USER} | GREEDY | body))


def complete(runtime: Runtime, **body: Any) -> httpx.Response:
    return over(runtime, lambda http: http.post("/v1/completions", json={"prompt": "hi"} | GREEDY | body))


def streamed(response: httpx.Response, index: int = 0) -> str:
    parts = [part["choices"][0] for part in chunks(response) if part["choices"]]
    mine = [part for part in parts if part["index"] == index]
    return "".join(part["text"] if "text" in part else part["delta"].get("content", "") for part in mine)


def test_chat_and_roles_are_the_same_ids(runtime: Runtime) -> None:
    """The program's prompt is found whole in the tree: all but the one token that is always computed."""
    messages = [{"role": "system", "content": "be é"}, {"role": "user", "content": "<|im_end|> typed"}]
    answer = chat(runtime, messages=messages).json()

    @plait.function
    def program(s: plait.State) -> None:
        s += plait.system("be é") + plait.user("<|im_end|> typed")
        s += plait.assistant(plait.gen("x", max_tokens=24))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the gen was cut
        state = program.run(backend=runtime, temperature=0)
    assert state["x"] == answer["choices"][0]["message"]["content"]
    usage = state.result("x").usage
    assert usage.prompt == answer["usage"]["prompt_tokens"]
    assert usage.cached == usage.prompt - 1


@pytest.mark.parametrize("prompt", ["hi", "Ünïcödé 🙂 ", [72, 195]])
@pytest.mark.parametrize("seed", [1, 2])
def test_streamed_text_is_the_whole_text(runtime: Runtime, prompt: Any, seed: int) -> None:
    body = {"prompt": prompt, "temperature": 1.5, "seed": seed, "n": 2, "ignore_eos": True}
    whole = complete(runtime, **body).json()
    assert whole["usage"]["completion_tokens"] == 48
    stream = complete(runtime, stream=True, **body)
    for choice in whole["choices"]:
        assert streamed(stream, choice["index"]) == choice["text"]
    assert whole["choices"][0]["text"] != whole["choices"][1]["text"]


def test_stop_strings_cut_alike_and_are_never_shown(runtime: Runtime) -> None:
    """Each stretch of the unstopped text as a stop string, so they fall in every way over the tokens."""
    text = complete(runtime, ignore_eos=True).json()["choices"][0]["text"]
    tried = 0
    for at in range(0, len(text) - 3, 4):
        stop = text[at : at + 3]
        if "\ufffd" in stop:
            continue  # stands for bytes that are no character; a stop string is matched on bytes
        tried += 1
        whole = complete(runtime, stop=stop, ignore_eos=True).json()["choices"][0]
        assert whole["text"] == text[: text.index(stop)]
        assert (whole["finish_reason"], whole["stop_reason"]) == ("stop", stop)
        assert streamed(complete(runtime, stop=stop, ignore_eos=True, stream=True)) == whole["text"]
    assert tried >= 3


def test_regex_is_kept_and_a_bad_one_is_refused(runtime: Runtime) -> None:
    for stream in (False, True):
        bad = chat(runtime, regex="(a", stream=stream)
        assert bad.status_code == 400
        assert bad.json()["error"]["param"] == "regex"
        for degenerate in ("", "a[^\\s\\S]"):  # runtime_open 15
            refused = chat(runtime, regex=degenerate, stream=stream)
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, "regex")
    answer = chat(runtime, regex="id-[0-9]{4}", temperature=1, seed=3).json()
    assert re.fullmatch("id-[0-9]{4}", answer["choices"][0]["message"]["content"])
    assert answer["usage"]["completion_tokens_details"]["forced_tokens"] >= 1


def test_a_constrained_text_ends_where_the_model_goes_on(runtime: Runtime) -> None:
    tried = 0
    for prompt in ("hi", "a", "the b", "one", "two", "c c", "d"):
        free = complete(runtime, prompt=prompt, ignore_eos=True, logprobs=0).json()["choices"][0]
        text, first = free["text"], free["logprobs"]["tokens"][0]
        end = next((char for char in text[len(first) : len(first) + 8] if char not in first), None)
        if end is None or "\ufffd" in text[: text.index(end) + 1]:  # a token of this model may be no whole character
            continue
        tried += 1
        begun, held = text[: text.index(end)], {"prompt": prompt, "regex": f"[^{re.escape(end)}]+"}
        (choice,) = complete(runtime, logprobs=2, **held).json()["choices"]
        assert (choice["text"], choice["finish_reason"], choice["stop_reason"]) == (begun, "stop", None)
        assert "".join(choice["logprobs"]["tokens"]) == begun
        assert streamed(complete(runtime, stream=True, **held)) == begun
        choice = complete(runtime, stop=end, **held).json()["choices"][0]
        assert (choice["text"], choice["stop_reason"]) == (begun, end)
        assert len(complete(runtime, end="eos", **held).json()["choices"][0]["text"]) > len(begun)
    assert tried >= 2


def test_a_text_that_was_wrapped_up_is_whole_and_says_length(runtime: Runtime) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": {**schema, "additionalProperties": False}}}
    for seed in range(8):
        answer = chat(runtime, response_format=wanted, temperature=1, seed=seed, max_tokens=24).json()
        choice, details = answer["choices"][0], answer["usage"]["completion_tokens_details"]
        assert set(json.loads(choice["message"]["content"])) == {"a"}
        assert choice["finish_reason"] == ("length" if details["wrapped_tokens"] else "stop")
        if details["wrapped_tokens"]:
            break
    assert details["wrapped_tokens"], "this model ends no string within 24 tokens by itself"
    cut = chat(runtime, response_format=wanted, temperature=1, seed=seed, max_tokens=24, wrap_up=False).json()
    with pytest.raises(json.JSONDecodeError):
        json.loads(cut["choices"][0]["message"]["content"])


def test_whole_values_reach_readers_that_throw_them_away_at_length(runtime: Runtime) -> None:
    class Note(pydantic.BaseModel):
        a: str

    def parsed(seed: int, settings: ServerSettings | None = None, **extra: Any) -> ParsedChatCompletion[Note]:
        async def use(http: httpx.AsyncClient) -> ParsedChatCompletion[Note]:
            client = openai.AsyncOpenAI(api_key="k", base_url="http://test/v1", http_client=http, max_retries=0)
            asked: Any = {"messages": USER, "response_format": Note, "max_tokens": 24, "temperature": 1, "seed": seed}
            return await client.chat.completions.parse(model=runtime.info().model, extra_body=extra, **asked)

        return over(runtime, use, settings)

    def wrapped(answer: ParsedChatCompletion[Note]) -> int:
        assert answer.usage is not None and answer.usage.completion_tokens_details is not None
        extra = answer.usage.completion_tokens_details.model_extra
        return 0 if extra is None else int(extra["wrapped_tokens"])

    seed, answer = next((seed, one) for seed in range(8) if wrapped(one := parsed(seed, wrap_up="stop")))
    assert isinstance(answer.choices[0].message.parsed, Note) and answer.choices[0].finish_reason == "stop"
    assert parsed(seed, ServerSettings(wrap_up="stop")).choices[0].message == answer.choices[0].message
    for settings, extra in ((None, {}), (ServerSettings(wrap_up="stop"), {"wrap_up": True})):
        with pytest.raises(openai.LengthFinishReasonError):
            parsed(seed, settings, **extra)


@pytest.mark.parametrize("limit", [3, 40, 200])
def test_any_json_object_comes_whole_however_little_room_there_is(runtime: Runtime, limit: int) -> None:
    for seed in range(3):
        answer = chat(
            runtime, response_format={"type": "json_object"}, temperature=1, seed=seed, max_tokens=limit
        ).json()
        assert is_dump(answer["choices"][0]["message"]["content"])


def test_the_layout_of_json_can_be_said_over_http(runtime: Runtime) -> None:
    schema = {"type": "object", "properties": {"a": {"enum": [[1, 2], [3, {"b": 4}]]}}, "required": ["a"]}
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    layouts = {"compact": {"separators": (",", ":")}, "spaced": {}, 2: {"indent": 2}}
    for whitespace in ("compact", "spaced", 2, "auto", None):
        for seed in range(3):
            answer = chat(
                runtime, response_format=wanted, whitespace=whitespace, temperature=1, seed=seed, max_tokens=200
            ).json()
            text = answer["choices"][0]["message"]["content"]
            if whitespace in layouts:
                assert text == json.dumps(json.loads(text), **layouts[whitespace])  # type: ignore[index]
            else:
                assert is_dump(text)


def test_response_format_and_grammar_are_kept_and_bad_ones_refused(runtime: Runtime) -> None:
    schema = {"type": "object", "properties": {"id": {"type": "integer", "maximum": 99}}, "required": ["id"]}
    strict = {"type": "json_schema", "json_schema": {"name": "x", "schema": {**schema, "additionalProperties": False}}}
    answer = chat(runtime, response_format=strict, temperature=1, seed=3, max_tokens=60).json()["choices"][0]
    assert answer["finish_reason"] == "stop" and json.loads(answer["message"]["content"])["id"] <= 99
    answer = complete(runtime, grammar='root ::= ("a" | "b")+ "."', max_tokens=60, stop_regex="ab|ba").json()[
        "choices"
    ][0]
    assert re.fullmatch(r"[ab]*\.?", answer["text"])
    for stream in (False, True):
        bad = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "objekt"}}}
        refused = chat(runtime, response_format=bad, stream=stream)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "response_format")
        refused = chat(runtime, stop_regex="a*", stream=stream)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "stop_regex")


def test_what_does_not_fit_is_refused(runtime: Runtime) -> None:
    long = chat(runtime, messages=[{"role": "user", "content": "word " * 5000}])
    assert long.status_code == 400
    assert (long.json()["error"]["code"], long.json()["error"]["param"]) == ("context_length_exceeded", "messages")
    empty = complete(runtime, prompt="")  # this model has no BOS to begin with
    assert (empty.status_code, empty.json()["error"]["param"]) == (400, "prompt")
    assert chat(runtime).status_code == 200


def test_prefill_only(runtime: Runtime) -> None:
    answer = complete(runtime, max_tokens=0).json()
    assert (answer["choices"][0]["text"], answer["choices"][0]["finish_reason"]) == ("", "length")
    assert answer["usage"]["completion_tokens"] == 0


def test_usage_counts_the_prompt_once_and_what_was_cached(runtime: Runtime) -> None:
    body = {"prompt": "something that no other test says " * 3, "n": 3, "ignore_eos": True}
    first, again = complete(runtime, **body).json()["usage"], complete(runtime, **body).json()["usage"]
    assert first["completion_tokens"] == 72
    assert first["prompt_tokens"] == again["prompt_tokens"]
    assert first["prompt_tokens_details"]["cached_tokens"] < first["prompt_tokens"]
    assert again["prompt_tokens_details"]["cached_tokens"] == again["prompt_tokens"] - 1
    salted = complete(runtime, cache_salt="mine", **body).json()["usage"]
    assert salted["prompt_tokens_details"]["cached_tokens"] == 0


@pytest.mark.parametrize("stream", [False, True])
def test_text_offsets_and_logprobs(runtime: Runtime, stream: bool) -> None:
    response = complete(runtime, logprobs=2, temperature=2, seed=5, ignore_eos=True, stream=stream)
    parts = chunks(response) if stream else [response.json()]
    text = "".join(part["choices"][0]["text"] for part in parts)
    shapes = [part["choices"][0]["logprobs"] for part in parts]
    offsets = [at for shape in shapes for at in shape["text_offset"]]
    assert len(offsets) == 24
    assert offsets == sorted(offsets)
    assert offsets[0] == 0 and offsets[-1] <= len(text)
    for shape in shapes:
        for token, logprob, top in zip(shape["tokens"], shape["token_logprobs"], shape["top_logprobs"]):
            assert logprob <= 0
            assert 2 <= len(top) <= 3 and top[token] == logprob
            assert logprob <= max(top.values()) + 1e-6, token


def test_every_eos_stops_unless_told_otherwise(runtime: Runtime) -> None:
    """runtime_open 18, by making the model want nothing else."""
    eos = plait_eos(runtime)
    wants = {"logit_bias": {str(eos): 100}}
    stopped = chat(runtime, **wants).json()
    assert (stopped["choices"][0]["message"]["content"], stopped["choices"][0]["finish_reason"]) == ("", "stop")
    assert chat(runtime, ignore_eos=True, **wants).json()["choices"][0]["finish_reason"] == "length"
    assert chat(runtime, min_tokens=5, **wants).json()["usage"]["completion_tokens"] >= 5


def plait_eos(runtime: Runtime) -> int:
    return next(iter(runtime.front.model.tokenizer.eos_ids))


@pytest.mark.parametrize("body", [{}, {"n": 3}, {"stream": True}])
def test_a_client_that_hangs_up_frees_its_slots(runtime: Runtime, body: dict[str, Any]) -> None:
    """runtime_open 13: the request would fill the rest of the context."""

    async def use(http: httpx.AsyncClient) -> None:
        app = create_app(runtime, ServerSettings())
        request = {"messages": USER, "ignore_eos": True, "logit_bias": {}} | body
        started = runtime.front.metrics.done
        wire = Wire(app, request)
        async with asyncio.timeout(60):
            while runtime.front.live == 0 and runtime.front.metrics.done == started:
                await asyncio.sleep(0)
            wire.hang_up()
            await wire.task
            while runtime.front.live:  # in the front at once; the core within a step
                await asyncio.sleep(0)
            while used(runtime) or runtime.front.metrics.gauges()["running"]:
                await asyncio.sleep(0.01)  # the core says so when it falls idle

    over(runtime, use)


def used(runtime: Runtime) -> float:
    gauges = runtime.front.metrics.gauges()
    return gauges["kv_total"] - gauges["kv_free"] - gauges["kv_cached"]


def test_official_client_end_to_end(runtime: Runtime) -> None:
    async def use(http: httpx.AsyncClient) -> tuple[str, str]:
        client = openai.AsyncOpenAI(api_key="k", base_url="http://test/v1", http_client=http, max_retries=0)
        model = (await client.models.list()).data[0].id
        whole = await client.chat.completions.create(model=model, messages=USER, temperature=0, max_tokens=16)  # type: ignore[arg-type]
        text = ""
        async for chunk in await client.chat.completions.create(
            model=model,
            messages=USER,  # type: ignore[arg-type]
            temperature=0,
            max_tokens=16,
            stream=True,
        ):
            text += chunk.choices[0].delta.content or ""
        page = (await http.get("/metrics")).text
        assert re.search(r'plait_sampled_tokens_total\{model_name="[^"]+"\} [1-9]', page)
        return whole.choices[0].message.content or "", text

    whole, text = over(runtime, use)
    assert whole == text


def test_many_clients_at_once(runtime: Runtime) -> None:
    async def use(http: httpx.AsyncClient) -> None:
        async def one(i: int) -> str:
            body = {"prompt": f"p{i % 8}", "stream": i % 2 == 0} | GREEDY
            response = await http.post("/v1/completions", json=body)
            return streamed(response) if i % 2 == 0 else json.loads(response.text)["choices"][0]["text"]

        texts = await asyncio.gather(*(one(i) for i in range(32)))
        for i in range(8):
            assert len({texts[k] for k in range(i, 32, 8)}) == 1

    over(runtime, use)
