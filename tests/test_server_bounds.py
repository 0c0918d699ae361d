"""Whatever one client sends or leaves unread, the others are served, and what is kept for it has a bound."""

from __future__ import annotations

import asyncio
import threading
from functools import reduce
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from hypothesis import given
from hypothesis import strategies as st
from server_fake import Script, ScriptedBackend
from test_server import USER, chat, complete, over
from test_server_lifecycle import CHAT, Wire, run, submitted
from test_server_refusals import refused

from plait.runtime.protocol import Delta, TokenLogprob
from plait.runtime.server import endpoint, limits
from plait.runtime.server.app import create_app
from plait.runtime.server.job import _TAKE, Job, Jobs
from plait.runtime.server.limits import MAX_PARTS, ORDINARY
from plait.runtime.server.schema import NEUTRAL, ChatBody, CompletionBody
from plait.runtime.server.settings import ServerSettings
from plait.runtime.server.unsent import Unsent
from plait.runtime.server.work import completion_work
from plait.runtime.sizes import merged, size_of

MANY = Script(tokens=[b"x" * 20] * 400)


class Stuck(Wire):
    """A client that takes the head of its answer and no more. ``ended``: its connection was."""

    def __init__(self, app: FastAPI, body: dict[str, Any]) -> None:
        self.ended = asyncio.Event()

        async def scoped(scope: Any, receive: Any, send: Any) -> None:
            await app(scope | {"state": {"abort": self.ended.set}}, receive, send)

        super().__init__(scoped, body)  # type: ignore[arg-type]  # an application all the same

    async def _send(self, message: dict[str, Any]) -> None:
        await super()._send(message)
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()


# ---------------------------------------------------------------- unread


@pytest.mark.parametrize("logprobs", [False, True])
def test_a_stream_that_nobody_reads_is_aborted(logprobs: bool) -> None:
    backend = ScriptedBackend(lambda sent, choice: MANY if sent.gen.n > 1 else Script())

    async def use(app: FastAPI) -> None:
        stuck = Stuck(app, CHAT | {"n": 3, "stream": True} | ({"logprobs": True} if logprobs else {}))
        await stuck.ended.wait()
        await stuck.task
        (sent,) = backend.strands.values()
        assert backend.aborted == [sent.opened.program]
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as http:
            # its choices are free again: there is room for three
            assert (await http.post("/v1/chat/completions", json=CHAT | {"n": 3})).status_code == 200
        assert not app.state.jobs.running and app.state.jobs.unsent._size == 0

    run(backend, use, max_unsent=100_000, max_queue=3)


def test_of_many_that_read_nothing_the_largest_goes_first() -> None:
    cut: list[str] = []
    unsent = Unsent(100, 150)
    accounts = {name: unsent.open(lambda name=name: cut.append(name)) for name in "abc"}  # type: ignore[misc]
    for name, size in (("a", 60), ("b", 70), ("c", 10), ("c", 11)):
        unsent.add(accounts[name], size)
    assert cut == ["b"]  # 151 bytes, and it had most
    unsent.add(accounts["b"], 1000)  # what it still sends is nobody's
    unsent.add(accounts["a"], 41)
    assert cut == ["b", "a"]
    unsent.close(accounts["c"])
    assert unsent._size == 0


def test_a_client_that_reads_is_never_cut_however_much_it_gets() -> None:
    backend = ScriptedBackend(lambda sent, choice: Script(tokens=[b"x" * 50] * 3000))
    response = over(
        backend,
        lambda http: http.post("/v1/completions", json={"prompt": "x", "stream": True}),
        max_unsent=3_000_000,  # all of it is there before it is read, and more is sent than fits at once
    )
    assert response.text.endswith("data: [DONE]\n\n") and backend.aborted == []


