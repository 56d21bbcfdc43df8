"""The organization that a session acts for: the identity provider's, or a claimed one."""

from collections.abc import Callable

from ...core.accounts import USER_LENGTH, Account, may_be_registered
from ...core.plans import is_id
from ...errors import NoOrganization
from ...events import Events
from ...sessions import Session
from ...stores.base import Store
from ..store_errors import asking


async def acting(
    store: Store,
    events: Events,
    seal_is_valid: Callable[[Account], bool],
    session: Session,
    wanted: str | None,
    *,
    trusts_provider: bool = False,
) -> Session:
    """Return the session with the organization that it acts for.

    That is the wanted organization; by default the organization that the session names, or else
    the organization that its user claimed last. The identity provider and registration assign ids
    independently of each other. So a session that names a registered organization acts for it only
    if its own user claimed it: ownership is proved by the billing e-mail, not by an organization of
    the same id at the provider.

    Args:
        store: keeps the accounts.
        events: receives failures of the store.
        seal_is_valid: returns whether an account's seal is valid; otherwise no user owns the
            account.
        session: the verified session.
        wanted: the organization that the request names; None: the request names no organization.
        trusts_provider: whether a session may name any claimed organization.

    Raises:
        NoOrganization: the session may not act for that organization, or for any.
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
        claimed_by = account.claimed_by if seal_is_valid(account) else None
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
    if account is None or account.claimed_by != user or not seal_is_valid(account):
        raise NoOrganization
    return session._replace(organization=account.organization)
