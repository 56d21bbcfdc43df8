"""Real servers that hang, die, drop packets and recover, behind the real gate."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Any, Literal

import pytest
from sqlalchemy import make_url, text

from lockgate import ConfigurationError, Event, Gate, MemoryStore, Plan, PlanBook, run
from lockgate.core.plans import DEFAULT_RESOLUTION
from lockgate.errors import RateLimitExceeded, StoreUnavailable
from lockgate.options import StoreOptions
from lockgate.sessions import Session
from lockgate.stores.base import Store
from lockgate.stores.resilience.circuit_breaker import FAILURES
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
IoMode = Literal["async", "sync"]
SESSION = Session("org_1", "user_1")

# Some connections come back after their pool was closed. Their driver warns as they are collected.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(scope="module", autouse=True)
def abandoned() -> Iterator[None]:
    """Collect them here: the warning must not appear in a test of another file."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


class Bench:
    """A gate on a separate database, and a key, called in one I/O mode."""

    def __init__(self, url: str, mode: IoMode, **options: Any) -> None:
        if not url.startswith("redis"):
            admin = blocking_engine(url)
            upgrade(admin, Tables())
            admin.dispose()
        self.told: list[Event] = []
        self.mode = mode
        self.loop = asyncio.new_event_loop() if mode == "async" else None
        maker = Gate(url, brand="acme")
        self.token = run(maker.keys.create("org_1", "a key")).text
        run(maker.close())
        told = self.told.append
        patient = StoreOptions(deadline=SECONDS)
        options = {"plans": BOOK, "store_options": patient, "observer": told, **options}
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

    @contextmanager
    def hurried(self) -> Iterator[None]:
        """Have a short deadline, while the server hangs on purpose."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.gate.store, "_deadline", SHORT)
            yield

    def names(self) -> list[str]:
        return [event.name for event in self.told]

    def close(self) -> None:
        self.do(self.gate.close())
        if self.loop is not None:
            self.loop.run_until_complete(asyncio.sleep(0))
            self.loop.close()


@contextmanager
def bench(url: str, mode: IoMode, **options: Any) -> Iterator[Bench]:
    made = Bench(url, mode, **options)
    try:
        yield made
    finally:
        made.close()


_names = iter(range(1000))


def database(server: Any) -> str:
    return str(server.create(f"resilience{next(_names)}"))


@pytest.mark.parametrize("mode", ["async", "sync"])
@pytest.mark.parametrize("kind", ["postgresql", "mysql"])
def test_d34_a_server_that_hangs_costs_the_deadline_and_then_nothing(
    kind: str, mode: IoMode, caplog: pytest.LogCaptureFixture
) -> None:
    server = shared(kind)
    with bench(database(server), mode) as made:
        with server.stopped(), made.hurried():
            assert max(made.refused_in() for _ in range(8)) < SHORT + SLACK
        late = made.names().count("store_failed")
        assert late == FAILURES + made.names().count("breaker_tried")
        before = made.admit()
        assert made.names().count("breaker_opened") == 1
        assert made.names()[-1] == "breaker_closed"
        assert made.admit() > before
    (line,) = [line for line in caplog.messages if "did not answer within" in line]
    assert "Store did not answer within 0.25 s" in line, "once a minute"
    assert "StoreOptions(deadline=...)" in line


@pytest.fixture(params=["postgresql", "redis"])
def halting(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "postgresql":
        yield shared("postgresql")
        return
    with redis_server() as running:
        yield running


def test_d28_a_burst_that_waits_for_one_server_is_one_failure(halting: Any) -> None:
    """The server stands still for one deadline: its clients find it back at once."""

    async def burst(calls: int) -> list[Any]:
        asked = (made.gate.authenticate(made.token) for _ in range(calls))
        return await asyncio.gather(*asked, return_exceptions=True)

    with bench(database(halting), "async") as made:
        with halting.stopped(), made.hurried():
            assert {type(one) for one in made.do(burst(24))} == {StoreUnavailable}
        assert "store_failed" in made.names()
        assert "breaker_opened" not in made.names()
        made.admit()
        made.told.clear()
        with halting.stopped(), made.hurried():
            for _ in range(FAILURES):
                made.do(burst(4))
            assert made.names().count("breaker_opened") == 1
        made.admit()


ONE_OF_EACH = pytest.mark.parametrize(
    ("kind", "mode"), [("postgresql", "async"), ("mysql", "sync")], ids=["postgresql", "mysql"]
)


@ONE_OF_EACH
@pytest.mark.usefixtures("soon_tried")
def test_a_server_that_never_answers_is_abandoned_and_used_again_later(
    kind: str, mode: IoMode
) -> None:
    others, server = threading.active_count(), shared(kind)
    with Proxy(server.port) as proxy:
        url = make_url(database(server)).set(port=proxy.port)
        with bench(url.render_as_string(hide_password=False), mode) as made:
            proxy.swallows = True
            with made.hurried():
                waited = [made.refused_in() for _ in range(4)]
                for _ in range(3):  # As long as it takes for the breaker to let one try.
                    sleep(SOON)
                    waited.append(made.refused_in())
            assert max(waited) < SHORT + SLACK
            proxy.swallows = False
            made.admit()
            assert threading.active_count() < others + 40


@ONE_OF_EACH
@pytest.mark.usefixtures("soon_tried")
def test_a_locked_row_costs_the_deadline(kind: str, mode: IoMode) -> None:
    url = database(shared(kind))
    with bench(url, mode) as made:
        admin = blocking_engine(url)
        with admin.connect() as holder, made.hurried():
            holder.execute(text("SELECT id FROM lockgate_organizations FOR UPDATE"))
            assert max(made.refused_in() for _ in range(3)) < SHORT + SLACK
            holder.rollback()
        made.admit()
        admin.dispose()


@pytest.mark.usefixtures("soon_tried")
def test_a_locked_sqlite_file_costs_the_deadline(tmp_path: Any) -> None:
    import sqlite3

    for mode in ("async", "sync"):
        path = tmp_path / f"{mode}.db"
        with bench(f"sqlite:///{path}?mode=rwc", mode) as made:
            holder = sqlite3.connect(path, isolation_level=None)
            holder.execute("BEGIN IMMEDIATE")
            with made.hurried():
                assert max(made.refused_in() for _ in range(5)) < SHORT + SLACK
            started = monotonic()
            made.do(made.gate.close())
            assert monotonic() - started < SLACK
            holder.execute("ROLLBACK")
            holder.close()
            made.admit()


@pytest.mark.usefixtures("soon_tried")
def test_d28_the_limits_of_sessions_fall_back_to_this_process() -> None:
    """The deadline is short while the server hangs: before, a late call would be counted twice."""
    plans, server = PlanBook([Plan("free", None, 8, None, 1)]), shared("postgresql")
    with bench(database(server), "async", plans=plans) as made:
        for _ in range(2):
            made.do(made.gate.admit_session(SESSION))
        made.admit()  # The fourth: the first was an admission by a key before all sessions.
        with server.stopped(), made.hurried():
            admitted = 0
            for _ in range(12):
                try:
                    principal = made.do(made.gate.admit_session(SESSION))
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


class Slow(MemoryByVerbs):
    """A store of the host, without deadlines."""

    def __init__(self, io: Any, wait: Callable[[], Any]) -> None:
        super().__init__()
        self.io = io
        self.wait = wait

    async def hit(self, *args: Any, **kwargs: Any) -> Any:
        await self.wait()


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_d34_a_call_of_any_store_is_left_behind_at_the_deadline(mode: IoMode) -> None:
    """A session is refused then, where limits are closed while their store is away (D28)."""
    end = threading.Event()

    async def wait() -> None:
        if mode == "async":
            await asyncio.sleep(3600)
        end.wait()

    closed = StoreOptions(on_failure="closed", deadline=SHORT)
    gate = Gate(Slow(mode, wait), brand="acme", store_options=closed)
    started = monotonic()
    with pytest.raises(StoreUnavailable):
        (asyncio.run if mode == "async" else run)(gate.admit_session(SESSION))
    assert monotonic() - started < SHORT + SLACK
    end.set()


def test_a_store_in_this_process_is_not_wrapped() -> None:
    store: Store = MemoryStore()
    assert Gate(store, brand="acme").store is store


@pytest.mark.parametrize(
    "options", [{"deadline": 0}, {"deadline": -1}, {"fleet": 0}, {"on_failure": "maybe"}]
)
def test_an_impossible_option_is_a_mistake_at_construction(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        Gate("sqlite:////tmp/never-opened.db", brand="acme", store_options=StoreOptions(**options))
