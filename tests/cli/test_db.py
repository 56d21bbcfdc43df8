"""``lockgate db``: the tables of a store in SQL."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from secrets import token_hex

import pytest

from lockgate import Gate, open_store, run
from lockgate.stores.sql import schema
from lockgate.stores.sql.engines import blocking_engine
from lockgate.stores.sql.schema import RELEASE
from tests.servers import shared

from .calling import Service, Shell


@pytest.fixture
def url(tmp_path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> str:
    """A database without tables, which the environment names."""
    url = f"sqlite:///{tmp_path}/keys.db"
    monkeypatch.setenv("LOCKGATE_STORE", url)
    return url


def test_upgrade_makes_the_tables_and_check_is_content(url: str, shell: Shell) -> None:
    told = [shell(f"db {action}").out for action in ("current", "upgrade", "upgrade", "check")]
    assert "".join(told).split() == ["none", *[RELEASE.newest] * 3]
    store = open_store(url)
    assert run(store.list("org_1", 100)) == []
    run(store.close())


@pytest.mark.usefixtures("url")
def test_check_names_an_older_revision_and_the_command(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell("db upgrade --prefix keys_")
    monkeypatch.setattr(schema, "RELEASE", schema.RevisionRange("0002", "0002"))
    assert "lockgate db upgrade" in shell("db check --prefix keys_", code=1).err
    shell("db check", code=1)


@pytest.mark.usefixtures("url")
@pytest.mark.parametrize(
    ("change", "gone"),
    [
        ("ALTER TABLE lockgate_keys RENAME TO other", "lockgate_keys"),
        ("ALTER TABLE lockgate_organizations RENAME used TO spent", "lockgate_organizations.used"),
    ],
)
def test_a_check_names_a_table_or_column_that_is_gone(
    change: str, gone: str, tmp_path: Path, shell: Shell
) -> None:
    shell("db upgrade")
    shell("db check")
    with sqlite3.connect(tmp_path / "keys.db") as database:
        database.execute(change)
    told = f"there must be {gone}: they were dropped or renamed"
    assert told in shell("db check", code=1).err


@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mysql"])
def test_a_revision_that_was_changed_by_hand_fails_with_the_remedy(
    kind: str,
    url: str,
    shell: Shell,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Later upgrades would take the tables for newer ones, and leave them unchanged in silence."""
    if kind != "sqlite":
        url = shared(kind).create(f"renumbered_{token_hex(4)}")
        monkeypatch.setenv("LOCKGATE_STORE", url)
    shell("db upgrade")
    engine = blocking_engine(url)

    def execute(statement: str) -> None:
        with engine.begin() as connection:
            connection.exec_driver_sql(statement)

    execute("UPDATE lockgate_version SET version_num = '0099'")
    for action, code in (("check", 1), ("upgrade", 1), ("current", 0)):
        out, err = shell(f"db {action}", code=code)
        assert out == "0099\n"
        assert "revision 0099, which this release does not know" in err
        assert f"(of this release: '{RELEASE.newest}')" in err
    assert shell.json("db check", code=1)["works"] is False
    caplog.clear()
    gate = Gate(url, brand="acme")
    run(gate.ready())
    run(gate.close())
    (line,) = [record for record in caplog.records if "0099" in record.getMessage()]
    assert line.levelname == "WARNING"
    assert "problem  tables" in shell("doctor", code=1).out
    execute("ALTER TABLE lockgate_keys ADD COLUMN later VARCHAR(20)")  # As a later release would.
    shell("db check")
    execute("DROP TABLE lockgate_limits")
    assert "lack lockgate_limits" in shell("db check", code=1).err
    engine.dispose()


