"""One of those that know where the servers are is gone, and says nothing: the others are asked."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from time import monotonic, sleep
from typing import Any

import pytest

from lockgate import Gate, run
from lockgate.errors import StoreUnavailable
from lockgate.stores.redis import RedisStore
from lockgate.stores.redis.transport.seed_nodes import SeedNodes
from lockgate.stores.resilience.deadlines import Overdue, within
from tests.patience import SHORT
from tests.servers import RedisSentinel, redis_sentinel

from ..backends import server

pytestmark = pytest.mark.usefixtures("soon_tried")


@pytest.fixture(scope="module")
def guarded() -> Iterator[RedisSentinel]:
    with redis_sentinel() as running:
        yield running


@pytest.fixture
def gone() -> Iterator[int]:
    """A port on which connections are accepted and nothing is ever said."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.mark.parametrize("drive", [run, asyncio.run], ids=["sync", "awaiting"])
@pytest.mark.parametrize("kind", ["sentinel", "cluster"])
def test_the_first_that_is_named_may_be_gone(
    kind: str, gone: int, guarded: RedisSentinel, drive: Callable[[Any], None]
) -> None:
    live = guarded.url() if kind == "sentinel" else server("cluster").url()
    store = RedisStore(live.replace("://", f"://127.0.0.1:{gone},"), prefix=kind)
    gate = Gate(store, brand="acme", deadline=SHORT)

    async def answered() -> None:
        until = monotonic() + 60
        while True:
            try:
                await gate.organizations.plan("org_1")
            except StoreUnavailable:
                assert monotonic() < until
                await asyncio.sleep(0.01) if drive is asyncio.run else None
            else:
                break
        await gate.close()

    drive(answered())


def test_whoever_answered_tells_of_others_that_are_asked_before_the_named_ones() -> None:
    a, b, c, d = (("127.0.0.1", port) for port in range(4))
    turns = SeedNodes([a, b])
    assert [*turns.each()] == [a, b]
    turns.answered(b, c, d)
    assert list(turns.order) == [b, c, d, a]
    assert next(turns.each([c])) == c
    assert list(turns.order) == [b, d, a, c]
    turns.answered(c)
    assert list(turns.order) == [c, a, b]


def test_who_is_not_asked_for_want_of_time_is_next() -> None:
    gone, live = ("127.0.0.1", 1), ("127.0.0.1", 2)
    turns = SeedNodes([gone, live])
    with within(0.001):
        asked = turns.each()
        assert next(asked) == gone
        sleep(0.001)
        with pytest.raises(Overdue):
            next(asked)
    assert next(turns.each()) == live
