"""Charging windows: what one transaction does for all the requests that share it.

The lock comes first, then everything is read anew, judged in Python by the rules of the ground
floor, and written. Requests of one transaction are judged one after the other, in the order in
which they came, so that each gets the very reading it would have got alone.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection

from ...rules.credentials import Token
from ...rules.keys import ApiKey, KeyState
from ...rules.plans import Organization, PlanBook
from ...rules.windows import Reading, State, Window, hit
from ..contract import REFUSED_BY_STATE, UNKNOWN, Admission, Verdict
from .dialects import Flavour, Hand
from .encoding import (
    idle_day,
    read_key,
    read_organization,
    read_state,
    write_id,
    write_state,
)
from .tables import Tables

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
    cost: int
    plans: PlanBook
    now: int | None
    resolved: bool
    """Whether ``placed`` comes from the host's own resolver, and ours is not to be asked."""
    placed: Organization | None


Charge = Hit | Admit


class MOVED:
    """The outcome of an :class:`Admit` whose key belongs to another organization by now, which
    takes somebody who restores or edits the tables under a running process."""


Outcome = Reading | Admission | type[MOVED] | Exception


class _Account:
    """One organization while its lock is held."""

    __slots__ = ("changed", "day", "id", "placed", "state", "written")

    def __init__(self, row: Any) -> None:
        id, plan, overrides, self.written, self.day = row
        self.id: bytes = bytes(id)
        self.placed = plan, overrides
        self.state: State | None = None
        self.changed = False

    def organization(self, id: str) -> Organization | None:
        return read_organization(id, *self.placed)

    def hit(self, windows: tuple[Window, ...], now: int, cost: int) -> Reading:
        if self.state is None:
            self.state = read_state(self.written, windows)
        reading, state = hit(self.state, windows, now, cost)
        if state is not self.state:
            self.state = state
            self.changed = True
            longest = max((window.span + window.grain for window in windows), default=0)
            self.day = max(self.day or 0, idle_day(now + longest))
        return reading


class Ledger:
    """Makes charges in the tables.

    Args:
        tables: where.
        flavour: the kind of database they are in.
    """

    def __init__(self, tables: Tables, flavour: Flavour) -> None:
        self._tables = tables
        self._flavour = flavour

    def charge(self, connection: Connection, charges: Sequence[Charge]) -> list[Outcome]:
        """Make charges in the transaction that has begun; whoever calls this commits.

        A charge that makes no sense has its own exception for an outcome; it spoils no other.
        """
        hand = self._flavour.hand(connection)
        accounts = self._lock(
            connection, hand, {write_id(charge.organization) for charge in charges}
        )
        handles = {charge.token.handle for charge in charges if isinstance(charge, Admit)}
        keys = self._find(hand, handles) if handles else {}
        clock = self._flavour.now(connection) if any(c.now is None for c in charges) else 0
        used: dict[str, tuple[int, int]] = {}
        outcomes: list[Outcome] = []
        for charge in charges:
            account = accounts[write_id(charge.organization)]
            now = clock if charge.now is None else charge.now
            try:
                if isinstance(charge, Hit):
                    outcomes.append(account.hit(charge.windows, now, charge.cost))
                else:
                    outcomes.append(_admit(charge, account, keys, now, used))
            except Exception as mistake:
                outcomes.append(mistake)
        self._write(hand, accounts.values(), used)
        return outcomes

    def _lock(self, connection: Connection, hand: Hand, ids: set[bytes]) -> dict[bytes, _Account]:
        """Lock organizations, and make those that are not there yet."""
        wanted = sorted(ids)
        while True:
            places = _places(len(wanted))
            rows = hand.rows(self._tables.lock(places), _filled("o", wanted, places))
            accounts = {account.id: account for account in map(_Account, rows)}
            missing = [id for id in wanted if id not in accounts]
            if not missing:
                return accounts
            insert = self._flavour.insert_missing(self._tables.organizations)
            connection.execute(insert, [{"id": id} for id in missing])

    def _find(self, hand: Hand, handles: set[str]) -> dict[str, ApiKey]:
        places = _places(len(handles))
        rows = hand.rows(self._tables.find(places), _filled("h", sorted(handles), places))
        return {key.handle: key for key in map(read_key, rows)}

    def _write(
        self, hand: Hand, accounts: Iterable[_Account], used: dict[str, tuple[int, int]]
    ) -> None:
        states = [
            {"o": account.id, "state": write_state(account.state), "day": account.day}
            for account in accounts
            if account.changed and account.state is not None
        ]
        if states:
            hand.many(self._tables.keep, states)
        if used:
            usage = [{"h": handle, "n": n, "at": at} for handle, (n, at) in sorted(used.items())]
            hand.many(self._tables.use, usage)


def _admit(
    charge: Admit,
    account: _Account,
    keys: dict[str, ApiKey],
    now: int,
    used: dict[str, tuple[int, int]],
) -> Admission | type[MOVED]:
    token = charge.token
    key = keys.get(token.handle)
    if key is None:
        token.matches_nobody()
        return UNKNOWN
    if not token.matches(key.scheme, key.digest):
        return UNKNOWN
    if key.organization != charge.organization:
        return MOVED
    state = key.state(now)
    if state is not KeyState.ACTIVE:
        return Admission(REFUSED_BY_STATE[state], key)
    placed = charge.placed if charge.resolved else account.organization(charge.organization)
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


def _places(count: int) -> int:
    """How many places a statement for so many has: a power of two, so that statements are few."""
    return 1 << (count - 1).bit_length()


def _filled(letter: str, values: Sequence[Any], places: int) -> dict[str, Any]:
    """Values by the names of their places; the last one fills those that are left."""
    last = len(values) - 1
    return {f"{letter}{place}": values[min(place, last)] for place in range(places)}
