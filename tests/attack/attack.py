"""An attack: a handler's own request, and the changes to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from .handlers import Handler
from .wire import Request

CREDENTIALS = ("none", "weak", "models", "jobs", "full", "twice", "garbage")


class Mutation(NamedTuple):
    """One change to a request."""

    family: str
    """The family of a finding; findings of one family count as one."""
    name: str
    apply: Callable[[Request], Request]
    http1: bool = False
    """Whether only HTTP/1.1 can carry it."""


class Attack(NamedTuple):
    """A request derived from a handler's own request, and the changes to it."""

    handler: Handler
    method: str
    credential: str
    mutations: tuple[Mutation, ...] = ()

    @property
    def request(self) -> Request:
        request = Request(
            self.method.encode(), self.handler.sample.encode(), credential=self.credential
        )
        if self.handler.host is not None:
            request = request._replace(host=self.handler.host.encode())
        if self.handler.websocket:
            request = websocket(request)
        for mutation in self.mutations:
            request = mutation.apply(request)
        return request

    @property
    def families(self) -> frozenset[str]:
        return frozenset(mutation.family for mutation in self.mutations)

    def simpler(self) -> Iterator[Attack]:
        """The same attack without one of its changes."""
        for place in range(len(self.mutations)):
            rest = self.mutations[:place] + self.mutations[place + 1 :]
            yield self._replace(mutations=rest)


def websocket(request: Request) -> Request:
    """Make a WebSocket handshake of a request."""
    headers = (
        (b"Upgrade", b"websocket"),
        (b"Connection", b"Upgrade"),
        (b"Sec-WebSocket-Version", b"13"),
        (b"Sec-WebSocket-Key", b"dGhlIHNhbXBsZSBub25jZQ=="),
    )
    return request._replace(headers=(*request.headers, *headers))
