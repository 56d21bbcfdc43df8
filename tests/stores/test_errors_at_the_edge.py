"""Each failure is classified: an outage, an unreadable state, or a bug (G7, W8)."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import delete, update

from lockgate import Event, Gate, Plan, PlanBook, run
from lockgate.core.budgets import SLOTS
from lockgate.core.plans import Organization
from lockgate.errors import StoreUnavailable
from lockgate.options import StoreOptions
from lockgate.stores.base import Store
from lockgate.stores.key_value import RecordStore
from lockgate.stores.resilience.circuit_breaker import FAILURES
from lockgate.stores.resilience.failures import counts_for_breaker, is_outage
from lockgate.stores.sql import SqlStore
from lockgate.stores.sql.codec import limit_id
from lockgate.stores.sql.error_hints import is_driver_error
from tests.testing.test_records import Counted

from .redis.backends import opened, server, stop_servers
from .sql.backends import BACKENDS, driver_of

BOOK = PlanBook([Plan("open", 1_000_000, None, None, 8)], custom=(), default="open")
UNHURRIED = 20.0
"""Seconds of a deadline that no busy machine lets pass."""
BAD, GOOD = "org_bad", "org_good"
ASKED = 3 * FAILURES

Corrupt = Callable[[bytes], None]
"""Overwrites one part of the stored state of BAD."""


def in_sql(kind: str, part: str) -> tuple[Store, Corrupt]:
    store = BACKENDS[kind].open()
    organizations, keys, limits = store.tables.organizations, store.tables.keys, store.tables.limits
    of_bad = update(organizations).where(organizations.c.id == BAD.encode())

    def corrupt(junk: bytes) -> None:
        change = {
            "windows": of_bad.values(windows=junk),
            "usage": of_bad.values(used=junk),
            "slots": update(limits)
            .where(limits.c.id == limit_id(BAD.encode(), SLOTS))
            .values(cells=junk),
            "plan": of_bad.values(plan="open", overrides="{["),
            "key": update(keys).where(keys.c.organization == BAD.encode()).values(scopes="{["),
        }[part]
        with BACKENDS[kind].admin.begin() as connection:
            assert connection.execute(change).rowcount == 1

    return store, corrupt


def in_redis(kind: str, part: str) -> tuple[Store, Corrupt]:
    store = opened(kind)
    place = store._names.place(BAD)

    def corrupt(junk: bytes) -> None:
        with server(kind).client() as client:
            overwrite(client, junk)

    def overwrite(client: Any, junk: bytes) -> None:
        if part == "windows":
            client.set(place.windows, junk)
        elif part == "list for windows":
            client.delete(place.windows)
            client.rpush(place.windows, junk)
        elif part == "slots":
            client.set(place.slots, junk)
        else:
            start = b"key " if part == "key" else b"plan"
            fields = [*client.hkeys(place.organization), b"plan"]
            client.hset(
                place.organization, next(one for one in fields if one.startswith(start)), junk
            )

    return store, corrupt


class SharedRecords(Counted):
    """Records that stand behind a breaker, as any that may hang."""

    io = "sync"


def in_records(_: str, __: str) -> tuple[Store, Corrupt]:
    records, bad = SharedRecords(), set[str]()

    def corrupt(junk: bytes) -> None:
        for name, (value, version) in list(records.kept.items()):
            if name in bad or (name.startswith("org:") and BAD.encode() in value):
                bad.add(name)
                records.kept[name] = junk, version

    return RecordStore(records), corrupt


PARTS: dict[str, tuple[Callable[[str, str], tuple[Store, Corrupt]], tuple[str, ...]]] = {
    "sqlite": (in_sql, ("windows", "usage", "slots", "plan", "key")),
    "postgresql": (in_sql, ("windows", "usage", "slots", "plan", "key")),
    "single": (in_redis, ("windows", "list for windows", "slots", "plan", "key")),
    "records": (in_records, ("record",)),
}


@pytest.fixture(scope="module", autouse=True)
def servers() -> Iterator[None]:
    yield
    stop_servers()


class Service:
    """A gate on a store, with a key of each organization."""

    def __init__(self, store: Store, plans: PlanBook = BOOK) -> None:
        self.told: list[Event] = []
        self.store = store
        patient = StoreOptions(deadline=UNHURRIED)
        self.gate = Gate(
            store, brand="acme", plans=plans, observer=self.told.append, store_options=patient
        )
        self.texts = {name: run(self.gate.keys.create(name, "a key")).text for name in (BAD, GOOD)}
        for name in self.texts:
            assert self.status(name) == 200
            run(self.gate.slots.acquire(name, "job"))
        self.told.clear()

    def status(self, organization: str) -> int:
        return self.answer(self.gate.authenticate(self.texts[organization]))

    def answer(self, flow: Any) -> int:
        try:
            run(flow)
        except StoreUnavailable:
            return 503
        return 200

    def names(self) -> set[str]:
        return {event.name for event in self.told}


@pytest.mark.parametrize(
    ("kind", "part"), [(kind, part) for kind, (_, parts) in PARTS.items() for part in parts]
)
def test_an_unreadable_state_refuses_its_own_organization_only_w8(kind: str, part: str) -> None:
    store, corrupt = PARTS[kind][0](kind, part)
    service = Service(store)
    bad = service.texts[BAD]
    # As a process that starts later, without a hint of the key.
    gate = Gate(
        store,
        brand="acme",
        plans=BOOK,
        store_options=StoreOptions(deadline=UNHURRIED),
        observer=service.told.append,
    )
    for junk in (b"\x07", b"{[", b"x" * 700, b"\x01\x03" + b"\xff" * 60):
        corrupt(junk)
        if isinstance(store, SqlStore):
            store._key_hints.clear()
        service.told.clear()
        for _ in range(ASKED):
            flow = gate.slots.held(BAD) if part == "slots" else gate.authenticate(bad)
            assert service.answer(flow) == 503
            assert service.answer(gate.authenticate(service.texts[GOOD])) == 200
        assert service.names() == {"unreadable_state"}
        assert len(service.told) == ASKED
        for event in service.told:
            assert event.fields["organization"] == BAD
            assert "restore" in str(event.fields["remedy"])
    run(service.gate.close())


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        (kind, part)
        for kind in ("sqlite", "postgresql", "single")
        for part in PARTS[kind][1]
        if part in {"windows", "list for windows", "usage", "slots"}
    ],
)
def test_the_remedy_for_damaged_windows_and_slots_keeps_the_keys_w8(kind: str, part: str) -> None:
    store, corrupt = PARTS[kind][0](kind, part)
    service = Service(store)
    corrupt(b"{[")
    gate = service.gate
    flow = gate.slots.held(BAD) if part == "slots" else gate.authenticate(service.texts[BAD])
    assert service.answer(flow) == 503
    remedy = str(service.told[0].fields["remedy"])
    if isinstance(store, SqlStore):
        rows, limits = store._tables.organizations, store._tables.limits
        emptied = update(rows).where(rows.c.id == BAD.encode()).values(windows=None, used=None)
        removed = delete(limits).where(limits.c.organization == BAD.encode())
        is_field = part == "slots"
        expected = "delete them" if is_field else "set its columns windows, used and made to NULL"
        assert expected in remedy
        with BACKENDS[kind].admin.begin() as connection:
            connection.execute(removed if is_field else emptied)
    else:
        with server(kind).client() as client:
            client.delete(*re.findall(r"\S+:{\w+}:[a-z]+", remedy))
    assert service.status(BAD) == 200
    keeps_slots = isinstance(store, SqlStore) and part != "slots"
    assert len(run(gate.slots.held(BAD))) == keeps_slots
    run(gate.close())


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_an_unreadable_state_spoils_no_admission_of_the_same_batch_w8(kind: str) -> None:
    store, corrupt = in_sql(kind, "usage")
    gate = Gate(store, brand="acme", plans=BOOK, store_options=StoreOptions(deadline=UNHURRIED))
    texts = {name: (await gate.keys.create(name, "a key")).text for name in (BAD, GOOD)}
    for text in texts.values():
        await gate.authenticate(text)
    await asyncio.to_thread(corrupt, b"\x07")
    flows = [gate.authenticate(texts[name]) for name in (BAD, GOOD) * 8]
    outcomes = await asyncio.gather(*flows, return_exceptions=True)
    assert [isinstance(one, StoreUnavailable) for one in outcomes] == [True, False] * 8
    await gate.close()


@pytest.mark.parametrize("kind", list(PARTS))
def test_a_misuse_is_logged_as_a_bug_and_opens_no_breaker_g7(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Three of them opened the breaker, and then a good key got 503."""
    make, parts = PARTS[kind]
    service = Service(make(kind, parts[0])[0])
    with caplog.at_level(logging.ERROR, "lockgate"):
        for _ in range(ASKED):
            text: Any = service.texts[GOOD]  # Where a token belongs.
            with pytest.raises(StoreUnavailable):
                run(service.gate.admit_header([text.encode()], text, None, 1, str, ""))
            assert service.status(GOOD) == 200
    assert service.told == [Event("internal_error", {"error": "AttributeError"})] * ASKED
    assert "Traceback" in caplog.text
    assert "in test_a_misuse_is_told" in caplog.text or "in admit" in caplog.text
    assert service.texts[GOOD] not in caplog.text
    run(service.gate.close())


