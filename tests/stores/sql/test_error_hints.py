"""The log advises on refusals by servers and by poolers."""

from __future__ import annotations

import shutil
from pathlib import Path

import psycopg
import pymysql
import pytest

from lockgate import migrations
from lockgate.core.plans import Organization
from lockgate.stores.answers import StoreError
from lockgate.stores.sql import SqlStore
from lockgate.stores.sql.engines import blocking_engine
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


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("timeout expired", "overloaded"),
        ('FATAL:  too many connections for role "app"', "no connection left"),
        ('FATAL:  too many connections for database "d"', "no connection left"),
        ('FATAL:  database "d" is not currently accepting connections', "ALLOW_CONNECTIONS"),
        ('FATAL:  permission denied for database "d"', "CONNECT"),
        ('FATAL:  role "app" is not permitted to log in', "LOGIN"),
        ('FATAL:  role "app" does not exist', "user with this password"),
        ("FATAL:  the database system is not yet accepting connections", "starting"),
        ("server does not support SSL, but SSL was required", "TLS"),
        ('root certificate file "/root.crt" does not exist', "TLS"),
        ("SSL error: certificate verify failed", "TLS"),
        ("channel binding is required, but server did not offer it", "sslmode=verify-full"),
        ("server closed the connection unexpectedly", "ends the connection"),
        ("No route to host", "no server answers"),
    ],
)
def test_refused_connections_to_postgresql_have_the_remedy_of_their_cause(
    said: str, remedy: str
) -> None:
    beginning = 'connection failed: connection to server at "h", port 5432 failed: '
    failure = psycopg.OperationalError(beginning + said)
    assert remedy in (advice(failure, blocking_engine("postgresql://h/d").dialect) or "")


@pytest.mark.parametrize(
    ("failure", "remedy"),
    [
        (pymysql.err.OperationalError(2003, "Can't connect to 'h' (timed out)"), "overloaded"),
        (pymysql.err.OperationalError(1130, "Host 'h' is not allowed"), "let this host in"),
        # Azure's answer; MariaDB answers 1045, as to a wrong password.
        (pymysql.err.OperationalError(3159, "x"), "ssl-mode=REQUIRED"),
        (pymysql.err.OperationalError(1045, "x"), "ssl-mode=REQUIRED"),
        # So PyMySQL begins, at MySQL 8's default, caching_sha2_password.
        (RuntimeError("'cryptography' package is required for sha256_password"), "PyMySQL[rsa]"),
        (RuntimeError("what"), None),
        (ValueError("what"), None),
    ],
)
def test_errors_of_mysql_servers_have_a_remedy(failure: Exception, remedy: str | None) -> None:
    found = advice(failure, blocking_engine("mysql://h/d").dialect)
    assert found is None if remedy is None else remedy in (found or "")
