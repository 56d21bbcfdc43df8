"""The ASGI face: one middleware before any ASGI application."""

from collections.abc import Awaitable, Mapping, MutableMapping
from typing import Any, Final

from starlette.applications import Starlette
from starlette.authentication import AuthCredentials, UnauthenticatedUser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import Header, LockgateError, Refusal
from ..gate import Gate
from ..principal import Principal
from ..rules.headers import NOT_TO_STORE, OURS
from ..rules.routes import Rule
from .audit import log_audit, routes_of
from .caller import GATE, PRINCIPAL, SLOT
from .connection import NO_STORE, AsgiCaller, decline, principal_of, refuse
from .guard import Guard
from .starlette_errors import error_handlers

_OURS_AND_CACHES: Final = OURS | {b"cache-control"}
_ANY_REFUSAL: Final = (Refusal, LockgateError)
_LAYERS_AT_MOST: Final = 50
"""Middlewares that an application is looked for behind."""
_STARTS: Final = frozenset(
    {"http.response.start", "websocket.accept", "websocket.http.response.start"}
)


class GateMiddleware:
    """Puts a gate before an ASGI application: HTTP and WebSockets, every path, closed by default.

    Wrap the whole application, so that even its answer to a crash carries the rate headers::

        app = GateMiddleware(app, gate, {"GET /health": PUBLIC, "GET /models": "models:read"})

    The application finds the caller as ``request.state.principal`` (a
    :class:`~lockgate.Principal`; None on public routes), and as Starlette's ``request.user`` and
    ``request.auth``; the :class:`~lockgate.Slot` that a rule gives it is in the scope
    as ``lockgate.slot``.

    Args:
        app: the application.
        gate: decides.
        rules: by ``"METHOD /path"``: the scope that is required, a :class:`~lockgate.Rule`, or
            :data:`~lockgate.PUBLIC`. A path that no rule names needs a valid key.
        shadow: count and report, and refuse nothing.

    Raises:
        ConfigurationError: a rule that cannot be, or a store that would block the event loop.
    """

    def __init__(
        self,
        app: ASGIApp,
        gate: Gate,
        rules: Mapping[str, Rule | str] | None = None,
        *,
        shadow: bool = False,
    ) -> None:
        gate.pair("async")
        self.app: Final = app
        self.guard: Final = Guard(gate, rules, shadow=shadow)
        inner = _starlette_in(app)
        self._rooted: Final[Any] = inner if hasattr(inner, "root_path") else None
        if inner is not None and inner.exception_handlers.keys().isdisjoint(_ANY_REFUSAL):
            # Its answer to a crash would come before a refusal could be answered here.
            inner.add_exception_handler(Refusal, error_handlers[Refusal])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Guard one connection."""
        kind = scope["type"]
        if self._rooted is not None and self._rooted.root_path:
            scope["root_path"] = self._rooted.root_path  # As it does itself, and routes by it.
        if kind == "lifespan":
            log_audit(self.guard, routes_of(scope.get("app", self.app)))
            await self.app(scope, receive, send)
            return
        if kind not in ("http", "websocket"):
            raise RuntimeError(f"No rule is known for the protocol {kind!r}, so it stays outside.")
        caller = AsgiCaller(scope)
        guard = self.guard
        try:
            entry = None
            if scope.get(GATE) is guard.gate:
                entry = guard.passes(caller, principal_of(scope), SLOT in scope)
            principal, rate, slot = entry or await guard.enter(caller)
        except Refusal as refusal:
            await refuse(refusal, scope, send)
            return
        _introduce(scope, guard.gate, principal)
        started = False

        def answer(message: Message) -> Awaitable[None]:
            nonlocal started
            if started:
                return send(message)
            kind = message["type"]
            if kind in _STARTS:
                started = True
                message = _with_rate(message, rate)
            elif kind == "websocket.close":
                return decline(message, rate, scope, send)
            return send(message)

        try:
            if slot is None:
                await self.app(scope, receive, answer)
            else:
                async with slot:
                    scope[SLOT] = slot
                    await self.app(scope, receive, answer)
        except Refusal as refusal:
            if started:
                raise
            refusal.rate = rate
            await refuse(refusal, scope, send)


def _starlette_in(app: Any) -> Starlette | None:
    """The application, behind whatever is around it, if it is one of Starlette or FastAPI."""
    for _ in range(_LAYERS_AT_MOST):
        if isinstance(app, Starlette):
            return app
        app = getattr(app, "app", None)
    return None


def _introduce(scope: Scope, gate: Gate, principal: Principal | None) -> None:
    """Show the application who is calling."""
    state: MutableMapping[str, Any] = scope.setdefault("state", {})
    state["principal"] = scope[PRINCIPAL] = principal
    scope[GATE] = gate
    if principal is not None:
        scope["user"] = scope["auth"] = principal
    else:
        scope.setdefault("user", UnauthenticatedUser())
        scope.setdefault("auth", AuthCredentials())


def _with_rate(message: Message, rate: tuple[Header, ...]) -> Message:
    """The start of a response with our headers in place of any that it set itself (G2, D38)."""
    not_to_store = message.get("status") in NOT_TO_STORE
    replaced = _OURS_AND_CACHES if not_to_store else OURS
    headers: list[Header] = []
    for header in message.get("headers", ()):  # A comprehension is a call of its own.
        if header[0].lower() not in replaced:
            headers.append(header)
    if not_to_store:
        headers.append(NO_STORE)
    headers += rate
    message = dict(message)  # It is the application's to send again.
    message["headers"] = headers
    return message
