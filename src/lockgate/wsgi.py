"""The WSGI adapter: a gate before any WSGI application, for threads, without an event loop.

Use::

    app = protect(app, gate, public=["GET /health"], rules={"GET /models": "models:read"})
"""

from __future__ import annotations  # Those of an inner function would be made for each request.

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from functools import partial, wraps
from threading import Lock
from typing import Final
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from .core.access_rule import Rule, SlotUse
from .core.limits import Limit
from .errors import ConfigurationError, NotFound, Refusal
from .gate import Gate
from .principal import Caller
from .sync import run
from .web.audit import Audit, ServedRoute, audit_routes, report
from .web.entry import ENTRY, Entry, charged_rule, gate_in, mark_rated, principal_of
from .web.guard import PREFLIGHT
from .web.key_header import guard_of
from .web.operations.operation import Endpoint, ReadBody
from .web.operations.table import answer, endpoints, path_pattern, refused
from .web.protection import audit, combined_rules
from .web.requirements import admitted, mark, watched
from .web.shadow import Shadow
from .web.wsgi_exchange import Body, WsgiRequest, body_reader, is_stream, respond, starting

__all__ = ["Caller", "GateMiddleware", "audit", "operations", "protect", "requires"]

PARAMS: Final = "lockgate.params"
"""The key of an environment that holds the path parameters of one of lockgate's operations."""


