"""``lockgate db``: the tables of a store in SQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockgate import open_store, run
from lockgate.cli import main
from lockgate.stores.sql.engines import blocking_engine
from lockgate.stores.sql.schema import HEAD, downgrade
from lockgate.stores.sql.tables import Tables

Said = pytest.CaptureFixture[str]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/keys.db"


def test_upgrade_makes_the_tables_and_check_is_content(url: str, capsys: Said) -> None:
    assert main(["db", "current", "--store", url]) == 0
    assert main(["db", "upgrade", "--store", url]) == 0
    assert main(["db", "upgrade", "--store", url]) == 0
    assert main(["db", "check", "--store", url]) == 0
    assert capsys.readouterr().out.split() == ["none", HEAD, HEAD, HEAD]
    store = open_store(url)
    assert run(store.list("org_1")) == []
    run(store.close())


def test_check_tells_an_older_revision_and_the_command(url: str, capsys: Said) -> None:
    assert main(["db", "upgrade", "--store", url, "--prefix", "keys_"]) == 0
    engine = blocking_engine(url)
    downgrade(engine, Tables("keys_"), "0001")
    engine.dispose()
    assert main(["db", "check", "--store", url, "--prefix", "keys_"]) == 1
    assert "lockgate db upgrade" in capsys.readouterr().err
    assert main(["db", "check", "--store", url]) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["--store", "memory://"],
        ["--store", "postgresql://user:hunter2@127.0.0.1:1/none"],
        ["--store", "postgresql+asyncpg://user:hunter2@127.0.0.1:1/none"],
        ["--store", "hunter2"],
        ["--store", "sqlite:///x.db", "--prefix", "No Prefix"],
    ],
    ids=["memory", "nobody", "async", "text", "prefix"],
)
def test_what_was_asked_wrongly_is_told(arguments: list[str], capsys: Said) -> None:
    assert main(["db", "check", *arguments]) == 2
    said = capsys.readouterr().err
    assert said.startswith("lockgate db: ")
    assert "hunter2" not in said
