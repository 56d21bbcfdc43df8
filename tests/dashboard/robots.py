"""Agents that register, for the pages of their owners."""

from __future__ import annotations

from typing import Any

from lockgate import Gate, Registration, run
from lockgate.services.accounts.registration import Registered

from .consoles import Console, make_gate

SECRETS = ["the secret of the agents' sessions in tests"]


def make_gate_with_agents(origin: str, **fields: Any) -> Gate:
    registration = Registration(
        session_secrets=SECRETS,
        dashboard_url=f"{origin}/settings/claim",
        per_address=1000,
        per_email=100,
        per_network=None,
        per_service=None,
        development=True,
    )
    return make_gate(origin, registration=registration, **fields)


def register(console: Console, email: str, name: str = "an agent") -> Registered:
    """Register an agent."""
    accounts = console.gate.accounts
    assert accounts is not None
    return run(accounts.register(name, email, address="192.0.2.9"))
