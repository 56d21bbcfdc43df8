"""For which organization a session acts: the identity provider's, or one that its user claimed."""

from collections.abc import Callable

from ..core.accounts import USER_LENGTH, Account, may_be_registered
from ..core.plans import is_id
from ..errors import NoOrganization
from ..events import Events
from ..sessions import Session
from ..stores.base import Store
from .store_errors import asking


async def acting(
    store: Store,
    events: Events,
    believes: Callable[[Account], bool],
    session: Session,
    wanted: str | None,
    *,
    trusts_provider: bool = False,
) -> Session:
    """Return the session as it acts: for the wanted organization, if it may.

    Without a wish it is the organization that the session names, or else the one that its user
    claimed last. The identity provider and registration each give out ids of organizations, and
    know nothing of one another. So a session that names a registered organization acts for it only
    if its own user claimed that: the proof for a registered organization is its billing e-mail, not
    that somebody got an organization of the same id at the provider.

    Args:
        store: where accounts are.
        events: is told of a store that fails.
        believes: whether the seal of an account is good; with another one it belongs to no user.
        session: as it was verified.
        wanted: the organization that the request names; None: it names none.
        trusts_provider: whether a session may name any organization that is claimed, by whomever.

    Raises:
        NoOrganization: the session may not act for that organization, or for none at all.
        StoreUnavailable: the store did not answer.
    """
    named = session.organization
    if named is not None and wanted in (None, named):
        if session.agent or not may_be_registered(named):
            return session
        with asking(events):
            account = await store.account(named)
        if account is None:
            return session
        claimed_by = account.claimed_by if believes(account) else None
        if claimed_by is not None and (trusts_provider or claimed_by == session.user):
            return session
        raise NoOrganization
    user = session.user
    if user is None or not 1 <= len(user) <= USER_LENGTH:
        raise NoOrganization
    with asking(events):
        if wanted is None:
            claimed = await store.accounts_by_user(user, 1)
            account = claimed[0] if claimed else None
        else:
            account = await store.account(wanted) if is_id(wanted) else None
    if account is None or account.claimed_by != user or not believes(account):
        raise NoOrganization
    return session._replace(organization=account.organization)
