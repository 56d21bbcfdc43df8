"""A process that forks: its children have connections of their own."""

from __future__ import annotations

import pytest

from lockgate.stores.redis import RedisStore

from ..forking import fork_and_charge
from .backends import server


@pytest.mark.parametrize("kind", ["single", "cluster", "sentinel"])
def test_a_process_that_forked_shares_no_connection(kind: str) -> None:
    fork_and_charge(RedisStore, server(kind).url(), "forked")
