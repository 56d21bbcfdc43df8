"""A whole store over any database that keeps values by name and writes them on a condition.

:class:`Records` is what every key-value database has in some form: read a value with its version,
write one if the version still is that. :class:`RecordStore` builds every verb of the contract on
it. All that concerns an organization lies in one record, so that each verb is one conditional
write, repeated when another caller was faster: no change is ever half done.
"""

from .storage import Records
from .store import RecordStore

__all__ = ["RecordStore", "Records"]
