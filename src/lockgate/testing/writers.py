"""Callers that each change one field of the same organization, and so know what it must be."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, Literal, NamedTuple, get_args

from ..core.accounts import AccountDraft
from ..core.api_keys import ApiKey, KeyDetails, KeyDraft
from ..core.changes import Actor, ChangeDraft
from ..core.digests import Digest
from ..core.holds import Look, Settle, Take, budgets
from ..core.key_search import KeySearch
from ..core.leases import TO_LIST, to_acquire, to_release, to_renew
from ..core.ledger import Hit, LeasesOut, Peek, Reset
from ..core.limits import Limit, bound
from ..core.plans import Organization, PlanBook
from ..core.quota_leases import LEAST, LONGEST, LeaseRequest, Settlement
from ..core.timestamps import DAY, HOUR
from ..core.usage_history import UsageHistory
from ..stores.answers import HistoryOwner, Usage
from ..stores.base import PAGE_AT_MOST, Store
from .calls import as_call
from .factories import NOW, OPEN, Factory, minute

TURNS: Final = 10
"""Writes of each caller, at least."""
TURNS_AT_MOST: Final = 60
_UNLIMITED: Final = minute(None)
_CREATED: Final = ChangeDraft("key_created", None, Actor("host"))
_LIMITS: Final = bound((Limit("named", "9999/day"),), None)
assert _LIMITS is not None, "there is a limit"
_BUDGETS: Final = budgets(_LIMITS)
_UNLIMITED_PLANS: Final = PlanBook([OPEN], custom=(), default=OPEN.name)

Owner = Literal[
    "keys",
    "usage",
    "accounts",
    "plans",
    "windows",
    "slots",
    "changes",
    "history",
    "resets",
    "searches",
    "limits",
    "holds",
    "leases",
]
OWNERS: Final[tuple[Owner, ...]] = get_args(Owner)


class Read(NamedTuple):
    """A way to read a field."""

    verb: str
    call: Callable[[Store], Awaitable[object]]

    def __call__(self, store: Store) -> Awaitable[object]:
        """Read the field."""
        return self.call(store)


class Writer(NamedTuple):
    """A caller that alone changes one field."""

    verb: str
    owner: Owner
    """The part of the contract that the verb belongs to."""
    sentence: str
    """The id of the guarantee that is broken if the field is not as written."""
    write: Callable[[Store, int], Awaitable[object]]
    """Makes the change of a turn, counted from 1."""
    reads: tuple[Read, ...]
    """Return the field, each by another verb."""
    expected: Callable[[int], object]
    """Returns what each read must return after this turn and before the next."""


class Subject:
    """An organization with a key and an account, the same in every process.

    Args:
        number: selects the organization, its keys and its digests.
        now: the instant of all calls; a shared store may drop what is old by its own clock.
        account: whether the organization has an account.
    """

    def __init__(self, number: int = 0, now: int = NOW, *, account: bool = True) -> None:
        factory = Factory(10_000 + number)
        self.now: Final = now
        self.id: Final = f"shared {number}"
        self.key: Final = factory.draft(self.id)
        self.account: Final = factory.account(self.id) if account else None
        # Drawn in this order in every process.
        self.revoked: Final = [factory.draft(self.id) for _ in range(TURNS_AT_MOST)]
        self.logged: Final = [factory.draft(self.id) for _ in range(TURNS_AT_MOST)]
        self.inserted: Final = [factory.draft(self.id) for _ in range(TURNS_AT_MOST)]
        key = factory.key()
        self.token: Final = factory.token(key)
        """The key of :attr:`leased`, as a request presents it."""
        self.leased: Final = factory.draft(f"{self.id} leased", key=key)

    async def create(self, store: Store, *, leased: bool = False) -> None:
        """Insert the key, with the account if there is one, and the key that gets leases."""
        if leased:
            await store.insert(self.leased, None, self.now)
        if self.account is None:
            await store.insert(self.key, None, self.now)
        else:
            await store.register(self.account, self.key, self.now)

    def writers(self, owners: Sequence[Owner]) -> list[Writer]:
        """Return one writer for each field of these parts of the contract."""
        every = [*_OfKeys(self).writers(), *_OfCounts(self).writers(), *_OfOthers(self).writers()]
        if self.account is not None:
            every += _OfAccounts(self, self.account).writers()
        return [writer for writer in every if writer.owner in owners]


class _OfKeys:
    """Changes the fields of the key, and the set of keys of its organization."""

    def __init__(self, subject: Subject) -> None:
        self._subject, self._now, self._id = subject, subject.now, subject.id
        self._handle = subject.key.handle

    def writers(self) -> Iterable[Writer]:
        subject, now = self._subject, self._now
        insertion = Read("list_live", self._live)
        yield Writer(
            *("add_usage", "usage", "K7", self._use),
            self._fields("request_count", "last_used_at"),
            lambda turn: (turn, now + turn),
        )
        yield Writer(
            *("rehash_if", "keys", "K9", self._rehash),
            self._fields("kept"),
            lambda turn: (_digest(subject.key, turn),),
        )
        yield Writer(
            *("update_if", "keys", "D43", self._update),
            self._fields(*self._updated(1)),
            lambda turn: tuple(self._updated(turn).values()),
        )
        yield Writer(
            *("revoke_if_live", "keys", "K3", self._replace),
            (Read("list", self._revocations),),
            self._revoked_after,
        )
        yield Writer(
            *("insert", "keys", "K3", self._insert),
            (insertion,),
            lambda turn: {draft.id for draft in subject.inserted[:turn]},
        )

    def _fields(self, *names: str) -> tuple[Read, ...]:
        """Return reads of the key's fields, one by each verb that returns the key."""
        handle, id, key_id, now = self._handle, self._id, self._subject.key.id, self._now

        async def listed(store: Store) -> object:
            return _by_handle(await store.list(id, PAGE_AT_MOST), handle)

        async def live(store: Store) -> object:
            return _by_handle(await store.list_live(id, PAGE_AT_MOST, None, now), handle)

        return _reads(
            names,
            Read("find", lambda store: store.find(handle)),
            Read("get", lambda store: store.get(id, key_id)),
            Read("list", listed),
            Read("list_live", live),
        )

    async def _use(self, store: Store, turn: int) -> None:
        await store.add_usage({self._handle: Usage(1, self._now + turn)})

    async def _rehash(self, store: Store, turn: int) -> bool:
        old, new = (_digest(self._subject.key, number) for number in (turn - 1, turn))
        return await store.rehash_if(self._handle, old, new)

    def _updated(self, turn: int) -> dict[str, Any]:
        """Return the fields that an update changes, and their values after a turn."""
        return {
            "name": f"name {turn}",
            "scopes": (f"scope:{turn}",),
            "expires_at": self._now + turn * DAY,
            "details": KeyDetails(created_by=f"user {turn}"),
        }

    async def _update(self, store: Store, turn: int) -> bool:
        for _ in range(10 * TURNS_AT_MOST):  # It fails if the digest has changed meanwhile.
            old = await store.find(self._handle)
            if old is None:
                return False
            if await store.update_if(old, old._replace(**self._updated(turn)), self._now):
                return True
        return False

    async def _insert(self, store: Store, turn: int) -> ApiKey:
        return await store.insert(self._subject.inserted[turn - 1], None, self._now)

    async def _live(self, store: Store) -> object:
        inserted = {draft.id for draft in self._subject.inserted}
        keys = await store.list_live(self._id, PAGE_AT_MOST, None, self._now)
        return {key.id for key in keys if key.id in inserted}

    async def _replace(self, store: Store, turn: int) -> object:
        """Insert a key, and revoke the key of the turn before: it was live for another verb."""
        drafts = self._subject.revoked
        made: object = await store.insert(drafts[turn - 1], None, self._now)
        if turn > 1:
            return await store.revoke_if_live(self._id, drafts[turn - 2].id, self._now + turn)
        return made

    async def _revocations(self, store: Store) -> object:
        own = {draft.id for draft in self._subject.revoked}
        keys = await store.list(self._id, PAGE_AT_MOST)
        return {key.id: key.revoked_at for key in keys if key.id in own}

    def _revoked_after(self, turn: int) -> object:
        times = [*range(self._now + 2, self._now + turn + 1), None]
        drafts = self._subject.revoked[:turn]
        return {draft.id: at for draft, at in zip(drafts, times, strict=True)}


