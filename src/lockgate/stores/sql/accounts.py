"""Accounts in SQL: what each verb does within its transaction."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, insert, or_, select, update

from ...rules.accounts import Account, AccountDraft
from ...rules.digests import Digest
from ...rules.keys import ApiKey, KeyDraft
from ..contract import Reseal
from .encoding import read_account, write_account, write_id, write_key
from .keys import columns_of, kept_as
from .tables import Tables


class Accounts:
    """The statements of accounts, on a connection that whoever calls begins and commits.

    Args:
        tables: where.
    """

    def __init__(self, tables: Tables) -> None:
        self._organizations: Final = tables.organizations
        self._accounts: Final = tables.accounts
        self._keys: Final = tables.keys

    def register(
        self, connection: Connection, account: AccountDraft, key: KeyDraft, now: int
    ) -> tuple[Account, ApiKey]:
        """Insert an account and a key; their organization is there, and locked."""
        made, first = account.created(now), key.created(now)
        connection.execute(insert(self._accounts), write_account(made))
        connection.execute(insert(self._keys), write_key(first))
        return made, first

    def taken(self, connection: Connection, account: AccountDraft, key: KeyDraft) -> bool:
        """Whether something that is to be unique is there already."""
        accounts, keys = self._accounts, self._keys
        organization = accounts.c.organization == write_id(account.organization)
        taken = (
            select(1).where(or_(organization, accounts.c.handle == account.handle)),
            select(1).where(or_(keys.c.handle == key.handle, keys.c.id == key.id)),
        )
        return any(connection.scalar(statement) for statement in taken)

    def get(self, connection: Connection, organization: str) -> Account | None:
        """The account of an organization."""
        return self._one(connection, self._accounts.c.organization == write_id(organization))

    def by_handle(self, connection: Connection, handle: str) -> Account | None:
        """The account whose token has this handle."""
        return self._one(connection, self._accounts.c.handle == handle)

    def by_email(self, connection: Connection, billing_email: str) -> tuple[Account, ...]:
        """The accounts with this billing e-mail: newest first, then by organization."""
        columns = self._accounts.c
        mine = columns.billing_email == write_id(billing_email)
        return self._all(connection, mine, columns.created_at)

    def by_user(self, connection: Connection, user: str) -> tuple[Account, ...]:
        """The accounts that a user claimed: latest claim first, then by organization."""
        columns = self._accounts.c
        return self._all(connection, columns.claimed_by == write_id(user), columns.claimed_at)

    def lock(self, connection: Connection, organization: str) -> bool:
        """Lock an organization, as it is where a key is inserted; whether there is one.

        So an insert at the same time as a claim is over, and its key revoked, or comes after it.
        """
        table = self._organizations
        mine = select(table.c.id).where(table.c.id == write_id(organization)).with_for_update()
        return connection.scalar(mine) is not None

    def claim(
        self,
        connection: Connection,
        organization: str,
        user: str,
        revoke: bool,
        seals: Reseal,
        now: int,
    ) -> Account | None:
        """Make an account the user's if nobody has claimed it; revoke what there is, if asked to.

        The organization is locked.
        """
        id, columns = write_id(organization), self._accounts.c
        mine = columns.organization == id
        old, new = seals
        as_read = columns.seal.is_(None) if old is None else columns.seal == old
        claim = update(self._accounts).where(mine, columns.claimed_by.is_(None), as_read)
        connection.execute(claim.values(claimed_by=write_id(user), claimed_at=now, seal=new))
        account = self._one(connection, mine)
        if account is None or account.claimed_by != user or not revoke:
            return account
        keys = self._keys.c
        live = keys.organization == id, keys.ends_at > now, keys.revoked_at.is_(None)
        connection.execute(update(self._keys).where(*live).values(revoked_at=now, ends_at=now))
        good = update(self._accounts).where(mine, columns.token_revoked_at.is_(None))
        connection.execute(good.values(token_revoked_at=now))
        return self._one(connection, mine)

    def sign_out(self, connection: Connection, organization: str) -> None:
        """Count that the sessions of an account's agent were ended."""
        columns = self._accounts.c
        mine = columns.organization == write_id(organization)
        more = update(self._accounts).where(mine).values(sign_outs=columns.sign_outs + 1)
        connection.execute(more)

    def rehash(self, connection: Connection, handle: str, old: Digest, new: Digest) -> bool:
        """Replace the digest of a token and the seal if they still are ``old``."""
        accounts = self._accounts
        unchanged = update(accounts).where(accounts.c.handle == handle, kept_as(accounts, old))
        return connection.execute(unchanged.values(**columns_of(new))).rowcount == 1

    def scan(self, connection: Connection, after: str, limit: int) -> Sequence[Account]:
        """The next accounts after the handle of a token, in the order of these handles."""
        handle = self._accounts.c.handle
        some = select(self._accounts).where(handle > after).order_by(handle).limit(limit)
        return [read_account(row) for row in connection.execute(some)]

    def _one(self, connection: Connection, which: Any) -> Account | None:
        row = connection.execute(select(self._accounts).where(which)).one_or_none()
        return None if row is None else read_account(row)

    def _all(self, connection: Connection, which: Any, latest: Any) -> tuple[Account, ...]:
        statement = (
            select(self._accounts)
            .where(which)
            .order_by(latest.desc(), self._accounts.c.organization)
        )
        return tuple(read_account(row) for row in connection.execute(statement))
