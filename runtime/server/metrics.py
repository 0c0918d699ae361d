"""Prometheus metrics: what HTTP sees, and what the core says of itself. Names follow vLLM's, with ``plait_`` before."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..protocol import Done, Usage
from ..wire import Stats

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)

_GAUGES: tuple[tuple[str, str, Callable[[Stats], float]], ...] = (
    ("num_requests_running", "Strands in the batch", lambda s: s.running),
    ("num_requests_waiting", "Strands that wait for room", lambda s: s.waiting),
    ("kv_cache_usage_perc", "Part of the KV pool in use, 0 to 1", lambda s: _used(s)),
    ("kv_cache_tokens", "Size of the KV pool", lambda s: s.kv_total),
    ("kv_cache_reusable_tokens", "KV of finished work that is kept for reuse", lambda s: s.kv_cached),
)
_COUNTERS: tuple[tuple[str, str, Callable[[Stats], float]], ...] = (
    ("prompt_tokens", "Prompt tokens, computed or reused", lambda s: s.prompt_tokens),
    ("cached_tokens", "Prompt tokens reused from the radix tree", lambda s: s.cached_tokens),
    ("prefix_cache_queries", "Prompt tokens looked up in the radix tree", lambda s: s.prompt_tokens),
    ("prefix_cache_hits", "Prompt tokens found in the radix tree", lambda s: s.cached_tokens),
    ("generation_tokens", "Tokens produced, sampled or forced", lambda s: s.sampled_tokens + s.forced_tokens),
    ("sampled_tokens", "Tokens sampled", lambda s: s.sampled_tokens),
    ("forced_tokens", "Tokens that a constraint fixed without sampling", lambda s: s.forced_tokens),
    ("recomputed_tokens", "Tokens computed again after a retraction or replay", lambda s: s.recomputed_tokens),
    ("num_preemptions", "Strands retracted because the KV pool was full", lambda s: s.retractions),
    ("evicted_tokens", "Tokens evicted from the radix tree", lambda s: s.evicted_tokens),
    ("steps", "Steps of the core", lambda s: s.steps),
    ("step_seconds", "Seconds spent in steps", lambda s: s.step_s),
    ("forward_seconds", "Seconds of those inside the model", lambda s: s.forward_s),
)


def _used(stats: Stats) -> float:
    return (stats.kv_total - stats.kv_free - stats.kv_cached) / stats.kv_total if stats.kv_total else 0.0


class CoreCollector(Collector):
    """Reads the core's last Stats whenever someone asks; nothing is copied in between."""

    def __init__(self, stats: Callable[[], Stats | None], model: str) -> None:
        self._stats = stats
        self._model = model

    def collect(self) -> Iterable[Metric]:
        stats = self._stats()
        if stats is None:
            return
        family: GaugeMetricFamily | CounterMetricFamily
        for name, text, value in _GAUGES:
            family = GaugeMetricFamily(f"plait_{name}", text, labels=["model_name"])
            family.add_metric([self._model], value(stats))
            yield family
        for name, text, value in _COUNTERS:
            family = CounterMetricFamily(f"plait_{name}", text, labels=["model_name"])
            family.add_metric([self._model], value(stats))
            yield family


class Metrics:
    def __init__(self, model: str, stats: Callable[[], Stats | None] | None = None) -> None:
        self.registry = CollectorRegistry()
        if stats is not None:
            self.registry.register(CoreCollector(stats, model))
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