class _OfAccounts:
    """Changes the fields of the account, and the plan of its organization."""

    def __init__(self, subject: Subject, account: AccountDraft) -> None:
        self._account, self._id, self._now = account, subject.id, subject.now

    def writers(self) -> Iterable[Writer]:
        account, now = self._account, self._now
        yield Writer(
            *("sign_in", "accounts", "D15", self._sign_in),
            self._fields("signed_in_at"),
            lambda turn: (now + turn,),
        )
        yield Writer(
            *("sign_out", "accounts", "D15", self._sign_out),
            self._fields("sign_outs"),
            lambda turn: (turn,),
        )
        yield Writer(
            *("claim_if_unclaimed", "accounts", "R3", self._claim),
            self._fields("claimed_by", "claimed_at"),
            lambda _: ("user 1", now + 1),
        )
        yield Writer(
            *("rehash_token_if", "accounts", "K9", self._rehash),
            self._fields("kept"),
            lambda turn: (_digest(account, turn),),
        )
        yield Writer(
            *("put_organization", "plans", "D25", self._place),
            (Read("organization", self._overrides),),
            lambda turn: (("rpm", turn),),
        )

    def _fields(self, *names: str) -> tuple[Read, ...]:
        """Return reads of the account's fields, by each verb that returns the account."""
        account, id = self._account, self._id

        async def listed(store: Store) -> object:
            found = await store.unclaimed_by_email(account.billing_email, PAGE_AT_MOST)
            found += await store.accounts_by_user("user 1", PAGE_AT_MOST)
            return next((one for one in found if one.organization == id), None)

        return _reads(
            names,
            Read("account", lambda store: store.account(id)),
            Read("account_by_token", lambda store: store.account_by_token(account.handle)),
            Read("unclaimed_by_email() and accounts_by_user", listed),
        )

    async def _sign_in(self, store: Store, turn: int) -> object:
        return await store.sign_in(self._id, self._now + turn)

    async def _sign_out(self, store: Store, _: int) -> None:
        await store.sign_out(self._id)

    async def _claim(self, store: Store, turn: int) -> object:
        return await store.claim_if_unclaimed(
            self._id, f"user {turn}", revoke=False, keep_token=True, now=self._now + turn
        )

    async def _rehash(self, store: Store, turn: int) -> bool:
        old, new = (_digest(self._account, number) for number in (turn - 1, turn))
        return await store.rehash_token_if(self._account.handle, old, new)

    async def _place(self, store: Store, turn: int) -> None:
        placed = Organization(self._id, "exact", (("rpm", turn),))
        await store.put_organization(placed, self._now)

    async def _overrides(self, store: Store) -> object:
        found = await store.organization(self._id)
        return found and found.overrides


