"""The methods of a gate as blocking functions: for scripts, threads and shells (``gate.sync``)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from .errors import ConfigurationError
from .services.change_log import Changes
from .services.claims import Claims
from .services.concurrency import ConcurrencySlots
from .services.holds import Holds
from .services.imported_keys import ImportedKeys
from .services.keys import Keys
from .services.organizations import Organizations
from .services.registration import AgentAccounts
from .sync import loop_runs, run

if TYPE_CHECKING:
    from .gate import Gate

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(verb: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Return a function that makes the call in this thread and returns its result."""

    @wraps(verb)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        if loop_runs():
            raise ConfigurationError(
                f"An event loop runs in this thread, and gate.sync would stop it: await "
                f"{verb.__name__}(...) of the gate itself, without .sync."
            )
        return run(verb(*args, **kwargs))

    return call


class SyncKeys:
    """Call :class:`~lockgate.services.keys.Keys` without awaiting."""

    def __init__(self, keys: Keys) -> None:
        self.create: Final = _blocking(keys.create)
        self.list: Final = _blocking(keys.list)
        self.find: Final = _blocking(keys.find)
        self.of_user: Final = _blocking(keys.of_user)
        self.overview: Final = _blocking(keys.overview)
        self.get: Final = _blocking(keys.get)
        self.update: Final = _blocking(keys.update)
        self.rotate: Final = _blocking(keys.rotate)
        self.revoke: Final = _blocking(keys.revoke)
        self.remove_ended: Final = _blocking(keys.remove_ended)
        self.census: Final = _blocking(keys.census)
        self.ages: Final = _blocking(keys.ages)
        self.seal: Final = _blocking(keys.seal)
        self.now: Final = _blocking(keys.now)


class SyncOrganizations:
    """Call :class:`~lockgate.services.organizations.Organizations` without awaiting."""

    def __init__(self, organizations: Organizations) -> None:
        self.list: Final = _blocking(organizations.list)
        self.create: Final = _blocking(organizations.create)
        self.is_known: Final = _blocking(organizations.is_known)
        self.place: Final = _blocking(organizations.place)
        self.limits: Final = _blocking(organizations.limits)
        self.set_limits: Final = _blocking(organizations.set_limits)
        self.clear_limits: Final = _blocking(organizations.clear_limits)
        self.end_temporary_limits: Final = _blocking(organizations.end_temporary_limits)
        self.reset: Final = _blocking(organizations.reset)
        self.changed: Final = _blocking(organizations.changed)
        self.plan: Final = _blocking(organizations.plan)


class SyncChanges:
    """Call :class:`~lockgate.services.change_log.Changes` without awaiting."""

    def __init__(self, changes: Changes) -> None:
        self.list: Final = _blocking(changes.list)
        self.creation: Final = _blocking(changes.creation)


class SyncSlots:
    """Call :class:`~lockgate.services.concurrency.ConcurrencySlots` without awaiting."""

    def __init__(self, slots: ConcurrencySlots) -> None:
        self.acquire: Final = _blocking(slots.acquire)
        self.renew: Final = _blocking(slots.renew)
        self.release: Final = _blocking(slots.release)
        self.held: Final = _blocking(slots.held)
        self.cancel: Final = _blocking(slots.cancel)


class SyncHolds:
    """Call :class:`~lockgate.services.holds.Holds` without awaiting."""

    def __init__(self, holds: Holds) -> None:
        self.take: Final = _blocking(holds.take)
        self.settle: Final = _blocking(holds.settle)
        self.renew: Final = _blocking(holds.renew)
        self.usage: Final = _blocking(holds.usage)


class SyncImportedKeys:
    """Call :class:`~lockgate.services.imported_keys.ImportedKeys` without awaiting."""

    def __init__(self, legacy: ImportedKeys) -> None:
        self.adopt: Final = _blocking(legacy.adopt)


class SyncClaims:
    """Call :class:`~lockgate.services.claims.Claims` without awaiting."""

    def __init__(self, claims: Claims) -> None:
        self.list: Final = _blocking(claims.list)
        self.claim: Final = _blocking(claims.claim)
        self.assign: Final = _blocking(claims.assign)


class SyncAccounts:
    """Call :class:`~lockgate.services.registration.AgentAccounts` without awaiting."""

    def __init__(self, accounts: AgentAccounts) -> None:
        self.register: Final = _blocking(accounts.register)
        self.create: Final = _blocking(accounts.create)
        self.remove_unclaimed: Final = _blocking(accounts.remove_unclaimed)
        self.claims: Final = SyncClaims(accounts.claims)


class SyncGate:
    """Call a gate without awaiting, where no event loop runs::

        created = gate.sync.keys.create("org_1", "ci", scopes=["jobs:*"])
        caller = gate.sync.authenticate("acme_live_...", requires="jobs:write", cost=5)
        gate.sync.close()

    Arguments, results and exceptions of each method are the gate's. It also raises
    :class:`~lockgate.ConfigurationError` if an event loop runs in the calling thread. To hold a
    slot or units during a block, use ``with`` :meth:`Gate.slot <lockgate.Gate.slot>` or
    :meth:`Gate.hold <lockgate.Gate.hold>`.

    Args:
        gate: makes the calls.

    Raises:
        ConfigurationError: the gate's store needs an event loop.
    """

    def __init__(self, gate: Gate) -> None:
        gate.slots.pair("sync")
        self.keys: Final = SyncKeys(gate.keys)
        self.organizations: Final = SyncOrganizations(gate.organizations)
        self.changes: Final = SyncChanges(gate.changes)
        self.slots: Final = SyncSlots(gate.slots)
        self.holds: Final = SyncHolds(gate.holds)
        self.legacy: Final = SyncImportedKeys(gate.legacy)
        self.accounts: Final = None if gate.accounts is None else SyncAccounts(gate.accounts)
        self.authenticate: Final = _blocking(gate.authenticate)
        self.admit_session: Final = _blocking(gate.admit_session)
        self.usage: Final = _blocking(gate.usage)
        self.explain: Final = _blocking(gate.explain)
        self.explain_open: Final = _blocking(gate.explain_open)
        self.ready: Final = _blocking(gate.ready)
        self.now: Final = _blocking(gate.now)
        self.flush: Final = _blocking(gate.flush)
        self.close: Final = _blocking(gate.close)
