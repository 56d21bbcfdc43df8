"""The oldest revision whose release still works with the tables, beside their own revision."""

from sqlalchemy import Column, String

from lockgate.stores.sql.migrations.steps import (
    add_column,
    declare_oldest_reader,
    drop_column,
    name_of,
)

revision = "0010"
down_revision = "0009"
oldest_reader = "0009"


def upgrade() -> None:
    """Add the column to the version table."""
    add_column(name_of("version"), Column("oldest_reader", String(32)))
    declare_oldest_reader(oldest_reader)


def downgrade() -> None:
    """Drop the column: each release then works with its own revision alone."""
    drop_column(name_of("version"), "oldest_reader")
