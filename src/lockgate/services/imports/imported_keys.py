"""Imported keys: adopt another system's keys, and move their digests to lockgate's on use."""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import uuid4

from ...clock import Clock
from ...core.api_keys import NEVER, ApiKey, KeyDraft, KeyHistory, KeyState, read_name
from ...core.changes import drafted_change, key_fields
from ...core.digests import Digest, Peppers
from ...core.imported_keys import SLOW, ImportedKeyFormat, ImportedToken
from ...core.key_format import PREFIX_LENGTH
from ...core.row_seals import resealed_key, sealed_draft
from ...core.scopes import Catalogue
from ...core.timestamps import MINUTE
from ...errors import ConfigurationError, KeyNotFound
from ...events import Events
from ...stores.base import Store
from ...stores.committed import collecting, committing
from ...sync import outcome
from ..keys.new_keys import check_new_key
from ..store_errors import asking

if TYPE_CHECKING:  # Only a slow digest scheme needs them.
    from .password_checks import PasswordChecks, PasswordHashes

_LONGEST_HANDLE: Final = 256
_SHOWN_OF_TEXT: Final = 8
"""Characters of a key's text that are shown where the other system shows none."""
_AHEAD_AT_MOST: Final = 5 * MINUTE
"""How far the clock of the other system may be ahead."""


class OldKey(NamedTuple):
    """A key as another system stored it. Naive times are in UTC."""

    system: str
    """The name of its :class:`~lockgate.ImportedKeyFormat`."""
    organization: str
    name: str
    handle: str | None = None
    digest: str | None = None
    text: str | None = None
    """The whole key, where the other system stored it in plain text; None: handle and digest."""
    scopes: Sequence[str] = ("*",)
    prefix: str | None = None
    expires_at: datetime | None = None
    created_at: datetime | None = None
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None
    request_count: int = 0

    def __repr__(self) -> str:
        return f"OldKey(system={self.system!r}, name={self.name!r})"


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
        self._hashes: PasswordHashes | None = None
        self._checks: PasswordChecks | None = None
        if schemes:
            self._hashes, self._checks = _slow(schemes, clock)
        self._store = store
        self._peppers = peppers
        self._catalogue = catalogue
        self._cap = cap
        self._clock = clock
        self._events = events

    @property
    def names(self) -> list[str]:
        """The names of the formats."""
        return [*self._systems]

    @committing
    async def adopt(
        self,
        system: str,
        *,
        organization: str,
        name: str,
        handle: str | None = None,
        digest: str | None = None,
        text: str | None = None,
        scopes: Sequence[str] = ("*",),
        prefix: str | None = None,
        expires_at: datetime | None = None,
        created_at: datetime | None = None,
        revoked_at: datetime | None = None,
        last_used_at: datetime | None = None,
        request_count: int = 0,
    ) -> ApiKey:
        """Adopt a key of another system: the gate accepts it from now on, if it is live.

        Args:
            system: the name of its :class:`~lockgate.ImportedKeyFormat`.
            organization: its id, 1 to 128 characters.
            name: 1 to 100 characters for a person to know the key by.
            handle: the handle of the key, as its pattern finds it.
            digest: the system's digest of the key: a fast digest in hexadecimal or base64, or a
                password hash as passlib, Django or the hash's own library writes it.
            text: the whole key instead of both, if the system stored it; only lockgate's digest
                is kept.
            scopes: the scopes of the key, 1 to 50 of the catalogue.
            prefix: the beginning of the key, by which people recognise it, without control
                characters; the first 15 characters are kept. None: its handle, or the first 8
                characters of ``text``.
            expires_at: the expiry; None: never, as is one after the year 2255.
            created_at: when it was created; None: now.
            revoked_at: when it was revoked; None: it is not.
            last_used_at: its last use; None: unknown.
            request_count: the requests that it made.

        Times without a time zone are in UTC.

        Raises:
            InvalidRequest: arguments are invalid; names all of them.
            HandleTaken: a key of that system with that handle exists already, in any state.
            KeyLimitReached: the key is live, and the organization has its maximum of live keys.
            StoreUnavailable: the store did not answer.
        """
        given = OldKey(
            system,
            organization,
            name,
            handle=handle,
            digest=digest,
            text=text,
            scopes=scopes,
            prefix=prefix,
            expires_at=expires_at,
            created_at=created_at,
            revoked_at=revoked_at,
            last_used_at=last_used_at,
            request_count=request_count,
        )
        return await self.insert(self.draft(given, await self.present()), system)

    async def present(self) -> int:
        """Return the present in microseconds, by the gate's clock or else by the store's."""
        if self._clock is not None:
            return self._clock()
        with asking(self._events):
            return await self._store.now()

    def draft(self, old: OldKey, now: int) -> KeyDraft:
        """Check a key of another system at an instant, and return the record to insert.

        Raises:
            InvalidRequest: as :meth:`adopt`.
        """
        legacy = self._systems.get(old.system)
        handle, kept, of_digest = self._read_secret(legacy, old)
        shown = old.prefix or old.handle or (old.text or "")[:_SHOWN_OF_TEXT]
        times, of_times = _read_times(old, now)
        _, of_shown = read_name(shown[:PREFIX_LENGTH].strip() or "-")
        others = {
            "system": [] if legacy else ["The gate has no legacy system of this name."],
            "prefix": of_shown,
            **of_digest,
            **of_times,
        }
        name, scopes = check_new_key(
            old.organization, old.name, old.scopes, self._catalogue, others
        )
        assert kept is not None, "or there was a problem"
        created_at, expires, revoked_at, last_used_at = times
        draft = KeyDraft(
            id=str(uuid4()),
            handle=handle,
            organization=old.organization,
            name=name,
            prefix=shown[:PREFIX_LENGTH],
            scopes=scopes,
            scheme=kept.scheme,
            digest=kept.value,
            seal=None,
            expires_at=expires,
            history=KeyHistory(created_at or now, revoked_at, old.request_count, last_used_at),
        )
        return sealed_draft(draft, self._peppers)

    @committing
    async def insert(self, draft: KeyDraft, system: str) -> ApiKey:
        """Insert a key of :meth:`draft`, which another system issued.

        Raises:
            HandleTaken, KeyLimitReached, StoreUnavailable: as :meth:`adopt`.
        """
        now = await self.present()
        is_live = draft.created(now).state(now) is KeyState.ACTIVE
        after = *key_fields(draft), ("system", system)
        change = drafted_change("key_imported", draft.id, after=after)
        with asking(self._events):
            key = await self._store.insert(
                draft,
                self._cap if is_live else None,
                now if self._clock else None,
                change=change,
            )
        self._events.emit("key_adopted", organization=key.organization, id=key.id)
        return key

    async def stored(self, draft: KeyDraft) -> ApiKey | None:
        """Return the stored key with the handle of a draft.

        Raises:
            StoreUnavailable: the store did not answer.
        """
        with asking(self._events):
            return await self._store.find(draft.handle)

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
        if not token.seal_is_valid(key):
            raise KeyNotFound
        with collecting(), asking(self._events):  # Its caller is an admission, not a change.
            hashed = token.prepared()
            check = self._checks.check(key.handle, scheme, hashed, key.digest, address)
            if not await outcome(check):
                raise KeyNotFound
            sealed = resealed_key(key, self._peppers, new).kept
            moved = await self._store.rehash_if(key.handle, key.kept, sealed, known=key)
        if moved:
            self._events.emit(
                "key_rehashed", organization=key.organization, id=key.id, scheme=new.scheme
            )

    def close(self) -> None:
        """Refuse the waiting checks, and let the threads end."""
        if self._checks is not None:
            self._checks.close()

    def _read_secret(
        self, legacy: ImportedKeyFormat | None, old: OldKey
    ) -> tuple[str, Digest | None, dict[str, list[str]]]:
        """Return the stored handle and digest of a key, and their problems by argument."""
        if old.text is not None:
            token = legacy.read(old.text, self._peppers) if legacy else None
            both = old.handle is not None or old.digest is not None
            problem = (
                "Give the text, or handle and digest, not both."
                if both
                else ("It has not the format of the system's keys.")
            )
            if token is None or both:
                return "", None, {"text": [] if legacy is None else [problem]}
            return token.handle, token.fresh_digest(), {}
        handle, digest = old.handle or "", old.digest or ""
        fits = 1 <= len(handle) <= _LONGEST_HANDLE
        problems = {"handle": [] if fits else [f"Use 1 to {_LONGEST_HANDLE} characters."]}
        if legacy is None:
            return "", None, problems
        kept = self._read_digest(legacy, digest)
        problems["digest"] = [] if kept else ["It is of none of the system's schemes."]
        return legacy.kept_handle(handle), kept, problems

    def _read_digest(self, legacy: ImportedKeyFormat, digest: str) -> Digest | None:
        fast = legacy.read_fast(digest)
        if fast is not None or self._hashes is None:
            return fast
        scheme = self._hashes.identify(digest)
        return None if scheme is None else legacy.keep_slow(scheme, digest)


