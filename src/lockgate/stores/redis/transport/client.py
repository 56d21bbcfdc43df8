"""The client: make calls to the servers of a store, and retry calls that are safe to repeat.

:class:`RedisClient` serves one server. :class:`~.sentinel_client.SentinelClient` and
:class:`~.cluster.ClusterClient` also find the server of each call.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence, Set
from functools import partial, wraps
from time import monotonic
from typing import Any, Final, TypeVar, cast

from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    ConnectionError,
    NoScriptError,
    ReadOnlyError,
    RedisError,
)

from ....errors import StoreUnavailable
from ...resilience.deadlines import left
from ...runtime.log_hints import Adviser
from ...runtime.process_hooks import after_fork_in_child
from .commands import Call, told_in
from .config import Endpoint, Servers
from .failures import Forgotten, Lost, NotSent, Reply, is_short_of_replicas
from .pipeline import AsyncPipeline, BlockingPipeline, Dial, Pipeline

T = TypeVar("T")
V = TypeVar("V", bound=Callable[..., Coroutine[Any, Any, Any]])

_PATIENCE: Final = 0.25
"""Seconds that a call without a deadline waits for a Cluster to put a slot in order, and any call
for a Cluster that is down."""
_SHARE: Final = 0.8
"""The part of a deadline for that: a call that is late would mean that the store hangs."""
_PAUSE: Final = 0.002
_LONGEST_PAUSE: Final = 0.05


class RedisClient:
    """Makes calls to one server, for callers of one I/O mode.

    Args:
        servers: the server's address and settings.
        adviser: logs advice when a server refuses.
        awaiting: whether callers await.
        patience: seconds to wait for an answer beyond those of the settings, for calls that wait.
    """

    ask: Callable[[Call], Awaitable[Reply]]
    """Makes a call for the first time, in as few steps as possible. A reply that is an exception
    has to be handed to :meth:`retry`."""

    def __init__(
        self, servers: Servers, adviser: Adviser, *, awaiting: bool, patience: float = 0
    ) -> None:
        self._servers = servers
        self._patience = patience
        self._adviser = adviser
        self._awaiting = awaiting
        self._begin()
        if not awaiting:  # An event loop does not survive a fork, and its client goes with it.
            after_fork_in_child(self)

    def forked(self) -> None:
        self._begin()  # This closes no connection of the parent.

    def _begin(self) -> None:
        """Begin without connections."""
        self._pipeline = self._new_pipeline(self._dial)
        self.ask = self._pipeline.ask

    def _dial(self) -> Endpoint:
        return self._servers.endpoint()

    def _new_pipeline(self, dial: Dial) -> Pipeline:
        kind = AsyncPipeline if self._awaiting else BlockingPipeline
        return kind(dial, self._servers.timeout + self._patience, self._servers.sizes)

    async def tell(self, call: Call) -> None:
        """Send a call with the next one to its server. Its reply is ignored, and it may be lost."""
        self._pipeline.tell(call)

    def pipelines(self) -> Sequence[Pipeline]:
        """Return every pipeline in use."""
        return (self._pipeline,)

    async def by_server(self) -> Mapping[str, Pipeline]:
        """Return a pipeline to each server that has its own data, by the server's name, in a stable
        order.

        Raises:
            StoreError: the servers are not known.
        """
        return {self._dial().name: self._pipeline}

    async def retry(self, call: Call, reply: Reply) -> Reply:
        """Handle a failed call: retry it where that is safe, and return its reply.

        A call that certainly took no effect is sent again where that may help: if the script is not
        known, the slot has moved, or the server turned out to be a replica. A call that may have
        taken effect is sent again once, if it is repeatable.

        Raises:
            RedisError: the server refused, or no answer came. The log says what to do.
            StoreUnavailable: Sentinels are replacing the server.
        """
        try:
            return await self._retry(call, reply)
        except (RedisError, OSError, StoreUnavailable) as failure:
            self._adviser.hint(failure)
            raise

    async def _retry(self, call: Call, reply: Reply) -> Reply:
        ask, pauses = self.ask, Pauses()
        failed = False
        seen: bytes | None = None
        while True:
            if isinstance(reply, Lost):
                seen, reply = reply.seen if seen is None else seen, reply.cause
            if not isinstance(reply, Exception):
                return reply
            if isinstance(reply, Forgotten):
                for pipeline in self.pipelines():
                    pipeline.reconnect(elsewhere=False)
            if isinstance(reply, NoScriptError) and call.script is not None:
                call = call.whole()
            elif (redirected := await self._redirected(call, reply, pauses)) is not None:
                call, ask = redirected
            elif failed or not _may_repeat(reply, call) or not await self._relearn(reply):
                raise reply.__cause__ if isinstance(reply, NotSent) and reply.__cause__ else reply
            else:
                failed = True
                # Where no reply was lost, it was not sent or took no effect.
                call = call.plain() if seen is None else call.again(told_in(seen))
                ask = self.ask
            reply = await ask(call)

    async def _redirected(
        self, call: Call, failure: Exception, pauses: "Pauses"
    ) -> tuple[Call, Callable[[Call], Awaitable[Reply]]] | None:
        """Return the call to make instead and how; None: no other server was named."""
        return None

    async def _relearn(self, failure: Exception) -> bool:
        """Find out anew where the servers are, after one failed; return whether to try again."""
        if is_short_of_replicas(failure):
            return False
        self._pipeline.reconnect()
        return not isinstance(failure, NotSent)

    async def confirmed(self, change: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Make a change and return its value, only if it is sure to stay, as far as is known.

        Raises:
            StoreUnavailable: it may be lost, or a primary is being replaced.
            StoreError: the server refused, or no answer came.
        """
        return await change()

    @property
    def served_by(self) -> object:
        """Another object after each server that took the place of another; None: there is one."""
        return None

    async def arrangement(self) -> bytes:
        """Return which servers have which slots: other bytes whenever that changes.

        Where one server has everything, whatever was said of its data goes and comes with it.

        Raises:
            StoreError, OSError: no server answered.
        """
        return b""

    def node(self, slot: int) -> str:
        """Return the server of a slot as ``host:port``; empty: not known yet, or there is one."""
        return ""

    def nodes(self) -> Set[str]:
        """Return the servers that have slots; empty: not known yet, or there is one."""
        return frozenset()

    def abandon(self, slot: int) -> None:
        """Use the connection to the server of a slot no more: its calls fail."""
        return

    def reset_connections(self) -> None:
        """Replace all connections; calls that wait for them fail."""
        hanging = self.pipelines()
        self._begin()
        for pipeline in hanging:
            pipeline.abandon()

    async def close(self) -> None:
        """Answer the calls that wait, then close the connections."""
        for pipeline in self.pipelines():
            await pipeline.close()


