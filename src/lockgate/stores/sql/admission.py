"""Charging windows: what one transaction does for all the requests that share it.

The lock comes first, then everything is read anew, judged in Python by the rules of the ground
floor, and written. Requests of one transaction are judged one after the other, in the order in
which they came, so that each gets the very reading it would have got alone.
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
"""Requests that share a transaction: enough to make its cost small, few enough to stay short."""
USES_AT_MOST: Final = 8
"""Keys whose usage an organization's row holds: with more that are busy, the one whose last request
is the longest ago has it moved to its own row."""

_NOBODY: Final = ""
"""The handle of no key."""


class Hit(NamedTuple):
    """A charge for an organization, whoever asked for it."""

    organization: str
    windows: tuple[Window, ...]
    cost: int
    now: int | None


class Admit(NamedTuple):
    """A charge that a key asks for."""

    organization: str
    """Whose key it was when it was last seen: believed only if the key still says so."""
    handle: str
    sealed: tuple[object, ...]
    """The fields of the key's row that its seal covers, as they were accepted with its token."""
    cost: int
    plans: PlanBook
    now: int | None
    resolved: bool
    """Whether ``placed`` comes from the host's own resolver, and ours is not to be asked."""
    placed: Organization | None


Charge = Hit | Admit


class MOVED:
    """The outcome of an :class:`Admit` whose key is gone or not as it was accepted any more: it is
    to be read and verified anew, outside of any lock."""


Outcome = Reading | Admission | type[MOVED] | Exception


class _Account:
    """One organization while its lock is held."""

    __slots__ = ("changed", "day", "failure", "id", "later", "placed", "state", "uses", "written")

    def __init__(self, row: Any) -> None:
        id, plan, overrides, self.written, used, self.day = row[-6:]
        self.id = bytes(id)
        self.placed = plan, overrides
        self.failure: UnreadableState | None = None
        """Why nothing can be charged: of a batch it concerns this organization alone (W8)."""
        try:
            self.uses = read_uses(used, self.id)
        except UnreadableState as failure:
            self.uses, self.failure = {}, failure
        self.state: State | None = None
        self.changed = False
        self.later = False

    def organization(self) -> Organization | None:
        plan, overrides = self.placed
        return None if plan is None else read_organization(read_id(self.id), plan, overrides)

    def hit(self, windows: tuple[Window, ...], now: int, cost: int) -> Reading:
        if self.failure is not None:
            raise self.failure
        if self.state is None:
            try:
                self.state = read_state(self.written, windows)
            except UNREADABLE as failure:
                raise UnreadableState(read_id(self.id), ROW) from failure
        reading, state = hit(self.state, windows, now, cost)
        if state is not self.state:
            self.state = state
            self.changed = True
            longest = max([span + grain for _, span, _, grain in windows], default=0)
            day = idle_day(now + longest)
            if self.day is None or day > self.day:
                self.day = day
                self.later = True
        return reading

    def kept(self) -> bytes:
        """The windows, once they have changed, as they are written."""
        assert self.state is not None
        return write_state(self.state)

    def use(self, key: ApiKey, now: int) -> ApiKey:
        """Count a request of a key, and give the key as it is then."""
        requests, last = self.uses.pop(key.handle, (0, now))
        self.uses[key.handle] = requests + 1, max(last, now)
        last = now if key.last_used_at is None else max(key.last_used_at, now)
        return ApiKey(*key[:-2], key.request_count + 1, last)


