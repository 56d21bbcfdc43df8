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

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ...core.api_keys import ApiKey, KeyState
from ...core.budgets import Budget
from ...core.holds import PREFIX, HoldAction, HoldAnswer, apply, changed
from ...core.limit_hits import changed_fields, crowded, hit_limited
from ...core.limit_windows import LimitWindows, span_of
from ...core.limits import Limit
from ...core.plans import Organization, PlanBook
from ...core.quota_leases import (
    LONGEST,
    LeaseRequest,
    QuotaLeases,
    Settlement,
    current,
    hit_leased,
    lowered,
    until_settled,
)
from ...core.reservations import Reservation
from ...core.row_seals import sealed_fields
from ...core.sliding_window import Cells, Reading, State, Window, hit
from ...core.timestamps import DAY
from ..answers import REFUSED_BY_STATE, UNREADABLE, Admission, UnreadableState, Verdict, limits_of
from .codec import (
    EMPTY_COLUMNS,
    LIMIT_ROWS,
    REMOVE_LIMITS,
    ROW,
    Uses,
    idle_day,
    lease_number,
    limit_id,
    read_cells,
    read_id,
    read_key,
    read_organization,
    read_state,
    read_uses,
    write_cells,
    write_id,
    write_state,
    write_uses,
)
from .databases import Database, Held
from .statements import Cursor, Rows, filled, limit_names, places_for

TOGETHER_AT_MOST: Final = 64
"""The most charges in a transaction, which keeps it short."""
USES_AT_MOST: Final = 8
"""The maximum number of keys with usage in their organization's row. Beyond it, the usage of the
least recently used key moves to that key's row."""
JOINED_AT_MOST: Final = 8
"""The maximum number of limits that are read in the statement of their organization: each is a
join."""

_NO_KEY: Final = ""
"""A handle that no key has."""


class Hit(NamedTuple):
    """A charge to an organization's windows, without a key."""

    organization: str
    windows: tuple[Window, ...]
    cost: int
    now: int | None
    """The instant in microseconds; None: the server's clock."""
    limits: LimitWindows | None = None
    """The named limits to charge as well."""


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
    address: str | None
    """The client's address, for a key with an allow-list."""
    limits: tuple[Limit, ...] | None = None
    """The named limits of the rule, to charge with those of the plan and the key; None: neither
    the rule, nor any plan, nor the key has some."""
    lease: LeaseRequest | None = None
    """Quota leases to settle and one to grant."""
    expected: tuple[str, ...] = ()
    """The fields of named limits that the last admission like this one charged, to be read together
    with the key. Others are read after it."""


class Holding(NamedTuple):
    """An action on a hold, charged to budgets of an organization."""

    organization: str
    action: HoldAction
    now: int | None
    """The instant in microseconds; None: the server's clock."""


class Settling(NamedTuple):
    """The end of quota leases of an organization."""

    organization: str
    windows: tuple[Window, ...]
    settled: Sequence[Settlement]
    now: int | None
    """The instant in microseconds; None: the server's clock."""


Charge = Hit | Admit | Holding | Settling


class MOVED:
    """The outcome of an :class:`Admit` if its key was removed or changed after its token was
    verified: read and verify the key again, outside of any lock."""


