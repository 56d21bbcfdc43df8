"""Organizations: which plan each is on (D25)."""

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

    async def place(self, id: str, plan: str, **overrides: int | None) -> Organization:
        """Put an organization on a plan; it holds from the next request on, and what is counted
        stays counted.

        Args:
            id: the organization, 1 to 128 characters.
            plan: a plan of the gate's book.
            overrides: limits of its own: ``rpm``, ``rph``, ``rpd``, ``concurrent``; None is no
                limit. A custom plan such as ``enterprise`` needs all four.

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

    async def plan(self, id: str) -> Plan:
        """The plan that holds for an organization, its own limits applied."""
        with asking(self._events):
            return self._plans.plan_of(await self._store.organization(id))
