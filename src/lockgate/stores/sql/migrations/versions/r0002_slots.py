"""Slots for concurrent jobs, beside the windows of their organization."""

from alembic import op
from sqlalchemy import Column

from lockgate.stores.sql.tables import large_bytes

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the column."""
    op.add_column(f"{op.get_context().opts['prefix']}organizations", Column("slots", large_bytes()))


def downgrade() -> None:
    """Drop the column; jobs that run lose their slots."""
    op.drop_column(f"{op.get_context().opts['prefix']}organizations", "slots")
