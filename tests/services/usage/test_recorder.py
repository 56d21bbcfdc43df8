"""Usage over time as a gate records and reports it, on every store and in both I/O modes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any, cast

import pytest
from starlette.types import Receive, Scope, Send

import lockgate
from lockgate import ConfigurationError, Gate, Limit, MemoryStore, Plan, PlanBook, Rule, run
from lockgate.asgi import GateMiddleware
from lockgate.core.timestamps import DAY, HOUR, MINUTE
from lockgate.core.usage_history import LEVELS, UsageHistory
from lockgate.errors import (
    InsufficientScope,
    NotFound,
    RateLimitExceeded,
    Refusal,
    StoreUnavailable,
)
from lockgate.services.usage import recorder as usage_recorder
from lockgate.sessions import Session
from lockgate.stores.answers import HistoryOwner, OutcomeUnknown, StoreError, UsageBatch
from lockgate.stores.resilience.deadlines import TooManyCalls
from tests.gates import flat_gate
from tests.patience import SECONDS
from tests.stores.forking import AT_FORK, in_a_child
from tests.stores.making import HandClock
from tests.web.driving import Bench, ask

from ..shared_stores import KINDS, MODES, Drive, Kind, driving, gate_on, shared_store

SMALL = PlanBook([Plan("free", rpm=3, rph=100, rpd=None, concurrent=1)])
BIG = PlanBook([Plan("free", rpm=None, rph=None, rpd=None, concurrent=None)])


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with shared_store(request.param, tmp_path) as found:
        yield found


@pytest.fixture(params=MODES)
def drive(request: pytest.FixtureRequest) -> Iterator[Drive]:
    with driving(request.param) as found:
        yield found


def gate(store: MemoryStore | None = None, plans: PlanBook = BIG, **options: Any) -> Gate:
    return flat_gate(
        store or MemoryStore(),
        brand="acme",
        plans=plans,
        usage_history=lockgate.UsageHistory(),
        **options,
    )


@pytest.mark.thread_unsafe(reason="the threads would share a store")
def test_processes_add_up_what_keys_used_and_were_refused(url: str, drive: Drive) -> None:
    one, two = (gate_on(url, plans=SMALL, usage_history=lockgate.UsageHistory()) for _ in range(2))
    key = drive(one.keys.create("org_1", "ci"))
    other = drive(one.keys.create("org_1", "old", scopes=["models:read"]))
    drive(one.authenticate(key.text, address="192.0.2.1"))
    drive(two.authenticate(key.text, address="192.0.2.2", cost=2))
    for process in (one, two):
        with pytest.raises(RateLimitExceeded):
            drive(process.authenticate(key.text))
    drive(one.slots.acquire("org_1", "job_1"))
    with pytest.raises(RateLimitExceeded):
        drive(one.slots.acquire("org_1", "job_2"))
    drive(one.keys.revoke("org_1", other.key.id))
    with pytest.raises(Refusal):
        drive(two.authenticate(other.text))
    drive(two.flush())
    report = drive(one.usage("org_1", key.key.id, "day"))
    assert (report.admitted, report.refused) == (3, {"minute": 2})
    assert report.last_address is not None and report.last_address.text == "192.0.2.2"
    assert report.last_error is not None and report.last_error.text == "RATE_LIMIT_EXCEEDED"
    revoked = drive(one.usage("org_1", other.key.id, "day"))
    assert (revoked.admitted, revoked.refused) == (0, {"KEY_REVOKED": 1})
    whole = drive(one.usage("org_1", by="day"))
    assert whole.admitted == 3
    assert whole.refused == {"minute": 2, "concurrent": 1, "KEY_REVOKED": 1}
    assert drive(one.usage("org_2", by="day")).cells == ()
    with pytest.raises(NotFound):
        drive(one.usage("org_2", key.key.id))
    for process in (one, two):
        drive(process.close())
    # Closing writes what is left, and a gate that records nothing can read it.
    reader = gate_on(url)
    assert drive(reader.usage("org_1", key.key.id, "day")).admitted == 3
    drive(reader.close())


@pytest.mark.thread_unsafe(reason="the threads would share a store")
def test_counts_are_written_within_some_seconds_without_a_further_call(
    url: str, drive: Drive
) -> None:
    one, two = gate_on(url, usage_history=lockgate.UsageHistory()), gate_on(url)
    key = drive(one.keys.create("org_1", "ci"))
    drive(one.authenticate(key.text))
    until = monotonic() + SECONDS
    while not drive(two.usage("org_1", key.key.id)).admitted:
        assert monotonic() < until
        if drive is run:
            sleep(0.1)
        else:
            drive(asyncio.sleep(0.1))
    for process in (one, two):
        drive(process.close())


def test_cells_follow_the_clock_of_the_gate() -> None:
    clock = HandClock()
    clock.now -= clock.now % DAY
    one = gate(clock=clock)
    key = run(one.keys.create("org_1", "ci"))
    for step in (0, MINUTE, MINUTE, HOUR, DAY, -DAY):
        clock.now += step
        for _ in range(2):
            run(one.authenticate(key.text, cost=5))
    clock.now += DAY
    told = {by: run(one.usage("org_1", by=by)) for by in LEVELS}
    assert [cell.admitted for cell in told["minute"].cells] == [10]
    assert [cell.admitted for cell in told["hour"].cells] == [30, 20, 10]
    assert [cell.admitted for cell in told["day"].cells] == [50, 10]


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write nothing in the background: a busy machine would let it come between two steps."""
    monkeypatch.setattr("lockgate.stores.runtime.background.EVERY", 3600)