def test_looking_makes_no_file(tmp_path: Path, shell: Shell) -> None:
    for number, form in enumerate(("sqlite:///{}", "sqlite:///file:{}?uri=true")):
        file = tmp_path / f"keys{number}.db"
        url = form.format(file)
        for action, code in (("current", 0), ("check", 1)):
            out, err = shell(f"db {action} --store", url, code=code)
            assert not file.exists() and out == "none\n"
            assert "no such file" in err and "lockgate db upgrade" in err
        shell("db upgrade --store", url)
        shell("db check --store", url)
    nowhere = f"sqlite:///{tmp_path}/nowhere/keys.db"
    assert "see that the folder is there" in shell("db upgrade --store", nowhere, code=3).err


def test_a_wrong_store_is_an_error_without_its_password_K11(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    for arguments in (
        "--store memory://",
        "--store postgresql://user:hunter2@127.0.0.1:1/none",
        "--store -",
        "--store hunter2",
        "--store sqlite:///x.db --prefix 'No Prefix'",
    ):
        err = shell(f"db check {arguments}", given="", code=2).err
        assert err.startswith("lockgate db: ") and "hunter2" not in err
    for driver in ("postgresql", "postgresql+asyncpg"):
        url = f"{driver}://user:hunter2@127.0.0.1:1/none"
        by_input = shell("db check --store -", given=url, code=3).err
        monkeypatch.setenv("LOCKGATE_STORE", url)
        for err in (by_input, shell("db check", code=3).err):
            assert "hunter2" not in err
            known = "The database refuses: no server answers there"
            assert known in err or driver != "postgresql"
    for action in ("upgrade", "current", "check"):
        for dialect in ("postgresql", "mysql"):
            away = f"{dialect}://user@127.0.0.1:1/none"
            assert "no server answers there" in shell(f"db {action} --store", away, code=3).err
    monkeypatch.delenv("LOCKGATE_STORE")
    assert "LOCKGATE_STORE" in shell("db check", code=2).err


def test_the_tables_of_a_pair_are_in_its_database(url: str, tmp_path: Path, shell: Shell) -> None:
    pair = f"{url} redis://127.0.0.1:1"
    shell("db check --store", pair, code=1)
    shell("db upgrade --store", pair)
    shell("db check --store", url)
    assert [file.name for file in tmp_path.iterdir()] == ["keys.db"]
    assert "No SQL store" in shell("db check --store", f"redis://127.0.0.1:1 {url}", code=2).err


@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "pair"])
def test_the_tables_are_those_of_the_services_gate(
    kind: str, bare: None, monkeypatch: pytest.MonkeyPatch, shell: Shell, service: Service
) -> None:
    """Named by the environment or by a file; a gate without tables is a mistake."""
    target = f"sqlite:///{service.folder}/keys.db"
    if kind == "postgresql":
        target = shared("postgresql").create(f"db_{token_hex(4)}")
    store = f"{target} redis://127.0.0.1:1" if kind == "pair" else target
    named = service.write(
        "from lockgate import Gate\n"
        "from lockgate.stores.sql import SqlStore\n"
        f"store = {store!r} if {kind == 'pair'} else SqlStore({store!r}, prefix='mine_')\n"
        "gate = Gate(store, brand='acme')\n"
        "memory = Gate(brand='acme')\n"
    )
    for name in ("LOCKGATE_STORE", "LOCKGATE_BRAND"):
        monkeypatch.delenv(name)
    if kind == "sqlite":
        (service.folder / "lockgate.toml").write_text(f'gate = "{named}:gate"\n')
    else:
        monkeypatch.setenv("LOCKGATE_GATE", f"{named}:gate")
    shell("db upgrade")
    newest = shell("db check").out
    prefix = "lockgate_" if kind == "pair" else "mine_"
    assert shell(f"db current --store {target} --prefix {prefix}").out == newest
    assert shell("db current --prefix other_").out == "none\n"
    assert "not in SQL" in shell(f"db check --gate {named}:memory", code=2).err
    shell(f"db check --gate {named}:gate --store sqlite:///x.db", code=2)
