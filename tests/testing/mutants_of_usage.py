"""Stores with one mistake each in the usage of keys, and in usage over time."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

from lockgate.stores.answers import HistoryOwner, Usage, UsageBatch

from .mutants import Call, How, gap, several, wrong


def _cut(usage: dict[str, Any]) -> dict[str, Any]:
    return {handle: Usage(used % 2**31, last) for handle, (used, last) in usage.items()}


several(
    {
        "counts_in_32_bits": ("K1", "add_usage", lambda call: call(usage=_cut(call.usage))),
        # Of a lost reply.
        "counts_repeated_batches": ("K7", "add_usage", lambda call: call(batch=None)),
        "adds_repeated_batches_to_histories": ("K7", "add_history", lambda call: call(batch=None)),
        # As many as its statement has places.
        "writes_thirty_two_histories": (
            "K7 W8",
            "add_history",
            lambda call: call(additions=dict(islice(call.additions.items(), 32))),
        ),
    }
)
several(
    {
        "adds_the_usage_of_the_first_thousand_handles": (
            "K7",
            "add_usage",
            lambda call: call(usage=dict(islice(call.usage.items(), 1_000))),
        ),
        "splits_usage_and_writes_the_last_batch": (
            "K7",
            "add_usage",
            lambda call: call(usage=dict([*call.usage.items()][-500:])),
        ),
    },
    parts=("usage",),
)


@wrong("K3 K5 K4 K7 W3", "add_usage")
async def saves_whole_rows_with_usage(call: Call) -> None:
    """That it read before, revocation and all."""
    store = call.store
    with store._lock:
        if not store._is_new(call.batch):
            return
    for handle, used in call.usage.items():
        with store._lock:
            row, before = store._rows.get(handle), store._requests.get(handle, 0)
        if row is None:
            continue
        gap()
        with store._lock:
            store._rows[handle] = row
            store._requests[handle] = before
        await call(usage={handle: used}, batch=None)


@wrong("K7", "add_usage")
async def counts_nothing_beside_an_unknown_handle(call: Call) -> None:
    if all(handle in call.store._rows for handle in call.usage):
        await call()


@wrong("K7", "add_usage")
async def keeps_the_latest_word_on_the_last_use(call: Call) -> None:
    """And not the latest time."""
    await call()
    with call.store._lock:
        for handle, used in call.usage.items():
            if handle in call.store._rows:
                call.store._last_used[handle] = used.last_used_at


# Batches.
@wrong("K7", "add_usage")
async def knows_the_latest_batch_only(call: Call) -> None:
    """Of all writers."""
    seen = call.store.seen
    if call.batch is None or call.batch != seen.get("latest"):
        await call(batch=None)
    seen["latest"] = call.batch or seen.get("latest")


@wrong("K7", "add_usage")
async def counts_late_batches(call: Call) -> None:
    """Compares a batch with the latest one of its writer."""
    numbers, batch = call.store.seen, call.batch
    if batch is None or numbers.get(batch.writer) != batch.number:
        await call(batch=None)
    if batch is not None:
        numbers[batch.writer] = batch.number


@wrong("K7", "add_usage")
def takes_the_batch_of_a_writer_for_that_of_another(call: Call) -> Any:
    batch = call.batch
    return call(batch=batch and UsageBatch(batch.writer.lower(), batch.number))


@wrong("K7", "add_usage")
async def compares_numbers_as_texts(call: Call) -> None:
    """The tenth batch comes before the second."""
    numbers, batch = call.store.seen, call.batch
    if batch is not None:
        if str(batch.number) <= numbers.get(batch.writer, ""):
            return
        numbers[batch.writer] = str(batch.number)
    await call(batch=None)


@wrong("K7 W3", "add_usage")
async def marks_a_batch_after_counting_it(call: Call) -> None:
    store = call.store
    marks = store._marks
    is_new = store._is_new(call.batch)
    store._marks = marks
    if is_new:
        gap()
        await call(batch=None)
        store._is_new(call.batch)


# Usage over time.
@wrong("K7", "add_history")
async def keeps_the_latest_addition(call: Call) -> None:
    for owner in call.additions:
        call.store._histories.remove(owner)
    await call()


@wrong("K7", "add_history")
async def merges_histories_outside_the_lock(call: Call) -> None:
    """Additions in between are lost."""
    store = call.store
    for owner, addition in call.additions.items() if store._is_new(call.batch) else ():
        history = await store.history(owner)
        gap()
        history.merge(addition)
        with store._lock:
            store._histories.remove(owner)
            store._histories.add(owner, history)


@wrong("K7", "add_history")
async def drops_late_instants(call: Call) -> None:
    """Adds nothing that is older than what is there, as after a clock has stepped back."""
    for owner, addition in call.additions.items() if call.store._is_new(call.batch) else ():
        if addition.last_day >= (await call.store.history(owner)).last_day:
            await call(additions={owner: addition}, batch=None)


def for_other_owners(fold: Callable[[HistoryOwner], HistoryOwner]) -> How:
    """Return a mistake: histories are those of other owners."""

    async def how(call: Call) -> Any:
        if "owner" in call:
            return await call(owner=fold(call.owner))
        for owner, addition in call.additions.items() if call.store._is_new(call.batch) else ():
            await call(additions={fold(owner): addition}, batch=None)
        return None

    return how


def _lower(owner: HistoryOwner) -> HistoryOwner:
    return HistoryOwner(owner.organization.lower(), owner.handle and owner.handle.lower())


async def _keeping_histories(call: Call) -> Any:
    before = dict(call.store._histories._kept)
    removed = await call()
    call.store._histories._kept.update(before)
    return removed


@wrong("D45", "remove_ended")
async def removes_the_history_of_the_organization(call: Call) -> Any:
    """With an ended key."""
    removal = await call()
    if removal.removed:
        call.store._histories._kept.clear()
    return removal


several(
    {
        "counts_usage_for_organizations_alone": (
            "W8",
            "add_history history",
            for_other_owners(lambda owner: owner._replace(handle=None)),
        ),
        "compares_owners_of_histories_without_case": (
            "W8",
            "add_history history",
            for_other_owners(_lower),
        ),
        "keeps_the_history_of_a_removed_key": ("D45", "remove_ended", _keeping_histories),
        "keeps_the_history_of_a_removed_account": ("D46", "remove_unclaimed", _keeping_histories),
    }
)