@pytest.mark.usefixtures("unhurried")
def test_a_flood_of_refusals_is_one_write() -> None:
    """In each second, which lasts for an hour here."""

    class Counting(MemoryStore):
        writes = 0

        async def add_history(
            self, additions: Mapping[HistoryOwner, UsageHistory], batch: UsageBatch | None = None
        ) -> None:
            self.writes += 1
            await super().add_history(additions, batch)

    store = Counting()
    one = gate(store, SMALL)
    key = run(one.keys.create("org_1", "ci"))
    for _ in range(2000):
        with suppress(RateLimitExceeded):
            run(one.authenticate(key.text))
    assert store.writes == 0
    run(one.flush())
    assert store.writes == 1
    report = run(one.usage("org_1", key.key.id))
    assert report.admitted + report.refused["minute"] == 2000
    run(one.close())


def test_threads_lose_no_count_while_it_is_written() -> None:
    one = gate()
    keys = [run(one.keys.create("org_1", "ci")) for _ in range(3)]

    def work(number: int) -> None:
        for turn in range(300):
            run(one.authenticate(keys[turn % 3].text, cost=number))
            if turn % 50 == 0:
                run(one.flush())

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, (1, 2, 3, 4)))
    assert run(one.usage("org_1")).admitted == 300 * (1 + 2 + 3 + 4)
    assert run(one.usage("org_1", keys[0].key.id)).admitted == 100 * (1 + 2 + 3 + 4)
    run(one.close())


class Failing(MemoryStore):
    failure: Exception | None = None
    is_added = False
    """Whether a call that fails has added."""

    async def add_history(
        self, additions: Mapping[HistoryOwner, UsageHistory], batch: UsageBatch | None = None
    ) -> None:
        if self.failure is None or self.is_added:
            await super().add_history(additions, batch)
        if self.failure is not None:
            raise self.failure


@pytest.mark.usefixtures("unhurried")
def test_a_flush_waits_for_a_write_that_is_under_way() -> None:
    begun, go = threading.Event(), threading.Event()

    class Slow(MemoryStore):
        async def add_history(
            self, additions: Mapping[HistoryOwner, UsageHistory], batch: UsageBatch | None = None
        ) -> None:
            begun.set()
            assert go.wait(60)
            await super().add_history(additions, batch)

    store = Slow()
    one, two = gate(store), gate(store)
    key = run(one.keys.create("org_1", "ci"))
    run(one.authenticate(key.text))
    with ThreadPoolExecutor(2) as pool:
        try:
            first = pool.submit(lambda: run(one.flush()))
            assert begun.wait(60)
            second = pool.submit(lambda: run(one.flush()))
            with pytest.raises(TimeoutError):
                second.result(0.2)
            assert not first.done()
        finally:
            go.set()
        second.result(60)
        assert run(two.usage("org_1")).admitted == 1
    for process in (one, two):
        run(process.close())


@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize("is_added", [False, True])
@pytest.mark.parametrize("failure", [StoreError(), OutcomeUnknown(), TooManyCalls()])
def test_a_failed_write_is_repeated_and_counts_once_K7_D33(
    failure: Exception, is_added: bool
) -> None:
    store = Failing()
    one = gate(store)
    key = run(one.keys.create("org_1", "ci"))
    for _ in range(2):
        run(one.authenticate(key.text))
    store.failure, store.is_added = failure, is_added
    run(one.flush())
    with pytest.raises(StoreUnavailable):
        run(one.usage("org_1"))
    for _ in range(3):
        run(one.authenticate(key.text))
    store.failure = None
    assert run(one.usage("org_1")).admitted == 5
    assert run(one.usage("org_1", key.key.id)).admitted == 5
    run(one.close())


