"""The release after this one, made up: its revision adds a column, an index and a table."""

from __future__ import annotations

from pathlib import Path
from shutil import copytree, ignore_patterns

from lockgate.stores.sql import migrations
from lockgate.stores.sql.schema import RELEASE, Revision, RevisionRange

NEXT = RevisionRange(RELEASE.oldest, "0002")
"""The revisions that it works with."""
EXPANDED = Revision("0002", RELEASE.newest)
"""Its tables, which this release can read."""

_REVISION = """
from sqlalchemy import Column, Integer, String

from lockgate.stores.sql.migrations.steps import (
    add_column,
    create_index,
    create_table,
    declare_oldest_reader,
    drop_column,
    drop_index,
    drop_table,
    name_of,
)

revision = "0002"
down_revision = "0001"
oldest_reader = "0001"


def upgrade():
    keys = name_of("keys")
    create_table(name_of("later"), Column("id", Integer, primary_key=True))
    add_column(keys, Column("later", String(20), server_default="x"))
    create_index(f"ix_{keys}_later", keys, ["later"])
    declare_oldest_reader(oldest_reader)


def downgrade():
    keys = name_of("keys")
    drop_index(f"ix_{keys}_later", keys)
    drop_column(keys, "later")
    drop_table(name_of("later"))
"""


def scripts(folder: Path) -> str:
    """Write Alembic's scripts of that release; return what ``schema.SCRIPTS`` is in it."""
    copied = folder / "migrations"
    copytree(Path(migrations.__path__[0]), copied, ignore=ignore_patterns("__pycache__"))
    (copied / "versions" / "r0002_later.py").write_text(_REVISION)
    return str(copied)
