"""Usage over time as a gate records and reports it, on every store and in both I/O modes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any, cast

import pytest
from starlette.types import Receive, Scope, Send

from lockgate import (
    ConfigurationError,
    Limit,
    MemoryStore,
    Plan,
    PlanBook,
    Rule,
    UsageHistory,
    run,
)
from lockgate.asgi import GateMiddleware
from lockgate.core.timestamps import DAY, HOUR, MINUTE, SECOND
from lockgate.core.usage_history import LEVELS
from lockgate.errors import (
    InsufficientScope,
    NotFound,
    RateLimitExceeded,
    Refusal,
    StoreUnavailable,
)
from lockgate.services.usage import recorder as usage_recorder
from lockgate.sessions import Session
from lockgate.stores.answers import OutcomeUnknown, StoreError
from lockgate.stores.resilience.deadlines import TooManyCalls
from tests.patience import SECONDS
from tests.stores.forking import AT_FORK, in_a_child
from tests.web.driving import Bench as WebBench
from tests.web.driving import ask

from ..bench import Bench, Hooked
from ..shared_stores import Drive, gate_on, shared_store

SMALL = PlanBook([Plan("free", rpm=3, rph=100, rpd=None, concurrent=1)])
BIG = PlanBook([Plan("free", rpm=None, rph=None, rpd=None, concurrent=None)])


@pytest.mark.thread_unsafe(reason="the threads would share a store")
def test_processes_add_up_what_keys_used_and_were_refused(url: str, drive: Drive) -> None:
    one, two = (gate_on(url, plans=SMALL, usage_history=UsageHistory()) for _ in range(2))
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
    one, two = gate_on(url, usage_history=UsageHistory()), gate_on(url)
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


def bench_of(store: Any = None, plans: PlanBook = BIG, **options: Any) -> Bench:
    return Bench(store, plans=plans, usage_history=UsageHistory(), **options)


def test_cells_follow_the_clock_of_the_gate() -> None:
    bench = bench_of()
    bench.clock.now -= bench.clock.now % DAY
    key = bench.create()
    for step in (0, MINUTE, MINUTE, HOUR, DAY, -DAY):
        bench.clock.now += step
        for _ in range(2):
            bench.admit(key.text, cost=5)
    bench.clock.now += DAY
    told = {by: run(bench.gate.usage("org_1", by=by)) for by in LEVELS}
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
    bench = bench_of(plans=SMALL)
    writes, key = bench.store.counting("add_history"), bench.create()
    for _ in range(500):
        with suppress(RateLimitExceeded):
            bench.admit(key.text)
    assert writes == []
    run(bench.gate.flush())
    assert writes == ["add_history"]
    report = run(bench.gate.usage("org_1", key.key.id))
    assert report.admitted + report.refused["minute"] == 500
    run(bench.gate.close())


def test_threads_lose_no_count_while_it_is_written() -> None:
    bench = bench_of()
    keys = [bench.create() for _ in range(3)]

    def work(number: int) -> None:
        for turn in range(300):
            bench.admit(keys[turn % 3].text, cost=number)
            if turn % 50 == 0:
                run(bench.gate.flush())

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, (1, 2, 3, 4)))
    assert run(bench.gate.usage("org_1")).admitted == 300 * (1 + 2 + 3 + 4)
    assert run(bench.gate.usage("org_1", keys[0].key.id)).admitted == 100 * (1 + 2 + 3 + 4)
    run(bench.gate.close())


@pytest.mark.usefixtures("unhurried")
def test_a_flush_waits_for_a_write_that_is_under_way() -> None:
    begun, go = threading.Event(), threading.Event()

    async def slow(asked: Any, *arguments: Any) -> None:
        begun.set()
        assert go.wait(60)
        await asked(*arguments)

    one = bench_of(Hooked().on("add_history", slow))
    two = bench_of(one.store)
    one.admit(one.create().text)
    with ThreadPoolExecutor(2) as pool:
        try:
            first = pool.submit(lambda: run(one.gate.flush()))
            assert begun.wait(60)
            second = pool.submit(lambda: run(one.gate.flush()))
            with pytest.raises(TimeoutError):
                second.result(0.2)
            assert not first.done()
        finally:
            go.set()
        second.result(60)
        assert run(two.gate.usage("org_1")).admitted == 1
    for bench in (one, two):
        run(bench.gate.close())


@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize("is_added", [False, True])
@pytest.mark.parametrize("failure", [StoreError(), OutcomeUnknown(), TooManyCalls()])
def test_a_failed_write_is_repeated_and_counts_once_K7_D33(
    failure: Exception, is_added: bool
) -> None:
    failing = [True]

    async def fail(asked: Any, *arguments: Any) -> None:
        if is_added or not failing:
            await asked(*arguments)
        if failing:
            raise failure

    bench = bench_of(Hooked().on("add_history", fail))
    key = bench.create()
    for _ in range(2):
        bench.admit(key.text)
    run(bench.gate.flush())
    with pytest.raises(StoreUnavailable):
        run(bench.gate.usage("org_1"))
    for _ in range(3):
        bench.admit(key.text)
    failing.clear()
    assert run(bench.gate.usage("org_1")).admitted == 5
    assert run(bench.gate.usage("org_1", key.key.id)).admitted == 5
    run(bench.gate.close())


@pytest.mark.usefixtures("unhurried")
def test_beyond_the_maximum_keys_are_counted_for_their_organization(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(usage_recorder, "OWNERS_AT_MOST", 2)
    bench = bench_of()
    usage = bench.gate.usage
    keys = [bench.create() for _ in range(4)]
    for key in (*keys, bench.create("org_2"), bench.create("org_3")):
        bench.admit(key.text)
    assert [run(usage("org_1", key.key.id)).admitted for key in keys] == [1, 1, 0, 0]
    admitted = [run(usage(f"org_{number}")).admitted for number in (1, 2, 3)]
    assert admitted == [4, 1, 0]
    assert bench.names.count("usage_lost") == 1
    run(bench.gate.close())


@pytest.mark.usefixtures("unhurried")
@AT_FORK
def test_a_forked_child_counts_only_its_own_requests() -> None:
    bench = bench_of()
    key = bench.create()
    for _ in range(3):
        bench.admit(key.text)

    def work() -> bytes:
        bench.admit(key.text)
        return str(run(bench.gate.usage("org_1")).admitted).encode()

    assert in_a_child(work) == b"1"
    assert run(bench.gate.usage("org_1")).admitted == 3
    run(bench.gate.close())


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
    bench = bench_of()
    for rates in ("5/minute", "5/15 minutes"):
        with pytest.raises(RateLimitExceeded):
            run(bench.gate.holds.take("org_1", {Limit(f"tokens-{len(rates)}", rates): 6}))
    export, key = Limit("export", "1/hour"), bench.create()
    bench.admit(key.text, limits=[export])
    for _ in range(3):
        bench.refuses(RateLimitExceeded, key.text, limits=[export])
    report = run(bench.gate.usage("org_1"))
    assert report.refused == {"limit:tokens-8": 1, "limit:tokens-12": 1, "limit:export": 3}
    assert report.statuses == {"429": 5}
    assert run(bench.gate.usage("org_1", key.key.id)).refused == {"limit:export": 3}


TOKENS = Limit("tokens", "1000/minute;10000/day")


@pytest.mark.thread_unsafe(reason="the threads would share a store")
def test_units_of_holds_are_counted_once_for_the_key_that_took_them(url: str, drive: Drive) -> None:
    one, two = (gate_on(url, usage_history=UsageHistory()) for _ in range(2))
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


def test_costs_are_counted_for_named_limits_and_sessions_and_not_for_ended_holds() -> None:
    plans = PlanBook([Plan("free", None, None, None, None, limits=(Limit("all", "99/day"),))])
    bench = bench_of(plans=plans)
    export, heavy = Limit("export", "90/hour;95/day"), Limit("heavy", "90/hour", by="key")
    key = bench.create(scopes=["jobs:read"])
    late = run(bench.gate.holds.take("org_1", {TOKENS: 5}, seconds=1)).id
    bench.clock.now += 2 * SECOND
    assert not run(bench.gate.holds.settle(late, 3))
    for _ in range(3):
        bench.admit(key.text, cost=2, limits=[export, heavy])
    # It was charged.
    bench.refuses(InsufficientScope, key.text, requires="jobs:write", limits=[export])
    bench.admit(key.text)
    report = run(bench.gate.usage("org_1", key.key.id))
    assert report.used == {"all": 8, "export": 7, "heavy": 6}
    assert report.admitted == 8
    assert run(bench.gate.usage("org_1")).used == report.used
    run(bench.gate.admit_session(Session("org_1", "ada"), 4))
    assert run(bench.gate.usage("org_1")).admitted == 12


def test_a_process_that_ends_without_closing_its_gate_loses_nothing(tmp_path: Path) -> None:
    with shared_store("redis", tmp_path) as address:
        command = [sys.executable, "-W", "error", "-c", PROGRAM, address]
        subprocess.run(command, check=True, timeout=4 * SECONDS, env=os.environ)
        reader = gate_on(address)
        assert run(reader.usage("org_1")).admitted == 5
        run(reader.close())


def test_a_store_that_keeps_no_history_is_a_mistake() -> None:
    class Plain(MemoryStore):
        keeps_history = False

    with pytest.raises(ConfigurationError, match=r"UsageHistory\(\)"):
        bench_of(Plain())
    with pytest.raises(ConfigurationError, match="keeps no usage"):
        run(Bench(Plain()).gate.usage("org_1"))
    with pytest.raises(ConfigurationError, match="by 'minute', 'hour' or 'day'"):
        run(bench_of().gate.usage("org_1", by=cast(Any, "week")))


async def ok(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})


RULES: dict[str, Rule | str] = {"GET /one": "models:read", "GET /other": "jobs:read"}


@pytest.mark.parametrize(
    ("addresses", "client", "recorded"),
    [
        (True, "192.0.2.9", "192.0.2.9"),
        (True, "2001:db8::9", "2001:db8::/64"),
        (False, "192.0.2.9", None),
    ],
)
async def test_requests_are_counted_with_their_address_where_that_is_wanted(
    addresses: bool, client: str, recorded: str | None
) -> None:
    bench = WebBench(plans=SMALL, usage_history=UsageHistory(addresses=addresses))
    one, key = bench.gate, bench.key("models:read")
    app = GateMiddleware(ok, one, RULES)
    for path in ("/one", "/one", "/other", "/one", "/one", "/one"):
        await ask(app, path=path, key=key, client=(client, 1))
    await ask(app, path="/one", key=f"{key[:-1]}_")  # No key of anyone.
    (listed,) = (await one.keys.list("org_1")).keys
    report = await one.usage("org_1", listed.id)
    # A request without the scope is charged, and refused all the same (D19).
    assert (report.admitted, report.refused) == (3, {"minute": 3, "INSUFFICIENT_SCOPE": 1})
    assert (report.last_address and report.last_address.text) == recorded
