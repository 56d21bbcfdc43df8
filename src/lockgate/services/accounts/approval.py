"""Approval: let the host approve a registration before it is stored (D13)."""

import logging
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeAlias

from ...core.accounts import AccountType
from ...errors import RegistrationRefused, RegistrationUnavailable
from ...events import Events, logger
from ..host_calls import HostCalls

PROOF_LENGTH: Final = 4096
"""The maximum length of a proof, in characters."""


class RegistrationRequest(NamedTuple):
    """A registration that an agent asks for: validated, within its limits, not stored."""

    agent_name: str
    billing_email: str
    """Normalised and in lower case. It is unverified: it may belong to anyone."""
    account_type: AccountType
    company_name: str | None
    address: str
    """The network address of the client; an IPv6 one as its /64."""
    proof: str | None
    """The field ``proof``: a CAPTCHA's answer, a code from an e-mail, an invitation.
    Up to 4,096 printable characters of ASCII."""

    def __repr__(self) -> str:
        return f"<RegistrationRequest {self.agent_name!r}>"


Approve: TypeAlias = Callable[[RegistrationRequest], bool | Awaitable[bool]]
"""A plain or ``async`` function that returns whether an agent may register."""


class Approval:
    """Asks the host whether a registration is approved.

    Args:
        approve: the host's function.
        timeout: seconds that ``approve`` may take.
        events: receives ``approval_failed``.
    """

    def __init__(self, approve: Approve, timeout: float, events: Events) -> None:
        self._approve = approve
        self._timeout = timeout
        self._events = events
        self._calls = HostCalls("lockgate-approval")

    async def ask(self, request: RegistrationRequest) -> None:
        """Return if the registration is approved.

        Raises:
            RegistrationRefused: ``approve`` returned False.
            RegistrationUnavailable: ``approve`` raised, took too long, or returned neither True nor
                False; the traceback is logged (G7).
        """
        try:
            answer = await self._calls.call(lambda: self._approve(request), self._timeout)
            if not isinstance(answer, bool):
                raise TypeError(f"approve returned {type(answer).__name__}: return True or False")
        except Exception as failure:
            logger.exception("Registration(approve=...) failed")
            self._events.emit("approval_failed", logging.WARNING, error=type(failure).__qualname__)
            raise RegistrationUnavailable from failure
        if not answer:
            raise RegistrationRefused


def read_proof(proof: str | None, *, asked_for: bool) -> list[str]:
    """Return the problems of a proof; an empty list if it is valid."""
    if proof is None:
        return []
    if not asked_for:
        return ["This service asks for no proof: leave this out."]
    if 1 <= len(proof) <= PROOF_LENGTH and proof.isascii() and proof.isprintable():
        return []
    return [f"Use 1 to {PROOF_LENGTH:,} printable characters of ASCII."]
