"""An instrumentor inside the gate, which records no refused request, is told at start."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler
from django.test import override_settings
from flask import Flask
from litestar import Litestar
from litestar.plugins.opentelemetry import OpenTelemetryConfig, OpenTelemetryPlugin
from litestar.plugins.prometheus import PrometheusConfig
from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware
from opentelemetry.instrumentation.flask import FlaskInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from quart import Quart
from starlette.testclient import TestClient
from werkzeug.test import Client as WsgiClient

from lockgate import django, flask, litestar, quart

from .driving import Bench

BLIND = "is inside the gate and records no refused request"


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings, each as the name of the instrumentor and what to put around the gate."""
    lines = [record.getMessage() for record in caplog.records if BLIND in record.getMessage()]
    return [
        line.replace(f" {BLIND}: for spans put the OpenTelemetryMiddleware", "") for line in lines
    ]


@pytest.mark.parametrize("first", [True, False])
def test_flasks_instrumentor_in_either_order_is_told(
    first: bool, caplog: pytest.LogCaptureFixture
) -> None:
    app, bench, exporter = Flask("service"), Bench(), InMemorySpanExporter()
    app.add_url_rule("/jobs", "jobs", lambda: "said")
    provider = TracerProvider()
    instrumentor: Any = FlaskInstrumentor()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    if first:
        instrumentor.instrument_app(app, tracer_provider=provider)
    flask.protect(app, bench.gate)
    if not first:
        instrumentor.instrument_app(app, tracer_provider=provider)
    client = WsgiClient(app)
    assert client.get("/jobs").status_code == 401
    assert client.get("/jobs", headers={"Authorization": f"Bearer {bench.key()}"}).text == "said"
    assert len(exporter.get_finished_spans()) == 1
    (line,) = told(caplog)
    assert line.startswith(
        "opentelemetry.instrumentation.flask of opentelemetry-instrumentation-wsgi"
    )


@pytest.mark.parametrize("first", [True, False])
def test_a_quart_application_tells_of_tracing_inside_its_gate(
    first: bool, caplog: pytest.LogCaptureFixture
) -> None:
    app, bench, exporter = Quart("service"), Bench(), InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    def instrument() -> None:
        traced: Any = OpenTelemetryMiddleware(app.asgi_app, tracer_provider=provider)
        app.asgi_app = traced  # type: ignore[method-assign]

    if first:
        instrument()
    quart.protect(app, bench.gate)
    if not first:
        instrument()
    served: Any = app
    assert TestClient(served).get("/jobs").status_code == 401
    assert bool(exporter.get_finished_spans()) is not first
    assert len(told(caplog)) == first


def test_a_litestar_application_tells_of_each_instrumentor(
    caplog: pytest.LogCaptureFixture,
) -> None:
    layers: list[Any] = [PrometheusConfig().middleware, litestar.RouteMiddleware]
    plugin = OpenTelemetryPlugin(OpenTelemetryConfig(tracer_provider=TracerProvider()))
    app = Litestar([], middleware=layers, plugins=[plugin], logging_config=None)
    litestar.protect(app, Bench().gate)
    names = [line.split()[0] for line in told(caplog)]
    assert names == ["litestar.plugins.opentelemetry", "litestar.plugins.prometheus"]


def test_a_django_application_tells_of_each_instrumentor(caplog: pytest.LogCaptureFixture) -> None:
    served = [
        "django_prometheus.middleware.PrometheusBeforeMiddleware",
        "opentelemetry.instrumentation.django.middleware.otel_middleware._DjangoMiddleware",
        "lockgate.django.RouteMiddleware",
    ]
    if not settings.configured:
        settings.configure()
    with override_settings(ROOT_URLCONF=__name__, MIDDLEWARE=["lockgate.django.RouteMiddleware"]):
        application = WSGIHandler()
    if not settings.configured:
        settings.configure()
    with override_settings(ROOT_URLCONF=__name__, MIDDLEWARE=served):
        django.protect(application, Bench().gate)
    names = [line.split()[0] for line in told(caplog)]
    assert names == ["django_prometheus", "opentelemetry.instrumentation.django"]


urlpatterns: list[Any] = []

SENTRY = """
import logging, sys
import sentry_sdk
from litestar import Litestar
from lockgate import Gate
from lockgate.litestar import RouteMiddleware, protect

class Silent(sentry_sdk.Transport):
    def capture_envelope(self, envelope):
        pass

rate = float(sys.argv[1])
sentry_sdk.init("http://key@localhost/1", traces_sample_rate=rate, transport=Silent)
logging.basicConfig(stream=sys.stdout, force=True)
protect(
    Litestar([], middleware=[RouteMiddleware], logging_config=None),
    Gate("memory://", brand="acme"),
)
"""


@pytest.mark.parametrize("rate", [0, 1])
def test_sentry_inside_a_litestar_application_is_told_where_it_traces(rate: int) -> None:
    """In a process of its own: Sentry changes Litestar itself."""
    command = [sys.executable, "-c", SENTRY, str(rate)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
    assert (f"sentry_sdk.integrations.litestar {BLIND}" in ran.stdout) is bool(rate)
