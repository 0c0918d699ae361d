"""How numbers look over HTTP: names that keep tokens apart, the sampled token, echo, prompts, what would come next."""

from __future__ import annotations

import math
from typing import Any

import httpx
import openai
import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion
from server_fake import Script, ScriptedBackend, Sent
from test_server import chat, chunks, complete, official, post
from test_server_refusals import refused

from plait.runtime.protocol import TokenLogprob, TopLogprob
from plait.runtime.server.logprobs import prompt_offsets, token_name

FACE = "😀".encode()


def played(**how: Any) -> ScriptedBackend:
    return ScriptedBackend(lambda sent, choice: Script(**how))


def joined(parts: list[Any]) -> dict[str, list[Any]]:
    """The completions shape of all chunks as one."""
    shapes = [part["choices"][0]["logprobs"] for part in parts if part["choices"]]
    names = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
    for shape in shapes:
        assert len({len(shape[name]) for name in names}) == 1, "the four lists go together"
    return {name: [item for shape in shapes for item in shape[name]] for name in names}


def answers(backend: ScriptedBackend, stream: bool, **body: Any) -> list[Any]:
    response = complete(backend, stream=stream, **body)
    assert response.status_code == 200, response.text
    return chunks(response) if stream else [response.json()]


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("data", "token", "name"),
    [
        (b" the", " the", " the"),
        ("é".encode(), "é", "é"),
        (FACE[:2], "�", r"bytes:\xf0\x9f"),
        (b" " + FACE[:3], " �", r"bytes: \xf0\x9f\x98"),
        (b"\\" + FACE[:1], "\\�", r"bytes:\x5c\xf0"),
        (b"", "<|im_end|>", "<|im_end|>"),
        ("�".encode(), "�", "�"),
    ],
)
def test_names_of_tokens(data: bytes, token: str, name: str) -> None:
    assert token_name(TopLogprob(1, token, data, -1.0)) == name


