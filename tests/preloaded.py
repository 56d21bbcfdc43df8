"""A process that has imported what others of the tests need: its forks start at once.

To import lockgate, a database's driver and a server takes half a second of CPU time.
"""

from __future__ import annotations

import multiprocessing
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext

_IMPORTED = [
    *("tests.blackbox.serving", "tests.services.shared_stores"),
    *("lockgate.fastapi", "lockgate.flask", "lockgate.stores.redis", "lockgate.stores.sql"),
    *("alembic.command", "psycopg", "sqlalchemy.ext.asyncio"),
    *("sqlalchemy.dialects.postgresql.psycopg", "sqlalchemy.dialects.sqlite.pysqlite"),
    *("fastapi", "flask", "httptools", "jinja2", "uvicorn", "uvloop", "waitress"),
    *("uvicorn.lifespan.on", "uvicorn.loops.uvloop", "uvicorn.protocols.http.httptools_impl"),
]


@cache
def forking() -> ForkServerContext:
    """Return the context of `multiprocessing` that forks this process."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_IMPORTED)
    return context
