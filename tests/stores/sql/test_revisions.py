"""Revisions that are not the one expected, or that two processes want; columns that are wide."""

from __future__ import annotations

import struct
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import make_url, text, update

from lockgate import Limit, run
from lockgate.cli import main
from lockgate.core.budgets import Budget
from lockgate.core.holds import Take, budgets
from lockgate.core.ledger import Hit, Peek
from lockgate.core.limits import bound
from lockgate.core.reservations import Reservation
from lockgate.core.sliding_window import Window
from lockgate.core.timestamps import DAY
from lockgate.stores.sql import SqlStore, databases, schema
from lockgate.stores.sql.codec import limit_id, write_cells, write_state
from lockgate.stores.sql.databases import database_of
from lockgate.stores.sql.engines import blocking_engine
from lockgate.stores.sql.tables import Tables

from ..making import NOW
from .backends import BACKENDS, Backend, await_locks


def test_exact_windows_outgrow_a_blob(backend: Backend) -> None:
    tables = Tables("wide_")
    schema.upgrade(backend.admin, tables)
    day = (Window("day", DAY, 10_000, 0),)
    hits = b"".join(struct.pack("<qq", NOW + number, 1) for number in range(5000))
    state = ((5001, NOW, NOW + 5000, NOW + 5000, 1, hits),)
    store = SqlStore(backend.url, prefix="wide_")
    run(store.charge("org_1", Hit(day, 1), NOW))
    with backend.admin.begin() as connection:
        connection.execute(update(tables.organizations).values(windows=write_state(state)))
    assert run(store.charge("org_1", Hit(day, 1), NOW + 6000)).used == (5002,)
    assert run(store.charge("org_1", Peek(day), NOW + 6000)).used == (5002,)
    run(store.close())
    schema.downgrade(backend.admin, tables, "base")


def test_exact_limits_and_budgets_outgrow_a_blob(backend: Backend) -> None:
    store = backend.open()
    exact = Limit("exact", "100000/day", resolution=None)
    fine = Limit("fine", "100000/day", resolution=3600)
    named, held = bound((exact,), None), bound((fine,), None)
    assert named is not None and held is not None
    taken = Take(f"{0:032x}", budgets(held), (1,), DAY, 1000)
    run(store.charge("org_1", Hit((), 1, named), NOW))
    run(store.charge("org_1", taken, NOW))
    times = [NOW + number for number in range(1, 4096)]
    hits = b"".join(struct.pack("<qq", at, 1) for at in times)
    cells = 4096, NOW, times[-1] + 1, times[-1] + 1, 1, hits
    full = tuple(Reservation(f"{number:032x}", 1, NOW + DAY, DAY) for number in range(999))
    rows = {
        limit_id(b"org_1", named.fields[0]): write_cells(cells),
        limit_id(b"org_1", taken.fields[0]): Budget(cells, full).written(),
    }
    limits = store.tables.limits
    with backend.admin.begin() as connection:
        for id, value in rows.items():
            assert len(value) > 65_535
            changed = update(limits).where(limits.c.id == id).values(cells=value)
            assert connection.execute(changed).rowcount == 1
    assert run(store.charge("org_1", Hit((), 1, named), NOW + 6000)).used == (4097,)
    answer = run(store.charge("org_1", taken._replace(id=f"{1000:032x}"), NOW + 6000))
    assert answer.done and answer.used == (4096 + 1000,)
    run(store.close())


def test_the_tables_of_a_later_version_are_left_alone(
    backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = Tables("later_")
    schema.upgrade(backend.admin, tables)
    with backend.admin.begin() as connection:
        connection.execute(
            text("UPDATE later_version SET version_num = '9999', oldest_reader = '9998'")
        )
    store = SqlStore(backend.url, prefix="later_")
    with pytest.raises(schema.OutdatedSchema, match=r"revision 9999.*install"):
        run(store.list("org_1", 100))
    run(store.close())
    with pytest.raises(schema.OutdatedSchema, match=r"revision 9999.*install"):
        schema.downgrade(backend.admin, tables, "base")
    for action in ("upgrade", "check"):
        assert main(["db", action, "--store", backend.url, "--prefix", "later_"]) == 1
        assert "install the version of lockgate" in capsys.readouterr().err


def test_the_upgrade_command_in_the_error_names_the_prefix(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema.upgrade(backend.admin, Tables("other_"))
    monkeypatch.setattr(schema, "RELEASE", schema.RevisionRange("0002", "0002"))
    store = SqlStore(backend.url, prefix="other_")
    with pytest.raises(schema.OutdatedSchema, match="upgrade --prefix other_'"):
        run(store.list("org_1", 100))
    run(store.close())
    schema.downgrade(backend.admin, Tables("other_"), "base")


def test_an_upgrade_of_postgresql_waits_for_another_upgrade_beyond_the_lock_timeout() -> None:
    admin = BACKENDS["postgresql"].admin
    hasty = make_url(BACKENDS["postgresql"].url).update_query_dict({"options": "-c lock_timeout=1"})
    engine = blocking_engine(hasty.render_as_string(hide_password=False))
    with ThreadPoolExecutor(1) as pool, admin.connect() as connection:
        with database_of(admin.dialect).alone(connection):
            upgraded = pool.submit(schema.upgrade, engine, Tables("hasty_"))
            await_locks(admin)
        connection.rollback()
        upgraded.result()
    with engine.connect() as connection:
        found = schema.current(connection, Tables("hasty_"))
    assert found is not None and found.number == schema.RELEASE.newest
    engine.dispose()


def test_an_upgrade_of_mariadb_waits_until_another_upgrade_is_complete(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    backend = BACKENDS["mysql"]
    monkeypatch.setattr(databases, "SCHEMA_PATIENCE", 0)
    with (
        backend.admin.connect() as connection,
        database_of(backend.admin.dialect).alone(connection),
    ):
        assert main(["db", "upgrade", "--store", backend.url, "--prefix", "twice_"]) == 3
    assert "try again" in capsys.readouterr().err
