"""Plans that the host keeps: changes reach a pair of stores, and unknown names are reported."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from secrets import token_hex

import pytest
from sqlalchemy import Engine, create_engine, text

from lockgate import Gate, Organization, Plan, PlanBook, run
from lockgate.migrations import upgrade
from lockgate.options import StoreOptions
from lockgate.stores.cached.store import CachedStore
from lockgate.stores.redis import RedisStore
from lockgate.stores.sql import SqlStore
from tests.patience import until
from tests.servers import redis_server, shared

from .bench import Bench
from .shared_stores import Drive

_NAMES = "free", "starter", "creator"
_NO_LIMITS = PlanBook([Plan(name, None, None, None, None) for name in _NAMES], custom=[])


class Host:
    """A database with a table of plans of the host's own, and Redis before it."""

    def __init__(self, database: str, redis: str) -> None:
        self.database = database
        self.redis = redis
        driver = database.replace("postgresql:", "postgresql+psycopg:")
        self.engine: Engine = create_engine(re.sub("^(mysql|mariadb):", r"\1+pymysql:", driver))
        self.stores: list[SqlStore] = []
        with self.engine.begin() as connection:
            connection.execute(text("CREATE TABLE subscription (id VARCHAR(99), plan VARCHAR(99))"))
            connection.execute(text("INSERT INTO subscription VALUES ('org_1', 'free')"))

    def plan_of(self, organization: str) -> Organization | None:
        find = text("SELECT plan FROM subscription WHERE id = :id")
        with self.engine.connect() as connection:
            plan = connection.scalar(find, {"id": organization})
        return None if plan is None else Organization(organization, plan)

    def gate(self) -> Gate:
        """The gate of another process."""
        self.stores.append(SqlStore(self.database, resolver=self.plan_of))
        pair = CachedStore(self.stores[-1], RedisStore(self.redis))
        return Gate(pair, brand="acme", store_options=StoreOptions(deadline=30), plans=_NO_LIMITS)


@pytest.fixture(params=["postgresql", "mysql"])
def host(request: pytest.FixtureRequest) -> Iterator[Host]:
    database = shared(request.param).create(f"plans_{token_hex(4)}")
    upgrade(database)
    with redis_server() as server:
        host = Host(database, server.url())
        yield host
        host.engine.dispose()


def test_a_changed_plan_holds_on_every_process_once_the_gate_was_told(
    host: Host, drive: Drive
) -> None:
    gates = [host.gate(), host.gate()]
    created = drive(gates[0].keys.create("org_1", "a")).text
    for gate in gates:
        assert drive(gate.authenticate(created)).plan.name == "free"
    with host.engine.begin() as connection:
        connection.execute(text("UPDATE subscription SET plan = 'creator'"))
    drive(gates[0].organizations.changed("org_1"))
    for gate in gates:
        assert drive(gate.authenticate(created)).plan.name == "creator"
        drive(gate.close())


def test_a_change_noted_in_the_hosts_transaction_reaches_processes_if_and_only_if_it_commits(
    host: Host, drive: Drive
) -> None:
    gate = host.gate()
    created = drive(gate.keys.create("org_1", "a")).text
    assert drive(gate.authenticate(created)).plan.name == "free"
    change = text("UPDATE subscription SET plan = :plan")
    before = drive(host.stores[0].changes(0)).change_counter
    with host.engine.connect() as connection:
        connection.execute(change, {"plan": "starter"})
        host.stores[0].note_change(connection, "org_1")
        connection.rollback()
    assert drive(host.stores[0].changes(0)).change_counter == before
    with host.engine.begin() as connection:
        connection.execute(change, {"plan": "creator"})
        host.stores[0].note_change(connection, "org_1")
        host.stores[0].note_change(connection, "org_without_a_key")
    until(lambda: drive(gate.authenticate(created)).plan.name == "creator")
    drive(gate.close())


def test_an_unknown_plan_is_an_error_in_the_log_once(caplog: pytest.LogCaptureFixture) -> None:
    """As after a deploy without a plan that organizations are still on."""
    gold = Plan("gold", rpm=70, rph=700, rpd=7000, concurrent=7)
    before = Bench(plans=PlanBook([Plan("free", 10, 100, 500, 1), gold]))
    after = Bench(before.store)
    run(before.gate.organizations.place("org_1", "gold"))
    created = before.create().text
    for _ in range(3):
        assert after.admit(created).plan.name == "free"
    (event,) = [event for event in after.told if event.name == "plan_unknown"]
    assert (event.fields["plan"], event.fields["default"]) == ("gold", "free")
    lines = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert len(lines) == 1 and "'gold'" in lines[0] and "PlanBook" in lines[0]


def test_a_custom_plan_without_numbers_is_reported_like_an_unknown_one() -> None:
    book, told = PlanBook(), list[str]()
    book.watch(told.append)
    assert book.plan_of(Organization("org_1", "enterprise"), 0).name == "free"
    partly = Organization("org_1", "enterprise", (("rpm", 9),))
    for _ in range(2):
        assert book.plan_of(partly, 0).rpm == 9
        assert book.plan_of(Organization("org_1", "nonsense"), 0).name == "free"
    assert book.plan_of(book.place("org_1", "creator", {"rpm": 9}), 0).rpm == 9
    assert told == ["enterprise", "nonsense"]
