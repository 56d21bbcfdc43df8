"""Readiness: prepare a process before its first request, so that no burst has to connect."""

import logging
from typing import Final

from ..errors import ConfigurationError, LockgateError, StoreUnavailable
from ..events import Events, logger
from ..stores.base import Store
from ..stores.resilience.deadlines import Patience
from ..stores.runtime.log_hints import MinutelyLog
from ..stores.runtime.process_hooks import after_fork_in_child, own_lock
from ..sync import run
from .store_errors import unavailable

_NO_ORIGIN: Final = (
    "The gate verifies sessions and has no origin, so no page can write with one: give it the "
    "origin of your pages, as WebOptions(public_url='https://console.example.com') or "
    "WebOptions(allowed_origins=[...])."
)


class Readiness:
    """Whether this process is ready for requests; a forked child begins anew.

    Args:
        store: prepared by :meth:`Store.ready <lockgate.stores.base.Store.ready>`.
        events: receives ``store_failed``.
        patience: begins when the store is prepared.
        lacks_origin: whether sessions are verified but no origin is configured.
    """

    def __init__(
        self, store: Store, events: Events, patience: Patience, *, lacks_origin: bool
    ) -> None:
        self._store = store
        self._patience = patience
        self._events = events
        self._lacks_origin = lacks_origin
        self._lock = own_lock()
        self._mistakes = MinutelyLog()
        self.forked()
        after_fork_in_child(self)

    def forked(self) -> None:
        self.is_ready = False
        """Whether the process was ready once. It stays so: an outage of the store afterwards is
        answered request by request, and taking out every process would end no outage."""
        self.was_tried = False
        """Whether the first attempt of this process is over, with or without success."""

    async def prepare(self) -> None:
        """Connect and prepare; it may be repeated.

        Raises:
            ConfigurationError: sessions without an origin, or a store that cannot be used.
            StoreUnavailable: the store did not answer.
        """
        try:
            if self._lacks_origin:
                raise ConfigurationError(_NO_ORIGIN)
            await self._store.ready()
            await self._warn()
        except LockgateError:
            raise
        except Exception as failure:
            raise unavailable(self._events, failure) from failure
        finally:
            self.was_tried = True
        self.is_ready = True
        self._patience.begin()

    async def _warn(self) -> None:
        """Log the store's warnings, except evictions, which the store logs when it connects."""
        try:
            warnings = await self._store.warnings()
        except Exception as failure:  # The store is ready: this does not delay the process.
            logger.debug("the store's settings were not read: %s", type(failure).__qualname__)
            return
        for warning in warnings:
            if warning.kind != "eviction":
                logger.warning("%s", warning.text)

    async def try_first(self) -> None:
        """Prepare at the start of a server, which starts although its store is away.

        Requests are answered with 503 until the store is back.

        Raises:
            ConfigurationError: as :meth:`prepare`.
        """
        try:
            await self.prepare()
        except StoreUnavailable:
            logger.log(logging.ERROR, "%s", _STARTED_WITHOUT_STORE)

    def tell(self, mistake: ConfigurationError) -> None:
        """Log a mistake in the configuration, at most once a minute: probes come every second."""
        self._mistakes.error(str(mistake))

    def try_once(self) -> None:
        """Prepare in the first request of a process, for which its other threads wait.

        A mistake in the configuration goes to the log: the server has started already.
        """
        with self._lock:
            if not self.was_tried:
                try:
                    run(self.try_first())
                except ConfigurationError as mistake:
                    if mistake.__cause__ is None:  # Otherwise the store has logged it.
                        logger.error("%s", mistake)


_STARTED_WITHOUT_STORE: Final = (
    "The store did not answer at the start: requests get 503 until it does. The lines above say "
    "why, and what to do."
)