class _OfCounts:
    """Counts hits and usage, takes slots, and adds records to the change log."""

    def __init__(self, subject: Subject) -> None:
        self._id, self._now, self._logged = subject.id, subject.now, subject.logged
        self._history_owner = HistoryOwner(subject.id, None)

    def writers(self) -> Iterable[Writer]:
        logged, peek = self._logged, Read("charge(Peek)", self._peek)
        yield Writer("hit", "windows", "W3", self._hit, (peek,), _charged)
        for owner in ("me", "you"):
            yield self._slots(owner)
        yield Writer(
            *("insert", "changes", "D44", self._log),
            (Read("change_log", self._change_log),),
            lambda turn: [(number, logged[number - 1].id) for number in range(turn, 0, -1)],
        )
        yield Writer(
            *("add_history", "history", "K7", self._add),
            (Read("history", self._history),),
            lambda turn: turn,
        )

    def _slots(self, owner: str) -> Writer:
        """Return a writer that holds one slot after each turn, that of another job."""
        id, now = self._id, self._now

        async def take(store: Store, turn: int) -> object:
            job = f"{owner} {turn}"
            for action in (to_acquire(job, owner, None, HOUR), to_renew(job, owner, 2 * HOUR)):
                if not (await store.charge(id, action, now)).done:
                    return False
            before = f"{owner} {turn - 1}"
            return turn == 1 or (await store.charge(id, to_release(before, owner), now)).done

        async def held(store: Store) -> object:
            leases = (await store.charge(id, TO_LIST, now)).slots
            return [(lease.id, lease.deadline) for lease in leases if lease.owner == owner]

        return Writer(
            *("charge(Take, slot)", "slots", "L3", take),
            (Read("charge(Look, slots)", held),),
            lambda turn: [(f"{owner} {turn}", now + 2 * HOUR)],
        )

    async def _hit(self, store: Store, turn: int) -> bool:
        reading = await store.charge(self._id, Hit(_UNLIMITED, 1), self._now)
        return reading.used == _charged(turn)

    async def _peek(self, store: Store) -> object:
        return (await store.charge(self._id, Peek(_UNLIMITED), self._now)).used

    async def _log(self, store: Store, turn: int) -> object:
        draft = self._logged[turn - 1]
        change = _CREATED._replace(key=draft.id)
        return await store.insert(draft, None, self._now, change=change)

    async def _change_log(self, store: Store) -> object:
        return [(one.number, one.key) for one in await store.change_log(self._id, PAGE_AT_MOST)]

    async def _add(self, store: Store, _: int) -> None:
        addition = UsageHistory()
        addition.admit(self._now, 1)
        await store.add_history({self._history_owner: addition})

    async def _history(self, store: Store) -> object:
        history = await store.history(self._history_owner)
        return sum(cell.admitted for cell in history.cells("day", self._now))


