"""Somebody else writes to the tables of a gate with peppers."""

from __future__ import annotations

import json

from sqlalchemy import update

from lockgate.rules.keys import ApiKey
from lockgate.stores.sql import SqlStore

from ..tampering import check_tampering
from .backends import Backend


def test_a_row_that_was_forged_or_changed_admits_nobody_k1(backend: Backend) -> None:
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
