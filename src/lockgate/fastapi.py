"""The FastAPI adapter.

Use::

    @app.get("/models")
    async def models(caller: Caller = requires("models:read", cost=2)): ...

    protect(app, gate, public=["GET /health"])
"""

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar, cast

from .core.access_rule import Rule, SlotUse
from .core.extras import extra
from .core.limits import Limit
from .errors import InvalidRequest, MethodNotAllowed, NotFound, Problem
from .gate import Gate
from .principal import Caller
from .web.bodies import PROBLEMS_AT_MOST, field_at
from .web.disconnects import cancel_on_disconnect
from .web.entry import entry_in
from .web.operations.openapi import (
    add_access,
    answers,
    body_schema,
    parameters,
    schemes_of,
)
from .web.operations.operation import Endpoint
from .web.operations.table import endpoints_of
from .web.protection import EXTENSION, ErrorForm, audit, combined_rules, public_documents
from .web.requirements import admitted, declare
from .web.shadow import Shadow

with extra("fastapi", "lockgate[fastapi]", "fastapi", "starlette"):
    from fastapi import APIRouter, FastAPI
    from fastapi.exception_handlers import (
        http_exception_handler,
        request_validation_exception_handler,
    )
    from fastapi.exceptions import RequestValidationError
    from fastapi.openapi.models import APIKey, APIKeyIn, HTTPBearer, SecuritySchemeType
    from fastapi.openapi.models import SecurityBase as Scheme
    from fastapi.params import Security
    from fastapi.security.base import SecurityBase
    from starlette.exceptions import HTTPException
    from starlette.requests import HTTPConnection, Request
    from starlette.responses import Response

    from . import starlette
    from .web.starlette_errors import error_handlers as starlette_handlers
    from .web.starlette_errors import from_the_router, response_to
    from .web.starlette_routes import serves_operations

__all__ = [
    "Caller",
    "audit",
    "cancel_on_disconnect",
    "error_handlers",
    "operations",
    "protect",
    "requires",
]

App = TypeVar("App", bound=FastAPI)

_ROUTERS: Final = {NotFound.status, MethodNotAllowed.status}
_DEFAULTS: Final = (http_exception_handler, request_validation_exception_handler)

_Handler = Callable[[Request, Any], Coroutine[Any, Any, Response]]


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
    docs: bool = True,
) -> App:
    """Put a gate before a FastAPI application: every path, closed by default.

    As :func:`lockgate.starlette.protect`; the OpenAPI document tells what each operation requires
    and how it is refused. In lockgate's form, what FastAPI finds wrong with a request is 400
    ``VALIDATION_ERROR``. The application's own handlers stay.

    Args:
        app: the application.
        gate: the gate that admits or refuses each request.
        public: the routes that need no key, each ``"METHOD /path"``.
        rules: by ``"METHOD /path"``, parameters written ``{name}``, what routes require beside what
            their endpoints declare with :func:`requires`: a scope or a :class:`~lockgate.Rule`.
        host: the one host that the rules without a host are for; None: every host.
        strict: refuse to start while the audit finds anything: a route that no rule names, a rule
            that names no route.
        shadow: only watch: ``limits``, or ``all``; see :class:`~lockgate.web.guard.Guard`.
        errors: the form of the application's own 404 and 405, and of invalid requests:
            ``framework`` or ``lockgate`` (D50).
        docs: whether the OpenAPI document and its pages need no key, where no rule matches their
            path (D31).

    Returns:
        The application itself.

    Raises:
        ConfigurationError: an argument is of the wrong kind, a rule is malformed, the store would
            block the event loop, or the application has a gate or serves requests already.
    """
    combined = combined_rules(app, gate, public, rules)
    handlers = starlette.chosen_handlers(cast(Any, error_handlers), errors)
    starlette.check_application(app, FastAPI)
    if docs:
        combined |= public_documents(_pages(app), combined)
    if gate.has_operations and not serves_operations(app, gate):
        routes = app.router.routes
        own = len(routes)
        app.include_router(operations(gate))  # As one route, or by older versions each.
        routes[:] = [*routes[own:], *routes[:own]]  # Before any route for every path.
    for kind, handler in handlers.items():
        if app.exception_handlers.get(kind) in _DEFAULTS:
            app.exception_handlers[kind] = cast(_Handler, handler)
    starlette.install(app, gate, combined, handlers, host=host, strict=strict, shadow=shadow)
    _extend_document(app)
    return app


def requires(
    scope: str | None = None,
    *,
    cost: int = 1,
    slot: SlotUse = False,
    limits: Iterable[Limit] = (),
) -> Any:
    """Declare what a caller of an endpoint must bring; the parameter's value is the caller.

    Write it as a parameter's default, in ``Annotated[Caller, requires(...)]``, or into
    ``dependencies=[...]`` of a route, a router or an application. The declaration is a rule of the
    gate before the application, so a refused request never reaches FastAPI.

    Args:
        scope: the scope that a key needs; None: any key will do.
        cost: the units that the request takes from each window; 0: no window refuses it.
        slot: whether the request holds a slot for concurrent jobs until it is answered whole.
        limits: named limits that the request is charged for as well (D40).

    Returns:
        A dependency, typed as Any so that it can be the default of any parameter.

    Raises:
        ConfigurationError: the scope is no exact scope, the cost is less than 0, or the limits do
            not fit together.
    """
    scopes = [] if scope is None else [scope]
    return Security(_Requirement(Rule(scope, cost=cost, slot=slot, limits=limits)), scopes=scopes)


