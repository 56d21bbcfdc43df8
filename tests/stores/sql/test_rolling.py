"""A rolling upgrade and a rollback: processes of two releases work with one database."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from threading import Event
from time import sleep
from typing import Self

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from lockgate import Gate, run
from lockgate.cli import main
from lockgate.errors import StoreUnavailable
from lockgate.options import StoreOptions
from lockgate.stores.sql import SqlStore, schema
from lockgate.stores.sql.schema import Revision, RevisionRange
from lockgate.stores.sql.tables import Tables

from ..making import BOOK, NOW, at_once, draft_of, new_key, token_of
from .backends import Backend
from .next_release import EXPANDED, NEXT, scripts

WORKER = """
import json, sys
from lockgate import Gate, run
from lockgate.cli import main
from lockgate.options import StoreOptions
from lockgate.stores.sql import SqlStore, engines, schema

url, prefix, organization, *release = sys.argv[1:]
engines._SECONDS = 30  # A busy machine takes long to change a table.
schema.RELEASE = schema.RevisionRange(*release)
store = SqlStore(url, prefix=prefix)
gate = Gate(store, brand="acme", store_options=StoreOptions(deadline=60))
text = sys.stdin.readline().strip()
for line in sys.stdin:
    for number in range(int(line)):
        assert run(gate.authenticate(text)).organization == organization
        made = run(gate.keys.create(organization, f"key {number}"))
        assert run(gate.keys.update(organization, made.key.id, name="another")).name == "another"
        assert run(gate.keys.revoke(organization, made.key.id)).revoked_at
    print(json.dumps("done"), flush=True)
run(gate.close())
"""


class Worker:
    """A process of a release that admits, creates and revokes keys."""

    def __init__(self, arguments: list[str], key: str, release: RevisionRange) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", WORKER, *arguments, *release],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._say(key)

    def start(self, calls: int) -> None:
        self._say(str(calls))

    def finish(self) -> None:
        """Wait until all calls of the last start have succeeded."""
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == '"done"\n'

    def close(self) -> None:
        """Let it end, after the calls that it has begun."""
        self._process.communicate()

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        print(line, file=self._process.stdin, flush=True)


class Workers:
    """Processes of several releases that call at the same time."""

    def __init__(self, arguments: list[str], key: str) -> None:
        self._arguments = arguments
        self._key = key
        self._begun = ExitStack()
        self._workers: list[Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._begun.close()

    def begin(self, *releases: RevisionRange) -> None:
        """Start one more process of each release."""
        for release in releases:
            worker = Worker(self._arguments, self._key, release)
            self._begun.callback(worker.close)
            self._workers.append(worker)

    def work(self, calls: int, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Let each process call, and wait until all calls have succeeded."""
        for worker in self._workers:
            worker.start(calls)
        meanwhile()
        for worker in self._workers:
            worker.finish()


