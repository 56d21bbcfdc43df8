"""Rows: what a key store keeps of each organization, and the values of its three methods.

A row is an API key, an account or an assigned plan, and belongs to one organization. Rows are read
by an :class:`Index` and changed by a :class:`Commit`: the directory composes every operation on
keys, accounts and plans of these (:mod:`lockgate.stores.directory`).

Two kinds of index. One inside an organization is exact: it changes in the step that changes its
rows. One across organizations may lie elsewhere, on another server even: a handle or a token is
claimed before its row exists and stays claimed until the row is gone, so each finds one row at
most; an entry by e-mail or user is a hint, which a reader verifies against its row. Claims and
hints are entered first, then the rows are committed, then what no row needs any more is left: a
process that dies at any point leaves nothing that a reader could mistake.
"""

from collections.abc import Callable, Iterable
from typing import Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from ..core.accounts import Account
from ..core.api_keys import ApiKey, KeyState, Position
from ..core.changes import Change, ChangeDraft
from ..core.key_search import KeySearch
from ..core.plans import Organization
from ..core.timestamps import MILLISECOND, MINUTE
from .answers import OrganizationSummary

Row: TypeAlias = ApiKey | Account | Organization
Version: TypeAlias = object
"""What a store tells two states of a row apart by; only the store that gave it can read it."""
R = TypeVar("R", ApiKey, Account, Organization, Change)

STAMP: Final = -1
"""In an instant of a new row: the instant of the step that commits it, by the store's clock. In
``signed_in_at``: less by an instant that it is not to precede."""
REMEMBERED: Final = 16
"""The latest commits of an organization whose ids a store remembers, if they were made within
:data:`REMEMBERED_FOR`; or more."""
REMEMBERED_FOR: Final = MINUTE
"""In microseconds: repetitions follow at once."""
REMOVED_AT_MOST: Final = 100
"""Keys, and records of the change log, that one commit removes at most because of their age."""


class Index(Generic[R]):
    """An order in which the rows of one kind are read.

    Args:
        name: identifies the index.
        prefix: the texts of a row under which it is found; readers give all of them.
        place: the instant and the id of a row by which those of one prefix are sorted; None: a
            prefix has one row at most.
        holds: whether a row is in the index.
        newest_first: whether later instants come before earlier ones.
        ids_down: whether ids of one instant come in descending order.
        is_urgent: whether requests wait for its rows. Wrappers give a read of them the deadline of
            a request, and may answer it from memory for a second (W13).
        shows_usage: whether readers look at the usage of its keys. A wrapper that keeps some in
            this process writes it first.
    """

    def __init__(
        self,
        name: str,
        prefix: Callable[[R], tuple[str, ...]],
        place: Callable[[R], Position] | None = None,
        holds: Callable[[R], bool] = lambda _: True,
        *,
        newest_first: bool = False,
        ids_down: bool = False,
        is_urgent: bool = False,
        shows_usage: bool = False,
    ) -> None:
        self.name: Final = name
        self.prefix: Final[Callable[[R], tuple[str, ...]]] = prefix
        self.place: Final[Callable[[R], Position] | None] = place
        self.holds: Final[Callable[[R], bool]] = holds
        self.newest_first: Final = newest_first
        self.ids_down: Final = ids_down
        self.is_urgent: Final = is_urgent
        self.shows_usage: Final = shows_usage
        plain = self
        if is_urgent or shows_usage:
            order = {"newest_first": newest_first, "ids_down": ids_down}
            plain = Index(name, prefix, place, holds, **order)
        self.to_change: Final[Index[R]] = plain
        """The index for a reader that changes or copies what it reads: a store reads the same, and
        a wrapper neither hurries it, nor answers from memory, nor writes usage first."""

    def page(self, rows: Iterable[R], limit: int, after: Position | None) -> list[R]:
        """Return the rows that a reader gets of all rows under one prefix, in any order.

        For a store that has all rows of an organization at hand.
        """
        held = [row for row in rows if self.holds(row)]
        place = self.place
        if place is None:
            return held[:1]
        held.sort(key=lambda row: place(row).id, reverse=self.ids_down)
        held.sort(key=lambda row: place(row).instant, reverse=self.newest_first)
        if after is not None:
            held = [row for row in held if self.is_after(place(row), after)]
        return held[:limit]

    def is_after(self, place: Position, after: Position) -> bool:
        """Return whether a place comes after another in this order."""
        if place.instant != after.instant:
            return (place.instant < after.instant) == self.newest_first
        return place.id < after.id if self.ids_down else place.id > after.id

    def __repr__(self) -> str:
        return f"Index({self.name!r})"


