"""A real server in a thread, for what only a real server shows."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from waitress.server import create_server


@contextmanager
def served(app: ASGIApp, **fields: Any) -> Iterator[tuple[str, int]]:
    """Serve an application on a free port; gives host and port."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    settings = {"log_level": "critical", "proxy_headers": False, "timeout_graceful_shutdown": 1}
    server = uvicorn.Server(uvicorn.Config(app, **{**settings, **fields}))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        for _ in range(6_000):
            if server.started or not thread.is_alive():
                break
            time.sleep(0.01)
        assert server.started, "the server did not start"
        yield listener.getsockname()
    finally:
        server.should_exit = True
        thread.join(timeout=60)
        listener.close()
        assert not thread.is_alive(), "the server did not stop"


@contextmanager
def served_by_waitress(app: Any) -> Iterator[tuple[str, int]]:
    """Serve a WSGI application on a free port; gives host and port."""
    server: Any = create_server(app, host="127.0.0.1", port=0, threads=4)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield "127.0.0.1", server.effective_port
    finally:
        server.task_dispatcher.shutdown()  # First: a worker that ends pulls the trigger.
        server.trigger.pull_trigger(server.close)
        thread.join(60)


def exchange(address: tuple[str, int], request: bytes) -> bytes:
    """Send bytes on a connection of their own, and all that comes back until it is closed."""
    with socket.create_connection(address, 60) as connection:
        connection.sendall(request)
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
    return received


def status_of(response: bytes) -> int:
    return int(response.split(b" ", 2)[1])


def fields_of(response: bytes) -> dict[str, list[str]]:
    head = response.partition(b"\r\n\r\n")[0].decode("latin-1")
    fields: dict[str, list[str]] = {}
    for line in head.split("\r\n")[1:]:
        name, _, value = line.partition(":")
        fields.setdefault(name.lower(), []).append(value.strip())
    return fields
