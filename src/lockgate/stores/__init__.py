"""First floor: the only I/O. What a store must do is in :mod:`lockgate.stores.contract`."""

from .contract import (
    AccountStore,
    Admission,
    KeyStore,
    SlotStore,
    Store,
    Verdict,
    WindowStore,
)
from .memory import MemoryStore
from .urls import open_store

__all__ = [
    "AccountStore",
    "Admission",
    "KeyStore",
    "MemoryStore",
    "SlotStore",
    "Store",
    "Verdict",
    "WindowStore",
    "open_store",
]
