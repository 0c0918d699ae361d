"""Keys, limits, hang-ups and what the operator sees."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from server_fake import Script, ScriptedBackend
from test_server import USER, chat, chunks, complete, over

from plait.runtime.front.metrics import Metrics as FrontMetrics
from plait.runtime.server.app import create_app
from plait.runtime.server.guard import Bodies
from plait.runtime.server.problems import HttpProblem
from plait.runtime.server.settings import ServerSettings
from plait.runtime.wire import Stats

HELD = Script(held=True)
CHAT: dict[str, Any] = {"model": "tiny", "messages": USER}


class Wire:
    """One HTTP exchange as an ASGI server sees it, whose client can hang up."""

    def __init__(self, app: FastAPI, body: dict[str, Any], path: str = "/v1/chat/completions") -> None:
        self.sent: list[dict[str, Any]] = []
        self.grew = asyncio.Event()
        self._inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._inbox.put_nowait({"type": "http.request", "body": json.dumps(body).encode(), "more_body": False})
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(b"content-type", b"application/json")],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        self.task = asyncio.create_task(app(scope, self._inbox.get, self._send))  # type: ignore[arg-type]

    async def _send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)
        self.grew.set()

    def hang_up(self) -> None:
        self._inbox.put_nowait({"type": "http.disconnect"})


def run(backend: ScriptedBackend, use: Callable[[FastAPI], Any], **settings: Any) -> None:
    async def go() -> None:
        async with asyncio.timeout(30):
            await use(create_app(backend, ServerSettings(**settings)))

    asyncio.run(go())


async def submitted(backend: ScriptedBackend, strands: int) -> None:
    while len(backend.strands) < strands:
        await asyncio.sleep(0)


# ---------------------------------------------------------------- hang-ups (runtime_open 13)


@pytest.mark.parametrize("body", [{}, {"n": 3}, {"stream": True}, {"stream": True, "n": 3}])
def test_hanging_up_aborts_the_program(body: dict[str, Any]) -> None:
    backend = ScriptedBackend(lambda sent, choice: HELD)

    async def use(app: FastAPI) -> None:
        wire = Wire(app, CHAT | body)
        if body.get("stream"):
            await wire.grew.wait()
        else:
            await submitted(backend, 1)
        wire.hang_up()
        await wire.task
        (sent,) = backend.strands.values()
        assert backend.aborted == [sent.opened.program]
        assert not any(message.get("body", b"").endswith(b"[DONE]\n\n") for message in wire.sent)

    run(backend, use)


def test_hanging_up_aborts_every_prompt_at_once() -> None:
    backend = ScriptedBackend(lambda sent, choice: HELD)

    async def use(app: FastAPI) -> None:
        wire = Wire(app, {"prompt": ["a", "b", "c"]}, "/v1/completions")
        await submitted(backend, 3)
        wire.hang_up()
        await wire.task
        assert {sent.opened.program for sent in backend.strands.values()} == set(backend.aborted)

    run(backend, use)


def test_a_server_that_cancels_also_aborts() -> None:
    backend = ScriptedBackend(lambda sent, choice: HELD)

    async def use(app: FastAPI) -> None:
        wire = Wire(app, CHAT)
        await submitted(backend, 1)
        wire.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await wire.task
        assert len(backend.aborted) == 1

    run(backend, use)


def test_hanging_up_before_the_body_is_whole() -> None:
    backend = ScriptedBackend()

    async def use(app: FastAPI) -> None:
        wire = Wire(app, CHAT)
        wire._inbox.get_nowait()
        wire._inbox.put_nowait({"type": "http.request", "body": b"{", "more_body": True})
        wire.hang_up()
        await wire.task
        assert (wire.sent, backend.strands) == ([], {})

    run(backend, use)


@pytest.mark.parametrize("stream", [False, True])
def test_a_finished_request_aborts_nothing(stream: bool) -> None:
    backend = ScriptedBackend()
    assert chat(backend, n=2, stream=stream).status_code == 200
    assert complete(backend, prompt=["a", "b"], stream=stream).status_code == 200
    assert backend.aborted == []


# ---------------------------------------------------------------- limits


def test_queue_is_bounded_and_freed() -> None:
    held = [True]
    backend = ScriptedBackend(lambda sent, choice: HELD if held[0] else Script())

    async def use(app: FastAPI) -> None:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            first = Wire(app, CHAT | {"n": 2})
            await submitted(backend, 1)
            held[0] = False
            busy = await http.post("/v1/chat/completions", json=CHAT | {"n": 2})
            assert busy.status_code == 429
            assert busy.headers["retry-after"] == "1"
            assert busy.json()["error"]["code"] == "queue_full"
            assert (await http.post("/v1/chat/completions", json=CHAT)).status_code == 200  # there is room for one
            first.hang_up()
            await first.task
            assert (await http.post("/v1/chat/completions", json=CHAT | {"n": 3})).status_code == 200
            never = await http.post("/v1/chat/completions", json=CHAT | {"n": 4})
            assert (never.status_code, never.json()["error"]["param"]) == (400, "n")

    run(backend, use, max_queue=3)


@pytest.mark.parametrize("declared", [True, False])
def test_body_limit(declared: bool) -> None:
    async def pieces() -> Any:
        for _ in range(30):
            yield b"x" * 100

    backend = ScriptedBackend()
    headers = {"content-type": "application/json"}
    content = b"x" * 3000 if declared else pieces()
    response = over(backend, lambda http: http.post("/v1/completions", content=content, headers=headers), max_body=2000)
    assert response.status_code == 413
    assert response.json()["error"]["code"] == "body_too_large"
    assert (
        over(backend, lambda http: http.post("/v1/completions", json={"prompt": "x"}), max_body=2000).status_code == 200
    )


def test_bodies_that_are_read_at_once_have_a_bound_and_a_limit_of_time() -> None:
    async def go() -> None:
        bodies = Bodies(limit=100, limit_all=150, seconds=30)
        scope = {"headers": [(b"content-type", b"application/json")]}
        more = asyncio.Event()

        def sends(size: int, wait: bool) -> Any:
            messages = [{"type": "http.request", "body": b"x" * size, "more_body": wait}]

            async def receive() -> dict[str, Any]:
                if not messages:
                    await more.wait()
                    return {"type": "http.request", "body": b"", "more_body": False}
                return messages.pop()

            return receive

        slow = asyncio.create_task(bodies.read(scope, sends(90, True)))
        while not bodies.held:
            await asyncio.sleep(0)
        with pytest.raises(HttpProblem) as refused:
            await bodies.read(scope, sends(90, False))
        assert refused.value.status == 429
        more.set()
        assert await slow == b"x" * 90
        assert await bodies.read(scope, sends(90, False)) == b"x" * 90
        assert bodies.held == 0
        more.clear()
        with pytest.raises(HttpProblem) as refused:
            await Bodies(100, 100, 0.001).read(scope, sends(9, True))
        assert refused.value.status == 408

    asyncio.run(go())


def test_a_stream_that_waits_long_opens_anyway() -> None:
    """After ``verdict_s`` the headers go out, and what fails then is data."""
    backend = ScriptedBackend(lambda sent, choice: Script(tokens=(), held=True))

    async def use(app: FastAPI) -> None:
        wire = Wire(app, CHAT | {"stream": True})
        await wire.grew.wait()
        assert wire.sent[0]["status"] == 200
        backend.close()
        await wire.task
        text = b"".join(message.get("body", b"") for message in wire.sent).decode()
        assert json.loads(text.strip().split("data: ")[-1])["error"]["code"] == "shutdown"

    run(backend, use, verdict_s=0.01)


# ---------------------------------------------------------------- keys


PATHS = ["/v1/models", "/v1/models/tiny", "/metrics", "/nope", "/health/", "//health", "/v1/chat/completions", "/docs"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "key", [None, "", "Bearer", "Bearer ", "Bearer wrong", "secret", "Basic secret", "Bearer sécret"]
)
def test_key_is_needed_everywhere_but_health(path: str, key: str | None) -> None:
    headers = {} if key is None else {"authorization": key.encode()}
    response = over(ScriptedBackend(), lambda http: http.get(path, headers=headers), api_keys=("secret",))  # type: ignore[arg-type]
    assert response.status_code == 401
    assert response.json()["error"]["code"] == "invalid_api_key"


def test_keys_open_and_health_needs_none() -> None:
    for key in ("one", "two"):
        headers = {"authorization": f"Bearer {key}"}
        body = {"prompt": "x"}
        response = over(
            ScriptedBackend(),
            lambda http, h=headers, b=body: http.post("/v1/completions", json=b, headers=h),  # type: ignore[misc]
            api_keys=("one", "two"),
        )
        assert response.status_code == 200
    assert over(ScriptedBackend(), lambda http: http.get("/health"), api_keys=("one",)).status_code == 200


def test_two_authorization_headers_are_refused() -> None:
    headers = [("authorization", "Bearer wrong"), ("authorization", "Bearer one")]
    response = over(ScriptedBackend(), lambda http: http.get("/v1/models", headers=headers), api_keys=("one",))
    assert response.status_code == 401


# ---------------------------------------------------------------- health and metrics


def test_health_follows_the_backend() -> None:
    backend = ScriptedBackend()

    async def use(app: FastAPI) -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as http:
            assert (await http.get("/health")).json() == {"status": "ok", "model": "tiny"}
            backend.close()
            assert (await http.get("/health")).status_code == 503
            gone = await http.post("/v1/completions", json={"prompt": "x"})
            assert (gone.status_code, gone.json()["error"]["type"]) == (503, "server_error")

    run(backend, use)


def test_metrics_count() -> None:
    counters = FrontMetrics()
    stats = Stats(
        running=2,
        waiting=1,
        kv_total=100,
        kv_free=50,
        kv_cached=25,
        steps=9,
        prompt_tokens=40,
        cached_tokens=30,
        sampled_tokens=5,
        forced_tokens=2,
        recomputed_tokens=0,
        drafted_tokens=7,
        accepted_tokens=6,
        retractions=1,
        evicted_tokens=3,
        step_s=1.5,
        forward_s=1.0,
    )
    counters.take(stats)
    counters.epoch_ended()  # totals go on over the core's death
    counters.take(stats)

    async def go() -> str:
        app = create_app(ScriptedBackend(), ServerSettings(), counters=counters)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as http:
            for body in ({"prompt": "x", "n": 2}, {"prompt": 1}, {"prompt": "x", "stream": True}):
                await http.post("/v1/completions", json=body)
            for i in range(3):
                await http.get(f"/random/{i}")
            page = await http.get("/metrics")
            assert page.headers["content-type"].startswith("text/plain; version=0.0.4")
            return page.text

    lines = dict(line.rsplit(" ", 1) for line in asyncio.run(go()).splitlines() if not line.startswith("#"))
    model = '{model_name="tiny"}'
    assert float(lines[f"plait_num_requests_running{model}"]) == 2
    assert float(lines[f"plait_kv_cache_usage_perc{model}"]) == 0.25
    assert float(lines[f"plait_prefix_cache_hits_total{model}"]) == 60
    assert float(lines[f"plait_generation_tokens_total{model}"]) == 14
    assert float(lines[f"plait_num_preemptions_total{model}"]) == 2
    assert float(lines[f"plait_core_deaths_total{model}"]) == 1
    assert float(lines['plait_request_success_total{finished_reason="stop"}']) == 3
    assert float(lines['plait_http_requests_total{route="/v1/completions",status="200"}']) == 2
    assert float(lines['plait_http_requests_total{route="/v1/completions",status="400"}']) == 1
    assert float(lines['plait_http_requests_total{route="other",status="404"}']) == 3
    assert float(lines["plait_time_to_first_token_seconds_count"]) == 3
    assert float(lines["plait_http_choices_in_flight"]) == 0


def test_many_at_once_keep_apart() -> None:
    """200 requests, streamed and whole, each with its own answer."""
    backend = ScriptedBackend(lambda sent, choice: Script(tokens=(sent.rendered().encode(), b"!")))

    async def go(http: httpx.AsyncClient) -> None:
        async def one(i: int) -> None:
            response = await http.post("/v1/completions", json={"prompt": f"p{i}", "stream": i % 2 == 0})
            if i % 2 == 0:
                text = "".join(part["choices"][0]["text"] for part in chunks(response))
            else:
                text = response.json()["choices"][0]["text"]
            assert text == f"p{i}!"

        await asyncio.gather(*(one(i) for i in range(200)))

    over(backend, go)
