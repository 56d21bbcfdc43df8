"""The answer to a CORS preflight, by an application's own settings and without its handlers (D31).

The application is not asked: a preflight carries no credential, and a layer of the application may
answer any request by itself. What is asked is Starlette's CORS middleware, where the application
has one: around it, among its middleware, or around an application that is mounted in it.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, cast

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute, Mount
from starlette.types import ASGIApp, Receive, Scope, Send

from .asgi_exchange import AsgiRequest, allow_nothing
from .inner_cors import warn_of_inner_cors

_LAYERS_AT_MOST: Final = 50


class _Policy(NamedTuple):
    """The CORS settings for the paths below a prefix."""

    prefix: str
    cors: CORSMiddleware

    def holds(self, path: str) -> bool:
        return not self.prefix or path == self.prefix or path.startswith(f"{self.prefix}/")


class Preflights:
    """Answers the preflights to an ASGI application, as an ASGI application.

    Args:
        app: the application, with any middleware around it.
    """

    def __init__(self, app: object) -> None:
        self._app = app
        self._policies: list[_Policy] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one: 204 and nothing allowed, where no CORS middleware is found."""
        path = AsgiRequest(scope).path
        cors = next((policy.cors for policy in self._found() if policy.holds(path)), None)
        response: ASGIApp = allow_nothing
        if cors is not None:
            response = cors.preflight_response(request_headers=Headers(scope=scope))
        await response(scope, receive, send)

    def report(self) -> None:
        """Log a warning, where there is a CORS middleware inside the gate."""
        if self._found():
            warn_of_inner_cors("CORSMiddleware")

    def _found(self) -> list[_Policy]:
        if self._policies is None:  # Middleware may be added until the application starts.
            self._policies = list(_policies(self._app, ""))
        return self._policies


def _policies(app: Any, prefix: str) -> Iterator[_Policy]:
    """The settings that hold in an application, those of the outermost layer first."""
    for _ in range(_LAYERS_AT_MOST):
        if isinstance(app, CORSMiddleware):
            yield _Policy(prefix, app)
        if isinstance(app, Starlette):
            for middleware in app.user_middleware:
                made: Any = middleware.cls
                if isinstance(made, type) and issubclass(made, CORSMiddleware):
                    make = cast(Callable[..., CORSMiddleware], made)
                    yield _Policy(prefix, make(app, *middleware.args, **middleware.kwargs))
        routes: list[BaseRoute] | None = getattr(app, "routes", None)
        if routes is not None:
            for route in routes:
                if isinstance(route, Mount):
                    yield from _policies(route.app, prefix + route.path)
            return
        app = getattr(app, "app", None)
