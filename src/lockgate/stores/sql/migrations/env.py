"""Run revisions on the connection and tables that ``schema.migrate`` passes."""

from alembic import context

from lockgate.stores.sql.tables import Tables, naming

connection = context.config.attributes["connection"]
tables: Tables = context.config.attributes["tables"]
context.configure(
    connection=connection,
    target_metadata=naming(),
    version_table=tables.version,
    prefix=tables.prefix,
)
with context.begin_transaction():
    context.run_migrations()
