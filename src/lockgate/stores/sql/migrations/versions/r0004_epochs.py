"""The change counter, which every change to keys or plans moves, and the last change of each
organization.
"""

from sqlalchemy import BigInteger, Column, Integer

from lockgate.stores.sql.migrations.steps import (
    add_column,
    create_index,
    create_table,
    drop_column,
    drop_index,
    drop_table,
    name_of,
)

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the column with its index, and the table."""
    organizations = name_of("organizations")
    add_column(organizations, Column("changed", BigInteger))
    create_index(f"ix_{organizations}_changed", organizations, ["changed"])
    create_table(
        name_of("epochs"),
        Column("id", Integer, primary_key=True, autoincrement=False),
        Column("value", BigInteger, nullable=False, server_default="0"),
    )


def downgrade() -> None:
    """Drop them; no earlier release reads them."""
    organizations = name_of("organizations")
    drop_table(name_of("epochs"))
    drop_index(f"ix_{organizations}_changed", organizations)
    drop_column(organizations, "changed")
