"""The Flask adapter.

Use::

    @app.get("/models")
    @requires("models:read", cost=2)
    def models(): ...

    protect(app, gate, public=["GET /health"])
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial, wraps
from inspect import iscoroutinefunction
from typing import Any, Final, TypeVar, cast
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from .core.access_rule import Rule, SlotUse
from .core.extras import extra
from .core.limits import Limit
from .errors import ConfigurationError, MethodNotAllowed, NotFound, PayloadTooLarge, Refusal
from .gate import Gate
from .principal import Caller
from .web.audit import Audit
from .web.entry import entry_in, gate_in
from .web.instrumentors import warn_of_blind
from .web.operations.operation import Endpoint, ReadBody
from .web.operations.table import endpoints, refused
from .web.protection import EXTENSION, ErrorForm, audit, combined_rules, is_lockgates
from .web.requirements import admitted, declare, mark, watched
from .web.shadow import Shadow
from .web.wsgi_exchange import WsgiRequest, body_reader, text, unreadable
from .wsgi import PARAMS, GateMiddleware, guarded_operation

with extra("flask", "lockgate[flask]"):
    from flask import Blueprint, Flask, Response, current_app, g, has_app_context, request
    from flask.blueprints import BlueprintSetupState
    from flask.typing import RouteCallable
    from werkzeug.exceptions import HTTPException
    from werkzeug.exceptions import MethodNotAllowed as WrongMethod
    from werkzeug.exceptions import NotFound as NoRoute

    from .web.werkzeug_routes import only_redirects, routes, url_rule, verify

__all__ = ["Caller", "audit", "operations", "protect", "requires"]

App = TypeVar("App", bound=Flask)
View = TypeVar("View", bound=RouteCallable)


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
    """Put a gate before a Flask application: every path, closed by default.

    Views find the caller as ``flask.g.principal`` (a :class:`~lockgate.Principal`; None on public
    routes), and may raise any :class:`~lockgate.errors.Refusal`. A gate with sessions also
    serves lockgate's own operations.

    Args:
        app: the application; routes may be added before the call, or after it where it is not
            strict.
        gate: the gate that admits or refuses each request.
        public: the routes that need no key, each ``"METHOD /path"``.
        rules: by ``"METHOD /path"``, parameters written ``{name}``, what routes require beside what
            their views declare with :func:`requires`: a scope or a :class:`~lockgate.Rule`.
        host: the one host that the rules without a host are for; None: every host.
        strict: raise while the audit finds anything: a route that no rule names, a rule that names
            no route. Protect the application once it has all its routes.
        shadow: only watch: ``limits``, or ``all``; see :class:`~lockgate.web.guard.Guard`.
        errors: the form of the application's own 404 and 405:
            ``framework`` or ``lockgate`` (D50).

    Returns:
        The application itself.

    Raises:
        ConfigurationError: an argument is of the wrong kind, a rule is malformed, the gate's store
            needs an event loop, the application has a gate already, or a strict audit found
            something. Routes that are added later are audited with the first request.
    """
    combined = combined_rules(app, gate, public, rules)
    answers_errors = is_lockgates(errors)
    if not isinstance(app, Flask):  # pyright: ignore[reportUnnecessaryIsInstance] - from a caller
        raise ConfigurationError(
            f"lockgate.flask.protect takes a Flask application, not {type(app).__name__}: take "
            "lockgate.wsgi.protect for an application inside other layers."
        )
    if EXTENSION in app.extensions:
        raise ConfigurationError("The application has a gate already: call protect() once.")
    guarded = _FlaskGate(app, gate, combined, host=host, strict=strict, shadow=shadow)
    if gate.has_operations and _BLUEPRINT not in app.blueprints:
        app.register_blueprint(operations(gate))
    if strict:
        guarded.report()
    else:
        guarded.audit()  # Raises for contradictions between the rules and the routes so far.
    guarded.install()
    if answers_errors:
        app.register_error_handler(NoRoute, lambda _: response_to(NotFound()))
        app.register_error_handler(
            WrongMethod, lambda wrong: response_to(MethodNotAllowed(wrong.valid_methods or ()))
        )
    return app


def requires(
    scope: str | None = None,
    *,
    cost: int = 1,
    slot: SlotUse = False,
    limits: Iterable[Limit] = (),
) -> Callable[[View], View]:
    """Decorate a view, ``async`` or not, with what a caller must bring.

    The declaration is a rule of the gate before the application, so a refused request never reaches
    the view's other decorators. Put it directly below ``@app.get(...)``.

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

    def decorate(view: View) -> View:
        waits = iscoroutinefunction(view)

        @wraps(view)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            try:
                environ = request.environ  # Each access of a proxy costs as much as ten lines.
                if not watched(environ):
                    admitted(rule, environ, request)
            except Refusal as refusal:
                return response_to(refusal)
            return (current_app.ensure_sync(view) if waits else view)(*args, **kwargs)

        mark(view, guarded, rule)
        return cast(View, guarded)

    return decorate