def test_what_waits_is_taken_in_parts() -> None:
    backend = ScriptedBackend(lambda sent, choice: Script(tokens=[b"x"] * 2000))

    async def go() -> None:
        jobs = Jobs(Unsent(10**9, 10**9), 10**9, 10**9)
        work = completion_work(b'{"prompt": "x", "stream": true}', backend.info(), ServerSettings())
        async with Job(backend, work, jobs) as job:
            while len(job._arrived) < 2001:
                await asyncio.sleep(0.001)
            taken: list[int] = []
            while not job.finished:
                pieces = await job.take()
                taken.append(sum(len(piece.ids) for _, piece in pieces if isinstance(piece, Delta)))
        assert sum(taken) == 2000 and max(taken) <= _TAKE

    asyncio.run(go())


@given(st.lists(st.tuples(st.text(max_size=3), st.lists(st.integers(0, 9), max_size=3)), min_size=1, max_size=8))
def test_merged_deltas_say_what_they_said(given: list[tuple[str, list[int]]]) -> None:
    deltas = [
        Delta(1, 2, 3, text, tuple(ids), tuple(TokenLogprob(i, "", b"", None) for i in ids)) for text, ids in given
    ]
    whole = merged(deltas)
    assert whole.text == "".join(text for text, _ in given)
    assert whole.ids == reduce(lambda a, b: a + b, (delta.ids for delta in deltas))
    assert [entry.id for entry in whole.logprobs] == list(whole.ids)
    assert size_of(whole) <= sum(map(size_of, deltas))


# ---------------------------------------------------------------- counts, before work


def bodies() -> list[tuple[str, dict[str, Any]]]:
    """Each field of both routes, far too large in the way that its type allows."""
    found: list[tuple[str, dict[str, Any]]] = []
    large: dict[str, Any] = {
        "messages": [{"role": "user", "content": ""}] * 20_000,
        "prompt": [7] * 200_000,
        "stop_token_ids": [7] * 100_000,
        "stop": ["x" * 1000] * 2000,
        "stop_regex": ["x" * 1000] * 2000,
        "logit_bias": {str(i): 1 for i in range(200_000)},
        "metadata": {str(i): "x" for i in range(20_000)},
        "response_format": {"type": "json_schema", "json_schema": {"schema": {"enum": ["x" * 100] * 60_000}}},
        "grammar": "x" * 5_000_000,
        "regex": "x" * 5_000_000,
    }
    for kind, base in ((ChatBody, {"messages": USER}), (CompletionBody, {"prompt": "x"})):
        for field in kind.__struct_fields__:
            found.append(
                (field, base | {field: large.get(field, ["x"] * 50_000 if field in NEUTRAL else "x" * 100_000)})
            )
    return found


@pytest.mark.parametrize(("field", "body"), bodies(), ids=lambda value: value if isinstance(value, str) else "")
def test_every_field_has_a_bound(field: str, body: dict[str, Any]) -> None:
    backend = ScriptedBackend()
    path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
    refused(over(backend, lambda http: http.post(path, json=body)), field)
    assert not backend.strands


