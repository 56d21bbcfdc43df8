"""Billing: the URL where an account is funded, from a provider that may be slow or fail (D13)."""

import logging
from collections.abc import Awaitable
from typing import Final, Protocol
from urllib.parse import urlsplit

from ...core.accounts import Account
from ...events import Events
from ..host_calls import HostCalls

_LONGEST_URL: Final = 2048


class BillingProvider(Protocol):
    """Returns the URL where an account is funded, usually a checkout page.

    Each call runs in a separate thread, so it may block. An ``async`` method runs there in a new
    event loop, so it must open its connections itself. If the call fails or takes too long, the
    registration succeeds with the dashboard's URL instead.
    """

    def billing_url(self, account: Account) -> str | Awaitable[str]:
        """Return the ``https`` URL, up to 2,048 characters of ASCII, where an account is funded."""
        ...


class NotAnAddress(ValueError):
    """A provider returned a value that is not a valid URL."""


class Billing:
    """Asks the billing provider for a URL, with a fallback.

    Args:
        provider: the billing provider; None: always use the fallback.
        timeout: seconds that the provider may take.
        fallback: the URL to use without an answer of the provider.
        events: receives ``billing_failed``.
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
        """Return the URL where the account is funded, or the fallback. Never raises."""
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
    """Return a provider's answer if it is a URL that a browser can open.

    Raises:
        NotAnAddress: the answer is not text, or not a valid URL.
    """
    if not isinstance(answer, str) or len(answer) > _LONGEST_URL:
        raise NotAnAddress
    if not (answer.isascii() and answer.isprintable()) or " " in answer:
        raise NotAnAddress
    parts = urlsplit(answer)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise NotAnAddress
    return answer
