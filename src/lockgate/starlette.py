"""The Starlette adapter.

Use::

    @requires("models:read", cost=2)
    async def models(request): ...

    app = Starlette(routes=[Route("/models", models)])
    protect(app, gate, public=["GET /health"])
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial, wraps
from inspect import iscoroutinefunction
from typing import Any, Final, ParamSpec, TypeVar

from .asgi import GateMiddleware, operation_apps
from .core.access_rule import Rule, SlotUse
from .core.extras import extra
from .core.limits import Limit
from .errors import ConfigurationError, MethodNotAllowed, Refusal
from .gate import Gate
from .principal import Caller
from .web.asgi_types import Receive, Scope, Send
from .web.disconnects import cancel_on_disconnect
from .web.protection import EXTENSION, ErrorForm, audit, combined_rules, is_lockgates
from .web.requirements import admitted, mark, watched
from .web.shadow import Shadow

with extra("starlette", "lockgate[starlette]"):
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import HTTPConnection, Request
    from starlette.routing import Route
    from starlette.types import ExceptionHandler

    from .web.starlette_errors import answer_refusal, error_handlers, wrong_method
    from .web.starlette_routes import serves_operations
    from .web.starlette_stack import guarded_stack

__all__ = [
    "Caller",
    "audit",
    "cancel_on_disconnect",
    "error_handlers",
    "operations",
    "protect",
    "requires",
]

P = ParamSpec("P")
App = TypeVar("App", bound=Starlette)


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
    """Put a gate before a Starlette application: every path, closed by default.

    The gate stands outside all middleware of the application but that of instrumentors, which see
    refused requests as well. The application answers refusals as lockgate does, unless it has its
    own handler, and serves lockgate's own operations where the gate has sessions. Endpoints find
    the caller as ``request.state.principal``. Routes and middleware may be added until the server
    starts.

    Args:
        app: the application.
        gate: the gate that admits or refuses each request.
        public: the routes that need no key, each ``"METHOD /path"``.
        rules: by ``"METHOD /path"``, parameters written ``{name}``, what routes require beside what
            their endpoints declare with :func:`requires`: a scope or a :class:`~lockgate.Rule`.
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
            block the event loop, or the application has a gate or serves requests already.
    """
    combined = combined_rules(app, gate, public, rules)
    handlers = chosen_handlers(error_handlers, errors)
    check_application(app, Starlette)
    if gate.has_operations and not serves_operations(app, gate):
        app.router.routes[:0] = operations(gate)
    install(app, gate, combined, handlers, host=host, strict=strict, shadow=shadow)
    return app


def check_application(app: object, kind: type[Starlette]) -> None:
    """Check that an application can be given a gate.

    Raises:
        ConfigurationError: it is of another kind, has a gate already, or has served a request.
    """
    if not isinstance(app, kind):
        raise ConfigurationError(
            f"This protects a {kind.__name__} application, not {type(app).__name__}: take "
            "lockgate.asgi.protect for an application inside other layers."
        )
    if hasattr(app.state, EXTENSION):
        raise ConfigurationError("The application has a gate already: call protect() once.")
    if app.middleware_stack is not None:
        raise ConfigurationError(
            "The application has served a request already: call protect() before it starts."
        )


def chosen_handlers(
    handlers: Mapping[Any, ExceptionHandler], errors: ErrorForm
) -> Mapping[Any, ExceptionHandler]:
    """Return those of lockgate's handlers that an application asks for.

    Raises:
        ConfigurationError: ``errors`` is not one of the two.
    """
    return handlers if is_lockgates(errors) else {Refusal: handlers[Refusal]}


class _Gate(GateMiddleware):
    """Stands outside the middleware stack of one application."""

    def __init__(
        self,
        app: Starlette,
        gate: Gate,
        rules: Mapping[str, Rule | str],
        *,
        host: str | None,
        strict: bool,
        shadow: Shadow | None,
    ) -> None:
        super().__init__(app, gate, rules, host=host, strict=strict, shadow=shadow)
        self._application: Final = app

    async def refuse(self, refusal: Refusal, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request; a method that a path does not have as the application does (D50)."""
        if (
            isinstance(refusal, MethodNotAllowed)
            and refusal.of_application
            and scope["type"] == "http"
        ):
            response = await wrong_method(self._application, refusal, Request(scope, receive))
            await response(scope, receive, send)
        else:
            await super().refuse(refusal, scope, receive, send)


def install(
    app: Starlette,
    gate: Gate,
    rules: Mapping[str, Rule | str],
    handlers: Mapping[Any, ExceptionHandler],
    *,
    host: str | None,
    strict: bool,
    shadow: Shadow | None,
) -> None:
    """Put a gate outside the middleware stack of an application; see :func:`protect`."""
    for kind, handler in handlers.items():
        app.exception_handlers.setdefault(kind, handler)
    guarded = _Gate(app, gate, rules, host=host, strict=strict, shadow=shadow)
    guarded.guard.is_inside = True
    build = app.build_middleware_stack
    app.build_middleware_stack = partial(guarded_stack, app, guarded, build)  # type: ignore[method-assign]
    setattr(app.state, EXTENSION, guarded)


def requires(
    scope: str | None = None,
    *,
    cost: int = 1,
    slot: SlotUse = False,
    limits: Iterable[Limit] = (),
) -> Callable[[Callable[P, Any]], Callable[P, Awaitable[Any]]]:
    """Decorate an endpoint, ``async`` or not, HTTP or WebSocket, with what a caller must bring.

    The declaration is a rule of the gate before the application, so a refused request never reaches
    the endpoint. The endpoint takes ``request`` or ``websocket``.

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

    def decorate(endpoint: Callable[P, Any]) -> Callable[P, Awaitable[Any]]:
        call = endpoint if iscoroutinefunction(endpoint) else partial(run_in_threadpool, endpoint)

        @wraps(endpoint)
        async def guarded(*args: P.args, **kwargs: P.kwargs) -> Any:
            connection = _connection(args, kwargs)
            try:
                if not watched(connection.scope):
                    admitted(rule, connection.scope, endpoint)
            except Refusal as refusal:
                return await answer_refusal(connection, refusal)
            return await call(*args, **kwargs)

        mark(endpoint, guarded, rule)
        return guarded

    return decorate


def operations(gate: Gate) -> list[Route]:
    """Return lockgate's own operations under the gate's prefix, for ``Starlette(routes=[...])``.

    :func:`protect` adds them to an application that does not have them. They are guarded even
    without it, so they cannot be mounted open.

    Raises:
        ConfigurationError: the gate has no session verifier, so no key could be created.
    """
    return [Route(path, app) for path, app in operation_apps(gate).items()]


def _connection(args: tuple[object, ...], kwargs: dict[str, object]) -> "HTTPConnection[Any]":
    for value in (*args, *kwargs.values()):
        if isinstance(value, HTTPConnection):
            return value  # pyright: ignore[reportUnknownVariableType] - of whatever state
    raise ConfigurationError("An endpoint with @requires takes the request (or the WebSocket).")
