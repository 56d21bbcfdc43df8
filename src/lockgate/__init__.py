"""API keys, scopes and per-organization rate limits that really hold."""

from .errors import ConfigurationError, LockgateError, Refusal
from .events import Event
from .gate import Gate
from .principal import Principal
from .rules.plans import Plan, PlanBook
from .rules.routes import PUBLIC, Rule
from .rules.scopes import Catalogue
from .run import run
from .stores import MemoryStore, Store, open_store

__all__ = [
    "PUBLIC",
    "Catalogue",
    "ConfigurationError",
    "Event",
    "Gate",
    "LockgateError",
    "MemoryStore",
    "Plan",
    "PlanBook",
    "Principal",
    "Refusal",
    "Rule",
    "Store",
    "open_store",
    "run",
]
