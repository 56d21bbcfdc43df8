"""The tables: what is the same in every database.

Ids of organizations are kept as bytes, because no database agrees with another on what two equal
texts are: collations fold case, pad blanks and refuse NUL (D36).

Instants are whole microseconds in 64-bit integers.
"""

import re
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.types import TypeEngine

from ...core.api_keys import NEVER
from ...errors import ConfigurationError

DEFAULT_PREFIX: Final = "lockgate_"
_NAMING: Final = {
    "pk": "pk_%(table_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
}
_MYSQL: Final = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}
_MARIADB: Final = {name.replace("mysql", "mariadb"): value for name, value in _MYSQL.items()}
OPTIONS: Final[dict[str, Any]] = {**_MYSQL, **_MARIADB}
"""What every table of ours is created with."""


def ascii_text(length: int) -> TypeEngine[str]:
    """Text that is compared byte by byte."""
    return (
        String(length)
        .with_variant(postgresql.VARCHAR(length, collation="C"), "postgresql")
        .with_variant(mysql.VARCHAR(length, charset="ascii", collation="ascii_bin"), "mysql")
        .with_variant(mysql.VARCHAR(length, charset="ascii", collation="ascii_bin"), "mariadb")
    )


def opaque(length: int) -> TypeEngine[bytes]:
    """Bytes that can be a key: MySQL indexes no BLOB."""
    return (
        LargeBinary(length)
        .with_variant(mysql.VARBINARY(length), "mysql")
        .with_variant(mysql.VARBINARY(length), "mariadb")
    )


def large_bytes() -> TypeEngine[bytes]:
    """Bytes beyond the 64 KB of MySQL's BLOB."""
    return (
        LargeBinary()
        .with_variant(mysql.MEDIUMBLOB(), "mysql")
        .with_variant(mysql.MEDIUMBLOB(), "mariadb")
    )


FINITE: Final = text(f"ends_at < {NEVER}")
"""The condition of the index of keys that end; a query needs it in the same words to use that."""
ORGANIZATION_BYTES: Final = 512
"""128 characters of at most 4 bytes."""
USER_BYTES: Final = 1020
"""255 characters of at most 4 bytes."""
EMAIL_BYTES: Final = 1016
"""254 characters of at most 4 bytes (RFC 5321, 4.5.3.1.3)."""

SEAL_LENGTH: Final = 80
"""Characters of a seal, and some to spare: the id of a pepper, a colon, 64 hexadecimal digits."""


def naming() -> MetaData:
    """An empty catalogue that names constraints as ours are named, the migrations' included."""
    return MetaData(naming_convention=_NAMING)


