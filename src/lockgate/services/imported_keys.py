"""Imported keys: adopt another system's keys, and move their digests to lockgate's on use."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final
from uuid import uuid4

from ..core.api_keys import ApiKey, KeyDraft, read_name
from ..core.digests import Digest, Peppers
from ..core.imported_keys import SLOW, ImportedKeyFormat, ImportedToken
from ..core.key_format import PREFIX_LENGTH
from ..core.row_seals import resealed_key, sealed_draft
from ..core.scopes import Catalogue
from ..core.timestamps import MINUTE, SECOND
from ..errors import ConfigurationError, KeyNotFound
from ..events import Events
from ..stores.base import Store
from ..stores.memory.windows import Clock
from ..sync import outcome
from .new_keys import checked
from .password_checks import PasswordChecks
from .password_hashes import PasswordHashes
from .store_errors import asking

_LONGEST_HANDLE: Final = 256


class ImportedKeys:
    """The imported keys of a gate, as ``gate.legacy``.

    Args:
        systems: the key formats of other systems.
        store: keeps the keys.
        peppers: seal the rows of keys.
        catalogue: the scope catalogue.
        cap: the maximum number of live keys of an organization.
        clock: returns the present in microseconds.
        events: receives ``key_adopted`` and ``key_rehashed``.

    Raises:
        ConfigurationError: two systems have the same name, or the library of a slow digest scheme
            is not installed.
    """

    def __init__(
        self,
        systems: Sequence[ImportedKeyFormat],
        store: Store,
        peppers: Peppers,
        catalogue: Catalogue,
        cap: int | None,
        clock: Clock | None,
        events: Events,
    ) -> None:
        self._systems = {system.name: system for system in systems}
        if len(self._systems) < len(systems):
            raise ConfigurationError("Two legacy systems have the same name: give each its own.")
        self.kept_schemes: Final = frozenset(
            system.kept_scheme(scheme) for system in systems for scheme in system.schemes
        )
        """The digest schemes of imported keys before their first use."""
        schemes = {scheme for system in systems for scheme in system.schemes if scheme in SLOW}
        self._hashes = PasswordHashes(schemes) if schemes else None
        self._checks = PasswordChecks(self._hashes, clock) if self._hashes else None
        self._store = store
        self._peppers = peppers
        self._catalogue = catalogue
        self._cap = cap
        self._clock = clock
        self._events = events

    async def adopt(
        self,
        system: str,
        *,
        organization: str,
        name: str,
        handle: str,
        digest: str,
        scopes: Sequence[str] = ("*",),
        expires_at: datetime | None = None,
        prefix: str | None = None,
    ) -> ApiKey:
        """Adopt a key of another system: the gate accepts it from now on.

        Args:
            system: the name of its :class:`~lockgate.ImportedKeyFormat`.
            organization: its id, 1 to 128 characters.
            name: 1 to 100 characters for a person to know the key by.
            handle: the handle of the key, as its pattern finds it.
            digest: the system's digest of the key: a fast digest in hexadecimal or base64, or a
                password hash as passlib, Django or the hash's own library writes it.
            scopes: the scopes of the key, 1 to 50 of the catalogue.
            expires_at: the expiry, with a time zone; None: never.
            prefix: the beginning of the key, by which people recognise it, without control
                characters; the first 15 characters are kept. None: its handle.

        Raises:
            InvalidRequest: arguments are invalid; names all of them.
            HandleTaken: a key of that system with that handle exists already, in any state.
            KeyLimitReached: the organization already has its maximum of live keys.
            StoreUnavailable: the store did not answer.
        """
        legacy = self._systems.get(system)
        kept = None if legacy is None else self._read_digest(legacy, digest)
        now = self._clock() if self._clock else None
        with asking(self._events):
            present = await self._store.now() if now is None else now
        expires, of_expiry = _read_expiry(expires_at, present)
        others = {**_problems(legacy, handle, prefix, kept), "expires_at": of_expiry}
        name, scopes = checked(organization, name, scopes, self._catalogue, others)
        assert legacy is not None and kept is not None, "or there was a problem"
        draft = KeyDraft(
            id=str(uuid4()),
            handle=legacy.kept_handle(handle),
            organization=organization,
            name=name,
            prefix=(handle if prefix is None else prefix)[:PREFIX_LENGTH],
            scopes=scopes,
            scheme=kept.scheme,
            digest=kept.value,
            seal=None,
            expires_at=expires,
        )
        with asking(self._events):
            key = await self._store.insert(sealed_draft(draft, self._peppers), self._cap, now)
        self._events.emit("key_adopted", organization=organization, id=key.id)
        return key

    async def upgrade(self, token: ImportedToken, address: str) -> None:
        """Verify an imported key by its slow password hash, and move its row to lockgate's digest.

        The row moves independently of the verdict of the admission: a key that is revoked, expired
        or over its limit costs no second slow check. The write is conditional and changes only the
        digest, so it cannot undo a revocation (K3).

        Raises:
            KeyNotFound: the handle is unknown, which costs no hash, or the secret is wrong.
            RateLimitExceeded: the address has shown too many wrong keys.
            StoreUnavailable: the store did not answer, or too many checks wait.
        """
        with asking(self._events):
            key = await self._store.find(token.handle)
        scheme = None if key is None else token.legacy.slow_scheme(key.scheme)
        new = token.fresh_digest()
        if key is None or scheme is None or new is None or self._checks is None:
            raise KeyNotFound
        if not token.believes(key):
            raise KeyNotFound
        with asking(self._events):
            hashed = token.prepared()
            check = self._checks.check(key.handle, scheme, hashed, key.digest, address)
            if not await outcome(check):
                raise KeyNotFound
            sealed = resealed_key(key, self._peppers, new).kept
            moved = await self._store.rehash_if(key.handle, key.kept, sealed)
        if moved:
            self._events.emit(
                "key_rehashed", organization=key.organization, id=key.id, scheme=new.scheme
            )

    def close(self) -> None:
        """Refuse the waiting checks, and let the threads end."""
        if self._checks is not None:
            self._checks.close()

    def _read_digest(self, legacy: ImportedKeyFormat, digest: str) -> Digest | None:
        fast = legacy.read_fast(digest)
        if fast is not None or self._hashes is None:
            return fast
        scheme = self._hashes.identify(digest)
        return None if scheme is None else legacy.keep_slow(scheme, digest)


def _problems(
    legacy: ImportedKeyFormat | None, handle: str, prefix: str | None, kept: Digest | None
) -> dict[str, list[str]]:
    """Return the problems of the arguments of :meth:`ImportedKeys.adopt`, by argument."""
    fits = 1 <= len(handle) <= _LONGEST_HANDLE
    shown = handle if prefix is None else prefix
    _, of_shown = read_name(shown[:PREFIX_LENGTH].strip() or "-")
    return {
        "system": [] if legacy else ["The gate has no legacy system of this name."],
        "handle": [] if fits else [f"Use 1 to {_LONGEST_HANDLE} characters."],
        "prefix": of_shown,
        "digest": [] if kept or not legacy else ["It is of none of the system's schemes."],
    }


def _read_expiry(expires_at: datetime | None, now: int) -> tuple[int | None, list[str]]:
    """Return the expiry in microseconds, and its problems."""
    if expires_at is None:
        return None, []
    if expires_at.tzinfo is None:
        return None, ["Say in which time zone: use datetime(..., tzinfo=UTC)."]
    instant = int(expires_at.timestamp() * SECOND)
    if instant <= now:
        return instant, ["It has expired already: leave it where it is."]
    soon = instant - now < MINUTE
    return instant, ["It expires within a minute: leave it where it is."] if soon else []
