"""The client of a server that Sentinels watch: calls go to the primary that most of them name."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from redis.exceptions import ConnectionError, ReadOnlyError, RedisError

from ....errors import StoreUnavailable
from ...answers import StoreError
from ...resilience.deadlines import Overdue
from ...runtime.log_hints import Adviser
from .client import RedisClient
from .commands import Call
from .config import Endpoint, Servers, name_of
from .failures import NotSent, Reply, is_short_of_replicas, reraise
from .pipeline import Pipeline
from .sentinels import Primary, Watch, clock

T = TypeVar("T")


class SentinelClient(RedisClient):
    """Makes calls to the primary that Sentinels name, and to no other server.

    Args:
        servers: how to connect.
        adviser: logs what to do when a server refuses.
        watch: follows the Sentinels.
        awaiting: whether callers await.
    """

    def __init__(
        self,
        servers: Servers,
        adviser: Adviser,
        watch: Watch,
        *,
        awaiting: bool,
        patience: float = 0,
    ) -> None:
        self._watch = watch
        self._primary: Primary | None = None
        """Where the pipeline goes to."""
        super().__init__(servers, adviser, awaiting=awaiting, patience=patience)

    def _begin(self) -> None:
        self._pipeline = self._new_pipeline(self._dial)
        self.ask = self._ask

    def _dial(self) -> Endpoint:
        assert self._primary is not None, "a call is sent once it was found"
        return self._servers.endpoint(self._primary.address, is_primary=True)

    def _ask(self, call: Call) -> Awaitable[Reply]:
        watch = self._watch
        if watch.primary is self._primary and clock() < watch.until:
            return self._pipeline.ask(call)
        return self._find_and_ask(call)

    async def _find_and_ask(self, call: Call) -> Reply:
        waits = self._watch.is_replacing
        try:
            await self._find()
        except (RedisError, OSError, StoreUnavailable) as failure:
            return failure
        try:
            reply = await self._pipeline.ask(call)
        except Overdue as failure:
            if waits:  # For another primary: that a call has little time left says nothing of it.
                raise StoreUnavailable from failure
            raise
        return StoreUnavailable() if waits and isinstance(reply, NotSent) else reply

    async def _find(self, *, anew: bool = False) -> Primary:
        primary = await self._watch.named(awaiting=self._awaiting, anew=anew)
        self._watch.notify(self)
        if primary is not self._primary:
            self._primary = primary
            self._pipeline.reconnect()
        return primary

    async def tell(self, call: Call) -> None:
        with suppress(RedisError, OSError, StoreUnavailable):  # The next call meets the same.
            await self._find()
            self._pipeline.tell(call)

    async def by_server(self) -> Mapping[str, Pipeline]:
        try:
            return {name_of((await self._find()).address): self._pipeline}
        except RedisError as failure:
            reraise(failure)

    def replaced(self) -> None:
        """Fail the calls under way: the primary is another server now. Any thread may call it."""
        self._pipeline.abort()

    async def _relearn(self, failure: Exception) -> bool:
        before = self._primary
        if await self._find(anew=True) is not before:
            return True
        if isinstance(failure, ConnectionError | ReadOnlyError):
            self._pipeline.reconnect(elsewhere=False)
        return not isinstance(failure, NotSent) and not is_short_of_replicas(failure)

    async def confirmed(self, change: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Make a change on the primary that Sentinels name just now, and return its value once they
        still name it.

        Raises:
            StoreUnavailable: they are replacing it, or name another, so the change may be lost.
            ConnectionError: too few Sentinels answer.
        """
        try:
            primary = await self._find(anew=True)
            value = await change()
            await self._watch.kept(primary, awaiting=self._awaiting)
        except (RedisError, OSError, StoreError, StoreUnavailable) as failure:
            self._adviser.hint(failure)
            reraise(failure)
        return value

    @property
    def served_by(self) -> object:
        """The primary that Sentinels named last, or a word for none so far."""
        return self._watch.primary or "unknown"
