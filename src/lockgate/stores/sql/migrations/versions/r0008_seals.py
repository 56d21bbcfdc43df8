"""Seals of keys and of accounts: who writes to the database can mint none."""

from alembic import op
from sqlalchemy import Column

from lockgate.stores.sql.tables import SEAL_LENGTH, ascii_text

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add the columns; rows that are there have no seal yet."""
    for table in ("keys", "accounts"):
        op.add_column(_name(table), Column("seal", ascii_text(SEAL_LENGTH)))


def downgrade() -> None:
    """Drop them."""
    for table in ("keys", "accounts"):
        op.drop_column(_name(table), "seal")


def _name(table: str) -> str:
    return f"{op.get_context().opts['prefix']}{table}"