@pytest.mark.usefixtures("unhurried")
def test_beyond_the_maximum_keys_are_counted_for_their_organization(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(usage_recorder, "OWNERS_AT_MOST", 2)
    told: list[str] = []
    one = gate(observer=lambda event: told.append(event.name))
    keys = [run(one.keys.create("org_1", "ci")) for _ in range(4)]
    others = [run(one.keys.create(f"org_{number}", "ci")) for number in (2, 3)]
    for key in (*keys, *others):
        run(one.authenticate(key.text))
    admitted = [run(one.usage("org_1", key.key.id)).admitted for key in keys]
    assert admitted == [1, 1, 0, 0]
    assert run(one.usage("org_1")).admitted == 4
    assert run(one.usage("org_2")).admitted == 1
    assert told.count("usage_lost") == 1
    assert run(one.usage("org_3")).admitted == 0
    run(one.close())


@pytest.mark.usefixtures("unhurried")
@AT_FORK
def test_a_forked_child_counts_only_its_own_requests() -> None:
    store = MemoryStore()
    one = gate(store)
    key = run(one.keys.create("org_1", "ci"))
    for _ in range(3):
        run(one.authenticate(key.text))

    def work() -> bytes:
        run(one.authenticate(key.text))
        return str(run(one.usage("org_1")).admitted).encode()

    assert in_a_child(work) == b"1"
    assert run(one.usage("org_1")).admitted == 3
    run(one.close())


PROGRAM = """
import sys
from lockgate import Gate, UsageHistory, run
from lockgate.options import StoreOptions
patient = StoreOptions(deadline=30)
gate = Gate(sys.argv[1], brand="acme", store_options=patient, features=[UsageHistory()])
key = run(gate.keys.create("org_1", "ci"))
for _ in range(5):
    run(gate.authenticate(key.text))
"""


def test_a_refusal_by_a_named_limit_or_a_hold_is_told_by_the_name_of_the_limit() -> None:
    """Not as one of the plan's minute, which has room."""
    gate = Gate(MemoryStore(), brand="acme", features=[lockgate.UsageHistory()])
    for rates in ("5/minute", "5/15 minutes"):
        with pytest.raises(RateLimitExceeded):
            run(gate.holds.take("org_1", {Limit(f"tokens-{len(rates)}", rates): 6}))
    export = Limit("export", "1/hour")
    key = run(gate.keys.create("org_1", "ci"))
    for _ in range(4):
        with suppress(RateLimitExceeded):
            run(gate.authenticate(key.text, limits=[export]))
    report = run(gate.usage("org_1"))
    assert report.refused == {"limit:tokens-8": 1, "limit:tokens-12": 1, "limit:export": 3}
    assert report.statuses == {"429": 5}
    assert run(gate.usage("org_1", key.key.id)).refused == {"limit:export": 3}


TOKENS = Limit("tokens", "1000/minute;10000/day")


@pytest.mark.thread_unsafe(reason="the threads would share a store")
def test_units_of_holds_are_counted_once_for_the_key_that_took_them(url: str, drive: Drive) -> None:
    one, two = (gate_on(url, usage_history=lockgate.UsageHistory()) for _ in range(2))
    keys = [drive(one.keys.create("org_1", name)) for name in ("a", "b")]
    callers = [drive(one.authenticate(key.text)) for key in keys]
    first = drive(one.holds.take(callers[0], {TOKENS: 400})).id
    assert drive(two.holds.settle(first, 120))
    assert not drive(one.holds.settle(first, 120))
    whole = drive(one.holds.take(callers[1], {TOKENS: 70})).id
    over = drive(one.holds.take(callers[1], {TOKENS: 10})).id
    of_none = drive(one.holds.take("org_1", {TOKENS: 9})).id
    for id, used in ((whole, None), (over, 25), (of_none, 4)):
        assert drive(two.holds.settle(id, used))
    for process in (one, two):
        drive(process.flush())
    reports = [drive(one.usage("org_1", key.key.id, "day")) for key in keys]
    assert [report.used for report in reports] == [{"tokens": 120}, {"tokens": 95}]
    whole_report = drive(one.usage("org_1", by="minute"))
    assert (whole_report.used, whole_report.admitted) == ({"tokens": 219}, 2)
    for process in (one, two):
        drive(process.close())


def test_a_hold_that_is_not_settled_is_not_among_the_units_used() -> None:
    now = [1_700_000_000_000_000]
    made = gate(clock=lambda: now[0])
    late = run(made.holds.take("org_1", {TOKENS: 5}, seconds=1)).id
    now[0] += 2_000_000
    assert not run(made.holds.settle(late, 3))
    assert run(made.usage("org_1")).used == {}


def test_the_costs_of_requests_are_counted_for_their_named_limits() -> None:
    plans = PlanBook([Plan("free", None, None, None, None, limits=(Limit("all", "99/day"),))])
    made = gate(plans=plans)
    export = Limit("export", "90/hour;95/day")
    heavy = Limit("heavy", "90/hour", by="key")
    key = run(made.keys.create("org_1", "ci", ["jobs:read"]))
    for _ in range(3):
        run(made.authenticate(key.text, cost=2, limits=[export, heavy]))
    with pytest.raises(InsufficientScope):  # It was charged.
        run(made.authenticate(key.text, requires="jobs:write", limits=[export]))
    run(made.authenticate(key.text))
    report = run(made.usage("org_1", key.key.id))
    assert report.used == {"all": 8, "export": 7, "heavy": 6}
    assert report.admitted == 8
    assert run(made.usage("org_1")).used == report.used


@pytest.mark.parametrize("kind", KINDS)
def test_a_process_that_ends_without_closing_its_gate_loses_nothing(
    kind: Kind, tmp_path: Path
) -> None:
    with shared_store(kind, tmp_path) as address:
        command = [sys.executable, "-W", "error", "-c", PROGRAM, address]
        subprocess.run(command, check=True, timeout=4 * SECONDS, env=os.environ)
        reader = gate_on(address)
        assert run(reader.usage("org_1")).admitted == 5
        run(reader.close())


def test_a_store_that_keeps_no_history_is_a_mistake() -> None:
    class Plain(MemoryStore):
        keeps_history = False

    with pytest.raises(ConfigurationError, match=r"UsageHistory\(\)"):
        gate(Plain())
    one = Gate(Plain(), brand="acme")
    with pytest.raises(ConfigurationError, match="keeps no usage"):
        run(one.usage("org_1"))
    with pytest.raises(ConfigurationError, match="by 'minute', 'hour' or 'day'"):
        run(gate().usage("org_1", by=cast(Any, "week")))


async def ok(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})


