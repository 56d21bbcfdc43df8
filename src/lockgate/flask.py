"""The Flask face: an extension that guards the whole application, its operations, scopes at views.

lockgate = FlaskGate(gate, {"GET /health": PUBLIC})

def create_app():
    app = Flask(__name__)
    lockgate.init_app(app)
    app.register_blueprint(lockgate_blueprint(gate))
    return app
"""

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, Final, TypeVar, cast
from wsgiref.types import StartResponse, WSGIEnvironment

from flask import Flask, Response, current_app, g, request
from flask.typing import RouteCallable

from .core.access_rule import Rule
from .errors import ConfigurationError, Refusal
from .gate import Gate
from .web.audit import Audit, audit, report
from .web.flask_blueprint import lockgate_blueprint
from .web.flask_errors import handle_errors, response_to
from .web.operations.table import check
from .web.request import RULE
from .web.requirements import mark
from .web.shadow import Shadow
from .web.werkzeug_routes import declared, routes, verify
from .web.wsgi_request import WsgiCaller, principal_of
from .wsgi import GateMiddleware

__all__ = ["FlaskGate", "lockgate_blueprint", "requires"]

View = TypeVar("View", bound=RouteCallable)

_EXTENSION: Final = "lockgate"


class FlaskGate:
    """Guards Flask applications: the whole of each, closed by default.

    Views find the caller as ``flask.g.principal`` (a :class:`~lockgate.Principal`; None on public
    routes), and may raise any :class:`~lockgate.Refusal`. What the router does not know is
    answered as lockgate answers it; an application that has pages of its own for 404 and 405
    registers them after :meth:`init_app`.

    Args:
        gate: decides.
        rules: by ``"METHOD /path"``, parameters written ``{name}``, what a request must bring;
            what :func:`requires` says at the views is added to them.
        host: the one host that the rules without a host are for; None: every host.
        strict: refuse to serve while the audit finds anything: a route that no rule names, a rule
            that names no route. Call :meth:`init_app` once the application has all its routes.
        shadow: only watch: ``limits``, or ``all``; see :class:`~lockgate.web.guard.Guard`.
    """

    def __init__(
        self,
        gate: Gate,
        rules: Mapping[str, Rule | str] | None = None,
        *,
        host: str | None = None,
        strict: bool = False,
        shadow: Shadow | None = None,
    ) -> None:
        self.gate: Final = gate
        self.rules: Final = dict(rules or {})
        self.host: Final = host
        self.strict: Final = strict
        self.shadow: Final = shadow

    def init_app(self, app: Flask) -> None:
        """Guard an application; its routes may be added before, or after where it is not strict.

        Raises:
            ConfigurationError: the rules do not fit together, the gate's store needs an event
                loop, or a strict audit found something. What is added later is looked at with the
                first request, and by :meth:`audit`.
        """
        face = _Face(self, app)
        app.extensions[_EXTENSION] = face
        app.wsgi_app = face  # type: ignore[method-assign]
        # Before any function that the application has put there: one of them may answer.
        app.before_request_funcs.setdefault(None, []).insert(0, face.check)
        handle_errors(app)

    def audit(self, app: Flask) -> Audit:
        """What each route of an application requires, and what somebody should look at.

        Raises:
            ConfigurationError: the rules and what views require contradict each other.
        """
        return audit(self.middleware(app).guard, routes(app))

    def middleware(self, app: Flask, inner: Any = None) -> GateMiddleware:
        """The gate before an application, its views' rules included."""
        rules = dict(self.rules)
        for route, rule in declared(app):
            if rules.setdefault(route, rule) != rule:
                raise ConfigurationError(
                    f"The rule '{route}' is {rules[route]!r}, and its view requires {rule!r}: "
                    "take one out."
                )
        return _Middleware(app, inner, self.gate, rules, host=self.host, shadow=self.shadow)


