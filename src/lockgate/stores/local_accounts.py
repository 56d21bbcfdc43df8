"""Accounts kept in this process: those of the memory store."""

from collections.abc import Iterable, Iterator
from itertools import islice

from ..errors import HandleTaken
from ..rules.accounts import Account
from ..rules.digests import Digest
from .contract import Reseal


class LocalAccounts:
    """A table of accounts. Whoever uses it holds a lock around every call.

    They are kept as plain tuples, which a garbage collection does not walk.
    """

    def __init__(self) -> None:
        self._rows: dict[str, tuple[object, ...]] = {}
        self._organization_by_handle: dict[str, str] = {}
        self._organizations_by_email: dict[str, tuple[str, ...]] = {}
        self._organizations_by_user: dict[str, tuple[str, ...]] = {}

    def add(self, account: Account) -> Account:
        """Keep a new account.

        Raises:
            HandleTaken: its organization or its token's handle is here already.
        """
        organization, email = account.organization, account.billing_email
        if organization in self._rows or account.handle in self._organization_by_handle:
            raise HandleTaken
        self._rows[organization] = tuple(account)
        self._organization_by_handle[account.handle] = organization
        _append(self._organizations_by_email, email, organization)
        return account

    def get(self, organization: str) -> Account | None:
        """The account of an organization."""
        row = self._rows.get(organization)
        return None if row is None else Account._make(row)

    def by_handle(self, handle: str) -> Account | None:
        """The account whose token has this handle."""
        organization = self._organization_by_handle.get(handle)
        return None if organization is None else self.get(organization)

    def by_email(self, billing_email: str) -> tuple[Account, ...]:
        """The accounts with this billing e-mail: newest first, then by organization."""
        accounts = self._those(self._organizations_by_email.get(billing_email, ()))
        return tuple(sorted(accounts, key=lambda a: (-a.created_at, a.organization)))

    def by_user(self, user: str) -> tuple[Account, ...]:
        """The accounts that a user claimed: latest claim first, then by organization."""
        accounts = self._those(self._organizations_by_user.get(user, ()))
        return tuple(sorted(accounts, key=lambda a: (-(a.claimed_at or 0), a.organization)))

    def claim(
        self, organization: str, user: str, revoke: bool, seals: Reseal, now: int
    ) -> Account | None:
        """Make an account the user's if nobody has claimed it, and revoke its token if asked to."""
        account = self.get(organization)
        if account is None:
            return None
        if account.claimed_by is None and account.seal == seals[0]:
            account = account._replace(claimed_by=user, claimed_at=now, seal=seals[1])
            _append(self._organizations_by_user, user, organization)
        if revoke and account.claimed_by == user and account.token_revoked_at is None:
            account = account._replace(token_revoked_at=now)
        self._rows[organization] = tuple(account)
        return account

    def sign_out(self, organization: str) -> None:
        """Count that the sessions of an account's agent were ended."""
        account = self.get(organization)
        if account is not None:
            self._rows[organization] = tuple(account._replace(sign_outs=account.sign_outs + 1))

    def rehash(self, handle: str, old: Digest, new: Digest) -> bool:
        """Replace the digest of a token if it still is ``old``."""
        account = self.by_handle(handle)
        if account is None or account.kept != old:
            return False
        rehashed = account._replace(scheme=new.scheme, digest=new.value, seal=new.seal)
        self._rows[account.organization] = tuple(rehashed)
        return True

    def some(self, start: int, limit: int) -> list[Account]:
        """Return so many accounts, in the order of their registration."""
        return [*map(Account._make, islice(self._rows.values(), start, start + limit))]

    def __len__(self) -> int:
        return len(self._rows)

    def _those(self, organizations: Iterable[str]) -> Iterator[Account]:
        return (Account._make(self._rows[organization]) for organization in organizations)


def _append(index: dict[str, tuple[str, ...]], name: str, organization: str) -> None:
    index[name] = (*index.get(name, ()), organization)
