"""Usage over time of keys and organizations."""

from sqlalchemy import Column, Integer, LargeBinary

from lockgate.stores.sql.migrations.steps import (
    create_index,
    create_table,
    declare_oldest_reader,
    drop_table,
    name_of,
)
from lockgate.stores.sql.tables import opaque

revision = "0013"
down_revision = "0012"
oldest_reader = "0009"


def upgrade() -> None:
    """Create the table."""
    usage = name_of("usage")
    create_table(
        usage,
        Column("id", opaque(32), primary_key=True),
        Column("cells", LargeBinary, nullable=False),
        Column("until_day", Integer, nullable=False),
    )
    create_index(f"ix_{usage}_until_day", usage, ["until_day"])
    declare_oldest_reader(oldest_reader)


def downgrade() -> None:
    """Drop the table, and with it all usage over time."""
    drop_table(name_of("usage"))