class _OfOthers:
    """Changes what has organizations of its own, and the counts of named limits and budgets."""

    def __init__(self, subject: Subject) -> None:
        self._id, self._now = subject.id, subject.now
        self._reset, self._leased = f"{subject.id} reset", subject.leased
        self._token = subject.token

    def writers(self) -> Iterable[Writer]:
        yield Writer(
            *("charge(Reset)", "resets", "W2", self._empty),
            (Read("charge(Peek)", self._peek),),
            _charged,
        )
        yield Writer(
            *("update_if", "searches", "D43", self._rename),
            (Read("search", self._search),),
            lambda turn: [f"name {turn}"],
        )
        yield Writer(
            *("charge(Hit)", "limits", "W3", self._hit),
            (Read("charge(Peek)", self._peek_limits),),
            lambda turn: (turn,),
        )
        yield Writer(
            *("charge(Take)", "holds", "H1", self._hold),
            (Read("charge(Look)", self._look),),
            lambda turn: (turn,),
        )
        yield Writer(
            *("admit(lease)", "leases", "K4", self._lease),
            (
                Read("charge(LeasesOut)", self._leases),
                Read("charge(LeasesOut, in use)", self._in_use),
            ),
            lambda turn: [(_lease_id(turn), LEAST + turn)],
        )

    async def _empty(self, store: Store, turn: int) -> bool:
        """Hit, reset, and hit again, so that each turn has another count."""
        await store.charge(self._reset, Hit(_UNLIMITED, 1), self._now)
        await store.charge(self._reset, Reset(), self._now)
        reading = await store.charge(self._reset, Hit(_UNLIMITED, turn), self._now)
        return reading.used == _charged(turn)

    async def _peek(self, store: Store) -> object:
        return (await store.charge(self._reset, Peek(_UNLIMITED), self._now)).used

    async def _rename(self, store: Store, turn: int) -> bool:
        old = self._leased.created(self._now)
        old = old if turn == 1 else old._replace(name=f"name {turn - 1}")
        return await store.update_if(old, old._replace(name=f"name {turn}"), self._now)

    async def _search(self, store: Store) -> object:
        wanted, cursor, names = KeySearch(handle=self._leased.handle), None, list[str]()
        while True:
            found = await store.search(wanted, PAGE_AT_MOST, cursor)
            names += (key.name for key in found.keys)
            if (cursor := found.cursor) is None:
                return names

    async def _hit(self, store: Store, turn: int) -> bool:
        reading = await store.charge(self._id, Hit((), 1, _LIMITS), self._now)
        return reading.used == (turn,)

    async def _peek_limits(self, store: Store) -> object:
        return (await store.charge(self._id, Peek((), _LIMITS), self._now)).used

    async def _hold(self, store: Store, turn: int) -> bool:
        """Hold as many units as turns, and nothing of the turn before."""
        taken = Take(_hold_id(turn), _BUDGETS, (turn,), HOUR, 9)
        settled = Settle(_hold_id(turn - 1), _BUDGETS.fields, (0,))
        done = (await store.charge(self._id, taken, self._now)).done
        return done and (turn == 1 or (await store.charge(self._id, settled, self._now)).done)

    async def _look(self, store: Store) -> object:
        return (await store.charge(self._id, Look(_BUDGETS, (1,), 9), self._now)).units

    async def _lease(self, store: Store, turn: int) -> bool:
        """Get one lease, and settle that of the turn before."""
        settled = Settlement(_lease_id(turn - 1), ())
        asked = LeaseRequest(_lease_id(turn), LEAST + turn, LONGEST, (settled,))
        admission = await store.admit(self._token, 1, _UNLIMITED_PLANS, self._now, lease=asked)
        return admission.lease is not None

    async def _leases(self, store: Store) -> object:
        leases = await store.charge(self._leased.organization, LeasesOut(), self._now)
        return [(lease.id, lease.units) for lease in leases]

    async def _in_use(self, store: Store) -> object:
        leases = await store.charge(self._leased.organization, LeasesOut(in_use=True), self._now)
        return [(lease.id, lease.units) for lease in leases]


