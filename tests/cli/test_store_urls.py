"""A command takes its store's URL from an option, the environment or standard input (K2)."""

from __future__ import annotations

import io
from secrets import token_urlsafe

import pytest

from lockgate.cli.store_urls import has_password, store_url
from lockgate.errors import ConfigurationError

from .calling import Shell

WITH_PASSWORD = [
    "postgresql://user:hunter2@host/database",
    "postgresql+psycopg://user:hunter2@host",
    "postgres://us%2Fer:hunter2@host",
    "mysql://corp@user:hunter2@host/database",
    "mysql://user:hun/ter2?@host/database",
    "mysql://user:#hunter2@host/database",
    "mysql://user:hunter2 and more@host/database",
    "redis://:hunter2@host:6379/0",
    "rediss+cluster://user:hunter2@host,host",
    "redis+sentinel://user:hunter2@host,host/service",
    "redis://host?password=hunter2",
    "redis://host/0?db=1&PassWord=hunter2",
    "redis+sentinel://host/service?sentinel_password=hunter2",
    "postgresql://host/database?user=me&p%61ssword=hunter2",
    "postgresql://host/database?sslpassword=hunter2",
    "mysql://host/database?passwd=hunter2",
    "sqlite:///keys.db redis://:hunter2@host",
    "postgresql://user:hunter2@host/database redis://host",
    "postgresql:/user:hunter2@host",
    "nosql://user:hunter2@host",
]
WITHOUT = [
    "memory://",
    "sqlite:///keys.db",
    "sqlite:////home/ada@host:8000/keys.db",
    "sqlite:///C:/keys@home/keys.db",
    "sqlite:///file:keys.db?uri=true&mode=rw",
    "postgresql://user@host:5432/database?sslmode=verify-full&passfile=/etc/pgpass",
    "postgresql://user:@host/database",
    "postgresql:///database?host=/run/postgresql&password=",
    "mysql://user@host/database?ssl_ca=/etc/ca.pem",
    "redis://user@host:6379/0",
    "redis+cluster://host:7000,host:7001",
    "redis+sentinel://host:26379,host:26380/service",
    "postgresql://user@host/database redis://host:6379",
    "postgresql://user@host:5432/database  redis://user@host:6379",
    "hunter2",
    "",
]


@pytest.mark.parametrize("url", WITH_PASSWORD)
def test_a_password_in_an_argument_is_refused_and_not_repeated(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    """It may come by the environment or standard input."""
    with pytest.raises(ConfigurationError, match="LOCKGATE_STORE") as caught:
        store_url(url)
    assert "hunter2" not in str(caught.value)
    assert "--store -" in str(caught.value)
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{url}\r\nanother line\n"))
    assert store_url("-", "memory://") == url
    monkeypatch.setenv("LOCKGATE_STORE", url)
    assert store_url(None, "memory://") == url
    assert store_url("sqlite:///keys.db", "memory://") == "sqlite:///keys.db"


@pytest.mark.parametrize("url", WITHOUT)
def test_a_url_without_a_password_may_be_an_argument(url: str) -> None:
    assert not has_password(url)
    assert store_url(url, "memory://") == url


def test_a_url_with_white_space_around_it_is_refused_and_not_repeated_D53(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCKGATE_SESSION_SECRET", token_urlsafe(32))
    for url in WITH_PASSWORD[::4]:
        for written in ("{}\n", " {}", "{}\t"):
            monkeypatch.setenv("LOCKGATE_STORE", written.format(url))
            for command in ("keys list org_1", "db check", "demo --port 0"):
                told = shell(command, code=2).err
                assert "The store's URL begins or ends with white space" in told
                assert "hunter2" not in told


def test_a_url_typed_at_a_terminal_is_not_echoed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr("lockgate.cli.store_urls.getpass", lambda _: WITH_PASSWORD[0])
    assert store_url("-") == WITH_PASSWORD[0]

    def ended(_: str) -> str:
        raise EOFError

    monkeypatch.setattr("lockgate.cli.store_urls.getpass", ended)
    with pytest.raises(ConfigurationError, match="holds no URL"):
        store_url("-")


def test_without_a_url_the_default_applies_or_the_ways_to_give_one_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for written in ("", "\n", "  \n"):
        monkeypatch.setattr("sys.stdin", io.StringIO(written))
        with pytest.raises(ConfigurationError, match="Standard input holds no URL"):
            store_url("-", "memory://")
    monkeypatch.setenv("LOCKGATE_STORE", "")
    assert store_url(None, "memory://") == "memory://"
    with pytest.raises(ConfigurationError, match="set LOCKGATE_STORE"):
        store_url(None)
