"""Options that providers of databases write into URLs: translated, or refused at construction."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url

from lockgate import ConfigurationError
from lockgate.stores.sql import SqlStore
from lockgate.stores.sql.engines import blocking_engine
from lockgate.stores.sql.url_options import for_driver

PSYCOPG = "postgresql+psycopg://user:hunter2@localhost/keys"
ASYNCPG = "postgresql+asyncpg://user:hunter2@localhost/keys"
PYMYSQL = "mysql+pymysql://user:hunter2@localhost/keys"
ASYNCMY = "mysql+asyncmy://user:hunter2@localhost/keys"


@pytest.mark.parametrize(
    ("url", "arguments"),
    [
        (f"{PSYCOPG}?sslmode=require&channel_binding=require&application_name=x", {}),
        (f"{PSYCOPG}?prepare_threshold=0", {"prepare_threshold": 0}),
        (f"{PSYCOPG}?prepare_threshold=None", {"prepare_threshold": None}),
        (f"{PSYCOPG}?pgbouncer=true", {}),
        (f"{ASYNCPG}?sslmode=require", {"dsn": "postgresql://?sslmode=require"}),
        (f"{ASYNCPG}?ssl=require", {"dsn": "postgresql://?sslmode=require"}),
        (f"{ASYNCPG}?ssl=true", {"dsn": "postgresql://?sslmode=verify-full"}),
        (f"{ASYNCPG}?channel_binding=prefer", {}),
        (f"{ASYNCPG}?application_name=x", {"server_settings": {"application_name": "x"}}),
        (f"{ASYNCPG}?options=endpoint%3Dx", {"server_settings": {"options": "endpoint=x"}}),
        (f"{ASYNCPG}?connect_timeout=10", {"timeout": 10}),
        (f"{ASYNCPG}?statement_cache_size=0&command_timeout=2.5&pgbouncer=true", {}),
        (f"{PYMYSQL}?ssl-mode=DISABLED", {"ssl_disabled": True}),
        (f"{PYMYSQL}?ssl-mode=PREFERRED", {}),
        (f"{ASYNCMY}?ssl-mode=DISABLED&stmt_cache_size=5", {}),
    ],
)
def test_an_option_that_a_provider_writes_is_translated(
    url: str, arguments: dict[str, Any]
) -> None:
    assert for_driver(make_url(url)).arguments == arguments
    SqlStore(url)


@pytest.mark.parametrize("url", [PYMYSQL, ASYNCMY])
@pytest.mark.parametrize(
    ("option", "verified", "named"),
    [
        ("ssl-mode=REQUIRED", ssl.CERT_NONE, False),
        ("ssl_mode=required", ssl.CERT_NONE, False),
        ("sslmode=REQUIRED", ssl.CERT_NONE, False),
        ("ssl=true", ssl.CERT_NONE, False),
        ("ssl-mode=VERIFY_CA", ssl.CERT_REQUIRED, False),
        ("ssl-mode=VERIFY_IDENTITY", ssl.CERT_REQUIRED, True),
    ],
)
def test_a_mode_of_tls_of_mysqls_own_client_is_a_context_of_its_drivers(
    url: str, option: str, verified: ssl.VerifyMode, named: bool
) -> None:
    context = for_driver(make_url(f"{url}?{option}")).arguments["ssl"]
    assert isinstance(context, ssl.SSLContext)
    assert (context.verify_mode, context.check_hostname) == (verified, named)
    SqlStore(f"{url}?{option}")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        (f"{PSYCOPG}?conect_timeout=1", "option that its driver does not know"),
        (f"{PSYCOPG}?sslmode=on", "'sslmode' .* one of disable, allow"),
        (f"{PSYCOPG}?prepare_threshold=some", "'prepare_threshold' .* number, or 'none'"),
        (f"{PSYCOPG}?pgbouncer=perhaps", "'pgbouncer' .* 'true' or 'false'"),
        (f"{PSYCOPG}?row_factory=x", "option that its driver does not know"),
        (f"{PSYCOPG}?connection_limit=1", "option that its driver does not know"),
        (f"{ASYNCPG}?conect_timeout=1", "option that its driver does not know"),
        (f"{ASYNCPG}?sslmode=on", "'sslmode' .* one of disable, allow"),
        (f"{ASYNCPG}?channel_binding=require", "asyncpg has no channel binding"),
        (f"{ASYNCPG}?statement_cache_size=none", "value that its driver does not take"),
        (f"{ASYNCPG}?command_timeout=soon", "value that its driver does not take"),
        (f"{ASYNCPG}?prepare_threshold=0", "option that its driver does not know"),
        (f"{ASYNCPG}?server_settings=x", "option that its driver does not know"),
        (f"{PYMYSQL}?conect_timeout=1", "option that its driver does not know"),
        (f"{PYMYSQL}?ssl-mode=ON", "'ssl-mode' .* one of DISABLED, PREFERRED"),
        (f"{PYMYSQL}?ssl-mode=VERIFY_CA&ssl-ca=/none.pem", "'ssl-ca'.*cannot be read"),
        (f"{PYMYSQL}?max_allowed_packet=big", "value that its driver does not take"),
        (f"{ASYNCMY}?ssl-mode=ON", "'ssl-mode' .* one of DISABLED, PREFERRED"),
        (f"{ASYNCMY}?conect_timeout=1", "option that its driver does not know"),
        (f"{ASYNCMY}?ssl=maybe", "'ssl' .* 'true' or 'false'"),
        (f"{ASYNCMY}?stmt_cache_size=many", "value that its driver does not take"),
        ("sqlite:///x.db?timeout=soon", "no number"),
        ("mysql://h/d?connect_timeout=soon", "no number"),
        ("postgresql+nodriver://host/db", "not installed"),
        ("mysql+mysqldb://user:hunter2@host/db", "not installed"),
        ("sqlite:///keys.db?mode=ro", "'rwc'"),
        ("sqlite:///", "name a file"),
        ("sqlite://", "name a file"),
        ("sqlite:///:memory:", "name a file"),
        ("mysql://user:hunter2@localhost", "names no database"),
        ("postgresql://user:hunter2@host:port/db", "cannot be read"),
    ],
)
def test_an_option_or_url_that_no_driver_takes_is_refused_at_construction(
    url: str, says: str
) -> None:
    with pytest.raises(ConfigurationError, match=says) as caught:
        SqlStore(url)
    assert "hunter2" not in f"{caught.value}{caught.value.__cause__}"


@pytest.mark.parametrize("url", ["sqlite:///x.db?timeout=soon", "mysql://h/d?connect_timeout=soon"])
def test_a_command_refuses_an_option_that_is_not_a_number(url: str) -> None:
    with pytest.raises(ConfigurationError, match="no number"):
        blocking_engine(url)


@pytest.mark.parametrize(
    "url",
    [
        f"{ASYNCPG}?statement_cache_size=0&ssl=require&timeout=3",
        f"{ASYNCPG}?ssl=true",
        f"{ASYNCPG}?sslmode=require&pgbouncer=true&application_name=x",
        f"{ASYNCMY}?stmt_cache_size=5&ssl-mode=REQUIRED",
    ],
)
def test_a_command_takes_the_url_of_a_driver_that_awaits(url: str) -> None:
    blocking_engine(url).dispose()


def test_a_certificate_authority_of_mysql_is_read_at_construction(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("no certificate")
    with pytest.raises(ConfigurationError, match="no certificate"):
        SqlStore(f"{PYMYSQL}?ssl-mode=VERIFY_IDENTITY&ssl-ca={file}")
