"""The accounts of organizations that an agent registered."""

from alembic import op
from sqlalchemy import BigInteger, Column, ForeignKeyConstraint, String

from lockgate.stores.sql.tables import (
    EMAIL_BYTES,
    OPTIONS,
    ORGANIZATION_BYTES,
    USER_BYTES,
    ascii_text,
    opaque,
)

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Create the table."""
    prefix = op.get_context().opts["prefix"]
    op.create_table(
        f"{prefix}accounts",
        Column("organization", opaque(ORGANIZATION_BYTES), primary_key=True),
        Column("agent_name", String(200), nullable=False),
        Column("billing_email", opaque(EMAIL_BYTES), nullable=False, index=True),
        Column("company_name", String(200)),
        Column("handle", ascii_text(64), nullable=False, unique=True),
        Column("scheme", ascii_text(64), nullable=False),
        Column("digest", opaque(255), nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("claimed_by", opaque(USER_BYTES), index=True),
        Column("claimed_at", BigInteger),
        Column("token_revoked_at", BigInteger),
        Column("sign_outs", BigInteger, nullable=False),
        ForeignKeyConstraint(["organization"], [f"{prefix}organizations.id"]),
        **OPTIONS,
    )


def downgrade() -> None:
    """Drop the table: who registered and who claimed is lost, their keys stay."""
    op.drop_table(f"{op.get_context().opts['prefix']}accounts")