class Ledger:
    """Makes charges in the tables.

    Args:
        flavour: the kind of database they are in.
    """

    def __init__(self, database: Database) -> None:
        self._flavour = database

    def charge(self, hand: Cursor, charges: Sequence[Charge]) -> list[Outcome]:
        """Make charges in the transaction that has begun; whoever calls this commits."""
        if len(charges) == 1 and (alone := self._alone(hand, charges[0])) is not None:
            return [alone]
        owners = [write_id(charge.organization) for charge in charges]
        accounts, held = self._hold(hand, owners, charges)
        keys, clock = _keys(held.keys, accounts), _clock(hand, held)
        outcomes: list[Outcome] = []
        for owner, charge in zip(owners, charges, strict=True):
            key = keys.get(_handle(charge))
            outcome = _judge(charge, accounts[owner], key, clock)
            if isinstance(outcome, Admission) and outcome.key is not None:
                keys[outcome.key.handle] = outcome.key
            outcomes.append(outcome)
        changed = [account for account in accounts.values() if account.changed]
        if changed:
            self._write(hand, changed)
        return outcomes

    def _alone(self, hand: Cursor, charge: Charge) -> Outcome | None:
        """Make a charge that shares its transaction with no other, without all that sharing takes.

        None: its organization is not there yet.
        """
        owner = write_id(charge.organization)
        held = self._flavour.hold(hand, (owner,), (_handle(charge),))
        if not held.owners:
            return None
        account = _Account(held.owners[0])
        key = _key(held.keys[0], account) if held.keys else None
        outcome = _judge(charge, account, key, _clock(hand, held))
        if not account.changed:
            return outcome
        if account.later or len(account.uses) > USES_AT_MOST:
            self._write(hand, (account,))
        else:
            values = {"o0": owner, "s0": account.kept(), "u0": write_uses(account.uses)}
            hand.run(hand.statements.keep, 1, values)
        return outcome

    def _hold(
        self, hand: Cursor, owners: Sequence[bytes], charges: Sequence[Charge]
    ) -> tuple[dict[bytes, _Account], Held]:
        """Lock organizations, and make those that are not there yet."""
        ids = sorted({*owners})
        handles = sorted({_handle(charge) for charge in charges})
        while True:
            held = self._flavour.hold(hand, ids, handles)
            accounts = {account.id: account for account in map(_Account, held.owners)}
            if len(accounts) == len(ids):
                return accounts, held
            with self._flavour.making(hand.driver):
                for id in ids:
                    if id not in accounts:
                        hand.run(hand.statements.make, 1, {"o0": id})

    def _write(self, hand: Cursor, changed: Sequence[_Account]) -> None:
        later = [account for account in changed if account.later]
        if later:
            places = places_for(len(later))
            ids, days = [account.id for account in later], [account.day for account in later]
            hand.run(hand.statements.date, places, filled(places, o=ids, d=days))
        moved: Uses = {}
        for account in changed:
            while len(account.uses) > USES_AT_MOST:
                handle = next(iter(account.uses))
                moved[handle] = account.uses.pop(handle)
        places = places_for(max(len(changed), len(moved)))
        values = filled(
            places,
            o=[account.id for account in changed],
            s=[account.kept() for account in changed],
            u=[write_uses(account.uses) for account in changed],
        )
        if not moved:
            hand.run(hand.statements.keep, places, values)
            return
        handles = sorted(moved)
        requests, last = zip(*[moved[handle] for handle in handles], strict=True)
        values.update(filled(places, h=handles, n=requests, a=last))
        for statement in self._flavour.writing(hand.statements):
            hand.run(statement, places, values)


def _clock(hand: Cursor, held: Held) -> int:
    if held.clock is not None:
        return held.clock
    ((clock,),) = hand.rows(hand.statements.select_now, 1, {})  # No key was there to read it with.
    return int(clock)


def _key(row: Any, account: _Account | None) -> ApiKey | UnreadableState:
    """The key that a row holds, or why it cannot be read: of a batch that concerns it alone."""
    try:
        return read_key(row, {} if account is None else account.uses)
    except UnreadableState as failure:
        return failure


def _keys(rows: Rows, accounts: Mapping[bytes, _Account]) -> dict[str, ApiKey | UnreadableState]:
    """The keys that rows hold, by their handles."""
    return {row[0]: _key(row, accounts.get(bytes(row[2]))) for row in rows}


def _handle(charge: Charge) -> str:
    return charge.handle if isinstance(charge, Admit) else _NOBODY


def _judge(
    charge: Charge, account: _Account, key: ApiKey | UnreadableState | None, clock: int
) -> Outcome:
    """What a charge comes to; one that makes no sense to its own exception: it spoils no other."""
    now = clock if charge.now is None else charge.now
    try:
        if isinstance(charge, Hit):
            return account.hit(charge.windows, now, charge.cost)
        return key if isinstance(key, UnreadableState) else _admit(charge, account, key, now)
    except Exception as mistake:
        return mistake


def _admit(
    charge: Admit, account: _Account, key: ApiKey | None, now: int
) -> Admission | type[MOVED]:
    if key is None or sealed_fields(key) != charge.sealed:
        return MOVED
    state = key.state(now)
    if state is not KeyState.ACTIVE:
        return Admission(REFUSED_BY_STATE[state], key)
    placed = charge.placed if charge.resolved else account.organization()
    plan = charge.plans.plan_of(placed)
    reading = account.hit(plan.windows, now, charge.cost)
    if not reading.allowed:
        return Admission(Verdict.LIMITED, key, plan, reading)
    return Admission(Verdict.ADMITTED, account.use(key, now), plan, reading)
