"""Stores with one mistake each in the change log, and in the instants of changes."""

from __future__ import annotations

from itertools import islice
from typing import Any

from lockgate import MemoryStore
from lockgate.core.changes import Change
from lockgate.stores.memory.changes import LocalChanges
from lockgate.stores.rows import KEY_BY_ID

from .mutants import Call, Mutant, gap, several, wrong


def _record(call: Call, organization: str) -> None:
    call.store._changes.add(organization, call.change, call.at)


@wrong("D44", "revoke_if_live")
async def records_the_attempt(call: Call) -> Any:
    """Before it knows whether there is a key to revoke."""
    if await call.store.get(call.organization, call.id) is not None:
        _record(call, call.organization)
    return await call(change=None)


@wrong("D44", "insert")
async def records_an_insertion_in_a_second_step(call: Call) -> Any:
    key = await call(change=None)
    if call.change is not None:
        gap()
        with call.store._lock:
            _record(call, call.draft.organization)
    return key


@wrong("D44", "rotate_if")
async def records_a_rotation_twice(call: Call) -> Any:
    """As the update and the insertion that it consists of."""
    key = await call()
    if key is not None:
        _record(call, call.old.organization)
    return key


@wrong("D44", "put_organization")
async def records_no_plan_of_before(call: Call) -> None:
    """Since it does not read what it replaces."""
    await call(change=None)
    _record(call, call.organization.id)


@wrong("D44", "remove_unclaimed")
async def removes_records_with_their_account(call: Call) -> Any:
    removed = await call()
    for organization in removed:
        call.store._changes._rows.pop(organization, None)
    return removed


class _KeptForEver(LocalChanges):
    def remove(self, organization: str, until: int, limit: int) -> int:
        return 0


class RemovesNoRecord(Mutant):
    """Removes old keys alone."""

    killed_by = frozenset({"D44"})

    def __init__(self) -> None:
        super().__init__()
        self._changes = _KeptForEver()


def _again(call: Call) -> Any:
    return call(before=None if call.before is None or call.before < 3 else call.before + 1)


several(
    {
        "records_no_update": ("D44", "update_if", lambda call: call(change=None)),
        "begins_a_page_with_the_last_record_of_the_page_before": ("D44", "change_log", _again),
        # Which repeat, and may go back.
        "sorts_records_by_their_instants": (
            "D44",
            "change_log",
            lambda call: call.then(
                lambda found: sorted(found, key=lambda change: -change.at)[: call.limit]
            ),
        ),
    }
)


@wrong("D44", "change_log", parts=("changes",))
def lists_a_hundred_records(call: Call) -> Any:
    return call(limit=min(call.limit, 100))


@wrong("D44 W8", "change_log")
async def lists_records_by_prefix(call: Call) -> Any:
    """Of organizations whose ids begin alike."""
    found: list[Change] = []
    for id in call.store._changes._rows:
        if id.startswith(call.organization):
            found += await call(organization=id)
    return list(islice(found, call.limit))


@wrong("D44", "remove_ended")
async def removes_records_with_the_last_key(call: Call) -> Any:
    removal = await call()
    for organization in [*call.store._changes._rows]:
        if not await call.store.list(organization, 1):
            call.store.forget_log(organization)
    return removal


@wrong("D44", "remove_ended")
async def removes_records_with_their_key(call: Call) -> Any:
    rows = call.store._rows
    before = {str(row[0]) for row in rows.values()}
    removal = await call()
    gone = before - {str(row[0]) for row in rows.values()}
    for changes in call.store._changes._rows.values() if gone else ():
        kept = [row for row in changes if Change.read(*row).key not in gone]
        changes.clear()
        changes.extend(kept)
    return removal


@wrong("D44", "revoke_if_live")
async def removes_records_with_the_last_live_key(call: Call) -> Any:
    key = await call(change=None)
    live = await call.store.list_live(call.organization, 1)
    if key is not None and call.change is not None and not live:
        call.store.forget_log(call.organization)
    return key


@wrong("D44", "change_log")
async def lists_a_thousand_records(call: Call) -> Any:
    """A tenth of them."""
    newest, found = await call(limit=1, before=None), await call()
    return [one for one in found if one.number > newest[0].number - 1_000]


@wrong("D44", "change_log")
async def keeps_one_record_of_plans(call: Call) -> Any:
    """The latest."""
    found = await call(limit=1000, before=None)
    _, *older = [one.number for one in found if one.action == "plan_assigned"] or [0]
    kept = [one for one in found if one.number not in older]
    return [one for one in kept if call.before is None or one.number < call.before][: call.limit]


# Another instant than that of the step which makes the change.
class InOneStep(Mutant):
    """Admits in one step, as a store must whose admissions have an instant."""

    admit = MemoryStore.admit


@wrong("K4 D44", "commit", of=InOneStep)
def reads_the_clock_and_waits_for_its_turn(call: Call) -> Any:
    at = call.at
    if call.now is None:
        gap()
    return call(now=at)


@wrong("K4 D44", "read", "commit", of=InOneStep)
async def revokes_a_key_at_the_instant_of_its_reading(call: Call) -> Any:
    read_at = call.store.seen
    if "commit" in call:
        early = read_at.pop(call.commit.owner, None)
        return await call(now=early if call.now is None else call.now)
    read = await call()
    if call.index.name == KEY_BY_ID.name:
        read_at[call.prefix[0]] = read.now
        gap()
    return read


@wrong("D44", "commit", of=InOneStep)
async def records_a_change_when_it_has_been_made(call: Call) -> Any:
    if call.now is not None:
        return await call()
    outcome = await call(commit=call.commit._replace(change=None))
    with call.store._lock:
        call.store._changes.add(call.commit.owner, call.commit.change, outcome.now + 1)
    return outcome
