"""API key records: stored fields, states, and the checks of a new key (D2, D4 to D8)."""

import json
import unicodedata
from collections.abc import Mapping, Sequence
from enum import Enum
from math import ceil
from typing import Any, Final, NamedTuple, Self

from .allowed_addresses import contains
from .credentials import holds_credential, without_credentials
from .digests import Digest
from .limits import OwnLimits
from .plans import is_list_of_texts
from .scopes import Catalogue
from .timestamps import DAY, MILLISECOND, MINUTE

NAME_LENGTH: Final = 100
SCOPES_AT_MOST: Final = 50
DAYS_AT_MOST: Final = 36_500
OVERLAP_AT_MOST: Final = 90
"""Days for which a key that was rotated works beside its successor, at most (D43)."""
_SHOWN: Final = 64
"""Characters of an unknown scope that an error repeats."""
_NAMED: Final = 40
"""Number of existing scopes that an error lists."""
_SHORTEST: Final = MINUTE / DAY
"""The shortest lifetime, in days: less than a minute is taken for a mistake in the unit."""
_JOINERS: Final = frozenset("\u200c\u200d")
"""Invisible characters that Persian, Indic scripts and emoji need."""
_VISIBLE_FORMATS: Final = frozenset(
    "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u0890\u0891\u08e2\U000110bd\U000110cd"
)
"""Visible characters of category Cf (Unicode's ``Prepended_Concatenation_Mark``)."""
_BLANKS: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Characters of other categories that are invisible."""
_DIRECTIONS: Final = frozenset(
    "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)
"""Bidirectional controls, with which a name can be displayed as another."""
_CONTROLS: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
NEVER: Final = 2**53 - 1
"""The instant at which a key without an expiry date ends: the largest whole number that JSON and
the scripts of Redis hold exactly (year 2255)."""


ENDS_SOON: Final = 14 * DAY
"""Microseconds before its end from which on a live key is due for rotation."""


class KeyState(Enum):
    """The state of a key at an instant; revoked takes precedence over expired (D4)."""

    ACTIVE = "active"
    REVOKED = "revoked"
    EXPIRED = "expired"


Labels = tuple[tuple[str, str], ...]
"""Names and values of labels, in the order of the names."""


class KeyDetails(NamedTuple):
    """Fields of a key that most keys do not have. The seal of its row covers ``addresses``."""

    rotated_at: int | None = None
    """When the key was rotated, in microseconds (D43)."""
    successor: str | None = None
    """The id of the key that replaces it; set together with ``rotated_at``, once."""
    created_by: str | None = None
    """The creator of the key, such as ``user:42``, ``agent`` or ``shell``; None: unknown."""
    labels: Labels = ()
    """Labels for people and programs; they grant no access."""
    addresses: tuple[str, ...] = ()
    """The addresses and networks that may use the key, in canonical form; empty: all."""
    limits: OwnLimits = ()
    """The named limits of the key itself: each of its requests is charged for them (D40)."""
    others: tuple[tuple[str, str], ...] = ()
    """Fields that a later release wrote, as JSON: kept by a change of this release."""

    def allows(self, address: str | None) -> bool:
        """Return whether a client may use the key; a client without an address may not, if the
        key has an allow-list."""
        return not self.addresses or (address is not None and contains(self.addresses, address))

    def or_none(self) -> Self | None:
        """Return the details, or None if they are empty."""
        return self if any(self) else None

    def written(self) -> dict[str, Any]:
        """Return the fields that are not empty, for JSON."""
        known = {name: value for name, value in zip(self._fields[:-1], self, strict=False) if value}
        return {**known, **{name: json.loads(value) for name, value in self.others}}

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> Self:
        """Return the details of :meth:`written`.

        Raises:
            TypeError, ValueError: the fields are damaged.
        """
        fields = {**fields}
        return cls(
            fields.get("rotated_at"),
            fields.get("successor"),
            fields.get("created_by"),
            tuple((name, value) for name, value in fields.get("labels", ())),
            tuple(fields.get("addresses", ())),
            tuple((name, rates) for name, rates in fields.get("limits", ())),
            tuple((name, json.dumps(fields[name])) for name in fields if name not in cls._fields),
        )


class ApiKey(NamedTuple):
    """The stored fields of one key, which do not include its text.

    Instants are microseconds. ``scheme`` names how ``digest`` was made (D3).
    """

    id: str
    handle: str
    """The ``<prefix>`` of the key, by which it is found; unique."""
    organization: str
    name: str
    prefix: str
    """The first 15 characters of the full key, for display (D2)."""
    scopes: tuple[str, ...]
    scheme: str
    digest: bytes
    seal: str | None
    """The MAC over the fields that grant access; None for an unsealed row."""
    created_at: int
    expires_at: int | None
    revoked_at: int | None = None
    details: KeyDetails | None = None
    """None for most keys, so that an admission looks at one field."""
    request_count: int = 0
    last_used_at: int | None = None

    @property
    def kept(self) -> Digest:
        """The digest of its text, and the seal of its row."""
        return Digest(self.scheme, self.digest, self.seal)

    def state(self, now: int) -> KeyState:
        """Return the key's state at ``now``; ``expires_at <= now`` is expired (D4)."""
        if self.revoked_at is not None:
            return KeyState.REVOKED
        if self.expires_at is not None and self.expires_at <= now:
            return KeyState.EXPIRED
        return KeyState.ACTIVE

    @property
    def successor(self) -> str | None:
        """The id of the key that replaces it; None: it was not rotated (D43)."""
        return None if self.details is None else self.details.successor

    def ends_soon(self, now: int) -> bool:
        """Return whether a live key without a successor ends within :data:`ENDS_SOON`."""
        state = self.state(now)
        return (
            state is KeyState.ACTIVE and self.successor is None and self.ends_at - now <= ENDS_SOON
        )

    def outlives(self, max_age: int) -> bool:
        """Return whether a key ends past a maximum age, in microseconds from its creation."""
        return self.ends_at >= self.created_at + max_age + MILLISECOND  # created_at is rounded.

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses and networks that may use the key; empty: all."""
        return () if self.details is None else self.details.addresses

    @property
    def limits(self) -> OwnLimits:
        """The named limits of the key itself, by name and rates; empty: it has none."""
        return () if self.details is None else self.details.limits

    @property
    def ends_at(self) -> int:
        """When the key ended or will end: the earlier of revocation and expiry, or NEVER."""
        expires, revoked = self.expires_at, self.revoked_at
        return min(NEVER if expires is None else expires, NEVER if revoked is None else revoked)

    def __repr__(self) -> str:
        return f"ApiKey(id={self.id!r}, name={self.name!r}, organization={self.organization!r})"


class Position(NamedTuple):
    """A place in an ordered list of keys or accounts: the entry after which a page begins."""

    instant: int
    """``created_at``, ``ends_at`` or ``claimed_at``, by the order of the list."""
    id: str
    """The id of the key, or of the account's organization."""


