"""The lifespan of an ASGI application behind a gate: checks at its start, a flush at its end."""

from collections.abc import Callable
from typing import Final

from ..errors import ConfigurationError
from ..events import logger
from ..gate import Gate
from ..sync import loop_runs
from .asgi_types import ASGIApp, Message, Receive, Scope, Send
from .guard import Guard

NO_ASYNCIO: Final = (
    "lockgate needs asyncio, and another library runs this event loop: start Hypercorn with "
    "--worker-class asyncio or uvloop; in tests with AnyIO let the fixture anyio_backend return "
    "'asyncio'."
)


class Lifespan:
    """Starts and stops with the server; a server does not start an application with a mistake.

    The routes are audited before the application starts, and again with the routes that it adds
    while it does.

    Args:
        gate: is prepared at the start and flushed at the end.
        guard: tells at the end what it has only watched.
        start: audits the routes.
        send: the server's callable for messages.
    """

    def __init__(self, gate: Gate, guard: Guard, start: Callable[[], None], send: Send) -> None:
        self._gate = gate
        self._guard = guard
        self._start = start
        self._send = send
        self._has_failed = False

    async def serve(self, app: ASGIApp, scope: Scope, receive: Receive) -> None:
        """Hand the lifespan on to an application, or serve it for one that knows none.

        Raises:
            ConfigurationError: the server has been told not to start.
        """
        try:
            if not loop_runs():
                raise ConfigurationError(NO_ASYNCIO)
            self._start()
            await self._gate.readiness.try_first()
        except ConfigurationError as mistake:
            await receive()
            await self._send(_not_started(mistake))
            raise  # As Starlette does: its test client shows the exception.
        heard = False

        async def hear() -> Message:
            nonlocal heard
            heard = True
            return await receive()

        try:
            await app(scope, hear, self._pass_on)
        except Exception as failure:
            if heard:
                raise
            name = type(failure).__name__
            logger.info("The application knows no lifespan (%s): the gate serves it alone.", name)
            for event in ("startup", "shutdown"):  # As Django's, which raises.
                await receive()
                await self._pass_on({"type": f"lifespan.{event}.complete"})

    async def _pass_on(self, message: Message) -> None:
        if self._has_failed:
            return  # The server has been told.
        if message["type"] == "lifespan.startup.complete":
            try:
                self._start()
            except ConfigurationError as mistake:
                self._has_failed = True
                await self._send(_not_started(mistake))
                raise  # The application closes what it has opened.
        if message["type"].startswith("lifespan.shutdown."):
            self._guard.ended()
            await self._gate.flush()  # Counts that only this process has are written.
        await self._send(message)


def _not_started(mistake: ConfigurationError) -> Message:
    return {"type": "lifespan.startup.failed", "message": str(mistake)}
