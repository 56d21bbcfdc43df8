"""Encodes values for columns, and decodes them."""

import json
from functools import lru_cache
from hashlib import sha256
from struct import Struct
from typing import Any, TypeAlias

from ...core.accounts import Account
from ...core.api_keys import ApiKey, KeyDetails
from ...core.budgets import SLOTS, Budget
from ...core.holds import PREFIX
from ...core.plans import Organization
from ...core.quota_leases import QuotaLeases
from ...core.reservations import Reservation, Reservations
from ...core.sliding_window import Cells, State
from ...core.timestamps import DAY
from ..answers import UNREADABLE, UnreadableState, reading_state

_HEAD = Struct("<BB")
_CELLS = Struct("<qqqqqI")
_ONE_WINDOW = Struct("<BBqqqqqI")
"""A head and the cells of one window."""
_LEASE = Struct("<8sqqq")
_LEASES = Struct("<B")
_PROMISE = Struct("<qqqH")
_FORMAT, _LEASED, _PROMISED = 1, 2, 3
_USE = Struct("<Bqq")
ROW = "its row in the table of organizations"
"""The ``where`` of an :class:`UnreadableState`."""
EMPTY_COLUMNS = (
    "set its columns windows, used and made to NULL: windows and recent usage then begin anew, "
    "keys, plans and slots stay"
)
"""The ``removal`` of one. The row itself cannot go: its keys refer to it."""
LIMIT_ROWS = "its rows in the table of limits"
REMOVE_LIMITS = "delete them: named limits, holds and slots then begin anew"
_EMPTY_OVERRIDES = "set its column overrides to NULL: the limits of its plan then apply"
_REMOVE_KEY = "delete that row: the key is then lost"
_ACCOUNT_COLUMNS = len(Account._fields)

Uses: TypeAlias = dict[str, tuple[int, int]]
"""Requests to add to keys, and the latest instant, by handle; most recently used key last."""


def write_id(id: str) -> bytes:
    """Encode an opaque id; lone surrogates are allowed (D36)."""
    return id.encode("utf-8", "surrogatepass")


def read_id(value: bytes) -> str:
    """Decode an id of :func:`write_id`."""
    return bytes(value).decode("utf-8", "surrogatepass")


def write_cells(cells: Cells) -> bytes:
    """Encode the cells of one window of a named limit, as :func:`write_state` does."""
    older = cells[5]
    return _ONE_WINDOW.pack(_FORMAT, 1, *cells[:5], len(older)) + older


def read_cells(value: bytes) -> Cells:
    """Decode cells of :func:`write_cells`.

    Raises:
        ValueError, struct.error: the bytes are damaged, or from another version of lockgate.
    """
    value = bytes(value)
    format, windows, used, oldest, first, last, count, length = _ONE_WINDOW.unpack_from(value)
    older = value[_ONE_WINDOW.size :]
    if format != _FORMAT or windows != 1 or len(older) != length:
        raise ValueError(f"Cells of {len(value)} bytes have format {format}, {windows} windows.")
    return used, oldest, first, last, count, older


def write_field(field: str, value: Cells | Budget) -> bytes:
    """Encode the cells of a named limit, or a budget: slots as JSON, whose jobs and owners are any
    texts. Two escaped surrogates would decode as one."""
    if not isinstance(value, Budget):
        return write_cells(value)
    if field == SLOTS:
        return write_id(json.dumps(value.held, ensure_ascii=False))
    return value.written()


def read_field(field: str, value: bytes) -> Cells | Budget:
    """Decode the bytes of :func:`write_field`.

    Raises:
        ValueError, struct.error: the bytes are damaged, or from another version of lockgate.
    """
    if field == SLOTS:
        return Budget(held=tuple(Reservation(*row) for row in json.loads(read_id(value))))
    return Budget.read(bytes(value)) if field.startswith(PREFIX) else read_cells(value)


