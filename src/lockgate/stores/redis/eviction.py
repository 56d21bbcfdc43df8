"""Eviction: warn of servers that drop keys when their memory is full.

A Redis with a memory limit and another policy than ``noeviction`` deletes keys without an error.
With a ``volatile-`` policy these are windows, job slots and the copies of a pair; with an
``allkeys-`` policy API keys and plans as well. A window that is gone begins anew, so more than the
limit is admitted without any failure: hence the settings are read on each new connection.
"""

import logging
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, cast

from redis.exceptions import ResponseError

from ...events import Events
from .transport.config import ask

logger: Final = logging.getLogger("lockgate")


class MemoryPolicy(NamedTuple):
    """The memory settings of one server."""

    server: str
    """``host:port``, or the path of a Unix socket."""
    maxmemory: int | None
    """Bytes; 0: no limit; None: this user may not read it."""
    policy: str | None
    """``maxmemory-policy``; None: this user may not read it."""

    @property
    def evicts(self) -> bool | None:
        """Whether the server drops keys when its memory is full; None: not known."""
        if self.policy is None:
            return None
        return self.policy != "noeviction" and self.maxmemory != 0


class EvictionCheck:
    """Reads the memory settings of a server on each connection, and warns if it evicts keys.

    Each server and policy is warned of once per store, in the log and as the event
    ``redis_evicts``.
    """

    def __init__(self) -> None:
        self._watching: tuple[Events, ...] = ()
        self._found: dict[str, MemoryPolicy] = {}
        self._warned: set[tuple[str, str | None]] = set()

    @property
    def found(self) -> tuple[MemoryPolicy, ...]:
        """The settings of each server as of the latest connection to it."""
        return tuple(self._found.values())

    def watch(self, events: Events) -> None:
        """Emit the event from now on, and at once for servers that are known to evict."""
        self._watching = *self._watching, events
        for found in self.found:
            if found.evicts:
                _emit(events, found)

    async def greet(self, connection: Any) -> None:
        """Read the settings over a connection of redis-py's that has logged in.

        On a blocking connection this never suspends.

        Raises:
            ConnectionError, TimeoutError: the connection failed.
        """
        found = MemoryPolicy(_name(connection), *await _read(connection))
        self._found[found.server] = found
        if not found.evicts or (found.server, found.policy) in self._warned:
            return
        self._warned.add((found.server, found.policy))
        logger.warning(
            "Redis at %s evicts keys when its memory is full (maxmemory %s, maxmemory-policy %s), "
            "so limits are exceeded and job slots are lost without an error: set maxmemory-policy "
            "noeviction and give it enough memory.",
            *(found.server, found.maxmemory, found.policy),
        )
        for events in self._watching:
            _emit(events, found)


def _emit(events: Events, found: MemoryPolicy) -> None:
    server, maxmemory, policy = found
    events.emit("redis_evicts", server=server, policy=policy, maxmemory=maxmemory)


async def _read(connection: Any) -> tuple[int | None, str | None]:
    """Return ``maxmemory`` and ``maxmemory-policy``, each None where no command may tell it.

    Managed services tend to forbid ``CONFIG``, so ``INFO`` is asked first.
    """
    for words in (("INFO", "memory"), ("CONFIG", "GET", "maxmemory*")):
        try:
            reply = await ask(connection, *words)
        except ResponseError:  # A missing right, or a renamed command.
            continue
        fields = _fields_of(reply)
        maxmemory, policy = fields.get("maxmemory", ""), fields.get("maxmemory_policy")
        if maxmemory.isdigit() and policy:
            return int(maxmemory), policy
    return None, None


def _fields_of(reply: object) -> Mapping[str, str]:
    """Return the fields of either reply, under the names of ``INFO``."""
    if isinstance(reply, bytes):
        lines = (line.partition(":") for line in reply.decode().splitlines())
        return {name: value for name, _, value in lines}
    words = [word.decode() for word in cast(list[bytes], reply)]
    names = [word.replace("-", "_") for word in words[::2]]
    return dict(zip(names, words[1::2], strict=True))


def _name(connection: Any) -> str:
    path: str | None = getattr(connection, "path", None)
    return path or f"{connection.host}:{connection.port}"
