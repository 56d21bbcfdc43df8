"""The ASGI adapter: a gate before any ASGI application, HTTP and WebSockets.

Use::

    app = protect(app, gate, public=["GET /health"], rules={"GET /models": "models:read"})

The steps of a request in ``GateMiddleware.__call__``, and the statuses that each may answer:

1. ``GateMiddleware.start`` audits the routes, at the first request and after routes were added.
2. ``Guard.enter`` in ``web/guard.py`` admits the request; inside another gate
   ``Guard.enter_inside`` charges only what is missing.

   a. ``RuleBook.match`` finds the rule: 400 for a target that is not a path.
   b. ``Guard._charge_first`` charges limits by address and by functions: 429, 503.
   c. ``Guard._anonymous`` charges the budget of the address, for a public rule: 429.
   d. ``Gate.admit_header`` verifies a key, its scope and the limits in one call of the store: 401,
      403, 429, 503. Before that ``Guard._look_up`` refuses an address whose credentials failed too
      often, for a key that this process has not verified lately: 429.
   e. ``Guard._enter_by_session`` does the same for a session: 401, 403, 429, 503; and 404 for a
      rule that takes neither.
   f. ``Guard._admitted`` refuses a method that the rule does not take: 404, 405.
   g. ``Guard._refused`` adds the rate headers to a refusal of these steps, or lets the request in
      where shadow mode only watches.

3. ``refuse`` in ``web/asgi_exchange.py`` answers with the refusal of step 2.
4. The scope gets the record of the admission (``Entry``), the principal, ``user`` and ``auth``.
5. ``Exchange.hold_slot`` takes a slot, if the rule says so: 429, 503.
6. The application runs: ``preflights`` for a CORS preflight, otherwise ``app``.

   a. ``Guard.verify_route``, right before the handler, refuses a route that the charged rule is not
      for: 404. Adapters of frameworks call it.
   b. ``table.answer`` reads and checks the body of lockgate's own operations, and of no others:
      400, 413, 415.
   c. ``Exchange.answer`` adds the rate headers to the response, and registers a stream, so that it
      ends with its key.

7. ``Exchange.refuse`` answers with a refusal that the application raised: 429 and 503 of a hold or
   a slot, 499 of :func:`cancel_on_disconnect`. In frameworks with handlers of exceptions, the one
   that :func:`protect` registers answers before.
8. ``Exchange.cut`` ends a stream whose key has ended.
"""

from __future__ import annotations  # Those of an inner function would be made for each request.

import sys
from asyncio import CancelledError, current_task
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sized
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from .core.access_rule import Rule, SlotUse
from .core.limits import Limit
from .errors import ConfigurationError, NotFound, Refusal
from .gate import Gate
from .principal import Caller
from .web.asgi_exchange import (
    AsgiRequest,
    ClientGone,
    Exchange,
    allow_nothing,
    body_reader,
    refuse,
    respond,
    set_unauthenticated_user,
)
from .web.asgi_lifespan import NO_ASYNCIO, Lifespan
from .web.asgi_types import ASGIApp, Message, Receive, Scope, Send
from .web.audit import Audit, ServedRoute, audit_routes, logger, report
from .web.disconnects import cancel_on_disconnect
from .web.entry import ENTRY, Entry, charged_rule, mark_rated, principal_of
from .web.guard import PREFLIGHT
from .web.key_header import guard_of
from .web.operations import table
from .web.operations.operation import Endpoint, Reply
from .web.operations.table import endpoints, path_pattern, refused
from .web.protection import audit, combined_rules
from .web.requirements import admitted, declare, mark, watched
from .web.shadow import Shadow

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from .web.starlette_routes import StarletteRoutes

__all__ = [
    "Caller",
    "GateMiddleware",
    "audit",
    "cancel_on_disconnect",
    "operations",
    "protect",
    "requires",
]

_GUARDED: Final = frozenset({"http", "websocket"})


