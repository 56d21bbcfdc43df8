"""What an ASGI gate stands before: a Starlette or FastAPI application, layers away or not."""

from typing import Any, Final

from starlette.applications import Starlette

from ..errors import LockgateError, Refusal
from .starlette_errors import error_handlers

_LAYERS_AT_MOST: Final = 50
_ANY_REFUSAL: Final = (Refusal, LockgateError)


def starlette_in(app: Any) -> Starlette | None:
    """The application behind whatever is around it, if it is one of Starlette or FastAPI."""
    for _ in range(_LAYERS_AT_MOST):
        if isinstance(app, Starlette):
            return app
        app = getattr(app, "app", None)
    return None


def answer_refusals(app: Starlette) -> None:
    """Have an application answer the refusals of its endpoints, unless it says how by itself.

    Its answer to a crash would come before a refusal could be answered by the gate.
    """
    if app.exception_handlers.keys().isdisjoint(_ANY_REFUSAL):
        app.add_exception_handler(Refusal, error_handlers[Refusal])
