"""The demo with keys that expire at once, and under servers that it does not come with:
``serving.py lockgate demo ...`` as the command does, ``serving.py SERVER --framework ...``.

The same application, the same line of JSON, the same end; only what speaks HTTP is another.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from importlib import import_module
from typing import Any

from lockgate.__main__ import main as lockgate
from lockgate.core.api_keys import read_lifetime
from lockgate.demo.command import demo
from lockgate.demo.servers import GRACE, THREADS, Loaded, Serve, uvicorn_server
from lockgate.services.keys import keys as flows_of_keys
from lockgate.services.keys import rotation_and_revocation
from lockgate.sync import run
from lockgate.web.operations import schemas

Load = Callable[[], Loaded]
Message = MutableMapping[str, Any]


def uvicorn_h11(load: Load, listener: socket.socket) -> None:
    """uvicorn without its faster half: h11 for httptools, asyncio's own loop for uvloop."""
    uvicorn_server(load(), {"http": "h11", "loop": "asyncio"}).run(sockets=[listener])


def hypercorn(load: Load, listener: socket.socket) -> None:
    from hypercorn.asyncio import serve
    from hypercorn.config import Config

    loaded = load()
    config = Config()
    config.bind = [f"fd://{os.dup(listener.fileno())}"]
    config.graceful_timeout = GRACE
    config.loglevel = "WARNING"

    async def main() -> None:
        stop = asyncio.Event()

        async def until_stopped() -> None:  # It listens by the time that this is awaited.
            await loaded.announce()
            await stop.wait()
            loaded.cancel_waits()

        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await serve(loaded.app, config, shutdown_trigger=until_stopped)
        await loaded.close()

    asyncio.run(main())


def granian(load: Load, listener: socket.socket) -> None:
    """Granian's ASGI: the demo wakes and sleeps with the worker's lifespan."""
    _granian(lambda: _living(load()), listener, "asgi")


def granian_wsgi(load: Load, listener: socket.socket) -> None:
    from granian.server import MPServer

    loaded: list[Loaded] = []

    def awake() -> Any:
        loaded.append(load())
        run(loaded[0].announce())
        return loaded[0].app

    def work(*arguments: Any) -> None:
        try:
            MPServer._spawn_wsgi_worker(*arguments)
        finally:
            run(loaded[0].close())

    _granian(awake, listener, "wsgi", work)


def _granian(
    load: Callable[[], Any],
    listener: socket.socket,
    interface: str,
    work: Callable[..., None] | None = None,
) -> None:
    from granian.constants import Interfaces
    from granian.log import LogLevels
    from granian.server import MPServer

    net: Any = import_module("granian.net")  # Its types tell of less than it has.
    listener.listen()

    class Server(MPServer):
        """Takes the socket that there is."""

        def _init_shared_socket(self) -> None:
            self._shd = net.SocketHolder(listener.fileno(), False, self.backlog)
            self._sso = None

    by_stderr = {"class": "logging.StreamHandler"}
    # What is to be loaded there cannot be pickled. A demo that is a fork has another method.
    multiprocessing.set_start_method("fork", force=True)
    Server(
        "demo",
        interface=Interfaces(interface),
        blocking_threads=THREADS if interface == "wsgi" else None,
        workers_kill_timeout=GRACE,
        log_level=LogLevels.warning,
        log_dictconfig={"handlers": {"console": by_stderr, "access": by_stderr}},
    ).serve(work, load, wrap_loader=False)


def gunicorn(load: Load, listener: socket.socket) -> None:
    """gunicorn's threads, under its arbiter."""
    from gunicorn.app.base import BaseApplication  # type: ignore[import-untyped]

    class Application(BaseApplication):  # type: ignore[misc]
        """Loads the demo in the worker."""

        loaded: Loaded

        def load_config(self) -> None:
            assert self.cfg is not None
            for name, value in {
                "bind": f"fd://{os.dup(listener.fileno())}",
                "worker_class": "gthread",
                "threads": THREADS,
                "graceful_timeout": GRACE,
                "loglevel": "warning",
                "control_socket_disable": True,
                "post_worker_init": lambda _worker: run(self.loaded.announce()),
                "worker_exit": lambda _arbiter, _worker: run(self.loaded.close()),
            }.items():
                self.cfg.set(name, value)

        def load(self) -> Any:
            self.loaded = load()
            return self.loaded.app

    Application().run()


def _living(loaded: Loaded) -> Any:
    """An ASGI application that announces itself when it starts, and closes when it ends."""

    async def app(
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        async def hear() -> Message:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                loaded.cancel_waits()
            return message

        async def say(message: Message) -> None:
            if message["type"] == "lifespan.startup.complete":
                await loaded.announce()
            elif message["type"] == "lifespan.shutdown.complete":
                await loaded.close()
            await send(message)

        if scope["type"] == "lifespan":
            await loaded.app(scope, hear, say)
        else:
            await loaded.app(scope, receive, send)

    return app


SERVERS: dict[str, Serve] = {
    "uvicorn-h11": uvicorn_h11,
    "hypercorn": hypercorn,
    "granian": granian,
    "granian-wsgi": granian_wsgi,
    "gunicorn": gunicorn,
}


BLINK = 1e-9
"""Days after which a key that a test asks for has expired at once."""


def let_keys_blink() -> None:
    """Let one lifetime through that is refused for being less than a minute (D7).

    So that a test can have an expired key without waiting for a minute.
    """
    real = read_lifetime

    def read(days: float | None, max_age: int | None = None) -> tuple[int | None, list[str]]:
        return (1, []) if days == BLINK else real(days, max_age)

    for module in (flows_of_keys, rotation_and_revocation, schemas):
        setattr(module, "read_lifetime", read)  # noqa: B010 - it is no attribute that they export


def main() -> None:
    let_keys_blink()
    if sys.argv[1:2] == ["lockgate"]:  # As the command does.
        del sys.argv[1]
        raise SystemExit(lockgate())
    parser = argparse.ArgumentParser()
    parser.add_argument("server", choices=SERVERS)
    parser.add_argument("--store", required=True)
    parser.add_argument("--framework", required=True)
    parser.add_argument("--deadline", type=float, required=True)
    options = parser.parse_args()
    serve = SERVERS[options.server]
    where = ("127.0.0.1", 0, options.store, options.framework, options.deadline)
    raise SystemExit(demo(*where, as_json=True, serve=serve))


if __name__ == "__main__":
    main()
