"""The store contract: what each method of a store, called a verb, must guarantee.

Two small contracts have these verbs; :class:`Store` combines them, adds its own, and inherits the
operations on keys, accounts and plans that :class:`~lockgate.stores.directory.Directory` composes.

KeyStore      read, commit, walk, now, add_usage; add_history, history
WindowStore   charge, whose action says what to do; recalls
Store         admit, the verb of requests; freshness, warnings, watch, flush

All verbs are atomic: a caller never reads, decides and writes back.

Every method is ``async def``. ``io`` declares the I/O mode: ``none`` never waits (pure memory),
``sync`` blocks the calling thread, ``async`` awaits, and ``both`` awaits in an event loop and
blocks otherwise. WSGI supports all but ``async``.

Time: a shared store uses its server's clock, never the process's (D27). Every method that depends
on the time takes ``now`` (microseconds) for callers that bring their own clock; None means the
store's clock. State expires by the store's clock, counted from the call, not from ``now``: after
the longest window, or the organization's longest lease, at the earliest. A store that removes idle
state from time to time may do so by the instants of the calls, so a caller whose ``now`` is days
before the store's present may find its windows and leases gone.

Ids of organizations and jobs, and owners of slots, are opaque: any non-empty string of up to 128
characters (D36). Ids of users are opaque too, with up to 255. Windows of other owners, such as
addresses, have names of 129 to 192 ASCII characters, which cannot be an organization's id. All ids,
and the texts of change records, may hold any code point, NUL and lone surrogates included, and are
compared code point by code point: no store folds, trims, normalizes or escapes them. Names of keys,
agents, companies and plans, prefixes, labels and e-mail addresses hold neither control characters
nor surrogates, and come back as they were given.

:mod:`lockgate.stores.answers` has the values that verbs return, and the errors that they raise.
"""

from abc import abstractmethod
from collections.abc import AsyncGenerator, Sequence
from typing import Final, TypeVar

from ..core.key_format import Token
from ..core.ledger import Action, Hit, HitLeased
from ..core.limits import Limit
from ..core.plans import PlanBook
from ..core.quota_leases import LeaseRequest
from ..events import Events
from .answers import (
    UNKNOWN,
    Admission,
    Freshness,
    StoreWarning,
    Usage,
    Verdict,
    limits_of,
    refusal_of,
)
from .directory import Directory
from .key_store import IoMode as IoMode  # noqa: PLC0414 - exported with the contracts
from .key_store import KeyStore as KeyStore  # noqa: PLC0414 - exported with the contracts
from .key_store import PartStore as PartStore  # noqa: PLC0414 - exported with the contracts
from .key_store import urgent

A = TypeVar("A")

PAGE_AT_MOST: Final = 1000
"""The most keys per page, which bounds the time of a call in the process and the server."""


class WindowStore(PartStore):
    """Stores the ledgers of organizations: windows, named limits, slots, holds, quota leases."""

    @abstractmethod
    async def charge(self, owner: str, action: Action[A], now: int | None = None) -> A:
        """Apply an action to a ledger (:mod:`lockgate.core.ledger`), in one atomic step.

        A call without a reply takes effect once or not at all, or may be made again: a hold is
        taken and settled once (D33). The fields of named limits and of budgets are each at most
        :data:`~lockgate.core.limit_hits.FIELDS_AT_MOST` for an organization. A store that keeps
        both in one place may count them together, and then refuses a new subject sooner. A field
        that has counted nothing for a day may be dropped, for a clock that steps back.

        A charge that starts after a :class:`~lockgate.core.ledger.Reset` was answered finds nothing
        counted, on any process that shares the store; the change counter moves, because callers
        remember refusals of before. A store that keeps rows too adds its change record, even if
        nothing was counted.

        Args:
            owner: the organization, or the name of other windows.
            action: what to do.
            now: the instant in microseconds; None: the store's clock.

        Returns:
            The answer of :meth:`Action.apply <lockgate.core.ledger.Action.apply>`.
        """

    async def recalls(self) -> AsyncGenerator[str | None]:
        """Yield the id of an organization for each recall of its leases, by any process (D42).

        Each change to the keys or the plan of an organization recalls its leases: a verb sends the
        recall together with the change, so that it costs no call. The first step includes the
        latest recalls, which a process may have missed that was just granted a lease. A recall may
        be lost, which leaves the change to wait until the leases end; and it may be needless.

        Yield None when none came for some seconds, so that the caller can stop. Without an event
        loop, ``next`` blocks for that time, or until :meth:`close` makes it fail. The default ends
        at once: the store sends no recalls.

        Raises:
            StoreError, OSError: recalls cannot be received now.
        """
        none: Sequence[str] = ()
        for organization in none:
            yield organization