def requires(
    scope: str | None = None, *, cost: int = 1, slot: bool = False
) -> Callable[[View], View]:
    """Decorate a view, ``async`` or not, with what a caller must bring.

    It becomes a rule of the gate before the application, so a refused request never reaches the
    view's other decorators. Put it directly below ``@app.get(...)``.

    Args:
        scope: the scope that a key needs; None: any key will do.
        cost: what the request takes from each window.
        slot: whether a slot for concurrent jobs is held until the response is sent.

    Raises:
        ConfigurationError: the scope is no exact scope, or the cost is less than 1.
    """
    rule = Rule(scope, cost=cost, slot=slot)

    def decorate(view: View) -> View:
        waits = iscoroutinefunction(view)

        @wraps(view)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            face: _Face | None = current_app.extensions.get(_EXTENSION)
            if face is None:
                raise ConfigurationError("No gate is before this application: call init_app.")
            if face.shadow != "all":
                try:
                    check(rule, principal_of(request.environ))
                except Refusal as refusal:
                    return response_to(refusal)
                _check_charge(rule, request.environ[RULE])
            return (current_app.ensure_sync(view) if waits else view)(*args, **kwargs)

        mark(view, guarded, rule)
        return cast(View, guarded)

    return decorate


def _check_charge(rule: Rule, charged: Rule) -> None:
    """Check that the gate charged the cost, and took the slot, that a view requires."""
    if charged.cost < rule.cost or (rule.slot and not charged.slot):
        raise ConfigurationError(
            f"The view {request.endpoint!r} requires {rule!r}, and the gate charged {charged!r}: "
            "put @requires directly below the route, or use functools.wraps in the decorators "
            "between them."
        )


class _Face:
    """Stands before one application. What its views require is known with the first request."""

    def __init__(self, extension: FlaskGate, app: Flask) -> None:
        self.shadow: Final = extension.shadow
        self._extension = extension
        self._app = app
        self._inner = app.wsgi_app
        self._complete: GateMiddleware | None = None
        made = extension.middleware(app, self._inner)  # Mistakes are told right away.
        if extension.strict:
            report(made.guard, routes(app), strict=True)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        complete = self._complete
        if complete is None:
            complete = self._extension.middleware(self._app, self._inner)
            report(complete.guard, routes(self._app), strict=self._extension.strict)
            self._complete = complete
        return complete(environ, start_response)

    def check(self) -> None:
        """Check the route that Flask matched, and tell its view of the caller."""
        g.principal = principal_of(request.environ)
        verify(request.environ, request, self._app, WsgiCaller)


class _Middleware(GateMiddleware):
    def __init__(
        self,
        flask: Flask,
        inner: Any,
        gate: Gate,
        rules: Mapping[str, Rule | str],
        *,
        host: str | None,
        shadow: Shadow | None,
    ) -> None:
        super().__init__(inner, gate, rules, host=host, shadow=shadow)
        self._flask = flask

    def answer_preflight(
        self, environ: WSGIEnvironment, start_response: StartResponse
    ) -> Iterable[bytes]:
        """Answer a preflight by way of ``after_request``, where Flask-CORS allows what it does."""
        response = Response(status=204)
        del response.headers["Content-Type"]
        return self._processed(response, environ)(environ, start_response)

    def refuse(
        self, refusal: Refusal, environ: WSGIEnvironment, start_response: StartResponse
    ) -> Iterable[bytes]:
        """Refuse a page of another origin by way of ``after_request``: its browser shows it no
        answer without the headers that an extension such as Flask-CORS adds there.
        """
        if "HTTP_ORIGIN" not in environ:
            return super().refuse(refusal, environ, start_response)
        response = self._processed(response_to(refusal), environ)
        return response(environ, start_response)

    def _processed(self, response: Response, environ: WSGIEnvironment) -> Response:
        """A response as the application's ``after_request`` functions leave it."""
        plain = response.status_code, response.get_data(), response.headers.copy()
        try:
            with self._flask.request_context(environ):
                return self._flask.process_response(response)
        except Exception:  # They may count on a before_request, which such a request never sees.
            self._flask.logger.exception("after_request failed at a refusal: it goes without.")
        status, body, headers = plain
        return Response(body, status, headers)
