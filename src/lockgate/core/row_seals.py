"""Row seals: the fields that a row's MAC covers, and the verdict on a row's seal (D3).

Without seals, an attacker with write access to the database could copy the digest of a key into
another organization's row, widen its scopes or extend its expiry. So each row has a seal, made with
the newest pepper over the fields below. A process verifies the seal of each row once, and treats a
row without a valid one as missing.

Each field is encoded with its length before it, so the encodings of two rows differ. The first
field is the kind of row, and the key of the MAC is derived from the pepper for this purpose.
"""

from collections.abc import Iterable
from enum import Enum
from operator import itemgetter
from typing import Final, NamedTuple

from .accounts import Account, AccountDraft
from .api_keys import ApiKey, KeyDraft
from .digests import PEPPER_SCHEME, PLAIN_SCHEME, Digest, Peppers

UNSEALED_ROWS: Final = "unsealed"
"""The name of rows without a seal in a census."""


class Rejection(Enum):
    """The reason for treating a row as missing although its handle matches."""

    PLAIN = "plain_digest"
    """Its digest is plain SHA-256, and peppers are configured."""
    PEPPER = "unknown_pepper"
    """Its digest or its seal names a pepper that is not configured."""
    SCHEME = "unknown_scheme"
    """Its digest is of a scheme that this process does not know."""
    UNSEALED = "unsealed"
    """It has no seal."""
    SEAL = "wrong_seal"
    """The seal does not match the fields."""


class Rejected(NamedTuple):
    """A rejected row, without its digest."""

    why: Rejection
    organization: str
    id: str
    """The key's id, or the handle of the dashboard token."""
    prefix: str
    """The first characters of the key, for display; the handle of a dashboard token."""
    scheme: str
    """The scheme of the digest, or of the seal if the seal is the reason."""


sealed_fields: Final = itemgetter(*map(ApiKey._fields.index, (
    "handle", "organization", "scopes", "scheme", "digest", "seal", "expires_at", "details",
)))  # fmt: skip
"""Get the sealed fields of a key and its seal, with its details for their addresses."""


def key_row(key: ApiKey | KeyDraft) -> bytes:
    """Return the sealed fields of a key's row as bytes."""
    expires = "" if key.expires_at is None else str(key.expires_at)
    kept = key.handle, key.organization, key.scheme, key.digest
    addresses = () if key.details is None else key.details.addresses
    if addresses:
        listed = str(len(addresses)), *addresses
        return _written(("key with addresses", *kept, expires, *listed, *key.scopes))
    return _written(("key", *kept, expires, *key.scopes))


def account_row(account: Account | AccountDraft) -> bytes:
    """Return the sealed fields of an account's row as bytes: token, billing e-mail, owner."""
    claimed_by = account.claimed_by if isinstance(account, Account) else None
    claim = ("unclaimed",) if claimed_by is None else ("claimed", claimed_by)
    token = account.organization, account.handle, account.scheme, account.digest
    return _written(("account", *token, account.billing_email, *claim))


def sealed_draft(draft: KeyDraft, peppers: Peppers) -> KeyDraft:
    """Return a draft with its seal."""
    return draft._replace(seal=peppers.seal(key_row(draft)))


def sealed_account_draft(draft: AccountDraft, peppers: Peppers) -> AccountDraft:
    """Return a draft with its seal."""
    return draft._replace(seal=peppers.seal(account_row(draft)))


def resealed_key(key: ApiKey, peppers: Peppers, digest: Digest | None = None) -> ApiKey:
    """Return a key with the newest seal, and with another digest if there is one."""
    if digest is not None:
        key = key._replace(scheme=digest.scheme, digest=digest.value)
    return key._replace(seal=peppers.seal(key_row(key)))


def resealed_account(account: Account, peppers: Peppers, digest: Digest | None = None) -> Account:
    """Return an account with the newest seal, and with another digest if there is one."""
    if digest is not None:
        account = account._replace(scheme=digest.scheme, digest=digest.value)
    return account._replace(seal=peppers.seal(account_row(account)))


