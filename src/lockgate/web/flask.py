"""The Flask face: an extension that guards the whole application, its operations, scopes at views.

lockgate = FlaskGate(gate, {"GET /health": PUBLIC})

def create_app():
    app = Flask(__name__)
    lockgate.init_app(app)
    app.register_blueprint(lockgate_blueprint(gate))
    return app
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from typing import Any, Final, TypeVar, cast
from wsgiref.types import StartResponse, WSGIEnvironment

from flask import Blueprint, Flask, Response, current_app, g, request
from flask.blueprints import BlueprintSetupState
from flask.typing import ResponseReturnValue, RouteCallable
from werkzeug.exceptions import MethodNotAllowed as WrongMethod
from werkzeug.exceptions import NotFound as NoRoute

from ..errors import ConfigurationError, MethodNotAllowed, NotFound, Refusal
from ..gate import Gate
from ..rules.routes import Rule
from ..run import run
from .api import Endpoint, answer, check, endpoints, refused
from .audit import Audit, audit, log_audit
from .wsgi import GateMiddleware, WsgiCaller, body_reader, principal_of, respond, text

View = TypeVar("View", bound=RouteCallable)

_NAME: Final = "lockgate"
_RULE: Final = "__lockgate_rule__"
_PARAMETER: Final = re.compile(r"<(?:(\w+)(?:\(.*?\))?:)?(\w+)>")


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
        shadow: count and report, and refuse nothing.
    """

    def __init__(
        self, gate: Gate, rules: Mapping[str, Rule | str] | None = None, *, shadow: bool = False
    ) -> None:
        self.gate: Final = gate
        self.rules: Final = dict(rules or {})
        self.shadow: Final = shadow

    def init_app(self, app: Flask) -> None:
        """Guard an application; its routes may be added before or after.

        Raises:
            ConfigurationError: the rules do not fit together, or the gate's store needs an event
                loop. What views require is looked at with the first request, and by
                :meth:`audit`.
        """
        face = _Face(self, app)
        app.extensions[_NAME] = face
        app.wsgi_app = face  # type: ignore[method-assign]
        app.before_request(_introduce)
        app.register_error_handler(Refusal, _response)
        app.register_error_handler(NoRoute, lambda _: _response(NotFound()))
        app.register_error_handler(
            WrongMethod, lambda wrong: _response(MethodNotAllowed(wrong.valid_methods or ()))
        )

    def audit(self, app: Flask) -> Audit:
        """What each route of an application requires, and what somebody should look at.

        Raises:
            ConfigurationError: the rules and what views require contradict each other.
        """
        return audit(self.middleware(app).guard, _routes(app))

    def middleware(self, app: Flask, inner: Any = None) -> GateMiddleware:
        """The gate before an application, its views' rules included."""
        rules = dict(self.rules)
        for route, rule in _declared(app):
            if rules.setdefault(route, rule) != rule:
                raise ConfigurationError(
                    f"The rule '{route}' is {rules[route]!r}, and its view requires {rule!r}: "
                    "take one out."
                )
        return _Middleware(app, inner, self.gate, rules, shadow=self.shadow)


def requires(scope: str | None = None, *, cost: int = 1) -> Callable[[View], View]:
    """Decorate a view, ``async`` or not, with the scope that it requires and what it costs.

    It becomes a rule of the gate before the application, so a refused request never reaches the
    view's other decorators. Put it directly below ``@app.get(...)``.

    Raises:
        ConfigurationError: the scope is no exact scope, or the cost is less than 1.
    """
    rule = Rule(scope, cost=cost)

    def decorate(view: View) -> View:
        @wraps(view)
        def guarded(*args: Any, **kwargs: Any) -> ResponseReturnValue:
            face: _Face | None = current_app.extensions.get(_NAME)
            if face is None:
                raise ConfigurationError("No gate is before this application: call init_app.")
            if not face.shadow:
                try:
                    check(rule, principal_of(request.environ))
                except Refusal as refusal:
                    return _response(refusal)
            return cast(ResponseReturnValue, current_app.ensure_sync(view)(*args, **kwargs))

        setattr(guarded, _RULE, rule)
        return cast(View, guarded)

    return decorate


