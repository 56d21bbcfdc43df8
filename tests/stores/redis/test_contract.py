"""The contract, on one server and on a Cluster, and in both colours."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from functools import partial
from itertools import count

import pytest
import redis

from lockgate import Store, run
from lockgate.stores.answers import Verdict
from lockgate.stores.redis import RedisStore
from lockgate.testing.checks import PARTS, WINDOW_PARTS
from lockgate.testing.processes import Reopen
from lockgate.testing.suite import SharedStoreSuite, StoreSuite

from ..making import BOOK, NOW, at_once, draft_of, new_key, token_of
from .backends import documented, opened, server

pytestmark = pytest.mark.usefixtures("untraced_processes")

_prefixes = count()


class RedisSuite(SharedStoreSuite):
    """As a user with the rights that the docs name, which so are enough."""

    kind: str
    one_walk_in = 10
    skew = 300.0

    def make_store(self) -> Store:
        self.prefix = f"lockgate:contract{next(_prefixes)}"
        self.url = documented(self.kind)
        return RedisStore(self.url, prefix=self.prefix)

    def reopen(self, store: Store) -> Reopen:
        return partial(RedisStore, self.url, prefix=self.prefix)


class TestOneServer(RedisSuite):
    kind = "single"

    def leftovers(self, store: Store, now: int) -> int:
        """What has no time to live would stay."""
        with redis.Redis(port=int(server(self.kind).port)) as client:
            names = list(client.scan_iter(match=f"{self.prefix}*"))
            assert names
            return sum(client.pttl(name) == -1 for name in names)


class TestCluster(RedisSuite):
    """The scripts of windows and budgets are those of one server, on names of one slot:
    ``test_ledger.py`` runs each of them here as well."""

    kind = "cluster"
    parts = tuple(part for part in PARTS if part not in WINDOW_PARTS)


@pytest.mark.matrix
class TestWindowsOfCluster(RedisSuite):
    kind = "cluster"
    parts = WINDOW_PARTS


class TestValkey(RedisSuite):
    __test__ = shutil.which("valkey-server") is not None
    kind = "valkey"


@pytest.mark.matrix
class TestOneThatBlocks(StoreSuite):
    """On the host's own client: its settings for retries and decoding have no effect.

    Those above block as well, in their walks and where callers come in crowds.
    """

    one_walk_in = 10

    def make_store(self) -> Store:
        client = redis.Redis(port=int(server("single").port), decode_responses=True, protocol=3)
        return opened("single", client)


def test_exactly_the_limit_is_admitted_across_event_loops_that_close_it(
    backend: Callable[[], RedisStore],
) -> None:
    """Each loop opens separate connections, so each closes them before it ends."""
    made = new_key()
    store = backend()
    run(store.insert(draft_of(made), None, NOW))

    async def admit() -> list[Verdict]:
        admits = (store.admit(token_of(made), 1, BOOK, NOW) for _ in range(8))
        verdicts = [admission.verdict for admission in await asyncio.gather(*admits)]
        await store.close()
        return verdicts

    verdicts = [v for many in at_once(4, lambda _: asyncio.run(admit())) for v in many]
    assert verdicts.count(Verdict.ADMITTED) == BOOK.default.rpm
