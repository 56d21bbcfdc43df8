"""A check of processes that die between two calls of an operation."""

from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any, Final

from ...core.accounts import Account
from ...core.api_keys import ApiKey, KeyDetails
from ...core.changes import Action, drafted_change
from ...core.plans import Organization
from ...core.timestamps import DAY
from ...errors import HandleTaken, KeyLimitReached
from ...stores.base import PAGE_AT_MOST, Store
from ..factories import NOW, Factory
from ..guarantees import Broken
from .check import Check

_POINTS_AT_MOST: Final = 200
"""More points than the calls of any operation have."""


class Died(BaseException):
    """The process ends here, so that no code of the operation handles it."""


class Fuse:
    """Lets a process die at one of the points before and after its calls.

    Attributes:
        points: the number of points that it passes alive; None: all.
    """

    def __init__(self) -> None:
        self.points: int | None = None

    def step(self) -> None:
        """Pass a point, or die."""
        if self.points == 0:
            self.points = None
            raise Died
        if self.points is not None:
            self.points -= 1


@contextmanager
def mortal(owner: object, names: tuple[str, ...], fuse: Fuse) -> Generator[None]:
    """Pass a point of the fuse before and after each call of some methods of an object."""

    def between(call: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
        async def step(*args: Any, **named: Any) -> Any:
            fuse.step()
            answer = await call(*args, **named)
            fuse.step()
            return answer

        return step

    for name in names:
        setattr(owner, name, between(getattr(owner, name)))
    try:
        yield
    finally:
        for name in names:
            delattr(owner, name)


class Case:
    """An operation on an organization of its own, which has an account and a key.

    Attributes:
        name: the organization.
        key: its key.
        account: its account.
    """

    action: Action | None
    """The action of the record that the operation leaves; None: it leaves none."""

    def __init__(self, factory: Factory, name: str) -> None:
        self.factory, self.name = factory, name
        self.email, self.user = f"{name}@example.com", f"user of {name}"
        self._next = factory.draft(name)
        self.key: ApiKey
        self.account: Account

    async def prepare(self, store: Store) -> None:
        """Register the organization."""
        drafts = self.factory.account(self.name, email=self.email), self.factory.draft(self.name)
        self.account, self.key = await store.register(*drafts, NOW)

    async def act(self, store: Store) -> None:
        """Do the operation. A repetition brings another key with the same handle."""
        raise NotImplementedError

    async def is_made(self, store: Store) -> bool:
        """Return whether the change of the operation is there."""
        raise NotImplementedError

    def draft(self) -> Any:
        """Return the draft of a key with an id of its own."""
        self._next = self._next._replace(id=self.factory.draft().id)
        return self._next


class Creation(Case):
    """Insert a key."""

    action = "key_created"

    async def act(self, store: Store) -> None:
        await store.insert(self.draft(), 2, NOW, change=drafted_change("key_created"))

    async def is_made(self, store: Store) -> bool:
        return await store.find(self._next.handle) is not None


class Rotation(Case):
    """Replace a key at once."""

    action = "key_rotated"

    async def act(self, store: Store) -> None:
        successor = self.draft()
        details = KeyDetails(NOW, successor.id)
        new = self.key._replace(revoked_at=NOW, details=details)
        change = drafted_change("key_rotated")
        await store.rotate_if(self.key, new, successor, 1, NOW, change=change)

    async def is_made(self, store: Store) -> bool:
        old, new = await store.find(self.key.handle), await store.find(self._next.handle)
        is_revoked = old is not None and old.revoked_at is not None
        _see(is_revoked == (new is not None), "D43", "Half of a rotation is there.")
        return is_revoked


class Update(Case):
    """Rename a key."""

    action = "key_updated"

    async def act(self, store: Store) -> None:
        new = self.key._replace(name="another")
        await store.update_if(self.key, new, NOW, change=drafted_change("key_updated"))

    async def is_made(self, store: Store) -> bool:
        key = await store.get(self.name, self.key.id)
        return key is not None and key.name == "another"


class Revocation(Case):
    """Revoke a key."""

    action = "key_revoked"

    async def act(self, store: Store) -> None:
        change = drafted_change("key_revoked")
        await store.revoke_if_live(self.name, self.key.id, NOW, change=change)

    async def is_made(self, store: Store) -> bool:
        key = await store.find(self.key.handle)
        return key is not None and key.revoked_at is not None


class Placement(Case):
    """Assign a plan."""

    action = "plan_assigned"

    async def act(self, store: Store) -> None:
        placed = Organization(self.name, "starter")
        await store.put_organization(placed, NOW, change=drafted_change("plan_assigned"))

    async def is_made(self, store: Store) -> bool:
        return await store.organization(self.name) is not None


class Registration(Case):
    """Register an account with its first key."""

    action = "account_registered"

    async def prepare(self, store: Store) -> None:
        """Leave the organization unregistered."""

    async def act(self, store: Store) -> None:
        account = self.factory.account(self.name, email=self.email)
        change = drafted_change("account_registered")
        await store.register(account, self.factory.draft(self.name), NOW, change=change)

    async def is_made(self, store: Store) -> bool:
        account, keys = await store.account(self.name), await store.list(self.name, 9)
        is_whole = len(keys) == (account is not None)
        _see(is_whole, "R1", f"An account is {account!r}, and has {len(keys)} keys.")
        return account is not None


class Claim(Case):
    """Claim an account, and revoke all keys."""

    action = "account_claimed"

    async def act(self, store: Store) -> None:
        await store.claim_if_unclaimed(
            self.name,
            self.user,
            revoke=True,
            keep_token=False,
            now=NOW,
            change=drafted_change("account_claimed"),
        )

    async def is_made(self, store: Store) -> bool:
        account, live = await store.account(self.name), await store.list_live(self.name, 9)
        is_claimed = account is not None and account.claimed_by is not None
        _see(is_claimed == (not live), "K4", "A claim that revokes all keys left one, or was lost.")
        return is_claimed


class SignIn(Case):
    """Begin a session of an agent."""

    action = None

    async def act(self, store: Store) -> None:
        await store.sign_in(self.name, NOW)

    async def is_made(self, store: Store) -> bool:
        account = await store.account(self.name)
        return account is not None and account.signed_in_at == NOW


class RemovalOfUnused(Case):
    """Remove an unused account."""

    action = "account_removed"

    async def act(self, store: Store) -> None:
        change = drafted_change("account_removed")
        await store.remove_unclaimed(DAY, 9, NOW + DAY, change=change)

    async def is_made(self, store: Store) -> bool:
        account, keys = await store.account(self.name), await store.list(self.name, 9)
        _see(len(keys) == (account is not None), "D46", "Half of an account was removed.")
        return account is None


class RemovalOfEnded(Case):
    """Remove an ended key, always of one organization: others would add calls to each walk."""

    action = None

    def __init__(self, factory: Factory, name: str) -> None:
        super().__init__(factory, name.partition(" ")[0])

    async def prepare(self, store: Store) -> None:
        """Insert and revoke the key."""
        if await store.account(self.name) is None:
            await super().prepare(store)
        self.key = await store.insert(self.factory.draft(self.name), None, NOW)
        await store.revoke_if_live(self.name, self.key.id, NOW)

    async def act(self, store: Store) -> None:
        step = await store.remove_ended(DAY, NOW + DAY)
        while step.cursor is not None:
            step = await store.remove_ended(DAY, NOW + DAY, step.cursor)

    async def is_made(self, store: Store) -> bool:
        return await store.get(self.name, self.key.id) is None


CASES: Final[tuple[type[Case], ...]] = (
    # The removals reach the organizations of the others, so they come before them.
    *(RemovalOfEnded, RemovalOfUnused),
    *(Creation, Rotation, Update, Revocation, Placement, Registration, Claim, SignIn),
)


async def see_deaths(store: Store, other: Store, fuse: Fuse) -> None:
    """Let each operation die at each of its points, and see that it is whole and can be repeated.

    Args:
        store: makes the operations, and passes points of the fuse.
        other: has the same rows, as another process.
        fuse: decides where the operations die.

    Raises:
        Broken: an operation left a part of its change, or could not be repeated.
    """
    factory = Factory()
    for kind in CASES:
        for point in count():
            case = kind(factory, f"{kind.__name__} {point}")
            await case.prepare(other)
            fuse.points = point
            try:
                await case.act(store)
                break
            except Died:
                await _see_survived(case, other)
            finally:
                fuse.points = None
            _see(point < _POINTS_AT_MOST, "G4", f"{kind.__name__} has more than {point} calls.")


async def _see_survived(case: Case, store: Store) -> None:
    was_made = await _see_whole(case, store)
    try:
        await case.act(store)
    except (HandleTaken, KeyLimitReached):  # If both apply, the store chooses.
        said = f"{case.name}: after a process died, the change can never be made."
        _see(was_made, "D3", said)
    _see(await _see_whole(case, store), "W3", f"{case.name}: a repetition did not make the change.")
    if isinstance(case, RemovalOfEnded | RemovalOfUnused):
        taken = case.factory.draft("another")._replace(handle=case.key.handle)
        with suppress(HandleTaken):
            await store.insert(taken, None, NOW)
            _see(False, "D45", f"{case.name}: the handle of a removed key was given again.")


async def _see_whole(case: Case, store: Store) -> bool:
    """See that all that shows a change agrees, and return whether it was made."""
    is_made = await case.is_made(store)
    log = await store.change_log(case.name, PAGE_AT_MOST)
    records = [record.action for record in log].count(case.action) if case.action else is_made
    said = f"{case.name}: the change was made {is_made:d} times, and recorded {records} times."
    _see(records == is_made, "D44", said)
    live = {key.id for key in await store.list_live(case.name, PAGE_AT_MOST, None, NOW)}
    for key in await store.list(case.name, PAGE_AT_MOST):
        said = f"{case.name}: a listed key is another by its id, or among live ones."
        is_alike = await store.get(case.name, key.id) == key
        _see(is_alike and (key.id in live) == (key.revoked_at is None), "D10", said)
        # A key that is about to be removed may be no longer found.
        if key.id in live:
            found = await store.find(key.handle)
            _see(found == key, "K1", f"{case.name}: by its handle a live key is {found!r}.")
    await _see_whole_account(case, store)
    return is_made


async def _see_whole_account(case: Case, store: Store) -> None:
    account = await store.account(case.name)
    unclaimed = await store.unclaimed_by_email(case.email, 9)
    claimed = await store.accounts_by_user(case.user, 9)
    if account is None:
        _see(not (unclaimed or claimed), "D14", f"{case.name}: no account is listed as one.")
        return
    by_token = await store.account_by_token(account.handle)
    _see(by_token == account, "D14", f"{case.name}: by its token the account is {by_token!r}.")
    right = ((account,), ()) if account.claimed_by is None else ((), (account,))
    said = f"{case.name}: by its e-mail and its user the account is {unclaimed!r} and {claimed!r}."
    _see((unclaimed, claimed) == right, "D14", said)


async def a_process_that_dies_leaves_a_whole_change_or_none(store: Store) -> None:
    """An operation of a store that has rows dies before and after each reading and commit."""
    fuse = Fuse()
    with mortal(store, ("read", "commit", "walk"), fuse):
        await see_deaths(store, store, fuse)


def _see(kept: bool, sentence: str, said: str) -> None:
    if not kept:
        raise Broken(sentence, said)


_deaths = a_process_that_dies_leaves_a_whole_change_or_none
CHECKS: tuple[Check, ...] = (Check("W3", "changes", _deaths.__name__, crowded=False, of=_deaths),)