def test_a_resolver_that_fails_is_no_outage_of_the_store_g7() -> None:
    fails = False

    def resolver(_: str) -> None:
        if fails:
            raise LookupError("dsn=secret")

    store = BACKENDS["sqlite"].open(resolver=resolver)
    service = Service(store)
    fails = True
    for _ in range(ASKED):
        assert service.status(GOOD) == 503
    assert service.told == [Event("internal_error", {"error": "LookupError"})] * ASKED
    fails = False
    assert service.status(GOOD) == 200
    run(service.gate.close())


@pytest.mark.parametrize("driver", ["postgresql+psycopg", "postgresql+asyncpg", "mysql+asyncmy"])
async def test_a_value_that_a_column_cannot_hold_is_no_outage_g7(driver: str) -> None:
    backend = driver_of(driver)
    store = backend.open(backend.by(driver))
    with pytest.raises(Exception, match=r"(?i)too long") as failed:
        await store.put_organization(Organization(GOOD, "p" * 65))
    assert is_driver_error(failed.value, store._engines.dialect)
    assert not is_outage(failed.value) and not counts_for_breaker(failed.value)
    await store.close()


class Failing(SharedRecords):
    """Fails with an exception of its driver, or with one of Python's."""

    failure: Exception | None = None

    async def get(self, name: str) -> tuple[bytes, int] | None:
        if self.failure is not None:
            raise self.failure
        return await super().get(name)


class DriverError(Exception):
    """As a driver has."""


@pytest.mark.parametrize(
    ("failure", "event"),
    [
        (DriverError("dsn"), "store_failed"),
        (OSError(), "store_failed"),
        (KeyError(), "internal_error"),
    ],
)
def test_records_that_fail_are_away_unless_the_exception_is_python_s_r11(
    failure: Exception, event: str
) -> None:
    records = Failing()
    service = Service(RecordStore(records))
    records.failure = failure
    for _ in range(FAILURES):
        assert service.status(GOOD) == 503
    records.failure = None
    is_away = event == "store_failed"
    assert ("breaker_opened" in service.names()) is is_away
    assert service.told[0] == Event(event, {"error": type(failure).__name__})
    assert service.status(GOOD) == (503 if is_away else 200)
    run(service.gate.close())