Outcome = Reading | Admission | HoldAnswer | QuotaLeases | type[MOVED] | Exception


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
        for charge in charges:
            if isinstance(charge, Settling):
                owner = write_id(charge.organization)
                leases = [lease_number(owner, settlement.id) for settlement in charge.settled]
                self._database.announce(cursor, leases)
        if len(charges) == 1 and (alone := self._charge_one(cursor, charges[0])) is not None:
            return [alone]
        owners = [write_id(charge.organization) for charge in charges]
        accounts, held = self._lock(cursor, owners, charges)
        keys, clock = _keys_of(held.keys, accounts), _clock(cursor, held)
        is_limited = any(map(_has_limits, charges))
        named: list[_Named] = [None] * len(charges)
        if is_limited:
            pairs = list(zip([accounts[owner] for owner in owners], charges, strict=True))
            named = [_named(*pair, keys.get(_handle_of(pair[1])), clock) for pair in pairs]
            self._read_limits(
                cursor,
                [
                    (account, name)
                    for (account, charge), limits in zip(pairs, named, strict=True)
                    for name in _fields(charge, limits)
                ],
            )
        outcomes: list[Outcome] = []
        for owner, charge, limits in zip(owners, charges, named, strict=True):
            key = keys.get(_handle_of(charge))
            outcome = _judge(charge, accounts[owner], key, clock, limits)
            if isinstance(outcome, Admission) and outcome.key is not None:
                keys[outcome.key.handle] = outcome.key
            outcomes.append(outcome)
        changed = [account for account in accounts.values() if account.changed]
        if changed:
            self._write(cursor, changed)
        if is_limited:
            self._write_limits(cursor, accounts.values())
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
        owner, handle = write_id(charge.organization), _handle_of(charge)
        is_limited = _has_limits(charge)
        expected = _expected(charge)[:JOINED_AT_MOST] if is_limited else ()
        ids: list[bytes] = []
        if expected:
            for name in expected:
                ids.append(limit_id(owner, name))
            held = self._database.hold_with_limits(cursor, owner, handle, ids)
        else:
            held = self._database.hold(cursor, (owner,), (handle,))
        if not held.owners:
            return None
        account = _Account(held.owners[0])
        key = _key_of(held.keys[0], account) if held.keys else None
        clock = _clock(cursor, held)
        limits: _Named = None
        if is_limited:
            limits = _named(account, charge, key, clock)
            names = _fields(charge, limits)
            for place, name in enumerate(expected):
                value, day = held.limits[2 * place : 2 * place + 2]
                if value is not None and name in names:
                    account.read_limit(name, ids[place], value, day)
            if len(account.limits) < len(names):
                missing = [(account, name) for name in names if name not in account.limits]
                self._read_limits(cursor, missing)
        outcome = _judge(charge, account, key, clock, limits)
        if account.changed or account.changed_limits:
            self._write_one(cursor, account)
        return outcome

    def _read_limits(self, cursor: Cursor, fields: Iterable[tuple["_Account", str]]) -> None:
        """Read the fields of named limits and budgets that charges of locked organizations have."""
        wanted = {limit_id(account.id, name): (account, name) for account, name in fields}
        if not wanted:
            return
        ids = list(wanted)
        places = places_for(len(ids))
        rows = cursor.rows(cursor.statements.limits_of, places, filled(places, i=ids))
        for key, cells, day in rows:
            id = bytes(key)
            account, name = wanted.pop(id)
            account.read_limit(name, id, cells, day)
        for id, (account, name) in wanted.items():
            account.limits[name] = _Limit(id, None, None)
        for account in {account.id: account for account, _ in wanted.values()}.values():
            of_owner = {"o0": account.id}
            ((account.kept_limits,),) = cursor.rows(cursor.statements.count_limits, 1, of_owner)

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

    def _write_one(self, cursor: Cursor, account: "_Account") -> None:
        """Write the only organization of a transaction and its limits, in one statement if the
        database can."""
        statements = cursor.statements
        if not account.changed or account.new_idle_day or len(account.uses) > USES_AT_MOST:
            self._write_limits(cursor, (account,))
            if account.changed:
                self._write(cursor, (account,))
            return
        values = {"o0": account.id, "s0": account.windows(), "u0": write_uses(account.uses)}
        if not account.changed_limits:
            cursor.run(statements.keep, 1, values)
            return
        of_limits, places, is_later = _values_of_limits((account,))
        values |= of_limits
        for statement in self._database.writing_one(statements, dates=is_later):
            cursor.run(statement, places, values)

    def _write_limits(self, cursor: Cursor, accounts: Iterable["_Account"]) -> None:
        """Write the named limits and budgets that have changed."""
        values, places, is_later = _values_of_limits(accounts)
        if places:
            statements = cursor.statements
            statement = statements.keep_and_date_limits if is_later else statements.keep_limits
            cursor.run(statement, places, values)

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


_Named = LimitWindows | Exception | None
"""The named limits of a charge, or the mistake with which it ends."""


def _has_limits(charge: Charge) -> bool:
    """Return whether a charge needs rows of named limits or budgets."""
    if isinstance(charge, Admit):
        return charge.limits is not None
    return isinstance(charge, Holding) or (isinstance(charge, Hit) and charge.limits is not None)


def _fields(charge: Charge, limits: _Named) -> Sequence[str]:
    """Return the fields that a charge needs."""
    if isinstance(charge, Holding):
        return charge.action.fields
    return limits.fields if isinstance(limits, LimitWindows) else ()


def _expected(charge: Charge) -> Sequence[str]:
    """Return the fields that a charge will need, as far as they are known before its lock.

    The clock, which is read under the lock, selects the fields of calendar quotas.
    """
    if isinstance(charge, Admit):
        return charge.expected
    if isinstance(charge, Holding):
        return charge.action.fields
    limits = charge.limits if isinstance(charge, Hit) else None
    return () if limits is None or limits.quotas else limits.fields


