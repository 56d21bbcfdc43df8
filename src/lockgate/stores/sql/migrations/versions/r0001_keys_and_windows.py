"""Organizations with their plans and windows, and their keys."""

from alembic import op
from sqlalchemy import BigInteger, Column, ForeignKeyConstraint, Integer, LargeBinary, String, Text

from lockgate.stores.sql.tables import OPTIONS, ORGANIZATION_BYTES, ascii_text, opaque

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create both tables."""
    prefix = op.get_context().opts["prefix"]
    op.create_table(
        f"{prefix}organizations",
        Column("id", opaque(ORGANIZATION_BYTES), primary_key=True),
        Column("plan", String(64)),
        Column("overrides", Text),
        Column("windows", LargeBinary),
        Column("idle_day", Integer, index=True),
        **OPTIONS,
    )
    op.create_table(
        f"{prefix}keys",
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
        ForeignKeyConstraint(["organization"], [f"{prefix}organizations.id"]),
        **OPTIONS,
    )
    op.create_index(None, f"{prefix}keys", ["organization", "created_at"])


def downgrade() -> None:
    """Drop both tables."""
    prefix = op.get_context().opts["prefix"]
    op.drop_table(f"{prefix}keys")
    op.drop_table(f"{prefix}organizations")
