"""Seals of keys and of accounts, which write access to the database alone cannot forge."""

from sqlalchemy import Column

from lockgate.stores.sql.migrations.steps import add_column, drop_column, name_of
from lockgate.stores.sql.tables import SEAL_LENGTH, ascii_text

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add the columns; rows that are there have no seal yet."""
    for table in ("keys", "accounts"):
        add_column(name_of(table), Column("seal", ascii_text(SEAL_LENGTH)))


def downgrade() -> None:
    """Drop them."""
    for table in ("keys", "accounts"):
        drop_column(name_of(table), "seal")