def response_to(refusal: Refusal) -> Response:
    """Turn a refusal of the current request into a response."""
    return _response(refusal, gate_in(request.environ), request.environ)


def _response(refusal: Refusal, gate: Gate | None, environ: WSGIEnvironment) -> Response:
    reply = refused(refusal, gate, WsgiRequest(environ))
    return Response(reply.body, reply.status, text(reply.headers))


class _FlaskGate(GateMiddleware):
    """Stands before one application."""

    def __init__(
        self,
        app: Flask,
        gate: Gate,
        rules: Mapping[str, Rule | str],
        *,
        host: str | None,
        strict: bool,
        shadow: Shadow | None,
    ) -> None:
        served = partial(routes, app)
        service = partial(_serve, app, app.wsgi_app)
        super().__init__(
            service, gate, rules, host=host, strict=strict, shadow=shadow, routes=served
        )
        self._flask = app
        self._reported: Audit | None = None
        self.guard.is_inside = True
        self.guard.redirects = partial(only_redirects, app)

    def install(self) -> None:
        """Put this gate before the application, and have it answer refusals."""
        app = self._flask
        app.extensions[EXTENSION] = self
        app.wsgi_app = self  # type: ignore[method-assign]
        # Before any function that the application has put there: one of them may answer.
        app.before_request_funcs.setdefault(None, []).insert(0, self.check)
        app.register_error_handler(Refusal, response_to)

    def report(self) -> None:
        """Audit the routes, as for other applications; warn of refusals that go untraced.

        What :func:`protect` has reported of a strict application is not repeated by the first
        request, unless it has other routes by then.
        """
        found = self.audit()
        if found != self._reported:
            super().report()
            warn_of_blind(self._flask.before_request_funcs.get(None, ()), "wsgi")
            self._reported = found

    def check(self) -> None:
        """Check the gate and the route that Flask matched, and give its view the caller."""
        environ = request.environ
        entry = entry_in(environ)
        self.guard.verify_presence(entry)
        g.principal = None if entry is None else entry.principal
        verify(entry, request, self._flask, partial(WsgiRequest, environ))

    def answer_preflight(
        self, environ: WSGIEnvironment, start_response: StartResponse
    ) -> Iterable[bytes]:
        """Answer a preflight with an empty 204 that passes the application's ``after_request``
        functions: Flask-CORS adds its headers there."""
        response = Response(status=204)
        del response.headers["Content-Type"]
        return self._processed(response, environ)(environ, start_response)

    def refuse(
        self, refusal: Refusal, environ: WSGIEnvironment, start_response: StartResponse
    ) -> Iterable[bytes]:
        """Refuse a request; one with an origin by a response that passes ``after_request``.

        Flask-CORS adds its headers there, and a browser hides a response without them from a page
        of another origin. A method that a path does not have is refused as Flask does (D50).
        """
        if isinstance(refusal, MethodNotAllowed) and refusal.of_application:
            response = self._processed(self._wrong_method(refusal, environ), environ)
            return response(environ, start_response)
        if "HTTP_ORIGIN" not in environ:
            return super().refuse(refusal, environ, start_response)
        response = self._processed(_response(refusal, self.guard.gate, environ), environ)
        return response(environ, start_response)

    def _wrong_method(self, refusal: MethodNotAllowed, environ: WSGIEnvironment) -> Response:
        """Return the application's answer to a method that a path does not have."""
        app = self._flask
        with app.request_context(environ):
            answer = app.handle_user_exception(WrongMethod(refusal.allowed.split(", ")))
            response = app.make_response(cast(Any, answer))
        response.headers.extend(text(refusal.rate))
        return response

    def _processed(self, response: Response, environ: WSGIEnvironment) -> Response:
        """Return a response as the application's ``after_request`` functions leave it."""
        plain = response.status_code, response.get_data(), response.headers.copy()
        try:
            with self._flask.request_context(environ):
                return self._flask.process_response(response)
        except Exception:  # They may count on a before_request, which such a request never sees.
            self._flask.logger.exception("after_request failed at a refusal: it goes without.")
        status, body, headers = plain
        return Response(body, status, headers)


