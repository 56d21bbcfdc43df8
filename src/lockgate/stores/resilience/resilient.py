"""What stands before a store on the way of requests: a guard, and a memory for refusals (D28)."""

from ...events import Events
from ..base import Store
from ..cached.base import CacheStore, PrimaryStore
from ..cached.store import CachedStore
from .deadlines import DEADLINE
from .guarded import Guarded, Resilient
from .local_limits import LocalLimits
from .refusal_cache import RefusalCache
from .straight import Straight
from .wrapping import passed


class _GuardedTruth(Guarded, PrimaryStore):
    changes = passed(PrimaryStore.changes)


class _GuardedCache(Guarded, CacheStore):
    inner: CacheStore

    @property
    def served_by(self) -> object:
        return self.inner.served_by

    fill_token = passed(CacheStore.fill_token)
    install = passed(CacheStore.install)
    forget = passed(CacheStore.forget)
    caught_up = passed(CacheStore.caught_up)
    catch_up = passed(CacheStore.catch_up)


def resilient(
    store: Store, events: Events, limits: LocalLimits, deadline: float = DEADLINE
) -> Store:
    """A store, fit to stand on the way of requests: guarded, and with a memory for refusals.

    One that keeps everything in this process needs neither and is given back as it is.
    """
    if store.io == "none":
        return store
    if isinstance(store, CachedStore):
        # The cache has half of the time, so that there is some left to do without it.
        primary = _GuardedTruth(store.primary, events, deadline)
        cache = _GuardedCache(store.cache, events, deadline / 2)
        return RefusalCache(CachedStore(primary, cache, limits), limits, deadline=deadline)
    guarded = Resilient(store, events, limits, deadline)
    kind = Straight if store.enforces_deadline else RefusalCache
    return kind(guarded, limits, deadline=deadline)
