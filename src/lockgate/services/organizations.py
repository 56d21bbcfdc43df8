"""Organizations: list them, put them on plans, and look up the plan of each (D25)."""

import logging
from collections.abc import Collection, Iterable, Mapping, Set
from datetime import datetime
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar

from ..clock import Clock
from ..core.changes import drafted_change, plan_fields
from ..core.leases import TO_LIST
from ..core.ledger import Peek, Reset
from ..core.plan_changes import plan_differences
from ..core.plans import ID_MAX_LENGTH, LIMITS, Organization, Plan, PlanBook, is_id
from ..core.sealed_texts import TextSeal
from ..core.temporary_limits import TemporaryLimit, told_apart
from ..core.timestamps import SECOND
from ..errors import ConfigurationError, InvalidRequest, Problem
from ..events import Events
from ..stores.answers import OrganizationSummary, UnreadableState
from ..stores.base import Store
from ..stores.committed import committing
from ..stores.runtime.turns import turn
from .cursors import check_limit, read_step, using_cursor, write_step
from .store_errors import asking

V = TypeVar("V")

LISTED_BY_DEFAULT: Final = 100
_CHANGE_ID: Final = "change_id"
"""The field of a record that names the change."""
_CHANGE_ID_LENGTH: Final = 64
_RECORDS_READ: Final = 100
_STEPS_AT_MOST: Final = 100
"""Steps of a walk that one call makes, so that its time is bounded."""


class ListedOrganization(NamedTuple):
    """An organization in a list."""

    id: str
    plan: Plan
    """The plan that applies, with the organization's own limits."""
    assigned: str | None
    """The name of the plan that was assigned to it; None: it is on the default plan."""
    live_keys: int
    last_used_at: int | None
    """The latest use of its live keys, in microseconds; None: never used, or no live key."""


class OrganizationPage(NamedTuple):
    """Some organizations, in an order of the store."""

    organizations: list[ListedOrganization]
    cursor: str | None
    """The cursor of the next page, which may be empty; None: this is the last page."""


class OwnLimits(NamedTuple):
    """The limits of an organization."""

    plan: Plan
    """The plan that applies, with the organization's own limits."""
    lasting: Plan
    """The same without the temporary limits: what applies when they have ended."""
    assigned: str | None
    """The name of the plan that was assigned to it; None: it is on the default plan."""
    own: Mapping[str, int | None]
    """The limits that it has instead of the plan's, by name; None: no limit."""
    temporary: Mapping[str, TemporaryLimit] = MappingProxyType({})
    """The limits that it has instead of these, each until its end, by name."""


