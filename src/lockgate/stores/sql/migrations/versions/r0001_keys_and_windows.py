"""Organizations with their plans and windows, and their keys."""

from sqlalchemy import BigInteger, Column, ForeignKeyConstraint, Integer, LargeBinary, String, Text

from lockgate.stores.sql.migrations.steps import create_index, create_table, drop_table, name_of
from lockgate.stores.sql.tables import ORGANIZATION_BYTES, ascii_text, opaque

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create both tables."""
    organizations, keys = name_of("organizations"), name_of("keys")
    create_table(
        organizations,
        Column("id", opaque(ORGANIZATION_BYTES), primary_key=True),
        Column("plan", String(64)),
        Column("overrides", Text),
        Column("windows", LargeBinary),
        Column("idle_day", Integer),
    )
    create_index(f"ix_{organizations}_idle_day", organizations, ["idle_day"])
    create_table(
        keys,
        Column("handle", ascii_text(64), primary_key=True),
        Column("id", ascii_text(36), nullable=False, unique=True),
        Column("organization", opaque(ORGANIZATION_BYTES), nullable=False),
        Column("name", String(200), nullable=False),
        Column("prefix", String(64), nullable=False),
        Column("scopes", Text, nullable=False),
        Column("scheme", ascii_text(64), nullable=False),
        Column("digest", opaque(255), nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("expires_at", BigInteger),
        Column("revoked_at", BigInteger),
        Column("request_count", BigInteger, nullable=False),
        Column("last_used_at", BigInteger),
        ForeignKeyConstraint(["organization"], [f"{organizations}.id"]),
    )
    create_index(f"ix_{keys}_organization_created_at", keys, ["organization", "created_at"])


def downgrade() -> None:
    """Drop both tables."""
    drop_table(name_of("keys"))
    drop_table(name_of("organizations"))
