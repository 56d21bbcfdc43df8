"""Which server of a Cluster a call goes to."""

from __future__ import annotations

from typing import Any

import pytest
from redis.asyncio import Connection
from redis.exceptions import MovedError

from lockgate import run
from lockgate.stores.redis.transport.commands import Call, command
from lockgate.stores.redis.transport.config import Servers
from lockgate.stores.redis.transport.connection import Dial, Reply
from lockgate.stores.redis.transport.pipeline import Pipeline
from lockgate.stores.redis.transport.seed_nodes import SeedNodes
from lockgate.stores.redis.transport.topology import SLOTS, Cluster

SERVERS = Servers("cluster", (("node", 1),), Connection, {}, 1.0)


class Node(Pipeline):
    """Has every slot, and says so."""

    def __init__(self, _: Dial) -> None:
        super().__init__()

    @property
    def connected(self) -> bool:
        return True

    async def ask(self, call: Call) -> Reply:
        asks_for_slots = b"CLUSTER" in call.text
        return [[0, SLOTS - 1, [b"node", 1, b"id"]]] if asks_for_slots else b"done"

    def hang_up(self) -> None: ...

    def give_up(self) -> None: ...

    async def close(self) -> None: ...


class Forgetful(Cluster):
    """One whose slots another thread forgets once somebody has looked for them so often."""

    def __init__(self, looks: int) -> None:
        self._looks = looks
        self._kept: list[Any] = []
        super().__init__(SERVERS, SeedNodes(SERVERS.addresses), Node)

    @property
    def _by_slot(self) -> list[Any]:
        found = self._kept
        self._looks -= 1
        if not self._looks:
            self._kept = []
        return found

    @_by_slot.setter
    def _by_slot(self, by_slot: list[Any]) -> None:  # pyright: ignore[reportIncompatibleVariableOverride] - as the name says
        self._kept = by_slot


@pytest.mark.parametrize("looks", range(1, 9))
def test_slots_that_another_thread_forgets_meanwhile_are_learned_anew(looks: int) -> None:
    cluster = Forgetful(looks)

    async def ask() -> Any:
        return await cluster.ask(command(7, b"GET", b"it"))

    for _ in range(2):
        assert run(ask()) == b"done"
        cluster.moved(MovedError("7 node:1"))
        assert run(cluster.everyone())