KEY_BY_HANDLE: Final = Index[ApiKey]("key_by_handle", lambda key: (key.handle,), is_urgent=True)
"""By the public handle, across organizations. A handle stays taken when its key is removed."""
KEY_BY_ID: Final = Index[ApiKey](
    "key_by_id", lambda key: (key.organization, key.id), shows_usage=True
)
"""By organization and id."""
KEYS_BY_CREATION: Final = Index[ApiKey](
    "keys_by_creation",
    lambda key: (key.organization,),
    lambda key: Position(key.created_at, key.id),
    newest_first=True,
    shows_usage=True,
)
"""All keys of an organization: newest first, then by id (D10)."""
KEYS_BY_END: Final = Index[ApiKey](
    "keys_by_end",
    lambda key: (key.organization,),
    lambda key: Position(key.ends_at, key.id),
    lambda key: key.revoked_at is None,
    newest_first=True,
    ids_down=True,
    shows_usage=True,
)
"""Keys of an organization that are not revoked: latest ``ends_at`` first, then by descending id."""
ACCOUNT: Final = Index[Account]("account", lambda account: (account.organization,))
"""By organization."""
ACCOUNT_BY_TOKEN: Final = Index[Account]("account_by_token", lambda account: (account.handle,))
"""By the handle of the dashboard token, across organizations."""
ACCOUNTS_BY_EMAIL: Final = Index[Account](
    "accounts_by_email",
    lambda account: (account.billing_email,),
    lambda account: Position(account.created_at, account.organization),
    lambda account: account.claimed_by is None,
)
"""Unclaimed accounts of a billing e-mail: oldest first, then by organization."""
ACCOUNTS_BY_USER: Final = Index[Account](
    "accounts_by_user",
    lambda account: (account.claimed_by or "",),
    lambda account: Position(account.claimed_at or 0, account.organization),
    lambda account: account.claimed_by is not None,
    newest_first=True,
    ids_down=True,
)
"""Accounts that a user claimed: the latest claim first, then by descending organization."""
PLAN: Final = Index[Organization]("plan", lambda placed: (placed.id,), is_urgent=True)
"""The assigned plan of an organization."""
LOG: Final = Index[Change](
    "log", lambda _: (), lambda change: Position(change.number, ""), newest_first=True
)
"""The change log of an organization, the latest record first; ``after`` has a number as instant.
Commits write it, never as a row."""
INDEXES: Final = (
    *(KEY_BY_HANDLE, KEY_BY_ID, KEYS_BY_CREATION, KEYS_BY_END),
    *(ACCOUNT, ACCOUNT_BY_TOKEN, ACCOUNTS_BY_EMAIL, ACCOUNTS_BY_USER, PLAN, LOG),
)


class Read(NamedTuple, Generic[R]):
    """The answer of :meth:`KeyStore.read <lockgate.stores.key_store.KeyStore.read>`."""

    rows: list[R]
    """Keys show their usage, which no version depends on."""
    versions: list[Version]
    """Of each row; empty for the change log."""
    now: int
    """The store's clock at the reading, in microseconds."""

    @property
    def first(self) -> R | None:
        """The first row; None: there is no row."""
        return self.rows[0] if self.rows else None

    @property
    def version(self) -> Version | None:
        """The version of the first row; None: there is no row."""
        return self.versions[0] if self.versions else None


class Write(NamedTuple):
    """One row of a commit, written if it is still as it was read.

    An instant that is :data:`STAMP` in ``new`` becomes the instant of the step, and ``created_at``
    that in whole milliseconds (D30). The usage of a key stays as it is counted, unless the key is
    new.
    """

    old: Row | None
    """The row as it was read; None: there is none."""
    version: Version | None
    """The version of ``old``. None for a new row, and for an old one that the caller has not read:
    then the store compares rows, and may answer ``changed`` for the same row."""
    new: Row | None
    """The row to keep; None: remove it."""
    live: bool = False
    """Whether the old key must be neither revoked nor expired at the instant of the step."""


