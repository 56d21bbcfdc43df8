"""A store on any key-value database with compare-and-set.

:class:`Records` is the interface to the database: read a value with its version, and write a value
if its version is unchanged. :class:`RecordStore` implements the contract on it, and
:class:`RecordKeys` that of a key store alone. All data of an organization is in one record, so each
verb is one conditional write, repeated after a conflict, and no change is partial.
"""

from .keys import RecordKeys
from .storage import Records
from .store import RecordStore

__all__ = ["RecordKeys", "RecordStore", "Records"]
