"""Recalls of quota leases in Redis: a stream, whose latest entries each process waits for (D42)."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final

from redis.exceptions import RedisError

from ...core.quota_leases import LONGEST
from ...core.timestamps import MILLISECOND
from ..runtime.per_loop import PerLoop
from .key_names import Names, read, slot_of, write
from .transport.client import RedisClient
from .transport.commands import Call, command
from .transport.failures import reraise

WAITED: Final = 5
"""Seconds for which Redis waits for a recall before it answers that there was none."""
_KEPT: Final = b"100"
"""Recalls that stay in the stream, or a few more. A process reads them within milliseconds."""


class Recalls:
    """The stream of recalls.

    Args:
        names: the names of the store.
        clients: makes the calls that wait, on connections that carry no other calls.
        now: reads the server's clock.
    """

    def __init__(
        self, names: Names, clients: PerLoop[RedisClient], now: Callable[[], Awaitable[int]]
    ) -> None:
        self._name: Final = names.recalls
        self._slot: Final = slot_of(names.recalls)
        self._clients: Final = clients
        self._now: Final = now

    def recall(self, organization: str) -> Call:
        """Return the call that sends a recall."""
        kept = b"MAXLEN", b"~", _KEPT
        entry = b"*", b"organization", write(organization)
        return command(self._slot, b"XADD", self._name, *kept, *entry)

    async def received(self) -> AsyncGenerator[str | None]:
        """Yield recalls: see :meth:`~lockgate.stores.base.Store.recalls`."""
        after = await self._lately()
        while True:
            # Streams of before a loss of data may have had later entries than the present one.
            entries = await self._after(after)
            after = entries[-1][0] if entries else await self._lately()
            if not entries:
                yield None
            for _, fields in entries:
                yield read(fields[1])

    async def _lately(self) -> bytes:
        """Return the id that a recall had which no lease can have outlasted: ids begin with the
        milliseconds of the server's clock."""
        return b"%d" % max(0, (await self._now() - LONGEST) // MILLISECOND)

    async def _after(self, id: bytes) -> list[Any]:
        waits = b"BLOCK", b"%d" % (WAITED * 1000)
        call = command(self._slot, b"XREAD", *waits, b"STREAMS", self._name, id)
        client = self._clients.here()
        try:
            reply = await client.ask(call)
            if isinstance(reply, Exception):
                reply = await client.retry(call, reply)
        except RedisError as failure:
            reraise(failure)
        return [] if reply is None else reply[0][1]

    async def close(self) -> None:
        """End the calls that wait, in this event loop or in threads, and close the connections."""
        threads = self._clients.blocking
        if threads is not None:
            for pipeline in threads.pipelines():
                pipeline.abort()
        if self._clients.here() is not threads:
            await self._clients.close()
