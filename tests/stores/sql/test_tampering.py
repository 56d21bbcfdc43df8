"""An attacker writes to the tables of a gate with peppers."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from flask import Flask
from sqlalchemy import update

from lockgate.core.api_keys import ApiKey
from lockgate.flask import protect
from lockgate.stores.sql import SqlStore
from tests.web.driving import Bench

from ..tampering import check_tampering
from .backends import Backend


def test_k1_a_forged_or_changed_row_admits_no_key(backend: Backend) -> None:
    store = backend.open()
    keys = store.tables.keys

    def write(before: ApiKey, after: ApiKey) -> None:
        row = {name: getattr(after, name) for name in ("handle", "scheme", "digest", "seal")}
        row |= {"organization": after.organization.encode(), "expires_at": after.expires_at}
        row |= {"scopes": json.dumps(after.scopes)}
        with backend.admin.begin() as connection:
            changed = connection.execute(
                update(keys).where(keys.c.handle == before.handle).values(row)
            )
            assert changed.rowcount == 1

    again = SqlStore(
        backend.admin.url.render_as_string(hide_password=False), prefix=store.tables.prefix
    )
    check_tampering(store, write, again)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("created_at", "abc"),
        ("created_at", 2**62),
        ("created_at", b"\xff"),
        ("last_used_at", 2**62),
        ("name", b"\xff"),
        ("revoked_at", "x"),
        ("expires_at", 2**62),
    ],
)
def test_a_row_that_cannot_be_shown_is_503_and_named(
    column: str, value: object, tmp_path: Path
) -> None:
    """SQLite keeps values of any type in any column."""
    bench = Bench(
        store=f"sqlite:///{tmp_path}/keys.db?mode=rwc", peppers=[b"a pepper of the tests, long"]
    )
    bench.key()
    app = Flask("service")
    protect(app, bench.gate)
    with closing(sqlite3.connect(tmp_path / "keys.db")) as database, database:
        database.execute(f"update lockgate_keys set {column} = ?", (value,))
        ((id,),) = database.execute("select id from lockgate_keys")
    client = app.test_client(use_cookies=False)
    session = {"Cookie": f"__session={bench.session()}"}
    for path in ("/api/v1/api-keys", f"/api/v1/api-keys/{id}"):
        bench.told.clear()
        answer = client.get(path, headers=session)
        assert (answer.status_code, (answer.json or {})["code"]) == (503, "STORE_UNAVAILABLE")
        (event,) = [event for event in bench.told if event.name == "key_row_unreadable"]
        assert event.fields["id"] == id