class Store(Directory, WindowStore):
    """Both contracts, with the operations on rows, admissions, usage and maintenance."""

    enforces_deadline: bool = False
    """Whether a blocking call ends itself at its deadline, for example by a socket timeout (see
    :func:`~lockgate.stores.resilience.deadlines.left`). Calls of other stores run in a thread that
    can be abandoned."""
    grants_leases: bool = False
    """Whether :meth:`admit` grants quota leases."""
    system: str = "other"
    """The kind of database, as OpenTelemetry's ``db.system.name`` calls it, for spans."""
    local_version: object = None
    """Identity token, replaced before a verb that changes keys or plans, or ends the sessions of an
    agent, returns; None if other processes can change them too."""

    @property
    def innermost(self) -> "Store":
        """The store within all wrappers, which has no deadline; of a pair, the database."""
        return self

    @property
    def is_failing(self) -> bool:
        """Whether the latest call of a request to the :attr:`innermost` store failed, as far as a
        wrapper around it knows."""
        return False

    @urgent
    async def admit(
        self,
        token: Token,
        cost: int,
        plans: PlanBook,
        now: int | None = None,
        address: str | None = None,
        limits: tuple[Limit, ...] = (),
        lease: LeaseRequest | None = None,
    ) -> Admission:
        """Verify a key, charge its organization's windows and count its usage (D19).

        A key with an allow-list (:meth:`KeyDetails.allows
        <lockgate.core.api_keys.KeyDetails.allows>`) is not charged for a client elsewhere: the
        verdict is ELSEWHERE, after REVOKED and EXPIRED and before LIMITED. Few keys have such a
        list, so the caller first leaves the address out, and repeats the call with it after
        ELSEWHERE; only the second answer has to be up to date.

        A key that does not exist costs one comparison of digests, as a wrong secret does, so that
        the time of the answer does not show which handles exist (K10): where no key has the handle,
        a store calls :meth:`Token.compare_with_dummy
        <lockgate.core.key_format.Token.compare_with_dummy>`.

        With ``lease`` the same step settles quota leases and grants one (D42), by the rule of
        :mod:`lockgate.core.quota_leases`. Leases of the key's organization are settled if the
        verdict is ADMITTED or LIMITED. A lease is granted with ADMITTED only, and never to a key
        that is charged to named limits: :attr:`Admission.lease`. A call without a reply takes
        effect once or not at all; a lease that it has granted stays out until its deadline.

        The default calls the verbs above, and neither settles nor grants a lease. Override it if
        the store can admit in one atomic step.

        Args:
            token: the presented key.
            cost: units to take from each window.
            plans: the plan book.
            now: the instant in microseconds; None: the store's clock.
            address: the client's whole address; None: not looked up.
            limits: the named limits of the rule, charged in the same step (D40); those of the plan
                and of the key are charged with them (:func:`limits_of`).
            lease: the leases to settle, and the one to grant; None: neither.
        """
        key = await self.find(token.handle)
        at = await self.now() if now is None else now
        refusal = refusal_of(token, key, at, address)
        if refusal is not None or key is None:
            return refusal or UNKNOWN
        plan = plans.plan_of(await self.organization(key.organization), at)
        named = limits_of(limits, plan, key, at)
        promise = None
        if plan.kept_retries:
            kept = HitLeased(plan.windows, cost, None, named, key.id)
            reading, promise = await self.charge(key.organization, kept, now)
        else:
            reading = await self.charge(key.organization, Hit(plan.windows, cost, named), now)
        named = named and named.at(reading.now, key.organization)
        if not reading.allowed:
            return Admission(Verdict.LIMITED, key, plan, reading, named, promise)
        last_used_at = max(reading.now, key.last_used_at or 0)
        await self.add_usage({key.handle: Usage(1, last_used_at)})
        key = key._replace(request_count=key.request_count + 1, last_used_at=last_used_at)
        return Admission(Verdict.ADMITTED, key, plan, reading, named)

    @urgent
    async def freshness(self) -> Freshness:
        """Return the change counter and the clock of the windows.

        The change counter is a number that grows with every change to keys or plans, or to an
        agent's sessions. Any change that may alter an earlier answer counts: revocations, updates,
        rotations, digests, plans, limits, resets, sign-outs, revoked dashboard tokens. New keys and
        accounts need not count. All processes share the number, and it has grown before the
        changing verb returns. None, the default: the store has no such number, and answers are
        cached for a second at most.

        A refusal cache reads both about once a second, and is cleared if the counter has moved
        (W13) or the clock has stepped back (W11).
        """
        return Freshness(None, await self.now())

    async def warnings(self) -> Sequence[StoreWarning]:
        """Return a warning for each setting under which a guarantee fails without an error.

        Reads the settings of each server. A setting that this user may not read gives no warning,
        unless the text says so. Empty, the default: the store knows of no such setting.

        Raises:
            StoreError, OSError: a server refused or did not answer.
        """
        return ()

    def watch(self, events: Events, deadline: float) -> bool:
        """Report to a gate; operate a circuit breaker for each server that can fail alone.

        Several gates may watch one store. A call to a server with an open breaker raises
        :class:`StoreUnavailable` at once.

        Args:
            events: receives the changes of each breaker, with its server; its metrics count.
            deadline: seconds for a call of a request.

        Returns:
            True: the store counts its failures itself. False, the default: the caller operates one
            breaker.
        """
        return False

    def cancel_waits(self) -> None:
        """Fail calls that wait for a lock or a server, before the process stops. Thread-safe."""
        return

    async def flush(self) -> None:
        """Write usage that only this process has counted, before it stops. Never raises, since the
        caller could not handle a failure."""
        return

    def reset_connections(self) -> None:
        """Replace all connections with abandoned calls.

        Called in the thread or event loop of the calls; never waits.
        """
        return
