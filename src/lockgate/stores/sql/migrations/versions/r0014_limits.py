"""Named limits of organizations."""

from sqlalchemy import Column, Integer

from lockgate.stores.sql.migrations.steps import (
    create_index,
    create_table,
    declare_oldest_reader,
    drop_table,
    name_of,
)
from lockgate.stores.sql.tables import ORGANIZATION_BYTES, large_bytes, opaque

revision = "0014"
down_revision = "0013"
oldest_reader = "0009"


def upgrade() -> None:
    """Create the table."""
    limits = name_of("limits")
    create_table(
        limits,
        Column("id", opaque(32), primary_key=True),
        Column("organization", opaque(ORGANIZATION_BYTES), nullable=False),
        Column("cells", large_bytes(), nullable=False),
        Column("idle_day", Integer, nullable=False),
    )
    create_index(f"ix_{limits}_organization", limits, ["organization"])
    create_index(f"ix_{limits}_idle_day", limits, ["idle_day"])
    declare_oldest_reader(oldest_reader)


def downgrade() -> None:
    """Drop the table: named limits begin anew."""
    drop_table(name_of("limits"))