def _slow(schemes: Collection[str], clock: Clock | None) -> "tuple[PasswordHashes, PasswordChecks]":
    """Return what verifies slow digests."""
    from .password_checks import PasswordChecks, PasswordHashes

    hashes = PasswordHashes(schemes)
    return hashes, PasswordChecks(hashes, clock)


def _read_times(old: OldKey, now: int) -> tuple[list[int | None], dict[str, list[str]]]:
    """Return creation, expiry, revocation and last use in microseconds, and their problems."""
    names = "created_at", "expires_at", "revoked_at", "last_used_at"
    times: list[int | None] = []
    problems: dict[str, list[str]] = {}
    for name in names:
        given: datetime | None = getattr(old, name)
        at = None if given is None else _instant(given)
        if at is not None and at <= 0:
            problems[name] = ["Use a time after 1970."]
        elif at is not None and name == "expires_at":
            at = None if at >= NEVER else at
        elif at is not None:
            if at > now + _AHEAD_AT_MOST:
                problems[name] = ["It lies in the future."]
            at = min(at, now)
        times.append(at)
    if not 0 <= old.request_count <= NEVER:
        problems["request_count"] = ["Use a whole number from 0 to 2**53 - 1."]
    return times, problems


def _instant(at: datetime) -> int:
    """Convert a time, in UTC unless it has a time zone, to microseconds."""
    aware = at if at.tzinfo else at.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
