"""The tables of the first release; ``stores/sql/tables.py`` describes them."""

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKeyConstraint,
    Integer,
    LargeBinary,
    SmallInteger,
    String,
    Text,
    text,
)

from lockgate.stores.sql.migrations.steps import (
    add_column,
    create_index,
    create_table,
    drop_table,
    name_of,
)
from lockgate.stores.sql.tables import (
    EMAIL_BYTES,
    ORGANIZATION_BYTES,
    SEAL_LENGTH,
    USER_BYTES,
    ascii_text,
    large_bytes,
    opaque,
)

revision = "0001"
down_revision = None
oldest_reader = "0001"

_NEVER = 2**53 - 1


def upgrade() -> None:
    """Create them, and the column of the version table for ``oldest_reader``."""
    # Alembic inserts its row later: the default declares this revision's.
    declared = Column("oldest_reader", String(32), nullable=False, server_default=oldest_reader)
    add_column(name_of("version"), declared)
    _create_organizations()
    _create_keys()
    _create_accounts()
    _create_histories()


def downgrade() -> None:
    """Drop them."""
    for name in ("limits", "usage", "changes", "accounts", "removed_handles", "keys", "epochs"):
        drop_table(name_of(name))
    drop_table(name_of("organizations"))


def _create_organizations() -> None:
    organizations, limits = name_of("organizations"), name_of("limits")
    create_table(
        organizations,
        Column("id", opaque(ORGANIZATION_BYTES), primary_key=True),
        Column("plan", String(64)),
        Column("overrides", Text),
        Column("windows", large_bytes()),
        Column("idle_day", Integer),
        Column("changed", BigInteger),
        Column("used", LargeBinary),
        Column("made", LargeBinary),
    )
    create_index(f"ix_{organizations}_idle_day", organizations, ["idle_day"])
    create_index(f"ix_{organizations}_changed", organizations, ["changed"])
    create_table(
        name_of("epochs"),
        Column("id", Integer, primary_key=True, autoincrement=False),
        Column("value", BigInteger, nullable=False, server_default="0"),
    )
    create_table(
        limits,
        Column("id", opaque(32), primary_key=True),
        Column("organization", opaque(ORGANIZATION_BYTES), nullable=False),
        Column("cells", large_bytes(), nullable=False),
        Column("idle_day", Integer, nullable=False),
    )
    create_index(f"ix_{limits}_organization", limits, ["organization"])
    create_index(f"ix_{limits}_idle_day", limits, ["idle_day"])


def _create_keys() -> None:
    keys = name_of("keys")
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
        Column("ends_at", BigInteger, nullable=False, server_default=str(_NEVER)),
        Column("unrevoked", SmallInteger, nullable=False),
        Column("seal", ascii_text(SEAL_LENGTH)),
        Column("details", Text),
        ForeignKeyConstraint(["organization"], [f"{name_of('organizations')}.id"]),
    )
    create_index(f"ix_{keys}_newest", keys, ["organization", text("created_at DESC"), "id"])
    create_index(f"ix_{keys}_live", keys, ["organization", "unrevoked", "ends_at", "id"])
    finite = text(f"ends_at < {_NEVER}")
    ends = ["ends_at", "organization"]
    create_index(f"ix_{keys}_ends_at", keys, ends, postgresql_where=finite, sqlite_where=finite)
    create_table(name_of("removed_handles"), Column("handle", ascii_text(64), primary_key=True))


def _create_accounts() -> None:
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
        Column("seal", ascii_text(SEAL_LENGTH)),
        Column("signed_in_at", BigInteger),
        Column("review_at", BigInteger),
        Column("unclaimed", SmallInteger),
        ForeignKeyConstraint(["organization"], [f"{name_of('organizations')}.id"]),
    )
    unclaimed = ["billing_email", "unclaimed", "created_at", "organization"]
    create_index(f"ix_{accounts}_unclaimed", accounts, unclaimed)
    create_index(f"ix_{accounts}_claimed", accounts, ["claimed_by", "claimed_at", "organization"])
    create_index(f"ix_{accounts}_review_at", accounts, ["review_at"])


def _create_histories() -> None:
    changes, usage = name_of("changes"), name_of("usage")
    create_table(
        changes,
        Column("organization", opaque(ORGANIZATION_BYTES), primary_key=True),
        Column("number", BigInteger, primary_key=True, autoincrement=False),
        Column("at", BigInteger, nullable=False),
        Column("text", Text, nullable=False),
    )
    create_index(f"ix_{changes}_at", changes, ["at", "organization"])
    create_table(
        usage,
        Column("id", opaque(32), primary_key=True),
        Column("cells", LargeBinary, nullable=False),
        Column("until_day", Integer, nullable=False),
    )
    create_index(f"ix_{usage}_until_day", usage, ["until_day"])
