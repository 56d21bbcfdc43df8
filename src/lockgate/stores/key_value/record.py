"""The record of an organization: its changes and its encoding."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Any, Final, Self, TypeVar

from ...core.accounts import Account, last_use
from ...core.api_keys import NEVER, ApiKey, KeyDetails, KeyState, Position
from ...core.budgets import SLOTS, UNUSED, Budget
from ...core.key_format import Token
from ...core.ledger import Action, HitLeased, Ledger, change_of
from ...core.limit_windows import span_of
from ...core.limits import Limit
from ...core.plans import LONGEST_SPAN, Organization, PlanBook
from ...core.quota_leases import LeaseRequest
from ...core.reservations import Reservation, Reservations
from ...core.sliding_window import Cells
from ...core.timestamps import DAY
from ...core.usage_marks import Mark, Marks, marked
from ..answers import (
    UNKNOWN,
    Admission,
    OrganizationSummary,
    Usage,
    UsageBatch,
    Verdict,
    holder_of,
    limits_of,
    refusal_of,
)
from ..rows import (
    REMEMBERED,
    REMEMBERED_FOR,
    REMOVED_AT_MOST,
    Commit,
    Outcome,
    Row,
    Version,
    is_recorded,
    judged,
    stamped,
    without_usage,
)
from .change_log import NO_LOG, Log, read_log

A = TypeVar("A")

_FORMAT = 1
_RARE: Final[list[Any]] = [NO_LOG, {}, {}, (), (), "", {}, ()]
"""What few organizations have: where a record ends early, the rest is this."""
ENDED_AT_MOST: Final = 1000
"""The most ended keys in a record, since every admission reads and writes the whole record."""


@dataclass
class Record:
    """One organization."""

    keys: dict[str, ApiKey] = field(default_factory=dict[str, ApiKey])
    """By handle."""
    ledger: Ledger = Ledger()  # noqa: RUF009 - a tuple
    placed: Organization | None = None
    account: Account | None = None
    log: Log = NO_LOG
    marks: Marks = ()
    """Which batches of usage are counted."""
    owner: str = ""
    """The organization, once a commit has changed it."""
    made: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """The latest commits by their ids: the instant of each, and the keys that it has ended."""

    def admit(
        self,
        token: Token,
        cost: int,
        plans: PlanBook,
        now: int,
        address: str | None,
        limits: tuple[Limit, ...],
        request: LeaseRequest | None = None,
    ) -> Admission:
        """Verify a key, charge the windows, and count the usage."""
        key = self.keys.get(token.handle)
        refusal = refusal_of(token, key, now, address)
        if refusal is not None or key is None:
            return refusal or UNKNOWN
        plan = plans.plan_of(self.placed, now)
        named = limits_of(limits, plan, key, now)
        charge = HitLeased(plan.windows, cost, request, named, holder_of(key, plan))
        reading, lease = self.charge(charge, key.organization, now)
        if not reading.allowed:
            return Admission(Verdict.LIMITED, key, plan, reading, named, lease)
        key = self.use(key.handle, Usage(1, now))
        return Admission(Verdict.ADMITTED, key, plan, reading, named, lease)

    def charge(self, action: Action[A], organization: str, now: int) -> A:
        """Apply an action to the ledger."""
        answer, after = action.apply(self.ledger._replace(owner=organization), now)
        self.ledger = after._replace(owner="")
        change = change_of(action)
        if change is not None:
            self.owner = organization  # A walk names it, to remove old changes.
            self.log = self.log.added(change, now)
        return answer

    def rows(self) -> dict[str, ApiKey | Account]:
        """Return the keys by their handles, and the account by an empty one."""
        rows: dict[str, ApiKey | Account] = {**self.keys}
        return rows if self.account is None else rows | {"": self.account}

    def key(self, id: str) -> ApiKey | None:
        """Return the key with this id."""
        return next((key for key in self.keys.values() if key.id == id), None)

    def use(self, handle: str, used: Usage) -> ApiKey | None:
        """Add to the usage of a key; None if it does not exist."""
        key = self.keys.get(handle)
        if key is None:
            return None
        last = max(used.last_used_at, key.last_used_at or used.last_used_at)
        requests = key.request_count + used.requests
        key = self.keys[handle] = key._replace(request_count=requests, last_used_at=last)
        return key

    def use_all(self, usage: Mapping[str, Usage], batch: UsageBatch | None, now: int) -> None:
        """Add to the usage of keys by handle, unless this batch is counted."""
        known = {handle: used for handle, used in usage.items() if handle in self.keys}
        if batch is not None and known:
            marks = marked(self.marks, batch.writer, batch.number, now)
            if marks is None:
                return
            self.marks = marks
        for handle, used in known.items():
            self.use(handle, used)

    def commit(self, commit: Commit, now: int) -> Outcome:
        """Make a commit, or answer why not."""
        if commit.id in self.made:
            at, ended = self.made[commit.id]
            return self._done(commit, at, ended)
        verdict = judged(commit, now, self.version, self._is_taken, lambda: len(self._live(now)))
        if verdict == "done" and commit.remove_unused is not None:
            verdict = "done" if (self.last_use() or NEVER) <= commit.remove_unused else "changed"
        if verdict != "done":
            return Outcome(verdict, now)
        ended = self._end(commit, now)
        for write in commit.writes:
            self._write(stamped(write.new, now), now)
        recorded = is_recorded(commit, ended)
        if recorded:
            self.log = self.log.added(commit.change, now)
        if ended or commit.writes or recorded:
            self.owner = commit.owner
            latest = [*self.made.items()][1 - REMEMBERED :]
            self.made = {id: made for id, made in latest if made[0] > now - REMEMBERED_FOR}
            self.made[commit.id] = now, ended
        return self._done(commit, now, ended)

    def _done(self, commit: Commit, at: int, ended: int) -> Outcome:
        more = commit.remove_ended is not None and ended == REMOVED_AT_MOST
        return Outcome("done", at, self._rows(commit, at), ended, more)

    def version(self, row: Row) -> Version | None:
        """Return the version of the row that is kept in the place of another, or None."""
        if isinstance(row, ApiKey):
            return without_usage(self.keys.get(row.handle))
        return self.account if isinstance(row, Account) else self.placed

    def _is_taken(self, row: ApiKey | Account) -> bool:
        """Return whether a new row cannot be inserted; its handle is claimed elsewhere."""
        return (
            self.account is not None if isinstance(row, Account) else self.key(row.id) is not None
        )

    def has(self, handle: str) -> bool:
        """Return whether a key or the account has a handle."""
        account = self.account
        return handle in self.keys or (account is not None and account.handle == handle)

    def last_use(self) -> int | None:
        """Return the latest use of an account that may be removed; None: it must not be."""
        account = self.account
        if account is None or account.claimed_by is not None or self.placed is not None:
            return None
        return last_use(account, self.keys.values())

    def _write(self, row: Row | None, now: int) -> None:
        if isinstance(row, Organization):
            self.placed = row
        elif isinstance(row, Account):
            self.account = row
        elif isinstance(row, ApiKey):
            kept = self.keys.get(row.handle)
            if kept is None:
                self._make_room(now)
            self.keys[row.handle] = row if kept is None else ApiKey(*row[:-2], *kept[-2:])

    def _make_room(self, now: int) -> None:
        """Drop the keys that ended first, beyond :data:`ENDED_AT_MOST`."""
        ended = [key for key in self.keys.values() if key.state(now) is not KeyState.ACTIVE]
        if len(ended) > ENDED_AT_MOST:
            ended.sort(key=lambda key: (key.ends_at, key.id))
            for key in ended[:-ENDED_AT_MOST]:
                del self.keys[key.handle]

    def _end(self, commit: Commit, now: int) -> int:
        """End keys as a commit asks; return their number."""
        if commit.revoke_all:
            live = self._live(now)
            for key in live:
                self.keys[key.handle] = key._replace(revoked_at=now)
            return len(live)
        due = list[ApiKey]()
        if commit.remove_unused is not None:
            self.account, due = None, [*self.keys.values()]
        elif commit.remove_ended is not None:
            ended = (key for key in self.keys.values() if key.ends_at <= commit.remove_ended)
            due = nsmallest(REMOVED_AT_MOST, ended, key=lambda key: key.ends_at)
        for key in due:
            del self.keys[key.handle]
        return len(due)

    def _rows(self, commit: Commit, at: int) -> tuple[Row | None, ...]:
        """Return the rows as a commit of an instant has written them, keys with their usage."""
        rows = (stamped(write.new, at) for write in commit.writes)
        return tuple(
            ApiKey(*row[:-2], *self.keys[row.handle][-2:])
            if isinstance(row, ApiKey) and row.handle in self.keys
            else row
            for row in rows
        )

    def _live(self, now: int) -> list[ApiKey]:
        return [key for key in self.keys.values() if key.state(now) is KeyState.ACTIVE]

    def summary(self, now: int) -> OrganizationSummary | None:
        """Return the organization with its live keys; None: it has neither a key nor a plan."""
        key, placed = next(iter(self.keys.values()), None), self.placed
        if placed is not None:
            id = placed.id
        elif key is not None:
            id = key.organization
        else:
            return None
        live = self._live(now)
        used = [key.last_used_at for key in live if key.last_used_at is not None]
        return OrganizationSummary(id, placed, len(live), max(used, default=None))

    def until(self) -> int | None:
        """Return the instant after which the record may be dropped; None: never."""
        if self.keys or self.placed or self.account or self.log != NO_LOG:
            return None
        _, windows, leases, limits, budgets, _, promises = self.ledger
        last = [cells[3] + LONGEST_SPAN for cells in windows]
        last += [one.deadline + LONGEST_SPAN for one in (*leases, *promises)]
        # All that a period of a calendar quota counts is a cell at its first instant.
        last += [cells[3] + span_of(name) for name, cells in limits.items()]
        last += [budget.last + span_of(name) for name, budget in budgets.items()]
        # A day more, for a clock that steps back.
        return max(last) + DAY if last else 0

    def written(self) -> bytes | None:
        """Return the record as bytes; None for an empty record."""
        if self == Record():
            return None
        ledger = self.ledger
        value = [
            _FORMAT,
            [_plain_key(key) for key in self.keys.values()],
            [_plain(cells) for cells in ledger.windows],
            ledger.budgets.get(SLOTS, UNUSED).held,
            self.placed,
            None if self.account is None else _plain(self.account),
        ]
        # What few organizations have comes last, as far as this one has it.
        rare = [
            self.log,
            {name: _plain(cells) for name, cells in ledger.limits.items()},
            {name: one.written().hex() for name, one in ledger.budgets.items() if name != SLOTS},
            ledger.leases,
            self.marks,
            self.owner,
            self.made,
            ledger.promises,
        ]
        while rare and rare[-1] == _RARE[len(rare) - 1]:
            rare.pop()
        return _json([*value, *rare])

    @classmethod
    def read(cls, value: bytes | None) -> Self:
        """Decode the bytes of :meth:`written`; None gives an empty record.

        Raises:
            ValueError: the bytes are of a later version of lockgate.
        """
        if value is None:
            return cls()
        format, keys, windows, slots, placed, account, *more = json.loads(value)
        if format != _FORMAT:
            raise ValueError(f"A record has format {format}: lockgate here reads {_FORMAT}.")
        more += _RARE[len(more) :]
        log, limits, budgets, leases, marks, owner, made, promises = more
        read = [_key(fields) for fields in keys]
        held = {SLOTS: Budget(held=_reservations(slots))} if slots else {}
        return cls(
            {key.handle: key for key in read},
            Ledger(
                windows=tuple(map(_cells, windows)),
                leases=_reservations(leases),
                limits={name: _cells(cells) for name, cells in limits.items()},
                budgets={name: Budget.read(bytes.fromhex(one)) for name, one in budgets.items()}
                | held,
                promises=_reservations(promises),
            ),
            None if placed is None else _organization(*placed),
            None if account is None else _account(account),
            read_log(*log),
            tuple(Mark(*mark) for mark in marks),
            owner,
            {id: (at, ended) for id, (at, ended) in made.items()},
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
    def write_history(marks: Marks, history: bytes) -> bytes:
        """Return the record of a usage history: the marks in JSON, a line feed, the history."""
        return _json(marks) + b"\n" + history

    @staticmethod
    def read_history(value: bytes | None) -> tuple[Marks, bytes | None]:
        """Return what :meth:`write_history` wrote; damaged marks are none."""
        head, _, history = (value or b"").partition(b"\n")
        try:
            marks = tuple(Mark(*mark) for mark in json.loads(head or b"[]"))
        except (TypeError, ValueError):
            return (), value
        return marks, history or None

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


def _cells(fields: list[Any]) -> Cells:
    used, oldest, first, last, count, older = fields
    return used, oldest, first, last, count, bytes.fromhex(older)


def _reservations(rows: list[list[Any]]) -> Reservations:
    return tuple(Reservation(*row) for row in rows)


def _plain_key(key: ApiKey) -> list[Any]:
    """Return a key as JSON takes it; details come last, where there are some."""
    *fields, details, requests, last = key
    return [*_plain([*fields, requests, last]), *([] if details is None else [details.written()])]


def _key(fields: list[Any]) -> ApiKey:
    id, handle, organization, name, prefix, scopes, scheme, digest, seal, *rest = fields
    row = (id, handle, organization, name, prefix, tuple(scopes), scheme, bytes.fromhex(digest))
    created, expires, revoked, requests, last, *more = rest
    details = KeyDetails.read(more[0]) if more else None
    return ApiKey(*row, seal, created, expires, revoked, details, requests, last)


def _account(fields: list[Any]) -> Account:
    fields[6] = bytes.fromhex(fields[6])
    return Account(*fields)


def _organization(id: str, plan: str, overrides: list[list[Any]]) -> Organization:
    return Organization(id, plan, tuple((name, limit) for name, limit in overrides))
