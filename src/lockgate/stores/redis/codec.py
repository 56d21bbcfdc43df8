"""Encode values for the scripts, and decode records and replies."""

import json
import sys
from collections.abc import Sequence
from struct import Struct
from typing import Any, Final, NamedTuple, cast
from urllib.parse import quote, unquote, unquote_to_bytes

from ...core.accounts import Account
from ...core.api_keys import ApiKey, KeyDetails, Position
from ...core.changes import Change, ChangeDraft
from ...core.digests import Digest
from ...core.plans import Organization
from ...core.row_seals import Counted
from .key_names import read, write
from .transport.commands import number

_USAGE: Final = Struct("<qq")
RECORDS: Final = "its keys, plan and account in Redis"
"""Names the stored state in the message of :class:`UnreadableState`."""


def write_digest(digest: Digest) -> tuple[bytes, bytes, bytes]:
    """Encode a digest as three words: scheme, digest and the seal of its row."""
    scheme = quote(digest.scheme, safe=":").encode()
    return scheme, digest.value.hex().encode(), write_seal(digest.seal)


def write_seal(seal: str | None) -> bytes:
    """Encode a seal as one word, empty for None."""
    return quote(seal or "", safe=":").encode()


def _read_seal(seal: bytes) -> str | None:
    return unquote(seal.decode("ascii", "replace")) or None


def write_record(key: ApiKey) -> bytes:
    """Encode the record of a key (``key_records.lua``)."""
    times = number(key.created_at), number(key.expires_at), number(key.revoked_at)
    return b" ".join((*times, *write_digest(key.kept), _described(key)))


def _described(key: ApiKey) -> bytes:
    """Encode the fields of a key that scripts do not read; details come last, if there are any."""
    return _json([*key[:6], *([] if key.details is None else [key.details.written()])])


def _json(value: object) -> bytes:
    """Encode JSON in UTF-8. Surrogates stay unescaped: an escaped pair would be read as one."""
    return write(json.dumps(value, ensure_ascii=False))


def write_user(user: str) -> bytes:
    """Encode a user's id as one word."""
    return quote(write(user)).encode()


def write_account(account: Account) -> bytes:
    """Encode the record of an account (``commit.lua``)."""
    times = account.created_at, account.claimed_at, account.token_revoked_at, account.signed_in_at
    user = b"" if account.claimed_by is None else write_user(account.claimed_by)
    words = *map(number, times), number(account.sign_outs), *write_digest(account.kept), user
    return b" ".join((*words, _json(account[:5])))


def read_account(record: bytes) -> Account:
    """Decode the record of an account (``commit.lua``)."""
    created, claimed_at, revoked, signed_in_at, *rest = record.split(b" ", 9)
    sign_outs, scheme, digest, seal, user, fixed = rest
    organization, agent_name, billing_email, company_name, handle = cast(
        list[Any], json.loads(fixed)
    )
    return Account(
        organization,
        agent_name,
        billing_email,
        company_name,
        handle,
        unquote(scheme.decode()),
        bytes.fromhex(digest.decode()),
        _read_seal(seal),
        int(created),
        read(unquote_to_bytes(user)) if user else None,
        int(claimed_at) if claimed_at else None,
        int(revoked) if revoked else None,
        int(sign_outs),
        int(signed_in_at) if signed_in_at else None,
    )


def read_key(record: bytes, usage: bytes | None) -> ApiKey:
    """Decode the record of a key (``key_records.lua``) and its usage."""
    created, expires, revoked, scheme, digest, seal, described = record.split(b" ", 6)
    fields = cast(list[Any], json.loads(described))
    id, handle, organization, name, prefix, scopes, *details = fields
    requests, last = read_usage(usage)
    return ApiKey(
        id,
        handle,
        organization,
        name,
        prefix,
        tuple(scopes),
        sys.intern(unquote(scheme.decode())),
        bytes.fromhex(digest.decode()),
        _read_seal(seal),
        int(created),
        int(expires) if expires else None,
        int(revoked) if revoked else None,
        KeyDetails.read(details[0]) if details else None,
        requests,
        last,
    )


def read_keys(fields: Sequence[bytes | None]) -> list[ApiKey]:
    """Decode alternating records and usage; keys without a record are left out."""
    pairs = zip(fields[::2], fields[1::2], strict=True)
    return [read_key(record, usage) for record, usage in pairs if record is not None]


def read_counted(record: bytes) -> Counted:
    """Decode the fields of a key's record that a census counts."""
    scheme, _, seal = record.split(b" ", 6)[3:6]
    return unquote(scheme.decode()), _read_seal(seal), 1


def write_place(position: Position) -> bytes:
    """Encode a position as the member of an index (``key_records.lua``)."""
    return b"%016d%b" % (position.instant, write(position.id))


def write_usage(key: ApiKey) -> bytes:
    """Encode the usage of a new key; empty for none."""
    if not key.request_count and key.last_used_at is None:
        return b""
    return _USAGE.pack(key.request_count, key.last_used_at or 0)


def read_usage(usage: bytes | None) -> tuple[int, int | None]:
    """Decode usage: the number of requests and the instant of the last, in microseconds."""
    if not usage:
        return 0, None
    requests, last = _USAGE.unpack(usage)
    return int(requests), int(last) or None


class Claim(NamedTuple):
    """The organization and id of the key that has a handle."""

    organization: str
    id: str
    since: int | None = None
    """When a key that was not inserted yet claimed the handle, in microseconds."""


def write_claim(claim: Claim) -> bytes:
    """Encode a claim."""
    return _json(claim)


def read_claim(claim: bytes) -> Claim:
    """Decode a claim."""
    return Claim(*cast(list[Any], json.loads(claim)))


def write_placement(organization: Organization) -> bytes:
    """Encode the plan assignment of an organization: the plan and its overrides."""
    return json.dumps((organization.plan, organization.overrides)).encode()


def read_placement(id: str, placed: bytes | None) -> Organization | None:
    """Decode a plan assignment; None: the organization has none."""
    if not placed:
        return None
    plan, overrides = cast(list[Any], json.loads(placed))
    return Organization(id, plan, tuple((name, limit) for name, limit in overrides))


def write_change(change: ChangeDraft | None) -> bytes:
    """Encode a record for the change log; empty for None."""
    return b"" if change is None else change.text().encode()


def read_change(number: int, record: bytes) -> Change:
    """Decode a record of the change log (``change_log.lua``)."""
    at, text = record.split(b" ", 1)
    return Change.read(number, int(at), text)
