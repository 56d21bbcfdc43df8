"""Keys by when they end, so that no list or count walks the ended ones; handles of removed keys."""

from alembic import op
from sqlalchemy import BigInteger, Column, TextClause, case, column, func, or_, table, text, update

from lockgate.stores.sql.tables import OPTIONS, ascii_text

revision = "0007"
down_revision = "0006"

_NEVER = 2**53 - 1


def upgrade() -> None:
    """Add the column and fill it, replace the index of lists, add the table."""
    prefix = op.get_context().opts["prefix"]
    name = f"{prefix}keys"
    ends_at = Column("ends_at", BigInteger, nullable=False, server_default=str(_NEVER))
    op.add_column(name, ends_at)
    keys = table(name, column("expires_at"), column("revoked_at"), column("ends_at"))
    expires, revoked = keys.c.expires_at, keys.c.revoked_at
    first = case((func.coalesce(expires, _NEVER) < revoked, expires), else_=revoked)
    ended = update(keys).where(or_(expires.is_not(None), revoked.is_not(None)))
    op.execute(ended.values(ends_at=func.coalesce(first, expires)))
    newest: list[str | TextClause] = ["organization", text("created_at DESC"), "id"]
    op.create_index(f"ix_{name}_newest", name, newest)
    op.create_index(f"ix_{name}_live", name, ["organization", "ends_at", "id"])
    finite = text(f"ends_at < {_NEVER}")
    some = f"ix_{name}_ends_at"
    op.create_index(some, name, ["ends_at"], postgresql_where=finite, sqlite_where=finite)
    op.drop_index(op.f(f"ix_{name}_organization_created_at"), name)
    op.create_table(
        f"{prefix}removed_handles", Column("handle", ascii_text(64), primary_key=True), **OPTIONS
    )


def downgrade() -> None:
    """Forget which handles were removed, and when keys end."""
    prefix = op.get_context().opts["prefix"]
    name = f"{prefix}keys"
    op.drop_table(f"{prefix}removed_handles")
    op.create_index(
        op.f(f"ix_{name}_organization_created_at"), name, ["organization", "created_at"]
    )
    for index in ("newest", "live", "ends_at"):
        op.drop_index(f"ix_{name}_{index}", name)
    op.drop_column(name, "ends_at")
