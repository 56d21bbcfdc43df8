"""API keys, scopes and per-organization rate limits that really hold."""

from .core.access_rule import PUBLIC, Rule
from .core.imported_keys import ImportedKeyFormat
from .core.plans import Organization, Plan, PlanBook
from .core.scopes import Catalogue
from .errors import ConfigurationError, LockgateError, Refusal
from .events import Event
from .gate import Gate
from .principal import Principal
from .services.approval import RegistrationRequest
from .services.concurrency import ConcurrencySlot
from .services.registration import Registration
from .stores import MemoryStore, Store, open_store
from .sync import run

__all__ = [
    "PUBLIC",
    "Catalogue",
    "ConcurrencySlot",
    "ConfigurationError",
    "Event",
    "Gate",
    "ImportedKeyFormat",
    "LockgateError",
    "MemoryStore",
    "Organization",
    "Plan",
    "PlanBook",
    "Principal",
    "Refusal",
    "Registration",
    "RegistrationRequest",
    "Rule",
    "Store",
    "open_store",
    "run",
]
