"""A file of SQLite that is deleted or replaced under a process that has it open."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine

from lockgate import migrations, run
from lockgate.stores.answers import StoreError
from lockgate.stores.sql import SqlStore
from lockgate.stores.sql.opened_file import OpenedFile, ReplacedFile
from tests.patience import until

from ..making import BOOK, draft_of, new_key, token_of

pytestmark = pytest.mark.skipif(os.name != "posix", reason="Windows deletes no open file")


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
