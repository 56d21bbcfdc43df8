"""A seed node or Sentinel accepts connections without answering: the others are asked."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from time import monotonic, sleep
from typing import Any

import pytest

from lockgate import Gate, run
from lockgate.errors import StoreUnavailable
from lockgate.options import StoreOptions
from lockgate.stores.redis import RedisStore
from lockgate.stores.redis.transport.cluster import SeedNodes
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
    """A port that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.mark.parametrize("drive", [run, asyncio.run], ids=["sync", "awaiting"])
@pytest.mark.parametrize("kind", ["sentinel", "cluster"])
def test_the_first_configured_address_may_be_silent(
    kind: str, gone: int, guarded: RedisSentinel, drive: Callable[[Any], None]
) -> None:
    live = guarded.url() if kind == "sentinel" else server("cluster").url()
    store = RedisStore(live.replace("://", f"://127.0.0.1:{gone},"), prefix=kind)
    gate = Gate(store, brand="acme", store_options=StoreOptions(deadline=SHORT))

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


def test_nodes_of_an_answer_are_asked_before_the_configured_ones() -> None:
    a, b, c, d = (("127.0.0.1", port) for port in range(4))
    seeds = SeedNodes([a, b])
    assert [*seeds.each()] == [a, b]
    seeds.answered(b, c, d)
    assert list(seeds.order) == [b, c, d, a]
    assert next(seeds.each([c])) == c
    assert list(seeds.order) == [b, d, a, c]
    seeds.answered(c)
    assert list(seeds.order) == [c, a, b]


def test_a_node_that_was_not_asked_for_lack_of_time_is_asked_next() -> None:
    gone, live = ("127.0.0.1", 1), ("127.0.0.1", 2)
    seeds = SeedNodes([gone, live])
    with within(0.001):
        asked = seeds.each()
        assert next(asked) == gone
        sleep(0.001)
        with pytest.raises(Overdue):
            next(asked)
    assert next(seeds.each()) == live
