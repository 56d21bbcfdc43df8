"""Reports of leaked keys: find the keys that a secret scanner reports, revoke them, tell the host.

The protocol comes from GitHub's secret scanning partner program; other senders may use it too.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from ...core.api_keys import ApiKey, KeyState
from ...core.bounded_dict import BoundedDict
from ...core.changes import Actor, acting
from ...core.imported_keys import ImportedToken
from ...core.key_format import KeyFormat
from ...errors import (
    ConfigurationError,
    InvalidFormat,
    KeyNotFound,
    LeakReportsUnavailable,
    NotFound,
)
from ...events import Events, logger
from ...stores.base import Store
from ..host_calls import HostCalls
from ..imports.imported_keys import ImportedKeys
from ..keys.keys import Keys
from ..keys.rejected_rows import RejectedRows
from ..store_errors import asking
from .settings import LeakedKey, LeakReports

REPORTS_AT_MOST: Final = 1000
"""Tokens in one report."""
_TAKEN_AT_MOST: Final = 200
"""Reports that a process remembers: up to 1 KB each."""
_LONGEST_URL: Final = 2048
_LONGEST_SOURCE: Final = 40


class ReportedToken(NamedTuple):
    """A text that a scanner took for a key, and where it was found."""

    token: str
    url: str
    source: str

    def __repr__(self) -> str:
        return "<ReportedToken>"


class LeakedKeys:
    """Takes reports of leaked keys, as ``gate.leaks``.

    Args:
        settings: the host's functions.
        store: keeps the keys.
        format: reads the texts of keys.
        imported: verifies imported keys that have a slow digest.
        keys: revokes keys.
        events: receives ``key_leaked``, ``leak_signers_failed`` and ``leak_notice_failed``.
        rejections: reports rows whose seal is not valid.

    Raises:
        ConfigurationError: the library for signatures is not installed.
    """

    def __init__(
        self,
        settings: LeakReports,
        store: Store,
        format: KeyFormat,
        imported: ImportedKeys,
        keys: Keys,
        events: Events,
        rejections: RejectedRows,
    ) -> None:
        try:
            from .report_signatures import ReportSignatures
        except ModuleNotFoundError as missing:
            raise ConfigurationError(
                f"Reports of leaked keys need {missing.name}: pip install 'lockgate[leaks]'."
            ) from missing
        self._settings = settings
        self._store = store
        self._format = format
        self._imported = imported
        self._keys = keys
        self._events = events
        self._rejections = rejections
        self._signatures = ReportSignatures(settings.keys, settings.timeout, events)
        self._calls = HostCalls("lockgate-leaks")
        self._taken = BoundedDict[bytes, bytes](_TAKEN_AT_MOST)
        """The answers to the reports that were taken in whole, a byte for each token."""

    async def verify(self, signer: bytes, signature: bytes, body: bytes) -> None:
        """Check that a known signer signed a report; no store is asked.

        Args:
            signer: the identifier of the signer's key.
            signature: ECDSA over P-256 and SHA-256, in DER and base64.
            body: the report as it came.

        Raises:
            ReportNotAccepted: no known signer signed it.
            LeakReportsUnavailable: the keys of the signers could not be read.
        """
        await self._signatures.verify(signer, signature, body)

    async def take(
        self,
        digest: bytes,
        reported: Sequence[ReportedToken],
        sender: Actor,
        pause: Callable[[], Awaitable[None]],
    ) -> list[bool]:
        """Revoke the reported keys, if so configured, emit ``key_leaked`` and tell the host.

        A report that this process has taken before is only answered. To another process, it is
        idempotent but for the events and the call of the host's function.

        Args:
            digest: a hash of the report as it came.
            reported: the tokens of a verified report.
            sender: the actor of the change log, with its network address.
            pause: awaited before each token, so that other requests have their turn.

        Returns:
            For each token, whether it is a key of this service, in any state.

        Raises:
            StoreUnavailable: the store did not answer; the report is to be sent again.
            LeakReportsUnavailable: the host's function failed.
        """
        taken = self._taken.get(digest)
        if taken is not None:
            return [bool(is_key) for is_key in taken]
        found: dict[str, LeakedKey | None] = {}
        leaks: list[LeakedKey] = []
        now = await self._keys.now()
        try:
            for token, url, source in reported:
                await pause()
                if token not in found:
                    with acting(sender):
                        found[token] = await self._take(token, sender.address or "", now)
                leak = found[token]
                if leak is not None:
                    leaks.append(self._at(leak, url, source))
        finally:
            await self._tell(leaks)  # Also of the keys that were revoked before the store failed.
        are_keys = [found[report.token] is not None for report in reported]
        self._taken[digest] = bytes(are_keys)
        return are_keys

    async def _take(self, token: str, address: str, now: int) -> LeakedKey | None:
        """Find the key that has this text, and revoke it if so configured."""
        key = await self._find(token, address)
        if key is None:
            return None
        was_live, revoked = key.state(now) is KeyState.ACTIVE, key.revoked_at is not None
        if self._settings.revoke and was_live:
            with suppress(NotFound):  # It was removed in the meantime.
                await self._keys.revoke(key.organization, key.id)
            revoked = True
        return LeakedKey(key.organization, key.id, key.name, key.prefix, "", "", was_live, revoked)

    def _at(self, leak: LeakedKey, url: str, source: str) -> LeakedKey:
        """Return a leaked key with the place where it was found, and emit the event."""
        redact = self._format.redact
        leak = leak._replace(
            url=redact(url)[:_LONGEST_URL], source=redact(source)[:_LONGEST_SOURCE]
        )
        self._events.emit(
            "key_leaked",
            logging.WARNING,
            organization=leak.organization,
            id=leak.id,
            url=leak.url,
            source=leak.source,
            was_live=leak.was_live,
            revoked=leak.revoked,
        )
        return leak

    async def _find(self, text: str, address: str) -> ApiKey | None:
        """Return the key that has this text, in any state."""
        try:
            token = self._format.parse(text)
        except InvalidFormat:
            return None
        with asking(self._events):
            key = await self._store.find(token.handle)
        if key is None:
            return None
        try:
            if isinstance(token, ImportedToken) and token.legacy.slow_scheme(key.scheme):
                await self._imported.upgrade(token, address)
                return key
            return key if token.accepts(key) else None
        except KeyNotFound:
            return None
        finally:
            if token.rejected is not None:
                self._rejections.report(token.rejected)

    async def _tell(self, leaks: Sequence[LeakedKey]) -> None:
        on_leak = self._settings.on_leak
        if on_leak is None or not leaks:
            return
        try:
            await self._calls.call(lambda: on_leak(leaks), self._settings.timeout)
        except Exception as failure:
            logger.exception("LeakReports(on_leak=...) failed")
            error = type(failure).__qualname__
            self._events.emit("leak_notice_failed", logging.ERROR, error=error)
            raise LeakReportsUnavailable from failure
