"""The file of SQLite: its mode, its path, and what happens when it is deleted or replaced."""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.exc import OperationalError

from lockgate import ConfigurationError, Gate, migrations, run
from lockgate.cli import main
from lockgate.errors import StoreUnavailable
from lockgate.stores.answers import StoreError
from lockgate.stores.sql import OutdatedSchema, SqlStore
from lockgate.stores.sql.opened_file import OpenedFile, ReplacedFile
from tests.patience import until

from ..failing import store_fails
from ..making import BOOK, draft_of, new_key, token_of

pytestmark = pytest.mark.skipif(
    os.name != "posix", reason="modes are POSIX's, and Windows deletes no open file"
)


@pytest.fixture(autouse=True)
def _open_umask() -> object:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


@pytest.mark.parametrize("url", ["sqlite:///{}?mode=rwc", "sqlite:///file:{}?uri=true&mode=rwc"])
def test_a_file_is_created_for_its_user_alone_and_so_are_those_beside_it(
    url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, made = tmp_path / "keys.db", new_key()
    store = SqlStore(url.format(file))
    assert not file.exists(), "nothing is made before the first call"
    run(store.insert(draft_of(made), None))
    run(store.admit(token_of(made), 1, BOOK))
    there = sorted(entry.name for entry in tmp_path.iterdir())
    assert there == ["keys.db", "keys.db-shm", "keys.db-wal"]
    assert {mode(entry) for entry in tmp_path.iterdir()} == {0o600}
    run(store.close())
    (line,) = caplog.records
    # A mistyped path in production looks the same as a new path.
    assert line.levelno == logging.WARNING
    assert str(file) in line.getMessage() and "no key is known there yet" in line.getMessage()
    caplog.clear()
    again = SqlStore(url.format(file))
    run(again.admit(token_of(made), 1, BOOK))
    run(again.close())
    assert caplog.records == []


@pytest.mark.parametrize("wide", [0o644, 0o640, 0o606])
def test_a_file_that_others_can_open_keeps_its_mode_and_logs_a_warning(
    wide: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "keys.db"
    sqlite3.connect(file).close()
    file.touch()
    file.chmod(wide)
    store = SqlStore(f"sqlite:///{file}?mode=rwc")
    (line,) = caplog.records
    assert line.levelno == logging.WARNING
    assert f"{wide:04o}" in line.getMessage() and "chmod 600" in line.getMessage()
    run(store.insert(draft_of(new_key()), None))
    run(store.close())
    assert mode(file) == wide


@pytest.mark.parametrize(
    "url", ["sqlite:///{}/nowhere/keys.db?mode=rwc", "sqlite:///file:{}/keys.db?mode=ro&uri=true"]
)
def test_no_file_is_created_in_a_missing_folder_or_by_a_read_only_mode(
    url: str, tmp_path: Path
) -> None:
    store = SqlStore(url.format(tmp_path))
    with store_fails(OperationalError, "unable to open database file"):
        run(store.insert(draft_of(new_key()), None))
    assert list(tmp_path.iterdir()) == []
    run(store.close())


def test_an_existing_file_is_not_opened_again_to_set_its_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By POSIX, closing a file releases the locks that the process has on it by another way."""
    store = SqlStore(f"sqlite:///{tmp_path}/keys.db?mode=rwc")
    run(store.insert(draft_of(new_key()), None))
    closed: list[int] = []
    monkeypatch.setattr(os, "close", closed.append)
    for _ in range(3):
        run(SqlStore(f"sqlite:///{tmp_path}/keys.db?mode=rwc").now())
        run(SqlStore(f"sqlite:///{tmp_path}/keys.db?mode=rwc").census())
    monkeypatch.undo()
    assert closed == []
    run(store.close())


@pytest.mark.parametrize(
    "url", ["sqlite:///{}", "sqlite:///{}?mode=rw", "sqlite:///file:{}?uri=true"]
)
def test_a_mistyped_path_is_an_error_at_the_start_and_creates_no_file(
    url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Else every key would be unknown there, in silence."""
    file = tmp_path / "kyes.db"
    gate = Gate(url.format(file), brand="acme", peppers=[b"a pepper of the tests, long"])
    with pytest.raises(ConfigurationError, match="check the path"):
        run(gate.ready())
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            run(gate.keys.create("org_1", "a"))
    assert list(tmp_path.iterdir()) == []
    lines = [r.getMessage() for r in caplog.records if "There is no SQLite file" in r.getMessage()]
    assert len(lines) == 1
    assert str(file) in lines[0] and "lockgate db upgrade" in lines[0] and "?mode=rwc" in lines[0]
    assert main(["db", "upgrade", "--store", url.format(file)]) == 0
    assert mode(file) == 0o600
    run(gate.ready())
    run(gate.close())
    file.unlink()
    with pytest.raises(OutdatedSchema, match="check the path"):
        run(SqlStore(url.format(file)).now())
    assert not file.exists(), "one that is removed is not created anew"


def test_tables_are_not_put_into_a_database_of_another_application(tmp_path: Path) -> None:
    file = tmp_path / "other.db"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE theirs (id)")
    file.chmod(0o600)
    with pytest.raises(OutdatedSchema, match="are missing"):
        run(SqlStore(f"sqlite:///{file}").now())
    with sqlite3.connect(file) as connection:
        names = connection.execute("SELECT name FROM sqlite_master").fetchall()
    assert names == [("theirs",)]


def delete(file: Path) -> None:
    file.unlink()


def replace(file: Path) -> None:
    """Put a backup in its place, as of the moment before the key was made."""
    os.replace(file.with_name("backup.db"), file)


def rename(file: Path) -> None:
    file.rename(file.with_name("other.db"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "keys.db"
    migrations.upgrade(f"sqlite:///{path}")
    shutil.copy(path, tmp_path / "backup.db")
    return path


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [r for r in caplog.records if "while this process had it open" in r.getMessage()]
    assert {record.levelno for record in found} <= {logging.ERROR}
    return [record.getMessage() for record in found]


@pytest.mark.parametrize("change", [delete, replace, rename])
@pytest.mark.parametrize("of_host", [False, True])
def test_changes_fail_at_once_and_admissions_within_a_second(
    change: Callable[[Path], None], of_host: bool, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What they write would be lost with the process, in silence."""
    engine, made = create_engine(f"sqlite:///{file}"), new_key()
    store = SqlStore(engine if of_host else f"sqlite:///{file}")
    run(store.insert(draft_of(made), None))
    run(store.admit(token_of(made), 1, BOOK))
    change(file)
    with pytest.raises(ReplacedFile):
        run(store.insert(draft_of(new_key()), None))

    def fails() -> bool:
        try:
            run(store.admit(token_of(made), 1, BOOK))
        except StoreError:
            return True
        return False

    until(fails)
    (line,) = lines(caplog)
    assert str(file) in line and "Stop every process" in line
    assert "delete the files -wal and -shm" in line, "SQLite would replay them into a backup"
    assert ("was replaced" in line) is (change is replace)
    run(store.close())
    engine.dispose()


def test_calls_succeed_again_when_the_file_is_moved_back(file: Path) -> None:
    store, made = SqlStore(f"sqlite:///{file}"), new_key()
    run(store.insert(draft_of(made), None))
    rename(file)
    with pytest.raises(ReplacedFile):
        run(store.find(token_of(made).handle))
    file.with_name("other.db").rename(file)
    assert run(store.find(token_of(made).handle)) is not None
    run(store.close())


def test_a_closed_store_opens_the_file_that_is_there(file: Path) -> None:
    store, made = SqlStore(f"sqlite:///{file}"), new_key()
    run(store.insert(draft_of(made), None))
    run(store.close())
    replace(file)
    assert run(store.find(token_of(made).handle)) is None
    run(store.close())


def test_a_relative_path_is_that_of_the_first_working_directory(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent)
    store = SqlStore(f"sqlite:///{file.name}")
    run(store.now())
    monkeypatch.chdir("/")
    run(store.now())
    run(store.close())


def test_a_path_that_is_no_regular_file_is_not_compared(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for path in (folder, tmp_path / "nothing"):
        opened = OpenedFile(path)
        opened.remember()
        folder.rmdir()
        opened.check()
        folder.mkdir()


def test_a_file_is_not_taken_for_replaced_while_another_thread_closes_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "keys.db"
    path.touch()
    file = OpenedFile(path)
    file.remember()
    read = os.stat

    def closed_meanwhile(*args: Any, **options: Any) -> os.stat_result:
        file.forget()
        return read(*args, **options)

    monkeypatch.setattr("lockgate.stores.sql.opened_file.os.stat", closed_meanwhile)
    file.check()
