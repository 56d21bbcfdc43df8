"""The Quart adapter: a gate before the application, and a check of each route that it matches.

app = Quart(__name__)
protect(app, gate, {"GET /models": "models:read"})
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, cast

from quart import Quart, g, request, websocket
from quart.wrappers import Request, Response, Websocket
from starlette.types import ASGIApp, Receive, Scope, Send

from .asgi import GateMiddleware
from .core.access_rule import Rule
from .errors import MethodNotAllowed, NotFound, Refusal
from .gate import Gate
from .web.asgi_request import AsgiCaller
from .web.guard import PREFLIGHT
from .web.operations.table import refused
from .web.request import PRINCIPAL, RULE
from .web.shadow import Shadow
from .web.werkzeug_routes import routes, verify
from .web.wsgi_request import text

__all__ = ["protect"]


def protect(
    app: Quart,
    gate: Gate,
    rules: Mapping[str, Rule | str] | None = None,
    *,
    host: str | None = None,
    strict: bool = False,
    shadow: Shadow | None = None,
) -> GateMiddleware:
    """Put a gate before a Quart application; its routes may be added before or after.

    The application stays the object to serve. Views find the caller as ``quart.g.principal`` (a
    :class:`~lockgate.Principal`; None on public routes), and may raise any
    :class:`~lockgate.Refusal`.

    Args:
        app: the application.
        gate: decides.
        rules: by ``"METHOD /path"``; see :class:`~lockgate.asgi.GateMiddleware`.
        host: the one host that the rules without a host are for; None: every host.
        strict: refuse to start while the audit finds anything: a route that no rule names, a rule
            that names no route.
        shadow: only watch: ``limits``, or ``all``; see :class:`~lockgate.web.guard.Guard`.

    Raises:
        ConfigurationError: a rule cannot be, or the store would block the event loop.
    """
    service = cast(ASGIApp, app.asgi_app)
    guarded = GateMiddleware(
        service, gate, rules, host=host, strict=strict, shadow=shadow, routes=partial(routes, app)
    )
    guarded.preflights = partial(_answer_preflight, app)
    app.asgi_app = cast(Any, guarded)  # type: ignore[method-assign]
    # Before any function that the application has put there: one of them may answer.
    app.before_request_funcs.setdefault(None, []).insert(0, partial(_check_request, app))
    app.before_websocket_funcs.setdefault(None, []).insert(0, partial(_check_websocket, app))
    app.register_error_handler(Refusal, _answer)
    app.register_error_handler(404, lambda _: _answer(NotFound()))
    app.register_error_handler(405, _wrong_method)
    return guarded


async def _answer_preflight(app: Quart, scope: Scope, receive: Receive, send: Send) -> None:
    """Hand a preflight to the application alone, past any layer that may answer it otherwise."""
    await cast(Any, app.asgi_http_class(app, cast(Any, scope)))(receive, send)


async def _check_request(app: Quart) -> Response | None:
    shown: Scope = cast(Any, request).scope
    if shown.get(RULE) is PREFLIGHT:
        response = Response(status=204)  # Quart-CORS allows what it does behind the view.
        del response.headers["Content-Type"]
        return response
    await _check(app, shown, cast(Any, request))
    return None


async def _check_websocket(app: Quart) -> None:
    await _check(app, cast(Any, websocket).scope, cast(Any, websocket))


async def _check(app: Quart, scope: Scope, matched: Request | Websocket) -> None:
    g.principal = scope.get(PRINCIPAL)
    verify(scope, cast(Any, matched), app, AsgiCaller)


def _answer(error: Exception) -> Response:
    assert isinstance(error, Refusal), "registered for Refusal"
    reply = refused(error)
    return Response(reply.body, reply.status, dict(text(reply.headers)))


def _wrong_method(error: Exception) -> Response:
    allowed: list[str] = getattr(error, "valid_methods", None) or []
    return _answer(MethodNotAllowed(allowed))
