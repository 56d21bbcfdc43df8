"""The WSGI adapter: a gate before any WSGI application, for threads, without an event loop.

app = protect(app, gate, public=["GET /health"], rules={"GET /models": "models:read"})
"""

from __future__ import annotations  # Those of an inner function would be made for each request.

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial, wraps
from threading import Lock
from typing import Any, Final
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from .core.access_rule import Rule
from .core.deprecation import SUNSET_HEADERS, sunset_headers
from .core.rate_limit_headers import NOT_TO_STORE, OURS, shadowed
from .errors import ConfigurationError, NotFound, Refusal
from .gate import Gate
from .principal import Caller
from .services.concurrency import ConcurrencySlot
from .sync import run
from .web.audit import Audit, ServedRoute, audit_routes, report
from .web.guard import PREFLIGHT, Guard
from .web.operations.operation import Endpoint, ReadBody
from .web.operations.table import answer, endpoints, refused
from .web.protection import audit, combined_rules
from .web.request import GUARD, PRINCIPAL, RATED, RULE, SLOT, leave, passed
from .web.requirements import admitted, mark, watched
from .web.shadow import Shadow
from .web.wsgi_request import WsgiRequest, body_reader, principal_of, respond, text

__all__ = ["Caller", "GateMiddleware", "audit", "operations", "protect", "requires"]

_OURS: Final = frozenset(name.decode() for name in OURS)
_SUNSET: Final = frozenset(name.decode() for name in SUNSET_HEADERS)
_OURS_AND_CACHES: Final = _OURS | {"cache-control"}
_NOT_TO_STORE: Final = frozenset(map(str, NOT_TO_STORE))

_PARAMETER: Final = re.compile(r"\{(\w+)\}")
PARAMS: Final = "lockgate.params"
"""The key of an environment that holds the path parameters of one of lockgate's operations."""

_Headers = list[tuple[str, str]]
_Write = Callable[[bytes], object]


