"""Billing: where an account is funded, asked of a provider that may be slow, or away (D13)."""

import logging
from collections.abc import Awaitable
from typing import Final, Protocol
from urllib.parse import urlsplit

from ..core.accounts import Account
from ..events import Events
from .host_calls import HostCalls

_LONGEST_URL: Final = 2048


class BillingProvider(Protocol):
    """Knows where an account is funded: a checkout page, most often.

    It is called in a thread of its own, so it may block; one that is ``async`` is run there in an
    event loop of its own, so it opens its connections itself. One that fails or takes too long
    fails no registration: the dashboard's address stands in.
    """

    def billing_url(self, account: Account) -> str | Awaitable[str]:
        """The ``https`` address, up to 2,048 characters of ASCII, where this account is funded."""
        ...


class NotAnAddress(ValueError):
    """A provider gave something that is no web address."""


class Billing:
    """Asks the provider, and does without it.

    Args:
        provider: who knows; None: nobody.
        timeout: seconds that it has.
        fallback: the address where it has none to give.
        events: is told each time that it fails.
    """

    def __init__(
        self, provider: BillingProvider | None, timeout: float, fallback: str, events: Events
    ) -> None:
        self._provider = provider
        self._timeout = timeout
        self._fallback = fallback
        self._events = events
        self._calls = HostCalls("lockgate-billing")

    async def url(self, account: Account) -> str:
        """Where the account is funded. Never fails."""
        provider = self._provider
        if provider is None:
            return self._fallback
        try:
            answer = await self._calls.call(lambda: provider.billing_url(account), self._timeout)
            return web_address(answer)
        except Exception as failure:
            self._events.emit(
                "billing_failed",
                logging.WARNING,
                organization=account.organization,
                error=type(failure).__qualname__,
            )
            return self._fallback


def web_address(answer: object) -> str:
    """The answer, if a person can be sent there.

    Raises:
        NotAnAddress: it is no text, or no address of the web.
    """
    if not isinstance(answer, str) or len(answer) > _LONGEST_URL:
        raise NotAnAddress
    if not (answer.isascii() and answer.isprintable()) or " " in answer:
        raise NotAnAddress
    parts = urlsplit(answer)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise NotAnAddress
    return answer
