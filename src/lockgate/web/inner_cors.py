"""A CORS layer inside a gate, which adds no headers to refusals: the log says so at start."""

from typing import Final

from ..events import logger

_HIDDEN: Final = (
    "%s is inside the gate and adds no headers to refusals, which a browser then hides from pages "
    "of other origins: %s."
)
_AROUND: Final = (
    "protect the application first, then serve CORSMiddleware(app, allow_origins=[...]) of "
    "starlette.middleware.cors around it"
)
_BEFORE: Final = "have the HTTP server before the application add them"


def warn_of_inner_cors(name: str, interface: str = "asgi") -> None:
    """Log a warning for a CORS layer inside the gate, with what to do.

    Args:
        name: the layer as its users call it.
        interface: ``asgi`` or ``wsgi``, that of the application.
    """
    logger.warning(_HIDDEN, name, _AROUND if interface == "asgi" else _BEFORE)
