"""Environments as operators have them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import migrated
from tests.cli.calling import PEPPER, Said, Service, Shell
from tests.cli.importing import Desk
from tests.services.shared_stores import KINDS, shared_store


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment without settings."""
    for name in ("GATE", "STORE", "SOURCE", "BRAND", "PEPPER", "NEXT_PEPPER", "ENVIRONMENT"):
        monkeypatch.delenv(f"LOCKGATE_{name}", raising=False)


@pytest.fixture
def operator(bare: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A brand and a pepper; the store is in memory."""
    monkeypatch.setenv("LOCKGATE_STORE", "memory://")
    monkeypatch.setenv("LOCKGATE_BRAND", "acme")
    monkeypatch.setenv("LOCKGATE_PEPPER", PEPPER)


@pytest.fixture
def shell(operator: None, capsys: Said, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A shell whose environment names the settings."""
    return Shell(capsys, monkeypatch)


@pytest.fixture
def sqlite(operator: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a store in SQLite, which the environment names."""
    url = migrated.sqlite(tmp_path / "keys.db")
    monkeypatch.setenv("LOCKGATE_STORE", url)
    return url


@pytest.fixture(params=KINDS)
def url(
    request: pytest.FixtureRequest,
    operator: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[str]:
    """The URL of a store of each kind, which the environment names."""
    with shared_store(request.param, tmp_path) as found:
        monkeypatch.setenv("LOCKGATE_STORE", found)
        yield found


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Service:
    return Service(tmp_path, monkeypatch)


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch, capsys: Said, tmp_path: Path) -> Desk:
    return Desk(monkeypatch, capsys, migrated.sqlite(tmp_path / "keys.db"))
