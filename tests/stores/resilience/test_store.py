"""Real servers that hang, die, drop packets and recover, behind the real gate."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from time import monotonic, sleep
from typing import Any, Literal

import pytest
from sqlalchemy import make_url, text

from lockgate import ConfigurationError, Event, Gate, MemoryStore, Plan, PlanBook, run
from lockgate.core.plans import DEFAULT_RESOLUTION
from lockgate.errors import KeyLimitReached, RateLimitExceeded, StoreUnavailable
from lockgate.events import Events
from lockgate.options import KeyOptions, StoreOptions
from lockgate.sessions import Session
from lockgate.stores.base import Store
from lockgate.stores.resilience import store as resilient_store
from lockgate.stores.resilience.circuit_breaker import FAILURES, CircuitBreaker, CircuitBreakers
from lockgate.stores.resilience.deadlines import WARMING, Overdue, within
from lockgate.stores.resilience.store import ResilientStore
from lockgate.stores.sql.engines import blocking_engine
from lockgate.stores.sql.schema import upgrade
from lockgate.stores.sql.tables import Tables
from tests.by_verbs import MemoryByVerbs
from tests.gates import flat_gate
from tests.patience import SECONDS, SHORT, SLACK, answered
from tests.servers import redis_server, shared

from ..conftest import SOON
from ..proxy import Proxy

BOOK = PlanBook([Plan("free", 1000, None, None, 1, DEFAULT_RESOLUTION)])

Colour = Literal["async", "sync"]
colours = pytest.mark.parametrize("colour", ["async", "sync"])


@pytest.fixture(params=["postgresql", "mysql"])
def server(request: pytest.FixtureRequest) -> Any:
    """The server that all tests of the process share: these tests suspend and resume it."""
    return shared(request.param)


@pytest.fixture(autouse=True)
def abandoned() -> Iterator[None]:
    """Collect connections that come back after their pool was closed: their driver warns then,
    and the warning must not appear in another test."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


class Bench:
    """A gate with a short deadline on a separate database, and a key, called in one I/O mode."""

    def __init__(self, url: str, colour: Colour, **options: Any) -> None:
        if not url.startswith("redis"):
            admin = blocking_engine(url)
            upgrade(admin, Tables())
            admin.dispose()
        self.told: list[Event] = []
        self.colour = colour
        self.loop = asyncio.new_event_loop() if colour == "async" else None
        maker = Gate(url, brand="acme")
        self.token = run(maker.keys.create("org_1", "a key")).text
        run(maker.close())
        told = self.told.append
        short = StoreOptions(deadline=SHORT)
        options = {"plans": BOOK, "store_options": short, "observer": told, **options}
        self.gate = flat_gate(url, brand="acme", **options)
        self.admit()
        self.told.clear()

    def do(self, flow: Any) -> Any:
        return run(flow) if self.loop is None else self.loop.run_until_complete(flow)

    def admit(self) -> int:
        """Ask until the key is admitted; return its count, this request included."""
        key = answered(lambda: self.do(self.gate.authenticate(self.token))).key
        assert key is not None
        return int(key.request_count)

    def refused_in(self) -> float:
        """Return the seconds that it takes to be refused because the store is away."""
        started = monotonic()
        with pytest.raises(StoreUnavailable):
            self.do(self.gate.authenticate(self.token))
        return monotonic() - started

    def names(self) -> list[str]:
        return [event.name for event in self.told]

    def close(self) -> None:
        self.do(self.gate.close())
        if self.loop is not None:
            self.loop.run_until_complete(asyncio.sleep(0))
            self.loop.close()


@contextmanager
def bench(url: str, colour: Colour, **options: Any) -> Iterator[Bench]:
    made = Bench(url, colour, **options)
    try:
        yield made
    finally:
        made.close()


_names = iter(range(1000))


def database(server: Any) -> str:
    return str(server.create(f"resilience{next(_names)}"))


@colours
def test_d34_a_server_that_hangs_costs_the_deadline_and_then_nothing(
    server: Any, colour: Colour
) -> None:
    with bench(database(server), colour) as made:
        with server.stopped():
            assert max(made.refused_in() for _ in range(8)) < SHORT + SLACK
        late = made.names().count("store_failed")
        assert late == FAILURES + made.names().count("breaker_tried")
        before = made.admit()
        assert made.names().count("breaker_opened") == 1
        assert made.names()[-1] == "breaker_closed"
        assert made.admit() > before


@colours
def test_the_log_names_a_store_that_hangs_its_deadline_and_the_remedy_once_a_minute(
    halting: Any, colour: Colour, caplog: pytest.LogCaptureFixture
) -> None:
    with bench(database(halting), colour) as made:
        with halting.stopped():
            for _ in range(4):
                made.refused_in()
        (line,) = {line for line in caplog.messages if "did not answer within" in line}
        assert caplog.messages.count(line) == 1
    assert "Store did not answer within 0.25 s" in line
    assert "StoreOptions(deadline=...)" in line


