"""The two halves of a pair: what a store must do to be the truth, or the cache before one (K5).

The docstrings are the contract.
"""

from abc import abstractmethod
from typing import Final, NamedTuple

from ...core.api_keys import ApiKey
from ...core.plans import Organization
from ...core.timestamps import HOUR
from ..base import Store

COPIES_LAST: Final = HOUR
"""How long a copy in a cache is believed at most, in microseconds."""


class Changes(NamedTuple):
    """What :meth:`PrimaryStore.changes` answers."""

    change_counter: int
    organizations: list[str]


class PrimaryStore(Store):
    """A store that keys and plans can live in while a :class:`CacheStore` serves admissions.

    Its ``add_usage`` is all or nothing: what failed is added once more.
    """

    @abstractmethod
    async def changes(self, since: int | None) -> Changes:
        """The epoch, and the organizations of which a key or the plan changed after ``since``.

        An epoch is the instant of the change in microseconds, by the store's clock, or one more
        than the epoch before if that is later. None: since :data:`COPIES_LAST` ago.
        """


class CacheStore(Store):
    """A store that can stand before a :class:`PrimaryStore`, with copies of what that knows.

    Beside its own verbs, which then keep windows only, it keeps copies of keys and of the plans of
    their organizations. Its ``admit`` believes a copy as it believes a record of its own, and
    answers UNKNOWN where it has none; whoever asked then installs one and asks again.

    A copy is good while the organization's fence stands. The fence is a random text that never
    comes back once it is gone, by :meth:`forget` or because the cache was flushed: so neither a
    fill that races a revocation (K5) nor a cache that lost its memory lets a revoked key in.
    """

    @property
    def served_by(self) -> object:
        """The server that has the copies, or all of them; another object once this process saw that
        another server took the place of one, which may have missed what was voided. None: no server
        takes another's place. It costs no call."""
        return None

    @abstractmethod
    async def fill_token(self, organization: str) -> str:
        """The fence of an organization; a new one is put up where there is none."""

    @abstractmethod
    async def install(self, key: ApiKey, placed: Organization | None, fill_token: str) -> bool:
        """Keep copies of a key and its organization, if the fence still is this one.

        In one atomic step. False: it is another or none, and nothing was kept. Copies last for
        :data:`COPIES_LAST` at most, however often they are used; ``request_count`` goes on from
        that of the key.
        """

    @abstractmethod
    async def forget(self, organization: str) -> None:
        """Tear the fence down: no copy of this organization is good any more.

        Its windows stay as they are. Then the epoch of the cache moves.
        """

    @abstractmethod
    async def caught_up(self) -> int | None:
        """Up to which epoch of the truth the copies are right.

        None: nobody said, or it is lost; or a server that may have missed something has taken
        the place of another since.
        """

    @abstractmethod
    async def catch_up(self, before: int | None, change_counter: int) -> bool:
        """Say so, if what was said last still is ``before``."""
