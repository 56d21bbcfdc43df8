"""Charges: the transaction of a batch of admissions.

The transaction first locks the organizations' rows, then reads windows and keys, applies the rules
of ``core`` and writes. Its charges are judged in the order in which they arrived, so each gets the
reading that it would have got alone.

**Where a revocation becomes immediate (K4).** Each change of a key (revoking, rehashing, removing,
claiming its account) locks the row of the key's organization, as each admission does. An admission
reads the key while it holds that lock, never before, and compares the fields under its seal with
those that the token was verified against. Once a revocation has committed, every admission that
gets the lock later reads the revoked row and refuses; every admission that had the lock earlier had
committed before the revocation was answered. A process keeps hints of keys, but only to know which
lock to take: a key that differs from its hint is ``MOVED`` and is read and verified anew.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ...core.api_keys import ApiKey, KeyState
from ...core.plans import Organization, PlanBook
from ...core.row_seals import sealed_fields
from ...core.sliding_window import Reading, State, Window, hit
from ..base import REFUSED_BY_STATE, UNREADABLE, Admission, UnreadableState, Verdict
from .codec import (
    ROW,
    Uses,
    idle_day,
    read_id,
    read_key,
    read_organization,
    read_state,
    read_uses,
    write_id,
    write_state,
    write_uses,
)
from .databases import Database, Held
from .statements import Cursor, Rows, filled, places_for

TOGETHER_AT_MOST: Final = 64
"""The most charges in a transaction, which keeps it short."""
USES_AT_MOST: Final = 8
"""The maximum number of keys with usage in their organization's row. Beyond it, the usage of the
least recently used key moves to that key's row."""

_NO_KEY: Final = ""
"""A handle that no key has."""


class Hit(NamedTuple):
    """A charge to an organization's windows, without a key."""

    organization: str
    windows: tuple[Window, ...]
    cost: int
    now: int | None
    """The instant in microseconds; None: the server's clock."""


class Admit(NamedTuple):
    """A charge to the windows of a key's organization, with the verification of the key."""

    organization: str
    """The key's owner by its hint, which the row must confirm."""
    handle: str
    sealed: tuple[object, ...]
    """The fields under the seal of the key's row, as they were when its token was verified."""
    cost: int
    plans: PlanBook
    now: int | None
    """The instant in microseconds; None: the server's clock."""
    resolved: bool
    """Whether ``assigned`` comes from the host's resolver, which replaces the plan in the row."""
    assigned: Organization | None


Charge = Hit | Admit


class MOVED:
    """The outcome of an :class:`Admit` if its key was removed or changed after its token was
    verified: read and verify the key again, outside of any lock."""


Outcome = Reading | Admission | type[MOVED] | Exception


_REHEARSED: Final = (1, 2, 4, 8, 16)
"""The batch sizes for which statements are compiled before the first request."""


class Ledger:
    """Makes charges in the tables.

    Args:
        database: the kind of database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def charge(self, cursor: Cursor, charges: Sequence[Charge]) -> list[Outcome]:
        """Make charges in the transaction that has begun; the caller commits it."""
        if len(charges) == 1 and (alone := self._charge_one(cursor, charges[0])) is not None:
            return [alone]
        owners = [write_id(charge.organization) for charge in charges]
        accounts, held = self._lock(cursor, owners, charges)
        keys, clock = _keys_of(held.keys, accounts), _clock(cursor, held)
        outcomes: list[Outcome] = []
        for owner, charge in zip(owners, charges, strict=True):
            key = keys.get(_handle_of(charge))
            outcome = _judge(charge, accounts[owner], key, clock)
            if isinstance(outcome, Admission) and outcome.key is not None:
                keys[outcome.key.handle] = outcome.key
            outcomes.append(outcome)
        changed = [account for account in accounts.values() if account.changed]
        if changed:
            self._write(cursor, changed)
        return outcomes

    def rehearse(self, cursor: Cursor) -> None:
        """Compile the statements of charges, and run the read-only ones once."""
        statements = cursor.statements
        writing = statements.keep, statements.date, *self._database.writing(statements)
        for places in _REHEARSED:
            for statement in writing:
                statements.written(statement, places)
        statements.written(statements.make, 1)
        for places in _REHEARSED:
            self._database.hold(cursor, [b""] * places, [_NO_KEY] * places)

    def _charge_one(self, cursor: Cursor, charge: Charge) -> Outcome | None:
        """Make the only charge of a transaction, without the steps of a batch.

        Returns None if its organization has no row yet.
        """
        owner = write_id(charge.organization)
        held = self._database.hold(cursor, (owner,), (_handle_of(charge),))
        if not held.owners:
            return None
        account = _Account(held.owners[0])
        key = _key_of(held.keys[0], account) if held.keys else None
        outcome = _judge(charge, account, key, _clock(cursor, held))
        if not account.changed:
            return outcome
        if account.new_idle_day or len(account.uses) > USES_AT_MOST:
            self._write(cursor, (account,))
        else:
            values = {"o0": owner, "s0": account.windows(), "u0": write_uses(account.uses)}
            cursor.run(cursor.statements.keep, 1, values)
        return outcome

    def _lock(
        self, cursor: Cursor, owners: Sequence[bytes], charges: Sequence[Charge]
    ) -> tuple[dict[bytes, "_Account"], Held]:
        """Lock organizations, and insert missing rows."""
        ids = sorted({*owners})
        handles = sorted({_handle_of(charge) for charge in charges})
        while True:
            held = self._database.hold(cursor, ids, handles)
            accounts = {account.id: account for account in map(_Account, held.owners)}
            if len(accounts) == len(ids):
                return accounts, held
            with self._database.making(cursor.driver):
                for id in ids:
                    if id not in accounts:
                        cursor.run(cursor.statements.make, 1, {"o0": id})

    def _write(self, cursor: Cursor, changed: Sequence["_Account"]) -> None:
        """Write the windows, usage and idle days of organizations."""
        later = [account for account in changed if account.new_idle_day]
        if later:
            places = places_for(len(later))
            ids, days = [account.id for account in later], [account.idle_day for account in later]
            cursor.run(cursor.statements.date, places, filled(places, o=ids, d=days))
        moved: Uses = {}
        for account in changed:
            while len(account.uses) > USES_AT_MOST:
                handle = next(iter(account.uses))
                moved[handle] = account.uses.pop(handle)
        places = places_for(max(len(changed), len(moved)))
        values = filled(
            places,
            o=[account.id for account in changed],
            s=[account.windows() for account in changed],
            u=[write_uses(account.uses) for account in changed],
        )
        if not moved:
            cursor.run(cursor.statements.keep, places, values)
            return
        handles = sorted(moved)
        requests, last = zip(*[moved[handle] for handle in handles], strict=True)
        values.update(filled(places, h=handles, n=requests, a=last))
        for statement in self._database.writing(cursor.statements):
            cursor.run(statement, places, values)


def _judge(
    charge: Charge, account: "_Account", key: ApiKey | UnreadableState | None, clock: int
) -> Outcome:
    """Return a charge's outcome or exception, which affects no other charge of the batch."""
    now = clock if charge.now is None else charge.now
    try:
        if isinstance(charge, Hit):
            return account.hit(charge.windows, now, charge.cost)
        return key if isinstance(key, UnreadableState) else _admit(charge, account, key, now)
    except Exception as mistake:
        return mistake


