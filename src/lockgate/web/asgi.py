"""The ASGI face: one middleware before any ASGI application."""

from __future__ import annotations  # Those of an inner function would be made for each request.

from collections.abc import Awaitable, Mapping
from typing import Any, Final

from starlette.authentication import AuthCredentials, UnauthenticatedUser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import Header, Refusal
from ..gate import Gate
from ..rules.routes import Rule
from .audit import log_audit, routes_of
from .caller import GATE, PRINCIPAL, SLOT
from .connection import AsgiCaller, decline, principal_of, refuse, with_rate
from .guard import Guard
from .wrapped import answer_refusals, starlette_in

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
        self._gate: Final = gate
        inner = starlette_in(app)
        self._rooted: Final[Any] = inner if hasattr(inner, "root_path") else None
        if inner is not None:
            answer_refusals(inner)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Guard one connection."""
        kind = scope["type"]
        if self._rooted is not None and self._rooted.root_path:
            scope["root_path"] = self._rooted.root_path  # As it does itself, and routes by it.
        if kind == "lifespan":
            log_audit(self.guard, routes_of(scope.get("app", self.app)))
            await self.app(scope, receive, self._settling(send))
            return
        if kind not in ("http", "websocket"):
            raise RuntimeError(f"No rule is known for the protocol {kind!r}, so it stays outside.")
        caller = AsgiCaller(scope)
        guard, gate = self.guard, self._gate
        try:
            entry = None
            if scope.get(GATE) is gate:
                entry = guard.passes(caller, principal_of(scope), SLOT in scope)
            principal, measured, slot = entry or await guard.enter(caller)
        except Refusal as refusal:
            await refuse(refusal, scope, send)
            return
        rate: tuple[Header, ...] = ()
        if measured is not None:
            plan, reading = measured
            rate = gate.headers(plan, reading)
        scope[GATE] = gate
        scope[PRINCIPAL] = scope.setdefault("state", {})["principal"] = principal
        if principal is not None:
            scope["user"] = scope["auth"] = principal
        else:
            scope.setdefault("user", UnauthenticatedUser())
            scope.setdefault("auth", AuthCredentials())
        started = False

        def answer(message: Message) -> Awaitable[None]:
            nonlocal started
            if started:
                return send(message)
            kind = message["type"]
            if kind in _STARTS:
                started = True
                message = with_rate(message, rate)
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
            gate.tell(refusal, measured)
            await refuse(refusal, scope, send)

    def _settling(self, send: Send) -> Send:
        """Send messages of a lifespan; before its end what is only counted here is written."""

        async def settled(message: Message) -> None:
            if message["type"].startswith("lifespan.shutdown."):
                await self._gate.settle()
            await send(message)

        return settled
