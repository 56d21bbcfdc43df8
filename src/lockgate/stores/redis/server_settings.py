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
from ..answers import StoreWarning, clock_warnings
from .transport.config import Ask

logger: Final = logging.getLogger("lockgate")


_FULL_FROM: Final = 0.9
"""The part of ``maxmemory`` from which on a server is about to be full."""


class MemoryPolicy(NamedTuple):
    """The memory settings of one server."""

    server: str
    """``host:port``, or the path of a Unix socket."""
    maxmemory: int | None
    """Bytes; 0: no limit; None: this user may not read it."""
    policy: str | None
    """``maxmemory-policy``; None: this user may not read it."""
    used: int | None = None
    """Bytes in use; None: this user may not read them."""

    @property
    def evicts(self) -> bool:
        """Whether the server is known to drop keys when its memory is full."""
        return self.policy not in {None, "noeviction"} and self.maxmemory != 0

    @property
    def advice(self) -> str | None:
        """The warning, as a sentence; None: the server does not evict keys."""
        server, maxmemory, policy, _ = self
        if policy is None:
            return (
                f"Redis at {server} does not tell this user its maxmemory-policy: grant the right "
                "+info or +config|get, and check that the policy is noeviction."
            )
        if not self.evicts:
            return None
        return (
            f"Redis at {server} evicts keys when its memory is full (maxmemory {maxmemory}, "
            f"maxmemory-policy {policy}), so limits are exceeded and {self._lost} are lost without "
            "an error: set maxmemory-policy noeviction and give it enough memory."
        )

    @property
    def _lost(self) -> str:
        if str(self.policy).startswith("allkeys-"):
            return "API keys, plans and job slots"
        return "job slots"

    @property
    def shortage(self) -> str | None:
        """The warning that little memory is left, as a sentence; None: there is enough."""
        if not self.maxmemory or self.used is None or self.used < _FULL_FROM * self.maxmemory:
            return None
        return (
            f"Redis at {self.server} uses {self.used} of maxmemory {self.maxmemory} bytes: once it "
            "is full it refuses writes, or evicts keys, so raise maxmemory."
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
    memory = await _memory_policy(server, ask)
    found = [] if memory.advice is None else [StoreWarning("eviction", memory.advice)]
    if memory.shortage is not None:
        found.append(StoreWarning("memory", memory.shortage))
    if await _lacks_persistence(ask):
        found.append(
            StoreWarning(
                "persistence",
                f"Redis at {server} keeps nothing on its disk (appendonly no and no save), so a "
                "restart loses every key, plan and revocation: set appendonly yes.",
            )
        )
    asked_at = time.time()
    seconds, micros = await ask("TIME")
    shown = int(seconds) + int(micros) / 1e6
    return [*found, *clock_warnings(f"Redis at {server}", asked_at, shown, time.time())]


async def _memory_policy(server: str, ask: Ask) -> MemoryPolicy:
    """Read ``maxmemory`` and ``maxmemory-policy``.

    Managed services tend to forbid ``CONFIG``, so ``INFO`` is asked first.
    """
    for words in (("INFO", "memory"), ("CONFIG", "GET", "maxmemory*")):
        fields = await _fields(ask, *words)
        maxmemory, policy = fields.get("maxmemory", ""), fields.get("maxmemory_policy")
        if maxmemory.isdigit() and policy:
            used = fields.get("used_memory", "")
            return MemoryPolicy(server, int(maxmemory), policy, int(used) if used else None)
    return MemoryPolicy(server, None, None)


async def _lacks_persistence(ask: Ask) -> bool:
    """Return whether a server is known to write neither a log nor snapshots."""
    log = await _fields(ask, "INFO", "persistence")
    if log.get("aof_enabled") != "0":
        return False
    return (await _fields(ask, "CONFIG", "GET", "save")).get("save") == ""


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
    server, maxmemory, policy, _ = found
    events.emit("redis_evicts", server=server, policy=policy, maxmemory=maxmemory)