class Organizations:
    """The organizations of a gate, as ``gate.organizations``."""

    def __init__(
        self,
        store: Store,
        plans: PlanBook,
        clock: Clock | None,
        events: Events,
        seal: TextSeal,
    ) -> None:
        self._store = store
        self._plans = plans
        self._seal = seal
        self._clock = clock
        self._events = events
        plans.watch(self._report)

    @committing
    async def place(self, id: str, plan: str, **overrides: int | None) -> Organization:
        """Put an organization on a plan, which applies from the next request on; counted units stay
        counted.

        Args:
            id: the organization, 1 to 128 characters.
            plan: a plan of the gate's book.
            overrides: limits for this organization instead of the plan's: ``rpm``, ``rph``,
                ``rpd``, ``concurrent``; None: no limit. A custom plan such as ``enterprise`` needs
                all four.

        Raises:
            ConfigurationError: no such plan or limit, or a custom plan without its numbers.
            StoreUnavailable: the store did not answer.
        """
        if not is_id(id):
            raise ConfigurationError(
                f"An organization's id is a text of 1 to {ID_MAX_LENGTH} characters."
            )
        return await self._place(id, plan, overrides, {})

    async def _place(
        self,
        id: str,
        plan: str,
        own: Mapping[str, int | None],
        temporary: Mapping[str, TemporaryLimit],
        change_id: str | None = None,
    ) -> Organization:
        organization = self._plans.place(id, plan, own, temporary)
        named = () if change_id is None else ((_CHANGE_ID, change_id),)
        change = drafted_change("plan_assigned", after=(*plan_fields(organization), *named))
        now = self._clock() if self._clock else None
        with asking(self._events):
            await self._store.put_organization(organization, now, change=change)
        return organization

    @committing
    async def create(
        self, id: str, plan: str | None = None, **overrides: int | None
    ) -> Organization:
        """Put a new organization on a plan, as :meth:`place` does, unless it is known already.

        Args:
            id: the organization, 1 to 128 characters.
            plan: a plan of the gate's book; None: the default plan, which is then assigned.
            overrides: as of :meth:`place`.

        Raises:
            InvalidRequest: it has a key or a plan.
            ConfigurationError, StoreUnavailable: as :meth:`place`.
        """
        with asking(self._events):
            known = is_id(id) and (
                await self._store.organization(id) is not None or await self._store.list(id, 1)
            )
        if known:
            raise InvalidRequest([Problem("organization", "It has a key or a plan already.")])
        return await self.place(id, plan or self._plans.default.name, **overrides)

    async def is_known(self, id: str) -> bool:
        """Return whether an organization has a plan, a key, an account, usage or a running job.

        Any other one has the default plan and may begin at any time: an operator asks this to find
        a mistyped id.

        Raises:
            StoreUnavailable: the store did not answer.
        """
        store = self._store
        now = self._clock() if self._clock else None
        with asking(self._events):
            if await store.organization(id) or await store.list(id, 1) or await store.account(id):
                return True
            try:
                reading = await store.charge(id, Peek(self._plans.default.windows), now)
                return any(reading.used) or bool((await store.charge(id, TO_LIST, now)).slots)
            except UnreadableState:
                return True

    async def limits(self, id: str) -> OwnLimits:
        """Return the limits of an organization: its plan's, and its own."""
        with asking(self._events):
            placed = await self._store.organization(id)
            now = await self._instant(placed)
        return self._own(placed, now)

    def _own(self, placed: Organization | None, now: int) -> OwnLimits:
        """Return the limits of an organization by its assignment to a plan, at an instant."""
        if placed is None:
            return OwnLimits(self._plans.default, self._plans.default, None, {})
        own, temporary = told_apart(placed.overrides)
        still = {name: limit for name, limit in temporary.items() if now < limit.until}
        plan = self._plans.plan_of(placed, now)
        lasting = self._plans.plan_of(placed._replace(overrides=tuple(own.items())), now)
        return OwnLimits(plan, lasting, placed.plan, own, still)

    @committing
    async def set_limits(
        self,
        id: str,
        *,
        until: datetime | None = None,
        clear: Collection[str] = (),
        change_id: str | None = None,
        **limits: int | None,
    ) -> OwnLimits:
        """Give an organization its own limits for some windows, and return all; the others stay.

        Not atomic: of two concurrent changes to one organization, the later one counts.

        Args:
            id: the organization. On the default plan, that plan is assigned to it.
            until: the instant, with its time zone, from which on the limits hold that it has
                besides these, or the plan's; None: they hold until they are cleared.
            clear: names of limits to clear in the same step, as by :meth:`clear_limits`.
            change_id: a text of 1 to 64 printable characters that names the change: a repetition
                after an unknown outcome changes nothing if the change was made, and one of the
                organization's last 100 records has its name (D52). None: no name.
            limits: ``rpm``, ``rph``, ``rpd``, ``concurrent``; None: no limit.

        Raises:
            ConfigurationError: no such limit, its number is out of range, ``until`` is past or has
                no time zone, or ``change_id`` is no name or that of a change of other limits.
            StoreUnavailable: the store did not answer.
        """
        _check_names(clear)
        end = None if until is None else await self._end(until)
        found = await self.limits(id)
        # Read last: if the first attempt takes effect before that, it is found, and if after, this
        # one sets the same limits.
        if change_id is not None and await self._is_made(id, change_id, {*limits, *clear}):
            return found
        name = found.assigned or self._plans.default.name
        own, temporary = _without(found.own, clear), _without(found.temporary, {*clear, *limits})
        if end is None:
            own |= limits
        else:
            temporary |= {name: TemporaryLimit(limit, end) for name, limit in limits.items()}
        return self._own(await self._place(id, name, own, temporary, change_id), 0)

    async def _is_made(self, id: str, change_id: str, names: Set[str]) -> bool:
        """Return whether one of the organization's latest records names a change of these limits.

        Raises:
            ConfigurationError: the name is empty, too long or not printable, or it named a change
                of other limits.
        """
        if not (1 <= len(change_id) <= _CHANGE_ID_LENGTH and change_id.isprintable()):
            raise ConfigurationError(
                f"A change_id is a text of 1 to {_CHANGE_ID_LENGTH} printable characters."
            )
        with asking(self._events):
            records = await self._store.change_log(id, _RECORDS_READ)
        made = [one for one in records if (_CHANGE_ID, change_id) in one.after]
        others = {one.name for record in made for one in plan_differences(record)} - {
            "plan",
            *names,
        }
        if others:
            raise ConfigurationError(
                f"The change_id {change_id!r} named a change of {', '.join(sorted(others))}: give "
                "each change a name of its own."
            )
        return bool(made)

    async def _end(self, until: datetime) -> int:
        """Return the instant at which temporary limits end."""
        if until.tzinfo is None:
            raise ConfigurationError(f"until={until} has no time zone: give it one, such as UTC.")
        end = int(until.timestamp() * SECOND)
        with asking(self._events):
            if end <= await self._now():
                raise ConfigurationError(f"until={until} is past, so the limits would never hold.")
        return end

    @committing
    async def clear_limits(self, id: str, *names: str) -> OwnLimits:
        """Take its own limits from an organization, and return all: the plan's apply again.

        Args:
            id: the organization.
            names: ``rpm``, ``rph``, ``rpd``, ``concurrent``; without any, all of them.

        Raises:
            ConfigurationError: no such limit, or the plan itself has no numbers.
            StoreUnavailable: the store did not answer.
        """
        _check_names(names)
        found = await self.limits(id)
        if found.assigned is not None and (found.own or found.temporary):
            gone = names or LIMITS
            kept = _without(found.own, gone), _without(found.temporary, gone)
            return self._own(await self._place(id, found.assigned, *kept), 0)
        return found

    @committing
    async def end_temporary_limits(self, id: str, *names: str) -> OwnLimits:
        """End temporary limits of an organization before their time, and return all limits; the
        others stay.

        Args:
            id: the organization.
            names: ``rpm``, ``rph``, ``rpd``, ``concurrent``; without any, all of them.

        Raises:
            ConfigurationError: no such limit.
            StoreUnavailable: the store did not answer.
        """
        _check_names(names)
        found = await self.limits(id)
        kept = _without(found.temporary, names or LIMITS)
        if found.assigned is not None and len(kept) < len(found.temporary):
            return self._own(await self._place(id, found.assigned, found.own, kept), 0)
        return found

    @committing
    async def reset(self, id: str) -> None:
        """Empty the windows of an organization, so that it may use its limits anew.

        The named limits of the organization and of its keys are emptied as well, calendar quotas
        included, and its holds end. Its slots, the usage of its keys and its plan stay. Processes
        that remember a refusal forget it within a second.

        Raises:
            StoreUnavailable: the store did not answer.
        """
        with asking(self._events):
            await self._store.charge(id, Reset(drafted_change("windows_reset")))
        self._events.emit("windows_reset", organization=id)

    async def list(
        self,
        *,
        limit: int = LISTED_BY_DEFAULT,
        cursor: str | None = None,
        plan: str | None = None,
    ) -> OrganizationPage:
        """Return a page of the organizations that have a key, in any state, or an assigned plan.

        One call does a bounded part of the walk, so a page may be empty although it is not the
        last. An organization that exists during the whole walk is in at least one page.

        Args:
            limit: about the number of organizations, 1 to 1,000.
            cursor: the ``cursor`` of the previous page; None: the first page.
            plan: return only organizations to which this plan applies; None: all.

        Raises:
            InvalidRequest: the limit is out of range, or the cursor is malformed.
            StoreUnavailable: the store did not answer.
        """
        check_limit(limit)
        step = read_step(cursor, self._seal, "organizations")
        found: dict[str, ListedOrganization] = {}
        for _ in range(_STEPS_AT_MOST):
            with asking(self._events), using_cursor(cursor):
                # With a filter the steps are long, without it a page is as long as it should be.
                at_once = limit - len(found) if plan is None else LISTED_BY_DEFAULT
                async with turn():
                    some, step = await self._store.organizations(at_once, cursor=step)
                    depends = any(one.placed and one.placed.has_temporary_limits for one in some)
                    now = await self._now() if depends else 0
                    listed = (self._listed(one, now) for one in some)
                    found.update((one.id, one) for one in listed if plan in (None, one.plan.name))
            if step is None or len(found) >= limit:
                break
        return OrganizationPage([*found.values()], write_step(step, self._seal, "organizations"))

    @committing
    async def changed(self, id: str) -> None:
        """Take over the plan of an organization from a plan resolver, after its plan has changed.

        A database with Redis before it keeps copies of plans for up to an hour. Call this after the
        commit that changed the plan: admissions that start later apply the new plan, on every
        process. Other stores ask the resolver at each admission. To make the call as durable as
        the change, note the change in the same transaction by
        :meth:`~lockgate.stores.sql.SqlStore.note_change`.

        Raises:
            StoreUnavailable: the store did not answer; call it again.
        """
        with asking(self._events):
            await self._store.organization_changed(id)

    async def plan(self, id: str) -> Plan:
        """Return an organization's plan, with the organization's own limits applied."""
        with asking(self._events):
            placed = await self._store.organization(id)
            return self._plans.plan_of(placed, await self._instant(placed))

    async def _instant(self, placed: Organization | None) -> int:
        """Return the present if the organization's plan depends on it, otherwise 0."""
        return 0 if placed is None or not placed.has_temporary_limits else await self._now()

    async def _now(self) -> int:
        return self._clock() if self._clock else await self._store.now()

    def _listed(self, found: OrganizationSummary, now: int) -> ListedOrganization:
        placed = found.placed
        return ListedOrganization(
            found.id,
            self._plans.plan_of(placed, now),
            None if placed is None else placed.plan,
            found.live_keys,
            found.last_used_at,
        )

    def _report(self, plan: str) -> None:
        """Report that organizations are on a plan that the gate's book has no numbers for."""
        self._events.emit(
            "plan_unknown",
            logging.ERROR,
            plan=plan,
            default=self._plans.default.name,
            remedy="Organizations on this plan have the default plan. Add it to the PlanBook of "
            "this process, with numbers, or have the plan resolver return all limits of a custom "
            "plan; or place these organizations on another plan.",
        )


def _check_names(names: Iterable[str]) -> None:
    if unknown := set(names).difference(LIMITS):
        raise ConfigurationError(f"There is no limit {min(unknown)!r}: choose from {LIMITS}.")


def _without(limits: Mapping[str, V], names: Collection[str]) -> dict[str, V]:
    return {name: limit for name, limit in limits.items() if name not in names}
