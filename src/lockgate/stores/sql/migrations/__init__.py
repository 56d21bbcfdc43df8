"""The Alembic environment of lockgate's tables."""