class Commit(NamedTuple):
    """A change to the rows of one organization, made in one atomic step or not at all."""

    owner: str
    """The organization."""
    id: str
    """Identifies the commit (D33): a store that has made it answers a repetition as it answered
    first, and changes nothing, as long as it remembers the id (:data:`REMEMBERED`). At most 32
    hexadecimal digits."""
    writes: tuple[Write, ...] = ()
    revoke_all: bool = False
    """Set ``revoked_at`` of every live key."""
    remove_ended: int | None = None
    """Remove keys that ended at this instant or before, with their usage, and records of the change
    log that were made then: at most :data:`REMOVED_AT_MOST` of each. Their handles stay taken."""
    remove_unused: int | None = None
    """Remove the account and all keys, if it is unclaimed, has no assigned plan and was not used
    after this instant (:func:`~lockgate.core.accounts.last_use`); otherwise note when it can be
    due again, and answer ``changed``. The handles of the keys stay taken, and the change log
    stays."""
    room: int | None = None
    """The most live keys beside one more: with that many, after the other writes, a new key is
    refused (K8). None: no bound."""
    change: ChangeDraft | None = None
    """The record of the change log (D44), kept if the commit changes a row, or is to change none:
    it has no writes, and ends no keys."""
    void: bool = False
    """Whether earlier answers end although no row changes, as for a plan that the host keeps."""

    @property
    def voids(self) -> bool:
        """Whether earlier answers about the organization may be wrong after the commit: the change
        counter moves, copies are forgotten, and quota leases are recalled (K4, W13)."""
        if self.void or self.revoke_all:
            return True
        if self.remove_ended is not None or self.remove_unused is not None:
            return True
        return any(_voids(write) for write in self.writes)

    @property
    def waits_for_leases(self) -> bool:
        """Whether a quota lease that was granted before may admit what the commit forbids: it is
        answered once these leases have ended (D42, K4)."""
        if self.void or self.revoke_all or self.remove_unused is not None:
            return True
        return any(_is_leased(write) for write in self.writes)

    def has_voided(self, outcome: "Outcome") -> bool:
        """Return whether the commit :attr:`voids` answers and was made."""
        is_made = outcome.verdict == "done" and (self.remove_ended is None or outcome.ended > 0)
        return is_made and self.voids


def _voids(write: Write) -> bool:
    """Return whether a write makes an earlier answer wrong: nobody remembers that a key or an
    account is unknown, or when an agent signed in."""
    old, new = write.old, write.new
    if isinstance(new or old, Organization):
        return True
    if isinstance(old, Account) and isinstance(new, Account):
        return (old.token_revoked_at, old.sign_outs) != (new.token_revoked_at, new.sign_outs)
    return old is not None


def _is_leased(write: Write) -> bool:
    """Return whether a lease of before may admit what a write forbids: not by a new digest or seal
    of the same key."""
    old, new = write.old, write.new
    if isinstance(old, ApiKey) and isinstance(new, ApiKey):
        is_rehash = new == old._replace(scheme=new.scheme, digest=new.digest, seal=new.seal)
        return not is_rehash or new == old
    return isinstance(old, ApiKey) or isinstance(new or old, Organization)


CommitVerdict: TypeAlias = Literal["done", "changed", "taken", "full"]


class Outcome(NamedTuple):
    """The answer of :meth:`KeyStore.commit <lockgate.stores.key_store.KeyStore.commit>`."""

    verdict: CommitVerdict
    """``done``; ``changed``: a row is not as expected, not live or not due; ``taken``: a new key
    or account has the id or the handle of another, or of a removed key; ``full``: there is no room
    for a new key. Only ``done`` has changed anything. If several apply, the store may choose."""
    now: int
    """The instant of the step, in microseconds."""
    rows: tuple[Row | None, ...] = ()
    """The row of each write as it is kept, with its usage."""
    ended: int = 0
    """The number of keys that ``revoke_all``, ``remove_ended`` or ``remove_unused`` has ended."""
    more: bool = False
    """Whether ``remove_ended`` left keys or records that are due."""


class Ended(NamedTuple):
    """Asks a walk for organizations that ``remove_ended`` concerns."""

    until: int
    """The instant, in microseconds."""


