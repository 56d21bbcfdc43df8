"""Usage of keys beside the windows of their organization, so that an admission writes one row."""

from struct import Struct
from typing import Final

from alembic import op
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    LargeBinary,
    bindparam,
    case,
    column,
    inspect,
    or_,
    select,
    table,
    update,
)

from lockgate.stores.sql.migrations.steps import add_column, drop_column, name_of

revision = "0005"
down_revision = "0004"

_USE: Final = Struct("<Bqq")
_AT_ONCE: Final = 1000


def upgrade() -> None:
    """Add the column."""
    add_column(name_of("organizations"), Column("used", LargeBinary))


def downgrade() -> None:
    """Move all usage to the rows of its keys, then drop the column."""
    connection = op.get_bind()
    name = name_of("organizations")
    if "used" in {found["name"] for found in inspect(connection).get_columns(name)}:
        _move(connection, name)
        drop_column(name, "used")


def _move(connection: Connection, name: str) -> None:
    organizations = table(name, column("id"), column("used"))
    keys = table(name_of("keys"), column("handle"), column("request_count"), column("last_used_at"))
    some = (
        select(organizations.c.id, organizations.c.used)
        .where(organizations.c.used.is_not(None))
        .limit(_AT_ONCE)
    )
    done = update(organizations).where(organizations.c.id == bindparam("owner")).values(used=None)
    count, last, at = keys.c.request_count, keys.c.last_used_at, bindparam("at", type_=BigInteger)
    add = (
        update(keys)
        .where(keys.c.handle == bindparam("key"))
        .values(
            request_count=count + bindparam("requests"),
            last_used_at=case((or_(last.is_(None), last < at), at), else_=last),
        )
    )
    while rows := connection.execute(some).all():
        uses = [use for _, used in rows for use in _uses(bytes(used))]
        connection.execute(add, uses)
        connection.execute(done, [{"owner": owner} for owner, _ in rows])


def _uses(value: bytes) -> list[dict[str, object]]:
    uses: list[dict[str, object]] = []
    at = 0
    while at < len(value):
        length, requests, last = _USE.unpack_from(value, at)
        at += _USE.size + length
        handle = value[at - length : at].decode("ascii")
        uses.append({"key": handle, "requests": requests, "at": last})
    return uses
