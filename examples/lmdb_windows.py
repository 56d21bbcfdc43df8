"""A window store of one's own: windows, slots and holds in LMDB, an embedded database.

It keeps no keys, so it is a part of a store. The processes of one machine may share its folder.

    pip install lmdb
    python lmdb_windows.py

The kit certifies it: ``tests/examples/test_lmdb_windows.py``.
"""

from hashlib import sha256
from time import time_ns

import lmdb

from lockgate import run
from lockgate.core.ledger import Hit
from lockgate.core.sliding_window import Window
from lockgate.stores import WindowStore
from lockgate.stores.key_value.record import Record


class LmdbWindows(WindowStore):
    """Each ledger is a record in a transaction that excludes all others, of processes too."""

    io = "sync"

    def __init__(self, path="windows.lmdb"):
        self.path = path
        self._database = lmdb.open(path, map_size=2**30)

    async def charge(self, owner, action, now=None):
        name = sha256(owner.encode("utf-8", "surrogatepass")).digest()
        with self._database.begin(write=True) as transaction:
            record = Record.read(transaction.get(name) or None)
            answer = record.charge(action, owner, time_ns() // 1000 if now is None else now)
            transaction.put(name, record.written() or b"")
        return answer

    async def close(self):
        self._database.close()


if __name__ == "__main__":
    store = LmdbWindows()
    reading = run(store.charge("org_1", Hit((Window("minute", 60_000_000, 100, 1_000_000),), 1)))
    print("used:", reading.used[0])
    run(store.close())
