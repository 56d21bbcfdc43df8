"""Races of one verb between processes: each is run by all of them at the same instant.

A lock of the process cannot keep processes apart, so each verb of the contract has to be atomic in
the store itself.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, NamedTuple

from ..core.accounts import AccountDraft
from ..core.api_keys import KeyDetails, KeyDraft
from ..core.changes import Actor, ChangeDraft
from ..core.digests import Digest
from ..core.holds import Look, Renew, Settle, Take, budgets
from ..core.leases import to_acquire, to_release
from ..core.ledger import Hit, LeasesOut, Peek, settling
from ..core.limit_windows import LimitWindows
from ..core.limits import Limit, bound
from ..core.plans import Organization, PlanBook
from ..core.quota_leases import LEAST, LONGEST, LeaseRequest, Settlement
from ..core.sliding_window import Window
from ..core.thresholds import SHARES, crossings, quota_crossings
from ..core.timestamps import DAY, HOUR
from ..core.usage_history import UsageHistory
from ..errors import HandleTaken
from ..stores.answers import HistoryOwner, Usage
from ..stores.base import PAGE_AT_MOST, Store
from .calls import Call, as_call
from .checks import Part
from .factories import OPEN, Factory, minute

ROUNDS: Final = 10
RACERS: Final = 3
RAISED: Final = "raised "
"""Begins the outcome of a call that raised an error which no order of the calls explains."""
_REMOVED_AT_ONCE: Final = 4
"""Less than the accounts of all races, so that every turn removes some."""
_UNLIMITED: Final = PlanBook([OPEN], custom=(), default=OPEN.name)
"""A plan that grants a lease to each process of each turn."""
_HELD: Final = 60
_RENEWALS: Final = 4
_COST: Final = 4
"""Units of each process on a soft quota of 10: the second one crosses 80 %, the third 100 %."""

Outcome = int | str | bool | None


class Rows:
    """The rows of a race, the same in every process.

    Args:
        verb: the name of the race.
        now: the instant of all calls; a shared store may drop what is old by its own clock.
    """

    def __init__(self, verb: str, now: int) -> None:
        self.now: Final = now
        factory = Factory(sum(verb.encode()) * 1_000)
        self.names: Final = [f"{verb} {turn}" for turn in range(ROUNDS)]
        self.keys: Final = [factory.draft(name) for name in self.names]
        self.accounts: Final = [factory.account(name) for name in self.names]
        self._others: Final = [
            [(factory.account(name), factory.draft(name)) for _ in range(RACERS)]
            for name in self.names
        ]
        key = factory.key()
        self.token: Final = factory.token(key)
        """The key of :attr:`busy`, as a request presents it."""
        self.busy: Final = factory.draft(self.names[0], key=key)

    def other(self, turn: int, index: int) -> tuple[AccountDraft, KeyDraft]:
        """Return an account and a key that only this process inserts."""
        return self._others[turn][index]


Make = Callable[[Store, Rows], Awaitable[None]]
Step = Callable[[Store, Rows, int, int], Awaitable[Outcome]]
Result = list[list[Outcome]]
"""By turn, the outcomes of all processes."""
Judge = Callable[[Store, Rows, Result], Awaitable[str | None]]


class Race(NamedTuple):
    """One verb that all processes call at once."""

    verb: str
    """The verb, and in brackets what distinguishes its calls, where there are several races."""
    part: Part
    """The part of a store that has the verb."""
    sentence: str
    make: Make
    """Inserts the rows."""
    step: Step
    """Makes the call of a turn in one process."""
    judge: Judge
    """Returns the mistake; None: all is right."""

    def __str__(self) -> str:
        return as_call(self.verb)


async def _no_rows(store: Store, rows: Rows) -> None:
    return


async def _keys(store: Store, rows: Rows) -> None:
    for draft in rows.keys:
        await store.insert(draft, None, rows.now)


async def _accounts(store: Store, rows: Rows) -> None:
    for account, key in zip(rows.accounts, rows.keys, strict=True):
        await store.register(account, key, rows.now)


async def _leases(store: Store, rows: Rows) -> None:
    for name in rows.names:
        await store.charge(name, to_acquire("job", "me", None, HOUR), rows.now)


def _all_alike(what: str) -> Judge:
    async def judge(_: Store, __: Rows, turns: Result) -> str | None:
        differ = next((turn for turn in turns if len({*turn}) > 1), None)
        return f"processes are told of different {what}: {differ}" if differ else None

    return judge


async def _one_wins(_: Store, __: Rows, turns: Result) -> str | None:
    wrong = next((turn for turn in turns if sum(map(bool, turn)) != 1), None)
    return None if wrong is None else f"one of the processes must succeed, and did so: {wrong}"


def _sums_to(
    read: Callable[[Store, Rows], Awaitable[object]], expected: object = RACERS * ROUNDS
) -> Judge:
    async def judge(store: Store, rows: Rows, _: Result) -> str | None:
        found = await read(store, rows)
        return None if found == expected else f"{found!r} is counted where {expected!r} is right"

    return judge


async def _claim(store: Store, rows: Rows, turn: int, index: int) -> Outcome:
    found = await store.claim_if_unclaimed(
        rows.names[turn], f"user {index}", revoke=False, keep_token=True, now=rows.now + index
    )
    return found and found.claimed_by


async def _register(store: Store, rows: Rows, turn: int, index: int) -> Outcome:
    try:
        await store.register(*rows.other(turn, index), rows.now)
    except HandleTaken:
        return False
    return True


async def _registered(store: Store, rows: Rows, turns: Result) -> str | None:
    for turn, outcomes in enumerate(turns):
        for index, won in enumerate(outcomes):
            account, key = rows.other(turn, index)
            kept = await store.find(key.handle), await store.account_by_token(account.handle)
            if [part is not None for part in kept] != [won] * 2:
                return f"of a registration that answered {won} these are kept: {kept}"
    return await _one_wins(store, rows, turns)


async def _insert(store: Store, rows: Rows, turn: int, index: int) -> Outcome:
    draft = rows.other(turn, index)[1]
    change = ChangeDraft("key_created", draft.id, Actor("host"))
    try:
        taken = draft._replace(handle=rows.keys[turn].handle, organization=rows.names[0])
        await store.insert(taken, None, rows.now, change=change)
    except HandleTaken:
        return False
    return True


async def _inserted(store: Store, rows: Rows, turns: Result) -> str | None:
    log = await store.change_log(rows.names[0], PAGE_AT_MOST)
    numbers = [change.number for change in log]
    if numbers != [*range(ROUNDS, 0, -1)]:
        return f"{ROUNDS} keys were inserted, and their records have the numbers {numbers}"
    return await _one_wins(store, rows, turns)


async def _revoke(store: Store, rows: Rows, turn: int, index: int) -> Outcome:
    found = await store.revoke_if_live(rows.names[turn], rows.keys[turn].id, rows.now + index)
    return found and found.revoked_at


async def _rehash(store: Store, rows: Rows, turn: int, index: int) -> Outcome:
    key = rows.keys[turn]
    new = Digest("new", bytes([index + 1]) * 32)
    return await store.rehash_if(key.handle, Digest(key.scheme, key.digest, key.seal), new)


async def _rehash_token(store: Store, rows: Rows, turn: int, index: int) -> Outcome:
    one = rows.accounts[turn]
    new = Digest("new", bytes([index + 1]) * 32)
    return await store.rehash_token_if(one.handle, Digest(one.scheme, one.digest, one.seal), new)


async def _update(store: Store, rows: Rows, turn: int, index: int) -> Outcome:
    key = rows.keys[turn].created(rows.now)
    return await store.update_if(key, key._replace(name=f"name {index}"), rows.now)


async def _rotate(store: Store, rows: Rows, turn: int, index: int) -> Outcome:
    key, successor = rows.keys[turn].created(rows.now), rows.other(turn, index)[1]
    new = key._replace(expires_at=rows.now + DAY, details=KeyDetails(rows.now, successor.id))
    return bool(await store.rotate_if(key, new, successor, None, rows.now))


async def _release(store: Store, rows: Rows, turn: int, _: int) -> Outcome:
    return (await store.charge(rows.names[turn], to_release("job", "me"), rows.now)).done


def _of(*limits: Limit) -> LimitWindows:
    found = bound(limits, None)
    assert found is not None, "there is a limit"
    return found


_TOKENS: Final = budgets(_of(Limit("tokens", "100/minute")))
_CREDITS: Final = _of(Limit("credits", "10/month", soft=True))
_HELD_CREDITS: Final = budgets(_CREDITS)


def _taken(limits: LimitWindows, number: int, units: int) -> Take:
    return Take(_hold_id(number), limits, (units,), HOUR, ROUNDS)


def _hold_id(number: int) -> str:
    return f"{number:032x}"


async def _hold(store: Store, rows: Rows, turn: int, index: int) -> Outcome:
    taken = _taken(_TOKENS, turn * RACERS + index, _HELD)
    return (await store.charge(rows.names[turn], taken, rows.now)).done


async def _holds(store: Store, rows: Rows) -> None:
    for turn, name in enumerate(rows.names):
        await store.charge(name, _taken(_TOKENS, turn, _HELD), rows.now)


async def _settle_hold(store: Store, rows: Rows, turn: int, index: int) -> Outcome:
    settled = Settle(_hold_id(turn), _TOKENS.fields, (index + 1,))
    return (await store.charge(rows.names[turn], settled, rows.now)).done


async def _hold_settled(store: Store, rows: Rows, turns: Result) -> str | None:
    for turn, outcomes in enumerate(turns):
        expected = sum(index + 1 for index, won in enumerate(outcomes) if won)
        if wrong := await _unlike(store, rows, turn, _TOKENS, expected):
            return f"settling 1, 2 and 3 units of a hold answered {outcomes}, and {wrong}"
    return await _one_wins(store, rows, turns)


async def _renew_hold(store: Store, rows: Rows, turn: int, index: int) -> Outcome:
    """Renew a hold several times, beside the process that settles it."""
    if index == turn % RACERS:
        return await _settle_hold(store, rows, turn, index)
    done = 0
    for step in range(_RENEWALS):  # Each to another deadline, so that each is a change.
        renewed = Renew(_hold_id(turn), _TOKENS.fields, HOUR + _RENEWALS * index + step + 1)
        done += (await store.charge(rows.names[turn], renewed, rows.now)).done
    return done


async def _hold_renewed(store: Store, rows: Rows, turns: Result) -> str | None:
    for turn, outcomes in enumerate(turns):
        settler = turn % RACERS
        if not outcomes[settler]:
            return f"a hold that was renewed beside it could not be settled: {outcomes}"
        if wrong := await _unlike(store, rows, turn, _TOKENS, settler + 1):
            return f"{settler + 1} units of a hold were settled beside renewals, and {wrong}"
    return None


async def _unlike(
    store: Store, rows: Rows, turn: int, limits: LimitWindows, used: int
) -> str | None:
    """Return what a budget counts, unless that is ``used`` and it has no hold."""
    look = Look(limits, (1,), ROUNDS)
    answer = await store.charge(rows.names[turn], look, rows.now)
    if (answer.used, answer.units) == ((used,), (0,)):
        return None
    return f"{answer.used[0]} units are counted and {answer.units[0]} held"


async def _hit_quota(store: Store, rows: Rows, turn: int, _: int) -> Outcome:
    reading = await store.charge(rows.names[turn], Hit((), _COST, _CREDITS), rows.now)
    present = _CREDITS.at(reading.now)
    return _told(crossed.share for crossed in quota_crossings(present, reading.used, _COST))


async def _held_quotas(store: Store, rows: Rows) -> None:
    for name in rows.names:
        for index in range(RACERS):
            await store.charge(name, _taken(_HELD_CREDITS, index, _COST), rows.now)


async def _settle_quota(store: Store, rows: Rows, turn: int, index: int) -> Outcome:
    limits = _HELD_CREDITS
    settled = Settle(_hold_id(index), limits.fields, (_COST,), limits.quotas)
    counts = (await store.charge(rows.names[turn], settled, rows.now)).counts
    windows = (Window("month", DAY, limits.marks[0], 0),)
    return _told(
        crossed.share
        for count in counts
        for crossed in crossings(windows, (count.after,), count.after - count.before)
    )


def _told(shares: Iterable[int]) -> str:
    return " ".join(map(str, shares))


async def _marks_told(store: Store, rows: Rows, turns: Result) -> str | None:
    for outcomes in turns:
        told = sorted(int(share) for one in outcomes for share in str(one).split())
        if told != [*SHARES]:
            return f"they crossed the marks {told} of a quota, not each one once"
    return None


async def _quotas_hit(store: Store, rows: Rows, turns: Result) -> str | None:
    for name in rows.names:
        used = (await store.charge(name, Peek((), _CREDITS), rows.now)).used
        if used != (RACERS * _COST,):
            return f"{used} is counted where {RACERS * _COST} is right"
    return await _marks_told(store, rows, turns)


async def _quotas_settled(store: Store, rows: Rows, turns: Result) -> str | None:
    for turn in range(ROUNDS):
        if wrong := await _unlike(store, rows, turn, _HELD_CREDITS, RACERS * _COST):
            return f"{RACERS * _COST} units were settled, and {wrong}"
    return await _marks_told(store, rows, turns)


async def _acquire(store: Store, rows: Rows, turn: int, index: int) -> Outcome:
    action = to_acquire(f"{index}", "me", 1, HOUR)
    return (await store.charge(rows.names[turn], action, rows.now)).done


async def _remove_unclaimed(store: Store, rows: Rows, _: int, __: int) -> Outcome:
    removed = await store.remove_unclaimed(DAY, _REMOVED_AT_ONCE, rows.now + DAY)
    return len({*removed}.intersection(rows.names))


async def _remove_ended(store: Store, rows: Rows, turn: int, _: int) -> Outcome:
    if turn:
        return 0  # The first walk has removed all.
    return int((await Call("remove_ended", (HOUR, rows.now + DAY)).on(store)).removed)


async def _ended(store: Store, rows: Rows) -> None:
    await Call("remove_ended", (HOUR, rows.now + DAY)).on(store)
    await _keys(store, rows)
    for draft in rows.keys:
        await store.revoke_if_live(draft.organization, draft.id, rows.now)


async def _removed(_: Store, __: Rows, turns: Result) -> str | None:
    removed = sum(int(outcome or 0) for turn in turns for outcome in turn)
    return None if removed == ROUNDS else f"{ROUNDS} rows were due, and {removed} were removed"


async def _sign_out(store: Store, rows: Rows, _: int, __: int) -> Outcome:
    await store.sign_out(rows.names[0])
    return None


async def _sign_outs(store: Store, rows: Rows) -> object:
    found = await store.account(rows.names[0])
    return found and found.sign_outs


async def _use(store: Store, rows: Rows, _: int, __: int) -> Outcome:
    await store.add_usage({rows.keys[0].handle: Usage(1, rows.now)})
    return None


async def _uses(store: Store, rows: Rows) -> object:
    found = await store.find(rows.keys[0].handle)
    return found and found.request_count


async def _hit(store: Store, rows: Rows, _: int, __: int) -> Outcome:
    return (await store.charge(rows.names[0], Hit(minute(None), 1), rows.now)).used[0]


async def _hits(store: Store, rows: Rows) -> object:
    return (await store.charge(rows.names[0], Peek(minute(None)), rows.now)).used[0]


async def _put(store: Store, rows: Rows, turn: int, index: int) -> Outcome:
    placed = Organization(rows.names[0], "exact", (("rpm", turn * RACERS + index),))
    change = ChangeDraft("plan_assigned", None, Actor("host"))
    await store.put_organization(placed, rows.now, change=change)
    return None


async def _plans(store: Store, rows: Rows) -> object:
    log = await store.change_log(rows.names[0], PAGE_AT_MOST)
    return [change.number for change in log]


async def _busy(store: Store, rows: Rows) -> None:
    await store.insert(rows.busy, None, rows.now)


async def _grant(store: Store, rows: Rows, turn: int, index: int) -> Outcome:
    asked = LeaseRequest(_lease_id(turn, index), LEAST, LONGEST)
    lease = (await store.admit(rows.token, 1, _UNLIMITED, rows.now, lease=asked)).lease
    return lease and lease.id


async def _granted(store: Store, rows: Rows, turns: Result) -> str | None:
    told = {id for turn in turns for id in turn}
    out = {lease.id for lease in await store.charge(rows.names[0], LeasesOut(), rows.now)}
    if None in told or len(told) < RACERS * ROUNDS:
        return f"of {RACERS * ROUNDS} leases of a plan without a limit these were granted: {told}"
    if out != told:
        return f"{len(told)} leases were granted, and {len(out)} of them are out"
    return await _sums_to(_charged)(store, rows, turns)


async def _grants(store: Store, rows: Rows) -> None:
    await _busy(store, rows)
    for turn in range(ROUNDS):
        for index in range(RACERS):
            await _grant(store, rows, turn, index)


async def _settle(store: Store, rows: Rows, turn: int, index: int) -> Outcome:
    used = Settlement(_lease_id(turn, index), ((rows.now, 1),))
    await store.charge(rows.names[0], settling(OPEN.windows, [used]), rows.now)
    return None


async def _settled(store: Store, rows: Rows, turns: Result) -> str | None:
    if out := await store.charge(rows.names[0], LeasesOut(), rows.now):
        return f"{RACERS * ROUNDS} leases were settled, and {len(out)} of them are still out"
    # One unit for the admission with which each lease was granted, and one used of it.
    return await _sums_to(_charged, 2 * RACERS * ROUNDS)(store, rows, turns)


async def _charged(store: Store, rows: Rows) -> object:
    return (await store.charge(rows.names[0], Peek(OPEN.windows), rows.now)).used[0]


def _lease_id(turn: int, index: int) -> str:
    return f"{turn * RACERS + index:016x}"


async def _add_history(store: Store, rows: Rows, _: int, __: int) -> Outcome:
    if store.keeps_history:
        addition = UsageHistory()
        addition.admit(rows.now, 1)
        await store.add_history({HistoryOwner(rows.names[0], None): addition})
    return None


async def _histories(store: Store, rows: Rows) -> object:
    if not store.keeps_history:
        return RACERS * ROUNDS
    history = await store.history(HistoryOwner(rows.names[0], None))
    return sum(cell.admitted for cell in history.cells("day", rows.now))


RACES: Final[Sequence[Race]] = (
    Race("charge(Hit)", "windows", "W3", _no_rows, _hit, _sums_to(_hits)),
    Race("charge(Hit, soft quota)", "limits", "W3", _no_rows, _hit_quota, _quotas_hit),
    Race("charge(Take)", "holds", "H1", _no_rows, _hold, _one_wins),
    Race("charge(Settle)", "holds", "H3", _holds, _settle_hold, _hold_settled),
    Race("charge(Renew)", "holds", "H3", _holds, _renew_hold, _hold_renewed),
    Race("charge(Settle, soft quota)", "holds", "H3", _held_quotas, _settle_quota, _quotas_settled),
    Race("admit(lease)", "quota_leases", "H1", _busy, _grant, _granted),
    Race("charge(HitLeased)", "quota_leases", "H3", _grants, _settle, _settled),
    Race("charge(Take, slot)", "slots", "L1", _no_rows, _acquire, _one_wins),
    Race("charge(Settle, slot)", "slots", "L5", _leases, _release, _one_wins),
    Race("insert", "keys", "D3", _no_rows, _insert, _inserted),
    Race("revoke_if_live", "keys", "D4", _keys, _revoke, _all_alike("instants")),
    Race("update_if", "keys", "D43", _keys, _update, _one_wins),
    Race("rotate_if", "keys", "D43", _keys, _rotate, _one_wins),
    Race("rehash_if", "keys", "K9", _keys, _rehash, _one_wins),
    Race("add_usage", "usage", "K7", _keys, _use, _sums_to(_uses)),
    Race("remove_ended", "keys", "D45", _ended, _remove_ended, _removed),
    Race("register", "accounts", "R1", _no_rows, _register, _registered),
    Race("claim_if_unclaimed", "accounts", "R3", _accounts, _claim, _all_alike("winners")),
    Race("sign_out", "accounts", "D15", _accounts, _sign_out, _sums_to(_sign_outs)),
    Race("rehash_token_if", "accounts", "K9", _accounts, _rehash_token, _one_wins),
    Race(
        "put_organization",
        "accounts",
        "D44",
        _no_rows,
        _put,
        _sums_to(_plans, [*range(RACERS * ROUNDS, 0, -1)]),
    ),
    Race("add_history", "admission", "K7", _no_rows, _add_history, _sums_to(_histories)),
    Race("remove_unclaimed", "accounts", "D46", _accounts, _remove_unclaimed, _removed),
)
"""The last one removes the accounts of the races before it as well."""
