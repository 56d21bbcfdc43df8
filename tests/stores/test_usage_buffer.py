"""Usage that waits in a process: written in batches, each repeated until it is answered (K7)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from lockgate import MemoryStore, run
from lockgate.core.api_keys import ApiKey
from lockgate.core.timestamps import DAY
from lockgate.core.usage_marks import REPEATED_DAYS
from lockgate.stores import usage_batches
from lockgate.stores.answers import (
    OutcomeUnknown,
    StoreError,
    UnreadableState,
    Usage,
    UsageBatch,
)
from lockgate.stores.resilience.deadlines import Overdue, TooManyCalls
from lockgate.stores.usage_buffer import KEYS_AT_ONCE, UsageBuffer

from .forking import AT_FORK, in_a_child
from .making import NOW, draft_of, new_key


class Failing(MemoryStore):
    """Raises the failures that are planned, before or after it has counted."""

    def __init__(self) -> None:
        super().__init__()
        self.planned: list[tuple[BaseException, bool]] = []
        self.batches: list[int] = []

    async def add_usage(self, usage: Mapping[str, Usage], batch: UsageBatch | None = None) -> None:
        self.batches.append(len(usage))
        failure, is_counted = self.planned.pop(0) if self.planned else (None, True)
        if is_counted:
            await super().add_usage(usage, batch)
        if failure is not None:
            raise failure


def keys_in(store: MemoryStore, number: int = 1) -> list[ApiKey]:
    return [run(store.insert(draft_of(new_key()), None, NOW)) for _ in range(number)]


def requests(store: MemoryStore, key: ApiKey) -> int:
    found = run(store.find(key.handle))
    assert found is not None
    return found.request_count


@pytest.mark.parametrize("is_counted", [False, True])
@pytest.mark.parametrize(
    "failure", [TooManyCalls(), Overdue(), OutcomeUnknown(), StoreError(), OSError()], ids=repr
)
def test_a_batch_without_an_answer_is_repeated_and_counts_once_K7_D33(
    failure: Exception, is_counted: bool
) -> None:
    store, buffer = Failing(), UsageBuffer()
    (key,) = keys_in(store)
    buffer.add(key.handle, NOW, 2)
    store.planned = [(failure, is_counted)] * 3
    for _ in range(3):
        run(buffer.write(store))
        buffer.add(key.handle, NOW + 1)  # It counts in a later batch, and is not lost either.
        assert len(buffer) == 2
    run(buffer.write(store))
    assert len(buffer) == 0
    assert requests(store, key) == 5


def test_a_cancelled_write_is_repeated_and_counts_once_K7() -> None:
    store, buffer = Failing(), UsageBuffer()
    (key,) = keys_in(store)
    buffer.add(key.handle, NOW)
    store.planned = [(asyncio.CancelledError(), True)]
    with pytest.raises(asyncio.CancelledError):
        run(buffer.write(store))
    run(buffer.write(store))
    assert requests(store, key) == 1


def test_a_process_that_stops_repeats_what_failed_once_more_K7() -> None:
    store, buffer = Failing(), UsageBuffer()
    (key,) = keys_in(store)
    buffer.add(key.handle, NOW)
    store.planned = [(OutcomeUnknown(), True)]
    run(buffer.finish(store))
    assert len(buffer) == 0
    assert requests(store, key) == 1


async def test_writers_at_the_same_time_count_once_and_return_after_the_answer_K7() -> None:
    """A reader that comes while a write hangs sees the counts of before."""
    store, buffer = MemoryStore(), UsageBuffer()
    (key,) = keys_in(store)
    asked, answers = asyncio.Event(), asyncio.Event()

    class Slow(MemoryStore):
        async def add_usage(
            self, usage: Mapping[str, Usage], batch: UsageBatch | None = None
        ) -> None:
            asked.set()
            await answers.wait()
            await store.add_usage(usage, batch)

    buffer.add(key.handle, NOW)
    slow = asyncio.create_task(buffer.write(Slow()))
    await asked.wait()
    await buffer.write(store)
    assert requests(store, key) == 1
    buffer.add(key.handle, NOW)
    await buffer.write(store)
    answers.set()
    await slow
    assert requests(store, key) == 2
    assert len(buffer) == 0


def test_an_organization_that_cannot_be_read_holds_up_no_other_K7() -> None:
    store, buffer = Failing(), UsageBuffer()
    keys = keys_in(store, 2 * KEYS_AT_ONCE + 1)
    for key in keys:
        buffer.add(key.handle, NOW)
    store.planned = [(UnreadableState("org_1", "its record"), True)]
    for _ in range(2):
        run(buffer.write(store))
    assert store.batches == [KEYS_AT_ONCE, KEYS_AT_ONCE, 1]
    assert {requests(store, key) for key in keys} == {1}


def test_a_batch_is_given_up_before_the_store_may_forget_it_D33(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at = 0
    monkeypatch.setattr(usage_batches, "elapsing_clock", lambda: at)
    store, buffer = Failing(), UsageBuffer()
    (key,) = keys_in(store)
    buffer.add(key.handle, NOW)
    store.planned = [(OutcomeUnknown(), False)] * 2
    run(buffer.write(store))
    at = REPEATED_DAYS * DAY
    run(buffer.write(store))
    assert len(buffer) == 1
    at += 1
    buffer.add(key.handle, NOW, 3)
    run(buffer.write(store))
    assert len(buffer) == 0
    assert requests(store, key) == 3


@AT_FORK
def test_a_child_leaves_the_batch_to_its_parent_and_writes_as_another_K7() -> None:
    store, buffer = Failing(), UsageBuffer()
    (key,) = keys_in(store)
    buffer.add(key.handle, NOW)
    store.planned = [(OutcomeUnknown(), True)]
    run(buffer.write(store))

    def work() -> bytes:
        assert len(buffer) == 0
        buffer.add(key.handle, NOW)
        run(buffer.write(store))
        return str(requests(store, key)).encode()

    assert in_a_child(work) == b"2"
    run(buffer.write(store))
    assert requests(store, key) == 1
