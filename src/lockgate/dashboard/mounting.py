"""Serve a dashboard beside an application of any framework, below its own path."""

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from ..errors import ConfigurationError
from ..web.asgi_exchange import AsgiRequest, respond
from ..web.asgi_types import ASGIApp, Receive, Scope, Send
from ..web.operations.operation import Reply

_PATH: Final = re.compile(r"(/[A-Za-z0-9._~-]+)+")


def mount(app: ASGIApp, path: str, pages: ASGIApp) -> ASGIApp:
    """Return an ASGI application that serves a dashboard below a path, another one elsewhere.

    The application gets its lifespan, its WebSockets, and every other path as before. Call it
    outside of :func:`protect`, since the dashboard guards itself.

    Args:
        app: the application that a gate protects.
        path: such as ``/settings``; without a slash behind it leads to the first page, too.
        pages: the value of :func:`dashboard`.

    Raises:
        ConfigurationError: the path is not one.
    """
    _check(path)

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        asked = AsgiRequest(scope).path if scope["type"] == "http" else ""
        if asked.startswith(f"{path}/"):
            below: str = scope.get("root_path", "") + path
            await pages({**scope, "root_path": below}, receive, send)
        elif asked == path and scope["method"] in {"GET", "HEAD"}:
            base = quote(scope.get("root_path", "").rstrip("/"), errors="surrogatepass")
            there = (b"location", f"{base}{path}/".encode())
            await respond(Reply(307, (there,), b""), scope, send)
        else:
            await app(scope, receive, send)

    return serve


def wsgi_mount(app: WSGIApplication, path: str, pages: WSGIApplication) -> WSGIApplication:
    """Return a WSGI application that serves a dashboard below a path; see :func:`mount`.

    Args:
        app: the application that a gate protects.
        path: such as ``/settings``.
        pages: the value of :func:`wsgi_dashboard`.

    Raises:
        ConfigurationError: the path is not one.
    """
    _check(path)

    def serve(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        asked: str = environ.get("PATH_INFO", "")
        if asked != path and not asked.startswith(f"{path}/"):
            return app(environ, start_response)
        base = environ.get("SCRIPT_NAME", "")
        moved = {"SCRIPT_NAME": base + path, "PATH_INFO": asked.removeprefix(path)}
        return pages({**environ, **moved}, start_response)

    return serve


def _check(path: str) -> None:
    if not _PATH.fullmatch(path):
        raise ConfigurationError(f"The path is {path!r}: write one such as '/settings'.")
