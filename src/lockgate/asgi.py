"""The ASGI face: one middleware before any ASGI application."""

from __future__ import annotations  # Those of an inner function would be made for each request.

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sized
from functools import partial
from typing import Any, Final

from starlette.applications import Starlette
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .core.access_rule import Rule
from .core.rate_limit_headers import shadowed
from .errors import ConfigurationError, Refusal
from .gate import Gate
from .web.asgi_request import AsgiCaller, beside, decline, introduce, refuse, with_rate
from .web.audit import ServedRoute, logger, report
from .web.guard import PREFLIGHT, Guard
from .web.request import GUARD, RATED, RULE, SLOT, leave, passed
from .web.shadow import Shadow
from .web.starlette_app import answer_refusals, starlette_in
from .web.starlette_cors import Preflights
from .web.starlette_routes import RouteChecks, router_in, routes_of

_STARTS: Final = frozenset(
    {"http.response.start", "websocket.accept", "websocket.http.response.start"}
)


class GateMiddleware:
    """Puts a gate before an ASGI application: HTTP and WebSockets, every path, closed by default.

    Wrap the whole application, so that even its answer to a crash carries the rate headers::

        app = GateMiddleware(app, gate, {"GET /health": PUBLIC, "GET /models": "models:read"})

    The application finds the caller as ``request.state.principal`` (a
    :class:`~lockgate.Principal`; None on public routes), and as Starlette's ``request.user`` and
    ``request.auth``; the :class:`~lockgate.ConcurrencySlot` that a rule gives it is in the scope
    as ``lockgate.slot``.

    Args:
        app: the application.
        gate: decides.
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
        ConfigurationError: a rule that cannot be, a store that would block the event loop, or a
            strict audit of routes that are not known.
    """

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
        self.app: Final = app
        self.guard: Final = Guard(gate, rules, host=host, shadow=shadow)
        self._gate: Final = gate
        self._strict: Final = strict
        known: object = app
        if isinstance(routes, Starlette):
            known, routes = routes, None
        inner, router = starlette_in(known), router_in(known)
        self._rooted: Final[Any] = inner if hasattr(inner, "root_path") else None
        if inner is not None:
            answer_refusals(inner)
        self._checks: Final = (
            None if router is None else RouteChecks(self.guard, router, self._start)
        )
        self._routes: Final = routes if router is None else partial(routes_of, router)
        if strict and self._routes is None:
            raise ConfigurationError(
                "The audit is strict, and the routes of the application are not known: give the "
                "Starlette application behind all layers by routes=, or a function that lists "
                "the routes."
            )
        # Routes may be added later; this notices it, and that the application was not started yet.
        self._listed: Final[Sized] = () if router is None else router.routes
        self._count = -1
        self._audited: list[ServedRoute] | None = None
        self.preflights: ASGIApp = Preflights(app)
        """Answers CORS preflights in place of the application (D31)."""

    async def __call__(  # noqa: PLR0915 - each call more costs here
        self, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Guard one connection."""
        if scope["type"] not in ("http", "websocket"):
            await self._live(scope, receive, send)
            return
        if self._rooted is not None and self._rooted.root_path:
            scope["root_path"] = self._rooted.root_path  # As it does itself, and routes by it.
        if len(self._listed) != self._count:
            self._start()
        caller = AsgiCaller(scope)
        guard, gate = self.guard, self._gate
        rated: list[Guard] = scope.setdefault(RATED, [])
        rated_before, before = len(rated), passed(scope)
        try:
            entry = None
            if before is not None:
                entry = await guard.enter_inside(before[GUARD], caller, scope)
            principal, measured, slot, rule = entry or await guard.enter(caller)
        except Refusal as refusal:
            leave(scope, before)
            if refusal.rate:
                rated.append(guard)
            await refuse(refusal, scope, send)
            return
        rate, put = () if measured is None else gate.headers(*measured), with_rate
        if guard.shadow is not None and not rule.own:
            rate, put = shadowed(rate), beside
        scope[GUARD], scope[RULE] = guard, rule
        introduce(scope, principal)
        started = False

        def answer(message: Message) -> Awaitable[None]:
            nonlocal started
            if started:
                return send(message)
            kind = message["type"]
            if kind in _STARTS:
                started = True
                if len(rated) == rated_before:  # Else a gate inside this one has written them.
                    message = put(message, rate)
                    if rate and put is with_rate:
                        rated.append(guard)
            elif kind == "websocket.close":
                rated.append(guard)
                return decline(message, rate, scope, send)
            return send(message)

        app = self.preflights if rule is PREFLIGHT else self.app
        try:
            if slot is None:
                await app(scope, receive, answer)
            else:
                async with slot:
                    scope[SLOT] = slot
                    await app(scope, receive, answer)
        except Refusal as refusal:
            if started:
                raise
            gate.attach_rate_headers(refusal, measured)
            rated.append(guard)
            await refuse(refusal, scope, send)
        finally:
            leave(scope, before)

    def _start(self) -> None:
        """Audit the routes, if they are others than before; check each that has no check yet."""
        if self._routes is not None:
            served = list(self._routes())
            if served != self._audited:
                report(self.guard, served, strict=self._strict)
                self._audited = served
        elif self._count < 0 and not self.guard.audited:
            logger.warning(
                "The routes of the application are not known, so there is no audit and no check "
                "at dispatch: where it is one of Starlette behind a layer, give it by routes=."
            )
        if self._checks is not None:
            self._checks.install()
        self._count = len(self._listed)

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Start and stop with the server; a server does not start what has a mistake in it.

        The routes are audited before the application starts, and again with those that it adds
        while it does.
        """
        if scope["type"] != "lifespan":
            kind = scope["type"]
            raise RuntimeError(f"No rule is known for the protocol {kind!r}, so it stays outside.")
        try:
            self._start()
        except ConfigurationError as mistake:
            await receive()
            await send(_not_started(mistake))
            return
        failed = False

        async def settled(message: Message) -> None:
            nonlocal failed
            if failed:
                return  # The server has been told.
            if message["type"] == "lifespan.startup.complete":
                try:
                    self._start()
                except ConfigurationError as mistake:
                    failed = True
                    await send(_not_started(mistake))
                    raise  # The application closes what it has opened.
            if message["type"].startswith("lifespan.shutdown."):
                self.guard.watch.tell()
                await self._gate.flush()  # What is only counted here is written.
            await send(message)

        try:
            await self.app(scope, receive, settled)
        except Exception:
            if not failed:
                raise


def _not_started(mistake: ConfigurationError) -> Message:
    return {"type": "lifespan.startup.failed", "message": str(mistake)}
