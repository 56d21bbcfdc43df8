"""A state machine that makes random calls on a store and the model, and shrinks differences.

Needs Hypothesis: ``pip install 'lockgate[testing]'``.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine
from dataclasses import replace
from inspect import isawaitable
from typing import Any, ClassVar, Final, TypeVar

from ..core.api_keys import KeyDetails, KeyDraft, KeyState, Position
from ..core.changes import Action, Actor, ActorKind, ChangeDraft
from ..core.digests import Digest
from ..core.extras import extra
from ..core.holds import Look, Renew, Settle, Take, budgets
from ..core.key_format import NewKey
from ..core.leases import TO_LIST, to_acquire, to_release, to_renew
from ..core.ledger import Action as LedgerAction
from ..core.ledger import Hit, LeasesOut, Peek, Reset, settling
from ..core.limits import Limit, bound
from ..core.plans import Organization, Plan, PlanBook
from ..core.quota_leases import LeaseRequest, Settlement
from ..core.temporary_limits import TemporaryLimit, with_temporary
from ..core.timestamps import DAY, HOUR, MINUTE, SECOND
from ..stores.answers import Usage, UsageBatch
from ..stores.base import PAGE_AT_MOST, PartStore
from ..sync import run
from .calls import Call
from .certify import MakeStore
from .checks import PARTS, Part, applies, whole
from .factories import COARSE, EXACT, NARROW, NOW, OPEN, PLANS, Factory
from .lockstep import Lockstep

with extra("testing", "lockgate[testing]", "hypothesis", "pytest"):
    from hypothesis import HealthCheck, settings
    from hypothesis import strategies as st
    from hypothesis.stateful import (
        RuleBasedStateMachine,
        precondition,
        rule,
        run_state_machine_as_test,
    )

T = TypeVar("T")

ORGANIZATIONS: Final = ("org_1", "org_2", "Org_1")
AHEAD: Final = st.one_of(
    st.integers(0, 3),
    st.sampled_from([SECOND - 1, SECOND, MINUTE - 1, MINUTE, HOUR, DAY - 1, DAY, 2 * DAY]),
    st.integers(0, 2 * MINUTE),
)
BACK: Final = st.sampled_from([1, SECOND, MINUTE, 2 * DAY])
PLAN: Final = st.sampled_from([NARROW, EXACT, COARSE, OPEN])
WHICH: Final = st.integers(0, 4)
ORGANIZATION: Final = st.sampled_from(ORGANIZATIONS)
JOB: Final = st.sampled_from(["job 1", "job 2", "job 3"])
OWNER: Final = st.sampled_from(["me", "you"])
EMAIL: Final = st.sampled_from(["ada@example.com", "eve@example.com"])
SPAN: Final = st.sampled_from([1, SECOND, MINUTE, HOUR])
LIMIT: Final = st.none() | st.integers(0, 3)
SCHEMES: Final = ("sha256", "other", "another")
END: Final = st.none() | AHEAD
SCOPES: Final = st.sampled_from([("*",), ("jobs:read",)])
DETAILS: Final = st.sampled_from(
    [None, KeyDetails(labels=(("team", "ci"),)), KeyDetails(addresses=("192.0.2.0/24",))]
)
ADDRESS: Final = st.sampled_from(["192.0.2.7", "198.51.100.7", ""])
SEAL: Final = st.sampled_from([None, None, "01020304:aa"])
BUSY: Final = PlanBook(
    [replace(NARROW, rpm=150, rph=400, rpd=None), EXACT, COARSE, OPEN], default="narrow"
)
LEASES: Final = [f"{number:016x}" for number in range(5)]
USED: Final = st.lists(st.integers(-2, 2 * SECOND), max_size=3)
HOLDS: Final = [f"{number:032x}" for number in range(5)]
LIMITS: Final = st.lists(
    st.sampled_from(
        [
            Limit("one", "3/minute"),
            Limit("one", "5/minute;9/hour"),
            Limit("key", "2 per second;4/day", by="key"),
            Limit("exact", "70/minute", resolution=None),
            Limit("coarse", "90/15 minutes", by="key", resolution=1),
            Limit("quota", "60/calendar day;400/month"),
        ]
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda limit: limit.name,
).map(tuple)
OF_PLANS: Final = Limit("plan", "5/minute"), Limit("each", "3/hour", by="key")
PATIENT_PLANS: Final = PlanBook(
    [replace(plan, kept_retries=True) for plan in (NARROW, EXACT, COARSE)], default="narrow"
)
LIMITED_PLANS: Final = PlanBook(
    [replace(plan, limits=OF_PLANS) for plan in (NARROW, EXACT, OPEN)], default="narrow"
)
CHANGE: Final[st.SearchStrategy[ActorKind | None]] = st.sampled_from([None, "user", "host"])
KEPT: Final = st.tuples(st.sampled_from(SCHEMES), SEAL)


def needs(part: Part) -> Callable[[Any], bool]:
    """Return a rule's precondition: the store implements this part."""
    return lambda machine: part in machine.parts and applies(part, machine._witness.store)


