"""The epoch that every change to keys or plans moves, and when each organization was changed."""

from alembic import op
from sqlalchemy import BigInteger, Column, Integer

from lockgate.stores.sql.tables import OPTIONS

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the column with its index, and the table."""
    prefix = op.get_context().opts["prefix"]
    op.add_column(f"{prefix}organizations", Column("changed", BigInteger))
    op.create_index(None, f"{prefix}organizations", ["changed"])
    op.create_table(
        f"{prefix}epochs",
        Column("id", Integer, primary_key=True, autoincrement=False),
        Column("value", BigInteger, nullable=False, server_default="0"),
        **OPTIONS,
    )


def downgrade() -> None:
    """Drop them; no earlier version asks for them."""
    prefix = op.get_context().opts["prefix"]
    op.drop_table(f"{prefix}epochs")
    op.drop_index(f"ix_{prefix}organizations_changed", f"{prefix}organizations")
    op.drop_column(f"{prefix}organizations", "changed")
