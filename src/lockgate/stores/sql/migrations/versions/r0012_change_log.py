"""The change log: a record of each change to the keys, plan and account of an organization."""

from sqlalchemy import BigInteger, Column, Text

from lockgate.stores.sql.migrations.steps import (
    create_index,
    create_table,
    declare_oldest_reader,
    drop_table,
    name_of,
)
from lockgate.stores.sql.tables import ORGANIZATION_BYTES, opaque

revision = "0012"
down_revision = "0011"
oldest_reader = "0009"


def upgrade() -> None:
    """Create the table; changes before this leave no record."""
    changes = name_of("changes")
    create_table(
        changes,
        Column("organization", opaque(ORGANIZATION_BYTES), primary_key=True),
        Column("number", BigInteger, primary_key=True, autoincrement=False),
        Column("at", BigInteger, nullable=False),
        Column("text", Text, nullable=False),
    )
    create_index(f"ix_{changes}_at", changes, ["at"])
    declare_oldest_reader(oldest_reader)


def downgrade() -> None:
    """Drop the table, and with it all records."""
    drop_table(name_of("changes"))
