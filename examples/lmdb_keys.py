"""A key store of one's own: keys, accounts, plans and the change log in LMDB, an embedded database.

It keeps no windows, so it is a part of a store. The processes of one machine may share its folder.

    pip install lmdb
    python lmdb_keys.py

The kit certifies it: ``tests/examples/test_lmdb_keys.py``.
"""

import lmdb

from lockgate import run
from lockgate.core.plans import Organization
from lockgate.stores.key_value import RecordKeys, Records

LARGEST = 2**30
"""Bytes that the file may grow to; LMDB reserves no more than it needs."""
VERSION = 8
"""Bytes of the version that stands before each value."""


class LmdbRecords(Records):
    """Records in a folder. A transaction that writes excludes all others, also of other processes.

    ``until`` is of no use here: only windows expire.
    """

    io = "sync"

    def __init__(self, path):
        self.path = path
        self._database = lmdb.open(path, map_size=LARGEST)

    async def get(self, name):
        with self._database.begin() as transaction:
            return self._read(transaction, name)

    async def put_if(self, name, value, version, until):
        with self._database.begin(write=True) as transaction:
            before = self._read(transaction, name)
            if (before and before[1]) != version:
                return False
            if value is None:
                transaction.delete(name.encode())
            else:
                # The number of the transaction, which no later one has.
                number = transaction.id().to_bytes(VERSION)
                transaction.put(name.encode(), number + value)
            return True

    async def names(self, prefix):
        names = []
        with self._database.begin() as transaction, transaction.cursor() as cursor:
            if cursor.set_range(prefix.encode()):
                for name in cursor.iternext(values=False):
                    if not name.startswith(prefix.encode()):
                        break
                    names.append(name.decode())
        return names

    async def close(self):
        self._database.close()

    @staticmethod
    def _read(transaction, name):
        """Return a value and its version."""
        kept = transaction.get(name.encode())
        return kept and (kept[VERSION:], int.from_bytes(kept[:VERSION]))


def key_store(path="keys.lmdb"):
    return RecordKeys(LmdbRecords(path))


if __name__ == "__main__":
    store = key_store()
    before = run(store.organization("org_1"))
    run(store.put_organization(Organization("org_1", "enterprise", (("rpm", 100),))))
    print("new:", before is None)
    run(store.close())
