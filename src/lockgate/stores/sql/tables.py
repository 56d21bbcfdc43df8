"""The tables, the same in every database.

Ids of organizations are stored as bytes, because databases disagree on which texts are equal:
collations fold case, pad blanks and refuse NUL (D36).

Instants are whole microseconds in 64-bit integers.
"""

import re
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
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
"""The options that each table is created with."""


def ascii_text(length: int) -> TypeEngine[str]:
    """Return a text type that is compared byte by byte."""
    return (
        String(length)
        .with_variant(postgresql.VARCHAR(length, collation="C"), "postgresql")
        .with_variant(mysql.VARCHAR(length, charset="ascii", collation="ascii_bin"), "mysql")
        .with_variant(mysql.VARCHAR(length, charset="ascii", collation="ascii_bin"), "mariadb")
    )


def opaque(length: int) -> TypeEngine[bytes]:
    """Return a bytes type that can be a key, since MySQL cannot index a BLOB."""
    return (
        LargeBinary(length)
        .with_variant(mysql.VARBINARY(length), "mysql")
        .with_variant(mysql.VARBINARY(length), "mariadb")
    )


def large_bytes() -> TypeEngine[bytes]:
    """Return a bytes type for more than the 64 KB of MySQL's BLOB."""
    return (
        LargeBinary()
        .with_variant(mysql.MEDIUMBLOB(), "mysql")
        .with_variant(mysql.MEDIUMBLOB(), "mariadb")
    )


FINITE: Final = text(f"ends_at < {NEVER}")
"""The condition of the index of keys that end. A query uses the index only with the same text."""
ORGANIZATION_BYTES: Final = 512
"""128 characters of at most 4 bytes."""
USER_BYTES: Final = 1020
"""255 characters of at most 4 bytes."""
EMAIL_BYTES: Final = 1016
"""254 characters of at most 4 bytes (RFC 5321, 4.5.3.1.3)."""

SEAL_LENGTH: Final = 80
"""Characters of a seal: the id of a pepper, a colon, 64 hexadecimal digits, and a reserve."""


def naming() -> MetaData:
    """Return empty metadata with lockgate's naming convention, also for the migrations."""
    return MetaData(naming_convention=_NAMING)


class Tables:
    """The tables of one prefix.

    Args:
        prefix: the prefix of their names: up to 30 of ``a-z0-9_``, starting with a letter.
    """

    def __init__(self, prefix: str = DEFAULT_PREFIX) -> None:
        if not re.fullmatch(r"([a-z][a-z0-9_]{0,29})?", prefix):
            raise ConfigurationError(
                f"The table prefix {prefix!r}: use up to 30 of a-z, 0-9 and '_', a letter first."
            )
        self.prefix: Final = prefix
        self.version: Final = f"{prefix}version"
        """The version table of lockgate's revisions, separate from the host's."""
        self.is_newer = False
        """Whether the check found a revision that this release does not know."""
        self.metadata: Final = naming()
        self.organizations: Final = _organizations(prefix, self.metadata)
        self.epochs: Final = _epochs(prefix, self.metadata)
        self.keys: Final = _keys(prefix, self.metadata)
        self.removed_handles: Final = _removed_handles(prefix, self.metadata)
        self.accounts: Final = _accounts(prefix, self.metadata)
        self.changes: Final = _changes(prefix, self.metadata)
        self.usage: Final = _usage(prefix, self.metadata)
        self.limits: Final = _limits(prefix, self.metadata)

    def key_columns(self) -> list[ColumnElement[Any]]:
        """Return what to select of a key: not the columns that follow from others."""
        derived = "ends_at", "unrevoked"
        return [column for column in self.keys.c if column.name not in derived]


def _organizations(prefix: str, metadata: MetaData) -> Table:
    """Return the table of organizations: plans, windows and recent usage."""
    return Table(
        f"{prefix}organizations",
        metadata,
        Column("id", opaque(ORGANIZATION_BYTES), primary_key=True),
        Column("plan", String(64)),
        Column("overrides", Text),
        Column("windows", large_bytes()),
        # The day from which windows are empty. It changes at most once a day, so
        # that admissions do not update its index. A new row has the first of all days: a row
        # that stays empty is pruned with the idle ones.
        Column("idle_day", Integer, index=True),
        Column("changed", BigInteger, index=True),
        # Usage of keys not yet added to their own rows: an admission writes one row.
        Column("used", LargeBinary),
        # The latest commits: 20 bytes each, at most 16.
        Column("made", LargeBinary),
        **OPTIONS,
    )


def _epochs(prefix: str, metadata: MetaData) -> Table:
    """Return the table of the change counter."""
    return Table(
        f"{prefix}epochs",
        metadata,
        Column("id", Integer, primary_key=True, autoincrement=False),
        Column("value", BigInteger, nullable=False, server_default="0"),
        **OPTIONS,
    )