def _values_of_limits(accounts: Iterable["_Account"]) -> tuple[dict[str, Any], int, bool]:
    """Return the values of the rows of changed limits, the number of rows, and whether the idle day
    of one has changed."""
    values: dict[str, Any] = {}
    place, is_later = 0, False
    for account in accounts:
        for name, limit in account.changed_limits.items():
            value = limit.value
            assert value is not None, "it has changed"
            if isinstance(value, Budget):
                last, written = value.last, value.written()
            else:
                last, written = value[3], write_cells(value)
            day = idle_day(last + span_of(name) + DAY)
            if day != limit.day and limit.day is not None:
                is_later = True
            id, owner, cells, idle = limit_names(place)
            values[id], values[owner], values[cells] = limit.id, account.id, written
            values[idle] = day
            place += 1
    return values, place, is_later


def _named(
    account: "_Account", charge: Charge, key: ApiKey | UnreadableState | None, clock: int
) -> _Named:
    """Return the named limits of a charge: of its rule, its plan and its key."""
    now = clock if charge.now is None else charge.now
    try:
        if isinstance(charge, Hit):
            return charge.limits and charge.limits.at(now, charge.organization)
        if not isinstance(charge, Admit) or charge.limits is None:
            return None
        if key is None or isinstance(key, UnreadableState):
            return None
        assigned = charge.assigned if charge.resolved else account.organization()
        plan = charge.plans.plan_of(assigned, now)
        return limits_of(charge.limits, plan, key, now)
    except Exception as mistake:
        return mistake


def _judge(
    charge: Charge,
    account: "_Account",
    key: ApiKey | UnreadableState | None,
    clock: int,
    limits: _Named,
) -> Outcome:
    """Return a charge's outcome or exception, which affects no other charge of the batch."""
    now = clock if charge.now is None else charge.now
    if isinstance(limits, Exception):
        return limits
    try:
        if isinstance(charge, Admit):
            if isinstance(key, UnreadableState):
                return key
            return _admit(charge, account, key, now, limits)
        if isinstance(charge, Hit):
            return account.hit(charge.windows, now, charge.cost, limits)
        if isinstance(charge, Holding):
            return account.hold(charge.action, now)
        return account.settle(charge.windows, now, charge.settled)
    except Exception as mistake:
        return mistake


def _admit(
    charge: Admit,
    account: "_Account",
    key: ApiKey | None,
    now: int,
    limits: LimitWindows | None,
) -> Admission | type[MOVED]:
    if key is None or sealed_fields(key) != charge.sealed:
        return MOVED
    state = key.state(now)
    if state is not KeyState.ACTIVE:
        return Admission(REFUSED_BY_STATE[state], key)
    details = key.details
    if details is not None and details.addresses and not details.allows(charge.address):
        return Admission(Verdict.ELSEWHERE, key)
    assigned = charge.assigned if charge.resolved else account.organization()
    plan = charge.plans.plan_of(assigned, now)
    lease = None
    if charge.lease is None:
        reading = account.hit(plan.windows, now, charge.cost, limits)
    elif limits is None:
        reading, lease = account.hit_leased(plan.windows, now, charge.cost, charge.lease)
    else:
        account.settle(plan.windows, now, charge.lease.settled)
        reading = account.hit(plan.windows, now, charge.cost, limits)
    if not reading.allowed:
        return Admission(Verdict.LIMITED, key, plan, reading, limits)
    return Admission(Verdict.ADMITTED, account.use(key, now), plan, reading, limits, lease)


class _Limit:
    """The row of a named limit or a budget, while the lock of its organization is held."""

    __slots__ = ("day", "id", "value")

    def __init__(self, id: bytes, value: Cells | Budget | None, day: int | None) -> None:
        self.id = id
        self.value = value
        """None: there is no row yet."""
        self.day = day
        """The idle day in the row."""


