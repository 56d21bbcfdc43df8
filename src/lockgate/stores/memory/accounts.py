"""The accounts of the memory store."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from heapq import heappop, heappush

from ...core.accounts import Account
from ...core.api_keys import Position
from ...core.digests import Digest
from ...errors import HandleTaken
from ..answers import Reseal


class LocalAccounts:
    """A table of accounts. Callers hold a lock around every call.

    Rows are plain tuples, which the garbage collector does not track.
    """

    def __init__(self) -> None:
        self._rows: dict[str, tuple[object, ...]] = {}
        self._organization_by_handle: dict[str, str] = {}
        self._unclaimed_by_email: dict[str, tuple[tuple[int, str], ...]] = {}
        """Positions in ascending order; the index by user is alike."""
        self._claimed_by_user: dict[str, tuple[tuple[int, str], ...]] = {}
        self._reviews: list[tuple[int, str]] = []
        """A heap of unclaimed accounts by the instant since which each may be unused."""
        self._numbers: dict[str, int] = {}
        """Accounts by insertion number, with the inverse below."""
        self._organizations: dict[int, str] = {}
        self._next = 0

    def add(self, account: Account) -> Account:
        """Insert an account.

        Raises:
            HandleTaken: its organization or its token's handle exists.
        """
        organization = account.organization
        if organization in self._rows or account.handle in self._organization_by_handle:
            raise HandleTaken
        self._rows[organization] = tuple(account)
        self._organization_by_handle[account.handle] = organization
        position = (account.created_at, organization)
        _insert(self._unclaimed_by_email, account.billing_email, position)
        heappush(self._reviews, position)
        self._numbers[organization], self._organizations[self._next] = self._next, organization
        self._next += 1
        return account

    def get(self, organization: str) -> Account | None:
        """Return the account of an organization."""
        row = self._rows.get(organization)
        return None if row is None else Account._make(row)

    def by_handle(self, handle: str) -> Account | None:
        """Return the account of the token with this handle."""
        organization = self._organization_by_handle.get(handle)
        return None if organization is None else self.get(organization)

    def unclaimed_by_email(
        self, billing_email: str, limit: int, after: Position | None
    ) -> tuple[Account, ...]:
        """Return unclaimed accounts of a billing e-mail: oldest first, then by organization."""
        positions = self._unclaimed_by_email.get(billing_email, ())
        start = 0 if after is None else bisect_right(positions, after)
        return self._those(positions[start : start + limit])

    def by_user(self, user: str, limit: int, after: Position | None) -> tuple[Account, ...]:
        """Return a user's accounts: latest claim first, then by descending organization."""
        positions = self._claimed_by_user.get(user, ())
        end = len(positions) if after is None else bisect_left(positions, after)
        return self._those(reversed(positions[max(0, end - limit) : end]))

    def claim(
        self, organization: str, user: str, *, keep_token: bool, seals: Reseal, now: int
    ) -> Account | None:
        """Assign an unclaimed account to a user, and revoke its token unless ``keep_token``."""
        account = self.get(organization)
        if account is None:
            return None
        if account.claimed_by is None and account.seal == seals[0]:
            account = account._replace(claimed_by=user, claimed_at=now, seal=seals[1])
            _insert(self._claimed_by_user, user, (now, organization))
            position = (account.created_at, organization)
            _discard(self._unclaimed_by_email, account.billing_email, position)
        if not keep_token and account.claimed_by == user and account.token_revoked_at is None:
            account = account._replace(token_revoked_at=now)
        self._rows[organization] = tuple(account)
        return account

    def due(self, edge: int) -> Account | None:
        """Take an unclaimed account out of review that may have been unused since ``edge``.

        A claimed account needs no further review and is skipped.
        """
        while self._reviews and self._reviews[0][0] <= edge:
            account = self.get(heappop(self._reviews)[1])
            if account is not None and account.claimed_by is None:
                return account
        return None

    def review(self, organization: str, since: int) -> None:
        """Schedule the review of an account that may be unused since an instant."""
        heappush(self._reviews, (since, organization))

    def remove(self, account: Account) -> None:
        """Remove an unclaimed account that is due."""
        del self._rows[account.organization]
        del self._organizations[self._numbers.pop(account.organization)]
        del self._organization_by_handle[account.handle]
        position = (account.created_at, account.organization)
        _discard(self._unclaimed_by_email, account.billing_email, position)

    def sign_in(self, organization: str, now: int) -> Account | None:
        """Record a sign-in; None if the token is revoked."""
        account = self.get(organization)
        if account is None or account.token_revoked_at is not None:
            return None
        account = account._replace(signed_in_at=max(now, account.signed_in_at or now))
        self._rows[organization] = tuple(account)
        return account

    def sign_out(self, organization: str) -> None:
        """Add one to the sign-outs of an account."""
        account = self.get(organization)
        if account is not None:
            self._rows[organization] = tuple(account._replace(sign_outs=account.sign_outs + 1))

    def rehash(self, handle: str, old: Digest, new: Digest) -> bool:
        """Replace the digest and seal of a token if they still are ``old``."""
        account = self.by_handle(handle)
        if account is None or account.kept != old:
            return False
        rehashed = account._replace(scheme=new.scheme, digest=new.value, seal=new.seal)
        self._rows[account.organization] = tuple(rehashed)
        return True

    def numbered(self, start: int, limit: int) -> tuple[list[Account], int | None]:
        """Return up to ``limit`` accounts by their numbers, and the next number; None after the
        last."""
        end = start + limit
        names = (self._organizations.get(n) for n in range(start, min(end, self._next)))
        accounts = [Account._make(self._rows[name]) for name in names if name is not None]
        return accounts, end if end < self._next else None

    def _those(self, positions: Iterable[tuple[int, str]]) -> tuple[Account, ...]:
        return tuple(Account._make(self._rows[organization]) for _, organization in positions)


Index = dict[str, tuple[tuple[int, str], ...]]


def _insert(index: Index, name: str, position: tuple[int, str]) -> None:
    positions = list(index.get(name, ()))
    insort(positions, position)
    index[name] = tuple(positions)


def _discard(index: Index, name: str, position: tuple[int, str]) -> None:
    index[name] = tuple(other for other in index[name] if other != position)
    if not index[name]:
        del index[name]
