"""Keys by when they end, so that no list or count walks the ended ones; handles of removed keys."""

from alembic import op
from sqlalchemy import BigInteger, Column, TextClause, case, column, func, or_, table, text, update

from lockgate.stores.sql.migrations.steps import (
    add_column,
    create_index,
    create_table,
    drop_column,
    drop_index,
    drop_table,
    name_of,
)
from lockgate.stores.sql.tables import ascii_text

revision = "0007"
down_revision = "0006"

_NEVER = 2**53 - 1


def upgrade() -> None:
    """Add the column and fill it, replace the index of lists, add the table."""
    name = name_of("keys")
    ends_at = Column("ends_at", BigInteger, nullable=False, server_default=str(_NEVER))
    add_column(name, ends_at)
    keys = table(name, column("expires_at"), column("revoked_at"), column("ends_at"))
    expires, revoked = keys.c.expires_at, keys.c.revoked_at
    first = case((func.coalesce(expires, _NEVER) < revoked, expires), else_=revoked)
    ended = update(keys).where(or_(expires.is_not(None), revoked.is_not(None)))
    op.execute(ended.values(ends_at=func.coalesce(first, expires)))
    newest: list[str | TextClause] = ["organization", text("created_at DESC"), "id"]
    create_index(f"ix_{name}_newest", name, newest)
    create_index(f"ix_{name}_live", name, ["organization", "ends_at", "id"])
    finite = text(f"ends_at < {_NEVER}")
    create_index(
        f"ix_{name}_ends_at", name, ["ends_at"], postgresql_where=finite, sqlite_where=finite
    )
    drop_index(f"ix_{name}_organization_created_at", name)
    create_table(name_of("removed_handles"), Column("handle", ascii_text(64), primary_key=True))


def downgrade() -> None:
    """Forget which handles were removed, and when keys end."""
    name = name_of("keys")
    drop_table(name_of("removed_handles"))
    create_index(f"ix_{name}_organization_created_at", name, ["organization", "created_at"])
    for index in ("newest", "live", "ends_at"):
        drop_index(f"ix_{name}_{index}", name)
    drop_column(name, "ends_at")
