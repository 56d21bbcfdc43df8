"""The Starlette face: routes to mount, a decorator for endpoints, error bodies."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial, wraps
from http import HTTPStatus
from inspect import iscoroutinefunction
from typing import Any, ParamSpec, cast

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ExceptionHandler, Receive, Scope, Send
from starlette.websockets import WebSocket

from ..errors import ConfigurationError, MethodNotAllowed, NotFound, Refusal, SlotLost
from ..gate import Gate
from ..rules.routes import Rule
from .api import answer, check, endpoints, refused
from .asgi import GateMiddleware
from .connection import AsgiCaller, ClientGone, body_reader, principal_of, refuse, respond, slot_for
from .endpoint import Endpoint

P = ParamSpec("P")


def lockgate_routes(gate: Gate) -> list[Route]:
    """lockgate's own operations, under the gate's prefix, for ``Starlette(routes=[...])``.

    They are guarded even where no middleware is in front, so they cannot be mounted open.

    Raises:
        ConfigurationError: the gate has no session verifier, so nobody could create a key.
    """
    return [
        Route(path, GateMiddleware(_Operations(gate, operations), gate))
        for path, operations in endpoints(gate).items()
    ]


class _Operations:
    """The operations on one path, as an ASGI application."""

    def __init__(self, gate: Gate, operations: dict[str, Endpoint]) -> None:
        self._gate = gate
        self._operations = operations

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            reply = await answer(
                self._gate,
                self._operations,
                AsgiCaller(scope),
                principal_of(scope),
                scope.get("path_params", {}),
                body_reader(receive),
            )
        except ClientGone:
            return
        except Refusal as refusal:
            reply = refused(refusal)
        await respond(reply, scope, send)


def requires(
    scope: str | None = None, *, slot: bool = False
) -> Callable[[Callable[P, Any]], Callable[P, Awaitable[Any]]]:
    """Decorate an endpoint, ``async`` or not, HTTP or WebSocket, with what a caller must bring.

    The refusal is lockgate's own: 403 ``INSUFFICIENT_SCOPE``, 429 ``CONCURRENT_LIMIT_EXCEEDED``, or
    401 ``MISSING_AUTH`` where the route is public and nobody showed a key. The endpoint takes
    ``request`` or ``websocket``.

    Args:
        scope: the scope that a key needs; None: any key will do.
        slot: whether a slot for concurrent jobs is held while the endpoint runs. A body that is
            streamed after that needs ``Rule(..., slot=True)``, which holds it until it is sent.

    Raises:
        ConfigurationError: the scope is no exact scope.
    """
    rule = Rule(scope, slot=slot)

    def decorate(endpoint: Callable[P, Any]) -> Callable[P, Awaitable[Any]]:
        call = endpoint if iscoroutinefunction(endpoint) else partial(run_in_threadpool, endpoint)

        @wraps(endpoint)
        async def guarded(*args: P.args, **kwargs: P.kwargs) -> Any:
            connection = _connection(args, kwargs)
            try:
                async with AsyncExitStack() as held:
                    try:
                        principal = check(rule, principal_of(connection.scope))
                        if slot:
                            await held.enter_async_context(slot_for(connection.scope, principal))
                    except Refusal as refusal:
                        return await _refusal(connection, refusal)
                    return await call(*args, **kwargs)
            except SlotLost as lost:
                return await _refusal(connection, lost)

        return guarded

    return decorate


def _connection(args: tuple[object, ...], kwargs: dict[str, object]) -> "HTTPConnection[Any]":
    for value in (*args, *kwargs.values()):
        if isinstance(value, HTTPConnection):
            return value  # pyright: ignore[reportUnknownVariableType] - of whatever state
    raise ConfigurationError("An endpoint with @requires takes the request (or the WebSocket).")


def response_to(refusal: Refusal) -> Response:
    """A refusal as a response."""
    reply = refused(refusal)
    response = Response(reply.body, reply.status)
    response.raw_headers += reply.headers
    return response


async def _refusal(connection: "HTTPConnection[Any]", error: Exception) -> Response | None:
    assert isinstance(error, Refusal), "registered for Refusal"
    if isinstance(connection, WebSocket):
        await refuse(error, connection.scope, connection.send)
        return None
    return response_to(error)


async def _from_the_router(_: "HTTPConnection[Any]", error: Exception) -> Response:
    assert isinstance(error, HTTPException), "registered for HTTPException"
    if error.status_code == NotFound.status:
        own_words = error.detail if error.detail != HTTPStatus.NOT_FOUND.phrase else None
        response = response_to(NotFound(own_words))
        response.headers.update(error.headers or {})
        return response
    if error.status_code == MethodNotAllowed.status:
        allowed = (error.headers or {}).get("Allow", "")
        return response_to(MethodNotAllowed(filter(None, allowed.split(", "))))
    bodyless = error.status_code in {204, 304}
    return PlainTextResponse("" if bodyless else error.detail, error.status_code, error.headers)


error_handlers: Mapping[Any, ExceptionHandler] = {
    Refusal: cast(ExceptionHandler, _refusal),
    HTTPException: cast(ExceptionHandler, _from_the_router),
}
"""For ``Starlette(exception_handlers=error_handlers)``: endpoints may raise any
:class:`~lockgate.Refusal`, and the router's own 404 and 405 look like lockgate's."""