RULES: dict[str, Rule | str] = {"GET /one": "models:read", "GET /other": "jobs:read"}


@pytest.mark.parametrize("addresses", [True, False])
def test_requests_are_counted_with_their_address_where_that_is_wanted(addresses: bool) -> None:
    bench = Bench(plans=SMALL, usage_history=lockgate.UsageHistory(addresses=addresses))
    one, key = bench.gate, bench.key("models:read")
    app = GateMiddleware(ok, one, RULES)

    async def requests() -> None:
        for path in ("/one", "/one", "/other", "/one", "/one", "/one"):
            await ask(app, path=path, key=key, client=("192.0.2.9", 1))
        await ask(app, path="/one", key=f"{key[:-1]}_")  # No key of anyone.

    asyncio.run(requests())
    (listed,) = run(one.keys.list("org_1")).keys
    report = run(one.usage("org_1", listed.id))
    # A request without the scope is charged, and refused all the same (D19).
    assert (report.admitted, report.refused) == (3, {"minute": 3, "INSUFFICIENT_SCOPE": 1})
    assert (report.last_address is None) is not addresses
    if report.last_address is not None:
        assert report.last_address.text == "192.0.2.9"


@pytest.mark.parametrize("path", ["/one", "/other"])
def test_an_ipv6_client_is_recorded_by_its_network(path: str) -> None:
    bench = Bench(usage_history=lockgate.UsageHistory())
    one, key = bench.gate, bench.key("models:read")
    asyncio.run(ask(GateMiddleware(ok, one, RULES), path=path, key=key, client=("2001:db8::9", 1)))
    (listed,) = run(one.keys.list("org_1")).keys
    report = run(one.usage("org_1", listed.id))
    assert report.last_address is not None and report.last_address.text == "2001:db8::/64"


def test_sessions_are_counted_for_their_organization() -> None:
    one = gate()
    run(one.admit_session(Session("org_1", "ada"), 4))
    report = run(one.usage("org_1"))
    assert (report.admitted, report.refused) == (4, {})
    run(one.close())
