"""The Quart adapter.

Use::

    @app.get("/models")
    @requires("models:read", cost=2)
    async def models(): ...

    protect(app, gate, public=["GET /health"])
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial, wraps
from typing import Any, Final, TypeVar, cast

from .asgi import GateMiddleware, operation_apps, reply_of
from .core.access_rule import Rule, SlotUse
from .core.extras import extra
from .core.limits import Limit
from .errors import ConfigurationError, MethodNotAllowed, NotFound, Refusal
from .gate import Gate
from .principal import Caller
from .web.asgi_exchange import AsgiRequest
from .web.asgi_types import ASGIApp, Receive, Scope, Send
from .web.entry import charged_rule, entry_in, gate_in
from .web.guard import PREFLIGHT, Guard
from .web.inner_cors import warn_of_inner_cors
from .web.instrumentors import warn_of_blind
from .web.operations.operation import Reply
from .web.operations.table import refused
from .web.protection import EXTENSION, ErrorForm, audit, combined_rules, is_lockgates
from .web.requirements import admitted, declare, mark, watched
from .web.shadow import Shadow
from .web.wsgi_exchange import text

with extra("quart", "quart"):
    from quart import (
        Blueprint,
        Quart,
        current_app,
        g,
        has_app_context,
        has_request_context,
        has_websocket_context,
        request,
        websocket,
    )
    from quart.blueprints import BlueprintSetupState
    from quart.wrappers import Request, Response, Websocket

    from .web.werkzeug_routes import only_redirects, routes, url_rule, verify

__all__ = ["Caller", "audit", "operations", "protect", "requires"]

App = TypeVar("App", bound=Quart)
View = TypeVar("View", bound=Callable[..., Any])

_BLUEPRINT: Final = "lockgate"


def protect(
    app: App,
    gate: Gate,
    *,
    public: Iterable[str] = (),
    rules: Mapping[str, Rule | str] | None = None,
    host: str | None = None,
    strict: bool = False,
    shadow: Shadow | None = None,
    errors: ErrorForm = "framework",
) -> App:
    """Put a gate before a Quart application: every path, closed by default.

    Views find the caller as ``quart.g.principal`` (a :class:`~lockgate.Principal`; None on public
    routes), and may raise any :class:`~lockgate.errors.Refusal`. A gate with sessions also serves
    lockgate's own operations.

    Args:
        app: the application; routes may be added before or after.
        gate: the gate that admits or refuses each request.
        public: the routes that need no key, each ``"METHOD /path"``.
        rules: by ``"METHOD /path"``, parameters written ``{name}``, what routes require beside what
            their views declare with :func:`requires`: a scope or a :class:`~lockgate.Rule`.
        host: the one host that the rules without a host are for; None: every host.
        strict: refuse to start while the audit finds anything: a route that no rule names, a rule
            that names no route.
        shadow: only watch: ``limits``, or ``all``; see :class:`~lockgate.web.guard.Guard`.
        errors: the form of the application's own 404 and 405:
            ``framework`` or ``lockgate`` (D50).

    Returns:
        The application itself.

    Raises:
        ConfigurationError: an argument is of the wrong kind, a rule is malformed, the store would
            block the event loop, or the application has a gate already.
    """
    combined = combined_rules(app, gate, public, rules)
    answers_errors = is_lockgates(errors)
    if not isinstance(app, Quart):  # pyright: ignore[reportUnnecessaryIsInstance] - from a caller
        raise ConfigurationError(
            f"lockgate.quart.protect takes a Quart application, not {type(app).__name__}: take "
            "lockgate.asgi.protect for an application inside other layers."
        )
    if EXTENSION in app.extensions:
        raise ConfigurationError("The application has a gate already: call protect() once.")
    warn_of_blind([app.asgi_app], "asgi")
    if any(_is_cors(after) for after in app.after_request_funcs.get(None, ())):
        warn_of_inner_cors("Quart-CORS")
    service, served = partial(_serve, app, cast(ASGIApp, app.asgi_app)), partial(routes, app)
    guarded = GateMiddleware(
        service, gate, combined, host=host, strict=strict, shadow=shadow, routes=served
    )
    guarded.guard.is_inside = True
    guarded.guard.redirects = partial(only_redirects, app)
    guarded.preflights = partial(_answer_preflight, app)
    if gate.has_operations and _BLUEPRINT not in app.blueprints:
        app.register_blueprint(operations(gate))
    app.extensions[EXTENSION] = guarded
    app.asgi_app = cast(Any, guarded)  # type: ignore[method-assign]
    # Before any function that the application has put there: one of them may answer.
    app.before_request_funcs.setdefault(None, []).insert(
        0, partial(_check_request, app, guarded.guard)
    )
    app.before_websocket_funcs.setdefault(None, []).insert(
        0, partial(_check_websocket, app, guarded.guard)
    )
    app.register_error_handler(Refusal, _answer)
    if answers_errors:
        app.register_error_handler(404, lambda _: _answer(NotFound()))
        app.register_error_handler(405, _wrong_method)
    return app


def requires(
    scope: str | None = None,
    *,
    cost: int = 1,
    slot: SlotUse = False,
    limits: Iterable[Limit] = (),
) -> Callable[[View], View]:
    """Decorate a view, ``async`` or not, HTTP or WebSocket, with what a caller must bring.

    The declaration is a rule of the gate before the application, so a refused request never reaches
    the view's other decorators. Put it directly below ``@app.get(...)``.

    Args:
        scope: the scope that a key needs; None: any key will do.
        cost: the units that the request takes from each window; 0: no window refuses it.
        slot: whether the request holds a slot for concurrent jobs until it is answered whole.
        limits: named limits that the request is charged for as well (D40).

    Raises:
        ConfigurationError: the scope is no exact scope, the cost is less than 0, or the limits do
            not fit together.
    """
    rule = Rule(scope, cost=cost, slot=slot, limits=limits)

    def decorate(view: View) -> View:
        @wraps(view)
        async def guarded(*args: Any, **kwargs: Any) -> Any:
            shown: Any = websocket if has_websocket_context() else request
            try:
                if not watched(shown.scope):
                    admitted(rule, shown.scope, view)
            except Refusal as refusal:
                return _answer(refusal)
            return await current_app.ensure_async(view)(*args, **kwargs)

        mark(view, guarded, rule)
        return cast(View, guarded)

    return decorate


def operations(gate: Gate) -> Blueprint:
    """Return lockgate's own operations under the gate's prefix, for ``register_blueprint(...)``.

    :func:`protect` registers them with an application that does not have them. They are guarded
    even without it, so they cannot be mounted open.

    Raises:
        ConfigurationError: the gate has no session verifier, so no key could be created; or,
            when the blueprint is registered, it is given a prefix other than the gate's.
    """
    blueprint = Blueprint(_BLUEPRINT, __name__)
    for path, operation in operation_apps(gate).items():
        blueprint.record(_mount(path, operation, gate))
    return blueprint


def _mount(path: str, operation: ASGIApp, gate: Gate) -> Callable[[BlueprintSetupState], None]:
    async def view(**params: str) -> Response:
        async def read() -> bytes:
            return cast(bytes, await request.get_data())

        return _response(await reply_of(operation, cast(Any, request).scope, params, read))

    declare(view, operations_of=gate)

    def mount(state: BlueprintSetupState) -> None:
        if state.url_prefix:
            raise ConfigurationError(
                f"Register the blueprint without url_prefix={state.url_prefix!r}: "
                "lockgate's operations move with the gate's prefix."
            )
        name = f"{_BLUEPRINT}.{path}"
        state.app.view_functions[name] = view
        # A rule without methods takes them all: the operations answer 405 themselves.
        state.app.url_map.add(state.app.url_rule_class(url_rule(path), endpoint=name))

    return mount


def _is_cors(after: Callable[..., object]) -> bool:
    """Return whether a function that runs after each view is that of Quart-CORS."""
    function = after.func if isinstance(after, partial) else after
    return getattr(function, "__module__", "") == "quart_cors"


async def _serve(app: Quart, service: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Run an application with a ``g`` of this request alone (D54).

    A server that is started inside an application context hands it to the tasks of all requests,
    and Quart then gives them one ``g``.
    """
    if has_app_context() and current_app == app:
        async with app.app_context():
            await service(scope, receive, send)
    else:
        await service(scope, receive, send)


