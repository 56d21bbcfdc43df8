"""The statements of accounts, which run inside a verb's transaction."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, and_, case, delete, insert, or_, select, update

from ...core.accounts import Account, AccountDraft, last_use
from ...core.api_keys import ApiKey, KeyDraft, Position
from ...core.digests import Digest
from ..answers import Reseal
from .codec import read_account, read_id, write_account, write_id
from .keys import Keys, columns_of, kept_as
from .tables import Tables


class Accounts:
    """The statements of accounts, in a transaction that the caller begins and commits.

    Args:
        tables: the tables.
        keys: the statements of their keys.
    """

    def __init__(self, tables: Tables, keys: Keys) -> None:
        self._accounts: Final = tables.accounts
        self._keys: Final = tables.keys
        self._statements_of_keys: Final = keys

    def register(
        self, connection: Connection, account: AccountDraft, key: KeyDraft, now: int
    ) -> tuple[Account, ApiKey]:
        """Insert an account and a key of an existing, locked organization."""
        made = account.created(now)
        connection.execute(insert(self._accounts), write_account(made))
        return made, self._statements_of_keys.add(connection, key.created(now))

    def taken(self, connection: Connection, account: AccountDraft, key: KeyDraft) -> bool:
        """Return whether a row has one of the values that must be unique."""
        accounts, keys = self._accounts, self._keys
        organization = accounts.c.organization == write_id(account.organization)
        taken = (
            select(1).where(or_(organization, accounts.c.handle == account.handle)),
            select(1).where(or_(keys.c.handle == key.handle, keys.c.id == key.id)),
        )
        return any(connection.scalar(statement) for statement in taken)

    def get(self, connection: Connection, organization: str) -> Account | None:
        """Return the account of an organization."""
        return self._one(connection, self._accounts.c.organization == write_id(organization))

    def by_handle(self, connection: Connection, handle: str) -> Account | None:
        """Return the account of a token by its handle."""
        return self._one(connection, self._accounts.c.handle == handle)

    def unclaimed_by_email(
        self, connection: Connection, billing_email: str, limit: int, after: Position | None
    ) -> tuple[Account, ...]:
        """Return unclaimed accounts of a billing e-mail: oldest first, then by organization."""
        columns = self._accounts.c
        which = [columns.billing_email == write_id(billing_email), columns.unclaimed == 1]
        if after is not None:
            at, id = columns.created_at, write_id(after.id)
            which += [at >= after.instant, or_(at > after.instant, columns.organization > id)]
        order = columns.created_at, columns.organization
        statement = select(self._accounts).where(*which).order_by(*order).limit(limit)
        return tuple(read_account(row) for row in connection.execute(statement))

    def by_user(
        self, connection: Connection, user: str, limit: int, after: Position | None
    ) -> tuple[Account, ...]:
        """Return accounts that a user claimed: latest first, then by descending organization."""
        columns = self._accounts.c
        which = [columns.claimed_by == write_id(user)]
        if after is not None:
            at, id = columns.claimed_at, write_id(after.id)
            which += [at <= after.instant, or_(at < after.instant, columns.organization < id)]
        order = columns.claimed_at.desc(), columns.organization.desc()
        statement = select(self._accounts).where(*which).order_by(*order).limit(limit)
        return tuple(read_account(row) for row in connection.execute(statement))

    def claim(
        self,
        connection: Connection,
        organization: str,
        user: str,
        *,
        revoke: bool,
        keep_token: bool,
        seals: Reseal,
        now: int,
    ) -> tuple[Account | None, bool]:
        """Assign an unclaimed account of a locked organization to a user.

        Revokes its token unless ``keep_token``, and its keys if ``revoke``. Returns the account,
        and whether it or a key was changed.
        """
        id, columns = write_id(organization), self._accounts.c
        mine = columns.organization == id
        old, new = seals
        as_read = columns.seal.is_(None) if old is None else columns.seal == old
        claim = update(self._accounts).where(mine, columns.claimed_by.is_(None), as_read)
        values = {"claimed_by": write_id(user), "claimed_at": now, "unclaimed": 0}
        claimed = connection.execute(claim.values({**values, "review_at": None, "seal": new}))
        changed = claimed.rowcount
        account = self._one(connection, mine)
        if account is None or account.claimed_by != user:
            return account, False
        if revoke:
            keys = self._keys.c
            live = keys.organization == id, keys.ends_at > now, keys.revoked_at.is_(None)
            ended = update(self._keys).where(*live).values(revoked_at=now, ends_at=now)
            changed += connection.execute(ended).rowcount
        if not keep_token:
            good = update(self._accounts).where(mine, columns.token_revoked_at.is_(None))
            changed += connection.execute(good.values(token_revoked_at=now)).rowcount
        return self._one(connection, mine), changed > 0

    def due(self, connection: Connection, edge: int, limit: int) -> list[str]:
        """Return organizations with accounts that may be unused since ``edge``, longest first."""
        columns = self._accounts.c
        statement = (
            select(columns.organization)
            .where(columns.review_at <= edge)
            .order_by(columns.review_at)
            .limit(limit)
        )
        return [read_id(id) for id in connection.scalars(statement)]

    def remove(self, connection: Connection, organization: str, edge: int, *, placed: bool) -> bool:
        """Delete an account and its keys if it is unclaimed, on no plan and unused since ``edge``.

        Otherwise record when to review it again. The organization is locked, so none of its keys is
        used or inserted meanwhile.
        """
        mine = self._accounts.c.organization == write_id(organization)
        account = self._one(connection, mine)
        if account is None:
            return False
        keys = self._statements_of_keys.all(connection, organization)
        latest = last_use(account, keys)
        if placed or account.claimed_by is not None or latest > edge:
            again = None if placed or account.claimed_by is not None else latest
            connection.execute(update(self._accounts).where(mine).values(review_at=again))
            return False
        # The agent may have signed in since the read, without a lock of the organization.
        signed_in = self._accounts.c.signed_in_at
        unused = or_(signed_in.is_(None), signed_in <= edge)
        if connection.execute(delete(self._accounts).where(mine, unused)).rowcount == 0:
            return False
        self._statements_of_keys.remove(connection, organization)
        return True

    def sign_in(self, connection: Connection, organization: str, now: int) -> Account | None:
        """Record a sign-in, if the token is not revoked."""
        columns = self._accounts.c
        good = and_(
            columns.organization == write_id(organization), columns.token_revoked_at.is_(None)
        )
        before = columns.signed_in_at
        later = case((before > now, before), else_=now)
        if connection.execute(
            update(self._accounts).where(good).values(signed_in_at=later)
        ).rowcount:
            return self._one(connection, columns.organization == write_id(organization))
        return None

    def sign_out(self, connection: Connection, organization: str) -> None:
        """Count a sign-out, which ends the sessions of the account's agent."""
        columns = self._accounts.c
        mine = columns.organization == write_id(organization)
        more = update(self._accounts).where(mine).values(sign_outs=columns.sign_outs + 1)
        connection.execute(more)

    def rehash(self, connection: Connection, handle: str, old: Digest, new: Digest) -> bool:
        """Replace the digest of a token and the seal, if both still are ``old``."""
        accounts = self._accounts
        unchanged = update(accounts).where(accounts.c.handle == handle, kept_as(accounts, old))
        return connection.execute(unchanged.values(**columns_of(new))).rowcount == 1

    def scan(self, connection: Connection, after: str, limit: int) -> Sequence[Account]:
        """Return the next accounts after a token's handle, in the order of these handles."""
        handle = self._accounts.c.handle
        some = select(self._accounts).where(handle > after).order_by(handle).limit(limit)
        return [read_account(row) for row in connection.execute(some)]

    def _one(self, connection: Connection, which: Any) -> Account | None:
        row = connection.execute(select(self._accounts).where(which)).one_or_none()
        return None if row is None else read_account(row)
