"""Claims: attach an account that an agent registered to its owner's login (D15)."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from ...clock import Clock
from ...core.accounts import USER_LENGTH, Account
from ...core.api_keys import ApiKey, Position
from ...core.changes import Actor, current_actor, drafted_change
from ...core.digests import Peppers
from ...core.plans import is_id
from ...core.row_seals import resealed_account
from ...core.sealed_texts import TextSeal
from ...core.timestamps import MINUTE
from ...errors import ClaimRefused, InvalidRequest, Problem
from ...events import Events
from ...sessions import Session
from ...stores.base import Store
from ...stores.committed import committing, read_after_commit
from ..keys.keys import sample
from ..keys.rejected_rows import RejectedRows, seal_is_valid
from ..limits.quotas import Quota
from ..store_errors import asking
from .email_addresses import is_same_email, read_email

ASKED_PER_MINUTE: Final = 60
"""Claims and lists of claimable accounts for one user: each list reads many keys."""
LISTED: Final = 20
"""The default number of accounts on a page."""
LISTED_AT_MOST: Final = 50
KEYS_SHOWN: Final = 25
"""Keys of each account that are shown."""
_CURSOR_LENGTH: Final = 1024
_DIGITS: Final = 18
_TRIES: Final = 3
_UNVERIFIED: Final = (
    "Only who has signed in with a verified e-mail address can claim an organization."
)


class Claimable(NamedTuple):
    """An account that a user has claimed or may claim, and some of its keys, live keys first."""

    account: Account
    keys: list[ApiKey]
    """At most :data:`KEYS_SHOWN`, newest first."""
    more_keys: bool = False
    """Whether the account has more keys than these."""


class ClaimPage(NamedTuple):
    """Some of the accounts that a user has claimed or may claim."""

    accounts: list[Claimable]
    next_cursor: str | None
    """The cursor of the next page; None: this is the last page."""


class Claims:
    """The claims of a gate, as ``gate.accounts.claims``.

    Args:
        store: keeps the accounts.
        peppers: seal the rows of accounts.
        clock: returns the present in microseconds; None: the store's own clock.
        events: receives ``claimed``.
        rejections: reports accounts whose seal is not valid.
    """

    def __init__(
        self,
        store: Store,
        peppers: Peppers,
        clock: Clock | None,
        events: Events,
        rejections: RejectedRows,
    ) -> None:
        self._store = store
        self._peppers = peppers
        self._rejections = rejections
        self._clock = clock
        self._events = events
        self._asked: Final = Quota(
            store, peppers, "claim:user", "minute", MINUTE, ASKED_PER_MINUTE, clock, events
        )

    async def list(
        self, session: Session, limit: int = LISTED, cursor: str | None = None
    ) -> ClaimPage:
        """List the accounts that a session's user has claimed, then those they may claim.

        Claimed accounts come with the latest claim first, unclaimed accounts oldest first: later
        registrations with the same e-mail push no account back.

        Args:
            session: a person's session, with a verified e-mail.
            limit: accounts on this page, 1 to 50.
            cursor: the ``next_cursor`` of the previous page; None: the first page.

        Raises:
            InvalidRequest: the limit is out of range, or the cursor is malformed.
            ClaimRefused: the session is an agent's, or its e-mail is not verified.
            RateLimitExceeded: the user exceeds :data:`ASKED_PER_MINUTE`.
            StoreUnavailable: the store did not answer.
        """
        user, email = _claimer(session)
        if not 1 <= limit <= LISTED_AT_MOST:
            raise InvalidRequest([Problem("limit", f"Use a number from 1 to {LISTED_AT_MOST}.")])
        seal = self._peppers.cursors
        begin = None if cursor is None else _read_cursor(cursor, seal, user)
        await self._asked.hit(user)
        with asking(self._events):
            found = await self._accounts(user, email, limit + 1, begin)
            last = found[:limit][-1:]
            shown = [await self._claimable(a) for a in self._believed(found[:limit])]
        more = len(found) > limit
        return ClaimPage(shown, _write_cursor(last[0], seal, user) if more else None)

    @committing
    async def claim(
        self,
        session: Session,
        organization: str,
        *,
        revoke_keys: bool = False,
        keep_token: bool = False,
    ) -> Claimable:
        """Attach an organization to a session's user; revoke its dashboard token and sessions.

        Atomic. Repeating a claim applies only options that the first call did not have.

        Args:
            session: its verified e-mail must be the organization's billing e-mail.
            organization: the organization's id.
            revoke_keys: whether to revoke all keys of the organization.
            keep_token: whether the agent may still sign in with its dashboard token (D46).

        Raises:
            ClaimRefused: the user may not claim the organization, or it does not exist.
            RateLimitExceeded: the user exceeds :data:`ASKED_PER_MINUTE`.
            StoreUnavailable: the store did not answer.
        """
        user, _ = _claimer(session)
        await self._asked.hit(user)
        options = {"revoke_keys": revoke_keys, "keep_token": keep_token}
        return await self._claim(user, organization, session, **options)

    @committing
    async def assign(
        self,
        organization: str,
        user: str,
        *,
        revoke_keys: bool = False,
        keep_token: bool = False,
    ) -> Claimable:
        """Attach an organization to a user for an operator, without a session and its e-mail.

        As :meth:`claim` otherwise: an account that another user has claimed stays theirs.

        Args:
            organization: the organization's id.
            user: the id of the user, as the identity provider's sessions have it.
            revoke_keys: whether to revoke all keys of the organization.
            keep_token: whether the agent may still sign in with its dashboard token (D46).

        Raises:
            ClaimRefused: another user has claimed it, or it has no account.
            InvalidRequest: the user's id is empty or too long.
            StoreUnavailable: the store did not answer.
        """
        if not 1 <= len(user) <= USER_LENGTH:
            raise InvalidRequest([Problem("user", f"Use 1 to {USER_LENGTH} characters.")])
        options = {"revoke_keys": revoke_keys, "keep_token": keep_token}
        return await self._claim(user, organization, None, **options)

    async def _claim(
        self,
        user: str,
        organization: str,
        session: Session | None,
        *,
        revoke_keys: bool,
        keep_token: bool,
    ) -> Claimable:
        if not is_id(organization):
            raise ClaimRefused
        now = self._clock() if self._clock else None
        options = ("revoke_keys", revoke_keys), ("keep_token", keep_token)
        claimer = current_actor()
        if session is not None:
            claimer = Actor("user", user, claimer.address)
        change = drafted_change("account_claimed", after=(("user", user), *options), actor=claimer)
        with asking(self._events):
            claimed = None
            for _ in range(_TRIES):
                account = await self._store.account(organization)
                if account is None or not (session is None or _may_claim(session, account)):
                    raise ClaimRefused
                if not self._believed((account,)):
                    raise ClaimRefused
                mine = resealed_account(account._replace(claimed_by=user), self._peppers)
                claimed = await self._store.claim_if_unclaimed(
                    organization,
                    user,
                    revoke=revoke_keys,
                    keep_token=keep_token,
                    seals=(account.seal, mine.seal),
                    now=now,
                    change=change,
                )
                if claimed is None or claimed.claimed_by is not None:
                    break  # Otherwise its token has moved to another pepper: read it again.
            if claimed is None or claimed.claimed_by != user:
                raise ClaimRefused
            claimable = await read_after_commit(
                organization, self._claimable(claimed), Claimable(claimed, [], more_keys=True)
            )
        self._events.emit(
            "claimed",
            organization=organization,
            user=user,
            revoked=revoke_keys,
            token_kept=claimed.token_revoked_at is None,
        )
        return claimable

    async def _accounts(
        self, user: str, email: str, count: int, begin: tuple[bool, Position] | None
    ) -> Sequence[Account]:
        """Return accounts after a position: the user's claimed accounts, then unclaimed ones."""
        claimed, after = begin or (True, None)
        found: tuple[Account, ...] = ()
        if claimed:
            found = await self._store.accounts_by_user(user, count, after)
            after = None
        if email and len(found) < count:
            found += await self._store.unclaimed_by_email(email, count - len(found), after)
        return found

    async def _claimable(self, account: Account) -> Claimable:
        now = self._clock() if self._clock else None
        return Claimable(account, *await sample(self._store, account.organization, KEYS_SHOWN, now))

    def _believed(self, accounts: Iterable[Account]) -> tuple[Account, ...]:
        """Return the accounts whose seal is valid."""
        return tuple(a for a in accounts if seal_is_valid(a, self._peppers, self._rejections))


