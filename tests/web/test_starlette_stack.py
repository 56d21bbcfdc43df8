"""Instrumentors record refused requests too, whether they come before or after ``protect``."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from fastapi import FastAPI
from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware
from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.applications import Starlette
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.testclient import TestClient

from lockgate import fastapi, starlette

from .driving import Bench

LIMIT = "X-RateLimit-Limit"


async def say(_: Request) -> Response:
    return PlainTextResponse("said")


async def crash(_: Request) -> Response:
    raise ValueError("said")


class Spans:
    """The spans of requests that were recorded."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def statuses(self) -> list[int]:
        spans = (s for s in self._exporter.get_finished_spans() if s.parent is None)
        return [int(str((s.attributes or {})["http.status_code"])) for s in spans]


def protected(app: Any, instrument: Callable[[Any], object], *, first: bool) -> str:
    """Instrument an application before or after it gets a gate; return a key."""
    bench = Bench()
    app.router.add_route("/jobs", say)
    app.router.add_route("/crash", crash)
    if first:
        instrument(app)
    (fastapi if isinstance(app, FastAPI) else starlette).protect(app, bench.gate)
    if not first:
        instrument(app)
    return bench.key()


def asked(app: Any, key: str) -> list[int]:
    """The statuses of an admitted, a refused and a crashing request, each with rate headers."""
    client = TestClient(app, raise_server_exceptions=False)
    good = {"Authorization": f"Bearer {key}"}
    answers = [client.get("/jobs", headers=good), client.get("/jobs")]
    answers.append(client.get("/crash", headers=good))
    assert all(LIMIT in answer.headers for answer in answers)
    return [answer.status_code for answer in answers]


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("kind", ["starlette", "fastapi", "FastAPIInstrumentor"])
def test_tracing_records_refused_requests_in_either_order(kind: str, first: bool) -> None:
    """``opentelemetry-instrumentation-starlette`` adds a middleware, too."""
    spans, app = Spans(), Starlette() if kind == "starlette" else FastAPI()

    def instrument(app: Any) -> None:
        if kind == "FastAPIInstrumentor":
            FastAPIInstrumentor.instrument_app(app, tracer_provider=spans.provider)
        else:
            app.add_middleware(OpenTelemetryMiddleware, tracer_provider=spans.provider)
        app.add_middleware(GZipMiddleware)

    key = protected(app, instrument, first=first)
    assert asked(app, key) == [200, 401, 500]
    assert spans.statuses() == [200, 401, 500]


SENTRY = """
import sentry_sdk
from sentry_sdk.integrations.starlette import StarletteIntegration
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient
from lockgate import Gate, run
from lockgate.starlette import protect

class Kept(sentry_sdk.Transport):
    def capture_envelope(self, envelope):
        statuses.extend(
            item.payload.json["contexts"]["response"]["status_code"]
            for item in envelope.items if item.type == "transaction"
        )

def instrument():
    sentry_sdk.init(
        "http://key@localhost/1",
        traces_sample_rate=1.0,
        transport=Kept,
        integrations=[StarletteIntegration()],
        auto_enabling_integrations=False,
    )

async def say(request):
    return PlainTextResponse("said")

def service():
    return protect(Starlette(routes=[Route("/jobs", say)]), gate)

statuses, gate = [], Gate("memory://", brand="acme")
key = run(gate.keys.create("org", "key")).text
before = service()
instrument()
for app in (before, service()):
    client = TestClient(app)
    client.get("/jobs", headers={"Authorization": f"Bearer {key}"})
    client.get("/jobs")
print(statuses)
"""


def test_sentry_traces_refused_requests_in_either_order() -> None:
    """In a process of its own: Sentry changes Starlette itself."""
    command = [sys.executable, "-c", SENTRY]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
    assert ran.stdout.strip() == "[200, 401, 200, 401]"
