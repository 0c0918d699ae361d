"""Prometheus metrics: what HTTP sees, and what the core says of itself. Names follow vLLM's, with ``plait_`` before."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..protocol import Done, Usage

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)


class Counters(Protocol):
    """What ``runtime.front.metrics.Metrics`` offers: names of ``wire.Stats``, totals over every epoch of the core."""

    core_deaths: int

    def totals(self) -> dict[str, float]: ...

    def gauges(self) -> dict[str, float]: ...


Read = Callable[[dict[str, float]], float]


def _of(name: str) -> Read:
    return lambda numbers: numbers[name]


def _used(gauges: dict[str, float]) -> float:
    total = gauges["kv_total"]
    return (total - gauges["kv_free"] - gauges["kv_cached"]) / total if total else 0.0


_GAUGES: tuple[tuple[str, str, Read], ...] = (
    ("num_requests_running", "Strands in the batch", _of("running")),
    ("num_requests_waiting", "Strands that wait for room", _of("waiting")),
    ("kv_cache_usage_perc", "Part of the KV pool in use, 0 to 1", _used),
    ("kv_cache_tokens", "Size of the KV pool", _of("kv_total")),
    ("kv_cache_reusable_tokens", "KV in the radix tree", _of("kv_cached")),
)
_COUNTERS: tuple[tuple[str, str, Read], ...] = (
    ("prompt_tokens", "Prompt tokens, computed or reused", _of("prompt_tokens")),
    ("cached_tokens", "Prompt tokens reused from the radix tree", _of("cached_tokens")),
    ("prefix_cache_queries", "Prompt tokens looked up in the radix tree", _of("prompt_tokens")),
    ("prefix_cache_hits", "Prompt tokens found in the radix tree", _of("cached_tokens")),
    ("generation_tokens", "Tokens produced, sampled or forced", lambda n: n["sampled_tokens"] + n["forced_tokens"]),
    ("sampled_tokens", "Tokens sampled", _of("sampled_tokens")),
    ("forced_tokens", "Tokens that a constraint fixed without sampling", _of("forced_tokens")),
    ("recomputed_tokens", "Tokens computed again after a retraction or replay", _of("recomputed_tokens")),
    ("spec_decode_num_draft_tokens", "Tokens computed ahead of what was drawn", _of("drafted_tokens")),
    ("spec_decode_num_accepted_tokens", "Tokens of those that were right", _of("accepted_tokens")),
    ("num_preemptions", "Strands retracted because the KV pool was full", _of("retractions")),
    ("evicted_tokens", "Tokens evicted from the radix tree", _of("evicted_tokens")),
    ("steps", "Steps of the core", _of("steps")),
    ("step_seconds", "Seconds spent in steps", _of("step_s")),
    ("forward_seconds", "Seconds of those inside the model", _of("forward_s")),
)


class CoreCollector(Collector):
    """Reads the front's counters whenever someone asks; nothing is copied in between."""

    def __init__(self, counters: Counters, model: str) -> None:
        self._counters = counters
        self._model = model

    def collect(self) -> Iterable[Metric]:
        gauges, totals = self._counters.gauges(), self._counters.totals()
        for name, text, read in _GAUGES:
            gauge = GaugeMetricFamily(f"plait_{name}", text, labels=["model_name"])
            gauge.add_metric([self._model], read(gauges))
            yield gauge
        for name, text, read in _COUNTERS:
            counter = CounterMetricFamily(f"plait_{name}", text, labels=["model_name"])
            counter.add_metric([self._model], read(totals))
            yield counter
        deaths = CounterMetricFamily(
            "plait_core_deaths", "Times the core died and was restarted", labels=["model_name"]
        )
        deaths.add_metric([self._model], self._counters.core_deaths)
        yield deaths


class Metrics:
    def __init__(self, model: str, counters: Counters | None = None) -> None:
        self.registry = CollectorRegistry()
        if counters is not None:
            self.registry.register(CoreCollector(counters, model))
        r = self.registry
        self._http = Counter("plait_http_requests", "HTTP requests", ["route", "status"], registry=r)
        self._http_s = Histogram(
            "plait_http_request_duration_seconds", "Whole response", ["route"], buckets=_SECONDS, registry=r
        )
        self._success = Counter("plait_request_success", "Finished choices", ["finished_reason"], registry=r)
        self._first_s = Histogram(
            "plait_time_to_first_token_seconds", "Until a choice's first token", buckets=_SECONDS, registry=r
        )
        self._each_s = Histogram(
            "plait_inter_token_latency_seconds", "Mean per choice", buckets=_TOKEN_SECONDS, registry=r
        )
        self._whole_s = Histogram(
            "plait_e2e_request_latency_seconds", "Until a choice is done", buckets=_SECONDS, registry=r
        )
        self.in_flight = Gauge("plait_http_choices_in_flight", "Choices running or waiting", registry=r)
        self._gone = Counter("plait_http_disconnects", "Clients that hung up before their answer", registry=r)

    def page(self) -> bytes:
        return generate_latest(self.registry)

    def served(self, route: str, status: int, seconds: float) -> None:
        self._http.labels(route, str(status)).inc()
        self._http_s.labels(route).observe(seconds)

    def finished(self, done: Done) -> None:
        usage: Usage = done.usage
        self._success.labels(done.reason).inc()
        self._first_s.observe(usage.first_token_s)
        self._whole_s.observe(usage.total_s)
        if usage.completion > 1:
            self._each_s.observe((usage.total_s - usage.first_token_s) / (usage.completion - 1))

    def gone(self) -> None:
        self._gone.inc()


class CountRequests:
    """Outermost: sees every answer, refusals too. Unknown paths share one label, so no client can grow the page."""

    def __init__(self, app: ASGIApp, metrics: Metrics, routes: frozenset[str]) -> None:
        self._app = app
        self._metrics = metrics
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, start = 0, time.perf_counter()

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            route = scope["path"] if scope["path"] in self._routes else "other"
            self._metrics.served(route, status, time.perf_counter() - start)
