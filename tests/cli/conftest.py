"""Environments as operators have them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import migrated
from tests.cli.importing import Desk, Said
from tests.servers import RedisServer, redis_server


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql", "redis"])
def settings(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An environment as an operator has it: a store, a brand and a pepper."""
    if request.param == "sqlite":
        url = migrated.sqlite(tmp_path / "keys.db")
    elif request.param == "postgresql":
        url = migrated.postgresql()
    else:
        server = request.getfixturevalue("redis")
        url = server.url()
        server.client().flushall()
    monkeypatch.setenv("LOCKGATE_STORE", url)
    monkeypatch.setenv("LOCKGATE_BRAND", "acme")
    monkeypatch.setenv("LOCKGATE_PEPPER", "a-pepper-of-these-tests-8f2c41d0")
    monkeypatch.delenv("LOCKGATE_GATE", raising=False)


@pytest.fixture
def sqlite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKGATE_STORE", f"sqlite:///{tmp_path}/keys.db?mode=rwc")
    monkeypatch.setenv("LOCKGATE_BRAND", "acme")
    monkeypatch.setenv("LOCKGATE_PEPPER", "a-pepper-of-these-tests-8f2c41d0")
    monkeypatch.delenv("LOCKGATE_GATE", raising=False)


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch, capsys: Said, tmp_path: Path) -> Desk:
    return Desk(monkeypatch, capsys, migrated.sqlite(tmp_path / "keys.db"))
