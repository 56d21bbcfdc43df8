"""Driving an ASGI application in this process, without a server."""

import asyncio
from collections.abc import Callable
from time import process_time_ns

from .workload import EXACT, HEADERS

REQUESTS = 500
"""So many in one turn."""

Headers = list[tuple[bytes, bytes]]


class Turn:
    """Drives an application through some requests, and says what one of them took.

    Args:
        app: the application. It is asked once before anything counts, so that a limit of one
            request is spent from then on.
        path: what is asked for.
        status: what it must answer.
        headers: gives the headers of the next request; by default they are always the same.
    """

    def __init__(
        self,
        app,
        path: str = EXACT,
        status: int = 200,
        headers: Callable[[], Headers] = lambda: HEADERS,
    ) -> None:
        self.app = app
        self.path = path
        self.status = status
        self.headers = headers
        asyncio.run(self._drive(1))

    def __call__(self) -> float:
        """Microseconds of this process's CPU time for one request."""
        took, statuses = asyncio.run(self._drive(REQUESTS))
        assert statuses == {self.status}, statuses
        return took / REQUESTS / 1000

    async def _drive(self, requests: int) -> tuple[int, set[int]]:
        app = self.app
        statuses = set()

        async def receive():
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message):
            if message["type"] == "http.response.start":
                statuses.add(message["status"])

        # The scope is made anew for each request and let go after it, as a server does: kept for
        # longer, they would have the garbage collector walk them at the contenders' expense.
        template, headers = self._template(), self.headers
        started = process_time_ns()
        for _ in range(requests):
            await app({**template, "headers": headers(), "state": {}}, receive, send)
        return process_time_ns() - started, statuses

    def _template(self) -> dict:
        """What a server says of a request, save what is each request's own."""
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "server": ("127.0.0.1", 8000),
            "client": ("127.0.0.1", 50_000),
            "scheme": "http",
            "method": "GET",
            "root_path": "",
            "path": self.path,
            "raw_path": self.path.encode(),
            "query_string": b"",
        }
