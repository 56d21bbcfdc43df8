"""Server settings under which a guarantee fails without an error: eviction, persistence, clock.

A Redis with a memory limit and another policy than ``noeviction`` deletes keys without an error.
With a ``volatile-`` policy these are windows, concurrency slots and the copies of a cache; with an
``allkeys-`` policy API keys and plans as well. An evicted window restarts empty, so more than the
limit is admitted without any failure: hence the policy is read on each new connection. The other
settings are read by :meth:`~lockgate.stores.base.Store.warnings`.
"""

import logging
import time
from collections.abc import Mapping
from typing import Final, NamedTuple, cast

from redis.exceptions import ResponseError

from ...events import Events
from ..base import StoreWarning
from .transport.config import Ask

logger: Final = logging.getLogger("lockgate")

_CLOCK_OFFSET: Final = 1.0
"""Seconds by which a server's clock may differ from the process's without a warning."""


class MemoryPolicy(NamedTuple):
    """The memory settings of one server."""

    server: str
    """``host:port``, or the path of a Unix socket."""
    maxmemory: int | None
    """Bytes; 0: no limit; None: this user may not read it."""
    policy: str | None
    """``maxmemory-policy``; None: this user may not read it."""

    @property
    def evicts(self) -> bool:
        """Whether the server is known to drop keys when its memory is full."""
        return self.policy not in {None, "noeviction"} and self.maxmemory != 0

    @property
    def advice(self) -> str | None:
        """The warning, as a sentence; None: the server does not evict keys."""
        server, maxmemory, policy = self
        if policy is None:
            return (
                f"Redis at {server} does not tell this user its maxmemory-policy: grant the right "
                "+info or +config|get, and check that the policy is noeviction."
            )
        if not self.evicts:
            return None
        return (
            f"Redis at {server} evicts keys when its memory is full (maxmemory {maxmemory}, "
            f"maxmemory-policy {policy}), so limits are exceeded and job slots are lost without an "
            "error: set maxmemory-policy noeviction and give it enough memory."
        )


class EvictionCheck:
    """Reads the memory settings of a server on each connection, and warns if it evicts keys.

    Each server and policy is warned of once per store, in the log and as the event
    ``redis_evicts``.
    """

    def __init__(self) -> None:
        self._watching: tuple[Events, ...] = ()
        self._found: dict[str, MemoryPolicy] = {}
        self._warned: set[tuple[str, str | None]] = set()

    def watch(self, events: Events) -> None:
        """Emit the event from now on, and at once for servers that are known to evict."""
        self._watching = *self._watching, events
        for found in list(self._found.values()):
            if found.evicts:
                _emit(events, found)

    async def greet(self, server: str, ask: Ask) -> None:
        """Read the settings over a new connection to a server.

        Raises:
            ConnectionError, TimeoutError: the connection failed.
        """
        found = await _memory_policy(server, ask)
        self._found[found.server] = found
        if not found.evicts or (found.server, found.policy) in self._warned:
            return
        self._warned.add((found.server, found.policy))
        logger.warning("%s", found.advice)
        for events in self._watching:
            _emit(events, found)


async def warnings_of(server: str, ask: Ask) -> list[StoreWarning]:
    """Read the settings of one server and return a warning for each that breaks a guarantee.

    Args:
        server: its name in the warnings.
        ask: sends it a command.

    Raises:
        RedisError, OSError: the server did not answer. A missing right is no error.
    """
    eviction = (await _memory_policy(server, ask)).advice
    found = [] if eviction is None else [StoreWarning("eviction", eviction)]
    if await _lacks_persistence(ask):
        found.append(
            StoreWarning(
                "persistence",
                f"Redis at {server} keeps nothing on its disk (appendonly no and no save), so a "
                "restart loses every key, plan and revocation: set appendonly yes.",
            )
        )
    offset = await _clock_offset(ask)
    if abs(offset) > _CLOCK_OFFSET:
        text = (
            f"The clock of Redis at {server} is {abs(offset):.1f} s "
            f"{'ahead of' if offset > 0 else 'behind'} this process's: limits and expiries go by "
            "Redis's clock and sessions by the process's, so synchronize both, as with NTP."
        )
        found.append(StoreWarning("clock", text))
    return found


async def _memory_policy(server: str, ask: Ask) -> MemoryPolicy:
    """Read ``maxmemory`` and ``maxmemory-policy``.

    Managed services tend to forbid ``CONFIG``, so ``INFO`` is asked first.
    """
    for words in (("INFO", "memory"), ("CONFIG", "GET", "maxmemory*")):
        fields = await _fields(ask, *words)
        maxmemory, policy = fields.get("maxmemory", ""), fields.get("maxmemory_policy")
        if maxmemory.isdigit() and policy:
            return MemoryPolicy(server, int(maxmemory), policy)
    return MemoryPolicy(server, None, None)


async def _lacks_persistence(ask: Ask) -> bool:
    """Return whether a server is known to write neither a log nor snapshots."""
    log = await _fields(ask, "INFO", "persistence")
    if log.get("aof_enabled") != "0":
        return False
    return (await _fields(ask, "CONFIG", "GET", "save")).get("save") == ""


async def _clock_offset(ask: Ask) -> float:
    """Return the seconds by which a server's clock is surely ahead of this process's; negative:
    behind. The time that the answer took counts for neither."""
    asked_at = time.time()
    seconds, micros = await ask("TIME")
    answered_at = time.time()
    shown = int(seconds) + int(micros) / 1e6
    return max(shown - answered_at, min(shown - asked_at, 0.0))


async def _fields(ask: Ask, *words: str) -> Mapping[str, str]:
    """Return the fields of an ``INFO`` or ``CONFIG GET``, under the names of ``INFO``; none if this
    user lacks the right or the command is renamed."""
    try:
        reply = await ask(*words)
    except ResponseError:
        return {}
    if isinstance(reply, bytes):
        lines = (line.partition(":") for line in reply.decode().splitlines())
        return {name: value for name, _, value in lines}
    values = [value.decode() for value in cast(list[bytes], reply)]
    names = [value.replace("-", "_") for value in values[::2]]
    return dict(zip(names, values[1::2], strict=True))


def _emit(events: Events, found: MemoryPolicy) -> None:
    server, maxmemory, policy = found
    events.emit("redis_evicts", server=server, policy=policy, maxmemory=maxmemory)
