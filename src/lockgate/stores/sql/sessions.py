"""How connections of lockgate's engines begin, and which of those in a pool are still used.

A pooler such as PgBouncer in its transaction mode runs each transaction of a connection in another
session of the server: a setting of the session would hold for other clients, and a prepared
statement may be missing in the next transaction. Poolers refuse such settings as parameters of a
connection. So a new connection sets them in its session only if it has the session to itself: the
process that greeted it is the one that answers. Otherwise nothing is set or prepared.

A network that forgets an idle connection (NAT, load balancer) drops its packets without a word, and
mostly forgets the others of the pool at the same time.
"""

import logging
from collections.abc import Mapping
from math import inf
from time import monotonic
from typing import Any, Final

from sqlalchemy import Dialect, Engine, event
from sqlalchemy.exc import DBAPIError, DisconnectionError

from ..runtime.log_hints import MinutelyLog
from .databases import SHARED_STATEMENT
from .raw_connections import shut, use_of
from .transactions import ConnectionLost

logger: Final = logging.getLogger("lockgate")

_IS_OWN: Final = "pg_backend_pid() = {}"
_UNLIMITED: Final = (
    "SELECT 1 WHERE '0' IN (current_setting('lock_timeout'),"
    " current_setting('idle_in_transaction_session_timeout'))"
)
_LOSES: Final = (
    "A pooler before the database loses prepared statements: say pgbouncer=true in the store's "
    "URL, without an option that prepares statements, or have your own engine prepare none."
)
UNPREPARED: Final[Mapping[str, Mapping[str, Any]]] = {
    "psycopg": {"prepare_threshold": None},
    "psycopg_async": {"prepare_threshold": None},
    "asyncpg": {
        "statement_cache_size": 0,
        "prepared_statement_cache_size": 0,
        # The server replaces the statement without a name by each next one.
        "prepared_statement_name_func": lambda: "",
    },
}
"""The options by which a driver prepares no statement that outlives its transaction."""


class Sessions:
    """The sessions of PostgreSQL behind the connections of lockgate's engines, and their use.

    Args:
        settings: the settings of a session that has one client, by name.
        are_shared: whether the URL says that there is a pooler.
    """

    def __init__(self, settings: Mapping[str, str], *, are_shared: bool = False) -> None:
        values = (f"set_config('{name}', '{value}', false)" for name, value in settings.items())
        self._begin: Final = f"SELECT {', '.join(values) or '1'} WHERE {_IS_OWN}"
        self._are_shared = are_shared
        self._never_prepares = False
        """Whether statements are not prepared even if the URL asks for it."""
        self._checked = False
        self._log: Final = MinutelyLog()
        self._used_since = -inf
        """Connections of a pool whose latest use began before this instant are replaced."""

    def attend(self, engine: Engine) -> None:
        """Begin the connections of an engine, and check them when its pool gives them out."""
        if engine.dialect.name == "postgresql":
            event.listen(engine, "do_connect", self._connect)
        event.listen(engine, "connect", self._connected)
        event.listen(engine, "checkout", self._check_out)

    def distrust(self) -> None:
        """Replace the present connections of the pools when they are next given out."""
        self._used_since = monotonic()

    def notice(self, failure: Exception) -> None:
        """Replace all connections if one was lost, or if their sessions turn out as shared.

        Args:
            failure: what a call failed with that is retried.
        """
        cause = failure.orig if isinstance(failure, DBAPIError) else failure
        if getattr(cause, "sqlstate", None) in SHARED_STATEMENT:
            self._are_shared = self._never_prepares = True
            self._log.error(_LOSES)
        elif not isinstance(failure, ConnectionLost):
            return
        self.distrust()

    def _connect(self, dialect: Dialect, _: Any, words: Any, options: dict[str, Any]) -> Any:
        if not self._are_shared:
            connection = dialect.connect(*words, **options)
            try:
                pid = _pid(connection.driver_connection if dialect.is_async else connection)
                self._are_shared = not _count(connection, self._begin.format(pid))
                if not self._are_shared:
                    return connection
            except BaseException:
                dialect.do_terminate(connection)
                raise
            dialect.do_terminate(connection)
        prepares = "prepare_threshold" in options and not self._never_prepares
        unprepared: Mapping[str, Any] = {} if prepares else UNPREPARED[dialect.driver]
        connection = dialect.connect(*words, **{**options, **unprepared})
        if not self._checked:
            self._checked = True
            if _count(connection, _UNLIMITED):
                logger.warning(
                    "Behind a pooler lockgate sets no time limits in the sessions of the database: "
                    "set lock_timeout = '5s' and idle_in_transaction_session_timeout = '10s' of "
                    "its role by ALTER ROLE ... SET."
                )
        return connection

    def _connected(self, _: object, record: Any) -> None:
        use_of(record)  # From here on its age is known.

    def _check_out(self, connection: Any, record: Any, _: object) -> None:
        if use_of(record).began < self._used_since:
            shut(record.driver_connection)  # Nothing is awaited from it any more.
            raise DisconnectionError


def _pid(driver: Any) -> int:
    """Return the number of the process that greeted a connection."""
    pid: int = (
        driver.get_server_pid() if hasattr(driver, "get_server_pid") else driver.info.backend_pid
    )
    return pid


def _count(connection: Any, query: str) -> int:
    """Return the number of rows of a query without values, which is not prepared."""
    if not hasattr(connection, "run_async"):
        connection.autocommit = True
        found: int = connection.execute(query).rowcount
        connection.autocommit = False
        return found

    async def counted(driver: Any) -> int:
        if hasattr(driver, "get_server_pid"):
            status: str = await driver.execute(query)  # Such as "SELECT 1".
            return int(status.rpartition(" ")[2])
        await driver.set_autocommit(True)
        found: int = (await driver.execute(query)).rowcount
        await driver.set_autocommit(False)
        return found

    counted_rows: int = connection.run_async(counted)
    return counted_rows