class _Scheme(SecurityBase):
    """A security scheme for the document; the gate has verified the credential already."""

    def __init__(self, name: str, model: Scheme) -> None:
        self.scheme_name = name
        self.model = model


class _Documented(_Scheme):
    """The scheme of an operation that has no endpoint."""

    async def __call__(self) -> None:
        pass


class _Requirement(_Scheme):
    """The dependency that gives the caller of an endpoint."""

    def __init__(self, rule: Rule) -> None:
        super().__init__("key", HTTPBearer(description="An API key."))
        self._rule = rule
        declare(self, rule=rule)

    async def __call__(self, connection: HTTPConnection) -> Caller:
        return admitted(self._rule, connection.scope, connection.scope.get("endpoint"))


def operations(gate: Gate) -> APIRouter:
    """Return lockgate's own operations under the gate's prefix, for ``app.include_router(...)``.

    :func:`protect` includes them in an application that does not have them. They are guarded even
    without it, so they cannot be mounted open.

    Raises:
        ConfigurationError: the gate has no session verifier, so no key could be created.
    """
    router = APIRouter(tags=["API keys"])
    # The same routes as under Starlette answer. The others are never reached: they describe them.
    router.routes.extend(starlette.operations(gate))
    schemes = {
        "key": HTTPBearer(description="An API key."),
        "session": APIKey.model_validate(
            {
                "type": SecuritySchemeType.apiKey,
                "in": APIKeyIn.cookie,
                "name": gate.session_access.cookie or "",
                "description": "A dashboard session.",
            }
        ),
        "sessionToken": HTTPBearer(bearerFormat="JWT", description="A dashboard session."),
    }
    for endpoint in endpoints_of(gate):
        offered = schemes_of(endpoint.credentials, gate)
        documented = [_Documented(name, schemes[name]) for name in offered]
        _describe(router, gate.prefix + endpoint.path, endpoint, documented)
    return router


def _describe(
    router: APIRouter, path: str, endpoint: Endpoint, schemes: Iterable[_Documented]
) -> None:
    rule = endpoint.rule
    scopes = [rule.requires.scope] if rule.requires else []
    extra: dict[str, Any] = {"parameters": parameters(path, endpoint.query)}
    if endpoint.request is not None:
        content = {"application/json": {"schema": body_schema(endpoint.request)}}
        extra["requestBody"] = {"required": True, "content": content}
    router.add_api_route(
        path,
        _unreached,
        methods=[endpoint.method],
        name=endpoint.handler.__name__,
        summary=endpoint.summary,
        status_code=endpoint.status,
        response_model=endpoint.response,
        responses={**answers(endpoint.status, endpoint.response)},
        dependencies=[Security(scheme, scopes=scopes) for scheme in schemes],
        openapi_extra=extra,
    )


def _pages(app: FastAPI) -> Iterator[str]:
    """Return the paths of the OpenAPI document and its pages."""
    pages = app.docs_url, app.docs_url and app.swagger_ui_oauth2_redirect_url, app.redoc_url
    return filter(None, (app.openapi_url, *(pages if app.openapi_url else ())))


def _unreached() -> None:
    pass


def _extend_document(app: FastAPI) -> None:
    """Have an application's OpenAPI document tell what each operation requires."""
    describe = app.openapi
    extended: dict[str, Any] | None = None

    def openapi() -> dict[str, Any]:
        nonlocal extended
        document = describe()
        if document is not extended:
            audit(app)  # The endpoints of routes that were added since are known.
            guard = getattr(app.state, EXTENSION).guard
            replaces = app.exception_handlers.get(RequestValidationError) is _invalid
            add_access(document, guard.book, guard.gate, replaces_invalid=replaces)
            extended = document
        return document

    app.openapi = openapi  # type: ignore[method-assign]


async def _raised(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), "registered for HTTPException"
    detail = cast(object, error.detail)  # FastAPI takes anything that JSON can hold.
    if error.status_code in _ROUTERS and isinstance(detail, str):
        return await from_the_router(request, error)
    return await http_exception_handler(request, error)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError), "registered for RequestValidationError"
    entry = entry_in(request.scope)
    gate = None if entry is None else entry.gate
    redact = str if gate is None else gate.format.redact
    problems = [
        # In a text that is no JSON there are no fields: FastAPI tells where it breaks off.
        Problem("", "The body is not JSON.")
        if found["type"] == "json_invalid"
        else Problem(field_at(found["loc"][1:], gate), f"{redact(found['msg'])}.")
        for found in error.errors()[:PROBLEMS_AT_MOST]
    ]
    # FastAPI reports the errors of a body once for each function that takes it.
    return response_to(InvalidRequest(dict.fromkeys(problems)), gate, request.scope)


error_handlers: dict[int | type[Exception], _Handler] = {
    **cast(dict[int | type[Exception], _Handler], starlette_handlers),
    HTTPException: _raised,
    RequestValidationError: _invalid,
}
"""For the ``exception_handlers`` of an application that is mounted inside a protected one: its
endpoints may raise any :class:`~lockgate.Refusal`; its router's 404 and 405, and what FastAPI finds
wrong with a request, look like lockgate's. Any other ``HTTPException`` is answered as FastAPI
answers it."""
