"""``lockgate db``: the tables of a store in SQL."""

from __future__ import annotations

import io
import sqlite3
from pathlib import Path
from secrets import token_hex

import pytest

from lockgate import Gate, open_store, run
from lockgate.cli import main
from lockgate.stores.sql import schema
from lockgate.stores.sql.engines import blocking_engine
from lockgate.stores.sql.schema import RELEASE
from tests.servers import shared

Said = pytest.CaptureFixture[str]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/keys.db"


def test_upgrade_makes_the_tables_and_check_is_content(url: str, capsys: Said) -> None:
    assert main(["db", "current", "--store", url]) == 0
    assert main(["db", "upgrade", "--store", url]) == 0
    assert main(["db", "upgrade", "--store", url]) == 0
    assert main(["db", "check", "--store", url]) == 0
    assert capsys.readouterr().out.split() == ["none", *[RELEASE.newest] * 3]
    store = open_store(url)
    assert run(store.list("org_1", 100)) == []
    run(store.close())


def test_check_names_an_older_revision_and_the_command(
    url: str, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["db", "upgrade", "--store", url, "--prefix", "keys_"]) == 0
    monkeypatch.setattr(schema, "RELEASE", schema.RevisionRange("0002", "0002"))
    assert main(["db", "check", "--store", url, "--prefix", "keys_"]) == 1
    assert "lockgate db upgrade" in capsys.readouterr().err
    assert main(["db", "check", "--store", url]) == 1


@pytest.mark.parametrize(
    ("change", "gone"),
    [
        ("ALTER TABLE lockgate_keys RENAME TO other", "lockgate_keys"),
        ("ALTER TABLE lockgate_organizations RENAME used TO spent", "lockgate_organizations.used"),
    ],
)
def test_a_check_names_a_table_or_column_that_is_gone(
    change: str, gone: str, url: str, tmp_path: Path, capsys: Said
) -> None:
    assert main(["db", "upgrade", "--store", url]) == 0
    assert main(["db", "check", "--store", url]) == 0
    with sqlite3.connect(tmp_path / "keys.db") as database:
        database.execute(change)
    assert main(["db", "check", "--store", url]) == 1
    assert f"there must be {gone}: they were dropped or renamed" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mysql"])
