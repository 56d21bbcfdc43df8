"""Checks of usage over time, for stores that keep it."""

from ...core.ledger import Reset
from ...core.timestamps import DAY, HOUR, MINUTE
from ...core.usage_history import UsageHistory, added
from ...stores.answers import HistoryOwner, UsageBatch
from ...stores.base import Store
from ..factories import NOW, Factory
from ..guarantees import Broken
from .callers import Callers
from .check import Check, crowded

_CALLERS = 12
_ROUNDS = 3
_ADDED_AT_ONCE = 50


def addition(at: int, units: int) -> UsageHistory:
    """Return an addition with units, one refusal, an address and an error."""
    made = UsageHistory()
    made.admit(at, units)
    made.refuse(at, "hour")
    made.seen(f"192.0.2.{units}", at)
    made.failed("RATE_LIMIT_EXCEEDED", at)
    return made


async def added_units(store: Store, owner: HistoryOwner) -> int:
    """Return the units of a history."""
    return sum(cell.admitted for cell in (await store.history(owner)).cells("day", NOW + DAY))


async def usage_over_time_adds_up(store: Store) -> None:
    """Additions are read back, in whatever order of instants they came."""
    if not store.keeps_history:
        return
    owner, expected = HistoryOwner("org_1", "handle"), None
    for turn, at in enumerate((NOW, NOW + MINUTE, NOW - 3 * HOUR, NOW + DAY, NOW - 90 * DAY), 1):
        made = addition(at, turn)
        await store.add_history({owner: made, HistoryOwner("org_2", None): made})
        expected = added(expected, addition(at, turn))
    for read in (owner, HistoryOwner("org_2", None)):
        if (await store.history(read)).encode() != expected:
            raise Broken("K7", f"What five calls added to {read} is not what is read.")


async def usage_over_time_of_many_is_added_at_once(store: Store) -> None:
    """Every one of the owners in a call of the greatest length has what was added to it."""
    if not store.keeps_history:
        return
    owners = [
        HistoryOwner(f"org_{number % 7}", f"key_{number}") for number in range(_ADDED_AT_ONCE)
    ]
    for _ in range(2):
        await store.add_history(
            {owner: addition(NOW, number) for number, owner in enumerate(owners, 1)}
        )
    for number, owner in enumerate(owners, 1):
        found = await added_units(store, owner)
        if found != 2 * number:
            raise Broken("K7", f"{2 * number} units were added to {owner}, and it has {found}.")


async def a_repeated_batch_of_usage_over_time_adds_once(store: Store) -> None:
    """After a lost reply a writer repeats its batch, and numbers of one writer only ascend."""
    if not store.keeps_history:
        return
    owners = [
        HistoryOwner("org_1", None),
        HistoryOwner("org_1", "key_1"),
        HistoryOwner("org_2", None),
    ]
    first, second = "0123456789abcdef", "0123456789ABCDEF"
    turns = (first, 1), (first, 1), (second, 1), (first, 2), (first, 1), (second, 1), (first, 3)
    for writer, number in turns:
        additions = {owner: addition(NOW, 1) for owner in owners}
        await store.add_history(additions, UsageBatch(writer, number))
    for owner in owners:
        found = await added_units(store, owner)
        if found != len(set(turns)):
            said = (
                f"{len(set(turns))} batches were sent, some twice, and {owner} has {found} units."
            )
            raise Broken("K7", said)


async def usage_over_time_belongs_to_its_owner(store: Store) -> None:
    """A key, its organization and other organizations have histories of their own."""
    if not store.keeps_history:
        return
    owners = [
        HistoryOwner(organization, handle)
        for organization in ("org_1", "Org_1", "org_1 ", "key_1 org_1", "\ud800", "o" * 128)
        for handle in (None, "key_1", "Key_1")
    ]
    for turn, owner in enumerate(owners, 1):
        await store.add_history({owner: addition(NOW, turn)})
    for turn, owner in enumerate(owners, 1):
        found = await added_units(store, owner)
        if found != turn:
            raise Broken("W8", f"{turn} units were added to {owner}, and it has {found}.")
    other = await added_units(store, HistoryOwner("org_3", None))
    if other:
        raise Broken("W8", f"{other} units are of an organization that used none.")