def test_the_log_names_a_store_that_hangs_at_the_start(
    halting: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bench(database(halting), "sync") as made:
        monkeypatch.setattr(resilient_store, "STARTING", 2.0)
        with halting.stopped(), pytest.raises(StoreUnavailable):
            made.do(made.gate.ready())
    assert "Store did not answer when this process started" in caplog.text


def test_g8_the_first_answer_ends_the_time_in_which_requests_may_wait_longer(halting: Any) -> None:
    with bench(database(halting), "sync") as made:
        store: Any = made.gate.store
        made.do(made.gate.ready())
        assert store.patience.until - monotonic() > WARMING
        made.admit()
        assert store.patience.until - monotonic() <= WARMING
        store.patience.until = monotonic()
        with halting.stopped():
            assert made.refused_in() < SLACK


@pytest.fixture(params=["postgresql", "redis"])
def halting(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "postgresql":
        yield shared("postgresql")
        return
    with redis_server() as running:
        yield running


@colours
def test_d28_a_burst_that_waits_for_one_server_is_one_failure(halting: Any, colour: Colour) -> None:
    """The server stands still for one deadline: its clients find it back at once."""
    with bench(database(halting), colour) as made:
        with halting.stopped():
            assert burst(made, 24) == 24
        assert "store_failed" in made.names()
        assert "breaker_opened" not in made.names()
        made.admit()
        made.told.clear()
        with halting.stopped():
            for _ in range(FAILURES):
                burst(made, 4)
            assert made.names().count("breaker_opened") == 1
        made.admit()


def burst(made: Bench, calls: int) -> int:
    """Ask so often at the same time; the number of calls that the store did not answer."""
    if made.loop is not None:

        async def together() -> list[Any]:
            asked = (made.gate.authenticate(made.token) for _ in range(calls))
            return await asyncio.gather(*asked, return_exceptions=True)

        found = made.loop.run_until_complete(together())
    else:

        def ask(_: int) -> object:
            try:
                return run(made.gate.authenticate(made.token))
            except StoreUnavailable as failure:
                return failure

        with failures_after(made, calls), ThreadPoolExecutor(calls) as threads:
            found = list(threads.map(ask, range(calls)))
    return sum(isinstance(each, StoreUnavailable) for each in found)


@contextmanager
def failures_after(made: Bench, calls: int) -> Iterator[None]:
    """Hold the failures of a burst back from the breaker until all of its calls have begun.

    On a busy machine some threads begin after the first has failed: that is another burst.
    """
    store: Any = made.gate.store
    admit, begun, all_begun = store.inner.admit, count(1), threading.Event()

    async def begin(*args: Any) -> Any:
        if next(begun) == calls:
            all_begun.set()
        return await admit(*args)

    def held_back(failed: Callable[..., bool]) -> Callable[..., bool]:
        def report(*args: Any, **options: Any) -> bool:
            assert all_begun.wait(2 * SECONDS)
            return failed(*args, **options)

        return report

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store.inner, "admit", begin)
        for kind in (CircuitBreaker, CircuitBreakers):
            patch.setattr(kind, "failed", held_back(kind.failed))
        yield


@colours
@pytest.mark.usefixtures("soon_tried")
def test_a_server_that_never_answers_is_abandoned_and_used_again_later(
    server: Any, colour: Colour
) -> None:
    others = threading.active_count()
    with Proxy(server.port) as proxy:
        url = make_url(database(server)).set(port=proxy.port)
        with bench(url.render_as_string(hide_password=False), colour) as made:
            proxy.swallows = True
            waited = [made.refused_in() for _ in range(4)]
            for _ in range(3):  # As long as it takes for the breaker to let one try.
                sleep(SOON)
                waited.append(made.refused_in())
            assert max(waited) < SHORT + SLACK
            proxy.swallows = False
            made.admit()
            assert threading.active_count() < others + 40


@colours
@pytest.mark.usefixtures("soon_tried")
def test_a_locked_row_costs_the_deadline(server: Any, colour: Colour) -> None:
    url = database(server)
    with bench(url, colour) as made:
        admin = blocking_engine(url)
        with admin.connect() as holder:
            holder.execute(text("SELECT id FROM lockgate_organizations FOR UPDATE"))
            assert max(made.refused_in() for _ in range(3)) < SHORT + SLACK
            holder.rollback()
        made.admit()
        admin.dispose()


@pytest.mark.usefixtures("soon_tried")
def test_a_locked_sqlite_file_costs_the_deadline(tmp_path: Any) -> None:
    import sqlite3

    for colour in ("async", "sync"):
        path = tmp_path / f"{colour}.db"
        with bench(f"sqlite:///{path}?mode=rwc", colour) as made:
            holder = sqlite3.connect(path, isolation_level=None)
            holder.execute("BEGIN IMMEDIATE")
            assert max(made.refused_in() for _ in range(5)) < SHORT + SLACK
            started = monotonic()
            made.do(made.gate.close())
            assert monotonic() - started < SLACK
            holder.execute("ROLLBACK")
            holder.close()
            made.admit()


def session() -> Session:
    return Session("org_1", "user_1")


@colours
@pytest.mark.usefixtures("soon_tried")
def test_d28_the_limits_of_sessions_fall_back_to_this_process(
    server: Any, colour: Colour, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deadline is short while the server hangs: before, a late call would be counted twice."""
    plans = PlanBook([Plan("free", None, 8, None, 1)])
    patient = StoreOptions(deadline=SECONDS)
    made = Bench(database(server), colour, plans=plans, store_options=patient)
    for _ in range(2):
        made.do(made.gate.admit_session(session()))
    made.admit()  # The fourth: the first was an admission by a key before all sessions.
    with server.stopped(), monkeypatch.context() as patch:
        patch.setattr(made.gate.store, "_deadline", SHORT)
        admitted = 0
        for _ in range(12):
            try:
                principal = made.do(made.gate.admit_session(session()))
            except RateLimitExceeded:
                continue
            admitted += 1
            assert principal.plan.name == "free"
        assert admitted == 8 - 4
        made.refused_in()
        with pytest.raises(StoreUnavailable):
            made.do(made.gate.keys.list("org_1"))
    assert "limits_fell_back" in made.names()
    made.admit()
    assert made.names()[-1] == "limits_restored"
    made.close()


@pytest.mark.usefixtures("soon_tried")
def test_d28_a_closed_gate_refuses_sessions_while_their_store_is_away(server: Any) -> None:
    closed = StoreOptions(on_failure="closed", deadline=SHORT)
    with bench(database(server), "sync", store_options=closed) as made:
        answered(lambda: run(made.gate.admit_session(session())))
        with server.stopped(), pytest.raises(StoreUnavailable):
            run(made.gate.admit_session(session()))
        made.admit()


def test_a_refusal_by_the_store_does_not_open_the_breaker(server: Any) -> None:
    with bench(
        database(server),
        "sync",
        key_options=KeyOptions(cap=1),
        store_options=StoreOptions(deadline=SECONDS),
    ) as made:
        for _ in range(10):
            with pytest.raises(KeyLimitReached):
                run(made.gate.keys.create("org_1", "another"))
        made.admit()
        assert "breaker_opened" not in made.names()


class Slow(MemoryByVerbs):
    """A store of the host, without deadlines."""

    def __init__(self, io: Any, wait: Callable[[], Any]) -> None:
        super().__init__()
        self.io = io
        self.hangs = False
        self.wait = wait

    async def hit(self, *args: Any, **kwargs: Any) -> Any:
        if self.hangs:
            await self.wait()
        return await super().hit(*args, **kwargs)


async def test_d34_a_call_of_any_async_store_is_left_behind_at_the_deadline() -> None:
    store = Slow("async", lambda: asyncio.sleep(3600))
    gate = Gate(
        store,
        brand="acme",
        store_options=StoreOptions(on_failure="closed", deadline=SHORT),
    )
    store.hangs = True
    started = monotonic()
    with pytest.raises(StoreUnavailable):
        await gate.admit_session(session())
    assert monotonic() - started < SHORT + SLACK


def test_d34_a_call_of_any_sync_store_is_left_behind_at_the_deadline() -> None:
    end = threading.Event()

    async def wait() -> None:
        end.wait()

    store = Slow("sync", wait)
    gate = Gate(
        store,
        brand="acme",
        store_options=StoreOptions(on_failure="closed", deadline=SHORT),
    )
    store.hangs = True
    started = monotonic()
    with pytest.raises(StoreUnavailable):
        run(gate.admit_session(session()))
    assert monotonic() - started < SHORT + SLACK
    end.set()


async def test_a_call_with_little_time_left_is_no_failure_of_the_store() -> None:
    class Slow(MemoryByVerbs):
        enforces_deadline = True
        asked = 0

        async def now(self) -> int:
            self.asked += 1
            raise Overdue

    store = Slow()
    resilient = ResilientStore(store, Events(None), None, SHORT)
    for _ in range(9):
        with within(SHORT / 3), pytest.raises(Overdue):
            await resilient.now()
    assert not resilient.breaker.is_open
    with within(0), pytest.raises(Overdue):
        await resilient.now()
    assert store.asked == 9
    for _ in range(3):
        with within(10), pytest.raises(Overdue):
            await resilient.now()
    assert resilient.breaker.is_open


def test_a_store_in_this_process_is_not_wrapped() -> None:
    store: Store = MemoryStore()
    assert Gate(store, brand="acme").store is store


@pytest.mark.parametrize(
    "options", [{"deadline": 0}, {"deadline": -1}, {"fleet": 0}, {"on_failure": "maybe"}]
)
def test_an_impossible_option_is_a_mistake_at_construction(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        Gate("sqlite:////tmp/never-opened.db", brand="acme", store_options=StoreOptions(**options))
