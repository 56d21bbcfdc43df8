"""A late call is abandoned, in an event loop and in a thread, up to a bounded number."""

from __future__ import annotations

import asyncio
import threading
from time import monotonic, sleep

import pytest

from lockgate.stores.resilience.deadlines import (
    STARTING,
    WARMING,
    Overdue,
    Patience,
    Tasks,
    Threads,
    answered,
    left,
    unhurried,
    within,
)
from tests.patience import SLACK


def test_an_inner_deadline_only_shortens_the_outer_one() -> None:
    assert left() is None
    with within(500):
        assert 400 < (left() or 0) <= 500
        with within(10_000):
            assert (left() or 0) <= 500
        with within(0.001):
            sleep(0.002)
            assert left() == 0
        with unhurried():
            assert left() is None
        assert (left() or 0) > 400
    assert left() is None


def test_g8_the_first_requests_may_wait_until_the_process_has_answered_for_some_seconds() -> None:
    patience = Patience()
    assert patience.seconds(0.25) == 0.25
    patience.begin()
    assert STARTING - SLACK < patience.seconds(0.25) <= STARTING
    patience.answered()
    until = patience.until
    assert patience.seconds(0.25) <= WARMING
    patience.answered()
    assert patience.until == until, "only the first answer counts"
    patience.forked()
    assert patience.seconds(0.25) == 0.25


async def stubborn(cancelled: asyncio.Event, end: asyncio.Event) -> None:
    """Takes its time even to be cancelled, as a driver does that tells its server first."""
    try:
        await end.wait()
    except asyncio.CancelledError:
        cancelled.set()
        await end.wait()
        raise


async def test_d34_a_late_task_is_left_behind_without_waiting_for_its_cancellation() -> None:
    cancelled, end = asyncio.Event(), asyncio.Event()
    tasks = Tasks()
    started = monotonic()
    with within(0.05), pytest.raises(Overdue):
        await tasks.do(stubborn(cancelled, end))
    assert monotonic() - started < SLACK
    await cancelled.wait()
    end.set()


async def test_a_cancelled_caller_does_not_wait_for_the_cancellation_of_its_call() -> None:
    cancelled, end = asyncio.Event(), asyncio.Event()
    tasks = Tasks()

    async def call() -> None:
        with within(60):
            await tasks.do(stubborn(cancelled, end))

    caller = asyncio.create_task(call())
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    await cancelled.wait()
    end.set()


async def test_the_number_of_hanging_tasks_is_bounded() -> None:
    cancelled, end = asyncio.Event(), asyncio.Event()
    tasks = Tasks(at_most=2)
    for _ in range(2):
        with within(0.01), pytest.raises(Overdue):
            await tasks.do(stubborn(cancelled, end))
    ran = False

    async def work() -> int:
        nonlocal ran
        ran = True
        return 1

    with within(60):
        with pytest.raises(Overdue):
            await tasks.do(work())
        assert not ran
        end.set()
        while True:
            try:
                assert await tasks.do(work()) == 1
                break
            except Overdue:
                await asyncio.sleep(0)
    assert await tasks.do(work()) == 1  # No deadline, no task.


async def test_a_task_within_its_deadline_returns_its_result_or_error() -> None:
    async def give() -> int:
        await asyncio.sleep(0)
        assert left() is not None
        return 7

    async def fail() -> None:
        raise LookupError("mine")

    with within(60):
        assert await Tasks().do(give()) == 7
        with pytest.raises(LookupError, match="mine"):
            await Tasks().do(fail())


async def test_an_answer_is_waited_for_until_the_deadline() -> None:
    loop = asyncio.get_running_loop()
    late, soon = loop.create_future(), loop.create_future()
    loop.call_later(0.01, soon.set_result, 3)
    with within(0.03):
        assert await answered(soon) == 3
        with pytest.raises(Overdue):
            await answered(late)
    assert late.cancelled()
    free = loop.create_future()
    loop.call_soon(free.set_result, 4)
    assert await answered(free) == 4


def test_d34_a_late_thread_is_abandoned_and_their_number_is_bounded() -> None:
    end = threading.Event()
    threads = Threads(at_most=2)
    for _ in range(2):
        started = monotonic()
        with within(0.05), pytest.raises(Overdue):
            threads.do(end.wait)
        assert monotonic() - started < SLACK
    with within(60):
        with pytest.raises(Overdue):
            threads.do(int)
        end.set()
        while True:
            try:
                assert threads.do(lambda: left() is not None)
                break
            except Overdue:
                sleep(0.001)


def test_threads_are_reused_and_return_the_result_of_the_work() -> None:
    threads = Threads()
    with within(60):
        names = {threads.do(lambda: threading.current_thread().name) for _ in range(5)}
        idents = {threads.do(threading.get_ident) for _ in range(50)}
        with pytest.raises(ZeroDivisionError):
            threads.do(lambda: 1 // 0)
    assert names == {"lockgate-call"}
    assert len(idents) == 1
    assert threads.do(threading.get_ident) == threading.get_ident()  # No deadline, no thread.