@lru_cache(4096)
def limit_id(organization: bytes, field: str) -> bytes:
    """Return the primary key of a named limit's cells, of one length for every id (D36)."""
    return sha256(field.encode("ascii") + b"\n" + organization).digest()


def lease_number(organization: bytes, lease: str) -> int:
    """Return the number of a quota lease, 64 bits with a sign, among all of a database."""
    return int.from_bytes(sha256(lease.encode() + b"\n" + organization).digest()[:8], signed=True)


def write_state(state: State, leases: QuotaLeases = (), promises: Reservations = ()) -> bytes:
    """Encode the state of windows: 46 bytes for each window, and 16 for each older cell.

    The quota leases that are out follow, 32 bytes each, in another format: a process of a
    release that does not know them refuses the organization's requests until they have ended.
    With promises a third one, in which the number of leases precedes these, and promises follow.
    """
    format = _FORMAT
    if promises or leases:
        format = _PROMISED if promises else _LEASED
    parts = [_HEAD.pack(format, len(state))]
    for used, oldest, first, last, count, older in state:
        parts += (_CELLS.pack(used, oldest, first, last, count, len(older)), older)
    if promises:
        parts.append(_LEASES.pack(len(leases)))
    if leases:
        parts += [_LEASE.pack(bytes.fromhex(one.id), *one[1:4]) for one in leases]
    if promises:
        for one in promises:
            holder = write_id(one.owner)
            parts += (_PROMISE.pack(*one[1:4], len(holder)), holder)
    return b"".join(parts)


def read_state(value: bytes | None) -> tuple[State, QuotaLeases, Reservations]:
    """Decode a state of :func:`write_state`, empty before the first hit, with the quota leases and
    the promises.

    Raises:
        ValueError, struct.error: the bytes are damaged, or from another version of lockgate.
    """
    if value is None:
        return (), (), ()
    format, windows_kept = _HEAD.unpack_from(value)
    if format not in (_FORMAT, _LEASED, _PROMISED):
        raise ValueError(f"Window state has format {format}: lockgate here reads {_PROMISED}.")
    at = _HEAD.size
    state: list[Cells] = []
    unpack, size = _CELLS.unpack_from, _CELLS.size
    for _ in range(windows_kept):
        used, oldest, first, last, count, length = unpack(value, at)
        begins = at + size
        at = begins + length
        state.append((used, oldest, first, last, count, value[begins:at]))
    leases: QuotaLeases = ()
    promises: Reservations = ()
    if format != _FORMAT:
        ends = len(value)
        if format == _PROMISED:
            ends = at + _LEASES.size + _LEASE.size * _LEASES.unpack_from(value, at)[0]
            at += _LEASES.size
        rows = _LEASE.iter_unpack(value[at:ends])
        leases = tuple(Reservation(id.hex(), *numbers) for id, *numbers in rows)
        promises, at = _read_promises(value, ends)
    if at != len(value):
        raise ValueError(f"Window state ends at {len(value)} instead of {at}.")
    return tuple(state), leases, promises


def _read_promises(value: bytes, at: int) -> tuple[Reservations, int]:
    """Decode the promises from a place to the end of a state; return them and where they end."""
    promises: list[Reservation] = []
    while at < len(value):
        units, deadline, span, length = _PROMISE.unpack_from(value, at)
        begins = at + _PROMISE.size
        at = begins + length
        promises.append(Reservation("", units, deadline, span, read_id(value[begins:at])))
    return tuple(promises), at


def idle_day(until: int) -> int:
    """Return the first whole day after an instant, in days since the Unix epoch."""
    return until // DAY + 1


def write_uses(uses: Uses) -> bytes | None:
    """Encode usage that is not yet in the rows of its keys; None: no usage."""
    parts: list[bytes] = []
    for handle, (requests, last) in uses.items():
        name = handle.encode("ascii")
        parts += (_USE.pack(len(name), requests, last), name)
    return b"".join(parts) or None