def _write_cursor(last: Account, seal: TextSeal, user: str) -> str:
    """Return the end of a page as opaque text."""
    kind, at = ("u", last.created_at) if last.claimed_at is None else ("c", last.claimed_at)
    return seal.write(f"{kind}.{at}.{last.organization}".encode(), f"claims {user}")


def _read_cursor(cursor: str, seal: TextSeal, user: str) -> tuple[bool, Position]:
    """Return whether a page ended among claimed accounts, and its position.

    Raises:
        InvalidRequest: the text is no cursor of this user's pages.
    """
    try:
        if len(cursor) > _CURSOR_LENGTH:
            raise ValueError
        kind, at, organization = seal.read(cursor, f"claims {user}").decode().split(".", 2)
        if kind not in {"u", "c"} or not (at.isascii() and at.isdigit()) or len(at) > _DIGITS:
            raise ValueError
        if not is_id(organization):
            raise ValueError
    except ValueError:
        text = "Use the nextCursor of the page before, or leave this out."
        raise InvalidRequest([Problem("cursor", text)]) from None
    return kind == "c", Position(int(at), organization)


def _claimer(session: Session) -> tuple[str, str]:
    """Return the user and the verified e-mail of a session that claims.

    Raises:
        ClaimRefused: the session is an agent's, or its e-mail is not verified.
    """
    if session.user is None or not 1 <= len(session.user) <= USER_LENGTH:
        raise ClaimRefused(_UNVERIFIED)
    if session.verified_email is None:
        raise ClaimRefused(_UNVERIFIED)
    email, _ = read_email(session.verified_email)
    return session.user, email if is_same_email(session.verified_email, email) else ""


def _may_claim(session: Session, account: Account) -> bool:
    mine = account.claimed_by == session.user
    return mine or is_same_email(session.verified_email, account.billing_email)
