"""Advice for the log on failures of Redis, and on data that it lost.

It never quotes an error of the server, which may quote the command that it was sent.
"""

import logging
from collections.abc import Callable
from math import inf
from socket import gaierror
from ssl import SSLError
from time import monotonic
from typing import Final

from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    MovedError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
)

from ...errors import StoreUnavailable

logger: Final = logging.getLogger("lockgate")

_SAME_LOSS: Final = 60.0
"""Seconds after a report for which calls that were under way may notice the same loss."""
_LOSS: Final = (
    "Redis has lost data that it had before: keys made since an earlier state get 401, and "
    "revocations, plans and counts since then may be undone. Restore the latest backup, or move "
    "the callers to new keys; revoke again the keys that were revoked lately; and set appendonly "
    "yes. Causes: FLUSHALL, a restart without persistence, an older backup, eviction, or a replica "
    "that lagged behind its primary."
)
_COPIES_LOST: Final = (
    "Redis has lost data that it had before: the counts of the present windows begin anew, so an "
    "organization may use its limits once more. Keys and plans are in the database, and are copied "
    "again. Causes: FLUSHALL, a restart, eviction, or a replica that lagged behind its primary."
)
_LOGIN: Final = "it rejects this user and password: check both in the store's URL"
_RIGHTS: Final = "this user lacks a right: grant the rights listed in docs/redis.md"
_FULL: Final = "its memory is full: raise maxmemory"
_READ_ONLY: Final = "it is a replica: use the primary, or let Sentinels name it (redis+sentinel://)"
_NODE: Final = "it is a node of a Cluster: use redis+cluster:// in the store's URL"
_NO_CLUSTER: Final = "it is no Cluster: use redis:// in the store's URL"
_SLOTS: Final = "its Cluster does not serve every slot: see 'redis-cli --cluster check'"
_DATABASE: Final = "it has no such database: see the number at the end of the store's URL"
_DISK: Final = "it cannot write to its disk, and takes no changes until it can: see its log"
_REPLICAS: Final = "it has fewer replicas than min-replicas-to-write: check the replicas"
_STARTING: Final = "it is loading its data: wait"
_CROWDED: Final = "it has no connection left: raise maxclients or use fewer processes"
_COMMAND: Final = (
    "it lacks a command that lockgate needs: use Redis 6.2 or later, or Valkey, and not the port "
    "of a Sentinel"
)
_SENTINELS: Final = (
    "no Sentinel that answers knows this service: check hosts, ports and the service's name in the "
    "store's URL"
)
_TOO_FEW: Final = (
    "fewer than half of its Sentinels answer, or they do not agree: check that they run and can be "
    "reached from here at the addresses that they announce"
)
_REPLACED: Final = "its Sentinels are putting another server in its place: wait"
_DURABILITY: Final = (
    "fewer replicas acknowledge a change than durability= asks for: check the replicas"
)
_TLS: Final = (
    "the TLS handshake failed: check its certificate and the options ssl_... of the store's URL"
)
_NO_SERVER: Final = (
    "no server answers there: check host and port in the store's URL, that it runs, and that it "
    "speaks TLS if the URL says rediss"
)
_NO_REDIS: Final = (
    "it does not answer by Redis's protocol: use rediss:// in the store's URL if its port speaks "
    "TLS, otherwise check host and port, and its log"
)
_TOO_SLOW: Final = (
    "it accepts no connection in time: check host and port in the store's URL, that it speaks TLS "
    "if the URL says rediss, whether it is overloaded, and what filters packets on the way"
)

_BY_KIND: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (AuthenticationError, _LOGIN),
    (NoPermissionError, _RIGHTS),
    (OutOfMemoryError, _FULL),
    (ReadOnlyError, _READ_ONLY),
    (MovedError, _NODE),
    (ClusterDownError, _SLOTS),
    (BusyLoadingError, _STARTING),
    (SSLError, _TLS),
    (ConnectionRefusedError, _NO_SERVER),
    (gaierror, _NO_SERVER),
)
# For these redis-py has no class.
_BY_WORDS: Final = (
    ("cluster support disabled", _NO_CLUSTER),
    ("DB index is out of range", _DATABASE),
    ("MISCONF", _DISK),
    ("NOREPLICAS", _REPLICAS),
    ("max number of clients", _CROWDED),
    ("unknown command", _COMMAND),
    ("Timeout connecting", _TOO_SLOW),
    ("first call had no answer", _NO_REDIS),
    ("Protocol error", _NO_REDIS),
    ("No Sentinel knows", _SENTINELS),
    ("Too few Sentinels", _TOO_FEW),
    ("Too few replicas", _DURABILITY),
)


def advice(failure: BaseException) -> str | None:
    """Return advice on a failure, as the end of a sentence, or None."""
    seen: BaseException | None = failure
    while seen is not None:
        for kind, what in _BY_KIND:
            if isinstance(seen, kind):
                return what
        if isinstance(seen, RedisError):
            text = str(seen)
            for words, what in _BY_WORDS:
                if words in text:
                    return what
        seen = seen.__cause__ or seen.__context__
    return _REPLACED if isinstance(failure, StoreUnavailable) else None


class LossReport:
    """Logs each loss of Redis's data once.

    Args:
        forget: drops what this process remembers of the lost data, so that it is not noticed as
            another loss.
    """

    def __init__(self, forget: Callable[[], object]) -> None:
        self.holds_copies = False
        """Whether this process uses the store as the cache of a pair: copies are filled again."""
        self._forget: Final = forget
        self._reported_at = -inf

    def report(self) -> None:
        """Log the loss, unless it was logged just before."""
        self._forget()
        now = monotonic()
        if now - self._reported_at < _SAME_LOSS:
            return
        self._reported_at = now
        if self.holds_copies:
            logger.warning("%s", _COPIES_LOST)
        else:
            logger.error("%s", _LOSS)
