"""The record of an organization: its changes and its encoding."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Self

from ...core.accounts import Account
from ...core.api_keys import ApiKey, KeyDetails, KeyDraft, KeyState, Position
from ...core.leases import Lease, Leases
from ...core.plans import Organization
from ...core.row_seals import Counted, counted_account, counted_key
from ...core.sliding_window import State, Window, empty_state
from ...core.timestamps import DAY
from ..base import Usage

_FORMAT = 1
ENDED_AT_MOST: Final = 1000
"""The most ended keys in a record, since every admission reads and writes the whole record."""


@dataclass
class Record:
    """One organization."""

    keys: dict[str, ApiKey] = field(default_factory=dict[str, ApiKey])
    """By handle."""
    windows: State = ()
    leases: Leases = ()
    placed: Organization | None = None
    account: Account | None = None

    def state(self, windows: tuple[Window, ...]) -> State:
        """Return the state of the windows; empty before the first hit."""
        return self.windows or empty_state(windows)

    def key(self, id: str) -> ApiKey | None:
        """Return the key with this id."""
        return next((key for key in self.keys.values() if key.id == id), None)

    def insert(self, draft: KeyDraft, now: int) -> ApiKey:
        """Insert a key; beyond :data:`ENDED_AT_MOST` drop the keys that ended first."""
        ended = [key for key in self.keys.values() if key.state(now) is not KeyState.ACTIVE]
        if len(ended) > ENDED_AT_MOST:
            ended.sort(key=lambda key: (key.ends_at, key.id))
            for key in ended[:-ENDED_AT_MOST]:
                del self.keys[key.handle]
        key = self.keys[draft.handle] = draft.created(now)
        return key

    def remove_ended(self, until: int) -> int:
        """Remove the keys that ended at an instant or before, and return their number."""
        due = [handle for handle, key in self.keys.items() if key.ends_at <= until]
        for handle in due:
            del self.keys[handle]
        return len(due)

    def use(self, handle: str, used: Usage) -> ApiKey | None:
        """Add to the usage of a key; None if it does not exist."""
        key = self.keys.get(handle)
        if key is None:
            return None
        last = max(used.last_used_at, key.last_used_at or used.last_used_at)
        requests = key.request_count + used.requests
        key = self.keys[handle] = key._replace(request_count=requests, last_used_at=last)
        return key

    def revoke(self, key: ApiKey, now: int) -> ApiKey:
        """Set the time of a revocation, if it is not set."""
        if key.revoked_at is None:
            key = self.keys[key.handle] = key._replace(revoked_at=now)
        return key

    def is_live(self, key: ApiKey, now: int) -> bool:
        """Return whether it has exactly this key, usage aside, and the key is live."""
        mine = self.keys.get(key.handle)
        return mine is not None and mine[:-2] == key[:-2] and key.state(now) is KeyState.ACTIVE

    def replace(self, new: ApiKey) -> None:
        """Replace a key by another version of it, with the usage of before."""
        self.keys[new.handle] = ApiKey(*new[:-2], *self.keys[new.handle][-2:])

    def counted(self, now: int) -> Iterator[Counted]:
        """Yield each live key and the account, as a census counts them."""
        for key in self.keys.values():
            if key.state(now) is KeyState.ACTIVE:
                yield counted_key(key)
        if self.account is not None:
            yield counted_account(self.account)

    def until(self) -> int | None:
        """Return the instant after which the record may be dropped; None: never."""
        if self.keys or self.placed or self.account:
            return None
        # A day more than the longest window, for a clock that steps back.
        last = [cells[3] + 2 * DAY for cells in self.windows]
        return max([*last, *(lease.deadline + DAY for lease in self.leases)], default=0)

    def written(self) -> bytes | None:
        """Return the record as bytes; None for an empty record."""
        if self == Record():
            return None
        value = [
            _FORMAT,
            [_plain_key(key) for key in self.keys.values()],
            [_plain(cells) for cells in self.windows],
            self.leases,
            self.placed,
            None if self.account is None else _plain(self.account),
        ]
        return _json(value)

    @classmethod
    def read(cls, value: bytes | None) -> Self:
        """Decode the bytes of :meth:`written`; None gives an empty record.

        Raises:
            ValueError: the bytes are of a later version of lockgate.
        """
        if value is None:
            return cls()
        format, keys, windows, leases, placed, account = json.loads(value)
        if format != _FORMAT:
            raise ValueError(f"A record has format {format}: lockgate here reads {_FORMAT}.")
        read = [_key(fields) for fields in keys]
        return cls(
            {key.handle: key for key in read},
            tuple((*cells[:5], bytes.fromhex(cells[5])) for cells in windows),
            tuple(Lease(*lease) for lease in leases),
            None if placed is None else _organization(*placed),
            None if account is None else _account(account),
        )

    @staticmethod
    def write_positions(positions: Iterable[Position]) -> bytes | None:
        """Return the entries of an index, as bytes; None: there are none."""
        return _json(list(positions)) if positions else None

    @staticmethod
    def read_positions(value: bytes | None) -> list[Position]:
        """Return the entries that :meth:`write_positions` wrote."""
        return [] if value is None else [Position(*entry) for entry in json.loads(value)]

    @staticmethod
    def write_names(names: Iterable[str]) -> bytes:
        """Encode ids of organizations."""
        return _json(list(names))

    @staticmethod
    def read_names(value: bytes | None) -> list[str]:
        """Return the ids that :meth:`write_names` wrote."""
        names: list[str] = [] if value is None else json.loads(value)
        return names


def _json(value: object) -> bytes:
    """Encode as UTF-8 JSON with unescaped surrogates: two escaped ones would decode as one."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def _plain(fields: Iterable[Any]) -> list[Any]:
    return [part.hex() if isinstance(part, bytes) else part for part in fields]


def _plain_key(key: ApiKey) -> list[Any]:
    """Return a key as JSON takes it; details come last, where there are some."""
    *fields, details, requests, last = key
    return [*_plain([*fields, requests, last]), *([] if details is None else [details._asdict()])]


def _key(fields: list[Any]) -> ApiKey:
    id, handle, organization, name, prefix, scopes, scheme, digest, seal, *rest = fields
    row = (id, handle, organization, name, prefix, tuple(scopes), scheme, bytes.fromhex(digest))
    created, expires, revoked, requests, last, *more = rest
    details = KeyDetails(**more[0]) if more else None
    return ApiKey(*row, seal, created, expires, revoked, details, requests, last)


def _account(fields: list[Any]) -> Account:
    fields[6] = bytes.fromhex(fields[6])
    return Account(*fields)


def _organization(id: str, plan: str, overrides: list[list[Any]]) -> Organization:
    return Organization(id, plan, tuple((name, limit) for name, limit in overrides))