class GateMiddleware:
    """Puts a gate before a WSGI application: every path, closed by default.

    :func:`protect` makes it. It stands before the whole application, so that even the answer to a
    crash carries the rate headers. The application finds the caller as
    ``environ["lockgate.principal"]`` (a :class:`~lockgate.Principal`; None on public routes), and
    the :class:`~lockgate.ConcurrencySlot` that a rule gives it as ``environ["lockgate.slot"]``.

    Args:
        app: the application.
        gate: decides.
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
        self.guard: Final = Guard(gate, rules, host=host, shadow=shadow)
        self._gate: Final = gate
        self._strict: Final = strict
        self._routes: Final = routes
        self._started = routes is None
        self._starting: Final = Lock()
        self._readiness: Final = gate.readiness

    def __call__(  # noqa: PLR0912, PLR0915 - each call more costs here
        self, environ: WSGIEnvironment, start_response: StartResponse
    ) -> Iterable[bytes]:
        """Guard one request."""
        if not self._started:
            self.start()
        if not self._readiness.was_tried:
            self._readiness.try_once()
        caller = WsgiRequest(environ)
        guard, gate = self.guard, self._gate
        rated: list[Guard] = environ.setdefault(RATED, [])
        rated_before, before = len(rated), passed(environ)
        try:
            entry = None
            if before is not None:
                entry = run(guard.enter_inside(before[GUARD], caller, environ))
            principal, measured, slot, rule = entry or run(guard.enter(caller))
        except Refusal as refusal:
            leave(environ, before)
            if refusal.rate:
                rated.append(guard)
            return self.refuse(refusal, environ, start_response)
        environ[GUARD], environ[RULE] = guard, rule
        environ[PRINCIPAL] = principal
        started, write = False, gate.text_headers
        watching = guard.shadow is not None and not rule.own
        key = None if principal is None else principal.key
        ending = sunset_headers(key) if key is not None and key.details is not None else ()

        def start(status: str, headers: _Headers, exc_info: object = None, /) -> _Write:
            """Start the response, with our headers in place of any it set itself (G2, D38)."""
            nonlocal started
            started = True
            if len(rated) > rated_before and rated[-1] is not guard:  # A gate inside this one.
                return start_response(status, headers, exc_info)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - as it came
            if watching:
                rate = () if measured is None else shadowed(gate.headers(*measured))
                beside = [(name.decode(), value.decode()) for name, value in rate]
                return start_response(status, [*headers, *beside], exc_info)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - as it came
            not_to_store = status[:3] in _NOT_TO_STORE
            replaced = _OURS_AND_CACHES if not_to_store else _OURS
            kept: _Headers = []
            for header in headers:  # A comprehension is a call of its own.
                if header[0].lower() not in replaced:
                    kept.append(header)
            if not_to_store:
                kept.append(("cache-control", "no-store"))
            if measured is not None:
                plan, reading = measured
                kept += write(plan, reading)
                rated.append(guard)
            if ending:
                kept = [one for one in kept if one[0].lower() not in _SUNSET]
                kept += text(ending)
            return start_response(status, kept, exc_info)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - as it came

        leaves_late = slot is not None
        try:
            if rule is PREFLIGHT:
                return self.answer_preflight(environ, start)
            if slot is None:
                body = self.app(environ, start)
                leaves_late = not started
            else:
                body = self._hold(slot, environ, start, before)
        except Refusal as refusal:
            if started:
                raise
            gate.attach_rate_headers(refusal, measured)
            refusal.rate += ending
            rated.append(guard)
            return self.refuse(refusal, environ, start_response)
        finally:
            if not leaves_late:
                leave(environ, before)
        # As it came: servers look at what it is, a file or a list of one, to send it better.
        if started:
            return body

        def refuse_late(refusal: Refusal) -> Iterable[bytes]:
            if started:
                raise refusal
            gate.attach_rate_headers(refusal, measured)
            refusal.rate += ending
            rated.append(guard)
            return self.refuse(refusal, environ, start_response)

        return _LateBody(body, refuse_late, partial(leave, environ, before))

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

    def _hold(
        self,
        slot: ConcurrencySlot,
        environ: WSGIEnvironment,
        start: StartResponse,
        before: Mapping[str, Any] | None,
    ) -> Iterable[bytes]:
        with ExitStack() as stack:
            stack.callback(leave, environ, before)
            environ[SLOT] = stack.enter_context(slot)
            return _HeldBody(self.app(environ, start), stack)

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
        return respond(refused(refusal), environ, start_response)


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
        gate: decides.
        public: the routes that need no key, each ``"METHOD /path"``.
        rules: by ``"METHOD /path"``, parameters written ``{name}``, what other routes require: a
            scope or a :class:`~lockgate.Rule`. A path that no rule names needs a valid key.
        host: the one host that the rules without a host are for; None: every host.
        strict: refuse to start while the audit of ``routes`` finds anything.
        shadow: only watch: ``limits``, or ``all``; see :class:`~lockgate.web.guard.Guard`.
        routes: gives the routes of the application; None: there is no audit.

    Raises:
        ConfigurationError: an argument is of the wrong kind, a rule cannot be, the gate's store
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
    scope: str | None = None, *, cost: int = 1, slot: bool = False
) -> Callable[[WSGIApplication], WSGIApplication]:
    """Decorate a WSGI application behind a gate with what a caller must bring.

    The gate does not see the declaration: write a cost and a slot into the rules as well.

    Args:
        scope: the scope that a key needs; None: any key will do.
        cost: the units that the request takes from each window, at least 1.
        slot: whether the request holds a slot for concurrent jobs until it is answered.

    Raises:
        ConfigurationError: the scope is no exact scope, or the cost is less than 1.
    """
    rule = Rule(scope, cost=cost, slot=slot)

    def decorate(app: WSGIApplication) -> WSGIApplication:
        @wraps(app)
        def guarded(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            try:
                if not watched(environ):
                    admitted(rule, environ, app)
            except Refusal as refusal:
                return respond(refused(refusal), environ, start_response)
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
        (re.compile(_PARAMETER.sub(r"(?P<\1>[^/]+)", path)), guarded_operation(gate, by))
        for path, by in endpoints(gate).items()
    ]

    def operate(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = WsgiRequest(environ).path
        for expression, operation in by_path:
            found = expression.fullmatch(path)
            if found is not None:
                environ[PARAMS] = found.groupdict()
                return operation(environ, start_response)
        return respond(refused(NotFound()), environ, start_response)

    return operate


def guarded_operation(
    gate: Gate,
    by_method: Mapping[str, Endpoint],
    reader: Callable[[WSGIEnvironment], ReadBody] = body_reader,
) -> GateMiddleware:
    """Return the operations on one path, guarded; ``environ`` holds the path's parameters.

    Args:
        gate: whose operations they are.
        by_method: the operations.
        reader: reads the body of a request.
    """

    def operate(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        try:
            params: Mapping[str, str] = environ[PARAMS]
            caller, principal = WsgiRequest(environ), principal_of(environ)
            reply = run(answer(gate, by_method, caller, principal, params, reader(environ)))
        except Refusal as refusal:
            reply = refused(refusal)
        return respond(reply, environ, start_response)

    return GateMiddleware(operate, gate)


def _with_operations(app: WSGIApplication, operations: WSGIApplication) -> WSGIApplication:
    """Return an application that hands a request to the operations where their rule was charged."""

    def serve(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        rule: Rule | None = environ.get(RULE)
        return (operations if rule is not None and rule.own else app)(environ, start_response)

    return serve


class _HeldBody:
    """The body of an application, with a slot that is held until the server closes the body.

    Args:
        body: of the application; it is closed first.
        held: is closed then; the caller's own ``with`` no longer closes it.
    """

    def __init__(self, body: Iterable[bytes], held: ExitStack) -> None:
        close = getattr(body, "close", None)
        if close is not None:
            held.callback(close)
        self._body = body
        self.close: Final = held.pop_all().close

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._body)


class _LateBody:
    """The body of an application that starts its response with the first chunk, as a generator.

    Until then the application may raise a refusal.

    Args:
        body: of the application.
        refuse: answers a refusal.
        leave: is called once the body is closed.
    """

    def __init__(
        self,
        body: Iterable[bytes],
        refuse: Callable[[Refusal], Iterable[bytes]],
        leave: Callable[[], None],
    ) -> None:
        self._body = body
        self._refuse = refuse
        self._leave = leave

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._body
        except Refusal as refusal:
            yield from self._refuse(refusal)

    def close(self) -> None:
        close = getattr(self._body, "close", None)
        try:
            if close is not None:
                close()
        finally:
            self._leave()
