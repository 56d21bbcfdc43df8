"""Which server of a Cluster a call goes to."""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import MovedError, ResponseError

from lockgate import run
from lockgate.stores.redis.transport.cluster import SLOTS, ClusterClient, SeedNodes
from lockgate.stores.redis.transport.commands import Call, command
from lockgate.stores.redis.transport.config import Servers, Settings
from lockgate.stores.redis.transport.failures import Reply
from lockgate.stores.redis.transport.pipeline import Dial, Pipeline
from lockgate.stores.runtime.log_hints import Adviser

SERVERS = Servers("cluster", (("node", 1),), Settings({}), 1.0)


class Node(Pipeline):
    """Answers as the only node, with all slots."""

    def __init__(self, dial: Dial) -> None:
        super().__init__(dial, 1.0)

    @property
    def connected(self) -> bool:
        return True

    async def ask(self, call: Call) -> Reply:
        if b"INFO" in call.text:
            return ResponseError("NOPERM")
        return [[0, SLOTS - 1, [b"node", 1, b"id"]]] if b"SLOTS" in call.text else b"done"

    def tell(self, call: Call) -> None: ...

    def abort(self) -> None: ...

    def abandon(self) -> None: ...

    async def close(self) -> None: ...


class Forgetful(ClusterClient):
    """Forgets its map after some reads, as another thread may."""

    def __init__(self, looks: int) -> None:
        self._looks = looks
        self._kept: list[Any] = []
        adviser = Adviser("Redis", lambda failure: None)
        super().__init__(SERVERS, adviser, SeedNodes(SERVERS.addresses), awaiting=False)

    def _new_pipeline(self, dial: Dial) -> Pipeline:
        return Node(dial)

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
def test_a_map_that_another_thread_forgets_is_learned_again(looks: int) -> None:
    cluster = Forgetful(looks)

    async def ask() -> Any:
        return await cluster.ask(command(7, b"GET", b"it"))

    for _ in range(2):
        assert run(ask()) == b"done"
        assert run(cluster.retry(command(7, b"GET", b"it"), MovedError("7 node:1"))) == b"done"
        assert run(cluster.by_server())
