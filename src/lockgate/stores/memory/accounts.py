"""The accounts of the memory store."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from heapq import heappop, heappush

from ...core.accounts import Account
from ...core.api_keys import Position


class LocalAccounts:
    """A table of accounts. Callers hold a lock around every call.

    Rows are plain tuples, which the garbage collector does not track.
    """

    def __init__(self) -> None:
        self.rows: dict[str, tuple[object, ...]] = {}
        """By organization."""
        self._organization_by_handle: dict[str, str] = {}
        self._unclaimed_by_email: dict[str, tuple[tuple[int, str], ...]] = {}
        """Positions in ascending order; the index by user is alike."""
        self._claimed_by_user: dict[str, tuple[tuple[int, str], ...]] = {}
        self._due_at: dict[str, int] = {}
        """By organization of an unclaimed account, the earliest instant of its last use."""
        self._reviews: list[tuple[int, str]] = []
        """A heap of these, with entries that are no longer right."""
        self._numbers: dict[str, int] = {}
        """Accounts by insertion number, with the inverse below."""
        self._organizations: dict[int, str] = {}
        self._next = 0

    def is_taken(self, account: Account) -> bool:
        """Return whether the organization has an account, or another account the handle."""
        return account.organization in self.rows or account.handle in self._organization_by_handle

    def add(self, account: Account) -> None:
        """Insert an account that is not taken."""
        organization = account.organization
        self.rows[organization] = tuple(account)
        self._organization_by_handle[account.handle] = organization
        self._enter(account)
        self._numbers[organization], self._organizations[self._next] = self._next, organization
        self._next += 1

    def replace(self, old: Account, new: Account) -> None:
        """Replace an account by another version of it."""
        self.rows[old.organization] = tuple(new)
        if old.claimed_by != new.claimed_by:
            self._leave(old)
            self._enter(new)

    def remove(self, account: Account) -> None:
        """Remove an account; the handle of its token becomes free."""
        self._leave(account)
        del self.rows[account.organization]
        del self._organizations[self._numbers.pop(account.organization)]
        del self._organization_by_handle[account.handle]

    def get(self, organization: str) -> Account | None:
        """Return the account of an organization."""
        row = self.rows.get(organization)
        return None if row is None else Account._make(row)

    def by_handle(self, handle: str) -> Account | None:
        """Return the account of the token with this handle."""
        organization = self._organization_by_handle.get(handle)
        return None if organization is None else self.get(organization)

    def unclaimed_by_email(
        self, billing_email: str, limit: int, after: Position | None
    ) -> list[Account]:
        """Return unclaimed accounts of a billing e-mail: oldest first, then by organization."""
        positions = self._unclaimed_by_email.get(billing_email, ())
        start = 0 if after is None else bisect_right(positions, after)
        return self._those(positions[start : start + limit])

    def by_user(self, user: str, limit: int, after: Position | None) -> list[Account]:
        """Return a user's accounts: latest claim first, then by descending organization."""
        positions = self._claimed_by_user.get(user, ())
        end = len(positions) if after is None else bisect_left(positions, after)
        return self._those(reversed(positions[max(0, end - limit) : end]))

    def unused(self, since: int, limit: int) -> list[str]:
        """Return up to ``limit`` organizations of unclaimed accounts that may be unused since an
        instant: those that can be longest first."""
        found: list[tuple[int, str]] = []
        while self._reviews and self._reviews[0][0] <= since and len(found) < limit:
            entry = heappop(self._reviews)
            if self._due_at.get(entry[1]) == entry[0]:
                found.append(entry)
        for entry in found:
            heappush(self._reviews, entry)
        return [organization for _, organization in found]

    def used(self, organization: str, last_use: int | None) -> None:
        """Note the latest known use of an account; None: it needs no review."""
        self._due_at.pop(organization, None)
        if last_use is not None:
            self._due_at[organization] = last_use
            heappush(self._reviews, (last_use, organization))

    def numbered(self, start: int, limit: int) -> tuple[list[Account], int | None]:
        """Return up to ``limit`` accounts by their numbers, and the next number; None after the
        last."""
        end = start + limit
        names = (self._organizations.get(n) for n in range(start, min(end, self._next)))
        accounts = [Account._make(self.rows[name]) for name in names if name is not None]
        return accounts, end if end < self._next else None

    def _enter(self, account: Account) -> None:
        index, name, position = self._entry(account)
        positions = list(index.get(name, ()))
        insort(positions, position)
        index[name] = tuple(positions)
        is_claimed = account.claimed_by is not None
        self.used(account.organization, None if is_claimed else account.created_at)

    def _leave(self, account: Account) -> None:
        index, name, position = self._entry(account)
        index[name] = tuple(other for other in index[name] if other != position)
        if not index[name]:
            del index[name]
        self.used(account.organization, None)

    def _entry(
        self, account: Account
    ) -> tuple[dict[str, tuple[tuple[int, str], ...]], str, tuple[int, str]]:
        """Return the index that has an account, and its name and position there."""
        if account.claimed_by is None:
            position = account.created_at, account.organization
            return self._unclaimed_by_email, account.billing_email, position
        position = account.claimed_at or 0, account.organization
        return self._claimed_by_user, account.claimed_by, position

    def _those(self, positions: Iterable[tuple[int, str]]) -> list[Account]:
        return [Account._make(self.rows[organization]) for _, organization in positions]
