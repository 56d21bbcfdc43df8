"""Keys, windows, slots and organizations in SQLite, PostgreSQL, MariaDB or MySQL."""

from .schema import OutdatedSchema
from .store import PlanResolver, SqlStore

__all__ = ["OutdatedSchema", "PlanResolver", "SqlStore"]