class Pauses:
    """The pauses of one call while a Cluster puts its slots in order, each twice as long."""

    def __init__(self) -> None:
        seconds = left()
        self._started = monotonic()
        self._patience = _PATIENCE if seconds is None else seconds * _SHARE
        self.number = 0

    def next(self, *, is_down: bool) -> float | None:
        """Return the seconds of the next one; None: the call has waited for long enough.

        Args:
            is_down: whether a node says that the Cluster is down: calls wait for it less long.
        """
        patience = min(_PATIENCE, self._patience) if is_down else self._patience
        if monotonic() - self._started > patience:
            return None
        self.number += 1
        return min(_PAUSE * 2.0**self.number, _LONGEST_PAUSE)


def confirmed(verb: V) -> V:
    """Answer a change only where it is sure to stay: see :meth:`RedisClient.confirmed`.

    Args:
        verb: makes the change: a method of a store with clients.
    """

    @wraps(verb)
    async def answered(store: Any, *args: Any, **kwargs: Any) -> Any:
        client: RedisClient = store.clients.here()
        return await client.confirmed(partial(verb, store, *args, **kwargs))

    return cast(V, answered)


def _may_repeat(failure: Exception, call: Call) -> bool:
    """Return whether a call may be sent again, once: it took no effect, or comes to the same."""
    if isinstance(failure, ReadOnlyError | NotSent) or is_short_of_replicas(failure):
        return True
    refused = isinstance(failure, AuthenticationError | BusyLoadingError)
    return call.repeatable and isinstance(failure, ConnectionError) and not refused
