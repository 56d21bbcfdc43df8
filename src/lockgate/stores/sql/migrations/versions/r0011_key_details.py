"""Details of keys that grant no access, such as the successor of a key that was rotated."""

from sqlalchemy import Column, Text

from lockgate.stores.sql.migrations.steps import (
    add_column,
    declare_oldest_reader,
    drop_column,
    name_of,
)

revision = "0011"
down_revision = "0010"
oldest_reader = "0009"


def upgrade() -> None:
    """Add the column; keys that are there have no details."""
    add_column(name_of("keys"), Column("details", Text))
    declare_oldest_reader(oldest_reader)


def downgrade() -> None:
    """Drop the column, and with it which keys were rotated."""
    drop_column(name_of("keys"), "details")
