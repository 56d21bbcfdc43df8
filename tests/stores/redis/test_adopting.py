"""Keys of other systems in Redis, on one server and on a Cluster."""

from __future__ import annotations

from collections.abc import Callable

from lockgate.stores.redis import RedisStore

from ..adopting import check_adoption


def test_keys_of_other_systems_are_taken_in_and_moved(backend: Callable[[], RedisStore]) -> None:
    check_adoption(backend())
