"""The FastAPI face: a router of lockgate's operations, a dependency for callers, error bodies.

app = FastAPI(exception_handlers=error_handlers)
app.include_router(lockgate_router(gate))

@app.get("/jobs")
async def jobs(caller: Annotated[Principal, Depends(require("jobs:read"))]): ...

app = GateMiddleware(app, gate, {"GET /health": PUBLIC})
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from typing import Annotated, Any, Final, cast

from fastapi import APIRouter, Depends, Security
from fastapi.exception_handlers import http_exception_handler
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.models import APIKey, APIKeyIn, HTTPBearer, SecuritySchemeType
from fastapi.openapi.models import SecurityBase as Scheme
from fastapi.security.base import SecurityBase
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from ..errors import InvalidRequest, MethodNotAllowed, NotFound, Problem
from ..gate import Gate
from ..identity import SESSION_COOKIE
from ..principal import Principal
from ..rules.routes import Rule
from . import starlette, starlette_errors
from .api import check, endpoints_of
from .bodies import PROBLEMS_AT_MOST, field_at
from .caller import GATE
from .connection import principal_of, slot_for
from .endpoint import Endpoint
from .openapi import answers, parameters


class _Documented(SecurityBase):
    """A security scheme for the document; the gate has judged the credential already."""

    def __init__(self, name: str, model: Scheme) -> None:
        self.scheme_name = name
        self.model = model

    async def __call__(self) -> None:
        pass


_SCHEMES: Final = {
    "key": _Documented("key", HTTPBearer(description="An API key.")),
    "session": _Documented(
        "session",
        APIKey.model_validate(
            {
                "type": SecuritySchemeType.apiKey,
                "in": APIKeyIn.cookie,
                "name": SESSION_COOKIE,
                "description": "A dashboard session.",
            }
        ),
    ),
}


Caller = Callable[..., Awaitable[Principal] | AsyncGenerator[Principal]]
"""A dependency that gives the caller."""


def require(scope: str | None = None, *, slot: bool = False) -> Caller:
    """A dependency that gives the caller: ``Depends(require("jobs:read"))``.

    The scope is shown in the documentation page. A caller without it gets lockgate's own refusal:
    403 ``INSUFFICIENT_SCOPE``, or 401 ``MISSING_AUTH`` where a rule makes the route public, for
    there no key is looked at. The gate's middleware stands before the application, and knows who
    is calling.

    Args:
        scope: the scope that a key needs; None: any key will do.
        slot: whether a slot for concurrent jobs is held until the response is sent; where none is
            free, the refusal is 429 ``CONCURRENT_LIMIT_EXCEEDED``.

    Raises:
        ConfigurationError: the scope is no exact scope.
    """
    rule = Rule(scope)

    async def caller(
        connection: HTTPConnection,
        _: Annotated[None, Security(_SCHEMES["key"], scopes=[scope] if scope else [])],
    ) -> Principal:
        return check(rule, principal_of(connection.scope))

    async def holder(
        connection: HTTPConnection, principal: Annotated[Principal, Depends(caller)]
    ) -> AsyncGenerator[Principal]:
        async with slot_for(connection.scope, principal):
            yield principal

    return holder if slot else caller


def lockgate_router(gate: Gate) -> APIRouter:
    """lockgate's own operations, under the gate's prefix, for ``app.include_router(...)``.

    They are guarded even where no middleware is in front, so they cannot be mounted open.

    Raises:
        ConfigurationError: the gate has no session verifier, so nobody could create a key.
    """
    router = APIRouter(tags=["API keys"])
    # The same routes as under Starlette answer. What follows is never reached: it describes them.
    router.routes.extend(starlette.lockgate_routes(gate))
    for endpoint in endpoints_of(gate):
        _describe(router, gate.prefix + endpoint.path, endpoint)
    return router


def _describe(router: APIRouter, path: str, endpoint: Endpoint) -> None:
    rule = endpoint.rule
    scopes = [rule.requires.scope] if rule.requires else []
    extra: dict[str, Any] = {"parameters": parameters(path)}
    if endpoint.request is not None:
        schema = endpoint.request.model_json_schema()
        content = {"application/json": {"schema": schema}}
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
        dependencies=[Security(_SCHEMES[name], scopes=scopes) for name in endpoint.credentials],
        openapi_extra=extra,
    )


def _unreached() -> None:
    pass


_ROUTERS: Final = {NotFound.status, MethodNotAllowed.status}

_Handler = Callable[[Request, Any], Coroutine[Any, Any, Response]]


async def _raised(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), "registered for HTTPException"
    detail = cast(object, error.detail)  # FastAPI takes anything that JSON can hold.
    if error.status_code in _ROUTERS and isinstance(detail, str):
        return await starlette_errors.from_the_router(request, error)
    return await http_exception_handler(request, error)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError), "registered for RequestValidationError"
    gate: Gate | None = request.scope.get(GATE)
    redact = gate.format.redact if gate is not None else str
    problems = [
        # In a text that is no JSON there are no fields: FastAPI tells where it breaks off.
        Problem("", "The body is not JSON.")
        if found["type"] == "json_invalid"
        else Problem(field_at(found["loc"][1:], gate), f"{redact(found['msg'])}.")
        for found in error.errors()[:PROBLEMS_AT_MOST]
    ]
    return starlette_errors.response_to(InvalidRequest(problems))


error_handlers: dict[
    int | type[Exception], Callable[[Request, Any], Coroutine[Any, Any, Response]]
] = {
    **cast(dict[int | type[Exception], _Handler], starlette_errors.error_handlers),
    HTTPException: _raised,
    RequestValidationError: _invalid,
}
"""For ``FastAPI(exception_handlers=error_handlers)``: endpoints may raise any
:class:`~lockgate.Refusal`; the router's own 404 and 405, and what FastAPI finds wrong with a
request, look like lockgate's. Any other ``HTTPException`` is answered as FastAPI answers it."""
