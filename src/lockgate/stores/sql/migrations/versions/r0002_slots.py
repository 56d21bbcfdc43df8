"""Slots for concurrent jobs, beside the windows of their organization."""

from sqlalchemy import Column

from lockgate.stores.sql.migrations.steps import add_column, drop_column, name_of
from lockgate.stores.sql.tables import large_bytes

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the column."""
    add_column(name_of("organizations"), Column("slots", large_bytes()))


def downgrade() -> None:
    """Drop the column; jobs that run lose their slots."""
    drop_column(name_of("organizations"), "slots")
