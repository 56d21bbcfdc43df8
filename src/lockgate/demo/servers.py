"""What serves the demo: uvicorn and waitress, each until a signal stops it."""

import signal
import socket
from collections.abc import Callable, Coroutine
from typing import Any, Final, NamedTuple

import uvicorn
from waitress.server import create_server
from waitress.task import ThreadedTaskDispatcher

from ..sync import run

Flow = Callable[[], Coroutine[Any, Any, None]]

GRACE: Final = 3
"""Seconds that open requests have when the demo is stopped."""
THREADS: Final = 8
"""How many of them serve, where threads do."""


class Loaded(NamedTuple):
    """The demo in memory: an application, and its hooks at start and shutdown."""

    app: Any
    """For ASGI or WSGI, by its framework."""
    announce: Flow
    """To run once there is a socket that listens."""
    cancel_waits: Callable[[], None]
    """To call when the server begins to stop."""
    close: Flow
    """To run when all requests are answered."""


Serve = Callable[[Callable[[], Loaded], socket.socket], None]
"""Loads the demo, in the process that is to serve it, and serves it by a bound socket."""


def serve_asgi(load: Callable[[], Loaded], listener: socket.socket) -> None:
    """Serve an ASGI application by uvicorn."""
    uvicorn_server(load(), {}).run(sockets=[listener])


def uvicorn_server(loaded: Loaded, options: dict[str, Any]) -> uvicorn.Server:
    """Return a server for the demo, with uvicorn's options besides the demo's."""

    class Server(uvicorn.Server):
        """Says so once it is listening."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            await loaded.announce()

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            loaded.cancel_waits()
            await super().shutdown(sockets)
            await loaded.close()

    _stop_quietly()  # uvicorn raises the signal again once it has stopped.
    # The peer's address is what counts here: uvicorn would believe any X-Forwarded-For that
    # comes from this machine. Access logs would go to the output that is to hold one line.
    config = uvicorn.Config(
        loaded.app,
        lifespan="on",
        proxy_headers=False,
        access_log=False,
        log_level="warning",
        timeout_graceful_shutdown=GRACE,
        **options,
    )
    return Server(config)


def serve_wsgi(load: Callable[[], Loaded], listener: socket.socket) -> None:
    """Serve a WSGI application by the threads of waitress."""
    loaded = load()

    class Threads(ThreadedTaskDispatcher):
        """Gives open requests no longer than the other server does: the store closes after them."""

        def shutdown(self, cancel_pending: bool = True, timeout: int = GRACE) -> bool:
            loaded.cancel_waits()
            return super().shutdown(cancel_pending, timeout)

    _stop_quietly()
    threads = Threads()
    threads.set_thread_count(THREADS)
    server = create_server(loaded.app, sockets=[listener], _dispatcher=threads)
    run(loaded.announce())
    server.run()
    server.close()
    run(loaded.close())


def _stop_quietly() -> None:
    for stop in (signal.SIGINT, signal.SIGTERM):
        signal.signal(stop, _stopped)


def _stopped(*_: object) -> None:
    raise SystemExit(0)
