"""Applications without a framework, and those that are mounted in others."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import unquote

Ran = Callable[[str], None]
"""Records that a handler ran."""


def fold(path: str) -> str:
    """A decoded path as the most careless software reads it: everything that D31 (c) names."""
    path = re.sub(r"[\x00-\x1f\x7f]", "", path).lower()
    kept: list[str] = []
    for segment in path.split("/"):
        plain = segment.partition(";")[0]
        if plain == "..":
            del kept[-1:]
        elif plain not in {"", "."}:
            kept.append(plain)
    return "/" + "/".join(kept)


def fold_host(host: str) -> str:
    """A host as the most careless software reads it."""
    return re.split(r"[:/\\?#]", host.strip().rpartition("@")[2])[0].strip(".").lower()


def route(method: str, host: str, path: str, *, folding: bool) -> str:
    """The handler for a request, of an application that looks at methods where it must only."""
    if folding:
        path, host = fold(path), fold_host(host)
    if path == "/panel" and host in {"admin.test", "shop.test"}:
        return "panel" if host == "admin.test" else "counter"
    if path == "/front":
        return "front" if host == "admin.test" else "lobby"
    if re.fullmatch(r"/pages/[0-9]+/[0-9]+", path):
        return "issue"
    if path.startswith("/pages/"):
        return "sheet"
    if path.startswith("/legacy/"):
        return "erase" if method.upper() == "DELETE" else "legacy"
    if path == "/desk" and host == "admin.test":
        return "desk"
    if re.fullmatch(r"/api/jobs/[^/]+", path):
        return "cancel" if method.upper() == "DELETE" else "job"
    if path == "/api/jobs":
        return "start" if method.upper() == "POST" else "jobs"
    if path.startswith("/files/"):
        return "upload"
    if path == "/metrics" or path.startswith("/metrics/"):
        return "metrics"
    exact = {
        "/health": "health",
        "/api/models": "models",
        "/api/images": "image",
        "/runs": "run",
        "/api/admin": "admin",
        "/api/reports" if folding else "/api/reports/": "reports",
        "/sub/inner": "inner",
    }
    return exact.get(path, "page")


RAW = (
    *("health", "models", "image", "jobs", "start", "job", "cancel", "run", "admin", "reports"),
    *("upload", "metrics", "inner", "panel", "counter", "desk", "page"),
    *("front", "lobby", "legacy", "erase"),
)


def raw_asgi(ran: Ran, *, folding: bool = False) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close"})
        else:
            path = scope["path"]
            if folding:  # Where an encoded slash is a slash, whatever the server made of it.
                path = unquote(scope["raw_path"].decode("latin-1").partition("?")[0])
            hosts = [value for name, value in scope["headers"] if name == b"host"]
            host = hosts[0].decode("latin-1") if hosts else ""
            name = route(scope["method"], host, path, folding=folding)
            await say(name, ran, send)

    return app


def raw_wsgi(ran: Ran, *, folding: bool = False) -> Any:
    def app(environ: Any, start_response: Any) -> Iterable[bytes]:
        path = environ["PATH_INFO"].encode("latin-1").decode("utf-8", "replace")
        host = environ.get("HTTP_HOST", "")
        name = route(environ["REQUEST_METHOD"], host, path, folding=folding)
        ran(name)
        start_response("200 OK", [("content-type", "text/plain")])
        return [name.encode()]

    return app


async def say(name: str, ran: Ran, send: Any) -> None:
    ran(name)
    headers = [(b"content-type", b"text/plain")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": name.encode()})


def metrics_asgi(ran: Ran) -> Any:
    """An application to mount that answers everything, as Prometheus's does."""

    async def app(scope: Any, _: Any, send: Any) -> None:
        if scope["type"] == "http":
            await say("metrics", ran, send)

    return app


def metrics_wsgi(ran: Ran) -> Any:
    def app(_: Any, start_response: Any) -> Iterable[bytes]:
        ran("metrics")
        start_response("200 OK", [("content-type", "text/plain")])
        return [b"metrics"]

    return app
