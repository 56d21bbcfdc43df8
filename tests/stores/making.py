"""Factories of keys and accounts for tests of stores."""

from __future__ import annotations

from itertools import count
from uuid import UUID

from lockgate import PlanBook
from lockgate.core.accounts import AccountDraft
from lockgate.core.api_keys import KeyDraft
from lockgate.core.key_format import KeyFormat, NewKey, Token
from lockgate.testing import HandClock
from lockgate.testing.checks import in_threads as at_once
from lockgate.testing.clock import START as NOW
from lockgate.testing.factories import HOSTILE

__all__ = [
    "BOOK",
    "FORMAT",
    "HOSTILE",
    "NOW",
    "HandClock",
    "account",
    "at_once",
    "draft",
    "draft_of",
    "new_key",
    "token_of",
]

FORMAT = KeyFormat("acme")
BOOK = PlanBook()

_numbers = count(1)


def new_key(format: KeyFormat = FORMAT) -> NewKey:
    return format.generate()


def token_of(key: NewKey, format: KeyFormat = FORMAT) -> Token:
    return format.read([b"Bearer " + key.text.encode()])


def draft_of(
    key: NewKey,
    organization: str = "org_1",
    *,
    name: str = "a key",
    scopes: tuple[str, ...] = ("*",),
    lifetime: int | None = None,
    at: int = NOW,
    format: KeyFormat = FORMAT,
) -> KeyDraft:
    digest = format.digest(key)
    return KeyDraft(
        id=str(UUID(int=next(_numbers))),
        handle=key.handle,
        organization=organization,
        name=name,
        prefix=key.prefix,
        scopes=scopes,
        scheme=digest.scheme,
        digest=digest.value,
        seal=None,
        expires_at=None if lifetime is None else at + lifetime,
    )


def draft(
    organization: str = "org_1", *, lifetime: int | None = None, name: str = "a key"
) -> KeyDraft:
    return draft_of(new_key(), organization, name=name, lifetime=lifetime)


def account(
    organization: str = "org_1",
    *,
    email: str = "ada@example.com",
    company: str | None = None,
    agent: str = "an agent",
) -> AccountDraft:
    """An account with a new dashboard token."""
    token = new_key()
    digest = FORMAT.digest(token)
    return AccountDraft(
        organization=organization,
        agent_name=agent,
        billing_email=email,
        company_name=company,
        handle=token.handle,
        scheme=digest.scheme,
        digest=digest.value,
    )
