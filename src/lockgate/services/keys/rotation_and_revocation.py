"""Changes to keys: update, rotate, revoke (D43).

A change reads the row of a key, verifies its seal, and replaces the row on the condition that it is
unchanged since. Without the verification a forged row, with scopes that were never granted, would
get a valid seal. If the row has changed in the meantime, it is read again.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from ...clock import Clock
from ...core.allowed_addresses import read_addresses
from ...core.api_keys import (
    DAYS_AT_MOST,
    NEVER,
    ApiKey,
    KeyDetails,
    KeyState,
    Labels,
    read_lifetime,
    read_name,
    read_overlap,
    read_scopes,
)
from ...core.changes import drafted_change, key_differences
from ...core.key_format import KeyFormat
from ...core.labels import check_creator, read_labels
from ...core.limits import OwnLimits, read_own_limits
from ...core.row_seals import judge_seal, rejected_by_seal, resealed_key
from ...core.scopes import Catalogue
from ...core.timestamps import DAY, MILLISECOND, iso8601
from ...errors import InvalidRequest, KeyNotLive, KeyRotated, NotFound, Problem
from ...events import Events
from ...stores.base import Store
from ...stores.committed import committing, made_or_raised
from ..store_errors import asking
from .new_keys import draft_key, drafted, refuse_problems, retry_taken_handles
from .rejected_rows import RejectedRows
from .retention import Retention

OVERLAP_DAYS: Final = 7.0
"""The default number of days for which a rotated key still works (D43)."""
_UNANSWERED: Final = (
    "The reply to the rotation was lost: where quota leases or a cache are in use, requests may be "
    "decided by the old key as it was before, for some seconds."
)
"""What remains to happen after a rotation whose reply was lost."""
_ATTEMPTS: Final = 10
_LONGEST: Final = DAYS_AT_MOST * DAY


class Unchanged(Enum):
    """The type of :data:`UNCHANGED`."""

    UNCHANGED = "unchanged"


UNCHANGED: Final = Unchanged.UNCHANGED
"""Makes :meth:`KeyChanges.update` keep the expiry of a key; None means that it never expires."""


def successor_expiry(old: ApiKey, now: int, max_age: int | None) -> int | None:
    """Return when the successor of a key expires that is rotated now; None: never.

    It lives as long as the old key did, or the maximum age in microseconds.
    """
    lifetime = max_age
    if old.expires_at is not None:
        lifetime = min(old.expires_at - old.created_at, max_age or _LONGEST)
    # created_at has milliseconds, too.
    return None if lifetime is None else now - now % MILLISECOND + lifetime


class RotatedKey(NamedTuple):
    """A rotated key and its successor. ``text`` is the successor's: it is shown only here and
    stored nowhere."""

    old: ApiKey
    successor: ApiKey
    text: str

    def __repr__(self) -> str:
        return f"<RotatedKey {self.old!r} to {self.successor!r}>"


class _Changes(NamedTuple):
    """Checked arguments of an update."""

    name: str | None
    scopes: tuple[str, ...] | None
    lifetime: int | Unchanged | None
    """In microseconds from now; None: it never expires."""
    labels: Labels | None
    addresses: tuple[str, ...] | None
    limits: OwnLimits | None
    max_age: int | None
    """In microseconds from the creation of the key; None: no maximum."""

    def of(self, key: ApiKey, now: int) -> ApiKey:
        """Return a live key with these changes.

        Raises:
            InvalidRequest: the key would outlive its maximum age, or a rotated key would expire
                later than before.
        """
        name = key.name if self.name is None else self.name
        scopes = key.scopes if self.scopes is None else self.scopes
        details = key.details or KeyDetails()
        if self.labels is not None:
            details = details._replace(labels=self.labels)
        if self.addresses is not None:
            details = details._replace(addresses=self.addresses)
        if self.limits is not None:
            details = details._replace(limits=self.limits)
        expires_at = key.expires_at
        if not isinstance(self.lifetime, Unchanged):
            expires_at = None if self.lifetime is None else now + self.lifetime
            if self.max_age is not None:
                expires_at = key.created_at + self.max_age if expires_at is None else expires_at
                if expires_at <= now or key._replace(expires_at=expires_at).outlives(self.max_age):
                    latest = iso8601(key.created_at + self.max_age)
                    problem = f"By its maximum age it works until {latest} at most: rotate it."
                    raise InvalidRequest([Problem("expires_in_days", problem)])
            if key.successor is not None and (expires_at or NEVER) > (key.expires_at or NEVER):
                problem = "The key was rotated: it can only end sooner."
                raise InvalidRequest([Problem("expires_in_days", problem)])
        return key._replace(
            name=name, scopes=scopes, expires_at=expires_at, details=details.or_none()
        )


class KeyChanges:
    """The operations on one key, a part of :class:`~lockgate.services.keys.keys.Keys`."""

    def __init__(
        self,
        store: Store,
        format: KeyFormat,
        catalogue: Catalogue,
        cap: int | None,
        clock: Clock | None,
        events: Events,
        retention: Retention,
        rejections: RejectedRows,
        max_age: int | None = None,
    ) -> None:
        self._store = store
        self._format = format
        self._catalogue = catalogue
        self._cap = cap
        self._clock = clock
        self._events = events
        self._retention = retention
        self._rejections = rejections
        self.max_age: Final = max_age
        """The maximum age of new keys, in microseconds; None: no maximum."""

    async def get(self, organization: str, id: str) -> ApiKey:
        """Return one key of the organization.

        Raises:
            NotFound: the organization has no such key; it may be another's (K6).
        """
        with asking(self._events):
            key = await self._store.get(organization, id)
        if key is None:
            raise NotFound
        return key

    @committing
    async def revoke(self, organization: str, id: str, *, successors: bool = False) -> ApiKey:
        """Revoke a key for good, and return it; no process accepts it any more (D5).

        Idempotent (D4).

        Args:
            organization: its id.
            id: the key's.
            successors: whether to revoke its successors by rotation, too (D43). That includes a
                concurrent rotation: each key is revoked before its successor is looked up, and a
                revoked key cannot be rotated.

        Raises:
            NotFound: the organization has no such key.
            StoreUnavailable: the store did not answer; of several keys the first may be revoked.
        """
        first = key = await self._revoke(organization, id)
        if key is None:
            raise NotFound
        seen = {id}
        while successors and key is not None and key.successor not in {None, *seen}:
            assert key.successor is not None, "by the condition"
            seen.add(key.successor)
            key = await self._revoke(organization, key.successor)
        self._retention.used()
        assert first is not None, "or it was not found"
        return first

    async def _revoke(self, organization: str, id: str) -> ApiKey | None:
        with asking(self._events):
            change = drafted_change("key_revoked", id)
            key = await self._store.revoke_if_live(organization, id, self._now(), change=change)
        if key is not None:
            self._events.emit("key_revoked", organization=organization, id=id)
        return key

    @committing
    async def update(
        self,
        organization: str,
        id: str,
        *,
        name: str | None = None,
        scopes: Sequence[str] | None = None,
        expires_in_days: float | Unchanged | None = UNCHANGED,
        labels: Mapping[str, str] | None = None,
        addresses: Sequence[str] | None = None,
        limits: Mapping[str, str] | None = None,
    ) -> ApiKey:
        """Change a live key, and return it. Its secret stays the same (D43).

        Once this has returned, no process applies the previous scopes, expiry, addresses or limits
        to a request.

        Args:
            organization: its id.
            id: the key's.
            name: as for :meth:`~lockgate.services.keys.keys.Keys.create`; None: unchanged.
            scopes: as for ``create``, replacing all previous scopes; None: unchanged.
            expires_in_days: days from now, as for ``create``; None: it never expires, or with
                the gate's ``max_age_days`` at that age. The expiry of a rotated key can only
                become earlier.
            labels: as for ``create``, replacing all previous labels; None: unchanged.
            addresses: as for ``create``, replacing all previous addresses; None: unchanged.
            limits: as for ``create``, replacing all previous limits; None: unchanged. A window that
                a limit has before and after keeps what is counted (W13).

        Raises:
            NotFound: the organization has no such key, or its row has no valid seal.
            InvalidRequest: arguments are invalid; names all of them.
            KeyNotLive: the key was revoked or has expired.
            StoreUnavailable: the store did not answer.
        """
        changes = self._check(name, scopes, expires_in_days, labels, addresses, limits)
        for _ in range(_ATTEMPTS):
            old, now = await self._live(organization, id)
            new = changes.of(old, now)
            if new == old:
                return old
            new = resealed_key(new, self._format.peppers)
            change = drafted_change("key_updated", id, *key_differences(old, new))
            with asking(self._events):
                is_done = await self._store.update_if(old, new, self._now(), change=change)
            if is_done:
                self._events.emit("key_updated", organization=organization, id=id)
                return new
        raise _too_often(id)

    @committing
    async def rotate(
        self,
        organization: str,
        id: str,
        *,
        overlap_days: float = OVERLAP_DAYS,
        created_by: str | None = None,
    ) -> RotatedKey:
        """Replace a live key by a successor with the same name, scopes, lifetime, labels,
        addresses and limits, which count anew (D43).

        The old key works until the overlap ends, or until its own expiry if that is earlier.
        Responses to it then carry ``Deprecation`` (RFC 9745) and ``Sunset`` (RFC 8594). Both keys
        count towards the cap, so an organization at its cap must rotate without an overlap.

        Args:
            organization: its id.
            id: the key's.
            overlap_days: 0 to 90; 0 revokes the old key in the same step.
            created_by: the creator of the successor, as for ``create``.

        Raises:
            NotFound: the organization has no such key, or its row has no valid seal.
            InvalidRequest: the overlap is out of range, or the creator too long.
            KeyNotLive: the key was revoked or has expired.
            KeyRotated: the key has a successor already.
            KeyLimitReached: the organization already has its maximum of live keys (D8).
            ConfigurationError: the tables are of a revision before rotations.
            StoreUnavailable: the store did not answer. If it did not tell afterwards either whether
                the key was rotated, the successor's text may be lost: rotate the successor.
        """
        overlap, of_overlap = read_overlap(overlap_days)
        refuse_problems({"overlap_days": of_overlap, "created_by": check_creator(created_by)})

        async def attempt() -> RotatedKey:
            for _ in range(_ATTEMPTS):
                rotated = await self._rotate(organization, id, overlap, created_by)
                if rotated is not None:
                    return rotated
            raise _too_often(id)

        rotated = await retry_taken_handles(attempt)
        successor = rotated.successor.id
        self._events.emit("key_rotated", organization=organization, id=id, successor=successor)
        self._retention.used()
        return rotated

    async def _rotate(
        self, organization: str, id: str, overlap: int, created_by: str | None
    ) -> RotatedKey | None:
        """Rotate a key once; return None if it was changed in the meantime."""
        old, now = await self._live(organization, id)
        if old.successor is not None:
            raise KeyRotated(old.successor)
        expires_at = successor_expiry(old, now, self.max_age)
        details = old.details or KeyDetails()
        draft, text = draft_key(
            self._format,
            organization,
            old.name,
            old.scopes,
            expires_at,
            details._replace(created_by=created_by).or_none(),
        )
        new = old._replace(details=details._replace(rotated_at=now, successor=draft.id))
        if overlap:
            new = new._replace(expires_at=min(old.expires_at or NEVER, now + overlap))
        else:
            new = new._replace(revoked_at=now)
        new = resealed_key(new, self._format.peppers)
        change = drafted_change("key_rotated", id, *key_differences(old, new))
        with asking(self._events):
            rotation = self._store.rotate_if(old, new, draft, self._cap, self._now(), change=change)
            successor = await made_or_raised(
                rotation, lambda: drafted(self._store, draft), _UNANSWERED
            )
        return None if successor is None else RotatedKey(new, successor, text)

    async def _live(self, organization: str, id: str) -> tuple[ApiKey, int]:
        """Return a key that may be changed, and the present instant.

        Raises:
            NotFound, KeyNotLive: as :meth:`update`.
        """
        key, now = await self.get(organization, id), await self.now()
        why = judge_seal(key, self._format.peppers)
        if why is not None:
            self._rejections.report(rejected_by_seal(key, why))
            raise NotFound
        if key.state(now) is not KeyState.ACTIVE:
            raise KeyNotLive
        return key, now

    def _check(
        self,
        name: str | None,
        scopes: Sequence[str] | None,
        expires_in_days: float | Unchanged | None,
        labels: Mapping[str, str] | None,
        addresses: Sequence[str] | None,
        limits: Mapping[str, str] | None,
    ) -> "_Changes":
        """Check the arguments of an update."""
        problems: dict[str, list[str]] = {}
        distinct: tuple[str, ...] | None = None
        lifetime: int | Unchanged | None = UNCHANGED
        sorted_labels: Labels | None = None
        networks: tuple[str, ...] | None = None
        own_limits: OwnLimits | None = None
        if name is not None:
            name, problems["name"] = read_name(name)
        if scopes is not None:
            distinct, problems["scopes"] = read_scopes(scopes, self._catalogue)
        if not isinstance(expires_in_days, Unchanged):
            lifetime, problems["expires_in_days"] = read_lifetime(expires_in_days)
        if labels is not None:
            sorted_labels, problems["labels"] = read_labels(labels)
        if addresses is not None:
            networks, problems["addresses"] = read_addresses(addresses)
        if limits is not None:
            own_limits, problems["limits"] = read_own_limits(limits)
        refuse_problems(problems)
        return _Changes(name, distinct, lifetime, sorted_labels, networks, own_limits, self.max_age)

    async def now(self) -> int:
        """Return the present, by which keys are live or expired, in microseconds."""
        now = self._now()
        if now is not None:
            return now
        with asking(self._events):
            return await self._store.now()

    def _now(self) -> int | None:
        return self._clock() if self._clock else None


def _too_often(id: str) -> RuntimeError:
    return RuntimeError(f"The key {id} changed {_ATTEMPTS} times while it was to be changed.")
