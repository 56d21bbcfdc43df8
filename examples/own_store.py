"""A store of one's own, on any database that can write a value on a condition.

Here it is the SQLite of the standard library; DynamoDB, etcd or Consul go the same way.

    python own_store.py

The kit certifies it: ``tests/examples/test_own_store.py``.
"""

import sqlite3
import threading

from lockgate import Gate, run
from lockgate.stores.key_value import Records, RecordStore

TABLE = """
CREATE TABLE IF NOT EXISTS record
    (name TEXT PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL, until INTEGER)
"""
# Of 64 random bits, for a count would begin again with a record that was dropped meanwhile.
NEW = "INSERT INTO record VALUES (?, ?, random(), ?) ON CONFLICT DO NOTHING"
CHANGE = "UPDATE record SET value=?, until=?, version=random() WHERE name=? AND version=?"
DROP = "DELETE FROM record WHERE name=? AND version=?"
FORGET = "DELETE FROM record WHERE until < ?"


class SqliteRecords(Records):
    """Records in a file, which the processes of one machine may share."""

    io = "sync"

    def __init__(self, path):
        self._path = path
        self._local = threading.local()
        self._connections = []
        self._writes = 0
        # Once, for SQLite has nobody wait for the lock that this takes.
        self._connection().executescript(f"PRAGMA journal_mode=WAL; {TABLE}")

    def _connection(self):
        if not hasattr(self._local, "connection"):
            connection = sqlite3.connect(
                self._path, timeout=30, isolation_level=None, check_same_thread=False
            )
            self._local.connection = connection
            self._connections.append(connection)
        return self._local.connection

    async def get(self, name):
        sql = "SELECT value, version FROM record WHERE name=?"
        return self._connection().execute(sql, [name]).fetchone()

    async def put_if(self, name, value, version, until):
        self._writes += 1
        if self._writes % 100 == 0:
            await self.forget(await self.now())
        if value is None:
            statement = DROP, (name, version)
        elif version is None:
            statement = NEW, (name, value, until)
        else:
            statement = CHANGE, (value, until, name, version)
        return self._connection().execute(*statement).rowcount == 1

    async def names(self, prefix):
        rows = self._connection().execute(
            "SELECT name FROM record WHERE name GLOB ?", [prefix + "*"]
        )
        return [name for (name,) in rows]

    async def forget(self, now):
        self._connection().execute(FORGET, [now])

    async def close(self):
        while self._connections:
            self._connections.pop().close()
        self._local = threading.local()


def store(path="own.db"):
    return RecordStore(SqliteRecords(path))


if __name__ == "__main__":
    gate = Gate(store(), brand="acme")
    print("key:    ", run(gate.keys.create("org_1", "first key")).text)
    run(gate.close())