def parts_of_characters(at: int, n: int) -> list[TopLogprob]:
    """The likeliest is what comes; all of them decode to U+FFFD, and two pairs have the very same bytes."""
    found = [TopLogprob(0, "�", FACE[:2], -0.5)]
    found += [TopLogprob(200 + k, "�", bytes([0xF0, 0x80 + k // 2]), -1.0 - k) for k in range(1, n)]
    return found[:n]


@pytest.mark.parametrize("stream", [False, True])
def test_tokens_that_are_no_text_are_kept_apart(stream: bool) -> None:
    backend = played(tokens=(FACE[:2], FACE[2:]), top=parts_of_characters)
    shape = joined(answers(backend, stream, logprobs=20))
    assert shape["tokens"] == [r"bytes:\xf0\x9f", r"bytes:\x98\x80"]
    for token, number, top in zip(shape["tokens"], shape["token_logprobs"], shape["top_logprobs"]):
        assert top[token] == number
    assert [len(top) for top in shape["top_logprobs"]] == [20, 21]
    assert sorted(shape["top_logprobs"][0].values(), reverse=True) == list(shape["top_logprobs"][0].values())
    assert "token_id:203" in shape["top_logprobs"][0]  # spelled as 202 is


@pytest.mark.parametrize("stream", [False, True])
def test_chat_gives_the_bytes_of_parts_of_characters(stream: bool) -> None:
    backend = played(tokens=(FACE[:2], FACE[2:]), top=parts_of_characters)
    response = chat(backend, logprobs=True, top_logprobs=20, stream=stream)
    parts = [p["choices"][0]["logprobs"] for p in (chunks(response) if stream else [response.json()])]
    content = [entry for part in parts if part for entry in part["content"]]
    assert [bytes(entry["bytes"]) for entry in content] == [FACE[:2], FACE[2:]]
    assert [len(entry["top_logprobs"]) for entry in content] == [20, 20]


def test_special_tokens_and_text_of_one_name_are_kept_apart() -> None:
    top = [TopLogprob(7, "<x>", b"<x>", -1.0), TopLogprob(8, "<x>", b"", -2.0), TopLogprob(9, "<x>", b"", -3.0)]
    backend = played(tokens=(b"a",), top=lambda at, n: top[:n])
    (found,) = joined(answers(backend, False, logprobs=3))["top_logprobs"]
    assert found == {"<x>": -1.0, "bytes:": -2.0, "token_id:9": -3.0, "a": -0.5}


@pytest.mark.parametrize("n", [0, 1, 5])
@pytest.mark.parametrize("stream", [False, True])
def test_the_sampled_token_is_among_the_alternatives(n: int, stream: bool) -> None:
    shape = joined(answers(played(), stream, logprobs=n))
    assert shape["tokens"] == ["Hello", ",", " world"]
    for token, top in zip(shape["tokens"], shape["top_logprobs"]):
        assert len(top) == n + 1 and top[token] == -0.5


def test_a_number_that_json_cannot_say() -> None:
    top = [TopLogprob(7, "x", b"x", -1.0), TopLogprob(8, "y", b"y", -math.inf)]
    for response in (
        complete(played(tokens=(b"a",), top=lambda at, n: top[:n]), logprobs=2),
        chat(played(tokens=(b"a",), top=lambda at, n: top[:n]), logprobs=True, top_logprobs=2),
    ):
        assert "-9999.0" in response.text and response.text.count("null") <= 3  # matched, refusal, stop_reason


@pytest.mark.parametrize("stream", [False, True])
def test_tokens_that_come_with_the_end_have_numbers(stream: bool) -> None:
    """As those that stand for the beginning of a token that a stop cut."""
    backend = played(tokens=(b"ab", b"c"), tail=1)
    response = chat(backend, logprobs=True, top_logprobs=2, stream=stream)
    parts = [p["choices"][0]["logprobs"] for p in (chunks(response) if stream else [response.json()])]
    content = [entry for part in parts if part for entry in part["content"]]
    assert [(e["token"], e["logprob"], len(e["top_logprobs"])) for e in content] == [("ab", -0.5, 2), ("c", -0.5, 2)]
    if not stream:
        ChatCompletion.model_validate(response.json(), strict=False)


# ---------------------------------------------------------------- what would come next


@pytest.mark.parametrize("stream", [False, True])
def test_what_would_come_next(stream: bool) -> None:
    top = (TopLogprob(3, "�", FACE[:2], -0.5), TopLogprob(4, "b", b"b", -1.5))
    backend = played(tokens=(), next_top=top, reason="length")
    (shape,) = [p["choices"][0]["logprobs"] for p in answers(backend, stream, logprobs=2, max_tokens=0)]
    assert shape["tokens"] == [] and shape["next_top_logprobs"] == {r"bytes:\xf0\x9f": -0.5, "b": -1.5}
    response = chat(backend, logprobs=True, top_logprobs=2, max_tokens=0, stream=stream)
    *_, last = chunks(response) if stream else [response.json()]
    found = last["choices"][0]["logprobs"]
    assert found["content"] == []
    assert [(e["token"], bytes(e["bytes"]), e["logprob"]) for e in found["next_top_logprobs"]] == [
        ("�", FACE[:2], -0.5),
        ("b", b"b", -1.5),
    ]


# ---------------------------------------------------------------- echo


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("prompt", ["Say hi", [5, 6]])
@pytest.mark.parametrize("n", [1, 2])
def test_echo_with_logprobs(stream: bool, prompt: Any, n: int) -> None:
    backend = played(reason="length")
    parts = answers(backend, stream, prompt=prompt, echo=True, logprobs=2, n=n)
    for index in range(n):
        if stream:
            mine = [part for part in parts if part["choices"][0]["index"] == index]
        else:
            mine = [{"choices": [parts[0]["choices"][index]]}]
        assert "".join(part["choices"][0]["text"] for part in mine) == "Say hiHello, world"
        shape = joined(mine)
        assert shape["tokens"] == ["Say", " hi", "Hello", ",", " world"]
        assert shape["token_logprobs"] == [None, -0.25, -0.5, -0.5, -0.5]
        assert shape["text_offset"] == [0, 3, 6, 11, 12]
        assert shape["top_logprobs"][0] is None
        assert shape["top_logprobs"][1] == {"t0": -0.5, "t1": -1.5, " hi": -0.25}


def test_echo_of_several_prompts() -> None:
    def script(sent: Sent, choice: int) -> Script:
        ids = sent.ops[0].ids  # type: ignore[attr-defined]
        return Script(tokens=(b"!",), prompt=[bytes([token]) for token in ids], reason="length")

    answer = complete(ScriptedBackend(script), prompt=[[97, 98], [99]], echo=True, logprobs=0, max_tokens=1).json()
    assert [choice["text"] for choice in answer["choices"]] == ["ab!", "c!"]
    assert [choice["logprobs"]["tokens"] for choice in answer["choices"]] == [["a", "b", "!"], ["c", "!"]]
    assert answer["choices"][0]["logprobs"]["top_logprobs"] == [None, {"b": -0.25}, {"!": -0.5}]


@pytest.mark.parametrize("stream", [False, True])
def test_echo_of_ids_without_logprobs(stream: bool) -> None:
    parts = answers(played(), stream, prompt=[5, 6], echo=True)
    assert "".join(part["choices"][0]["text"] for part in parts) == "Say hiHello, world"
    assert all(part["choices"][0]["logprobs"] is None for part in parts)


def test_echo_of_text_without_logprobs_reads_nothing() -> None:
    backend = played()
    assert complete(backend, prompt="Say hi", echo=True).json()["choices"][0]["text"] == "Say hiHello, world"
    (sent,) = backend.strands.values()
    assert sent.gen.sampling.logprob_start_len == -1


@pytest.mark.parametrize("stream", [False, True])
def test_echo_shows_the_end_token(stream: bool) -> None:
    """Readers of an echo (lm-eval) take off the last of the lists, which is what they let the model write."""
    end = TokenLogprob(2, "<|im_end|>", b"", -0.75, top=(TopLogprob(2, "<|im_end|>", b"", -0.75),))
    backend = played(tokens=(), end=end, matched=2)
    shape = joined(answers(backend, stream, echo=True, logprobs=1, max_tokens=1))
    assert shape["tokens"] == ["Say", " hi", "<|im_end|>"]
    assert shape["token_logprobs"] == [None, -0.25, -0.75]
    assert shape["top_logprobs"][2] == {"<|im_end|>": -0.75} and shape["text_offset"][2] == 2  # the prompt is "hi"
    assert joined(answers(backend, stream, logprobs=1, max_tokens=1))["tokens"] == []


def entry(token: str, data: bytes | None = None) -> TokenLogprob:
    return TokenLogprob(1, token, token.encode() if data is None else data, -1.0)


@pytest.mark.parametrize(
    ("text", "entries", "offsets"),
    [
        ("ab c", [entry("ab"), entry(" c")], [0, 2]),
        ("é!", [entry("�", b"\xc3"), entry("�", b"\xa9"), entry("!")], [0, 0, 1]),
        ("hi", [entry("<s>", b""), entry(" hi")], [0, 0]),  # a beginning, and a space, that the tokenizer adds
        ("hi you", [entry(" hi"), entry(" you")], [0, 2]),
        (" hi you", [entry(" hi"), entry(" you")], [0, 3]),
        ("a<s>b", [entry("a"), entry("<s>", b""), entry("b")], [0, 1, 4]),
        ("", [entry("<s>", b"")], [0]),
    ],
)
def test_where_a_prompts_tokens_begin(text: str, entries: list[TokenLogprob], offsets: list[int]) -> None:
    assert prompt_offsets(text, entries) == offsets


# ---------------------------------------------------------------- prompt_logprobs


WANTED: list[dict[str, Any] | None] = [
    None,
    {
        "1": {"logprob": -0.25, "rank": 1, "decoded_token": " hi"},
        "100": {"logprob": -0.5, "rank": 1, "decoded_token": "t0"},
        "101": {"logprob": -1.5, "rank": 2, "decoded_token": "t1"},
    },
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("logprobs", [None, 5])
def test_prompt_logprobs_of_completions(stream: bool, logprobs: int | None) -> None:
    parts = answers(played(), stream, prompt_logprobs=2, logprobs=logprobs, n=2)
    found = [choice for part in parts for choice in part["choices"] if "prompt_logprobs" in choice]
    assert [choice["index"] for choice in found] == [0, 1]
    assert all(choice["prompt_logprobs"] == WANTED for choice in found)


@pytest.mark.parametrize("stream", [False, True])
def test_prompt_logprobs_of_chat(stream: bool) -> None:
    response = chat(played(), prompt_logprobs=2, n=2, stream=stream)
    parts = chunks(response) if stream else [response.json()]
    assert [part["prompt_logprobs"] for part in parts if "prompt_logprobs" in part] == [WANTED]
    assert parts[0]["prompt_logprobs"] == WANTED


def test_prompt_logprobs_without_alternatives_and_with_an_echo_of_more() -> None:
    (answer,) = answers(played(), False, prompt_logprobs=0, logprobs=2, echo=True)
    (choice,) = answer["choices"]
    assert choice["prompt_logprobs"] == [None, {"1": {"logprob": -0.25, "rank": 1, "decoded_token": " hi"}}]
    assert len(choice["logprobs"]["top_logprobs"][1]) == 3


def test_the_official_client_reads_it_all() -> None:
    async def use(client: openai.AsyncOpenAI) -> tuple[Completion, ChatCompletion]:
        one = await client.completions.create(
            model="tiny", prompt="Say hi", echo=True, logprobs=2, max_tokens=9, extra_body={"prompt_logprobs": 1}
        )
        other = await client.chat.completions.create(
            model="tiny",
            messages=[{"role": "user", "content": "x"}],
            logprobs=True,
            top_logprobs=2,
            extra_body={"prompt_logprobs": 1},
        )
        return one, other

    one, other = official(played(), use)
    assert one.choices[0].logprobs is not None and one.choices[0].logprobs.tokens is not None
    assert one.choices[0].prompt_logprobs[1]["1"]["rank"] == 1  # type: ignore[attr-defined]
    assert other.prompt_logprobs[1]["1"]["rank"] == 1  # type: ignore[attr-defined]


# ---------------------------------------------------------------- bounds


def bounded(*, max_prompt_numbers: int = 100, max_prompt_numbers_held: int = 100, **body: Any) -> httpx.Response:
    settings = {"max_prompt_numbers": max_prompt_numbers, "max_prompt_numbers_held": max_prompt_numbers_held}
    return post(played(), "/v1/completions", {"model": "tiny", "prompt": "hi"} | body, **settings)


@pytest.mark.parametrize("stream", [False, True])
def test_numbers_of_one_answer_have_a_bound(stream: bool) -> None:
    """Two tokens and two alternatives of the second: 4 numbers, for each choice of each prompt."""
    body: dict[str, Any] = {"prompt_logprobs": 2, "stream": stream, "n": 2}
    assert bounded(prompt=["a", "b"], max_prompt_numbers=16, **body).status_code == 200
    over = bounded(prompt=["a", "b", "c"], max_prompt_numbers=16, **body)
    if stream:
        assert "prompt_logprobs" in over.text and '"code":"invalid_value"' in over.text
    else:
        assert "16 numbers" in refused(over, "prompt_logprobs")["message"]
    assert "logprobs" in refused(bounded(n=5, echo=True, logprobs=2, max_prompt_numbers=16), "logprobs")["message"]


def test_numbers_of_all_answers_have_a_bound() -> None:
    assert bounded(prompt_logprobs=2, max_prompt_numbers_held=3).status_code == 429
    assert bounded(prompt_logprobs=0, max_prompt_numbers_held=3).status_code == 200
