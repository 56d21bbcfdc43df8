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
from .base import Store, WindowStore
from .key_store import KeyStore
from .memory.store import MemoryStore
from .open import open_store

__all__ = [
    "Admission",
    "Census",
    "KeyStore",
    "MemoryStore",
    "OutcomeUnknown",
    "PartUnavailable",
    "Removal",
    "Store",
    "StoreError",
    "UnreadableState",
    "Verdict",
    "WindowStore",
    "open_store",
]
