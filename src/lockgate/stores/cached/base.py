"""The contracts of a primary store and of a cache before it (K5): the docstrings."""

from abc import abstractmethod
from typing import Final, NamedTuple

from ...core.api_keys import ApiKey
from ...core.plans import Organization
from ...core.timestamps import HOUR
from ..base import Store
from ..key_store import urgent

COPIES_LAST: Final = HOUR
"""The longest life of a copy in a cache, in microseconds."""


class Changes(NamedTuple):
    """The answer of :meth:`PrimaryStore.changes`."""

    change_counter: int
    organizations: list[str]


class PrimaryStore(Store):
    """A store that keeps keys and plans while a :class:`CacheStore` serves admissions."""

    @urgent
    @abstractmethod
    async def changes(self, since: int | None) -> Changes:
        """Return the change counter, and the organizations that changed after ``since``.

        The counter is the instant of the latest change in microseconds, by the store's clock, or
        one more than before if that is greater. None: since :data:`COPIES_LAST` ago.
        """


class CacheStore(Store):
    """A store that can stand before a :class:`PrimaryStore`, with copies of its keys and plans.

    Its own verbs then keep windows only. Its ``admit`` treats a copy like a record, and answers
    UNKNOWN without one; the caller then installs a copy and asks again.

    A copy is good while the organization's fill token stands. The token is a random text that never
    returns once it is deleted, by :meth:`forget` or because the cache was flushed: so neither a
    fill that races a revocation (K5) nor a cache that lost its data admits a revoked key.
    """

    def hold_copies(self) -> None:
        """Keep copies from now on, apart from any keys that the store keeps on its own.

        A :class:`~lockgate.stores.cached.store.CachedStore` calls it before any verb.
        """

    @property
    def served_by(self) -> object:
        """Identity token of the servers with the copies, replaced once this process sees a server
        take another's place: it may have missed a :meth:`forget`. None if that cannot happen.
        Reading it makes no call."""
        return None

    @urgent
    @abstractmethod
    async def fill_token(self, organization: str) -> str:
        """Return the fill token of an organization; set a new one if it has none."""

    @urgent
    @abstractmethod
    async def install(self, key: ApiKey, placed: Organization | None, fill_token: str) -> bool:
        """Keep copies of a key and its organization if the fill token still stands, atomically.

        False, without a change, if it does not. Copies last for :data:`COPIES_LAST` at most,
        whatever their use; ``request_count`` continues from the key's.
        """

    @abstractmethod
    async def forget(self, organization: str) -> None:
        """Delete the fill token, which invalidates all copies of this organization.

        Its windows stay unchanged. Afterwards the change counter of the cache moves.
        """

    @urgent
    @abstractmethod
    async def caught_up(self) -> int | None:
        """Return the change counter of the primary up to which the copies are right.

        None: it was never recorded, or is lost, or a server that may have missed a change has
        taken another's place since.
        """

    @urgent
    @abstractmethod
    async def catch_up(self, before: int | None, change_counter: int) -> bool:
        """Record :meth:`caught_up` if it still is ``before``; return whether it was."""
