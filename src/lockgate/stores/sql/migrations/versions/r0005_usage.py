"""Usage of keys beside the windows of their organization, so that an admission writes one row."""

from struct import Struct
from typing import Final

from alembic import op
from sqlalchemy import (
    BigInteger,
    Column,
    LargeBinary,
    bindparam,
    case,
    column,
    or_,
    select,
    table,
    update,
)

revision = "0005"
down_revision = "0004"

_USE: Final = Struct("<Bqq")
_AT_ONCE: Final = 1000


def upgrade() -> None:
    """Add the column."""
    op.add_column(f"{op.get_context().opts['prefix']}organizations", Column("used", LargeBinary))


def downgrade() -> None:
    """Move all usage to the rows of its keys, then drop the column."""
    prefix = op.get_context().opts["prefix"]
    _move(prefix)
    op.drop_column(f"{prefix}organizations", "used")


def _move(prefix: str) -> None:
    connection = op.get_bind()
    organizations = table(f"{prefix}organizations", column("id"), column("used"))
    keys = table(f"{prefix}keys", column("handle"), column("request_count"), column("last_used_at"))
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