class GateMiddleware:
    """Puts a gate before an ASGI application: HTTP and WebSockets, every path, closed by default.

    :func:`protect` makes it. It stands before the whole application, so that even the answer to a
    crash carries the rate headers. The application finds the caller as
    ``request.state.principal`` (a :class:`~lockgate.Principal`; None on public routes), and as
    Starlette's ``request.user`` and ``request.auth``; the :class:`~lockgate.ConcurrencySlot` that
    a rule gives it is ``scope["lockgate.entry"].slot``.

    Args:
        app: the application.
        gate: the gate that admits or refuses each request.
        rules: by ``"METHOD /path"``: the scope that is required, a :class:`~lockgate.Rule`, or
            :data:`~lockgate.PUBLIC`. A path that no rule names needs a valid key.
        host: the one host that the rules without a host are for; None: every host.
        strict: refuse to start while the audit of a Starlette or FastAPI application finds
            anything: a route that no rule names, a rule that names no route.
        shadow: only watch: ``limits``, or ``all``; see :class:`~lockgate.web.guard.Guard`.
        routes: the Starlette or FastAPI application behind a layer that does not keep it as
            ``.app``; or a function that gives the routes of another kind of application for the
            audit, called when the server starts.

    Raises:
        ConfigurationError: a rule that is malformed, a store that would block the event loop, or a
            strict audit of routes that are not known.
    """

    exchange: ClassVar[type[Exchange]] = Exchange
    """The class of a request, and of the response to it."""

    def __init__(
        self,
        app: ASGIApp,
        gate: Gate,
        rules: Mapping[str, Rule | str] | None = None,
        *,
        host: str | None = None,
        strict: bool = False,
        shadow: Shadow | None = None,
        routes: Callable[[], Iterable[ServedRoute]] | Starlette | None = None,
    ) -> None:
        gate.pair("async")
        self.app = app
        """The application; it may be replaced before the first request."""
        self.guard: Final = guard_of(gate, rules, host=host, shadow=shadow)
        self._gate: Final = gate
        self._strict: Final = strict
        found = _starlette_routes(app, routes)
        if found is not None:
            self.guard.redirects = found.only_redirects
        known = cast("Callable[[], Iterable[ServedRoute]] | None", routes)
        self._routes: Final = known if found is None else found.served
        self._checks: Final = None if found is None else found.checks(self.guard, self.start)
        self._starlette: Final[Any] = None if found is None else found.rooted
        """The Starlette application inside, if it may have a root path (FastAPI does)."""
        if strict and self._routes is None:
            raise ConfigurationError(
                "The audit is strict, and the routes of the application are not known: give the "
                "Starlette application behind all layers by routes=, or a function that lists "
                "the routes."
            )
        self._routes_now: Final[Sized] = () if found is None else found.router.routes
        """The router's own list, which grows when routes are added later."""
        self._routes_seen = -1
        """The length of that list at the latest :meth:`start`; -1: before the first."""
        self._audited: list[ServedRoute] | None = None
        self.preflights: ASGIApp = allow_nothing
        """Answers CORS preflights in place of the application (D31)."""
        self._report_cors: Callable[[], None] | None = None
        if "starlette" in sys.modules:
            from .web.starlette_cors import Preflights

            answering = Preflights(app)
            self.preflights, self._report_cors = answering, answering.report

    async def __call__(  # noqa: PLR0912, PLR0915 - each call more costs as much as twenty lines
        self, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Admit one request or WebSocket and run the application, or answer with a refusal.

        The docstring of this module lists the steps.
        """
        if scope["type"] not in _GUARDED:
            await self._serve_lifespan(scope, receive, send)
            return
        if self._starlette is not None and self._starlette.root_path:
            scope["root_path"] = self._starlette.root_path  # It routes by this; rules do, too.
        if len(self._routes_now) != self._routes_seen:
            self.start()
        outer: Entry | None = scope.get(ENTRY)
        exchange, guard = self.exchange(scope), self.guard
        try:
            entry = None if outer is None else await guard.enter_inside(outer, exchange)
            entry = entry or await guard.enter(exchange)
        except Refusal as refusal:
            mark_rated(outer if refusal.rate else None)
            await self.refuse(refusal, scope, receive, send)
            return
        if outer is not None:
            entry.outer = outer
        scope[ENTRY], principal = entry, entry.principal
        # A copy: a server may share the state between requests of a connection (D54).
        state = scope.get("state")
        scope["state"] = {**state, "principal": principal} if state else {"principal": principal}
        if principal is None:
            set_unauthenticated_user(scope)
        else:
            scope["user"] = scope["auth"] = principal
            if guard.streams is not None and (outer is None or entry.within(self._gate) is None):
                try:
                    entry.task = current_task()  # Unless a gate outside watches the response.
                except RuntimeError:
                    raise ConfigurationError(NO_ASYNCIO) from None
        exchange.entry, exchange.send, entry.receive = entry, send, receive
        app = self.preflights if entry.rule is PREFLIGHT else self.app
        try:
            if entry.slot is None:
                await app(scope, exchange.receive, exchange.answer)
            else:
                await exchange.hold_slot(app)
        except Refusal as refusal:
            await exchange.refuse(refusal)
        except CancelledError:
            if not entry.unwatch():
                raise
            await exchange.cut()
        finally:
            if outer is None:  # The next gate in this scope is beside this one, not inside it.
                scope.pop(ENTRY, None)
            else:
                scope[ENTRY] = outer
            if entry.is_watched:
                entry.unwatch()

    async def refuse(self, refusal: Refusal, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that is not admitted."""
        await refuse(refusal, scope, send, self._gate)

    def audit(self) -> Audit:
        """Return the requirement of each route, and the undecided routes.

        Raises:
            ConfigurationError: the endpoints and the rules contradict each other.
        """
        return audit_routes(self.guard, () if self._routes is None else self._routes())

    def start(self) -> None:
        """Audit the routes if they have changed; put the check at dispatch into each new one."""
        if self._routes is not None:
            served = list(self._routes())
            if served != self._audited:
                report(self.guard, served, strict=self._strict)
                self._audited = served
        elif self._routes_seen < 0 and not self.guard.audited:
            logger.warning(
                "The routes of the application are not known, so there is no audit and no check "
                "at dispatch: where it is one of Starlette behind a layer, give it by routes=."
            )
        if self._report_cors is not None and self._routes_seen < 0:
            self._report_cors()
        if self._checks is not None:
            self._checks.install()
        self._routes_seen = len(self._routes_now)

    async def _serve_lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            kind = scope["type"]
            raise RuntimeError(f"No rule is known for the protocol {kind!r}, so it stays outside.")
        lifespan = Lifespan(self._gate, self.guard, self.start, send)
        await lifespan.serve(self.app, scope, receive)


def protect(
    app: ASGIApp,
    gate: Gate,
    *,
    public: Iterable[str] = (),
    rules: Mapping[str, Rule | str] | None = None,
    host: str | None = None,
    strict: bool = False,
    shadow: Shadow | None = None,
    routes: Callable[[], Iterable[ServedRoute]] | Starlette | None = None,
) -> GateMiddleware:
    """Put a gate before any ASGI application, closed by default; serve what is returned.

    A gate with sessions also serves lockgate's own operations, unless the application does.

    Args:
        app: the application.
        gate: the gate that admits or refuses each request.
        public: the routes that need no key, each ``"METHOD /path"``.
        rules: by ``"METHOD /path"``, parameters written ``{name}``, what other routes require: a
            scope or a :class:`~lockgate.Rule`. A path that no rule names needs a valid key.
        host: the one host that the rules without a host are for; None: every host.
        strict: refuse to start while the audit finds anything: a route that no rule names, a rule
            that names no route.
        shadow: only watch: ``limits``, or ``all``; see :class:`~lockgate.web.guard.Guard`.
        routes: the Starlette or FastAPI application behind a layer that does not keep it as
            ``.app``; or a function that gives the routes of another kind of application.

    Raises:
        ConfigurationError: an argument is of the wrong kind, a rule is malformed, the store would
            block the event loop, or a strict audit of routes that are not known.
    """
    combined = combined_rules(app, gate, public, rules)
    if gate.has_operations:
        found = _starlette_routes(app, routes)
        if found is None or not found.serve_operations(gate):
            app = _WithOperations(app, operations(gate))
    return GateMiddleware(
        app, gate, combined, host=host, strict=strict, shadow=shadow, routes=routes
    )


def requires(
    scope: str | None = None,
    *,
    cost: int = 1,
    slot: SlotUse = False,
    limits: Iterable[Limit] = (),
) -> Callable[[ASGIApp], ASGIApp]:
    """Decorate an ASGI application behind a gate with what a caller must bring.

    A gate sees such a declaration in the routes of Starlette and FastAPI. Behind any other router,
    write a cost and a slot into the rules.

    Args:
        scope: the scope that a key needs; None: any key will do.
        cost: the units that the request takes from each window; 0: no window refuses it.
        slot: whether the request holds a slot for concurrent jobs until it is answered.
        limits: named limits that the request is charged for as well (D40).

    Raises:
        ConfigurationError: the scope is no exact scope, the cost is less than 0, or the limits do
            not fit together.
    """
    rule = Rule(scope, cost=cost, slot=slot, limits=limits)

    def decorate(app: ASGIApp) -> ASGIApp:
        @wraps(app)
        async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
            try:
                if not watched(scope):
                    admitted(rule, scope, app)
            except Refusal as refusal:
                await refuse(refusal, scope, send)
            else:
                await app(scope, receive, send)

        mark(app, guarded, rule)
        return guarded

    return decorate


def operations(gate: Gate) -> ASGIApp:
    """Return lockgate's own operations under the gate's prefix, as an ASGI application.

    They are guarded even without :func:`protect`, so they cannot be mounted open.

    Raises:
        ConfigurationError: the gate has no session verifier, so no key could be created.
    """
    by_path = [(path_pattern(path), app) for path, app in operation_apps(gate).items()]

    async def operate(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await by_path[0][1](scope, receive, send)
            return
        path = AsgiRequest(scope).path
        for pattern, app in by_path:
            found = pattern.fullmatch(path)
            if found is not None and scope["type"] == "http":
                await app({**scope, "path_params": found.groupdict()}, receive, send)
                return
        await refuse(NotFound(), scope, send, gate)

    return operate


async def reply_of(
    operation: ASGIApp,
    scope: Scope,
    params: Mapping[str, object],
    read: Callable[[], Awaitable[bytes]],
) -> Reply:
    """Return the reply of an operation to a request, for a framework to send.

    Args:
        operation: one of :func:`operation_apps`.
        scope: the ASGI scope of the request.
        params: the parameters of its path.
        read: reads its body.
    """
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": await read(), "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    await operation({**scope, "path_params": params}, receive, send)
    start, body = sent
    return Reply(start["status"], tuple(start["headers"]), body["body"])


def operation_apps(gate: Gate) -> dict[str, ASGIApp]:
    """Return lockgate's own operations as a guarded ASGI application per path.

    Each takes the parameters of its path from ``path_params`` of the scope.
    """
    return {path: _Operations(gate, by) for path, by in endpoints(gate).items()}


class _Operations:
    """The operations on one path, guarded, as an ASGI application."""

    def __init__(self, gate: Gate, by_method: dict[str, Endpoint]) -> None:
        self._gate = gate
        self._by_method = by_method
        self._guarded = GateMiddleware(self._answer, gate)
        self._guarded.guard.audited = True  # It has no other routes.
        declare(self, operations_of=gate)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._guarded(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            reply = await table.answer(
                self._gate,
                self._by_method,
                AsgiRequest(scope),
                principal_of(scope),
                scope.get("path_params", {}),
                body_reader(receive),
            )
        except ClientGone:
            return
        except Refusal as refusal:
            reply = refused(refusal, self._gate, AsgiRequest(scope))
        await respond(reply, scope, send)


class _WithOperations:
    """An application, and lockgate's operations where the rule of an operation was charged."""

    def __init__(self, app: ASGIApp, operations: ASGIApp) -> None:
        self.app = app
        self._operations = operations

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        rule = charged_rule(scope)
        app = self._operations if rule is not None and rule.own else self.app
        await app(scope, receive, send)


def _starlette_routes(app: object, routes: object) -> StarletteRoutes | None:
    """Return the routes of the Starlette or FastAPI application behind any layers; None: the
    application is of another kind.

    Starlette is not imported for this: without it no application is one of Starlette.

    Args:
        app: the application, with any layers.
        routes: the Starlette application behind a layer that hides it, or anything else.
    """
    if "starlette" not in sys.modules:
        return None
    from .web.starlette_routes import StarletteRoutes

    return StarletteRoutes.of(app, routes)
