"""What to do about a server that refuses, in words of ours: its own may show what it was sent."""

from socket import gaierror
from ssl import SSLError
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

_LOGIN: Final = "it does not take this user with this password: see both in the store's URL"
_RIGHTS: Final = "this user may not do that: give it the rights that docs/redis.md lists"
_FULL: Final = "its memory is full: let it have more (maxmemory)"
_READ_ONLY: Final = (
    "it is a replica: use the primary, or have Sentinels name it (redis+sentinel://)"
)
_NODE: Final = "it is a node of a Cluster: use redis+cluster:// in the store's URL"
_NO_CLUSTER: Final = "it is no Cluster: use redis:// in the store's URL"
_SLOTS: Final = "its Cluster does not serve every slot: see 'redis-cli --cluster check'"
_DATABASE: Final = "it has no such database: see the number at the end of the store's URL"
_DISK: Final = "it cannot write to its disk, and takes no changes until it can: see its log"
_REPLICAS: Final = "it has fewer replicas than min-replicas-to-write: see to them"
_STARTING: Final = "it is loading its data: wait"
_CROWDED: Final = "it has no connection left: let it have more (maxclients), or use fewer processes"
_COMMAND: Final = (
    "it does not know a command that we need: use Redis 6.2 or later, or Valkey, and not the port "
    "of a Sentinel"
)
_SENTINELS: Final = (
    "no Sentinel that answers knows this service: see hosts, ports and the service's name in the "
    "store's URL"
)
_TOO_FEW: Final = (
    "fewer than half of its Sentinels answer, or they do not agree: see that they run, and that "
    "they can be reached from here at the addresses that they announce"
)
_REPLACED: Final = "its Sentinels are putting another server in its place: wait"
_DURABILITY: Final = "fewer replicas acknowledge a change than durability= asks for: see to them"
_NO_COPIES: Final = (
    "it has keys under these names that are no copies of the database's: give the pair's "
    "RedisStore a prefix of its own, or empty that Redis if nobody needs them"
)
_TLS: Final = (
    "TLS does not come about: see its certificate and the options ssl_... of the store's URL"
)
_NOBODY: Final = (
    "nobody answers there: see host and port in the store's URL, that it runs, and that it speaks "
    "TLS if the URL says rediss"
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
    (ConnectionRefusedError, _NOBODY),
    (gaierror, _NOBODY),
)
# Of these redis-py has no kinds.
_BY_WORDS: Final = (
    ("cluster support disabled", _NO_CLUSTER),
    ("DB index is out of range", _DATABASE),
    ("MISCONF", _DISK),
    ("NOREPLICAS", _REPLICAS),
    ("max number of clients", _CROWDED),
    ("unknown command", _COMMAND),
    ("keys that are no copies", _NO_COPIES),
    ("Timeout connecting", _NOBODY),
    ("No Sentinel knows", _SENTINELS),
    ("Too few Sentinels", _TOO_FEW),
    ("Too few replicas", _DURABILITY),
)


def advice(failure: BaseException) -> str | None:
    """What to do about a failure, as the end of a sentence; None: nothing is known of it."""
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
