"""The HTTP surface, through the official client and through raw bytes, over a scripted backend."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import httpx
import openai
import pytest
from server_fake import Script, ScriptedBackend, Sent

from plait.constrained.compiler import build
from plait.constrained.vocabulary import single_bytes
from plait.runtime.protocol import Gen, Ids, Regex, RoleBegin, RoleEnd, Sampling, Spec, Text
from plait.runtime.salt import digest
from plait.runtime.server.app import create_app
from plait.runtime.server.settings import ServerSettings

T = TypeVar("T")
USER = [{"role": "user", "content": "hi"}]


def over(backend: ScriptedBackend, use: Callable[[httpx.AsyncClient], Awaitable[T]], **settings: Any) -> T:
    async def go() -> T:
        transport = httpx.ASGITransport(create_app(backend, ServerSettings(**settings)))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            return await use(http)

    return asyncio.run(go())


def official(backend: ScriptedBackend, use: Callable[[openai.AsyncOpenAI], Awaitable[T]], **settings: Any) -> T:
    async def go(http: httpx.AsyncClient) -> T:
        return await use(openai.AsyncOpenAI(api_key="k", base_url="http://test/v1", http_client=http, max_retries=0))

    return over(backend, go, **settings)


def post(backend: ScriptedBackend, path: str, body: dict[str, Any], **settings: Any) -> httpx.Response:
    return over(backend, lambda http: http.post(path, json=body), **settings)


def chat(backend: ScriptedBackend, **body: Any) -> httpx.Response:
    return post(backend, "/v1/chat/completions", {"model": "tiny", "messages": USER} | body)


def complete(backend: ScriptedBackend, **body: Any) -> httpx.Response:
    return post(backend, "/v1/completions", {"model": "tiny", "prompt": "hi"} | body)


def chunks(response: httpx.Response) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    lines = response.text.split("\n\n")
    assert lines[-1] == "" and lines[-2] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]


# ---------------------------------------------------------------- what is sent


def test_chat_is_roles_and_one_gen() -> None:
    backend = ScriptedBackend()
    messages = [
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": None},
        {"role": "user", "content": "<|im_end|>"},
    ]
    assert chat(backend, messages=messages, cache_salt="s", priority=3).status_code == 200
    (sent,) = backend.strands.values()
    assert sent.rendered() == "<system>be brief</><user>ab</><assistant></><user><|im_end|></><assistant>"
    assert [type(op) for op in sent.ops[:3]] == [RoleBegin, Text, RoleEnd]
    assert [op.op for op in sent.ops] == list(range(1, len(sent.ops) + 1))  # type: ignore[attr-defined]
    assert (sent.opened.salt, sent.opened.priority) == (digest("s"), 3)
    assert sent.gen == Gen(len(sent.ops), Sampling())


def test_a_salt_is_kept_as_a_digest() -> None:
    backend = ScriptedBackend()
    for salt in ("s", "t", "\u00e9" * 512, None, ""):
        assert complete(backend, prompt="x", cache_salt=salt).status_code == 200
    salts = [sent.opened.salt for sent in backend.strands.values()]
    assert len(set(salts)) == 4 and salts[3:] == ["", ""]
    assert {len(salt) for salt in salts[:3]} == {64}


def test_a_message_may_say_who_speaks() -> None:
    backend = ScriptedBackend()
    assert chat(backend, messages=[{"role": "user", "content": "x", "name": "bob"}]).status_code == 200
    assert chat(backend, messages=[{"role": "user", "content": "x"}]).status_code == 200
    first, second = backend.strands.values()
    assert first.ops == second.ops, "it changes nothing of the prompt"


def test_every_sampling_field_arrives() -> None:
    backend = ScriptedBackend()
    fields: dict[str, Any] = {
        "temperature": 0.5,
        "top_p": 0.9,
        "n": 2,
        "stop": ["a", "b"],
        "seed": 7,
        "logit_bias": {"5": -100},
        "presence_penalty": 0.1,
        "frequency_penalty": 0.2,
        "top_k": 3,
        "min_p": 0.05,
        "repetition_penalty": 1.1,
        "min_tokens": 2,
        "ignore_eos": True,
        "stop_token_ids": [9],
        "stop_regex": "x+",
        "regex": "a+",
        "end": "eos",
    }
    assert chat(backend, max_completion_tokens=20, logprobs=True, top_logprobs=4, **fields).status_code == 200
    assert complete(backend, max_tokens=20, logprobs=4, **fields).status_code == 200
    want = Sampling(
        max_tokens=20,
        min_tokens=2,
        temperature=0.5,
        top_p=0.9,
        top_k=3,
        min_p=0.05,
        repetition_penalty=1.1,
        presence_penalty=0.1,
        frequency_penalty=0.2,
        logit_bias={5: -100.0},
        seed=7,
        stop=("a", "b"),
        stop_regex=("x+",),
        stop_token_ids=(9,),
        ignore_eos=True,
        logprobs=True,
        top_logprobs=4,
        end="eos",
    )
    for sent in backend.strands.values():
        assert (sent.gen.sampling, sent.gen.constraint, sent.gen.n) == (want, Regex("a+"), 2)


def test_what_the_answer_must_be() -> None:
    schema = {"type": "object", "properties": {"b": {"type": "integer"}, "a": {}}}
    for body, source, field in (
        ({"response_format": {"type": "json_object"}}, {"json_schema": {"type": "object"}}, "response_format"),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "x", "strict": True, "schema": schema},
                }
            },
            {"json_schema": schema},
            "response_format",
        ),
        ({"grammar": 'root ::= "a"'}, {"grammar": 'root ::= "a"'}, "grammar"),
    ):
        backend = ScriptedBackend()
        assert chat(backend, **body).status_code == 200
        sent = next(iter(backend.strands.values())).gen.constraint
        assert isinstance(sent, Spec) and (json.loads(sent.source), sent.field) == (source, field)
        assert json.dumps(source, separators=(",", ":")) == sent.source, "keys keep their order"


@pytest.mark.parametrize("whitespace", ["auto", "single", "compact", "spaced", 2, 0])
def test_options_of_json_stand_beside_its_response_format(whitespace: str | int) -> None:
    options = {"whitespace": whitespace, "any_order": True, "undeclared": True, "strict": False, "format": "annotate"}
    formats = (
        ({"type": "json_object"}, {"type": "object"}),
        (
            {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": {"type": "null"}}},
            {"type": "null"},
        ),
    )
    for wanted, schema in formats:
        backend = ScriptedBackend()
        assert chat(backend, response_format=wanted, **options).status_code == 200
        sent = next(iter(backend.strands.values())).gen.constraint
        assert isinstance(sent, Spec) and json.loads(sent.source) == {"json_schema": schema, "options": options}
        build(json.loads(sent.source), single_bytes(), "")
    backend = ScriptedBackend()
    assert chat(backend, response_format={"type": "json_object"}, whitespace=None, strict=None).status_code == 200
    sent = next(iter(backend.strands.values())).gen.constraint
    assert isinstance(sent, Spec) and json.loads(sent.source) == {"json_schema": {"type": "object"}}


def test_null_means_absent_and_top_k_minus_one_means_off() -> None:
    backend = ScriptedBackend()
    nulls = dict.fromkeys(["temperature", "stop", "seed", "n", "tools", "logit_bias", "stream", "max_tokens", "user"])
    assert chat(backend, **nulls, top_k=-1).status_code == 200
    assert next(iter(backend.strands.values())).gen.sampling == Sampling()


def test_an_unknown_field_that_is_null_asks_for_nothing() -> None:
    backend = ScriptedBackend()
    assert chat(backend, guided_json=None, use_beam_search=None, temperature=0).status_code == 200
    assert next(iter(backend.strands.values())).gen.sampling == Sampling(temperature=0)
    assert chat(backend, guided_json=None, foo=1).json()["error"]["param"] == "foo"
    assert chat(backend, messages=[{"role": "user", "content": "x", "cache": None}]).status_code == 200
    part = {"type": "text", "text": "x", "cache_control": None}
    assert chat(backend, messages=[{"role": "user", "content": [part]}]).status_code == 200
    named = {"name": "x", "schema": {}, "strict": None, "foo": None}
    for wanted in (
        {"type": "text", "json_schema": None},
        {"type": "json_object", "schema": None},
        {"type": "json_schema", "json_schema": named, "strict": None},
    ):
        assert chat(backend, response_format=wanted).status_code == 200


@pytest.mark.parametrize(
    ("given", "want"),
    [
        ({"max_tokens": -1}, Sampling()),
        ({"stop": ""}, Sampling()),
        ({"stop": []}, Sampling()),
        ({"stop": ["", "a", ""]}, Sampling(stop=("a",))),
        ({"top_p": 0}, Sampling(top_p=0.0)),
    ],
)
def test_what_other_servers_take_for_none_is_taken(given: dict[str, Any], want: Sampling) -> None:
    backend = ScriptedBackend()
    for answer in (chat(backend, **given), complete(backend, **given)):
        assert answer.status_code == 200, answer.text
    assert [sent.gen.sampling for sent in backend.strands.values()] == [want, want]


def test_minus_one_of_max_completion_tokens_is_the_rest_of_the_context_too() -> None:
    backend = ScriptedBackend()
    assert chat(backend, max_completion_tokens=-1, max_tokens=-1).status_code == 200
    assert chat(backend, max_completion_tokens=-1, max_tokens=None).status_code == 200
    assert {sent.gen.sampling.max_tokens for sent in backend.strands.values()} == {None}


def test_fields_without_effect_are_accepted() -> None:
    body = {
        "user": "u",
        "metadata": {"a": "b"},
        "store": False,
        "stream_options": {"include_usage": True},
        "tool_choice": "none",
        "tools": [],
        "parallel_tool_calls": True,
        "modalities": ["text"],
        "service_tier": "auto",
        "response_format": {"type": "text"},
    }
    assert chat(ScriptedBackend(), **body).status_code == 200


@pytest.mark.parametrize(
    ("prompt", "ops"),
    [
        ("hi", [(Text(1, "hi"),)]),
        (["a", "b"], [(Text(1, "a"),), (Text(1, "b"),)]),
        ([1, 2], [(Ids(1, (1, 2)),)]),
        ([[1], [2, 3]], [(Ids(1, (1,)),), (Ids(1, (2, 3)),)]),
        ("", [()]),
    ],
)
def test_prompt_kinds(prompt: Any, ops: list[tuple[object, ...]]) -> None:
    backend = ScriptedBackend()
    assert complete(backend, prompt=prompt).status_code == 200
    assert [tuple(sent.ops[:-1]) for sent in backend.strands.values()] == ops


# ---------------------------------------------------------------- what comes back


def test_official_client_chat() -> None:
    backend = ScriptedBackend(lambda sent, choice: Script(matched="!", cached=4))

    async def use(client: openai.AsyncOpenAI) -> Any:
        return await client.chat.completions.create(
            model="tiny",
            messages=USER,
            n=2,
            logprobs=True,
            top_logprobs=2,  # type: ignore[arg-type]
        )

    answer = official(backend, use)
    assert [choice.index for choice in answer.choices] == [0, 1]
    first = answer.choices[0]
    assert (first.message.role, first.message.content, first.finish_reason) == ("assistant", "Hello, world", "stop")
    assert first.stop_reason == "!"
    assert [(lp.token, lp.bytes, len(lp.top_logprobs)) for lp in first.logprobs.content][1] == (",", [44], 2)
    usage = answer.usage
    # the prompt once (choice 0), the answers summed
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (10, 6, 16)
    assert usage.prompt_tokens_details.cached_tokens == 4


def test_official_client_completions_and_models() -> None:
    backend = ScriptedBackend(lambda sent, choice: Script(tokens=(sent.rendered().encode(), b"!")))

    async def use(client: openai.AsyncOpenAI) -> Any:
        answer = await client.completions.create(model="tiny", prompt=["a", "b"], n=2, echo=True)
        names = [model.id async for model in client.models.list()]
        return answer, names, (await client.models.retrieve("tiny")).id

    answer, names, one = official(backend, use, names=("other",))
    assert [(choice.index, choice.text) for choice in answer.choices] == [
        (0, "aa!"),
        (1, "aa!"),
        (2, "bb!"),
        (3, "bb!"),
    ]
    assert answer.usage.prompt_tokens == 20
    assert answer.usage.completion_tokens == 8
    assert (names, one) == (["tiny", "other"], "tiny")


def test_official_client_streams() -> None:
    backend = ScriptedBackend()

    async def use(client: openai.AsyncOpenAI) -> str:
        text = ""
        stream = await client.chat.completions.create(model="tiny", messages=USER, stream=True)  # type: ignore[arg-type]
        async for chunk in stream:
            text += chunk.choices[0].delta.content or ""
        return text

    assert official(backend, use) == "Hello, world"


def test_text_offsets_count_characters() -> None:
    """A character over two tokens: both begin where it does. Replaced bytes count as what the text shows."""
    tokens = ("é".encode()[:1], "é".encode()[1:], b"x", "🙂".encode()[:3], "🙂".encode()[3:], b"y")
    backend = ScriptedBackend(lambda sent, choice: Script(tokens=tokens))
    for stream in (False, True):
        response = complete(backend, logprobs=1, stream=stream)
        parts = chunks(response) if stream else [response.json()]
        offsets = [at for part in parts for at in part["choices"][0]["logprobs"]["text_offset"]]
        text = "".join(part["choices"][0]["text"] for part in parts)
        assert text == "éx🙂y"
        assert offsets == [0, 0, 1, 2, 2, 3]


# ---------------------------------------------------------------- streams


def test_chat_stream_order_and_usage() -> None:
    """runtime_open 4, 5, 6: role first, no empty content, one finish per index, usage last with choices []."""
    tokens = ("é".encode()[:1], "é".encode()[1:], b"", b" a", b"b")
    backend = ScriptedBackend(lambda sent, choice: Script(tokens=tokens, reason="length"))
    got = chunks(chat(backend, stream=True, n=2, stream_options={"include_usage": True}))
    *parts, last = got
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 10  # tokens, not chunks
    assert last["usage"]["prompt_tokens"] == 10
    assert all(part["usage"] is None for part in parts)
    assert len({part["id"] for part in got}) == 1
    for index in (0, 1):
        mine = [part["choices"][0] for part in parts if part["choices"][0]["index"] == index]
        assert mine[0]["delta"] == {"role": "assistant"}
        assert [choice["finish_reason"] for choice in mine].count("length") == 1
        assert mine[-1]["finish_reason"] == "length"
        assert mine[-1]["delta"] == {}
        contents = [choice["delta"]["content"] for choice in mine[1:-1]]
        assert all(contents)
        assert "".join(contents) == "é ab"


def test_no_usage_unless_asked() -> None:
    got = chunks(chat(ScriptedBackend(), stream=True))
    assert all("usage" not in part and len(part["choices"]) == 1 for part in got)


def test_completion_stream_with_echo() -> None:
    backend = ScriptedBackend()
    got = chunks(complete(backend, prompt=["p", "q"], echo=True, stream=True))
    for index, prompt in enumerate("pq"):
        mine = [part["choices"][0] for part in got if part["choices"][0]["index"] == index]
        assert mine[0]["text"] == prompt
        assert "".join(choice["text"] for choice in mine) == prompt + "Hello, world"
        assert [choice["finish_reason"] for choice in mine if choice["finish_reason"]] == ["stop"]


def test_first_delta_holds_generated_text_only() -> None:
    """runtime_open 1: prompt ids that end inside a character."""
    backend = ScriptedBackend(lambda sent, choice: Script(tokens=(b"ok",)))
    got = chunks(complete(backend, prompt=[195], stream=True))
    assert "".join(part["choices"][0]["text"] for part in got) == "ok"


@pytest.mark.parametrize("n", [1, 3])
def test_streamed_equals_whole(n: int) -> None:
    """runtime_open 2: also where the stop left text that no delta carried (the tail)."""

    def script(sent: Sent, choice: int) -> Script:
        return Script(tokens=(b"abc", b"de\xc3", b"\xa9", b"tail"), tail=1, matched="STOP")

    whole = chat(ScriptedBackend(script), n=n, logprobs=True).json()["choices"]
    got = chunks(chat(ScriptedBackend(script), n=n, logprobs=True, stream=True))
    for index in range(n):
        mine = [part["choices"][0] for part in got if part["choices"][0]["index"] == index]
        assert "".join(choice["delta"].get("content", "") for choice in mine) == whole[index]["message"]["content"]
        logprobs = [lp for choice in mine if choice["logprobs"] for lp in choice["logprobs"]["content"]]
        assert logprobs == whole[index]["logprobs"]["content"]
        assert mine[-1]["stop_reason"] == whole[index]["stop_reason"] == "STOP"


def test_error_in_mid_stream_is_data_and_the_end() -> None:
    failure = ("core_crashed", None, "the core died twice")
    backend = ScriptedBackend(lambda sent, choice: Script(fail=failure, fail_after=1))
    response = chat(backend, stream=True)
    assert response.status_code == 200
    last = json.loads(response.text.strip().split("\n\n")[-1].removeprefix("data: "))
    assert last["error"]["code"] == "core_crashed"
    assert "[DONE]" not in response.text
    assert len(backend.aborted) == 1
