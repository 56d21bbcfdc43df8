"""The log advises on refusals by poolers, and by servers that want TLS."""

from __future__ import annotations

import shutil
from pathlib import Path

import pymysql
import pytest
from sqlalchemy.dialects.mysql.pymysql import MySQLDialect_pymysql

from lockgate import migrations
from lockgate.core.plans import Organization
from lockgate.stores.answers import StoreError
from lockgate.stores.sql import SqlStore
from lockgate.stores.sql.error_hints import advice
from tests.servers import PgBouncer, pgbouncer, shared

from ..tls import certificate
from .test_poolers import with_driver

DRIVERS = ["postgresql+psycopg", "postgresql+asyncpg"]


async def fails(url: str) -> None:
    store = SqlStore(url)
    with pytest.raises((StoreError, OSError)):
        await store.organization("org_1")
    await store.close()


@pytest.mark.parametrize("driver", DRIVERS)
async def test_a_pooler_that_wants_tls_is_served_by_sslmode_and_named_without(
    driver: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As providers hand out a URL: PgBouncer with TLS, whose certificate no authority signed."""
    file = certificate(tmp_path).file
    server = shared("postgresql")
    known = Path(server.directory) / "pooler.pem"
    shutil.copy(file, known)
    if PgBouncer.user is not None:
        shutil.chown(known, PgBouncer.user)
    tls = (f"client_tls_{name}_file = {known}" for name in ("key", "cert"))
    with pgbouncer(server, "transaction", "client_tls_sslmode = require", *tls) as pooler:
        url = with_driver(server.create(f"tls_{driver.rpartition('+')[2]}"), driver)
        migrations.upgrade(url)
        url = url.replace(f":{server.port}/", f":{pooler.port}/")
        await fails(f"{url}?sslmode=disable")
        assert "add sslmode=require to the store's URL" in caplog.text
        store = SqlStore(f"{url}?sslmode=require")
        await store.put_organization(Organization("org_1", "free"))
        assert await store.organization("org_1") == Organization("org_1", "free")
        await store.close()


@pytest.mark.parametrize("driver", DRIVERS)
async def test_a_parameter_that_a_pooler_refuses_is_named(
    driver: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pgbouncer(shared("postgresql"), "transaction") as pooler:
        await fails(with_driver(pooler.url(), driver, options="-c search_path=x"))
        assert "leave 'options' out of the store's URL" in caplog.text


def test_a_server_of_mysql_that_wants_tls_is_named() -> None:
    """Error 3159 is Azure's answer; MariaDB answers 1045, as to a wrong password."""
    dialect = MySQLDialect_pymysql()
    for code in (3159, 1045):
        assert "ssl-mode=REQUIRED" in str(advice(pymysql.err.OperationalError(code, "x"), dialect))
