"""Charging windows: what one transaction does for all the requests that share it.

The lock comes first, then everything is read anew, judged in Python by the rules of the ground
floor, and written. Requests of one transaction are judged one after the other, in the order in
which they came, so that each gets the very reading it would have got alone.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from ...rules.credentials import Digest, Token
from ...rules.keys import ApiKey, KeyState
from ...rules.plans import Organization, PlanBook
from ...rules.windows import Reading, State, Window, hit
from ..contract import REFUSED_BY_STATE, UNKNOWN, Admission, Verdict
from .dialects import Flavour
from .encoding import (
    idle_day,
    read_id,
    read_key,
    read_organization,
    read_state,
    write_id,
    write_state,
)
from .statements import Hand, filled, places_for

TOGETHER_AT_MOST: Final = 64
"""Requests that share a transaction: enough to make its cost small, few enough to stay short."""


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
    token: Token
    digest: Digest
    """What the key was kept as then, which the token has matched."""
    cost: int
    plans: PlanBook
    now: int | None
    resolved: bool
    """Whether ``placed`` comes from the host's own resolver, and ours is not to be asked."""
    placed: Organization | None


Charge = Hit | Admit


class MOVED:
    """The outcome of an :class:`Admit` whose key is gone or belongs to another organization by now,
    which takes somebody who restores or edits the tables under a running process."""


Outcome = Reading | Admission | type[MOVED] | Exception


class _Account:
    """One organization while its lock is held."""

    __slots__ = ("changed", "day", "id", "later", "name", "placed", "state", "written")

    def __init__(self, row: Any) -> None:
        id, plan, overrides, self.written, self.day = row
        self.id = bytes(id)
        self.name = read_id(self.id)
        self.placed = plan, overrides
        self.state: State | None = None
        self.changed = False
        self.later = False

    def organization(self) -> Organization | None:
        return read_organization(self.name, *self.placed)

    def hit(self, windows: tuple[Window, ...], now: int, cost: int) -> Reading:
        if self.state is None:
            self.state = read_state(self.written, windows)
        reading, state = hit(self.state, windows, now, cost)
        if state is not self.state:
            self.state = state
            self.changed = True
            longest = max([window.span + window.grain for window in windows], default=0)
            day = idle_day(now + longest)
            if self.day is None or day > self.day:
                self.day = day
                self.later = True
        return reading


class Ledger:
    """Makes charges in the tables.

    Args:
        flavour: the kind of database they are in.
    """

    def __init__(self, flavour: Flavour) -> None:
        self._flavour = flavour

    def charge(self, hand: Hand, charges: Sequence[Charge]) -> list[Outcome]:
        """Make charges in the transaction that has begun; whoever calls this commits.

        A charge that makes no sense has its own exception for an outcome; it spoils no other.
        """
        handles = sorted({charge.token.handle for charge in charges if isinstance(charge, Admit)})
        accounts, keys, clock = self._hold(
            hand, sorted({write_id(charge.organization) for charge in charges}), handles or [""]
        )
        if clock is None:  # No key was there to read it with.
            ((clock,),) = hand.rows(hand.statements.tell, 1, {})
        used: dict[str, tuple[int, int]] = {}
        outcomes: list[Outcome] = []
        for charge in charges:
            account = accounts[charge.organization]
            now = clock if charge.now is None else charge.now
            try:
                if isinstance(charge, Hit):
                    outcomes.append(account.hit(charge.windows, now, charge.cost))
                else:
                    outcomes.append(_admit(charge, account, keys, now, used))
            except Exception as mistake:
                outcomes.append(mistake)
        self._date(hand, [account for account in accounts.values() if account.later])
        self._write(hand, accounts.values(), used)
        return outcomes

    def _hold(
        self, hand: Hand, owners: Sequence[bytes], handles: Sequence[str]
    ) -> tuple[dict[str, _Account], dict[str, ApiKey], int | None]:
        """Lock organizations, and make those that are not there yet."""
        while True:
            held = self._flavour.hold(hand, owners, handles)
            accounts = {account.name: account for account in map(_Account, held.owners)}
            if len(accounts) == len(owners):
                keys = {key.handle: key for key in map(read_key, held.keys)}
                return accounts, keys, held.clock
            for id in owners:
                if read_id(id) not in accounts:
                    hand.run(hand.statements.make, 1, {"o0": id})

    def _date(self, hand: Hand, accounts: Sequence[_Account]) -> None:
        if accounts:
            places = places_for(len(accounts))
            values = filled("o", [account.id for account in accounts], places)
            values.update(filled("d", [account.day for account in accounts], places))
            hand.run(hand.statements.date, places, values)

    def _write(
        self, hand: Hand, accounts: Iterable[_Account], used: dict[str, tuple[int, int]]
    ) -> None:
        changed = [(a.id, a.state) for a in accounts if a.changed and a.state is not None]
        if not changed:
            return
        places = places_for(max(len(changed), len(used)))
        values = filled("o", [id for id, _ in changed], places)
        values.update(filled("s", [write_state(state) for _, state in changed], places))
        if not used:
            hand.run(hand.statements.keep, places, values)
            return
        handles = sorted(used)
        values.update(filled("h", handles, places))
        values.update(filled("n", [used[handle][0] for handle in handles], places))
        values.update(filled("a", [used[handle][1] for handle in handles], places))
        for statement in self._flavour.writing(hand.statements):
            hand.run(statement, places, values)


def _admit(
    charge: Admit,
    account: _Account,
    keys: dict[str, ApiKey],
    now: int,
    used: dict[str, tuple[int, int]],
) -> Admission | type[MOVED]:
    key = keys.get(charge.token.handle)
    if key is None or key.organization != charge.organization:
        return MOVED
    seen = charge.digest
    if (key.scheme, key.digest) != seen and not charge.token.matches(key.scheme, key.digest):
        return UNKNOWN
    state = key.state(now)
    if state is not KeyState.ACTIVE:
        return Admission(REFUSED_BY_STATE[state], key)
    placed = charge.placed if charge.resolved else account.organization()
    plan = charge.plans.plan_of(placed)
    reading = account.hit(plan.windows, now, charge.cost)
    if not reading.allowed:
        return Admission(Verdict.LIMITED, key, plan, reading)
    last = max(now, key.last_used_at or 0)
    key = key._replace(request_count=key.request_count + 1, last_used_at=last)
    keys[key.handle] = key
    n, at = used.get(key.handle, (0, 0))
    used[key.handle] = (n + 1, max(at, now))
    return Admission(Verdict.ADMITTED, key, plan, reading)