@pytest.mark.parametrize(
    "field", ["stop_token_ids", "logit_bias", "metadata", "tools", "user", "cache_salt", "nonsense"]
)
def test_what_is_too_large_is_not_even_read(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("it was taken apart")

    monkeypatch.setattr("plait.runtime.server.work.decode", never)
    refused(chat(ScriptedBackend(), **{field: ["x" * 100] * 20_000}), field)


def test_one_list_of_ids_is_counted_by_its_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.runtime.server.work.decode", lambda *_: 1 / 0)
    error = refused(complete(ScriptedBackend(), prompt=[7] * 100_000), "prompt")
    assert error["code"] == "context_length_exceeded" and "100000 tokens" in error["message"]


def test_texts_and_lists_of_ids_are_not_mistaken_for_one_list() -> None:
    for prompt in (["a,b," * 20_000], [[7] * 2000] * 40, "1," * 40_000):
        backend = ScriptedBackend()
        assert complete(backend, prompt=prompt).status_code == 200
        assert len(backend.strands) == (40 if isinstance(prompt[0], list) else 1)


@pytest.mark.parametrize("count", [1024, 5000, 100_000])
def test_messages_are_counted_before_any_is_read(count: int) -> None:
    error = refused(chat(ScriptedBackend(), messages=[{"role": "robot"}] * count), "messages")
    assert "1,024" in error["message"]


def test_parts_are_counted_over_all_messages() -> None:
    part = {"type": "text", "text": "x"}
    most = [{"role": "user", "content": [part] * (MAX_PARTS // 4)}] * 4
    assert chat(ScriptedBackend(), messages=most).status_code == 200
    refused(chat(ScriptedBackend(), messages=[*most, {"role": "user", "content": [part]}]), "messages[4].content")
    refused(chat(ScriptedBackend(), messages=[{"role": "user", "content": [part] * 300_000}]), "messages[0].content")


def test_an_ordinary_body_is_not_looked_at_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    monkeypatch.setattr(limits, "_check_ids", lambda prompt, info: looks.append(len(prompt)))
    complete(ScriptedBackend(), prompt="x" * (ORDINARY // 2))
    complete(ScriptedBackend(), prompt="x" * ORDINARY)
    assert looks == [ORDINARY + 2]


def test_a_large_body_is_read_beside_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, go_on = threading.Event(), threading.Event()
    loop = threading.get_ident()
    check = limits.check_sizes

    def slow(data: bytes, info: Any) -> None:
        if len(data) > ORDINARY:
            assert threading.get_ident() != loop
            reading.set()
            assert go_on.wait(30)
        check(data, info)

    monkeypatch.setattr("plait.runtime.server.work.check_sizes", slow)

    async def use(http: httpx.AsyncClient) -> None:
        large = asyncio.create_task(http.post("/v1/completions", json={"prompt": "x" * 100_000}))
        while not reading.is_set():
            await asyncio.sleep(0.001)
        assert (await http.post("/v1/completions", json={"prompt": "x"})).status_code == 200
        crowd = await http.post("/v1/completions", json={"prompt": "x" * 140_000})
        assert crowd.status_code == 429  # the large one still counts among the bodies that are held
        go_on.set()
        assert (await large).status_code == 200

    over(ScriptedBackend(), use, max_body=150_000, max_bodies=200_000)


# ---------------------------------------------------------------- whole answers


def test_log_probabilities_of_many_choices_have_a_bound() -> None:
    backend = ScriptedBackend()
    error = refused(chat(backend, n=128, logprobs=True, top_logprobs=20), "logprobs")
    assert "max_tokens" in error["message"]
    assert chat(backend, n=128, logprobs=True, top_logprobs=20, max_tokens=100).status_code == 200
    assert chat(backend, logprobs=True, top_logprobs=20).status_code == 200


def test_log_probabilities_of_all_requests_have_a_bound() -> None:
    held = [True]
    backend = ScriptedBackend(lambda sent, choice: Script(held=held[0]))
    body = CHAT | {"logprobs": True, "top_logprobs": 9, "max_tokens": 100}

    async def use(app: FastAPI) -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as http:
            first = Wire(app, body)
            await submitted(backend, 1)
            held[0] = False
            assert (await http.post("/v1/chat/completions", json=body)).status_code == 429
            assert (await http.post("/v1/chat/completions", json=CHAT)).status_code == 200
            first.hang_up()
            await first.task
            assert (await http.post("/v1/chat/completions", json=body)).status_code == 200

    run(backend, use, max_numbers_held=1500)


def test_a_long_answer_is_written_beside_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    whole = endpoint.whole
    monkeypatch.setattr(endpoint, "whole", lambda *given: threads.append(threading.get_ident()) or whole(*given))
    backend = ScriptedBackend(lambda sent, choice: Script(tokens=[b"x"] * 3000))
    answer = complete(backend, n=2, logprobs=0).json()
    assert [len(choice["logprobs"]["tokens"]) for choice in answer["choices"]] == [3000, 3000]
    complete(backend, n=2)
    assert threads[0] != threading.get_ident() == threads[1]


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("127.0.0.1:8000", None, 200),
        ("localhost", None, 200),
        ("LOCALHOST:1", None, 200),
        ("localhost.:8000", None, 200),
        ("api.localhost:8000", None, 200),
        ("127.1.2.3", None, 200),
        ("[::1]:8000", None, 200),
        ("mine.example", None, 200),
        ("a.b.example.org", None, 200),
        ("example.org", None, 400),
        ("evil.example.com", None, 400),
        ("evil.example.com:8000", "http://evil.example.com:8000", 400),
        ("localhost.evil.com", None, 400),
        ("127.0.0.1.evil.com", None, 400),
        ("[::2]", None, 400),
        ("192.168.0.1", None, 400),
        ("localhost:8000", "http://localhost:8000", 200),
        ("localhost:8000", "https://localhost:8000", 200),
        ("localhost:8000", "http://localhost:3000", 403),
        ("localhost:8000", "http://evil.example.com", 403),
        ("localhost:8000", "null", 403),
        ("localhost:8000", "https://app.example", 200),
    ],
)
def test_only_our_names_are_answered(host: str, origin: str | None, status: int) -> None:
    headers = {"host": host} | ({} if origin is None else {"origin": origin})
    for method, path in (("GET", "/health"), ("GET", "/metrics"), ("POST", "/v1/completions"), ("GET", "/nope")):
        response = over(
            ScriptedBackend(),
            lambda http, m=method, p=path: http.request(m, p, headers=headers, json={"prompt": "x"}),  # type: ignore[misc]
            allowed_hosts=("mine.example", "*.example.org"),
            cors_origins=("https://app.example",),
        )
        assert response.status_code == (404 if (path, status) == ("/nope", 200) else status)
        if status != 200:
            assert response.json()["error"]["code"] in ("host_not_allowed", "origin_not_allowed")


def test_any_name_is_answered_where_nothing_is_said() -> None:
    for settings in ({}, {"allowed_hosts": ("*",)}):
        headers = {"host": "x.example", "origin": "http://y.example"}
        response = over(ScriptedBackend(), lambda http, h=headers: http.get("/health", headers=h), **settings)  # type: ignore[misc]
        assert response.status_code == 200


@pytest.mark.parametrize("keys", [(), ("secret",)])
def test_a_listed_site_is_told_that_it_may(keys: tuple[str, ...]) -> None:
    asks = {
        "origin": "https://app.example",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization, content-type, x-stainless-lang",
    }
    settings: dict[str, Any] = {"api_keys": keys, "cors_origins": ("https://app.example",)}
    path = "/v1/chat/completions"
    told = over(ScriptedBackend(), lambda http: http.options(path, headers=asks), **settings)
    assert told.status_code == 200
    assert told.headers["access-control-allow-origin"] == "https://app.example"
    assert "x-stainless-lang" in told.headers["access-control-allow-headers"]
    other = asks | {"origin": "https://other.example"}
    told = over(ScriptedBackend(), lambda http: http.options(path, headers=other), **settings)
    assert "access-control-allow-origin" not in told.headers
    headers = {"origin": "https://app.example", "authorization": "Bearer secret"}
    answer = over(ScriptedBackend(), lambda http: http.post(path, headers=headers, json=CHAT), **settings)
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, "https://app.example")
    # an error can be read by the page, too
    answer = over(ScriptedBackend(), lambda http: http.post(path, headers=headers, json={}), **settings)
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (400, "https://app.example")


def test_no_site_is_told_anything_where_none_is_listed() -> None:
    headers = {"origin": "https://app.example", "access-control-request-method": "POST"}
    told = over(ScriptedBackend(), lambda http: http.options("/v1/models", headers=headers))
    assert told.status_code == 405 and "access-control-allow-origin" not in told.headers


def test_the_application_counts_what_it_refuses_by_name() -> None:
    async def go() -> str:
        app = create_app(ScriptedBackend(), ServerSettings(allowed_hosts=()))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http:
            await http.get("/v1/models", headers={"host": "evil.example"})
            return (await http.get("/metrics")).text

    assert any("400" in line and "/v1/models" in line for line in asyncio.run(go()).splitlines())
