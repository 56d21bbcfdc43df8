"""Claims: an owner attaches what an agent registered to a login of their own (D15)."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from ..errors import ClaimRefused, NoOrganization
from ..events import Events
from ..identity import Session
from ..rules.accounts import USER_LENGTH, Account
from ..rules.digests import Peppers
from ..rules.instants import MINUTE
from ..rules.keys import ApiKey
from ..rules.seals import resealed_account
from ..stores.contract import Store
from ..stores.local import Clock
from .asking import asking
from .emails import is_same_email, read_email
from .keys import LONGEST_ID, sample
from .quotas import Quota
from .rejections import Rejections, believed

ASKED_PER_MINUTE: Final = 60
"""How often one user may look at what there is to claim, or claim."""
KEYS_SHOWN: Final = 25
"""Keys of each account that are shown, of up to 40 accounts."""
_SHOWN_AT_MOST: Final = 20
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
        rejections: Rejections,
    ) -> None:
        self._store = store
        self._peppers = peppers
        self._rejections = rejections
        self._clock = clock
        self._events = events
        self._asked: Final = Quota(
            store, peppers, "claim:user", "minute", MINUTE, ASKED_PER_MINUTE, clock, events
        )

    async def list(self, session: Session) -> list[Claimable]:
        """What a session's user has claimed, and what they may claim: the newest 20 of each.

        Raises:
            ClaimRefused: the session is an agent's, or its e-mail is not verified.
            RateLimitExceeded: the user has asked too often.
            StoreUnavailable: the store did not answer.
        """
        user, email = _claimer(session)
        await self._asked.hit(user)
        with asking(self._events):
            claimed = self._believed(await self._store.accounts_by_user(user))
            found = self._believed(await self._store.accounts_by_email(email)) if email else ()
            free = [account for account in found if account.claimed_by is None]
            shown = [*claimed[:_SHOWN_AT_MOST], *free[:_SHOWN_AT_MOST]]
            return [await self._claimable(account) for account in shown]

    async def claim(
        self, session: Session, organization: str, *, revoke_keys: bool = False
    ) -> Claimable:
        """Attach an organization to a session's user. Doing it again changes nothing.

        Args:
            session: its e-mail is verified, and is the organization's billing e-mail.
            organization: its id.
            revoke_keys: whether to revoke, in the same step, every key there is and the dashboard
                token, which ends the sessions of the agent. Asked for again, it is done again.

        Raises:
            ClaimRefused: it is not theirs to claim, or there is no such organization.
            RateLimitExceeded: the user has asked too often.
            StoreUnavailable: the store did not answer.
        """
        user, _ = _claimer(session)
        await self._asked.hit(user)
        if not 1 <= len(organization) <= LONGEST_ID:
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
                seals = account.seal, mine.seal
                claimed = await self._store.claim_if_unclaimed(
                    organization, user, revoke=revoke_keys, seals=seals, now=now
                )
                if claimed is None or claimed.claimed_by is not None:
                    break  # Else its token has moved to another pepper meanwhile.
            if claimed is None or claimed.claimed_by != user:
                raise ClaimRefused
            claimable = await self._claimable(claimed)
        self._events.tell("claimed", organization=organization, user=user, revoked=revoke_keys)
        return claimable

    async def acting(self, session: Session, wanted: str | None) -> Session:
        """The session as it acts: for the organization that is wanted, if it is the user's.

        Without a wish it is the identity provider's, or else the one that was claimed last.

        Raises:
            NoOrganization: the user has not claimed that organization, or none at all.
            StoreUnavailable: the store did not answer.
        """
        if session.organization is not None and wanted in (None, session.organization):
            return session
        if session.user is None or not 1 <= len(session.user) <= USER_LENGTH:
            raise NoOrganization
        with asking(self._events):
            claimed = self._believed(await self._store.accounts_by_user(session.user))
        for account in claimed:
            if wanted in (None, account.organization):
                return session._replace(organization=account.organization)
        raise NoOrganization

    async def _claimable(self, account: Account) -> Claimable:
        now = self._clock() if self._clock else None
        return Claimable(account, *await sample(self._store, account.organization, KEYS_SHOWN, now))

    def _believed(self, accounts: Iterable[Account]) -> tuple[Account, ...]:
        """Those of the accounts whose seal is good."""
        return tuple(a for a in accounts if believed(a, self._peppers, self._rejections))


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
