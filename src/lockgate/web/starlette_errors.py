"""The answers of a Starlette or FastAPI application to refusals and to its router's errors."""

from collections.abc import Mapping
from http import HTTPStatus
from inspect import iscoroutinefunction
from typing import Any, Final, cast

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ExceptionHandler, Scope
from starlette.websockets import WebSocket

from ..errors import LockgateError, MethodNotAllowed, NotFound, Refusal
from ..gate import Gate
from .asgi_exchange import AsgiRequest, refuse
from .entry import gate_in
from .operations.table import refused

_LAYERS_AT_MOST: Final = 50
_ANY_REFUSAL: Final = (Refusal, LockgateError)


def response_to(refusal: Refusal, gate: Gate | None, scope: Scope) -> Response:
    """Turn a refusal of a gate into a response."""
    reply = refused(refusal, gate, AsgiRequest(scope))
    response = Response(reply.body, reply.status)
    response.raw_headers += reply.headers
    return response


async def answer_refusal(connection: "HTTPConnection[Any]", error: Exception) -> Response | None:
    """Answer with a refusal: by a response, or to a WebSocket at once."""
    assert isinstance(error, Refusal), "registered for Refusal"
    if isinstance(connection, WebSocket):
        await refuse(error, connection.scope, connection.send)
        return None
    return response_to(error, gate_in(connection.scope), connection.scope)


async def from_the_router(connection: "HTTPConnection[Any]", error: Exception) -> Response:
    """Answer the 404 and 405 of the router as lockgate does, any other error as Starlette does."""
    assert isinstance(error, HTTPException), "registered for HTTPException"
    gate = gate_in(connection.scope)
    if error.status_code == NotFound.status:
        own_words = error.detail if error.detail != HTTPStatus.NOT_FOUND.phrase else None
        response = response_to(NotFound(own_words), gate, connection.scope)
        response.headers.update(error.headers or {})
        return response
    if error.status_code == MethodNotAllowed.status:
        allowed = (error.headers or {}).get("Allow", "")
        refusal = MethodNotAllowed(filter(None, allowed.split(", ")))
        return response_to(refusal, gate, connection.scope)
    bodyless = error.status_code in {204, 304}
    return PlainTextResponse("" if bodyless else error.detail, error.status_code, error.headers)


error_handlers: Mapping[Any, ExceptionHandler] = {
    Refusal: cast(ExceptionHandler, answer_refusal),
    HTTPException: cast(ExceptionHandler, from_the_router),
}
"""For ``Starlette(exception_handlers=error_handlers)``: endpoints may raise any
:class:`~lockgate.Refusal`, and the router's own 404 and 405 look like lockgate's."""


async def wrong_method(app: Starlette, refusal: MethodNotAllowed, request: Request) -> Response:
    """Return the answer of an application itself to a method that a path does not have (D50)."""
    error = HTTPException(refusal.status, headers={"Allow": refusal.allowed})
    kinds = refusal.status, *HTTPException.__mro__
    found = (app.exception_handlers[kind] for kind in kinds if kind in app.exception_handlers)
    handler: Any = next(found, None)
    if handler is None:
        response: Response = PlainTextResponse(error.detail, error.status_code, error.headers)
    elif iscoroutinefunction(handler):
        response = await handler(request, error)
    else:
        response = await run_in_threadpool(handler, request, error)
    response.raw_headers += refusal.rate
    return response


def answer_refusals(app: Starlette) -> None:
    """Have an application answer the refusals of its endpoints, unless it has an own handler.

    Its answer to a crash would come before a refusal could be answered by the gate.
    """
    if app.exception_handlers.keys().isdisjoint(_ANY_REFUSAL):
        app.add_exception_handler(Refusal, error_handlers[Refusal])


def starlette_in(app: Any) -> Starlette | None:
    """Return the Starlette or FastAPI application behind any layers; None: there is none."""
    for _ in range(_LAYERS_AT_MOST):
        if isinstance(app, Starlette):
            return app
        app = getattr(app, "app", None)
    return None
