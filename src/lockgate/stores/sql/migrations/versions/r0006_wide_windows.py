"""Windows beyond the 64 KB of MySQL's BLOB: an exact plan keeps every hit."""

from alembic import op
from sqlalchemy import LargeBinary, column, func, null, table, update

from lockgate.stores.sql.migrations.steps import name_of
from lockgate.stores.sql.tables import large_bytes

revision = "0006"
down_revision = "0005"

_BLOB = 65_535


def upgrade() -> None:
    """Widen the column, where it is not wide already."""
    if _narrow():
        op.alter_column(
            name_of("organizations"), "windows", existing_type=LargeBinary(), type_=large_bytes()
        )


def downgrade() -> None:
    """Forget windows that do not fit, then narrow the column."""
    if _narrow():
        organizations = table(name_of("organizations"), column("windows"))
        windows = organizations.c.windows
        too_wide = update(organizations).where(func.length(windows) > _BLOB)
        op.execute(too_wide.values(windows=null()))
        op.alter_column(
            name_of("organizations"), "windows", existing_type=large_bytes(), type_=LargeBinary()
        )


def _narrow() -> bool:
    return op.get_context().dialect.name in {"mysql", "mariadb"}