async def _answer_preflight(app: Quart, scope: Scope, receive: Receive, send: Send) -> None:
    """Hand a preflight to the application alone, past any layer that may answer it otherwise."""
    await cast(Any, app.asgi_http_class(app, cast(Any, scope)))(receive, send)


async def _check_request(app: Quart, guard: Guard) -> Response | None:
    shown: Scope = cast(Any, request).scope
    if charged_rule(shown) is PREFLIGHT:
        response = Response(status=204)  # Quart-CORS allows what it does behind the view.
        del response.headers["Content-Type"]
        return response
    await _check(app, guard, shown, cast(Any, request))
    return None


async def _check_websocket(app: Quart, guard: Guard) -> None:
    await _check(app, guard, cast(Any, websocket).scope, cast(Any, websocket))


async def _check(app: Quart, guard: Guard, scope: Scope, matched: Request | Websocket) -> None:
    entry = entry_in(scope)
    guard.verify_presence(entry)
    g.principal = None if entry is None else entry.principal
    verify(entry, cast(Any, matched), app, partial(AsgiRequest, scope))


def _answer(error: Exception) -> Response:
    assert isinstance(error, Refusal), "registered for Refusal"
    matched: Any = request if has_request_context() else websocket
    return _response(refused(error, gate_in(matched.scope), AsgiRequest(matched.scope)))


def _response(reply: Reply) -> Response:
    return Response(reply.body, reply.status, dict(text(reply.headers)))


def _wrong_method(error: Exception) -> Response:
    allowed: list[str] = getattr(error, "valid_methods", None) or []
    return _answer(MethodNotAllowed(allowed))
