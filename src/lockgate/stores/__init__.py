"""First floor: the only I/O. What a store must do is in :mod:`lockgate.stores.contract`."""

from .contract import (
    AccountStore,
    Admission,
    Census,
    KeyStore,
    Removal,
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
    "Census",
    "KeyStore",
    "MemoryStore",
    "Removal",
    "SlotStore",
    "Store",
    "Verdict",
    "WindowStore",
    "open_store",
]