def _hold_id(turn: int) -> str:
    return f"{turn:032x}"


def _lease_id(turn: int) -> str:
    return f"{turn:016x}"


def _reads(names: Sequence[str], *finds: Read) -> tuple[Read, ...]:
    """Turn reads of a whole row into reads of some of its fields; None without a row."""

    def of_fields(find: Read) -> Read:
        async def shown(store: Store) -> object:
            found = await find(store)
            return found and tuple(getattr(found, name) for name in names)

        return Read(find.verb, shown)

    return tuple(map(of_fields, finds))


def _charged(turn: int) -> tuple[int, ...]:
    """Return the units used of each window after a turn."""
    return (turn,) * len(_UNLIMITED)


def _by_handle(keys: Iterable[ApiKey], handle: str) -> ApiKey | None:
    return next((key for key in keys if key.handle == handle), None)


def _digest(draft: KeyDraft | AccountDraft, turn: int) -> Digest:
    """Return the digest of a key or token after a turn; in turn 0 its own."""
    if turn == 0:
        return Digest(draft.scheme, draft.digest, draft.seal)
    return Digest("new", turn.to_bytes(32), None)


def told(writer: Writer, turn: int, found: object) -> str:
    """Describe a field that is not as its only writer left it."""
    return (
        f"{as_call(writer.verb)} alone changes a field, which is {found!r} after turn {turn} and "
        f"not {writer.expected(turn)!r}: another verb that ran at the same time has restored it, "
        "or the change was lost."
    )
