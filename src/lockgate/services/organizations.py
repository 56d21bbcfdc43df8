"""Organizations: put them on plans, and look up the plan of each (D25)."""

import logging

from ..core.plans import ID_MAX_LENGTH, Organization, Plan, PlanBook, is_id
from ..errors import ConfigurationError
from ..events import Events
from ..stores.base import Store
from .store_errors import asking


class Organizations:
    """The organizations of a gate, as ``gate.organizations``."""

    def __init__(self, store: Store, plans: PlanBook, events: Events) -> None:
        self._store = store
        self._plans = plans
        self._events = events
        plans.watch(self._report)

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
        organization = self._plans.place(id, plan, overrides)
        with asking(self._events):
            await self._store.put_organization(organization)
        return organization

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
            return self._plans.plan_of(await self._store.organization(id))

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
