"""The tables, and the statements of an admission: what is the same in every database.

Ids of organizations are kept as bytes, because no database agrees with another on what two equal
texts are: collations fold case, pad blanks and refuse NUL (D36).

Instants are whole microseconds in 64-bit integers.
"""

import re
from functools import cached_property
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    BindParameter,
    Column,
    ForeignKey,
    Index,
    Insert,
    Integer,
    LargeBinary,
    MetaData,
    Select,
    String,
    Table,
    Text,
    Update,
    bindparam,
    case,
    or_,
    select,
    update,
)
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.types import TypeEngine

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


ORGANIZATION_BYTES: Final = 512
"""128 characters of at most 4 bytes."""


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
            Column("windows", LargeBinary),
            # The day from which windows and slots count no more. It changes once a day and no
            # oftener, so that its index costs an admission nothing.
            Column("idle_day", Integer, index=True),
            Column("slots", large_bytes()),
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
            Column("created_at", BigInteger, nullable=False),
            Column("expires_at", BigInteger),
            Column("revoked_at", BigInteger),
            Column("request_count", BigInteger, nullable=False, default=0),
            Column("last_used_at", BigInteger),
            **OPTIONS,
        )
        Index(None, self.keys.c.organization, self.keys.c.created_at)
        self._locking: dict[int, Select[*tuple[Any, ...]]] = {}
        self._finding: dict[int, Select[*tuple[Any, ...]]] = {}

    def lock(self, places: int) -> Select[*tuple[Any, ...]]:
        """Lock that many organizations ``o0``, ``o1``... in the order of their ids, whoever asks:
        two transactions that want the same ones queue up and never embrace."""
        if places not in self._locking:
            table = self.organizations
            self._locking[places] = (
                select(
                    table.c.id, table.c.plan, table.c.overrides, table.c.windows, table.c.idle_day
                )
                .where(table.c.id.in_([bindparam(f"o{place}") for place in range(places)]))
                .order_by(table.c.id)
                .with_for_update()
            )
        return self._locking[places]

    def find(self, places: int) -> Select[*tuple[Any, ...]]:
        """Read that many keys by their handles ``h0``, ``h1``..."""
        if places not in self._finding:
            handles: list[BindParameter[str]] = [bindparam(f"h{place}") for place in range(places)]
            self._finding[places] = select(self.keys).where(self.keys.c.handle.in_(handles))
        return self._finding[places]

    @cached_property
    def keep(self) -> Update:
        """Write the windows of the organization ``o``."""
        return (
            update(self.organizations)
            .where(self.organizations.c.id == bindparam("o"))
            .values(windows=bindparam("state"), idle_day=bindparam("day"))
        )

    @cached_property
    def use(self) -> Update:
        """Add ``n`` requests, the last one ``at``, to the key ``h``: the time never goes back."""
        last = self.keys.c.last_used_at
        at = bindparam("at", type_=BigInteger)
        return (
            update(self.keys)
            .where(self.keys.c.handle == bindparam("h"))
            .values(
                request_count=self.keys.c.request_count + bindparam("n"),
                last_used_at=case((or_(last.is_(None), last < at), at), else_=last),
            )
        )


Statement = Select[*tuple[Any, ...]] | Update | Insert
