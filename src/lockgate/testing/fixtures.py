"""A gate for tests: an organization on each plan, with a key and a session."""

from collections.abc import Mapping
from dataclasses import replace
from secrets import token_urlsafe
from typing import Any, Final, NamedTuple

from ..core.plans import LIMITS
from ..gate import Gate
from ..options import StoreOptions, WebOptions
from ..sessions import SESSION_COOKIE, Session, SignedCookie
from ..stores.memory.store import MemoryStore
from .clock import HandClock

CUSTOM_LIMIT: Final = 1_000
"""Each limit of an organization on a plan with custom numbers."""


class Tenant(NamedTuple):
    """An organization for tests, with a key and a session."""

    id: str
    plan: str
    key: str
    """The text of a key with all scopes."""
    key_id: str
    session: str
    """The value of a session cookie; empty unless the gate uses a ``SignedCookie``."""
    cookie_name: str = SESSION_COOKIE

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a request with the key."""
        return {"Authorization": f"Bearer {self.key}"}

    @property
    def cookies(self) -> dict[str, str]:
        """The cookies of a request from the dashboard."""
        return {self.cookie_name: self.session}

    def __repr__(self) -> str:
        return f"<Tenant {self.id} on {self.plan}>"


def settings(clock: HandClock, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments of a gate for tests: memory, a clock moved by hand, signed sessions.

    Args:
        clock: the clock of the gate and its store.
        given: arguments of the host, which come first.
    """
    web: WebOptions = given.get("web_options") or WebOptions()
    store: StoreOptions = given.get("store_options") or StoreOptions()
    return {
        "store": MemoryStore(clock),
        "brand": "test",
        "sessions": SignedCookie([token_urlsafe()]),
        **given,
        "web_options": replace(web, public_url=web.public_url or "http://testserver"),
        "store_options": replace(store, clock=store.clock or clock),
    }


async def furnish(gate: Gate) -> dict[str, Tenant]:
    """Create an organization on each plan of a gate, with a key and a session.

    Args:
        gate: any gate without organizations named ``org_<plan>``. Sessions are issued if its
            verifier is a :class:`~lockgate.sessions.SignedCookie`.
    """
    tenants: dict[str, Tenant] = {}
    for name in gate.plans.names:
        id = f"org_{name}"
        own = dict.fromkeys(LIMITS if name in gate.plans.custom else (), CUSTOM_LIMIT)
        await gate.organizations.place(id, name, **own)
        created = await gate.keys.create(id, f"key of {id}")
        session = Session(id, f"owner of {id}", f"owner@{name}.example")
        issues = gate.sessions if isinstance(gate.sessions, SignedCookie) else None
        cookie = issues.issue(session) if issues else ""
        named = gate.session_access.cookie or SESSION_COOKIE
        tenants[name] = Tenant(id, name, created.text, created.key.id, cookie, named)
    return tenants