def read_uses(value: bytes | None, organization: bytes) -> Uses:
    """Decode usage of :func:`write_uses`.

    Raises:
        UnreadableState: the bytes are damaged.
    """
    uses: Uses = {}
    if value is None:
        return uses
    try:
        value, at = bytes(value), 0
        while at < len(value):
            length, requests, last = _USE.unpack_from(value, at)
            at += _USE.size + length
            uses[value[at - length : at].decode("ascii")] = requests, last
    except UNREADABLE as failure:
        raise UnreadableState(read_id(organization), ROW, EMPTY_COLUMNS) from failure
    return uses


def read_organization(id: str, plan: str | None, overrides: str | None) -> Organization | None:
    """Decode an organization; None: it has no assigned plan.

    Raises:
        UnreadableState: the overrides are damaged.
    """
    if plan is None:
        return None
    with reading_state(id, ROW, _EMPTY_OVERRIDES):
        return Organization(id, plan, _read_overrides(overrides) if overrides else ())


# Cached: few texts, read with every request.


@lru_cache(1024)
def _read_overrides(text: str) -> tuple[tuple[str, int | None], ...]:
    return tuple((name, limit) for name, limit in json.loads(text))


@lru_cache(1024)
def _read_scopes(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))


@lru_cache(4096)
def _read_details(text: str) -> KeyDetails:
    return KeyDetails.read(json.loads(text))


def write_overrides(organization: Organization) -> str | None:
    """Encode the overrides of an organization as JSON; None: it has no overrides."""
    return json.dumps(organization.overrides) if organization.overrides else None


def write_key(key: ApiKey) -> dict[str, Any]:
    """Encode a key as the columns of its row."""
    row = key._asdict()
    row["organization"] = write_id(key.organization)
    row["scopes"] = json.dumps(key.scopes)
    row["ends_at"] = key.ends_at
    row["unrevoked"] = int(key.revoked_at is None)
    row["details"] = None if key.details is None else json.dumps(key.details.written())
    return row


def read_key(row: Any, uses: Uses) -> ApiKey:
    """Decode a key from the columns of ``key_columns``, and from usage beside windows.

    Raises:
        UnreadableState: the scopes or the details are damaged.
    """
    handle, id, organization, name, prefix, scopes, scheme, digest, seal = row[:9]
    created_at, expires_at, revoked_at, requests, last, details = row[9:15]
    if handle in uses:
        more, latest = uses[handle]
        requests += more
        last = latest if last is None else max(last, latest)
    owner = read_id(organization)
    try:
        covered = _read_scopes(scopes)
        described = None if details is None else _read_details(details)
    except UNREADABLE as failure:
        raise UnreadableState(owner, "its row in the table of keys", _REMOVE_KEY) from failure
    return ApiKey(
        id,
        handle,
        owner,
        name,
        prefix,
        covered,
        scheme,
        bytes(digest),
        seal,
        created_at,
        expires_at,
        revoked_at,
        described,
        requests,
        last,
    )


def write_account(account: Account) -> dict[str, Any]:
    """Encode an account as the columns of its row."""
    row = account._asdict()
    row["organization"] = write_id(account.organization)
    row["billing_email"] = write_id(account.billing_email)
    row["claimed_by"] = account.claimed_by and write_id(account.claimed_by)
    row["unclaimed"] = int(account.claimed_by is None)
    row["review_at"] = account.created_at if account.claimed_by is None else None
    return row


def read_account(row: Any) -> Account:
    """Decode an account from its row, in the order of the table."""
    account = Account._make(row[:_ACCOUNT_COLUMNS])
    claimed_by = row[9]
    return account._replace(
        organization=read_id(row[0]),
        billing_email=read_id(row[2]),
        digest=bytes(account.digest),
        claimed_by=None if claimed_by is None else read_id(claimed_by),
    )
