"""Indexes that list accounts page by page, and columns for removing unclaimed accounts."""

from alembic import op
from sqlalchemy import BigInteger, Column, SmallInteger, column, table, update

from lockgate.stores.sql.migrations.steps import (
    add_column,
    create_index,
    drop_column,
    drop_index,
    name_of,
)

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Add three columns and the indexes; accounts that exist come up for review."""
    accounts = name_of("accounts")
    add_column(accounts, Column("signed_in_at", BigInteger))
    add_column(accounts, Column("review_at", BigInteger))
    add_column(accounts, Column("unclaimed", SmallInteger))
    names = "created_at", "claimed_at", "review_at", "unclaimed"
    rows = table(accounts, *map(column, names))
    is_unclaimed = rows.c.claimed_at.is_(None)
    op.execute(update(rows).where(is_unclaimed).values(review_at=rows.c.created_at, unclaimed=1))
    op.execute(update(rows).where(~is_unclaimed).values(unclaimed=0))
    create_index(f"ix_{accounts}_review_at", accounts, ["review_at"])
    listed = ["billing_email", "unclaimed", "created_at", "organization"]
    create_index(f"ix_{accounts}_unclaimed", accounts, listed)
    claimed = ["claimed_by", "claimed_at", "organization"]
    create_index(f"ix_{accounts}_claimed", accounts, claimed)
    for name in ("billing_email", "claimed_by"):
        drop_index(f"ix_{accounts}_{name}", accounts)


def downgrade() -> None:
    """Drop the columns and restore the indexes of before."""
    accounts = name_of("accounts")
    for name in ("billing_email", "claimed_by"):
        create_index(f"ix_{accounts}_{name}", accounts, [name])
    for name in ("claimed", "unclaimed", "review_at"):
        drop_index(f"ix_{accounts}_{name}", accounts)
    for name in ("unclaimed", "review_at", "signed_in_at"):
        drop_column(accounts, name)
