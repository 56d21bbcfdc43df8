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

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from sqlalchemy import Connection

from ...core.api_keys import ApiKey, KeyState
from ...core.budgets import SLOTS, UNUSED, Budget
from ...core.fast_tuples import new_tuple
from ...core.holds import Look
from ...core.ledger import Action, Hit, HitLeased, Leased, LeasesOut, Ledger, Peek
from ...core.limit_windows import LimitWindows, span_of
from ...core.limits import Limit
from ...core.plans import LONGEST_SPAN, Organization, Plan, PlanBook
from ...core.quota_leases import LONGEST, LeaseRequest, Settlement
from ...core.row_seals import sealed_fields
from ...core.sliding_window import EMPTY, Cells
from ...core.timestamps import DAY
from ..answers import (
    REFUSED_BY_STATE,
    UNREADABLE,
    Admission,
    UnreadableState,
    Verdict,
    holder_of,
    limits_of,
)
from .codec import (
    EMPTY_COLUMNS,
    LIMIT_ROWS,
    REMOVE_LIMITS,
    ROW,
    Uses,
    idle_day,
    lease_number,
    limit_id,
    read_field,
    read_key,
    read_organization,
    read_state,
    read_uses,
    write_field,
    write_id,
    write_state,
    write_uses,
)
from .databases import OWNER, Database, Held
from .statements import Cursor, Rows, Statements, Written, filled, limit_names, places_for

A = TypeVar("A")
_Ask = Callable[[Written, int, Mapping[str, Any]], Rows]

READING: Final = Look, LeasesOut, Peek
"""The actions that change nothing."""
TOGETHER_AT_MOST: Final = 64
"""The most charges in a transaction, which keeps it short."""
USES_AT_MOST: Final = 8
"""The maximum number of keys with usage in their organization's row. Beyond it, the usage of the
least recently used key moves to that key's row."""
JOINED_AT_MOST: Final = 8
"""The maximum number of limits that are read in the statement of their organization: each is a
join."""

_NO_FIELDS: Final[dict[str, Any]] = {}
_NO_KEY: Final = ""
"""A handle that no key has."""


class Act(NamedTuple):
    """An action on the ledger of an owner."""

    owner: str
    action: Action[Any]
    now: int | None
    """The instant in microseconds; None: the server's clock."""


class Admit(NamedTuple):
    """A charge to the windows of a key's organization, with the verification of the key."""

    owner: str
    """The key's organization by its hint, which the row must confirm."""
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


Charge = Act | Admit


class MOVED:
    """The outcome of an :class:`Admit` if its key was removed or changed after its token was
    verified: read and verify the key again, outside of any lock."""


Outcome = object
"""The answer of an action, an :class:`Admission`, :class:`MOVED`, or an exception to raise."""


_REHEARSED: Final = (1, 2, 4, 8, 16)
"""The batch sizes for which statements are compiled before the first request."""


