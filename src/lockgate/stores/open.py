"""Open a store by its URL."""

import re
from typing import Final

from ..clock import Clock
from ..core.weak_secrets import refuse_malformed_url
from ..errors import ConfigurationError
from ..events import Events
from .base import KeyStore, PartStore, Store, WindowStore
from .memory.store import MemoryStore
from .resilience.deadlines import DEADLINE, Patience
from .resilience.local_limits import LocalLimits

_SQL: Final = ("sqlite", "postgresql", "postgres", "mysql", "mariadb")
_REDIS: Final = ("redis", "rediss", "unix")
_SERVERS: Final = ("redis+cluster", "redis+sentinel")
"""Schemes of several Redis servers, also with ``rediss``."""
_COMMA: Final = re.compile(r",\s*[a-z+]+://")


def open_store(url: str) -> Store:
    """Open the store that a URL names.

    ``memory://`` keeps everything in this process; ``sqlite:///file.db``,
    ``postgresql://user:password@host/database``, ``mysql://`` and ``mariadb://`` in a database
    (the extra ``lockgate[sql]``); ``redis://host:6379``, ``redis+cluster://host,host`` and
    ``redis+sentinel://host,host/service`` in Redis or Valkey, by TLS as ``rediss``, or
    ``unix:///path`` by a socket of this machine (the extra ``lockgate[redis]``). The first call
    connects. Each call awaits if an event loop runs around it, and blocks otherwise.

    Two URLs with a blank between them, a database and Redis, keep keys in the first and serve
    admissions from the second: see :class:`~lockgate.stores.cached.store.CachedStore`.

    Raises:
        ConfigurationError: the URL names no store, it begins or ends with white space (D53), or its
            driver is not installed; the message never repeats the URL's password.
    """
    refuse_malformed_url(url)
    if _COMMA.search(url):
        raise ConfigurationError(
            "Two URLs have a blank between them, no comma: 'postgresql://host/database redis://host'."
        )
    first, _, second = url.partition(" ")
    if second:
        return _pair(open_store(first), open_store(second.lstrip(" ")))
    scheme, separator, _ = url.partition("://")
    if scheme.endswith(("+redis", "+rediss")):
        raise ConfigurationError(
            "A database with Redis before it is two URLs with a blank between them: "
            "'postgresql://host/database redis://host'."
        )
    kind = scheme.partition("+")[0] if separator else None
    if kind == "memory":
        return MemoryStore()
    if kind in _SQL:
        return _sql(url)
    if kind in _REDIS:
        return _redis(url)
    # Without "://" the text may be a password, so it is not repeated.
    named = f"{scheme}://" if separator else "a text without '://'"
    known = ", ".join(f"{name}://" for name in ("memory", *_SQL, *_REDIS, *_SERVERS))
    raise ConfigurationError(f"No store is known for {named}: use {known}.")


def combine(keys: object, windows: object) -> Store:
    """Return the store of a key store and a window store, or of their URLs.

    A database and Redis become a :class:`~lockgate.stores.cached.store.CachedStore`, as by two URLs
    in one text; any other two a :class:`~lockgate.stores.combined.CombinedStore`.

    Raises:
        ConfigurationError: one is missing or no store, or they do not wait alike.
    """
    first = open_store(keys) if isinstance(keys, str) else keys
    second = open_store(windows) if isinstance(windows, str) else windows
    if not isinstance(first, KeyStore) or not isinstance(second, WindowStore):
        raise ConfigurationError(
            "A store in two parts is keys=, a KeyStore or its URL, and windows=, a WindowStore or "
            f"its URL, not {type(first).__name__} and {type(second).__name__}."
        )
    from .cached.base import CacheStore, PrimaryStore
    from .combined import CombinedStore

    if isinstance(first, PrimaryStore) and isinstance(second, CacheStore):
        return _pair(first, second)
    return CombinedStore(first, second)


def checked(store: object) -> Store:
    """Return a store that a host made itself.

    Raises:
        ConfigurationError: it is no store; the message says how to make one of it.
    """
    if isinstance(store, Store):
        return store
    if isinstance(store, PartStore):
        raise ConfigurationError(
            f"{type(store).__name__} is a part of a store: give the gate the other part as well, "
            "as Gate(keys=..., windows=...)."
        )
    kind = type(store).__name__
    if kind in ("Engine", "AsyncEngine"):
        raise ConfigurationError(f"An {kind} is not a store: give the gate SqlStore(engine).")
    if "session" in kind.lower():
        raise ConfigurationError(
            f"A {kind} is not a store: give the gate SqlStore(engine), with the engine behind it."
        )
    raise ConfigurationError(f"A gate takes a store or its URL as text, not {kind}: see Store.")


def resilient(
    store: Store,
    events: Events,
    limits: LocalLimits,
    deadline: float = DEADLINE,
    patience: Patience | None = None,
    lease: float | None = None,
    clock: Clock | None = None,
) -> Store:
    """Return a store that is fit to serve requests: with a :class:`ResilientStore` around it, and
    with a lease, in seconds, a :class:`LeasingStore` around that.

    A store in this process's memory is returned unchanged.

    Raises:
        ConfigurationError: the deadline or the lease is out of range.
    """
    if isinstance(store, MemoryStore) and store.io == "none" and lease is None:
        return store
    from .cached.store import CachedStore
    from .leasing import LeasingStore
    from .resilience.store import ResilientStore

    if isinstance(store, CachedStore):
        served: Store = store.resilient(events, limits, deadline, patience)
    elif store.io == "none":
        served = store
    else:
        served = ResilientStore(store, events, limits, deadline, patience=patience)
    if lease is None:
        return served
    leasing = LeasingStore(served, lease, clock)
    return store if store.io == "none" else leasing


def _pair(primary: Store, cache: Store) -> Store:
    from .cached.base import CacheStore, PrimaryStore
    from .cached.store import CachedStore

    if not isinstance(primary, PrimaryStore) or not isinstance(cache, CacheStore):
        raise ConfigurationError(
            "Two stores are a database and then Redis: 'postgresql://host/database redis://host'."
        )
    return CachedStore(primary, cache)


def _sql(url: str) -> Store:
    try:
        from .sql import SqlStore
    except ModuleNotFoundError as missing:
        raise ConfigurationError(
            f"A store in SQL needs {missing.name}: pip install 'lockgate[sql]'."
        ) from missing
    return SqlStore(url)


def _redis(url: str) -> Store:
    try:
        from .redis import RedisStore
    except ModuleNotFoundError as missing:
        raise ConfigurationError(
            f"A store in Redis needs {missing.name}: pip install 'lockgate[redis]'."
        ) from missing
    return RedisStore(url)
