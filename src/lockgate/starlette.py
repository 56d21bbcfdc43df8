"""The Starlette face: routes to mount, a decorator for endpoints, error bodies."""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial, wraps
from inspect import iscoroutinefunction
from typing import Any, ParamSpec

from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from .asgi import GateMiddleware
from .core.access_rule import Rule
from .errors import ConfigurationError, Refusal, SlotLost
from .gate import Gate
from .web.asgi_request import AsgiCaller, ClientGone, body_reader, principal_of, respond, slot_for
from .web.operations.operation import Endpoint
from .web.operations.table import answer, check, endpoints, refused
from .web.requirements import mark
from .web.starlette_errors import answer_refusal, error_handlers

__all__ = ["error_handlers", "lockgate_routes", "requires"]

P = ParamSpec("P")


def lockgate_routes(gate: Gate) -> list[Route]:
    """lockgate's own operations, under the gate's prefix, for ``Starlette(routes=[...])``.

    They are guarded even where no middleware is in front, so they cannot be mounted open.

    Raises:
        ConfigurationError: the gate has no session verifier, so nobody could create a key.
    """
    routes: list[Route] = []
    for path, operations in endpoints(gate).items():
        guarded = GateMiddleware(_Operations(gate, operations), gate)
        guarded.guard.audited = True  # There is this route alone, and its operations check again.
        routes.append(Route(path, guarded))
    return routes


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
                        return await answer_refusal(connection, refusal)
                    return await call(*args, **kwargs)
            except SlotLost as lost:
                return await answer_refusal(connection, lost)

        mark(endpoint, guarded, rule)
        return guarded

    return decorate


def _connection(args: tuple[object, ...], kwargs: dict[str, object]) -> "HTTPConnection[Any]":
    for value in (*args, *kwargs.values()):
        if isinstance(value, HTTPConnection):
            return value  # pyright: ignore[reportUnknownVariableType] - of whatever state
    raise ConfigurationError("An endpoint with @requires takes the request (or the WebSocket).")
