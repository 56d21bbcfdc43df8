"""Claims: an owner attaches what an agent registered to a login of their own (D15)."""

from base64 import b64decode, urlsafe_b64encode
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from ..core.accounts import USER_LENGTH, Account
from ..core.api_keys import ApiKey, Position
from ..core.digests import Peppers
from ..core.plans import is_id
from ..core.row_seals import resealed_account
from ..core.timestamps import MINUTE
from ..errors import ClaimRefused, InvalidRequest, Problem
from ..events import Events
from ..sessions import Session
from ..stores.base import Store
from ..stores.memory.windows import Clock
from .email_addresses import is_same_email, read_email
from .keys import sample
from .quotas import Quota
from .rejected_rows import RejectedRows, believed
from .store_errors import asking

ASKED_PER_MINUTE: Final = 60
"""How often one user may look at what there is to claim, or claim: each look shows many keys."""
LISTED: Final = 20
"""Accounts of one page, unless another number is asked for."""
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
    """An account that is a user's or can become it, and some of its keys: live ones first."""

    account: Account
    keys: list[ApiKey]
    """At most :data:`KEYS_SHOWN`, newest first."""
    more_keys: bool = False
    """Whether there are others."""


class ClaimPage(NamedTuple):
    """Some of the accounts that a user has claimed or may claim."""

    accounts: list[Claimable]
    next_cursor: str | None
    """Where the next page begins; None: this is the last one."""


class Claims:
    """The claims of a gate, as ``gate.accounts.claims``.

    Args:
        store: where the accounts are.
        peppers: seal the rows of accounts.
        clock: gives the present in microseconds; None: the store's own.
        events: is told of each claim.
        rejections: is told of accounts that are not believed.
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
        """List what a session's user has claimed, the latest claim first, then what they may claim.

        Unclaimed accounts come oldest first: whoever registers more with the same address later
        pushes none of them back.

        Args:
            session: a person's, with a verified e-mail.
            limit: accounts of this page, 1 to 50.
            cursor: the ``next_cursor`` of the page before; None: the first page.

        Raises:
            InvalidRequest: the limit or the cursor cannot be one.
            ClaimRefused: the session is an agent's, or its e-mail is not verified.
            RateLimitExceeded: the user has asked too often.
            StoreUnavailable: the store did not answer.
        """
        user, email = _claimer(session)
        if not 1 <= limit <= LISTED_AT_MOST:
            raise InvalidRequest([Problem("limit", f"Use a number from 1 to {LISTED_AT_MOST}.")])
        begin = None if cursor is None else _read_cursor(cursor)
        await self._asked.hit(user)
        with asking(self._events):
            found = await self._accounts(user, email, limit + 1, begin)
            last = found[:limit][-1:]
            shown = [await self._claimable(a) for a in self._believed(found[:limit])]
        more = len(found) > limit
        return ClaimPage(shown, _write_cursor(last[0]) if more else None)

    async def claim(
        self,
        session: Session,
        organization: str,
        *,
        revoke_keys: bool = False,
        keep_token: bool = False,
    ) -> Claimable:
        """Attach an organization to a session's user; its dashboard token and its sessions end.

        All of it is one step. Claiming again changes nothing but what is asked for in addition.

        Args:
            session: its e-mail is verified, and is the organization's billing e-mail.
            organization: its id.
            revoke_keys: whether to revoke every key there is.
            keep_token: whether the agent goes on signing in with its dashboard token (D46).

        Raises:
            ClaimRefused: it is not theirs to claim, or there is no such organization.
            RateLimitExceeded: the user has asked too often.
            StoreUnavailable: the store did not answer.
        """
        user, _ = _claimer(session)
        await self._asked.hit(user)
        if not is_id(organization):
            raise ClaimRefused
        now = self._clock() if self._clock else None
        with asking(self._events):
            claimed = None
            for _ in range(_TRIES):
                account = await self._store.account(organization)
                if account is None or not _may_claim(session, account):
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
                )
                if claimed is None or claimed.claimed_by is not None:
                    break  # Else its token has moved to another pepper meanwhile.
            if claimed is None or claimed.claimed_by != user:
                raise ClaimRefused
            claimable = await self._claimable(claimed)
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
        """The first accounts from a place on: those that the user claimed, then unclaimed ones."""
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
        """Those of the accounts whose seal is good."""
        return tuple(a for a in accounts if believed(a, self._peppers, self._rejections))


def _write_cursor(last: Account) -> str:
    """Where a page ended, as opaque text. It gives no right: it only says where to go on."""
    kind, at = ("u", last.created_at) if last.claimed_at is None else ("c", last.claimed_at)
    return urlsafe_b64encode(f"{kind}.{at}.{last.organization}".encode()).decode().rstrip("=")


def _read_cursor(cursor: str) -> tuple[bool, Position]:
    """Whether a page ended among claimed accounts, and where.

    Raises:
        InvalidRequest: no page gave this cursor.
    """
    try:
        if len(cursor) > _CURSOR_LENGTH:
            raise ValueError
        padded = cursor + "=" * (-len(cursor) % 4)
        kind, at, organization = b64decode(padded, b"-_", validate=True).decode().split(".", 2)
        if kind not in {"u", "c"} or not (at.isascii() and at.isdigit()) or len(at) > _DIGITS:
            raise ValueError
        if not is_id(organization):
            raise ValueError
    except ValueError:
        text = "Use the nextCursor of the page before, or leave this out."
        raise InvalidRequest([Problem("cursor", text)]) from None
    return kind == "c", Position(int(at), organization)


def _claimer(session: Session) -> tuple[str, str]:
    """Who claims, by which address.

    Raises:
        ClaimRefused: an agent does, or nobody knows whose address it is.
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
