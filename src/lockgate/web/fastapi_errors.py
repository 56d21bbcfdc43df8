"""Errors under FastAPI, answered as lockgate answers them."""

from collections.abc import Callable, Coroutine
from typing import Any, Final, cast

from fastapi.exception_handlers import http_exception_handler
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ..errors import InvalidRequest, MethodNotAllowed, NotFound, Problem
from . import starlette_errors
from .bodies import PROBLEMS_AT_MOST, field_at
from .guard import Guard
from .request import GUARD

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
    guard: Guard | None = request.scope.get(GUARD)
    gate = None if guard is None else guard.gate
    redact = str if gate is None else gate.format.redact
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