class Ledgers:
    """The ledgers of organizations in the tables, and the charges to them.

    Args:
        database: the kind of database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def charge(self, cursor: Cursor, charges: Sequence[Charge]) -> list[Outcome]:
        """Make charges in the transaction that has begun; the caller commits it."""
        for charge in charges:
            if isinstance(charge, Act) and (settled := _settled_alone(charge.action)):
                owner = write_id(charge.owner)
                numbers = [lease_number(owner, settlement.id) for settlement in settled]
                self._database.announce(cursor, numbers)
        if len(charges) == 1 and (alone := self._charge_one(cursor, charges[0])) is not None:
            return [alone]
        owners = [write_id(charge.owner) for charge in charges]
        accounts, held = self._lock(cursor, owners, charges)
        keys, clock = _keys_of(held.keys, accounts), _clock(cursor, held)
        steps: list[tuple[Charge, _Account, _Step | Outcome]] = []
        fields: list[tuple[_Account, str]] = []
        for owner, charge in zip(owners, charges, strict=True):
            account = accounts[owner]
            step = _step(charge, account, keys.get(_handle_of(charge)), clock)
            steps.append((charge, account, step))
            if isinstance(step, _Step):
                fields += [(account, field) for field in step.fields]
        _read_fields(cursor.rows, cursor.statements, fields)
        outcomes: list[Outcome] = []
        for charge, account, step in steps:
            outcome = _outcome(step, account, keys.get(_handle_of(charge)))
            if isinstance(outcome, Admission) and outcome.key is not None:
                keys[outcome.key.handle] = outcome.key
            outcomes.append(outcome)
        changed = [account for account in accounts.values() if account.changed]
        if changed:
            self._write(cursor, changed)
        self._write_fields(cursor, accounts.values())
        return outcomes

    def look(self, connection: Connection, statements: Statements, act: Act) -> Outcome:
        """Apply an action that only reads, without a lock."""

        def ask(statement: Written, places: int, values: Mapping[str, Any]) -> Rows:
            return connection.execute(statement(places), values).all()

        (owner, action, now), database = act, self._database
        id = write_id(owner)
        in_use = isinstance(action, LeasesOut) and action.in_use
        settling = database.settling if in_use else None
        asked = statements.look(() if settling is None else (settling,))
        found = connection.execute(asked, {"o0": id}).one_or_none()
        account = _Account(owner, found or (id, None, None, None, None, None))
        if now is None:
            now = database.read_clock(found[0]) if found else database.now(connection)
        fields = [(account, field) for field in _fields_of(action, owner, now)]
        _read_fields(ask, statements, fields)
        answer = account.apply(action, now)
        if settling is not None and found:
            # A settlement is announced before it waits for the lock of the organization, so a
            # change does not wait for those of all holders, which follow one another.
            return tuple(one for one in answer if lease_number(id, one.id) not in found[1])
        return answer

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
        owner, handle = write_id(charge.owner), _handle_of(charge)
        expected = _expected(charge)[:JOINED_AT_MOST]
        ids: list[bytes] = []
        if expected:
            for field in expected:
                ids.append(limit_id(owner, field))
            held = self._database.hold_with_limits(cursor, owner, handle, ids)
        else:
            held = self._database.hold(cursor, (owner,), (handle,))
        if not held.owners:
            return None
        account = _Account(charge.owner, held.owners[0])
        key = _key_of(held.keys[0], account) if held.keys else None
        step = _step(charge, account, key, _clock(cursor, held))
        if isinstance(step, _Step) and (fields := step.fields):
            for place, field in enumerate(expected):
                value, day = held.limits[2 * place : 2 * place + 2]
                if value is not None and field in fields:
                    account.read_field(field, ids[place], value, day)
            if len(account.rows) < len(fields):
                missing = [(account, field) for field in fields if field not in account.rows]
                _read_fields(cursor.rows, cursor.statements, missing)
        outcome = _outcome(step, account, key)
        if account.changed or account.has_new_fields:
            self._write_one(cursor, account)
        return outcome

    def _lock(
        self, cursor: Cursor, owners: Sequence[bytes], charges: Sequence[Charge]
    ) -> tuple[dict[bytes, "_Account"], Held]:
        """Lock organizations, and insert missing rows."""
        names = {id: charge.owner for id, charge in zip(owners, charges, strict=True)}
        ids = sorted(names)
        handles = sorted({_handle_of(charge) for charge in charges})
        while True:
            held = self._database.hold(cursor, ids, handles)
            found = [(bytes(row[-OWNER]), row) for row in held.owners]
            accounts = {id: _Account(names[id], row) for id, row in found}
            if len(accounts) == len(ids):
                return accounts, held
            with self._database.making(cursor.driver):
                for id in ids:
                    if id not in accounts:
                        cursor.run(cursor.statements.make, 1, {"o0": id})

    def _write_one(self, cursor: Cursor, account: "_Account") -> None:
        """Write the only organization of a transaction and its fields, in one statement if the
        database can."""
        statements = cursor.statements
        if not account.changed or account.new_idle_day or len(account.uses) > USES_AT_MOST:
            self._write_fields(cursor, (account,))
            if account.changed:
                self._write(cursor, (account,))
            return
        values = {"o0": account.id, "s0": account.windows(), "u0": write_uses(account.uses)}
        if not account.has_new_fields:
            cursor.run(statements.keep, 1, values)
            return
        of_fields, places, is_later = _values_of_fields((account,))
        values |= of_fields
        for statement in self._database.writing_one(statements, dates=is_later):
            cursor.run(statement, places, values)

    def _write_fields(self, cursor: Cursor, accounts: Iterable["_Account"]) -> None:
        """Write the named limits and budgets that have changed."""
        values, places, is_later = _values_of_fields(accounts)
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


class _Step(NamedTuple):
    """What a charge does, once its key and its plan are known."""

    action: Action[Any]
    fields: Sequence[str]
    """The fields of named limits and budgets that the action needs."""
    now: int
    plan: Plan | None = None
    """Of an admission."""
    limits: LimitWindows | None = None
    """The named limits of an admission."""


def _settled_alone(action: Action[Any]) -> Sequence[Settlement]:
    """Return the quota leases that an action settles, if it does nothing else."""
    if not isinstance(action, HitLeased) or action.cost or action.request is None:
        return ()
    return action.request.settled


def _fields_of(action: Action[Any], owner: str, now: int | None) -> Sequence[str]:
    """Return the fields that an action needs.

    None, before the clock is read: those of calendar quotas, which it selects, are left out.
    """
    if not isinstance(action, (Hit, HitLeased, Peek)):
        fields: Sequence[str] = getattr(action, "fields", ())
        return fields
    limits = action.limits
    if limits is None:
        return ()
    if now is None:
        return () if limits.quotas else limits.fields
    return limits.at(now, owner).fields


def _expected(charge: Charge) -> Sequence[str]:
    """Return the fields that a charge will need, as far as they are known before its lock."""
    if isinstance(charge, Admit):
        return charge.expected
    return _fields_of(charge.action, charge.owner, None)


def _read_fields(
    ask: _Ask, statements: Statements, fields: Iterable[tuple["_Account", str]]
) -> None:
    """Read the fields of named limits and budgets of organizations."""
    wanted = {limit_id(account.id, field): (account, field) for account, field in fields}
    if not wanted:
        return
    ids = list(wanted)
    places = places_for(len(ids))
    for key, value, day in ask(statements.limits_of, places, filled(places, i=ids)):
        id = bytes(key)
        account, field = wanted.pop(id)
        account.read_field(field, id, value, day)
    for id, (account, field) in wanted.items():
        account.rows[field] = _Row(id, None, None)
    lacking = {account.id: account for account, field in wanted.values() if field != SLOTS}
    for id, account in lacking.items():
        of_slots = {"o0": id, "i0": limit_id(id, SLOTS)}
        ((account.kept,),) = ask(statements.count_limits, 1, of_slots)


def _values_of_fields(accounts: Iterable["_Account"]) -> tuple[dict[str, Any], int, bool]:
    """Return the values of the rows of changed fields, the number of rows, and whether the idle day
    of one has changed."""
    values: dict[str, Any] = {}
    place, is_later = 0, False
    for account in accounts:
        for field, new, row in account.new_fields():
            last = new.last if isinstance(new, Budget) else new[3]
            day = idle_day(last + span_of(field) + DAY)
            if day != row.day and row.day is not None:
                is_later = True
            id, owner, cells, idle = limit_names(place)
            values[id], values[owner], values[cells] = row.id, account.id, write_field(field, new)
            values[idle] = day
            place += 1
    return values, place, is_later


def _step(
    charge: Charge, account: "_Account", key: ApiKey | UnreadableState | None, clock: int
) -> _Step | Outcome:
    """Return the step of a charge, or the outcome with which it ends without one."""
    now = clock if charge.now is None else charge.now
    try:
        if isinstance(charge, Admit):
            return key if isinstance(key, UnreadableState) else _admit(charge, account, key, now)
        return _Step(charge.action, _fields_of(charge.action, charge.owner, now), now)
    except Exception as mistake:
        return mistake


def _admit(
    charge: Admit, account: "_Account", key: ApiKey | None, now: int
) -> _Step | Admission | type[MOVED]:
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
    limits = None if charge.limits is None else limits_of(charge.limits, plan, key, now)
    action: Hit | HitLeased
    if charge.lease is None and not plan.kept_retries:
        action = new_tuple(Hit, (plan.windows, charge.cost, limits))
    else:
        holder = holder_of(key, plan)
        action = HitLeased(plan.windows, charge.cost, charge.lease, limits, holder)
    return new_tuple(_Step, (action, () if limits is None else limits.fields, now, plan, limits))


def _outcome(
    step: _Step | Outcome, account: "_Account", key: ApiKey | UnreadableState | None
) -> Outcome:
    """Return the outcome of a step or its exception, which affects no other charge."""
    if not isinstance(step, _Step):
        return step
    action, _, now, plan, limits = step
    try:
        answer = account.apply(action, now)
    except Exception as mistake:
        return mistake
    if plan is None:
        return answer
    reading, lease = answer if isinstance(answer, Leased) else (answer, None)
    assert isinstance(key, ApiKey), "the step is of an admission"
    if not reading.allowed:
        return Admission(Verdict.LIMITED, key, plan, reading, limits, lease)
    return Admission(Verdict.ADMITTED, account.use(key, now), plan, reading, limits, lease)


class _Row(NamedTuple):
    """The row of a named limit or a budget, while the lock of its organization is held."""

    id: bytes
    value: Cells | Budget | None
    """As it was read; None: there is no row yet."""
    day: int | None
    """The idle day in the row."""


class _Account:
    """The row of one organization, while its lock is held, and its ledger."""

    __slots__ = (
        "changed",
        "failure",
        "has_new_fields",
        "id",
        "idle_day",
        "kept",
        "ledger",
        "new_idle_day",
        "owner",
        "plan",
        "rows",
        "stored_windows",
        "uses",
    )

    def __init__(self, owner: str, row: Any) -> None:
        self.owner = owner
        id, plan, overrides, self.stored_windows, used, self.idle_day = row[-OWNER:]
        self.id = bytes(id)
        self.plan = plan, overrides
        self.failure: UnreadableState | None = None
        """The reason why charges fail for this organization, though not for the others (W8)."""
        try:
            self.uses = read_uses(used, self.id)
        except UnreadableState as failure:
            self.uses, self.failure = {}, failure
        self.ledger: Ledger | None = None
        """Once it is decoded: with the fields that charges need."""
        self.changed = False
        """Whether its windows, leases or promises have changed."""
        self.new_idle_day = False
        self.rows: dict[str, _Row] = {}
        """The rows of named limits and budgets by field, as far as charges need them."""
        self.has_new_fields = False
        self.kept = 0
        """The number of its fields, if a charge has a new one."""

    def organization(self) -> Organization | None:
        """Return the plan that the row assigns; None: the default plan."""
        plan, overrides = self.plan
        return None if plan is None else read_organization(self.owner, plan, overrides)

    def read_field(self, field: str, id: bytes, value: bytes, day: int) -> None:
        """Decode the cells of a named limit, or a budget."""
        try:
            self.rows[field] = _Row(id, read_field(field, value), day)
        except UNREADABLE as failure:
            self.failure = UnreadableState(self.owner, LIMIT_ROWS, REMOVE_LIMITS)
            self.failure.__cause__ = failure

    def apply(self, action: Action[A], now: int) -> A:
        """Apply an action to the ledger, and note what it changes."""
        before = self.ledger or self._read()
        answer, after = action.apply(before, now)
        self.ledger = after
        _, windows, leases, limits, budgets, _, promises = before
        if (
            after.windows is not windows
            or after.leases is not leases
            or after.promises is not promises
        ):
            self.changed = True
            day = idle_day(now + LONGEST_SPAN + LONGEST)
            if self.idle_day is None or day > self.idle_day:
                self.idle_day = day
                self.new_idle_day = True
        if after.limits is not limits or after.budgets is not budgets:
            self.has_new_fields = True
        return answer

    def _read(self) -> Ledger:
        """Decode the ledger, as far as its fields were read."""
        if self.failure is not None:
            raise self.failure
        try:
            windows, leases, promises = read_state(self.stored_windows)
        except UNREADABLE as failure:
            raise UnreadableState(self.owner, ROW, EMPTY_COLUMNS) from failure
        if not self.rows:
            fields = _NO_FIELDS
            return new_tuple(Ledger, (self.owner, windows, leases, fields, fields, 0, promises))
        limits: dict[str, Cells] = {}
        budgets: dict[str, Budget] = {}
        for field, (_, value, _) in self.rows.items():
            if isinstance(value, Budget):
                budgets[field] = value
            elif value is not None:
                limits[field] = value
        others = max(0, self.kept - len(limits) - len(budgets))
        return Ledger(self.owner, windows, leases, limits, budgets, others, promises)

    def new_fields(self) -> Iterator[tuple[str, Cells | Budget, _Row]]:
        """Yield the fields that have changed, with what is to be written, and their rows."""
        if self.ledger is None or not self.has_new_fields:
            return
        kept: dict[str, Cells | Budget] = {**self.ledger.limits, **self.ledger.budgets}
        for field, row in self.rows.items():
            empty = UNUSED if isinstance(row.value, Budget) else EMPTY
            new = kept.get(field, None if row.value is None else empty)
            if new is not None and new is not row.value:
                yield field, new, row

    def use(self, key: ApiKey, now: int) -> ApiKey:
        """Count a request of a key, and return the key with its new usage."""
        requests, last = self.uses.pop(key.handle, (0, now))
        self.uses[key.handle] = requests + 1, max(last, now)
        last = now if key.last_used_at is None else max(key.last_used_at, now)
        return ApiKey(*key[:-2], key.request_count + 1, last)

    def windows(self) -> bytes:
        """Return the encoded windows after a change."""
        assert self.ledger is not None
        return write_state(self.ledger.windows, self.ledger.leases, self.ledger.promises)


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
