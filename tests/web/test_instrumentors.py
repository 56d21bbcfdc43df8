"""An instrumentor inside the gate, which records no refused request, is told at start."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from django.core.handlers.wsgi import WSGIHandler
from django.test import override_settings
from flask import Flask
from litestar import Litestar
from litestar.plugins.opentelemetry import OpenTelemetryConfig, OpenTelemetryPlugin
from litestar.plugins.prometheus import PrometheusConfig
from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware
from opentelemetry.instrumentation.flask import FlaskInstrumentor
from quart import Quart
from starlette.testclient import TestClient
from werkzeug.test import Client as WsgiClient

from lockgate import django, flask, litestar, quart

from .driving import Bench
from .front_ends import django_settings
from .test_starlette_stack import Spans

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
    app, bench, spans = Flask("service"), Bench(), Spans()
    app.add_url_rule("/jobs", "jobs", lambda: "said")
    instrumentor: Any = FlaskInstrumentor()
    if first:
        instrumentor.instrument_app(app, tracer_provider=spans.provider)
    flask.protect(app, bench.gate)
    if not first:
        instrumentor.instrument_app(app, tracer_provider=spans.provider)
    client = WsgiClient(app)
    assert client.get("/jobs").status_code == 401
    assert client.get("/jobs", headers={"Authorization": f"Bearer {bench.key()}"}).text == "said"
    assert spans.statuses() == [200]
    (line,) = told(caplog)
    assert line.startswith(
        "opentelemetry.instrumentation.flask of opentelemetry-instrumentation-wsgi"
    )


@pytest.mark.parametrize("first", [True, False])
def test_a_quart_application_tells_of_tracing_inside_its_gate(
    first: bool, caplog: pytest.LogCaptureFixture
) -> None:
    app, bench, spans = Quart("service"), Bench(), Spans()

    def instrument() -> None:
        traced: Any = OpenTelemetryMiddleware(app.asgi_app, tracer_provider=spans.provider)
        app.asgi_app = traced  # type: ignore[method-assign]

    if first:
        instrument()
    quart.protect(app, bench.gate)
    if not first:
        instrument()
    served: Any = app
    assert TestClient(served).get("/jobs").status_code == 401
    assert bool(spans.statuses()) is not first
    assert len(told(caplog)) == first


def test_a_litestar_application_tells_of_each_instrumentor(
    caplog: pytest.LogCaptureFixture,
) -> None:
    layers: list[Any] = [PrometheusConfig().middleware, litestar.RouteMiddleware]
    plugin = OpenTelemetryPlugin(OpenTelemetryConfig(tracer_provider=Spans().provider))
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
    with django_settings():
        application = WSGIHandler()
        with override_settings(MIDDLEWARE=served):
            django.protect(application, Bench().gate)
    names = [line.split()[0] for line in told(caplog)]
    assert names == ["django_prometheus", "opentelemetry.instrumentation.django"]


SENTRY = """
import logging, sys
import sentry_sdk
from sentry_sdk.integrations.litestar import LitestarIntegration
from litestar import Litestar
from lockgate import Gate
from lockgate.litestar import RouteMiddleware, protect

class Silent(sentry_sdk.Transport):
    def capture_envelope(self, envelope):
        pass

logging.basicConfig(stream=sys.stdout, force=True)
for rate in (0.0, 1.0):
    sentry_sdk.init(
        "http://key@localhost/1",
        traces_sample_rate=rate,
        transport=Silent,
        integrations=[LitestarIntegration()],
        auto_enabling_integrations=False,
    )
    print("rate", rate, flush=True)
    protect(
        Litestar([], middleware=[RouteMiddleware], logging_config=None),
        Gate("memory://", brand="acme"),
    )
"""


def test_sentry_inside_a_litestar_application_is_told_where_it_traces() -> None:
    """In a process of its own: Sentry changes Litestar itself."""
    command = [sys.executable, "-c", SENTRY]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
    without, _, tracing = ran.stdout.partition("rate 1.0")
    expected = f"sentry_sdk.integrations.litestar {BLIND}"
    assert (expected in without, expected in tracing) == (False, True)