def test_two_releases_work_side_by_side_while_the_tables_move_forward_and_back(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each call of each process succeeds, and every admission is counted."""
    tables = Tables("rolling_")
    schema.upgrade(backend.admin, tables)
    gate = Gate(
        SqlStore(backend.url, prefix="rolling_"),
        brand="acme",
        store_options=StoreOptions(deadline=60),
    )
    no_limits = {"rpm": None, "rph": None, "rpd": None, "concurrent": None}
    run(gate.organizations.place("org_1", "enterprise", **no_limits))
    created = run(gate.keys.create("org_1", "a key"))
    this = schema.RELEASE
    monkeypatch.setattr(schema, "SCRIPTS", scripts(tmp_path))
    monkeypatch.setattr(schema, "RELEASE", NEXT)
    with Workers([backend.url, "rolling_", "org_1"], created.text) as workers:
        workers.begin(this, NEXT)
        workers.work(3)
        workers.work(10, lambda: schema.upgrade(backend.admin, tables))
        with backend.admin.connect() as connection:
            assert schema.current(connection, tables) == EXPANDED
        # A rollback of the release, and more of the new one.
        workers.begin(this, NEXT)
        workers.work(10, lambda: schema.downgrade(backend.admin, tables, this.newest))
        workers.work(3)
    key = run(gate.keys.get("org_1", created.key.id))
    assert key.request_count == 2 * (3 + 10) + 4 * (10 + 3)
    run(gate.close())
    schema.downgrade(backend.admin, tables, "base")


@contextmanager
def reading_transaction(backend: Backend, *tables: str) -> Iterator[Connection]:
    """A transaction that has read tables, as a backup does."""
    with backend.admin.connect() as reader:
        for table in tables:
            reader.execute(text(f"SELECT count(*) FROM {table}"))
        yield reader


def test_a_migration_lets_requests_pass_while_a_long_transaction_reads_the_tables(
    served: Backend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also requests that need a table which the migration has changed already."""
    tables = Tables("patient_")
    schema.upgrade(served.admin, tables)
    monkeypatch.setattr(schema, "SCRIPTS", scripts(tmp_path))
    gate = Gate(
        SqlStore(served.url, prefix="patient_"),
        brand="acme",
        store_options=StoreOptions(deadline=60),
    )
    created = run(gate.keys.create("org_1", "a key"))
    let_through = Event()

    def pause(seconds: float) -> None:
        let_through.set()
        sleep(seconds)

    monkeypatch.setattr(schema, "sleep", pause)
    with ThreadPoolExecutor(1) as threads:
        with reading_transaction(served, "patient_keys"):
            moved = threads.submit(schema.upgrade, served.admin, tables)
            assert let_through.wait(60)
            assert run(gate.authenticate(created.text)).organization == "org_1"
            assert not moved.done()
        moved.result(60)
    assert run(gate.authenticate(created.text)).organization == "org_1"
    with served.admin.connect() as connection:
        assert schema.current(connection, tables) == EXPANDED
    run(gate.close())
    monkeypatch.setattr(schema, "RELEASE", NEXT)
    schema.downgrade(served.admin, tables, "base")


def test_a_migration_names_the_long_transaction_that_keeps_it_waiting(
    served: Backend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tables = Tables("waiting_")
    schema.upgrade(served.admin, tables)
    with reading_transaction(served, "waiting_keys"), monkeypatch.context() as patched:
        patched.setattr(schema, "SCHEMA_PATIENCE", 0)
        patched.setattr(schema, "SCRIPTS", scripts(tmp_path))
        with pytest.raises(TimeoutError, match=r"a long transaction, such as a backup, reads them"):
            schema.upgrade(served.admin, tables)
    schema.downgrade(served.admin, tables, "base")


def test_each_revision_declares_a_release_that_the_one_before_it_satisfies() -> None:
    """Contract a release later: no column is dropped that the previous release still reads."""
    config = Config()
    config.set_main_option("script_location", schema.SCRIPTS)
    config.set_main_option("path_separator", "os")
    found = list(ScriptDirectory.from_config(config).walk_revisions())
    declared = [script.module.oldest_reader for script in found]
    assert found[0].revision == schema.RELEASE.newest, "the newest first"
    assert declared == sorted(declared, reverse=True)
    assert declared[0] <= schema.RELEASE.oldest
    assert all(len(script.revision) == 4 for script in found)


@pytest.mark.parametrize(
    ("found", "is_accepted"),
    [
        (None, False),
        (Revision("0008", "0008"), False),
        (Revision("0009", "0009"), True),
        (Revision("0010", "0009"), True),
        (Revision("0011", "0010"), True),
        (Revision("0011", "0011"), False),
        (Revision("0010", "0011"), False),  # An upgrade was killed after it had declared this.
    ],
)
def test_the_revisions_that_a_release_accepts(found: Revision | None, is_accepted: bool) -> None:
    assert RevisionRange("0009", "0010").accepts(found) is is_accepted


@contextmanager
def next_release(backend: Backend, tables: Tables, oldest_reader: str) -> Iterator[None]:
    """The tables as a later release left them."""
    schema.upgrade(backend.admin, tables)
    version = f"UPDATE {tables.version} SET version_num = :number, oldest_reader = :oldest"
    added = f"ALTER TABLE {tables.prefix}keys ADD COLUMN later VARCHAR(20) DEFAULT 'x'"
    newest = schema.RELEASE.newest
    with backend.admin.begin() as connection:
        connection.execute(text(added))
        connection.execute(text(version), {"number": "0099", "oldest": oldest_reader})
    try:
        yield
    finally:
        with backend.admin.begin() as connection:
            connection.execute(text(version), {"number": newest, "oldest": newest})
        schema.downgrade(backend.admin, tables, "base")


def test_tables_of_a_later_release_are_left_alone_and_those_it_contracted_name_the_remedy(
    backend: Backend, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line, however many requests meet them, in however many threads."""
    tables = Tables("later_")
    with next_release(backend, tables, schema.RELEASE.newest):
        schema.upgrade(backend.admin, tables)
        with backend.admin.connect() as connection:
            assert schema.current(connection, tables) == Revision("0099", schema.RELEASE.newest)
    with next_release(backend, tables, "0099"):
        patient = StoreOptions(deadline=60)
        store = SqlStore(backend.url, prefix="later_")
        gate = Gate(store, brand="acme", store_options=patient)
        created = new_key()

        def admit(_: int) -> None:
            for _ in range(5):
                with pytest.raises(StoreUnavailable):
                    run(gate.authenticate(created.text))

        with caplog.at_level(logging.DEBUG, "lockgate"):
            at_once(4, admit)
        (line,) = [one for one in caplog.messages if one.startswith("The tables of lockgate")]
        assert line == (
            "The tables of lockgate are at revision 0099, for releases of revision 0099 and later, "
            f"and this version works with {' to '.join(schema.RELEASE)}: install the version of "
            "lockgate that made them, or a later one."
        )
        run(gate.close())
        for migrate in (schema.upgrade, partial(schema.downgrade, revision="base")):
            with pytest.raises(schema.OutdatedSchema, match=r"revision 0099.*install"):
                migrate(backend.admin, tables)
        assert main(["db", "upgrade", "--store", backend.url, "--prefix", "later_"]) == 1
        assert "install the version of lockgate" in capsys.readouterr().err


def test_a_running_process_whose_tables_are_contracted_logs_the_remedy(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    tables = Tables("running_")
    schema.upgrade(backend.admin, tables)
    store = SqlStore(backend.url, prefix="running_")
    made = new_key()
    run(store.insert(draft_of(made), None, NOW))
    run(store.admit(token_of(made), 1, BOOK, NOW))
    with next_release(backend, tables, "0099"):
        with backend.admin.begin() as connection:
            connection.execute(text("ALTER TABLE running_keys RENAME COLUMN seal TO closed"))
        with caplog.at_level(logging.ERROR, "lockgate"):
            for _ in range(3):
                with pytest.raises(Exception):  # noqa: B017, PT011 - the database's own, then ours
                    run(store.admit(token_of(made), 1, BOOK, NOW))
            with pytest.raises(schema.OutdatedSchema):
                run(store.admit(token_of(made), 1, BOOK, NOW))
        with backend.admin.begin() as connection:
            connection.execute(text("ALTER TABLE running_keys RENAME COLUMN closed TO seal"))
    assert sum("install the version" in record.getMessage() for record in caplog.records) == 1
    run(store.close())
