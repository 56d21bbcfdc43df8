"""`RedisStore`: connections, leases, plans and walks over all organizations."""

import re
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from time import monotonic
from typing import Any, Final

from redis.exceptions import NoPermissionError, RedisError

from ...core.bounded_dict import BoundedDict
from ...errors import ConfigurationError
from ...events import Events
from ...metrics import Pipelines
from ..answers import (
    NO_KEYS,
    StoreError,
    StoreWarning,
)
from ..base import IoMode
from ..resilience.circuit_breaker import CircuitBreakers
from ..runtime.log_hints import Adviser
from ..runtime.per_loop import PerLoop
from .error_hints import LossReport, advice
from .key_hints import ADMIT, AT_MOST, KeyHint
from .key_names import DEFAULT_PREFIX, Names
from .recalls import WAITED, Recalls
from .rows import Rows
from .server_settings import EvictionCheck, warnings_of
from .transport.client import RedisClient
from .transport.cluster import ClusterClient, SeedNodes
from .transport.commands import Call, command
from .transport.config import Client, Servers, servers_of
from .transport.failures import reraise
from .transport.sentinel_client import SentinelClient
from .transport.sentinels import Watch

_CLOCKS: Final = range(0, 16384, 1024)
"""Slots spread over all servers, any of which can tell the time."""
_ENTERED_AT_MOST: Final = 1000
_LOOKS: Final = 5
"""Steps of a walk over all names before a start goes on without having found an organization."""
_DURABILITY: Final = re.compile(r"replicas:([1-9][0-9]?)")


