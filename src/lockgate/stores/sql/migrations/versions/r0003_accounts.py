"""The accounts of organizations that an agent registered."""

from sqlalchemy import BigInteger, Column, ForeignKeyConstraint, String

from lockgate.stores.sql.migrations.steps import create_index, create_table, drop_table, name_of
from lockgate.stores.sql.tables import (
    EMAIL_BYTES,
    ORGANIZATION_BYTES,
    USER_BYTES,
    ascii_text,
    opaque,
)

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Create the table."""
    accounts = name_of("accounts")
    create_table(
        accounts,
        Column("organization", opaque(ORGANIZATION_BYTES), primary_key=True),
        Column("agent_name", String(200), nullable=False),
        Column("billing_email", opaque(EMAIL_BYTES), nullable=False),
        Column("company_name", String(200)),
        Column("handle", ascii_text(64), nullable=False, unique=True),
        Column("scheme", ascii_text(64), nullable=False),
        Column("digest", opaque(255), nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("claimed_by", opaque(USER_BYTES)),
        Column("claimed_at", BigInteger),
        Column("token_revoked_at", BigInteger),
        Column("sign_outs", BigInteger, nullable=False),
        ForeignKeyConstraint(["organization"], [f"{name_of('organizations')}.id"]),
    )
    for column in ("billing_email", "claimed_by"):
        create_index(f"ix_{accounts}_{column}", accounts, [column])


def downgrade() -> None:
    """Drop the table: registrations and claims are lost, keys stay."""
    drop_table(name_of("accounts"))
