"""Stores: keys, plans, windows and slots. Their contract is :mod:`lockgate.stores.base`."""

from .answers import (
    Admission,
    Census,
    OutcomeUnknown,
    PartUnavailable,
    Removal,
    StoreError,
    UnreadableState,
    Verdict,
)
from .base import AccountStore, KeyStore, SlotStore, Store, WindowStore
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
