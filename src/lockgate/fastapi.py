"""The FastAPI face: a router of lockgate's operations, a dependency for callers, error bodies.

app = FastAPI(exception_handlers=error_handlers)
app.include_router(lockgate_router(gate))

@app.get("/jobs")
async def jobs(caller: Annotated[Principal, Depends(require("jobs:read"))]): ...

app = GateMiddleware(app, gate, {"GET /health": PUBLIC})
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Security
from fastapi.openapi.models import APIKey, APIKeyIn, HTTPBearer, SecuritySchemeType
from fastapi.openapi.models import SecurityBase as Scheme
from fastapi.security.base import SecurityBase
from starlette.requests import HTTPConnection

from . import starlette
from .core.access_rule import Rule
from .gate import Gate
from .principal import Principal
from .sessions import SESSION_COOKIE
from .web.asgi_request import principal_of, slot_for
from .web.fastapi_errors import error_handlers
from .web.operations.openapi import answers, parameters
from .web.operations.operation import Endpoint
from .web.operations.table import check, endpoints_of
from .web.requirements import REQUIRES

__all__ = ["error_handlers", "lockgate_router", "require"]


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

    setattr(caller, REQUIRES, rule)
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
    extra: dict[str, Any] = {"parameters": parameters(path, endpoint.query)}
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
