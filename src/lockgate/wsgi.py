"""The WSGI face: one middleware before any WSGI application, for threads, without an event loop."""

from __future__ import annotations  # Those of an inner function would be made for each request.

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any, Final
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from .core.access_rule import Rule
from .core.rate_limit_headers import NOT_TO_STORE, OURS, shadowed
from .errors import Refusal
from .gate import Gate
from .services.concurrency import ConcurrencySlot
from .sync import run
from .web.guard import PREFLIGHT, Guard
from .web.operations.table import refused
from .web.request import GUARD, PRINCIPAL, RATED, RULE, SLOT, leave, passed
from .web.shadow import Shadow
from .web.wsgi_bodies import Held, Late
from .web.wsgi_request import WsgiCaller, respond

_OURS: Final = frozenset(name.decode() for name in OURS)
_OURS_AND_CACHES: Final = _OURS | {"cache-control"}
_NOT_TO_STORE: Final = frozenset(map(str, NOT_TO_STORE))

_Headers = list[tuple[str, str]]
_Write = Callable[[bytes], object]


class GateMiddleware:
    """Puts a gate before a WSGI application: every path, closed by default.

    Wrap the whole application, so that even its answer to a crash carries the rate headers::

        app = GateMiddleware(app, gate, {"GET /health": PUBLIC, "GET /models": "models:read"})

    The application finds the caller as ``environ["lockgate.principal"]`` (a
    :class:`~lockgate.Principal`; None on public routes), and the
    :class:`~lockgate.ConcurrencySlot` that a rule gives it as ``environ["lockgate.slot"]``.

    Args:
        app: the application.
        gate: decides.
        rules: by ``"METHOD /path"``: the scope that is required, a :class:`~lockgate.Rule`, or
            :data:`~lockgate.PUBLIC`. A path that no rule names needs a valid key.
        host: the one host that the rules without a host are for; None: every host.
        shadow: only watch: ``limits``, or ``all``; see :class:`~lockgate.web.guard.Guard`.

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
        shadow: Shadow | None = None,
    ) -> None:
        gate.pair("sync")
        self.app: Final = app
        self.guard: Final = Guard(gate, rules, host=host, shadow=shadow)
        self._gate: Final = gate

    def __call__(  # noqa: PLR0915 - each call more costs here
        self, environ: WSGIEnvironment, start_response: StartResponse
    ) -> Iterable[bytes]:
        """Guard one request."""
        caller = WsgiCaller(environ)
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
            rated.append(guard)
            return self.refuse(refusal, environ, start_response)

        return Late(body, refuse_late, partial(leave, environ, before))

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
            return Held(self.app(environ, start), stack)

    def answer_preflight(
        self, environ: WSGIEnvironment, start_response: StartResponse
    ) -> Iterable[bytes]:
        """Answer a CORS preflight, which no handler may see: nothing is allowed (D31)."""
        start_response("204 No Content", [])
        return []

    def refuse(
        self, refusal: Refusal, environ: WSGIEnvironment, start_response: StartResponse
    ) -> Iterable[bytes]:
        """Answer a request that does not come in."""
        return respond(refused(refusal), environ, start_response)