async def usage_over_time_goes_with_its_key(store: Store) -> None:
    """A removed key leaves no history, and its organization and other keys keep theirs."""
    if not store.keeps_history:
        return
    factory = Factory()
    ended = await store.insert(factory.draft(), None, NOW)
    live = await store.insert(factory.draft(), None, NOW)
    handles = ended.handle, live.handle, None
    await store.revoke_if_live("org_1", ended.id, NOW)
    owners = [HistoryOwner("org_1", handle) for handle in handles]
    await store.add_history({owner: addition(NOW, 1) for owner in owners})
    cursor = None
    while True:
        step = await store.remove_ended(DAY, NOW + 2 * DAY, cursor)
        if (cursor := step.cursor) is None:
            break
    left = [await added_units(store, owner) for owner in owners]
    if left != [0, 1, 1]:
        raise Broken("D45", f"A removed key, another and their organization have {left} units.")


async def usage_over_time_survives_a_reset(store: Store) -> None:
    """A reset of windows removes no history, neither of keys nor of the organization."""
    if not store.keeps_history:
        return
    owners = [HistoryOwner("org_1", handle) for handle in ("key_1", None)]
    await store.add_history({owner: addition(NOW, 1) for owner in owners})
    await store.charge("org_1", Reset())
    left = [await added_units(store, owner) for owner in owners]
    if left != [1, 1]:
        raise Broken("W2", f"After a reset of windows, histories of one unit each have {left}.")


async def usage_over_time_goes_with_its_account(store: Store) -> None:
    """A removed account leaves no history of its organization or keys."""
    if not store.keeps_history:
        return
    factory = Factory()
    _, key = await store.register(factory.account("org_1"), factory.draft("org_1"), NOW)
    owners = [HistoryOwner("org_1", handle) for handle in (key.handle, None)]
    await store.add_history({owner: addition(NOW, 1) for owner in owners})
    await store.remove_unclaimed(DAY, 9, NOW + 2 * DAY)
    left = [await added_units(store, owner) for owner in owners]
    if left != [0, 0]:
        raise Broken("D46", f"The key of a removed account and its organization have {left} units.")


@crowded("K7", "admission")
async def usage_over_time_loses_no_addition(crowd: Callers) -> None:
    store = crowd.store
    if not store.keeps_history:
        return
    owners = [HistoryOwner("org_1", handle) for handle in (None, "key_1", "key_2")]

    async def work(index: int) -> None:
        for turn in range(_ROUNDS):
            mine = owners if (index + turn) % 2 else owners[::-1]
            batch = UsageBatch(f"writer {index // 2:09}", turn + 1) if index % 4 < 2 else None
            await store.add_history({owner: addition(NOW, 1) for owner in mine}, batch)

    await crowd.at_once(_CALLERS, work)
    for owner in owners:
        found = await added_units(store, owner)
        right = _CALLERS * 3 // 4 * _ROUNDS  # Half of the callers repeat the batch of another.
        crowd.see(found == right, f"{right} units were added to {owner}, and it has {found}.")


CHECKS: tuple[Check, ...] = (
    *(
        Check(sentence, "admission", script.__name__, crowded=False, of=script)
        for sentence, script in (
            ("K7", usage_over_time_adds_up),
            ("K7", usage_over_time_of_many_is_added_at_once),
            ("K7", a_repeated_batch_of_usage_over_time_adds_once),
            ("W8", usage_over_time_belongs_to_its_owner),
            ("W2", usage_over_time_survives_a_reset),
            ("D45", usage_over_time_goes_with_its_key),
            ("D46", usage_over_time_goes_with_its_account),
        )
    ),
    usage_over_time_loses_no_addition,
)