class RedisStore(Rows):
    """Keeps everything in Redis or Valkey: one server, one watched by Sentinels, or a Cluster.

    An admission is one call of the script ``admit.lua`` on the server that has the organization.
    The server's clock decides (D27).

    How a revocation becomes immediate (K3, K4): :meth:`commit` writes the instant into the
    key's record, in one step and only once. Each admission on any process sends its key hint, which
    holds the whole record, and ``admit.lua`` compares that with the record in the step that charges
    the windows. So the first admission that Redis executes after the revocation finds another
    record and is refused without a charge. After the record, and before the call is answered, the
    change counter moves: a process that remembers a refusal reads the counter once a second. With
    Sentinels the call is answered only if the primary that took it is still the primary, and with
    ``durability`` once replicas have acknowledged it. As the cache of a pair the store deletes
    copies instead: :meth:`forget` drops them with their fill token, so a fill that read the key
    before installs nothing (K5).

    Args:
        sources: a URL; or one blocking client of redis-py's, one asynchronous client, or one of
            each. A store from a URL serves event loops and threads. From a client the store takes
            the settings and makes connections itself.
        prefix: the start of all names.
        durability: ``"replicas:1"``: answer a change to keys, plans or accounts once this many
            replicas have acknowledged it; otherwise the call fails and can be repeated. Only with
            Sentinels. None: a primary that is lost may lose changes that no replica had.

    Raises:
        ConfigurationError: the URL cannot be read, two clients have the same I/O mode, or the
            prefix or durability is malformed.
    """

    def __init__(
        self,
        *sources: Client | str,
        prefix: str = DEFAULT_PREFIX,
        durability: str | None = None,
    ) -> None:
        self._names = Names(prefix)
        self.system = "redis"
        self.enforces_deadline = True
        adviser, servers = Adviser("Redis", advice), servers_of(sources)
        replicas = _replicas(durability)
        self._watches: list[Watch] = []
        self._eviction = EvictionCheck()
        self._losses = LossReport(self._forget_lost)
        self._pipelines = Pipelines()

        def factory(reached: Servers) -> Callable[..., RedisClient]:
            if replicas and reached.kind != "sentinel":
                raise ConfigurationError("durability is for a Redis that Sentinels watch.")
            reached = reached._replace(greet=self._eviction.greet, sizes=self._pipelines)
            if reached.kind == "sentinel":
                watch = Watch(reached, replicas, self._names.acknowledged)
                self._watches.append(watch)
                return partial(SentinelClient, reached, adviser, watch)
            if reached.kind == "cluster":
                return partial(ClusterClient, reached, adviser, SeedNodes(reached.addresses))
            return partial(RedisClient, reached, adviser)

        blocking, awaiting = (None if each is None else factory(each) for each in servers)
        self.clients = _clients(blocking, awaiting)
        self._recalls = Recalls(
            self._names, _clients(blocking, awaiting, patience=WAITED), self.now
        )
        self.io: IoMode = self.clients.io
        self._key_hints = BoundedDict[str, KeyHint](AT_MOST)
        self._entered = BoundedDict[tuple[bytes, str], None](_ENTERED_AT_MOST)
        self._nodes = CircuitBreakers(type(self).__name__)
        self._is_cluster = any(each is not None and each.kind == "cluster" for each in servers)

    def watch(self, events: Events, deadline: float) -> bool:
        self._eviction.watch(events)
        events.metrics.pipelines = self._pipelines
        if self._is_cluster:
            self._nodes.watch(events, deadline)
        return self._is_cluster

    async def warnings(self) -> Sequence[StoreWarning]:
        found: list[StoreWarning] = []
        try:
            for server, pipeline in (await self.clients.here().by_server()).items():
                found += await warnings_of(server, pipeline.reply)
        except RedisError as failure:
            reraise(failure)
        return found if await self._may_hold_keys() else [*found, NO_KEYS]

    async def _may_hold_keys(self) -> bool:
        """Return whether there is an organization, or too much else to look for one."""
        cursor: str | None = None
        for _ in range(_LOOKS):
            try:
                places, cursor = await self._scan(cursor)
            except StoreError:
                return True  # As without the right to scan.
            if places or cursor is None:
                return bool(places)
        return True

    async def ready(self) -> None:
        await self.now()
        for pipeline in (await self.clients.here().by_server()).values():
            answer = await pipeline.ask(command(0, b"SCRIPT", b"LOAD", ADMIT.body))
            # Without that right the first admission sends the script itself.
            if isinstance(answer, Exception) and not isinstance(answer, NoPermissionError):
                reraise(answer)

    async def now(self) -> int:
        client, failing = self.clients.here(), self._nodes.failing
        slots = (slot for slot in _CLOCKS if not failing or client.node(slot) not in failing)
        return await self._time(next(slots, 0))

    def recalls(self) -> AsyncGenerator[str | None]:
        return self._recalls.received()

    def _forget_lost(self) -> None:
        """Drop what this process remembers, after Redis lost its data."""
        self._key_hints.clear()
        self._latest_counter = None

    def reset_connections(self) -> None:
        self.clients.here().reset_connections()

    async def close(self) -> None:
        await self._recalls.close()
        await self.clients.close()
        if self.clients.blocking is not None:
            await self.clients.blocking.close()
        for watch in self._watches:
            watch.close()

    async def _ask(self, call: Call, organization: str | None = None) -> Any:
        client, nodes = self.clients.here(), self._nodes
        node, trying = "", False
        if nodes.failing:
            nodes.prune(client.nodes)
            node = client.node(call.slot)
            trying = nodes.enter(node)
        asked_at = monotonic()
        try:
            reply = await client.ask(call)
            if isinstance(reply, Exception):
                reply = await client.retry(call, reply)
        except BaseException as failure:
            self._report_failure(client, call, failure, asked_at, node if trying else None)
            if isinstance(failure, Exception):
                place = None if organization is None else self._names.place(organization)
                reraise(failure, organization, place and place.removal)
            raise
        if nodes.failing:
            nodes.succeeded(node, trying)
        return reply


def _clients(
    blocking: Callable[..., RedisClient] | None,
    awaiting: Callable[..., RedisClient] | None,
    patience: float = 0,
) -> PerLoop[RedisClient]:
    """Return the clients of a store: one for threads, and one for each event loop."""
    return PerLoop(
        None if blocking is None else blocking(awaiting=False, patience=patience),
        None if awaiting is None else partial(awaiting, awaiting=True, patience=patience),
    )


def _replicas(durability: str | None) -> int:
    """Return how many replicas have to acknowledge a change."""
    if durability is None:
        return 0
    found = _DURABILITY.fullmatch(durability)
    if found is None:
        raise ConfigurationError(f"The durability {durability!r} is not like 'replicas:1'.")
    return int(found[1])