class _Account:
    """The row of one organization, while its lock is held."""

    __slots__ = (
        "changed",
        "changed_limits",
        "failure",
        "id",
        "idle_day",
        "kept_limits",
        "leases",
        "limits",
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
        self.leases: QuotaLeases = ()
        """The quota leases in the state."""
        self.changed = False
        self.new_idle_day = False
        self.limits: dict[str, _Limit] = {}
        """The rows of named limits and budgets by field, as far as charges need them."""
        self.changed_limits: dict[str, _Limit] = {}
        self.kept_limits = 0
        """The number of its fields, if a charge has a new one."""

    def organization(self) -> Organization | None:
        """Return the plan that the row assigns; None: the default plan."""
        plan, overrides = self.plan
        return None if plan is None else read_organization(read_id(self.id), plan, overrides)

    def read_limit(self, name: str, id: bytes, value: bytes, day: int) -> None:
        """Decode the cells of a named limit, or a budget."""
        try:
            read = Budget.read(bytes(value)) if name.startswith(PREFIX) else read_cells(value)
        except UNREADABLE as failure:
            self.failure = UnreadableState(read_id(self.id), LIMIT_ROWS, REMOVE_LIMITS)
            self.failure.__cause__ = failure
        else:
            self.limits[name] = _Limit(id, read, day)

    def change_limits(self, changed: Iterable[tuple[str, Cells | Budget]]) -> None:
        """Note the named limits or budgets to write."""
        for name, value in changed:
            limit = self.changed_limits[name] = self.limits[name]
            self.kept_limits += limit.value is None
            limit.value = value

    def hit(
        self,
        windows: tuple[Window, ...],
        now: int,
        cost: int,
        limits: LimitWindows | None = None,
    ) -> Reading:
        """Charge the windows, and named limits with them."""
        state = self._read_windows(windows)
        if self.leases and windows:
            if limits is None:
                return self.hit_leased(windows, now, cost)[0]
            self.settle(windows, now)
            reading = self._hit_limited(lowered(windows, self.leases), now, cost, limits)
            return until_settled(reading, self.leases)
        if limits is not None:
            return self._hit_limited(windows, now, cost, limits)
        reading, state = hit(state, windows, now, cost)
        self._keep(state, windows, now)
        return reading

    def hit_leased(
        self, windows: tuple[Window, ...], now: int, cost: int, request: LeaseRequest | None = None
    ) -> tuple[Reading, Reservation | None]:
        """Charge the windows, settle quota leases and grant one."""
        state = self._read_windows(windows)
        reading, state, leases, lease = hit_leased(state, self.leases, windows, now, cost, request)
        self._keep(state, windows, now, leases)
        return reading, lease

    def settle(
        self, windows: tuple[Window, ...], now: int, settled: Iterable[Settlement] = ()
    ) -> QuotaLeases:
        """Settle quota leases, count those past their deadline, and return the rest."""
        state = self._read_windows(windows)
        if self.leases:
            state, leases = current(state, self.leases, windows, now, settled)
            self._keep(state, windows, now, leases)
        return self.leases

    def _read_windows(self, windows: tuple[Window, ...]) -> State:
        """Decode the windows; empty where named limits alone are charged."""
        if self.failure is not None:
            raise self.failure
        if self.state is None and windows:
            try:
                self.state, self.leases = read_state(self.stored_windows, windows)
            except UNREADABLE as failure:
                raise UnreadableState(read_id(self.id), ROW, EMPTY_COLUMNS) from failure
        return self.state or ()

    def _keep(
        self,
        state: State,
        windows: tuple[Window, ...],
        now: int,
        leases: QuotaLeases | None = None,
    ) -> None:
        """Note the state to write; None: the leases are those of before."""
        if leases is None:
            leases = self.leases
        if not windows or (state is self.state and leases is self.leases):
            return
        self.state, self.leases = state, leases
        self.changed = True
        longest = max([span + grain for _, span, _, grain in windows], default=0)
        if leases:
            longest += LONGEST
        day = idle_day(now + longest)
        if self.idle_day is None or day > self.idle_day:
            self.idle_day = day
            self.new_idle_day = True

    def _hit_limited(
        self, windows: tuple[Window, ...], now: int, cost: int, limits: LimitWindows
    ) -> Reading:
        before: list[Any] = []
        for name in limits.fields:
            before.append(self.limits[name].value)
        reading, state, after = hit_limited(
            (self.state or ()) if windows else (),
            windows,
            before,
            limits.windows,
            now,
            cost,
            crowded(before, self.kept_limits),
        )
        self.change_limits(changed_fields(limits, before, after))
        self._keep(state, windows, now)
        return reading

    def hold(self, action: HoldAction, now: int) -> HoldAnswer:
        """Take, settle or renew a hold, or read budgets."""
        if self.failure is not None:
            raise self.failure
        before: list[Any] = [self.limits[name].value for name in action.fields]
        answer, after = apply(action, before, now, self.kept_limits)
        self.change_limits(changed(action, before, after))
        return answer

    def use(self, key: ApiKey, now: int) -> ApiKey:
        """Count a request of a key, and return the key with its new usage."""
        requests, last = self.uses.pop(key.handle, (0, now))
        self.uses[key.handle] = requests + 1, max(last, now)
        last = now if key.last_used_at is None else max(key.last_used_at, now)
        return ApiKey(*key[:-2], key.request_count + 1, last)

    def windows(self) -> bytes:
        """Return the encoded windows after a change."""
        assert self.state is not None
        return write_state(self.state, self.leases)


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
