"""API keys, scopes and per-organization rate limits that really hold."""

from .errors import ConfigurationError, LockgateError, Refusal
from .events import Event
from .flows.accounts import Registration
from .flows.approval import RegistrationRequest
from .flows.slot import Slot
from .gate import Gate
from .principal import Principal
from .rules.access_rule import PUBLIC, Rule
from .rules.legacy import Legacy
from .rules.plans import Organization, Plan, PlanBook
from .rules.scopes import Catalogue
from .run import run
from .stores import MemoryStore, Store, open_store

__all__ = [
    "PUBLIC",
    "Catalogue",
    "ConfigurationError",
    "Event",
    "Gate",
    "Legacy",
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
    "Slot",
    "Store",
    "open_store",
    "run",
]
