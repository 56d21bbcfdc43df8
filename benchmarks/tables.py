"""The tables of lockgate in the databases of benchmarks."""

from sqlalchemy import create_engine

from lockgate import migrations


def with_tables(url: str) -> str:
    """Create the tables of lockgate in a database, and return its URL."""
    engine = create_engine(url.replace("mysql:", "mysql+pymysql:"))
    migrations.upgrade(engine)
    engine.dispose()
    return url