class KeyHistory(NamedTuple):
    """The history of a key that another system issued. Instants are microseconds."""

    created_at: int
    revoked_at: int | None = None
    request_count: int = 0
    last_used_at: int | None = None


class KeyDraft(NamedTuple):
    """A key about to be inserted; the store's clock says when it was created."""

    id: str
    handle: str
    organization: str
    name: str
    prefix: str
    scopes: tuple[str, ...]
    scheme: str
    digest: bytes
    seal: str | None
    expires_at: int | None
    """When it expires, in microseconds; None: never."""
    history: KeyHistory | None = None
    """None: a new key."""
    details: KeyDetails | None = None

    def created(self, now: int) -> ApiKey:
        """Return the key as inserted at ``now``, or with its history.

        ``created_at`` is in whole milliseconds, as responses show it (D30), so that lists are
        sorted by the visible value.
        """
        history = self.history or KeyHistory(now)
        return ApiKey(
            *self[:9],
            created_at=history.created_at - history.created_at % MILLISECOND,
            expires_at=self.expires_at,
            revoked_at=history.revoked_at,
            details=self.details,
            request_count=history.request_count,
            last_used_at=history.last_used_at,
        )

    def __repr__(self) -> str:
        return f"KeyDraft(id={self.id!r}, name={self.name!r}, organization={self.organization!r})"


