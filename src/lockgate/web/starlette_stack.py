"""The middleware of a Starlette or FastAPI application with a gate.

The gate is outside all of it but instrumentors, in whichever order they and the gate were added:
these record refused requests as well, and answer none by themselves.
"""

from collections.abc import Callable
from typing import Any, Final, Protocol

from starlette.applications import Starlette
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

_TRACING: Final = "opentelemetry.instrumentation.asgi"
_INSTRUMENTORS: Final = (_TRACING, "prometheus_fastapi_instrumentator.", "sentry_sdk.")
"""The modules whose middleware may be outside the gate."""


class _Gate(Protocol):
    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...


def guarded_stack(app: Starlette, gate: _Gate, build: Callable[[], ASGIApp]) -> ASGIApp:
    """Build the middleware of an application, with a gate in it, and return the outermost layer.

    Args:
        app: the application.
        gate: the middleware of its gate; it is given the layers inside it.
        build: builds the middleware without the gate.
    """
    added = app.user_middleware
    outside = [layer for layer in added if _module(layer.cls).startswith(_INSTRUMENTORS)]
    app.user_middleware = [layer for layer in added if layer not in outside]
    try:
        stack = build()
    finally:
        app.user_middleware = added
    guarded: ASGIApp = gate
    for layer in reversed(outside):
        guarded = layer.cls(guarded, *layer.args, **layer.kwargs)
    tracing = _tracing_in(stack)
    if tracing is None:
        gate.app = stack
        return _outermost(guarded)
    gate.app, tracing.app = tracing.app, guarded
    return stack


def _module(layer: object) -> str:
    """Return the module of a class, or of the class of a layer."""
    return getattr(layer, "__module__", "")


def _tracing_in(stack: ASGIApp) -> Any:
    """Return the tracing that FastAPIInstrumentor has put before all middleware; None: none."""
    layer: object = stack
    while isinstance(layer, ServerErrorMiddleware):
        layer = layer.app
    return layer if _module(layer) == _TRACING else None


def _outermost(guarded: Any) -> ASGIApp:
    """Return a layer that runs the gate, of the class that FastAPIInstrumentor expects outermost.

    Its ``__call__`` is that of the gate itself: a request costs no further call.
    """
    members = {"__call__": guarded.__call__, "__module__": __name__}
    made: Any = type("Outermost", (ServerErrorMiddleware,), members)
    layer: ASGIApp = made(guarded)
    return layer
