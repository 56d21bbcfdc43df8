"""The demo's servers, uvicorn and waitress, which serve until a signal."""

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
"""Seconds for open requests to finish when the demo stops."""
THREADS: Final = 8
"""The number of threads of a WSGI server."""


class Loaded(NamedTuple):
    """The demo in memory: an application, and its hooks at start and shutdown."""

    app: Any
    """An ASGI or WSGI application, by its framework."""
    announce: Flow
    """Runs when the socket listens."""
    cancel_waits: Callable[[], None]
    """Called when the server begins to stop."""
    close: Flow
    """Runs after all requests are answered."""


Serve = Callable[[Callable[[], Loaded], socket.socket], None]
"""Loads the demo in the serving process, and serves it on a bound socket."""


def serve_asgi(load: Callable[[], Loaded], listener: socket.socket) -> None:
    """Serve an ASGI application by uvicorn."""
    uvicorn_server(load(), {}).run(sockets=[listener])


def uvicorn_server(loaded: Loaded, options: dict[str, Any]) -> uvicorn.Server:
    """Return a uvicorn server for the demo, with additional options."""

    class Server(uvicorn.Server):
        """Announces the demo when it listens."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            await loaded.announce()

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            loaded.cancel_waits()
            await super().shutdown(sockets)
            await loaded.close()

    _stop_quietly()  # uvicorn raises the signal again once it has stopped.
    # The gate uses the peer's address; uvicorn would trust any X-Forwarded-For from this
    # machine. Access logs would go to the output, which must have one line.
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
        """Gives open requests as much time as the other server, before the store closes."""

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