def _keys(prefix: str, metadata: MetaData) -> Table:
    """Return the table of keys, with the indexes of lists, caps and removals."""
    table = Table(
        f"{prefix}keys",
        metadata,
        Column("handle", ascii_text(64), primary_key=True),
        Column("id", ascii_text(36), nullable=False, unique=True),
        Column(
            "organization",
            opaque(ORGANIZATION_BYTES),
            ForeignKey(f"{prefix}organizations.id"),
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
        # 1 until it is revoked, then 0, since databases differ after IS NULL: see accounts.
        Column("unrevoked", SmallInteger, nullable=False),
        # JSON.
        Column("details", Text),
        **OPTIONS,
    )
    columns = table.c
    newest = columns.organization, columns.created_at.desc(), columns.id
    Index(f"ix_{prefix}keys_newest", *newest)  # The order of lists (D10).
    live = columns.organization, columns.unrevoked, columns.ends_at, columns.id
    Index(f"ix_{prefix}keys_live", *live)
    # Only keys with an end, so that the index is small and not used for live keys.
    ends = columns.ends_at, columns.organization
    Index(f"ix_{prefix}keys_ends_at", *ends, postgresql_where=FINITE, sqlite_where=FINITE)
    return table


def _removed_handles(prefix: str, metadata: MetaData) -> Table:
    """Return the table of the handles of removed keys."""
    return Table(
        f"{prefix}removed_handles",
        metadata,
        Column("handle", ascii_text(64), primary_key=True),
        **OPTIONS,
    )


def _changes(prefix: str, metadata: MetaData) -> Table:
    """Return the table of the change log. Records outlive their organization's row."""
    table = Table(
        f"{prefix}changes",
        metadata,
        Column("organization", opaque(ORGANIZATION_BYTES), primary_key=True),
        Column("number", BigInteger, primary_key=True, autoincrement=False),
        Column("at", BigInteger, nullable=False),
        # JSON, as ``ChangeDraft.text`` writes it.
        Column("text", Text, nullable=False),
        **OPTIONS,
    )
    Index(f"ix_{prefix}changes_at", table.c.at, table.c.organization)
    return table


def _usage(prefix: str, metadata: MetaData) -> Table:
    """Return the table of usage histories, which no admission reads. It also has the mark of each
    writer of usage (:mod:`lockgate.core.usage_marks`)."""
    return Table(
        f"{prefix}usage",
        metadata,
        # A digest of the organization and the key's handle, or of the writer. Without a
        # reference to their rows, so that a write takes no lock on them.
        Column("id", opaque(32), primary_key=True),
        # At most 33 KB; of a mark 8 bytes, the number of the writer's latest batch.
        Column("cells", LargeBinary, nullable=False),
        # The day from which it shows nothing.
        Column("until_day", Integer, nullable=False, index=True),
        **OPTIONS,
    )


def _limits(prefix: str, metadata: MetaData) -> Table:
    """Return the table of named limits, budgets of holds, and slots. Plain admissions do not read
    it."""
    return Table(
        f"{prefix}limits",
        metadata,
        # A digest of the organization and the field.
        Column("id", opaque(32), primary_key=True),
        # Without a reference to its row: cells may outlive it.
        Column("organization", opaque(ORGANIZATION_BYTES), nullable=False, index=True),
        # 16 bytes a cell: at most 3 KB at the default resolution, 60 KB at the finest, and a cell
        # of each hit in the window without one. A budget has 40 bytes more for each hold that is
        # out, at most 1,000.
        Column("cells", large_bytes(), nullable=False),
        # The day from which it counts nothing, as in the table of organizations.
        Column("idle_day", Integer, nullable=False, index=True),
        **OPTIONS,
    )


def _accounts(prefix: str, metadata: MetaData) -> Table:
    """Return the table of accounts, with the indexes of claims."""
    table = Table(
        f"{prefix}accounts",
        metadata,
        Column(
            "organization",
            opaque(ORGANIZATION_BYTES),
            ForeignKey(f"{prefix}organizations.id"),
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
        # 1 until it is claimed, then 0. The databases differ in whether they read an index in
        # the order of its next column after IS NULL.
        Column("unclaimed", SmallInteger),
        **OPTIONS,
    )
    columns = table.c
    Index(
        f"ix_{prefix}accounts_unclaimed",
        *(columns.billing_email, columns.unclaimed, columns.created_at),
        columns.organization,
    )
    Index(
        f"ix_{prefix}accounts_claimed",
        *(columns.claimed_by, columns.claimed_at, columns.organization),
    )
    return table
