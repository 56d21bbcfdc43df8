"""What stands before a store on the way of requests: a guard, and a memory for refusals (D28)."""

from ..events import Events
from .contract import Store
from .deadlines import DEADLINE
from .denials import Remembering
from .fallback import LocalLimits
from .guarded import Guarded, Resilient
from .halves import Cache, Truth
from .paired import Paired
from .straight import Straight
from .wrapping import passed


class _GuardedTruth(Guarded, Truth):
    changes = passed(Truth.changes)


class _GuardedCache(Guarded, Cache):
    inner: Cache

    @property
    def served_by(self) -> object:
        return self.inner.served_by

    fence = passed(Cache.fence)
    install = passed(Cache.install)
    forget = passed(Cache.forget)
    caught_up = passed(Cache.caught_up)
    catch_up = passed(Cache.catch_up)


def resilient(
    store: Store, events: Events, limits: LocalLimits, deadline: float = DEADLINE
) -> Store:
    """A store, fit to stand on the way of requests: guarded, and with a memory for refusals.

    One that keeps everything in this process needs neither and is given back as it is.
    """
    if store.io == "none":
        return store
    if isinstance(store, Paired):
        # The cache has half of the time, so that there is some left to do without it.
        truth = _GuardedTruth(store.truth, events, deadline)
        cache = _GuardedCache(store.cache, events, deadline / 2)
        return Remembering(Paired(truth, cache, limits), limits, deadline=deadline)
    guarded = Resilient(store, events, limits, deadline)
    kind = Straight if store.keeps_time else Remembering
    return kind(guarded, limits, deadline=deadline)