def read_name(value: str, longest: int = NAME_LENGTH) -> tuple[str, list[str]]:
    """Trim a display name, and return its problems (D8)."""
    name = value.strip()
    if not 1 <= len(name) <= longest:
        return name, [f"Use 1 to {longest} characters."]
    if any(c in _DIRECTIONS or unicodedata.category(c) in _CONTROLS for c in name):
        return name, ["Use no control characters."]
    if any(map(_is_invisible, name, " " + name, name[1:] + " ")):
        return name, ["Use no invisible characters."]
    if holds_credential(name):
        return name, ["Leave out keys and tokens: lists show this text."]
    return name, []


def _is_invisible(character: str, before: str, after: str) -> bool:
    """Return whether a character is invisible between these neighbours.

    Two names that differ in an invisible character look the same. Joiners have an effect between
    two characters that are neither ASCII, nor spaces, nor joiners.
    """
    if character in _JOINERS:
        return any(c.isascii() or c.isspace() or c in _JOINERS for c in (before, after))
    if character in _VISIBLE_FORMATS:
        return False
    return character in _BLANKS or unicodedata.category(character) == "Cf"


def count_scopes(values: Sequence[str]) -> list[str]:
    """Return a problem for too few or too many scopes (D8)."""
    return [] if 1 <= len(values) <= SCOPES_AT_MOST else [f"Give 1 to {SCOPES_AT_MOST} scopes."]


def read_scopes(values: Sequence[str], catalogue: Catalogue) -> tuple[tuple[str, ...], list[str]]:
    """Drop repeated scopes; return the rest and the problems, naming each unknown one (D8)."""
    if isinstance(values, str):
        return (), [f"Use a list of scopes: [{without_credentials(values)[:_SHOWN]!a}]."]
    if not is_list_of_texts(values):
        return (), ["Use a list of scopes, each a text."]
    scopes = tuple(dict.fromkeys(values))
    if problems := count_scopes(values):
        return scopes, problems
    unknown = [scope for scope in scopes if scope not in catalogue.scopes]
    problems = [f"There is no scope {without_credentials(scope)[:_SHOWN]!a}." for scope in unknown]
    if unknown:
        known = sorted(catalogue.scopes)
        others = ", or another that there is" if len(known) > _NAMED else ""
        problems[-1] += f" Use some of {', '.join(known[:_NAMED])}{others}."
    return scopes, problems


def read_lifetime(days: float | None, max_age: int | None = None) -> tuple[int | None, list[str]]:
    """Convert days to microseconds, at least a minute, and return their problems (D7).

    Args:
        days: None: no expiry, or the maximum age.
        max_age: the maximum age of a key, in microseconds; None: no maximum.
    """
    if days is None:
        return max_age, []
    if isinstance(days, bool) or not 0 < days <= DAYS_AT_MOST:
        return None, [f"Use a number of days greater than 0 and at most {DAYS_AT_MOST}, or null."]
    if days < _SHORTEST:
        return None, ["The key would expire within a minute: use at least 1/1440 (0.0006945) days."]
    lifetime = ceil(days * DAY)
    if max_age is not None and lifetime > max_age:
        return None, [f"Keys of this service work for at most {max_age / DAY:g} days."]
    return lifetime, []


def read_overlap(days: float) -> tuple[int, list[str]]:
    """Turn the days for which a rotated key still works into microseconds, and return the problems
    of the number (D43)."""
    if isinstance(days, bool) or not 0 <= days <= OVERLAP_AT_MOST:
        return 0, [f"Use a number of days from 0 to {OVERLAP_AT_MOST}."]
    return ceil(days * DAY), []