class StoreMachine(RuleBasedStateMachine):
    """Calls every verb in any order, at times that move ahead and back.

    Subclass it with a :meth:`make_store`, or let :func:`lockstep` do so.
    """

    parts: ClassVar[Collection[Part]] = PARTS
    """The parts that the store implements."""

    @staticmethod
    def make_store() -> PartStore | Awaitable[PartStore]:
        """Return a new, empty store."""
        raise NotImplementedError

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self._passed = 0
        self._changes = 0
        self._steady = True
        self._runner: asyncio.Runner | None = None
        self._mint = Factory()
        self._keys: list[tuple[NewKey, KeyDraft]] = []
        self._batches = 0
        for index in range(5):
            key = self._mint.key()
            lifetime = (None, HOUR, None, DAY, MINUTE)[index]
            draft = self._mint.draft(ORGANIZATIONS[index % 3], key=key, lifetime=lifetime)
            self._keys.append((key, draft))
        made = self.make_store()
        if isawaitable(made):
            self._runner = asyncio.Runner()
            made = self._runner.run(_awaited(made))
        elif made.io == "async":
            self._runner = asyncio.Runner()
        self._witness = Lockstep(whole(made))

    def _drive(self, flow: Coroutine[Any, Any, T]) -> T:
        return run(flow) if self._runner is None else self._runner.run(flow)

    def _call(self, verb: str, *arguments: Any, **options: Any) -> None:
        self._drive(self._witness.see(Call(verb, arguments, tuple(options.items()))))

    def _charge(self, organization: str, action: LedgerAction[Any]) -> None:
        self._call("charge", organization, action, self.now)

    def _change(self, action: Action, kind: ActorKind | None) -> dict[str, ChangeDraft]:
        """Return the argument ``change`` of a verb; empty for some calls and without a log."""
        if kind is None or "changes" not in self.parts:
            return {}
        self._changes += 1
        fields = (("number", self._changes),)
        return {"change": ChangeDraft(action, f"key {self._changes}", Actor(kind), (), fields)}

    def _read_log(self, organization: str) -> None:
        if "changes" in self.parts:
            self._call("change_log", organization, 5)

    def teardown(self) -> None:
        """Close the store."""
        store: Any = self._witness.store
        self._drive(store.close())
        if self._runner is not None:
            self._runner.close()

    @rule(by=AHEAD)
    def time_passes(self, by: int) -> None:
        """Move the time of later calls ahead."""
        if self._steady or self._passed + by < DAY:
            self.now += by
            self._passed += by

    @precondition(lambda machine: machine._passed < DAY)
    @rule(by=BACK)
    def the_clock_steps_back(self, by: int) -> None:
        """Move the time of later calls back.

        Only in walks of less than a day: after that a store may have dropped state that counts
        again when the clock steps back.
        """
        self._steady = False
        self.now -= by

    @precondition(needs("windows"))
    @rule(organization=ORGANIZATION, plan=PLAN, cost=st.integers(1, 4), times=st.integers(1, 4))
    def hit(self, organization: str, plan: Plan, cost: int, times: int) -> None:
        """Charge calls."""
        for _ in range(times):
            self._charge(organization, Hit(plan.windows, cost))

    @precondition(needs("limits"))
    @rule(organization=ORGANIZATION, plan=PLAN, limits=LIMITS, which=WHICH, times=st.integers(1, 4))
    def hit_limited(
        self, organization: str, plan: Plan, limits: tuple[Limit, ...], which: int, times: int
    ) -> None:
        """Charge calls to named limits, in some of them without the windows of a plan."""
        windows = () if which == 4 else plan.windows
        named = bound(limits, self._keys[which][1].id)
        for _ in range(times):
            self._charge(organization, Hit(windows, which % 3 + 1, named))
        self._charge(organization, Peek(plan.windows, named))

    @precondition(needs("limits"))
    @rule(organization=ORGANIZATION, change=CHANGE)
    def reset(self, organization: str, change: ActorKind | None) -> None:
        """Empty the windows and the named limits of an organization."""
        options = self._change("windows_reset", change)
        self._charge(organization, Reset(options.get("change")))
        self._read_log(organization)

    @precondition(needs("holds"))
    @rule(
        organization=ORGANIZATION,
        limits=LIMITS,
        which=WHICH,
        units=st.integers(1, 6),
        span=SPAN,
    )
    def hold(
        self, organization: str, limits: tuple[Limit, ...], which: int, units: int, span: int
    ) -> None:
        """Take a hold, or find the one of this id that is out."""
        if (named := bound(limits, self._keys[which][1].id)) is not None:
            taken = Take(HOLDS[which], budgets(named), (units,) * len(named.fields), span, 3)
            self._charge(organization, taken)

    @precondition(needs("holds"))
    @rule(
        organization=ORGANIZATION,
        limits=LIMITS,
        which=WHICH,
        used=st.none() | st.integers(0, 8),
        renewed=st.none() | SPAN,
    )
    def settle(
        self,
        organization: str,
        limits: tuple[Limit, ...],
        which: int,
        used: int | None,
        renewed: int | None,
    ) -> None:
        """Renew a hold or settle it, in some of its budgets."""
        if (named := bound(limits, self._keys[which][1].id)) is not None:
            named = budgets(named)
            fields, quotas = named.fields, named.quotas
            if renewed is not None:
                renewal = Renew(HOLDS[which], fields, renewed, quotas)
                self._charge(organization, renewal)
            settled = Settle(HOLDS[which], fields, (used,) * len(fields), quotas)
            self._charge(organization, settled)

    @precondition(needs("holds"))
    @rule(organization=ORGANIZATION, limits=LIMITS, which=WHICH, units=st.integers(1, 6))
    def look(self, organization: str, limits: tuple[Limit, ...], which: int, units: int) -> None:
        """Read budgets, of which some may be new."""
        if (named := bound(limits, self._keys[which][1].id)) is not None:
            look = Look(budgets(named), (units,) * len(named.fields), 3)
            self._charge(organization, look)

    @precondition(needs("windows"))
    @rule(organization=ORGANIZATION, plan=PLAN)
    def peek(self, organization: str, plan: Plan) -> None:
        """Read the status."""
        self._charge(organization, Peek(plan.windows))

    @precondition(needs("slots"))
    @rule(organization=ORGANIZATION, job=JOB, owner=OWNER, limit=LIMIT, span=SPAN)
    def acquire(
        self, organization: str, job: str, owner: str, limit: int | None, span: int
    ) -> None:
        """Acquire a slot for a job."""
        self._charge(organization, to_acquire(job, owner, limit, span))

    @precondition(needs("slots"))
    @rule(organization=ORGANIZATION, job=JOB, owner=OWNER, span=SPAN)
    def renew(self, organization: str, job: str, owner: str, span: int) -> None:
        """Renew the lease of a job."""
        self._charge(organization, to_renew(job, owner, span))

    @precondition(needs("slots"))
    @rule(organization=ORGANIZATION, job=JOB, owner=OWNER)
    def release(self, organization: str, job: str, owner: str) -> None:
        """Release the slot of a job."""
        self._charge(organization, to_release(job, owner))
        self._charge(organization, TO_LIST)

    @precondition(needs("keys"))
    @rule(which=WHICH, cap=st.none() | st.integers(1, 2), change=CHANGE)
    def insert(self, which: int, cap: int | None, change: ActorKind | None) -> None:
        """Insert a new key or an existing one.

        An existing one has no cap, since a store may raise either of two refusals.
        """
        draft = self._keys[which][1]
        world = self._witness.world
        known = draft.handle in world.keys or draft.handle in world.removed
        options = self._change("key_created", change)
        self._call("insert", draft, None if known else cap, self.now, **options)
        self._read_log(draft.organization)

    @precondition(needs("keys"))
    @rule(which=WHICH, organization=ORGANIZATION, change=CHANGE)
    def revoke(self, which: int, organization: str, change: ActorKind | None) -> None:
        """Revoke a key, which may belong to another organization."""
        options = self._change("key_revoked", change)
        self._call("revoke_if_live", organization, self._keys[which][1].id, self.now, **options)
        self._read_log(organization)

    @precondition(needs("keys"))
    @rule(
        which=WHICH,
        end=END,
        scopes=SCOPES,
        details=DETAILS,
        stale=st.booleans(),
        change=CHANGE,
    )
    def update(
        self,
        which: int,
        end: int | None,
        scopes: tuple[str, ...],
        details: KeyDetails | None,
        stale: bool,
        change: ActorKind | None,
    ) -> None:
        """Update a key's fields, on the condition of its present or a stale record."""
        draft = self._keys[which][1]
        old = self._witness.world.keys.get(draft.handle)
        if old is None or stale:
            old = draft.created(self.now)
        expires_at = None if end is None else self.now + end
        new = old._replace(expires_at=expires_at, scopes=scopes, details=details)
        self._call("update_if", old, new, self.now, **self._change("key_updated", change))
        self._read_log(old.organization)

    @precondition(needs("keys"))
    @rule(which=WHICH, overlap=END, cap=st.none() | st.integers(1, 2), change=CHANGE)
    def rotate(
        self, which: int, overlap: int | None, cap: int | None, change: ActorKind | None
    ) -> None:
        """Rotate a key to a successor that may exist already."""
        old = self._witness.world.keys.get(self._keys[which][1].handle)
        if old is None:
            return
        draft = self._keys[(which + 3) % 5][1]._replace(organization=old.organization)
        world = self._witness.world
        if draft.handle in world.keys or draft.handle in world.removed:
            cap = None
            if old.state(self.now) is not KeyState.ACTIVE:
                return  # The store may choose which refusal it raises.
        details = KeyDetails(self.now, draft.id)
        new = old._replace(revoked_at=self.now, details=details)
        if overlap is not None:
            new = old._replace(expires_at=self.now + overlap, details=details)
        options = self._change("key_rotated", change)
        self._call("rotate_if", old, new, draft, cap, self.now, **options)
        self._read_log(old.organization)

    @precondition(needs("keys"))
    @rule(which=WHICH, old=KEPT, new=KEPT)
    def rehash(self, which: int, old: tuple[str, str | None], new: tuple[str, str | None]) -> None:
        """Replace the digest and seal of a key."""
        handle, digest = self._keys[which][1].handle, self._keys[which][1].digest
        before, after = (Digest(scheme, digest, seal) for scheme, seal in (old, new))
        self._call("rehash_if", handle, before, after)

    @precondition(needs("usage"))
    @rule(which=st.lists(WHICH, max_size=3), requests=st.integers(1, 9), times=st.integers(0, 2))
    def use(self, which: list[int], requests: int, times: int) -> None:
        """Add usage of keys that may not exist, in a batch that may be repeated."""
        handles = [self._keys[index][1].handle for index in which]
        usage = {handle: Usage(requests, self.now) for handle in handles}
        if not times:
            self._call("add_usage", usage)
        self._batches += 1
        for _ in range(times):
            self._call("add_usage", usage, UsageBatch("0123456789abcdef", self._batches))

    @precondition(needs("keys"))
    @rule(which=WHICH, organization=ORGANIZATION, limit=st.integers(1, 3))
    def read(self, which: int, organization: str, limit: int) -> None:
        """Read keys, and list them in pages from any position."""
        key = self._keys[which][1]
        self._call("find", key.handle)
        self._call("get", organization, key.id)
        self._call("list", organization, PAGE_AT_MOST)
        self._call("list_live", organization, PAGE_AT_MOST, None, self.now)
        created = key.created(self.now)
        self._call("list", organization, limit, Position(created.created_at, key.id))
        place = Position(created.ends_at, key.id)
        self._call("list_live", organization, limit, place, self.now)
        self._call("census", self.now)

    @precondition(needs("keys"))
    @rule(age=st.sampled_from([0, 1, SECOND, HOUR, DAY]))
    def remove_ended(self, age: int) -> None:
        """Remove ended keys, unless a record is due before the one that precedes it.

        After a step back of the clock a store may keep it until the other is due.
        """
        for changes in self._witness.world.changes.values():
            due = [change.at <= self.now - age for change in changes]
            if due != sorted(due, reverse=True):
                return
        self._call("remove_ended", age, self.now)

    @precondition(needs("accounts"))
    @rule(
        organization=ORGANIZATION,
        plan=PLAN,
        rpm=st.none() | st.integers(1, 9),
        lasting=st.sampled_from([None, 0, 1, SECOND, HOUR]),
        change=CHANGE,
    )
    def place(
        self,
        organization: str,
        plan: Plan,
        rpm: int | None,
        lasting: int | None,
        change: ActorKind | None,
    ) -> None:
        """Change the plan of an organization, with its own limit for ever or for a while."""
        own = {"rpm": rpm} if rpm and lasting is None else {}
        ends = {} if lasting is None else {"rpm": TemporaryLimit(rpm, self.now + lasting)}
        placed = Organization(organization, plan.name, with_temporary(own, ends))
        options = self._change("plan_assigned", change)
        self._call("put_organization", placed, self.now, **options)
        self._read_log(organization)
        self._call("organization", organization)

    @precondition(needs("accounts"))
    @rule(which=WHICH, organization=ORGANIZATION, email=EMAIL, change=CHANGE)
    def register(self, which: int, organization: str, email: str, change: ActorKind | None) -> None:
        """Register an account with a key that may exist."""
        draft = self._keys[which][1]._replace(organization=organization)
        account = self._mint.account(organization, email=email)
        options = self._change("account_registered", change)
        self._call("register", account, draft, self.now, **options)
        self._read_log(organization)
        self._call("account_by_token", account.handle)

    @precondition(needs("accounts"))
    @rule(email=EMAIL, user=OWNER, limit=st.integers(1, 3))
    def page(self, email: str, user: str, limit: int) -> None:
        """List accounts, page by page."""
        for verb, name in (("unclaimed_by_email", email), ("accounts_by_user", user)):
            found = self._drive(self._witness.see(Call(verb, (name, limit))))
            while len(found) == limit:
                last = found[-1]
                at = last.created_at if last.claimed_at is None else last.claimed_at
                position = Position(at, last.organization)
                found = self._drive(self._witness.see(Call(verb, (name, limit, position))))

    @precondition(needs("accounts"))
    @rule(
        organization=ORGANIZATION,
        user=OWNER,
        revoke=st.booleans(),
        keep=st.booleans(),
        old=SEAL,
        new=SEAL,
        change=CHANGE,
    )
    def claim(
        self,
        organization: str,
        user: str,
        revoke: bool,
        keep: bool,
        old: str | None,
        new: str | None,
        change: ActorKind | None,
    ) -> None:
        """Claim an organization, with or without revoking keys and keeping the token."""
        kept = ("revoke", revoke), ("keep_token", keep)
        drawn = self._change("account_claimed", change).items()
        options = *kept, ("seals", (old, new)), ("now", self.now), *drawn
        call = Call("claim_if_unclaimed", (organization, user), options)
        self._drive(self._witness.see(call))
        self._call("list", organization, PAGE_AT_MOST)
        self._read_log(organization)

    @precondition(needs("accounts"))
    @rule(idle=st.sampled_from([0, 1, MINUTE, HOUR, DAY]), change=CHANGE)
    def remove(self, idle: int, change: ActorKind | None) -> None:
        """Remove unclaimed accounts that were not used for a time."""
        options = self._change("account_removed", change)
        self._call("remove_unclaimed", idle, 100, self.now, **options)
        for organization in ORGANIZATIONS:
            self._read_log(organization)
            self._call("account", organization)
            self._call("list", organization, PAGE_AT_MOST)

    @precondition(needs("accounts"))
    @rule(organization=ORGANIZATION, kept=KEPT)
    def sign_out(self, organization: str, kept: tuple[str, str | None]) -> None:
        """Sign an agent in and out, and replace the digest of its token."""
        self._call("sign_in", organization, self.now)
        self._call("sign_out", organization)
        account = self._witness.world.accounts.get(organization)
        if account is not None:
            new = Digest(kept[0], account.digest, kept[1])
            self._call("rehash_token_if", account.handle, account.kept, new)
        self._call("account", organization)

    @precondition(needs("admission"))
    @rule(which=WHICH, cost=st.integers(1, 3), times=st.integers(1, 3), address=ADDRESS)
    def admit(self, which: int, cost: int, times: int, address: str) -> None:
        """Admit requests with a key that may not exist."""
        token = self._mint.token(self._keys[which][0])
        for _ in range(times):
            self._call("admit", token, cost, PLANS, self.now, address)

    @precondition(needs("admission"))
    @precondition(needs("limits"))
    @rule(
        which=WHICH,
        cost=st.integers(1, 3),
        times=st.integers(1, 3),
        limits=st.just(()) | LIMITS,
        plans=st.sampled_from([PLANS, LIMITED_PLANS, PATIENT_PLANS]),
    )
    def admit_limited(
        self, which: int, cost: int, times: int, limits: tuple[Limit, ...], plans: PlanBook
    ) -> None:
        """Admit requests that are charged to named limits, of a rule or of a plan."""
        token = self._mint.token(self._keys[which][0])
        for _ in range(times):
            self._call("admit", token, cost, plans, self.now, "192.0.2.7", limits)

    @precondition(needs("admission"))
    @precondition(needs("quota_leases"))
    @rule(
        which=WHICH,
        cost=st.integers(1, 9),
        lease=WHICH,
        units=st.integers(0, 9),
        span=st.sampled_from([SECOND // 10, SECOND, 2 * SECOND]),
        settled=st.none() | WHICH,
        used=USED,
        plans=st.sampled_from([PLANS, BUSY, LIMITED_PLANS, PATIENT_PLANS]),
    )
    def admit_leased(
        self,
        which: int,
        cost: int,
        lease: int,
        units: int,
        span: int,
        settled: int | None,
        used: list[int],
        plans: PlanBook,
    ) -> None:
        """Admit a request that asks for a lease, and may settle one."""
        key, draft = self._keys[which]
        out = self._witness.world.ledger(draft.organization).leases
        if any(one.id == LEASES[lease] for one in out):
            units = 0  # The ids of leases are random: none comes twice.
        ended = () if settled is None else (self._settlement(settled, used),)
        request = LeaseRequest(LEASES[lease], units, span, ended)
        self._call("admit", self._mint.token(key), cost, plans, self.now, lease=request)
        self._charge(draft.organization, LeasesOut())

    @precondition(needs("quota_leases"))
    @rule(organization=ORGANIZATION, plan=PLAN, settled=WHICH, used=USED)
    def settle_lease(self, organization: str, plan: Plan, settled: int, used: list[int]) -> None:
        """Settle a lease that may be unknown, and look at those that are out."""
        ended = [self._settlement(settled, used)]
        self._charge(organization, settling(plan.windows, ended))
        self._charge(organization, LeasesOut())
        self._charge(organization, Peek(plan.windows))

    def _settlement(self, which: int, ago: list[int]) -> Settlement:
        """Return the end of a lease of which a unit was used at each of these times ago."""
        stamps = ((self.now - one, 1) for one in sorted(ago, reverse=True))
        return Settlement(LEASES[which], tuple(stamps))


def lockstep(
    make_store: MakeStore,
    *,
    parts: Collection[Part] = PARTS,
    profile: settings | None = None,
) -> None:
    """Compare stores with the model on random calls.

    Args:
        make_store: returns a new, empty store for each walk.
        parts: the parts to call; default: all that the store has.
        profile: Hypothesis settings; default: the loaded profile.

    Raises:
        Broken: the answers differ; with the shortest walk found.
    """
    own = {"make_store": staticmethod(make_store), "parts": parts}
    machine = type("StoreMachine", (StoreMachine,), own)
    chosen = settings(
        profile or settings(),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    run_state_machine_as_test(machine, settings=chosen)


async def _awaited(made: Awaitable[PartStore]) -> PartStore:
    return await made
