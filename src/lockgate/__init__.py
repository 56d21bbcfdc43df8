"""API keys, scopes and per-organization rate limits that really hold."""

__version__ = "0.1.0"

import importlib
import typing

if typing.TYPE_CHECKING:
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
    from .services.accounts.settings import Registration
    from .services.leaks.settings import LeakedKey, LeakReports
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

_MODULES: typing.Final = {
    "PUBLIC": ".core.access_rule",
    "Actor": ".core.changes",
    "Catalogue": ".core.scopes",
    "ConcurrencySlot": ".services.reservations.slots",
    "ConfigurationError": ".errors",
    "Event": ".events",
    "Gate": ".gate",
    "Hold": ".services.reservations.hold_block",
    "ImportedKeyFormat": ".core.imported_keys",
    "LeakReports": ".services.leaks.settings",
    "LeakedKey": ".services.leaks.settings",
    "Limit": ".core.limits",
    "LockgateError": ".errors",
    "MemoryStore": ".stores",
    "Organization": ".core.plans",
    "Plan": ".core.plans",
    "PlanBook": ".core.plans",
    "Principal": ".principal",
    "Refusal": ".errors",
    "Registration": ".services.accounts.settings",
    "RegistrationRequest": ".services.accounts.approval",
    "Rule": ".core.access_rule",
    "Store": ".stores",
    "UsageHistory": ".services.usage.settings",
    "acting": ".core.changes",
    "open_store": ".stores",
    "run": ".sync",
}
"""The module of each public name, which is imported when the name is first used (PEP 562)."""


if not typing.TYPE_CHECKING:  # Or type checkers would accept any name.

    def __getattr__(name: str) -> object:
        """Import a public name from its module."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
        value: object = getattr(importlib.import_module(_MODULES[name], __name__), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        """Return the names of the package, those that were not used yet included."""
        return sorted({*globals(), *__all__})