class Tables:
    """The tables under one prefix.

    Args:
        prefix: what their names start with: up to 30 of ``a-z0-9_``, starting with a letter.
    """

    def __init__(self, prefix: str = DEFAULT_PREFIX) -> None:
        if not re.fullmatch(r"([a-z][a-z0-9_]{0,29})?", prefix):
            raise ConfigurationError(
                f"The table prefix {prefix!r}: use up to 30 of a-z, 0-9 and '_', a letter first."
            )
        self.prefix: Final = prefix
        self.version: Final = f"{prefix}version"
        """The table where Alembic keeps the revision of ours, beside that of the host."""
        self.metadata: Final = naming()
        self.organizations: Final = Table(
            f"{prefix}organizations",
            self.metadata,
            Column("id", opaque(ORGANIZATION_BYTES), primary_key=True),
            Column("plan", String(64)),
            Column("overrides", Text),
            Column("windows", large_bytes()),
            # The day from which windows and slots count no more. It changes once a day and no
            # oftener, so that its index costs an admission nothing. A row is made with the first
            # of all days: if nothing comes to lie in it, it goes when the idle ones do.
            Column("idle_day", Integer, index=True),
            Column("slots", large_bytes()),
            Column("changed", BigInteger, index=True),
            # Usage of keys that is not in their own rows yet, so that an admission writes one row.
            Column("used", LargeBinary),
            **OPTIONS,
        )
        self.epochs: Final = Table(
            f"{prefix}epochs",
            self.metadata,
            Column("id", Integer, primary_key=True, autoincrement=False),
            Column("value", BigInteger, nullable=False, server_default="0"),
            **OPTIONS,
        )
        self.keys: Final = Table(
            f"{prefix}keys",
            self.metadata,
            Column("handle", ascii_text(64), primary_key=True),
            Column("id", ascii_text(36), nullable=False, unique=True),
            Column(
                "organization",
                opaque(ORGANIZATION_BYTES),
                ForeignKey(self.organizations.c.id),
                nullable=False,
            ),
            Column("name", String(200), nullable=False),
            Column("prefix", String(64), nullable=False),
            Column("scopes", Text, nullable=False),
            Column("scheme", ascii_text(64), nullable=False),
            Column("digest", opaque(255), nullable=False),
            Column("seal", ascii_text(SEAL_LENGTH)),
            Column("created_at", BigInteger, nullable=False),
            Column("expires_at", BigInteger),
            Column("revoked_at", BigInteger),
            Column("request_count", BigInteger, nullable=False, default=0),
            Column("last_used_at", BigInteger),
            # The earlier of revocation and expiry. For most keys it is NEVER.
            Column("ends_at", BigInteger, nullable=False, server_default=str(NEVER)),
            **OPTIONS,
        )
        columns = self.keys.c
        newest = columns.organization, columns.created_at.desc(), columns.id
        Index(f"ix_{prefix}keys_newest", *newest)  # The order of lists (D10).
        Index(f"ix_{prefix}keys_live", columns.organization, columns.ends_at, columns.id)
        # Of keys that end at all: small, and of no use to the query for live keys.
        name = f"ix_{prefix}keys_ends_at"
        Index(name, columns.ends_at, postgresql_where=FINITE, sqlite_where=FINITE)
        self.removed_handles: Final = Table(
            f"{prefix}removed_handles",
            self.metadata,
            Column("handle", ascii_text(64), primary_key=True),
            **OPTIONS,
        )
        self.accounts: Final = Table(
            f"{prefix}accounts",
            self.metadata,
            Column(
                "organization",
                opaque(ORGANIZATION_BYTES),
                ForeignKey(self.organizations.c.id),
                primary_key=True,
            ),
            Column("agent_name", String(200), nullable=False),
            Column("billing_email", opaque(EMAIL_BYTES), nullable=False),
            Column("company_name", String(200)),
            Column("handle", ascii_text(64), nullable=False, unique=True),
            Column("scheme", ascii_text(64), nullable=False),
            Column("digest", opaque(255), nullable=False),
            Column("seal", ascii_text(SEAL_LENGTH)),
            Column("created_at", BigInteger, nullable=False),
            Column("claimed_by", opaque(USER_BYTES)),
            Column("claimed_at", BigInteger),
            Column("token_revoked_at", BigInteger),
            Column("sign_outs", BigInteger, nullable=False, default=0),
            Column("signed_in_at", BigInteger),
            # The instant since which an account may have been unused. Claiming one or finding it
            # on a plan sets NULL: it is never removed.
            Column("review_at", BigInteger, index=True),
            # 1 until it is claimed, then 0. No database reads an index in order past IS NULL and
            # goes on in the order of the next column, in any way that another does as well.
            Column("unclaimed", SmallInteger),
            **OPTIONS,
        )
        accounts = self.accounts.c
        Index(
            f"ix_{prefix}accounts_unclaimed",
            *(accounts.billing_email, accounts.unclaimed, accounts.created_at),
            accounts.organization,
        )
        Index(
            f"ix_{prefix}accounts_claimed",
            *(accounts.claimed_by, accounts.claimed_at, accounts.organization),
        )
