"""Instrumentors inside a gate: they record no refused request, which the log says at start."""

import sys
from collections.abc import Iterable
from typing import Any, Final

from ..events import logger

_MODULES: Final = (
    "opentelemetry.",
    "prometheus_flask_exporter",
    "django_prometheus.",
    "litestar.plugins.opentelemetry",
    "litestar.plugins.prometheus",
)

_BLIND: Final = (
    "%s is inside the gate and records no refused request: for spans put the %s of "
    "opentelemetry-instrumentation-%s, or Sentry's %s, around the gate, after protect(); "
    "lockgate.prometheus counts refusals."
)
_WRAPPERS: Final = {
    "asgi": ("OpenTelemetryMiddleware", "asgi", "SentryAsgiMiddleware"),
    "wsgi": ("OpenTelemetryMiddleware", "wsgi", "SentryWsgiMiddleware"),
}


def warn_of_blind(layers: Iterable[object], interface: str, sentry: str | None = None) -> None:
    """Log a warning for each instrumentor that is inside the gate.

    Args:
        layers: what runs inside the gate: functions, classes, objects, or dotted names.
        interface: ``asgi`` or ``wsgi``, that of the application.
        sentry: the name of Sentry's integration that traces inside the gate; None: none does.
    """
    names = [layer if isinstance(layer, str) else _module(layer) for layer in layers]
    blind = {name.split(".middleware")[0] for name in names if name.startswith(_MODULES)}
    if sentry is not None and _sentry_traces(sentry):
        blind.add(f"sentry_sdk.integrations.{sentry}")
    for name in sorted(blind):
        logger.warning(_BLIND, name, *_WRAPPERS[interface])


def _module(layer: object) -> str:
    """Return the module of a function or class, or of the class of an object."""
    return getattr(layer, "__module__", None) or type(layer).__module__


def _sentry_traces(integration: str) -> bool:
    """Return whether Sentry was initialized to trace requests by an integration."""
    sdk: Any = sys.modules.get("sentry_sdk")
    if sdk is None:
        return False
    client = sdk.get_client()
    traced = client.options.get("traces_sample_rate") or client.options.get("traces_sampler")
    return bool(traced) and client.get_integration(integration) is not None