def _admit(
    charge: Admit, account: "_Account", key: ApiKey | None, now: int
) -> Admission | type[MOVED]:
    if key is None or sealed_fields(key) != charge.sealed:
        return MOVED
    state = key.state(now)
    if state is not KeyState.ACTIVE:
        return Admission(REFUSED_BY_STATE[state], key)
    assigned = charge.assigned if charge.resolved else account.organization()
    plan = charge.plans.plan_of(assigned)
    reading = account.hit(plan.windows, now, charge.cost)
    if not reading.allowed:
        return Admission(Verdict.LIMITED, key, plan, reading)
    return Admission(Verdict.ADMITTED, account.use(key, now), plan, reading)


class _Account:
    """The row of one organization, while its lock is held."""

    __slots__ = (
        "changed",
        "failure",
        "id",
        "idle_day",
        "new_idle_day",
        "plan",
        "state",
        "stored_windows",
        "uses",
    )

    def __init__(self, row: Any) -> None:
        id, plan, overrides, self.stored_windows, used, self.idle_day = row[-6:]
        self.id = bytes(id)
        self.plan = plan, overrides
        self.failure: UnreadableState | None = None
        """The reason why charges fail for this organization, though not for the others (W8)."""
        try:
            self.uses = read_uses(used, self.id)
        except UnreadableState as failure:
            self.uses, self.failure = {}, failure
        self.state: State | None = None
        self.changed = False
        self.new_idle_day = False

    def organization(self) -> Organization | None:
        """Return the plan that the row assigns; None: the default plan."""
        plan, overrides = self.plan
        return None if plan is None else read_organization(read_id(self.id), plan, overrides)

    def hit(self, windows: tuple[Window, ...], now: int, cost: int) -> Reading:
        """Charge the windows."""
        if self.failure is not None:
            raise self.failure
        if self.state is None:
            try:
                self.state = read_state(self.stored_windows, windows)
            except UNREADABLE as failure:
                raise UnreadableState(read_id(self.id), ROW) from failure
        reading, state = hit(self.state, windows, now, cost)
        if state is not self.state:
            self.state = state
            self.changed = True
            longest = max([span + grain for _, span, _, grain in windows], default=0)
            day = idle_day(now + longest)
            if self.idle_day is None or day > self.idle_day:
                self.idle_day = day
                self.new_idle_day = True
        return reading

    def use(self, key: ApiKey, now: int) -> ApiKey:
        """Count a request of a key, and return the key with its new usage."""
        requests, last = self.uses.pop(key.handle, (0, now))
        self.uses[key.handle] = requests + 1, max(last, now)
        last = now if key.last_used_at is None else max(key.last_used_at, now)
        return ApiKey(*key[:-2], key.request_count + 1, last)

    def windows(self) -> bytes:
        """Return the encoded windows after a change."""
        assert self.state is not None
        return write_state(self.state)


def _clock(cursor: Cursor, held: Held) -> int:
    if held.clock is not None:
        return held.clock
    ((clock,),) = cursor.rows(cursor.statements.select_now, 1, {})  # No key's row contained it.
    return int(clock)


def _key_of(row: Any, account: _Account | None) -> ApiKey | UnreadableState:
    """Return the key of a row, or the reason why it cannot be decoded."""
    try:
        return read_key(row, {} if account is None else account.uses)
    except UnreadableState as failure:
        return failure


def _keys_of(rows: Rows, accounts: Mapping[bytes, _Account]) -> dict[str, ApiKey | UnreadableState]:
    """Return the keys of rows by their handles."""
    return {row[0]: _key_of(row, accounts.get(bytes(row[2]))) for row in rows}


def _handle_of(charge: Charge) -> str:
    return charge.handle if isinstance(charge, Admit) else _NO_KEY
