"""The application: OpenAI's routes, health and metrics over one backend."""

from __future__ import annotations

import time

import msgspec
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route

from ..backend import Backend
from ..errors import PlaitError
from .endpoint import Endpoint
from .guard import Admission, Bodies, RequireKey
from .hosts import AllowedHosts
from .job import Jobs
from .metrics import CONTENT_TYPE, Counters, CountRequests, Metrics
from .problems import HttpProblem, from_exception
from .reply import JSON
from .settings import ServerSettings
from .unsent import Unsent
from .work import chat_work, completion_work


def create_app(
    backend: Backend,
    settings: ServerSettings | None = None,
    *,
    counters: Counters | None = None,
) -> FastAPI:
    """``counters``: ``Runtime.front.metrics``, for /metrics; without them only HTTP's own are there.

    The application neither starts nor closes the backend, and has no tokenizer: it sends ops and reads events.
    """
    settings = settings or ServerSettings()
    started = int(time.time())
    metrics = Metrics(backend.info().model, counters)
    admission = Admission(settings.max_queue, settings.max_numbers, settings.max_numbers_held)
    bodies = Bodies(settings.max_body, settings.max_bodies, settings.body_s)
    metrics.in_flight.set_function(lambda: admission.held)
    # no docs pages: they load scripts from elsewhere, and bodies are checked by msgspec, which they would not show
    app = FastAPI(title="Plait", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    unsent = Unsent(settings.max_unsent, settings.max_unsent_all)
    app.state.jobs = Jobs(unsent, settings.max_prompt_numbers, settings.max_prompt_numbers_held)

    @app.get("/health")
    async def health() -> Response:
        info = backend.info()  # raises BackendError when the backend is gone: 503
        return _json({"status": "ok", "model": info.model})

    @app.get("/v1/models")
    async def models() -> Response:
        return _json({"object": "list", "data": [card(name) for name in (backend.info().model, *settings.names)]})

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> Response:
        if name not in (backend.info().model, *settings.names):
            raise HttpProblem(404, f"model {name!r} is not served here", "model", code="model_not_found")
        return _json(card(name))

    @app.get("/metrics")
    async def page() -> Response:
        return Response(metrics.page(), media_type=CONTENT_TYPE)

    def card(name: str) -> dict[str, object]:
        size = backend.info().context_length
        return {"id": name, "object": "model", "created": started, "owned_by": "plait", "max_model_len": size}

    for path, read in (("/v1/chat/completions", chat_work), ("/v1/completions", completion_work)):
        endpoint = Endpoint(backend, settings, admission, bodies, app.state.jobs, metrics, read)
        app.router.routes.append(Route(path, endpoint, methods=["POST"]))

    @app.exception_handler(HttpProblem)
    async def refused(request: Request, problem: HttpProblem) -> Response:
        return _problem(problem)

    @app.exception_handler(PlaitError)
    async def failed(request: Request, error: PlaitError) -> Response:
        return _problem(from_exception(error))

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> Response:
        message = f"{request.method} {request.url.path}: {error.detail}"
        headers = tuple((error.headers or {}).items())
        code = "method_not_allowed" if error.status_code == 405 else "not_found"
        return _problem(HttpProblem(error.status_code, message, code=code, headers=headers))

    @app.exception_handler(Exception)
    async def broken(request: Request, error: Exception) -> Response:
        return _problem(HttpProblem(500, "internal error", code="internal", type="server_error"))

    paths = frozenset({"/health", "/metrics", "/v1/models", "/v1/chat/completions", "/v1/completions"})
    app.add_middleware(RequireKey, keys=settings.api_keys)
    if settings.cors_origins:  # before the key: a browser asks without one whether it may send it
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=("GET", "POST"),
            allow_headers=("*",),
            max_age=600,
        )
    if settings.allowed_hosts is not None:
        app.add_middleware(AllowedHosts, hosts=settings.allowed_hosts, origins=settings.cors_origins)
    app.add_middleware(CountRequests, metrics=metrics, routes=paths)  # the last one added stands outermost
    return app


def _json(data: object) -> Response:
    return Response(msgspec.json.encode(data), media_type=JSON)


def _problem(problem: HttpProblem) -> Response:
    return Response(problem.envelope(), problem.status, dict(problem.headers), JSON)
