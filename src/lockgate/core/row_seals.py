"""Row seals: the fields under the MAC beside a digest, and the verdict on a row without it (D3).

Without seals, a writer of the database could copy the digest of a key into another organization's
row, widen its scopes or prolong its life. So a row carries a seal, made with the newest pepper over
the fields below. A process verifies the seal of each row that it does not remember, and treats a
row without a good one as missing.

Each field is written with its length before it, so no two rows are written alike. The first field
says what kind of row it is, and the key of the MAC is derived from the pepper for this purpose.
"""

from collections.abc import Iterable
from enum import Enum
from operator import itemgetter
from typing import Final, NamedTuple

from .accounts import Account, AccountDraft
from .api_keys import ApiKey, KeyDraft
from .digests import PEPPER_SCHEME, PLAIN_SCHEME, Digest, Peppers

UNSEALED_ROWS: Final = "unsealed"
"""How a census names rows without a seal."""


class Rejection(Enum):
    """Why a row is treated as if it were not there, though its text may be the right one."""

    PLAIN = "plain_digest"
    """Its digest is plain SHA-256, and peppers are configured."""
    PEPPER = "unknown_pepper"
    """Its digest or its seal names a pepper that is not configured."""
    UNSEALED = "unsealed"
    """It has no seal."""
    SEAL = "wrong_seal"
    """The seal does not match the fields."""


class Rejected(NamedTuple):
    """A row that was rejected, without its digest."""

    why: Rejection
    organization: str
    id: str
    """The key's id, or the handle of the dashboard token."""
    prefix: str
    """How the key begins, to recognise it by; for a dashboard token its handle."""
    scheme: str
    """The scheme of the digest; where the seal is at fault, that of the seal."""


sealed_fields: Final = itemgetter(*map(ApiKey._fields.index, (
    "handle", "organization", "scopes", "scheme", "digest", "seal", "expires_at",
)))  # fmt: skip
"""The fields of a key that its seal covers, and the seal: two keys alike in these are as good."""


def key_row(key: ApiKey | KeyDraft) -> bytes:
    """Return the sealed fields of a key's row as bytes."""
    expires = "" if key.expires_at is None else str(key.expires_at)
    kept = key.handle, key.organization, key.scheme, key.digest
    return _written(("key", *kept, expires, *key.scopes))


def account_row(account: Account | AccountDraft) -> bytes:
    """Return the sealed fields of an account's row as bytes: token, billing e-mail, owner."""
    claimed_by = account.claimed_by if isinstance(account, Account) else None
    claim = ("unclaimed",) if claimed_by is None else ("claimed", claimed_by)
    token = account.organization, account.handle, account.scheme, account.digest
    return _written(("account", *token, account.billing_email, *claim))


def sealed_draft(draft: KeyDraft, peppers: Peppers) -> KeyDraft:
    """A draft with its seal."""
    return draft._replace(seal=peppers.seal(key_row(draft)))


def sealed_account_draft(draft: AccountDraft, peppers: Peppers) -> AccountDraft:
    """A draft with its seal."""
    return draft._replace(seal=peppers.seal(account_row(draft)))


def resealed_key(key: ApiKey, peppers: Peppers, digest: Digest | None = None) -> ApiKey:
    """A key with the newest seal, and with another digest if there is one."""
    if digest is not None:
        key = key._replace(scheme=digest.scheme, digest=digest.value)
    return key._replace(seal=peppers.seal(key_row(key)))


def resealed_account(account: Account, peppers: Peppers, digest: Digest | None = None) -> Account:
    """An account with the newest seal, and with another digest if there is one."""
    if digest is not None:
        account = account._replace(scheme=digest.scheme, digest=digest.value)
    return account._replace(seal=peppers.seal(account_row(account)))


def sealed_by(row: ApiKey | Account) -> str:
    """The id of the pepper that a row says to be sealed with; empty: it has no seal."""
    return str(row.seal or "").partition(":")[0]


def is_current(row: ApiKey | Account, peppers: Peppers) -> bool:
    """Whether digest and seal of a row are both of the newest pepper, or of the next one."""
    return row.scheme in peppers.current_schemes and (
        not peppers.seals or sealed_by(row) in peppers.current_seals
    )


def judge_seal(row: ApiKey | Account, peppers: Peppers) -> Rejection | None:
    """Return why the seal of a row rejects it; None for a good seal, or without sealing."""
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
    why = Rejection.PLAIN if row.scheme == PLAIN_SCHEME else Rejection.PEPPER
    return _rejected(row, why, row.scheme)


def rejected_by_seal(row: ApiKey | Account, why: Rejection) -> Rejected:
    """What to tell of a row that :func:`judge_seal` rejects."""
    return _rejected(row, why, seal_scheme(row.seal))


def _rejected(row: ApiKey | Account, why: Rejection, scheme: str) -> Rejected:
    if isinstance(row, ApiKey):
        return Rejected(why, row.organization, row.id, row.prefix, scheme)
    return Rejected(why, row.organization, row.handle, row.handle, scheme)


def seal_scheme(seal: str | None) -> str:
    """Return the name of a seal's pepper in a census."""
    return UNSEALED_ROWS if seal is None else f"seal:{str(seal).partition(':')[0][:8]}"


Counted = tuple[str | None, str | None, int]
"""A digest scheme, a seal or the start of one up to the ``:``, and how many such rows there are.

None for the scheme: the digest no longer admits, and the seal is still verified."""


def counted_key(key: ApiKey) -> Counted:
    """A key as :func:`tally` counts it."""
    return key.scheme, key.seal, 1


def counted_account(account: Account) -> Counted:
    """Return how :func:`tally` counts an account: its claim needs the seal even without a token."""
    return None if account.token_revoked_at is not None else account.scheme, account.seal, 1


def tally(rows: Iterable[Counted]) -> dict[str, int]:
    """A census: how many rows depend on each digest scheme, and on each seal that is another's."""
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
    """Fields one after the other, each with its length before it."""
    parts: list[bytes] = []
    for field in fields:
        value = field if isinstance(field, bytes) else str(field).encode("utf-8", "surrogatepass")
        parts += (len(value).to_bytes(4, "big"), value)
    return b"".join(parts)