def sealed_by(row: ApiKey | Account) -> str:
    """Return the id of the pepper in a row's seal; empty without a seal."""
    return str(row.seal or "").partition(":")[0]


def is_current(row: ApiKey | Account, peppers: Peppers) -> bool:
    """Return whether a row's digest and seal both use the newest pepper or ``next_pepper``."""
    return row.scheme in peppers.current_schemes and (
        not peppers.seals or sealed_by(row) in peppers.current_seals
    )


def judge_seal(row: ApiKey | Account, peppers: Peppers) -> Rejection | None:
    """Return the reason for rejecting a row by its seal; None for a valid seal or no peppers."""
    if not peppers.seals:
        return None
    if row.seal is None:
        open_ = peppers.accept_unsealed or (row.scheme == PLAIN_SCHEME and peppers.accept_plain)
        return None if open_ else Rejection.UNSEALED
    message = key_row(row) if isinstance(row, ApiKey) else account_row(row)
    if peppers.verify(row.seal, message):
        return None
    return Rejection.SEAL if peppers.seal_pepper_known(row.seal) else Rejection.PEPPER


def rejected_by_digest(row: ApiKey | Account) -> Rejected:
    """Return the rejection of a row whose digest has a scheme that is not accepted."""
    return _rejected(row, rejected_scheme(row.scheme), row.scheme)


def rejected_scheme(scheme: str) -> Rejection:
    """Return why a digest of a scheme that is not accepted rejects its row."""
    if scheme == PLAIN_SCHEME:
        return Rejection.PLAIN
    return Rejection.PEPPER if scheme.startswith(PEPPER_SCHEME) else Rejection.SCHEME


def rejected_by_seal(row: ApiKey | Account, why: Rejection) -> Rejected:
    """Return the rejection of a row by :func:`judge_seal`."""
    return _rejected(row, why, seal_scheme(row.seal))


def _rejected(row: ApiKey | Account, why: Rejection, scheme: str) -> Rejected:
    if isinstance(row, ApiKey):
        return Rejected(why, row.organization, row.id, row.prefix, scheme)
    return Rejected(why, row.organization, row.handle, row.handle, scheme)


def seal_scheme(seal: str | None) -> str:
    """Return the name of a seal's pepper in a census."""
    return UNSEALED_ROWS if seal is None else f"seal:{str(seal).partition(':')[0][:8]}"


Counted = tuple[str | None, str | None, int]
"""A digest scheme, a seal or its start up to the ``:``, and the number of such rows.

The scheme is None if the digest is no longer accepted and only the seal is still verified."""


def counted_key(key: ApiKey) -> Counted:
    """Return a key as :func:`tally` counts it."""
    return key.scheme, key.seal, 1


def counted_account(account: Account) -> Counted:
    """Return how :func:`tally` counts an account: its claim needs the seal even without a token."""
    return None if account.token_revoked_at is not None else account.scheme, account.seal, 1


def tally(rows: Iterable[Counted]) -> dict[str, int]:
    """Count the rows of each digest scheme, and of each seal under another pepper."""
    counts: dict[str, int] = {}
    for scheme, seal, number in rows:
        if scheme is None:
            if seal is not None:
                counts[seal_scheme(seal)] = counts.get(seal_scheme(seal), 0) + number
            continue
        counts[scheme] = counts.get(scheme, 0) + number
        with_ = seal_scheme(seal)
        same = scheme == PEPPER_SCHEME + with_.removeprefix("seal:")
        if not same and not (seal is None and scheme == PLAIN_SCHEME):
            counts[with_] = counts.get(with_, 0) + number
    return counts


def _written(fields: Iterable[str | bytes]) -> bytes:
    """Concatenate fields, each with its length before it."""
    parts: list[bytes] = []
    for field in fields:
        value = field if isinstance(field, bytes) else str(field).encode("utf-8", "surrogatepass")
        parts += (len(value).to_bytes(4, "big"), value)
    return b"".join(parts)
