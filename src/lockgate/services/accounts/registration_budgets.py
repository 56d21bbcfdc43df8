"""The budgets of registration: per client address, IPv6 network, e-mail, and in all (D14)."""

import logging
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from ...clock import Clock
from ...core.client_address import network_of
from ...core.digests import Peppers
from ...core.timestamps import DAY, HOUR
from ...errors import RateLimitExceeded
from ...events import Events, OnceAMinute
from ...stores.base import Store
from ..limits.quotas import Quota
from .approval import RegistrationRequest

_WHOLE_SERVICE: Final = "all"


class RegistrationBudgets:
    """Count registrations, in three steps that the caller makes in this order.

    1. :meth:`check` reads the budgets without charging them, so that a refusal by one of them
       charges no other.
    2. :meth:`charge_client` charges address and network. The host's approval is asked after it, so
       these budgets bound its calls.
    3. :meth:`charge_account` charges e-mail and service, after the approval: without a valid proof,
       no stranger can spend the budget of an owner's e-mail or of the whole service.

    Concurrent registrations may still charge a narrower budget and be refused by a wider one. The
    reads have no local fallback: while the store is away, no registration succeeds (D28).

    Args:
        store: keeps the counts.
        peppers: hash addresses and e-mails.
        clock: returns the present in microseconds; None: the store's own clock.
        events: receives failures of the store, and that the budget of the service is spent.
        per_address: registrations in an hour; None: any number, as for the next three.
        per_network: registrations in an hour.
        per_email: registrations in a day.
        per_service: registrations in an hour.
    """

    def __init__(
        self,
        store: Store,
        peppers: Peppers,
        clock: Clock | None,
        events: Events,
        *,
        per_address: int | None,
        per_network: int | None,
        per_email: int | None,
        per_service: int | None,
    ) -> None:
        def quota(purpose: str, window: str, span: int, limit: int | None) -> Quota | None:
            if limit is None:
                return None
            return Quota(store, peppers, f"register:{purpose}", window, span, limit, clock, events)

        self._addresses: Final = quota("address", "hour", HOUR, per_address)
        self._networks: Final = quota("network", "hour", HOUR, per_network)
        self._emails: Final = quota("email", "day", DAY, per_email)
        self._service: Final = quota("service", "hour", HOUR, per_service)
        self._events = events
        self._warning_of_service: Final = OnceAMinute()

    async def check(self, asked: RegistrationRequest) -> None:
        """Read every budget but the address's, which is the first to be charged.

        Raises:
            RateLimitExceeded: a budget is spent.
            StoreUnavailable: the store did not answer.
        """
        network = network_of(asked.address)
        if network is not None and self._networks is not None:
            await self._networks.peek(network)
        if self._emails is not None:
            await self._emails.peek(asked.billing_email)
        if self._service is not None:
            with self._warning():
                await self._service.peek(_WHOLE_SERVICE)

    async def charge_client(self, asked: RegistrationRequest) -> None:
        """Charge the budgets of the client's address and network; raises as :meth:`check`."""
        if self._addresses is not None:
            await self._addresses.hit(asked.address)
        network = network_of(asked.address)
        if network is not None and self._networks is not None:
            await self._networks.hit(network)

    async def charge_account(self, asked: RegistrationRequest) -> None:
        """Charge the budgets of the e-mail and the service; raises as :meth:`check`."""
        if self._emails is not None:
            await self._emails.hit(asked.billing_email)
        if self._service is not None:
            with self._warning():
                await self._service.hit(_WHOLE_SERVICE)

    @contextmanager
    def _warning(self) -> Generator[None]:
        """Warn the operator, at most once a minute, that the budget of the service is spent."""
        try:
            yield
        except RateLimitExceeded as refusal:
            if self._warning_of_service.is_due():
                self._events.emit("registrations_exhausted", logging.WARNING, limit=refusal.limit)
            raise
