"""A gate with registration of agents, and people who claim accounts."""

from __future__ import annotations

from typing import Any

from lockgate import Event, Gate, MemoryStore, Registration, Store, run
from lockgate.options import StoreOptions, WebOptions
from lockgate.services.accounts.registration import AgentAccounts, Registered
from lockgate.sessions import Session, SignedCookie

from ...stores.making import HandClock

SECRET = "a session secret of the tests"
ORIGIN = "https://console.example.com"
PEPPER = b"a pepper of the tests"
EMAIL = "ada@example.com"
ADDRESS = "192.0.2.1"


class Office:
    """A gate with registration, and a clock moved by hand."""

    def __init__(
        self,
        store: Store | None = None,
        *,
        peppers: tuple[bytes, ...] = (PEPPER,),
        clock: HandClock | None = None,
        **registration: Any,
    ) -> None:
        self.clock = clock or HandClock()
        self.told: list[Event] = []
        self.store = store or MemoryStore(self.clock)
        self.people = SignedCookie([SECRET])
        self.gate = Gate(
            self.store,
            brand="acme",
            peppers=peppers,
            sessions=self.people,
            web_options=WebOptions(public_url=ORIGIN),
            store_options=StoreOptions(clock=self.clock),
            observer=self.told.append,
            features=[
                Registration(
                    **{
                        "session_secrets": [SECRET],
                        # A busy machine may take long to call a function of the host.
                        "approve_timeout": 60,
                        "billing_timeout": 60,
                        **registration,
                    }
                )
            ],
        )

    @property
    def accounts(self) -> AgentAccounts:
        assert self.gate.accounts is not None
        return self.gate.accounts

    def register(
        self, email: str = EMAIL, *, address: str = ADDRESS, agent: str = "an agent"
    ) -> Registered:
        return run(self.accounts.register(agent, email, address=address))

    def names(self) -> list[str]:
        return [event.name for event in self.told]


def person(
    user: str | None = "ada", email: str | None = EMAIL, organization: str | None = None
) -> Session:
    return Session(organization, user, email)
