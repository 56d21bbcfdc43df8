"""The contract of a key store, and the base of all contracts of stores.

:mod:`lockgate.stores.base` says what holds for all methods.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, Literal, TypeVar

from ..core.api_keys import Position
from ..core.usage_history import UsageHistory
from .answers import HistoryOwner, Usage, UsageBatch
from .rows import Commit, Index, Outcome, R, Read, Walk, Wanted

IoMode = Literal["none", "sync", "async", "both"]
Verb = TypeVar("Verb", bound=Callable[..., Coroutine[Any, Any, Any]])
_URGENT: Final = "is_urgent"


def urgent(verb: Verb) -> Verb:
    """Mark a method that requests wait for: a wrapper gives each call their deadline.

    Of a read and a charge, :attr:`Index.is_urgent <lockgate.stores.rows.Index.is_urgent>` and
    :func:`lockgate.core.ledger.is_urgent` say so.
    """
    setattr(verb, _URGENT, True)
    return verb


def is_urgent(verb: Callable[..., Any]) -> bool:
    """Return whether a method is :func:`urgent`."""
    return hasattr(verb, _URGENT)


class PartStore(ABC):
    """The base of the contracts."""

    io: IoMode
    """How the store waits."""

    async def close(self) -> None:  # noqa: B027 - many stores hold no resources
        """Release connections, threads and files. Idempotent."""

    async def ready(self) -> None:  # noqa: B027 - some have nothing to prepare
        """Connect, check the schema, and prepare statements or scripts for the first admission.

        Does not change stored data, and may be called again. The caller sets a longer deadline
        than that of a request.

        Raises:
            ConfigurationError: the store is reachable but not usable, for example with tables of
                another revision; the message says what to do.
        """


class KeyStore(PartStore):
    """Stores rows: keys with their usage, accounts and assigned plans, and the change log
    (:mod:`.rows`).

    :class:`~lockgate.stores.directory.Directory` composes every operation on them of these methods.

    Only a commit changes or removes a row, and none makes a revoked key live (K3). An organization
    may have many thousands of ended keys (revoked or expired), which must not slow any call: it
    reads as many rows as it returns or removes, and the room is for live keys.

    The change log (D44) has the record of each commit that has one and changes a row, added in the
    same step: after any failure both are there, or neither. A commit that is to change no row keeps
    its record too. An organization's records are numbered
    from 1 on, each by one more than the newest. At most
    :data:`~lockgate.core.changes.LOGGED_AT_MOST` of them are kept, or a few more and never fewer:
    the oldest go first. They outlast keys, plan and account; admissions neither read nor write
    them.
    """

    keeps_history: bool = False
    """Whether the store keeps usage over time: it overrides :meth:`add_history` and
    :meth:`history`."""

    @abstractmethod
    async def read(
        self,
        index: Index[R],
        prefix: tuple[str, ...],
        limit: int = 1,
        after: Position | None = None,
        now: int | None = None,
    ) -> Read[R]:
        """Return the rows of an index under a prefix, in its order, with their versions.

        The call reads and decodes the rows that it returns, by an index, whatever the number of
        others (G10). It sees each commit that was answered before it began.

        Args:
            index: one of :data:`~lockgate.stores.rows.INDEXES`.
            prefix: its texts, as :attr:`Index.prefix <lockgate.stores.rows.Index.prefix>` gives
                them; for :data:`~lockgate.stores.rows.LOG` the organization.
            limit: the most rows, 1 to :data:`~lockgate.stores.base.PAGE_AT_MOST`.
            after: the place in the order after which the page begins, of a row that may have gone;
                None: at the first.
            now: the instant to return, for a caller with its own clock; None: the store's clock.
        """

    @abstractmethod
    async def commit(self, commit: Commit, now: int | None = None) -> Outcome:
        """Change the rows of an organization, in one atomic step or not at all.

        Once a commit that :attr:`voids <lockgate.stores.rows.Commit.voids>` has been answered, no
        admission that starts later goes by the rows of before, on any process that shares the store
        (K4, W13), and the change counter has moved. Rows, indexes inside the organization, change
        log and the instants in them are of one step: no admission that finds a key live comes after
        the ``revoked_at`` of a commit before it, and records are numbered in the order of their
        instants.

        Args:
            commit: the change.
            now: the instant of the step, for a caller with its own clock; None: the store's clock.

        Raises:
            OutcomeUnknown: the commit may have been made; a repetition with the same id tells.
        """

    @urgent
    @abstractmethod
    async def now(self) -> int:
        """Return the time of the store's clock, in microseconds since 1970."""

    @abstractmethod
    async def walk(self, wanted: Wanted, limit: int, cursor: str | None = None) -> Walk:
        """Return some rows of all organizations, in no order, to walk all of them in steps.

        A row or an organization that is wanted during the whole walk is in at least one step. A
        step may be empty, and is bounded in time.

        Args:
            wanted: what to return.
            limit: about the number of rows to read in a step.
            cursor: None begins; then the cursor of the step before.
        """

    @abstractmethod
    async def add_usage(self, usage: Mapping[str, Usage], batch: UsageBatch | None = None) -> None:
        """Add to the usage of keys by handle; ``last_used_at`` never goes back (K7).

        The change to the keys of one organization is one atomic step. Handles that do not exist are
        ignored. A call that raises may have counted some organizations and not others; if it raises
        ``UnreadableState``, it has counted all others.

        Args:
            usage: the requests of each key.
            batch: names the counts. A repetition counts what earlier calls have not counted, and
                nothing twice, also while one of them is under way (D33). None: the call is not
                repeated.
        """

    async def add_history(
        self,
        additions: Mapping[HistoryOwner, UsageHistory],
        batch: UsageBatch | None = None,
    ) -> None:
        """Add to usage histories, by :func:`lockgate.core.usage_history.added`.

        The change to one history is one atomic step: additions of several processes at once are all
        counted. A call that raises may have added to some histories and not to others.

        The history of a key is removed with the key, and any history may be removed
        :data:`~lockgate.core.usage_history.KEPT_DAYS` days after its last day.

        Args:
            additions: about 50 at most.
            batch: as for :meth:`add_usage`, of a writer of its own.
        """
        raise NotImplementedError

    async def history(self, owner: HistoryOwner) -> UsageHistory:
        """Return the usage history of a key or an organization; empty without one (K6).

        Raises:
            UnreadableState: it cannot be decoded.
        """
        raise NotImplementedError
