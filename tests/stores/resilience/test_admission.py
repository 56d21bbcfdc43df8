"""An admission keeps its deadline and works the breaker, in one step."""

from __future__ import annotations

import asyncio
from time import monotonic

import pytest

from lockgate import Plan, PlanBook
from lockgate.core.api_keys import KeyDetails
from lockgate.errors import StoreUnavailable
from lockgate.stores.answers import Verdict
from lockgate.stores.resilience.circuit_breaker import FAILURES
from lockgate.stores.resilience.deadlines import UNTIL, WARMING, Overdue, within
from lockgate.stores.resilience.store import ResilientStore

from ..making import draft_of, new_key, token_of
from .bench import UNHURRIED, WINDOWS, Bench

WIDE = PlanBook([Plan("free", None, None, None, 1)])


@pytest.fixture
async def bench() -> Bench:
    made = Bench()
    await made.ask(plans=WIDE)  # It reads the change counter.
    made.store.asked.clear()
    return made


async def test_d34_the_deadline_ends_with_the_call_of_the_store(bench: Bench) -> None:
    assert (await bench.ask(plans=WIDE)).verdict is Verdict.ADMITTED
    seconds = bench.store.left[-1]
    assert seconds is not None
    assert 0 < seconds <= UNHURRIED
    assert UNTIL.get() is None
    await bench.fail(OSError())
    assert UNTIL.get() is None


async def test_d34_a_shorter_deadline_of_the_caller_is_kept(bench: Bench) -> None:
    with within(UNHURRIED / 2):
        await bench.ask(plans=WIDE)
    seconds = bench.store.left[-1]
    assert seconds is not None
    assert 0 < seconds <= UNHURRIED / 2
    asked = bench.store.asked["admit"]
    with within(0), pytest.raises(Overdue):
        await bench.ask(plans=WIDE)
    assert bench.store.asked["admit"] == asked


async def test_d28_failures_in_a_row_open_the_breaker_and_the_store_starts_over(
    bench: Bench,
) -> None:
    await bench.fail(Overdue(), FAILURES)
    assert bench.store.started_over == 1
    asked = bench.store.asked["admit"]
    with pytest.raises(StoreUnavailable):
        await bench.ask(plans=WIDE)
    assert bench.store.asked["admit"] == asked
    assert [event.name for event in bench.told] == ["breaker_opened"]


async def test_a_success_resets_failures_that_happened_during_it(bench: Bench) -> None:
    def fail() -> None:
        bench.here.breaker.failed(False, OSError(), monotonic())

    bench.store.meanwhile = fail
    assert (await bench.ask(plans=WIDE)).verdict is Verdict.ADMITTED
    assert not bench.here.breaker.failures


@pytest.mark.parametrize(
    "failure",
    [asyncio.CancelledError(), StoreUnavailable(), ValueError()],
    ids=["cancelled", "an answer", "nonsense"],
)
async def test_a_failure_that_is_no_outage_does_not_count(
    bench: Bench, failure: BaseException
) -> None:
    await bench.fail(failure, FAILURES)
    assert not bench.here.breaker.failures


async def test_an_admission_by_a_key_counts_in_the_local_limits_of_sessions(bench: Bench) -> None:
    await bench.here.organization("org_1")
    await bench.ask()
    fallen_back = bench.limits.decide("org_1", WINDOWS, 1, None)
    assert fallen_back is not None
    assert fallen_back.used == (3, 3, 2), "by the store's readings; by this process alone"


async def test_an_answer_that_may_be_from_memory_tells_the_breaker_nothing(bench: Bench) -> None:
    """A store refuses a key with an allow-list without a call while the address is not given."""
    restricted = new_key()
    details = KeyDetails(addresses=("192.0.2.7",))
    await bench.store.insert(draft_of(restricted)._replace(details=details), None)
    await bench.fail(OSError())
    token, failures = token_of(restricted), bench.here.breaker.failures
    assert (await bench.here.admit(token, 1, WIDE)).verdict is Verdict.ELSEWHERE
    assert bench.here.breaker.failures == failures == 1
    here = await bench.here.admit(token, 1, WIDE, None, "192.0.2.7")
    assert here.verdict is Verdict.ADMITTED
    assert bench.here.breaker.failures == 0


async def test_a_call_with_little_time_left_is_no_failure_of_the_store(bench: Bench) -> None:
    bench.store.failures["admit"] = Overdue()
    for _ in range(9):
        with within(UNHURRIED / 3), pytest.raises(Overdue):
            await bench.ask()
    assert not bench.here.breaker.failures
    for _ in range(FAILURES):
        with within(UNHURRIED), pytest.raises(Overdue):
            await bench.ask()
    assert bench.here.breaker.is_open


async def test_g8_the_first_answer_ends_the_time_in_which_requests_may_wait_longer(
    bench: Bench,
) -> None:
    cache = bench.here.refusals  # It has read the change counter.
    process = ResilientStore(bench.store, bench.events, refusals=cache)
    await process.ready()
    assert process.patience.until - monotonic() > WARMING
    await bench.ask(process=process)
    assert process.patience.until - monotonic() <= WARMING


async def test_the_log_names_a_store_that_hangs_at_the_start(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def hang() -> None:
        raise Overdue

    monkeypatch.setattr(bench.store, "ready", hang)
    with pytest.raises(Overdue):
        await bench.here.ready()
    assert "Faulty did not answer when this process started" in caplog.text
