"""Stores: keys, plans, windows and slots. Their contract is :mod:`lockgate.stores.base`."""

from .base import (
    AccountStore,
    Admission,
    Census,
    KeyStore,
    OutcomeUnknown,
    PartUnavailable,
    Removal,
    SlotStore,
    Store,
    StoreError,
    UnreadableState,
    Verdict,
    WindowStore,
)
from .memory.store import MemoryStore
from .open import open_store

__all__ = [
    "AccountStore",
    "Admission",
    "Census",
    "KeyStore",
    "MemoryStore",
    "OutcomeUnknown",
    "PartUnavailable",
    "Removal",
    "SlotStore",
    "Store",
    "StoreError",
    "UnreadableState",
    "Verdict",
    "WindowStore",
    "open_store",
]