class GateMiddleware:
    """Puts a gate before a WSGI application: every path, closed by default.

    :func:`protect` makes it. It stands before the whole application, so that even the answer to a
    crash carries the rate headers. The application finds the record of the admission as
    ``environ["lockgate.entry"]``: its ``principal`` is the caller (a :class:`~lockgate.Principal`;
    None on public routes), its ``slot`` the :class:`~lockgate.ConcurrencySlot` that a rule gives.

    Args:
        app: the application.
        gate: the gate that admits or refuses each request.
        rules: by ``"METHOD /path"``: the scope that is required, a :class:`~lockgate.Rule`, or
            :data:`~lockgate.PUBLIC`. A path that no rule names needs a valid key.
        host: the one host that the rules without a host are for; None: every host.
        strict: refuse to start while the audit finds anything.
        shadow: only watch: ``limits``, or ``all``; see :class:`~lockgate.web.guard.Guard`.
        routes: gives the routes of the application for the audit, at the first request; None: they
            are not known.

    Raises:
        ConfigurationError: the rules do not fit together, or the gate's store needs an event loop.
    """

    def __init__(
        self,
        app: WSGIApplication,
        gate: Gate,
        rules: Mapping[str, Rule | str] | None = None,
        *,
        host: str | None = None,
        strict: bool = False,
        shadow: Shadow | None = None,
        routes: Callable[[], Iterable[ServedRoute]] | None = None,
    ) -> None:
        gate.pair("sync")
        self.app: Final = app
        self.guard: Final = guard_of(gate, rules, host=host, shadow=shadow)
        self._gate: Final = gate
        self._strict: Final = strict
        self._routes: Final = routes
        self._started = routes is None
        self._starting: Final = Lock()
        self._readiness: Final = gate.readiness

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Guard one request."""
        if not self._started:
            self.start()
        if not self._readiness.was_tried:
            self._readiness.try_once()
        outer: Entry | None = environ.get(ENTRY)
        request, guard = WsgiRequest(environ), self.guard
        try:
            entry = None if outer is None else run(guard.enter_inside(outer, request))
            entry = entry or run(guard.enter(request))
        except Refusal as refusal:
            mark_rated(outer if refusal.rate else None)
            return self.refuse(refusal, environ, start_response)
        if outer is not None:
            entry.outer = outer
        environ[ENTRY] = entry
        start, goes_on = starting(entry, start_response), False
        try:
            if entry.rule is PREFLIGHT:
                return self.answer_preflight(environ, start)
            if entry.slot is None:
                body, held = self.app(environ, start), None
                if entry.has_started and not is_stream(entry, body):
                    return body  # As it came: servers send files and single parts in better ways.
            else:
                body, held = self._hold_slot(entry, environ, start)
            goes_on = True
        except Refusal as refusal:
            return self._refuse_late(entry, environ, start_response, refusal)
        finally:
            if not goes_on:
                entry.leave(environ)
        held = held or ExitStack()
        held.callback(entry.leave, environ)
        refuse = partial(self._refuse_late, entry, environ, start_response)
        return Body(body, entry, request, refuse, held)

    def start(self) -> None:
        """Audit the routes of the application, once.

        Raises:
            ConfigurationError: see :func:`~lockgate.web.audit.report`.
        """
        with self._starting:
            if not self._started:
                self.report()
                self._started = True

    def report(self) -> None:
        """Audit the routes that the application has so far, and log what they require.

        Raises:
            ConfigurationError: see :func:`~lockgate.web.audit.report`.
        """
        if self._routes is not None:
            report(self.guard, self._routes(), strict=self._strict)

    def audit(self) -> Audit:
        """Return what each route requires, and what is left undecided.

        Raises:
            ConfigurationError: the endpoints and the rules contradict each other.
        """
        return audit_routes(self.guard, () if self._routes is None else self._routes())

    def _hold_slot(
        self, entry: Entry, environ: WSGIEnvironment, start: StartResponse
    ) -> tuple[Iterable[bytes], ExitStack]:
        """Run the application with its slot; return its body, and what holds the slot."""
        slot = entry.own_slot
        with ExitStack() as held:
            if slot is not None:
                held.enter_context(slot)
            return self.app(environ, start), held.pop_all()

    def _refuse_late(
        self,
        entry: Entry,
        environ: WSGIEnvironment,
        start_response: StartResponse,
        refusal: Refusal,
    ) -> Iterable[bytes]:
        """Answer with a refusal that the application raised.

        Raises:
            Refusal: a response that has begun is broken off.
        """
        if entry.has_started:
            raise refusal
        entry.gate.attach_rate_headers(refusal, entry.measured)
        refusal.rate += entry.ending
        mark_rated(entry.outer)
        return self.refuse(refusal, environ, start_response)

    def answer_preflight(
        self, environ: WSGIEnvironment, start_response: StartResponse
    ) -> Iterable[bytes]:
        """Answer a CORS preflight, which no handler may see: nothing is allowed (D31)."""
        start_response("204 No Content", [])
        return []

    def refuse(
        self, refusal: Refusal, environ: WSGIEnvironment, start_response: StartResponse
    ) -> Iterable[bytes]:
        """Answer a request with a refusal."""
        return respond(
            refused(refusal, self.guard.gate, WsgiRequest(environ)), environ, start_response
        )


def protect(
    app: WSGIApplication,
    gate: Gate,
    *,
    public: Iterable[str] = (),
    rules: Mapping[str, Rule | str] | None = None,
    host: str | None = None,
    strict: bool = False,
    shadow: Shadow | None = None,
    routes: Callable[[], Iterable[ServedRoute]] | None = None,
) -> GateMiddleware:
    """Put a gate before any WSGI application, closed by default; serve what is returned.

    A gate with sessions also serves lockgate's own operations.

    Args:
        app: the application.
        gate: the gate that admits or refuses each request.
        public: the routes that need no key, each ``"METHOD /path"``.
        rules: by ``"METHOD /path"``, parameters written ``{name}``, what other routes require: a
            scope or a :class:`~lockgate.Rule`. A path that no rule names needs a valid key.
        host: the one host that the rules without a host are for; None: every host.
        strict: refuse to start while the audit of ``routes`` finds anything.
        shadow: only watch: ``limits``, or ``all``; see :class:`~lockgate.web.guard.Guard`.
        routes: gives the routes of the application; None: there is no audit.

    Raises:
        ConfigurationError: an argument is of the wrong kind, a rule is malformed, the gate's store
            needs an event loop, a strict audit found something, or has no routes to look at.
    """
    combined = combined_rules(app, gate, public, rules)
    if strict and routes is None:
        raise ConfigurationError(
            "The audit is strict, and the routes of the application are not known: give a function "
            "that lists them by routes=."
        )
    if gate.has_operations:
        app = _with_operations(app, operations(gate))
    guarded = GateMiddleware(
        app, gate, combined, host=host, strict=strict, shadow=shadow, routes=routes
    )
    if strict:
        guarded.start()
    return guarded


def requires(
    scope: str | None = None,
    *,
    cost: int = 1,
    slot: SlotUse = False,
    limits: Iterable[Limit] = (),
) -> Callable[[WSGIApplication], WSGIApplication]:
    """Decorate a WSGI application behind a gate with what a caller must bring.

    The gate does not see the declaration: write a cost and a slot into the rules as well.

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

    def decorate(app: WSGIApplication) -> WSGIApplication:
        @wraps(app)
        def guarded(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            try:
                if not watched(environ):
                    admitted(rule, environ, app)
            except Refusal as refusal:
                reply = refused(refusal, gate_in(environ), WsgiRequest(environ))
                return respond(reply, environ, start_response)
            return app(environ, start_response)

        mark(app, guarded, rule)
        return guarded

    return decorate


def operations(gate: Gate) -> WSGIApplication:
    """Return lockgate's own operations under the gate's prefix, as a WSGI application.

    They are guarded even without :func:`protect`, so they cannot be mounted open.

    Raises:
        ConfigurationError: the gate has no session verifier, so no key could be created.
    """
    by_path = [
        (path_pattern(path), guarded_operation(gate, by)) for path, by in endpoints(gate).items()
    ]

    def operate(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = WsgiRequest(environ).path
        for pattern, operation in by_path:
            found = pattern.fullmatch(path)
            if found is not None:
                environ[PARAMS] = found.groupdict()
                return operation(environ, start_response)
        reply = refused(NotFound(), gate, WsgiRequest(environ))
        return respond(reply, environ, start_response)

    return operate


def guarded_operation(
    gate: Gate,
    by_method: Mapping[str, Endpoint],
    reader: Callable[[WSGIEnvironment], ReadBody] = body_reader,
) -> GateMiddleware:
    """Return the operations on one path, guarded; ``environ`` holds the path's parameters.

    Args:
        gate: the gate whose operations they are.
        by_method: the operations.
        reader: reads the body of a request.
    """

    def operate(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        try:
            params: Mapping[str, str] = environ[PARAMS]
            caller, principal = WsgiRequest(environ), principal_of(environ)
            reply = run(answer(gate, by_method, caller, principal, params, reader(environ)))
        except Refusal as refusal:
            reply = refused(refusal, gate, WsgiRequest(environ))
        return respond(reply, environ, start_response)

    return GateMiddleware(operate, gate)


def _with_operations(app: WSGIApplication, operations: WSGIApplication) -> WSGIApplication:
    """Return an application that hands a request to the operations where their rule was charged."""

    def serve(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        rule = charged_rule(environ)
        return (operations if rule is not None and rule.own else app)(environ, start_response)

    return serve