def lockgate_blueprint(gate: Gate) -> Blueprint:
    """lockgate's own operations, under the gate's prefix, for ``app.register_blueprint(...)``.

    They are guarded even where no extension is in front, so they cannot be mounted open.

    Raises:
        ConfigurationError: the gate has no session verifier, so nobody could create a key; or,
            when the blueprint is registered, it is given a prefix other than the gate's.
    """
    blueprint = Blueprint(_NAME, __name__)
    for path, operations in endpoints(gate).items():
        blueprint.record(_mount(gate, path, operations))
    return blueprint


def _mount(
    gate: Gate, path: str, operations: Mapping[str, Endpoint]
) -> Callable[[BlueprintSetupState], None]:
    def operate(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        try:
            caller, principal = WsgiCaller(environ), principal_of(environ)
            params = request.view_args or {}
            flow = answer(gate, operations, caller, principal, params, body_reader(environ))
            reply = run(flow)
        except Refusal as refusal:
            reply = refused(refusal)
        return respond(reply, environ, start_response)

    guarded = GateMiddleware(operate, gate)

    def view(**_: str) -> Any:
        return current_app.response_class.from_app(guarded, request.environ)

    def mount(state: BlueprintSetupState) -> None:
        if state.url_prefix:
            raise ConfigurationError(
                f"Register the blueprint without url_prefix={state.url_prefix!r}: "
                "lockgate's operations move with the gate's prefix."
            )
        name = f"{_NAME}.{next(iter(operations.values())).handler.__name__}"
        state.app.view_functions[name] = view
        # A rule without methods takes them all: the operations answer 405 themselves.
        rule = re.sub(r"\{(\w+)\}", r"<\1>", path)
        state.app.url_map.add(state.app.url_rule_class(rule, endpoint=name))

    return mount


class _Face:
    """Stands before one application. What its views require is known with the first request."""

    def __init__(self, extension: FlaskGate, app: Flask) -> None:
        self.shadow: Final = extension.shadow
        self._extension = extension
        self._app = app
        self._inner = app.wsgi_app
        self._complete: GateMiddleware | None = None
        extension.middleware(app, self._inner)  # What does not fit together is told right away.

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        complete = self._complete
        if complete is None:
            complete = self._complete = self._extension.middleware(self._app, self._inner)
            log_audit(complete.guard, _routes(self._app))
        return complete(environ, start_response)


class _Middleware(GateMiddleware):
    def __init__(
        self, flask: Flask, inner: Any, gate: Gate, rules: Mapping[str, Rule | str], *, shadow: bool
    ) -> None:
        super().__init__(inner, gate, rules, shadow=shadow)
        self._flask = flask

    def refuse(
        self, refusal: Refusal, environ: WSGIEnvironment, start_response: StartResponse
    ) -> Iterable[bytes]:
        """Refuse a page of another origin by way of ``after_request``: its browser shows it no
        answer without the headers that an extension such as Flask-CORS adds there.
        """
        if "HTTP_ORIGIN" not in environ:
            return super().refuse(refusal, environ, start_response)
        with self._flask.request_context(environ):
            response = self._flask.process_response(_response(refusal))
            return response(environ, start_response)


def _introduce() -> None:
    g.principal = principal_of(request.environ)


def _response(refusal: Refusal) -> Response:
    reply = refused(refusal)
    return Response(reply.body, reply.status, text(reply.headers))


def _routes(app: Flask) -> Iterator[tuple[str, str]]:
    for route in app.url_map.iter_rules():
        path = _PARAMETER.sub(_parameter, route.rule)
        for method in sorted((route.methods or {"*"}) - {"HEAD", "OPTIONS"}):
            yield method, path


def _declared(app: Flask) -> Iterator[tuple[str, Rule]]:
    """What the views of an application say that they require."""
    for route in app.url_map.iter_rules():
        rule = getattr(app.view_functions.get(route.endpoint), _RULE, None)
        if rule is not None:
            for method in sorted((route.methods or set()) - {"HEAD", "OPTIONS"}):
                yield f"{method} {_PARAMETER.sub(_parameter, route.rule)}", rule


def _parameter(found: re.Match[str]) -> str:
    converter, name = found.groups()
    return f"{{{name}:path}}" if converter == "path" else f"{{{name}}}"