def test_a_revision_that_was_changed_by_hand_fails_with_the_remedy(
    kind: str, tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later upgrades would take the tables for newer ones, and leave them unchanged in silence."""
    url = f"sqlite:///{tmp_path}/keys.db"
    if kind != "sqlite":
        url = shared(kind).create(f"renumbered_{token_hex(4)}")
    monkeypatch.setenv("LOCKGATE_STORE", url)
    assert main(["db", "upgrade"]) == 0
    engine = blocking_engine(url)

    def execute(statement: str) -> None:
        with engine.begin() as connection:
            connection.exec_driver_sql(statement)

    execute("UPDATE lockgate_version SET version_num = '0099'")
    capsys.readouterr()
    for action, code in (("check", 1), ("upgrade", 1), ("current", 0)):
        assert main(["db", action]) == code
        said = capsys.readouterr()
        assert said.out == "0099\n"
        assert "revision 0099, which this release does not know" in said.err
        assert f"(of this release: '{RELEASE.newest}')" in said.err
    assert main(["db", "check", "--json"]) == 1
    assert '"works": false' in capsys.readouterr().out
    execute("ALTER TABLE lockgate_keys ADD COLUMN later VARCHAR(20)")  # As a later release would.
    assert main(["db", "check"]) == 0
    execute("DROP TABLE lockgate_limits")
    assert main(["db", "check"]) == 1
    assert "lack lockgate_limits" in capsys.readouterr().err
    engine.dispose()


def test_doctor_and_the_log_name_a_revision_that_was_changed_by_hand(
    url: str,
    tmp_path: Path,
    capsys: Said,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LOCKGATE_BRAND", "acme")
    assert main(["db", "upgrade", "--store", url]) == 0
    with sqlite3.connect(tmp_path / "keys.db") as database:
        database.execute("UPDATE lockgate_version SET version_num = '0099'")
    gate = Gate(url, brand="acme")
    run(gate.ready())
    run(gate.close())
    (line,) = [record for record in caplog.records if "0099" in record.getMessage()]
    assert line.levelname == "WARNING"
    capsys.readouterr()
    assert main(["doctor", "--store", url]) == 1
    assert "problem  tables" in capsys.readouterr().out


@pytest.mark.parametrize(("action", "code"), [("current", 0), ("check", 1)])
@pytest.mark.parametrize("form", ["sqlite:///{}/keys.db", "sqlite:///file:{}/keys.db?uri=true"])
def test_looking_makes_no_file(
    action: str, code: int, form: str, tmp_path: Path, capsys: Said
) -> None:
    url = form.format(tmp_path)
    assert main(["db", action, "--store", url]) == code
    assert list(tmp_path.iterdir()) == []
    said = capsys.readouterr()
    assert said.out == "none\n"
    assert "no such file" in said.err
    assert "lockgate db upgrade" in said.err
    assert main(["db", "upgrade", "--store", url]) == 0
    assert main(["db", "check", "--store", url]) == 0


def test_a_file_that_cannot_be_created_is_an_error_with_the_remedy(
    tmp_path: Path, capsys: Said
) -> None:
    assert main(["db", "upgrade", "--store", f"sqlite:///{tmp_path}/nowhere/keys.db"]) == 3
    assert "see that the folder is there" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--store", "memory://"],
        ["--store", "postgresql://user:hunter2@127.0.0.1:1/none"],
        ["--store", "-"],
        ["--store", "hunter2"],
        ["--store", "sqlite:///x.db", "--prefix", "No Prefix"],
    ],
    ids=["memory", "password", "nothing to read", "text", "prefix"],
)
def test_wrong_arguments_are_an_error_without_the_password(
    arguments: list[str], capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert main(["db", "check", *arguments]) == 2
    said = capsys.readouterr().err
    assert said.startswith("lockgate db: ")
    assert "hunter2" not in said


@pytest.mark.parametrize("driver", ["postgresql", "postgresql+asyncpg"])
@pytest.mark.parametrize("way", ["environment", "stdin"])
def test_a_password_comes_by_the_environment_or_standard_input_and_is_not_repeated(
    driver: str, way: str, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{driver}://user:hunter2@127.0.0.1:1/none"
    monkeypatch.setenv("LOCKGATE_STORE", url if way == "environment" else "memory://")
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{url}\n"))
    assert main(["db", "check", *(["--store", "-"] if way == "stdin" else [])]) == 3
    said = capsys.readouterr().err
    assert "The database refuses: no server answers there" in said or driver != "postgresql"
    assert "hunter2" not in said


def test_without_a_store_the_message_names_the_ways_to_give_one(
    capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LOCKGATE_STORE", raising=False)
    assert main(["db", "check"]) == 2
    assert "LOCKGATE_STORE" in capsys.readouterr().err


def test_the_tables_of_a_pair_are_in_its_database(url: str, tmp_path: Path, capsys: Said) -> None:
    pair = f"{url} redis://127.0.0.1:1"
    assert main(["db", "check", "--store", pair]) == 1
    assert main(["db", "upgrade", "--store", pair]) == 0
    assert main(["db", "check", "--store", url]) == 0
    assert [file.name for file in tmp_path.iterdir()] == ["keys.db"]
    assert main(["db", "check", "--store", f"redis://127.0.0.1:1 {url}"]) == 2
    assert "No SQL store" in capsys.readouterr().err


@pytest.mark.parametrize("action", ["upgrade", "current", "check"])
@pytest.mark.parametrize("dialect", ["postgresql", "mysql"])
def test_a_database_that_does_not_answer_is_exit_code_3(
    action: str, dialect: str, capsys: Said
) -> None:
    assert main(["db", action, "--store", f"{dialect}://user@127.0.0.1:1/none"]) == 3
    assert "no server answers there" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "pair"])
@pytest.mark.parametrize("by", ["environment", "file"])
def test_the_tables_are_those_of_the_services_gate(
    kind: str, by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    module = f"service_{token_hex(4)}"  # Python loads a module of a name once.
    target = f"sqlite:///{tmp_path}/keys.db"
    if kind == "postgresql":
        target = shared("postgresql").create(f"db_{token_hex(4)}")
    store = f"{target} redis://127.0.0.1:1" if kind == "pair" else target
    (tmp_path / f"{module}.py").write_text(
        "from lockgate import Gate\n"
        "from lockgate.stores.sql import SqlStore\n"
        f"store = {store!r} if {kind == 'pair'} else SqlStore({store!r}, prefix='mine_')\n"
        "gate = Gate(store, brand='acme')\n"
    )
    monkeypatch.chdir(tmp_path)
    for name in ("LOCKGATE_STORE", "LOCKGATE_GATE", "LOCKGATE_BRAND"):
        monkeypatch.delenv(name, raising=False)
    if by == "environment":
        monkeypatch.setenv("LOCKGATE_GATE", f"{module}:gate")
    else:
        (tmp_path / "lockgate.toml").write_text(f'gate = "{module}:gate"\n')
    assert main(["db", "upgrade"]) == 0
    assert main(["db", "check"]) == 0
    newest = capsys.readouterr().out.split()[-1]
    prefix = "lockgate_" if kind == "pair" else "mine_"
    assert main(["db", "current", "--store", target, "--prefix", prefix]) == 0
    assert capsys.readouterr().out.strip() == newest
    assert main(["db", "current", "--prefix", "other_"]) == 0
    assert capsys.readouterr().out.strip() == "none"


def test_a_gate_without_tables_is_a_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    module = f"service_{token_hex(4)}"
    (tmp_path / f"{module}.py").write_text("from lockgate import Gate\ngate = Gate(brand='acme')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOCKGATE_GATE", f"{module}:gate")
    assert main(["db", "check"]) == 2
    assert "not in SQL" in capsys.readouterr().err
    assert main(["db", "check", "--gate", f"{module}:gate", "--store", "sqlite:///x.db"]) == 2
