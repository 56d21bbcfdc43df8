"""API keys, scopes and per-organization rate limits that really hold."""

__version__ = "0.1.0"

from .core.access_rule import PUBLIC, Rule
from .core.changes import Actor, acting
from .core.imported_keys import ImportedKeyFormat
from .core.limits import Limit
from .core.plans import Organization, Plan, PlanBook
from .core.scopes import Catalogue
from .errors import ConfigurationError, LockgateError, Refusal
from .events import Event
from .gate import Gate
from .principal import Principal
from .services.accounts.approval import RegistrationRequest
from .services.accounts.registration import Registration
from .services.leaks.leak_reports import LeakedKey, LeakReports
from .services.reservations.hold_block import Hold
from .services.reservations.slots import ConcurrencySlot
from .services.usage.settings import UsageHistory
from .stores import MemoryStore, Store, open_store
from .sync import run

__all__ = [
    "PUBLIC",
    "Actor",
    "Catalogue",
    "ConcurrencySlot",
    "ConfigurationError",
    "Event",
    "Gate",
    "Hold",
    "ImportedKeyFormat",
    "LeakReports",
    "LeakedKey",
    "Limit",
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
    "UsageHistory",
    "acting",
    "open_store",
    "run",
]
