"""If a Redis server refuses or does not answer, callers get 503, and no request is counted."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from time import monotonic, sleep
from typing import Any

import pytest

from lockgate import Event, Gate, Plan, PlanBook, run
from lockgate.core.ledger import Hit
from lockgate.errors import StoreUnavailable
from lockgate.events import Events
from lockgate.options import StoreOptions
from lockgate.stores.redis import RedisStore
from lockgate.stores.redis.transport.config import SECONDS
from lockgate.stores.resilience.failures import is_outage
from lockgate.stores.resilience.store import ResilientStore
from tests.gates import flat_gate
from tests.patience import SHORT, answered
from tests.servers import RedisServer, redis_server

from ..proxy import Proxy

BOOK = PlanBook([Plan("free", 10**6, None, None, None)])
awaiting = pytest.mark.parametrize("awaiting", [False, True], ids=["sync", "awaiting"])
pytestmark = pytest.mark.usefixtures("soon_tried")


@pytest.fixture(scope="module")
def own() -> Iterator[RedisServer]:
    """A server that the tests here may upset."""
    with redis_server() as running:
        tell(running, "ACL", "SETUSER", "me", "on", ">pass", "~*", "+@all")
        yield running


def tell(server: RedisServer, *words: str) -> None:
    with server.client() as client:
        client.execute_command(*words)


def url(port: int) -> str:
    return f"redis://me:pass@127.0.0.1:{port}"


@contextmanager
def told(server: RedisServer, *words: str, back: tuple[str, ...]) -> Iterator[None]:
    tell(server, *words)
    try:
        yield
    finally:
        tell(server, *back)


def full(server: RedisServer) -> AbstractContextManager[None]:
    back = "CONFIG", "SET", "maxmemory", "0"
    return told(server, "CONFIG", "SET", "maxmemory", "1", back=back)


def replica(server: RedisServer) -> AbstractContextManager[None]:
    return told(server, "REPLICAOF", "127.0.0.1", "1", back=("REPLICAOF", "NO", "ONE"))


def no_rights(server: RedisServer) -> AbstractContextManager[None]:
    return told(server, "ACL", "SETUSER", "me", "-@all", back=("ACL", "SETUSER", "me", "+@all"))


def no_names(server: RedisServer) -> AbstractContextManager[None]:
    return told(server, "ACL", "SETUSER", "me", "resetkeys", back=("ACL", "SETUSER", "me", "~*"))


@contextmanager
def another_password(server: RedisServer) -> Iterator[None]:
    back = "ACL", "SETUSER", "me", ">pass"
    with told(server, "ACL", "SETUSER", "me", "resetpass", ">other", back=back):
        tell(server, "CLIENT", "KILL", "USER", "me")
        yield


REFUSALS: dict[str, Callable[[RedisServer], AbstractContextManager[None]]] = {
    "OOM": full,
    "READONLY": replica,
    "NOPERM for commands": no_rights,
    "NOPERM for names": no_names,
    "WRONGPASS": another_password,
}


class Caller:
    """A gate and a key; what each admission comes to."""

    def __init__(self, gate: Gate, awaiting: bool) -> None:
        self.gate = gate
        self._loop = asyncio.new_event_loop() if awaiting else None
        made = answered(lambda: self.do(gate.keys.create("org_1", "a key")))
        self._token = made.text

    def do(self, flow: Any) -> Any:
        return run(flow) if self._loop is None else self._loop.run_until_complete(flow)

    def counted(self) -> int | None:
        """The key's count, this request included; None: 503."""
        try:
            key = self.do(self.gate.authenticate(self._token)).key
        except StoreUnavailable:
            return None
        return int(key.request_count)

    def comes_back(self) -> int:
        until = monotonic() + 60
        while (count := self.counted()) is None:
            assert monotonic() < until
            sleep(0.02)
        return count

    def close(self) -> None:
        self.do(self.gate.close())
        if self._loop is not None:
            self._loop.close()


@contextmanager
def caller(port: int, awaiting: bool, **options: Any) -> Iterator[Caller]:
    gate = flat_gate(url(port), brand="acme", plans=BOOK, **options)
    with ExitStack() as stack:
        found = Caller(gate, awaiting)
        stack.callback(found.close)
        yield found


@awaiting
@pytest.mark.parametrize("refusal", list(REFUSALS))
def test_a_server_that_refuses_costs_no_500_and_counts_nothing(
    own: RedisServer, refusal: str, awaiting: bool
) -> None:
    # A busy machine may need its time: here it is not measured.
    with caller(own.port, awaiting, store_options=StoreOptions(deadline=20.0)) as asking:
        assert asking.counted() == 1
        with REFUSALS[refusal](own):
            assert [asking.counted() for _ in range(5)] == [None] * 5
        assert asking.comes_back() == 2


@awaiting
def test_a_server_that_accepts_and_never_answers_costs_the_deadline(
    own: RedisServer, awaiting: bool
) -> None:
    seen: list[Event] = []
    with (
        Proxy(own.port) as proxy,
        caller(
            proxy.port,
            awaiting,
            observer=seen.append,
            store_options=StoreOptions(deadline=SHORT),
        ) as asking,
    ):
        asking.comes_back()
        proxy.swallows = True
        proxy.drop_all()  # From here on whoever connects hears nothing, not even to the password.
        slowest = 0.0
        while not any(event.name == "breaker_opened" for event in seen):
            started = monotonic()
            assert asking.counted() is None
            slowest = max(slowest, monotonic() - started)
        assert slowest < SECONDS  # For so long the connection itself would wait.
        proxy.swallows = False
        asking.comes_back()


@awaiting
def test_a_host_that_drops_packets_costs_the_deadline(awaiting: bool) -> None:
    """The listener does not accept and its queue is full, so the system drops new connections."""

    async def ask(store: ResilientStore) -> float:
        started = monotonic()
        with pytest.raises(Exception) as failed:  # noqa: PT011 - whichever, in time
            await store.charge("org_1", Hit(BOOK.default.windows, 1))
        assert is_outage(failed.value)
        return monotonic() - started

    async def all_of_it(port: int) -> None:
        store = ResilientStore(RedisStore(url(port)), Events(None), deadline=SHORT)
        slowest = 0.0
        while not store.breaker.is_open:
            slowest = max(slowest, await ask(store))
        assert slowest < SECONDS  # For so long the connection itself would wait.
        await store.close()

    with ExitStack() as stack:
        deaf = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(deaf.getsockname())
        flow = all_of_it(deaf.getsockname()[1])
        asyncio.run(flow) if awaiting else run(flow)