def _serve(
    app: Flask, service: WSGIApplication, environ: WSGIEnvironment, start_response: StartResponse
) -> Iterable[bytes]:
    """Run an application with a ``g`` of this request alone (D54).

    A server that is started inside an application context may hand it to all of its requests, and
    Flask 3.1 then gives them one ``g``.
    """
    if has_app_context() and current_app == app:
        with app.app_context():
            return service(environ, start_response)
    return service(environ, start_response)


# --- lockgate's own operations ------------------------------------------------------------

_BLUEPRINT: Final = "lockgate"


def operations(gate: Gate) -> Blueprint:
    """Return lockgate's own operations under the gate's prefix, for ``register_blueprint(...)``.

    :func:`protect` registers them with an application that does not have them. They are guarded
    even without it, so they cannot be mounted open.

    Raises:
        ConfigurationError: the gate has no session verifier, so no key could be created; or,
            when the blueprint is registered, it is given a prefix other than the gate's.
    """
    blueprint = Blueprint(_BLUEPRINT, __name__)
    for path, by_method in endpoints(gate).items():
        blueprint.record(_mount(gate, path, by_method))
    return blueprint


def _mount(
    gate: Gate, path: str, by_method: Mapping[str, Endpoint]
) -> Callable[[BlueprintSetupState], None]:
    guarded = guarded_operation(gate, by_method, _reader)

    def view(**params: str) -> Any:
        request.environ[PARAMS] = params
        return current_app.response_class.from_app(guarded, request.environ)

    declare(view, operations_of=gate)

    def mount(state: BlueprintSetupState) -> None:
        if state.url_prefix:
            raise ConfigurationError(
                f"Register the blueprint without url_prefix={state.url_prefix!r}: "
                "lockgate's operations move with the gate's prefix."
            )
        name = f"{_BLUEPRINT}.{next(iter(by_method.values())).handler.__name__}"
        state.app.view_functions[name] = view
        # A rule without methods takes them all: the operations answer 405 themselves.
        state.app.url_map.add(state.app.url_rule_class(url_rule(path), endpoint=name))

    return mount


def _reader(environ: WSGIEnvironment) -> ReadBody:
    """Read the body, also where Flask keeps it since something before the view has read it."""

    async def read(limit: int) -> bytes:
        if "stream" not in request.__dict__:  # Made at the first access to any of the body.
            return await body_reader(environ)(limit)
        if (request.content_length or 0) > limit:
            raise PayloadTooLarge(limit)
        try:
            body = request.get_data()
        except HTTPException:  # The application's own limit.
            raise
        except Exception as failure:  # OSError, or a parse error of the server's own.
            raise unreadable() from failure
        if len(body) > limit:
            raise PayloadTooLarge(limit)
        return body

    return read
