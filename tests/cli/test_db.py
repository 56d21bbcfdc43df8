"""``lockgate db``: the tables of a store in SQL."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from lockgate import open_store, run
from lockgate.cli import main
from lockgate.stores.sql.engines import blocking_engine
from lockgate.stores.sql.schema import RELEASE, downgrade
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
    assert capsys.readouterr().out.split() == ["none", *[RELEASE.newest] * 3]
    store = open_store(url)
    assert run(store.list("org_1", 100)) == []
    run(store.close())


def test_check_tells_an_older_revision_and_the_command(url: str, capsys: Said) -> None:
    assert main(["db", "upgrade", "--store", url, "--prefix", "keys_"]) == 0
    engine = blocking_engine(url)
    downgrade(engine, Tables("keys_"), "0001")
    engine.dispose()
    assert main(["db", "check", "--store", url, "--prefix", "keys_"]) == 1
    assert "lockgate db upgrade" in capsys.readouterr().err
    assert main(["db", "check", "--store", url]) == 1


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


def test_a_file_that_cannot_be_made_is_told_with_what_to_do(tmp_path: Path, capsys: Said) -> None:
    assert main(["db", "upgrade", "--store", f"sqlite:///{tmp_path}/nowhere/keys.db"]) == 2
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
def test_what_was_asked_wrongly_is_told(
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
    assert main(["db", "check", *(["--store", "-"] if way == "stdin" else [])]) == 2
    said = capsys.readouterr().err
    assert "The database refuses: no server answers there" in said or driver != "postgresql"
    assert "hunter2" not in said


def test_without_a_store_it_says_how_to_name_one(
    capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LOCKGATE_STORE", raising=False)
    assert main(["db", "check"]) == 2
    assert "LOCKGATE_STORE" in capsys.readouterr().err


def test_the_tables_of_a_pair_are_those_of_its_database(
    url: str, tmp_path: Path, capsys: Said
) -> None:
    pair = f"{url} redis://127.0.0.1:1"
    assert main(["db", "check", "--store", pair]) == 1
    assert main(["db", "upgrade", "--store", pair]) == 0
    assert main(["db", "check", "--store", url]) == 0
    assert [file.name for file in tmp_path.iterdir()] == ["keys.db"]
    assert main(["db", "check", "--store", f"redis://127.0.0.1:1 {url}"]) == 2
    assert "No SQL store" in capsys.readouterr().err