class Unused(NamedTuple):
    """Asks a walk for organizations that ``remove_unused`` may concern: those that can be due
    longest first, as far as the store has an order of them."""

    since: int
    """The instant, in microseconds."""


class Summaries(NamedTuple):
    """Asks a walk for organizations with a key, in any state, or an assigned plan."""

    now: int | None
    """The instant by which keys are live; None: the store's clock."""


Wanted: TypeAlias = KeySearch | Ended | Unused | Summaries | None
"""What a walk is for; None: all keys and accounts."""


class Walk(NamedTuple):
    """One step of :meth:`KeyStore.walk <lockgate.stores.key_store.KeyStore.walk>`."""

    cursor: str | None
    """Where the next step begins; None: this was the last one."""
    keys: tuple[ApiKey, ...] = ()
    """For a :class:`~lockgate.core.key_search.KeySearch`, and without one."""
    accounts: tuple[Account, ...] = ()
    """For a walk over all rows."""
    owners: tuple[str, ...] = ()
    """Ids of organizations, for :class:`Ended` and :class:`Unused`."""
    organizations: tuple[OrganizationSummary, ...] = ()
    """For :class:`Summaries`."""


def judged(
    commit: Commit,
    now: int,
    version_of: Callable[[Row], Version | None],
    is_taken: Callable[[ApiKey | Account], bool],
    count_live: Callable[[], int],
) -> CommitVerdict:
    """Return whether the writes of a commit can be made, ``remove_unused`` aside.

    For a store whose step runs in this process, under a lock or in a transaction, and whose
    versions are those of :func:`without_usage`.

    Args:
        commit: the commit.
        now: the instant of the step.
        version_of: returns the version of the row that is kept in the place of another, or None.
        is_taken: returns whether a new row has the id or the handle of another, or of a removed
            key.
        count_live: returns the number of live keys of the organization.
    """
    new_keys = ending = 0
    for old, version, new, must_live in commit.writes:
        if old is None and isinstance(new, ApiKey | Account):
            new_keys += isinstance(new, ApiKey)
            if is_taken(new):
                return "taken"
            continue
        row = new if old is None else old
        expected = without_usage(old) if version is None else version
        if row is not None and version_of(row) != expected:
            return "changed"
        if isinstance(old, ApiKey) and old.state(now) is KeyState.ACTIVE:
            stays = isinstance(new, ApiKey) and stamped_key(new, now).state(now) is KeyState.ACTIVE
            ending += not stays
        elif must_live:
            return "changed"
    if commit.room is not None and new_keys and count_live() - ending >= commit.room:
        return "full"
    return "done"


def is_recorded(commit: Commit, ended: int) -> bool:
    """Return whether the record of a commit that ended so many keys is kept.

    An account may be removed after the last of its keys.
    """
    if commit.remove_unused is not None:
        return True
    ends = commit.revoke_all or commit.remove_ended is not None
    if not (ends or commit.writes):
        return commit.change is not None
    return ended > 0 or any(write.new != write.old for write in commit.writes)


def owner_of(row: Row) -> str:
    """Return the organization that a row belongs to."""
    return row.id if isinstance(row, Organization) else row.organization


def stamped(row: Row | None, now: int) -> Row | None:
    """Return a row with the instant of a step instead of :data:`STAMP`."""
    if isinstance(row, ApiKey):
        return stamped_key(row, now)
    if isinstance(row, Account):
        if row.created_at == STAMP:
            row = row._replace(created_at=now - now % MILLISECOND)
        if row.claimed_at == STAMP:
            row = row._replace(claimed_at=now)
        if row.signed_in_at is not None and row.signed_in_at <= STAMP:
            row = row._replace(signed_in_at=max(now, STAMP - row.signed_in_at))
        return row._replace(token_revoked_at=now) if row.token_revoked_at == STAMP else row
    return row


def stamped_key(key: ApiKey, now: int) -> ApiKey:
    """Do :func:`stamped` for a key."""
    if key.created_at == STAMP:
        key = key._replace(created_at=now - now % MILLISECOND)
    return key._replace(revoked_at=now) if key.revoked_at == STAMP else key


def without_usage(row: Row | None) -> Version | None:
    """Return what the version of a row depends on: of a key the fields before its usage."""
    return row[:-2] if isinstance(row, ApiKey) else row
