"""Stores with one mistake each in quota leases (D42), and in promises (D47)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, ClassVar, Final
from zlib import crc32

from lockgate import MemoryStore
from lockgate.core.ledger import Hit, HitLeased, Leased, Peek, Reset
from lockgate.core.promises import GRACE, start_of
from lockgate.core.quota_leases import LeaseRequest, QuotaLeases, Settlement, out
from lockgate.core.reservations import Reservation, Reservations
from lockgate.core.timestamps import DAY, SECOND
from lockgate.stores.answers import Admission, Verdict

from .mutants import Call, How, Mutant, changed, several, wrong


class Reserving(Mutant):
    """Has what a memory store keeps of leases and promises at hand."""

    def out(self, organization: str) -> QuotaLeases:
        return self._windows._reserved.get(organization, ((), ()))[0]

    def promises(self, organization: str) -> Reservations:
        return self._windows._reserved.get(organization, ((), ()))[1]

    def put(self, organization: str, leases: QuotaLeases, promises: Reservations = ()) -> None:
        self._windows._reserved.pop(organization, None)
        if leases or promises:
            self._windows._reserved[organization] = leases, promises


class LeaseMutant(Reserving):
    """Grants leases; right until a subclass makes its mistake."""

    parts: ClassVar = ("quota_leases",)
    grants_leases = True

    async def admit(
        self,
        token: Any,
        cost: int,
        plans: Any,
        now: int | None = None,
        address: str | None = None,
        limits: Any = (),
        lease: LeaseRequest | None = None,
    ) -> Admission:
        if lease is None:
            return await super().admit(token, cost, plans, now, address, limits)
        lease = lease._replace(settled=tuple(map(self.settled, lease.settled)))
        return await MemoryStore.admit(self, token, cost, plans, now, address, limits, lease)

    async def settle_leases(
        self,
        organization: str,
        windows: Any,
        settled: Sequence[Settlement],
        now: int | None = None,
    ) -> None:
        ended = [*map(self.settled, settled)]
        await super().settle_leases(organization, windows, ended, now)

    def settled(self, one: Settlement) -> Settlement:
        return one


async def _beside_leases(call: Call) -> Any:
    """Do not count what is out."""
    store, leases = call.store, call.store.out(call.organization)
    if leases:
        store.put(call.organization, ())
    try:
        return await call()
    finally:
        if leases:
            store.put(call.organization, leases)


def _used(change: Callable[[int], int]) -> How:
    """Return a mistake: units of a lease were used at other instants."""
    return lambda call: call.one._replace(used=tuple((change(at), u) for at, u in call.one.used))


def _listing(order: Callable[[Any], Any]) -> How:
    """Return a mistake: leases are listed in another order than that of their grants."""
    return lambda call: call.then(lambda leases: tuple(sorted(leases, key=order)))


async def _nothing(call: Call) -> None: ...


several(
    {
        "grants_no_lease": ("H5", "admit", lambda call: call(lease=None)),
        "hits_beside_leases": ("H1 W4 W6", "hit", _beside_leases),
        "peeks_beside_leases": ("H1 W4 W6", "peek", _beside_leases),
        # Hides a lease whose holder still admits, once the clock has stepped forward.
        "lists_leases_until_their_deadline": (
            "H2 K4",
            "quota_leases",
            lambda call: call.then(out),
        ),
        # Has a change wait for the oldest lease only.
        "takes_holders_for_stopped": (
            "K4",
            "leases_in_use",
            lambda call: call.then(lambda leases: leases[:1]),
        ),
        # Waits for no lease past its deadline, whose holder's clock may be behind.
        "takes_overdue_holders_for_stopped": (
            "K4",
            "leases_in_use",
            lambda call: call.then(lambda leases: tuple(one for one in leases if one.units)),
        ),
        "lists_leases_in_use_by_deadline": (
            "K4",
            "leases_in_use",
            _listing(lambda one: one.deadline),
        ),
        "lists_leases_by_id": ("K4", "quota_leases", _listing(lambda one: one)),
        "lists_leases_by_deadline": ("K4", "quota_leases", _listing(lambda one: one.deadline)),
        "lists_leases_by_units": ("K4", "quota_leases", _listing(lambda one: -one.units)),
        "lists_the_latest_lease_first": (
            "K4",
            "quota_leases",
            lambda call: call.then(lambda leases: leases[::-1]),
        ),
        "lists_leases_of_a_hash": (
            "K4",
            "quota_leases",
            _listing(lambda one: crc32(one.id.encode())),
        ),
        # Joins two lists: those that are out, and those that ended unsettled.
        "lists_ended_leases_last": ("K4", "quota_leases", _listing(lambda one: not one.units)),
        # Keeps a lease until its deadline.
        "settles_nothing": ("H3 H4 W4", "settle_leases", _nothing),
        "settles_without_use": (
            "H1 H3 H4 W4",
            "settled",
            lambda call: call.one._replace(used=()),
        ),
        "stamps_early": ("H1", "settled", _used(lambda at: at - 1)),
        "stamps_when_it_settles": ("H1 W6", "settled", _used(lambda at: at + DAY)),
    },
    of=LeaseMutant,
)


@wrong("H2", "quota_leases", of=LeaseMutant)
async def forgets_leases_at_their_deadline(call: Call) -> Any:
    """Takes a dead process's units for free."""
    left = await call()
    if call.store.out(call.organization):
        call.store.put(call.organization, left)
    return left


@wrong("K4", "hit", of=LeaseMutant)
async def forgets_leases_that_it_counts(call: Call) -> Any:
    """Lists a lease past its deadline only until the next hit."""
    reading = await call()
    if leases := call.store.out(call.organization):
        call.store.put(call.organization, out(leases))
    return reading


@wrong("H3 W4", "settle_leases", of=LeaseMutant)
async def counts_a_settlement_twice(call: Call) -> None:
    """Counts a settlement of a lease that is no more."""
    known = {lease.id for lease in call.store.out(call.organization)}
    await call()
    for one in call.settled:
        if one.id not in known and one.used:
            units = sum(units for _, units in one.used)
            await call.store.charge(call.organization, Hit(call.windows, units), call.now)


@wrong("W8", "settle_leases", of=LeaseMutant)
async def settles_leases_of_all_organizations(call: Call) -> None:
    for owner in (call.organization, *call.store._windows._reserved):
        await call(organization=owner)


@wrong("W2", "reset", of=LeaseMutant)
async def loses_leases_on_a_reset(call: Call) -> None:
    await call()
    call.store._windows._reserved.pop(call.organization, None)


@wrong("W11", "quota_leases", of=LeaseMutant)
async def keeps_deadlines_when_the_clock_steps_back(call: Call) -> Any:
    return tuple(one for one in call.store.out(call.organization) if one.deadline > call.at)


@wrong("H1 W6 H5", "hit", of=LeaseMutant)
async def refuses_beyond_the_first_deadline(call: Call) -> Any:
    reading = await call()
    is_beside = not reading.allowed and call.store.out(call.organization)
    return reading._replace(reset=reading.reset + 1) if is_beside else reading


# Another lease than the rule grants.
def _granting(other: Callable[[Admission, Reservation | None], Reservation | None]) -> How:
    """Return a mistake.

    Args:
        other: returns the lease to grant, from the answer and all that was asked for.
    """

    async def how(call: Call) -> Any:
        answer, asked = await call(), call.lease
        if asked is None:
            return answer
        whole = Reservation(asked.id, asked.units, call.at + asked.span, asked.span)
        lease = other(answer, whole if asked.units else None)
        if lease == answer.lease:
            return answer
        organization = answer.key.organization
        kept = tuple(one for one in call.store.out(organization) if one.id != asked.id)
        call.store.put(organization, kept if lease is None else (*kept, lease))
        return answer._replace(lease=lease)

    return how


def _is_plain(answer: Admission, verdict: Verdict = Verdict.ADMITTED) -> bool:
    return answer.verdict is verdict and answer.limits is None


several(
    {
        "grants_all_that_is_asked": (
            "H5",
            "admit",
            _granting(lambda a, all: all if a.lease else None),
        ),
        "grants_few_units": (
            "H5",
            "admit",
            _granting(
                lambda a, all: a.lease or (all if all and all.units < 3 and _is_plain(a) else None)
            ),
        ),
        "grants_with_a_refusal": (
            "H5",
            "admit",
            _granting(lambda a, all: all if _is_plain(a, Verdict.LIMITED) else a.lease),
        ),
        "grants_beside_named_limits": (
            "H5",
            "admit",
            _granting(
                lambda a, all: (
                    all if a.verdict is Verdict.ADMITTED and a.limits is not None else a.lease
                )
            ),
        ),
        "grants_to_revoked_keys": (
            "H5",
            "admit",
            _granting(lambda a, all: all if a.verdict is Verdict.REVOKED else a.lease),
        ),
        "grants_nothing_without_a_limit": (
            "H5",
            "admit",
            _granting(
                lambda a, all: None if a.reading and a.reading.remaining is None else a.lease
            ),
        ),
    },
    of=LeaseMutant,
)


@wrong("H5 P1 P2 P3 W4", "admit", of=LeaseMutant)
async def grants_beside_promises(call: Call) -> Any:
    """Looks at no promise where it may grant a lease."""
    store = call.store
    if call.lease is None:
        return await call()
    owner = store._keys.key(call.token.handle).organization
    promises = store.promises(owner)
    store._windows._reserved[owner] = store.out(owner), ()
    answer = await call()
    store._windows._reserved[owner] = store.out(owner), promises
    return answer


# Recalls.
class Recalling(LeaseMutant):
    """Sends a recall with each change of a key or a plan; right until a subclass is not."""

    def __init__(self) -> None:
        super().__init__()
        self.recalled: list[str] = []

    def recall(self, by: str, organization: str) -> None:
        self.recalled.append(organization)

    async def recalls(self) -> AsyncGenerator[Any]:
        place = 0
        while True:
            for organization in self.recalled[place:]:
                place += 1
                yield self.sent(organization)
            yield None

    def sent(self, organization: str) -> Any:
        return organization


async def _recalling(call: Call) -> Any:
    answer = await call()
    owner = call.old if "old" in call else call.organization
    organization = getattr(owner, "organization", getattr(owner, "id", owner))
    call.store.recall(call.verb, organization)
    return answer


for _verb in ("revoke_if_live", "update_if", "rotate_if", "put_organization", "claim_if_unclaimed"):
    setattr(Recalling, _verb, changed(LeaseMutant, _verb, _recalling))


async def _once(call: Call) -> AsyncGenerator[Any]:
    for organization in call.store.recalled[:1]:
        yield organization


def _all_but(verb: str) -> How:
    return lambda call: None if call.by == verb else call()


several(
    {
        # Decodes what it receives as ASCII.
        "raises_after_a_recall": (
            "K4",
            "sent",
            lambda call: call.organization.encode("ascii").decode(),
        ),
        # As the driver does.
        "recalls_in_bytes": (
            "K4",
            "sent",
            lambda call: call.organization.encode("utf-8", "surrogatepass"),
        ),
        "recalls_without_case": ("K4", "sent", lambda call: call.organization.strip().lower()),
        # To what fits the payload of a notification.
        "cuts_recalls": ("K4", "sent", lambda call: call.organization[:63]),
        # Listens to a channel that no verb sends to.
        "recalls_nothing": ("K4", "recall", lambda call: None),
        "recalls_once": ("K4", "recalls", _once),
        # Lets leases of a key run out whose scopes or expiry have changed.
        "recalls_for_no_updates": ("K4", "recall", _all_but("update_if")),
        "recalls_for_no_plans": ("K4", "recall", _all_but("put_organization")),
        "recalls_for_no_rotations": ("K4", "recall", _all_but("rotate_if")),
        # Lets leases of keys run out that a claim has revoked.
        "recalls_for_no_claims": ("K4", "recall", _all_but("claim_if_unclaimed")),
    },
    of=Recalling,
)


@wrong("K4", "recalls", of=Recalling)
def raises_for_recalls(call: Call) -> Any:
    """Cannot be listened to."""
    raise NotImplementedError


# Promises.
_BY_ANY: Final = "P1 P2 P3 P4 W4 W6"
"""A promise that is wrong shows in the next call, by what remains or the wait of a refusal."""


class PromiseMutant(Reserving):
    """Right until a subclass makes its mistake: in a call, in what is kept, or in the answer."""

    parts: ClassVar = ("admission",)

    async def _charged(self, owner: str, action: Any, now: int | None) -> Any:
        before = self.before(action, self.promises(owner))
        self.put(owner, self.out(owner), before)
        answer: Any = await super()._charged(owner, self.asked(action), now)
        after = self.after(action, answer, before, self.promises(owner))
        self.put(owner, self.out(owner), after)
        return self.answer(answer)

    def before(self, action: object, promises: Reservations) -> Reservations:
        """Return the promises that a call finds."""
        return promises

    def asked(self, action: Any) -> Any:
        """Return the call to make."""
        return action

    def after(
        self, action: object, answer: Any, before: Reservations, after: Reservations
    ) -> Reservations:
        """Return the promises to keep after a call."""
        return after

    def answer(self, answer: Any) -> Any:
        """Return the answer to give."""
        return answer


def _keeping(change: Callable[[Reservation], Reservation]) -> How:
    """Return a mistake: each new promise is another one."""
    return lambda call: tuple(one if one in call.before else change(one) for one in call.after)


def _longer(by: int) -> How:
    return _keeping(lambda one: one._replace(deadline=one.deadline + by, span=one.span + by))


def _unseen(is_meant: Callable[[Any], bool]) -> How:
    """Return a mistake: some calls find no promises."""
    return lambda call: () if is_meant(call.action) else call.promises


def _telling(change: Callable[[Any], Any]) -> How:
    """Return a mistake: an answer with a promise is another one."""

    def how(call: Call) -> Any:
        answer = call.answer
        is_meant = isinstance(answer, Leased) and answer.lease is not None
        return change(answer) if is_meant else answer

    return how


def _as_before(call: Call) -> Reservations:
    """Extend promises when the clock steps back."""
    longer = {(one.owner, one.units, one.span): one for one in call.before}
    return tuple(longer.get((one.owner, one.units, one.span), one) for one in call.after)


def _owned(answer: Any, owner: str) -> Any:
    return answer._replace(lease=answer.lease._replace(owner=owner))


several(
    {
        "promises_nothing": (
            _BY_ANY,
            "asked",
            lambda call: (
                call.action._replace(holder="")
                if isinstance(call.action, HitLeased)
                else call.action
            ),
        ),
        # And keeps no units.
        "says_that_it_promises": (_BY_ANY, "after", lambda call: ()),
        "gives_promised_units_to_calls_without_a_key": (
            _BY_ANY,
            "before",
            _unseen(lambda action: isinstance(action, Hit) and action.limits is None),
        ),
        "gives_promised_units_to_calls_of_named_limits": (
            _BY_ANY,
            "before",
            _unseen(lambda one: isinstance(one, Hit | HitLeased) and one.limits is not None),
        ),
        # Refuses newcomers before the start of a promise, too.
        "keeps_units_from_the_refusal_on": (
            _BY_ANY,
            "before",
            lambda call: tuple(sorted(call.promises, key=start_of, reverse=True)),
        ),
        # Leaves a promise that was used.
        "serves_each_call_of_a_key": (
            _BY_ANY,
            "after",
            lambda call: (
                call.before
                if isinstance(call.action, HitLeased) and call.answer.reading.allowed
                else call.after
            ),
        ),
        # Of an organization.
        "keeps_one_promise": (_BY_ANY, "after", lambda call: call.after[-1:]),
        "keeps_units_longer_than_the_grace": (_BY_ANY, "after", _longer(1)),
        "keeps_units_shorter_than_the_grace": (_BY_ANY, "after", _longer(-1)),
        "keeps_units_for_a_minute": (_BY_ANY, "after", _longer(60 * SECOND - GRACE)),
        # Whatever the cost.
        "keeps_one_unit": (_BY_ANY, "after", _keeping(lambda one: one._replace(units=1))),
        "keeps_another_unit": (
            _BY_ANY,
            "after",
            _keeping(lambda one: one._replace(units=one.units + 1)),
        ),
        "extends_promises_when_the_clock_steps_back": (_BY_ANY, "after", _as_before),
        # Says nothing of a promise to the caches before the store.
        "tells_the_instant_of_a_promise_only": (
            _BY_ANY,
            "answer",
            _telling(lambda answer: answer._replace(lease=None)),
        ),
        # Tells a second more than it keeps.
        "rounds_waits_up": (
            _BY_ANY,
            "answer",
            _telling(
                lambda one: one._replace(
                    reading=one.reading._replace(wait=one.reading.wait + SECOND)
                )
            ),
        ),
        "keeps_promises_on_a_reset": (
            "W2",
            "after",
            lambda call: call.before if isinstance(call.action, Reset) else call.after,
        ),
    },
    of=PromiseMutant,
)


@wrong(_BY_ANY, "asked", "answer", of=PromiseMutant)
def takes_all_keys_for_one(call: Call) -> Any:
    if "action" in call:
        is_meant = isinstance(call.action, HitLeased)
        return call.action._replace(holder="key") if is_meant else call.action
    return _telling(lambda answer: _owned(answer, "key"))(call)


@wrong(_BY_ANY, "peek", of=PromiseMutant)
async def reads_past_promises(call: Call) -> Any:
    store, organization = call.store, call.organization
    promises = store.promises(organization)
    store.put(organization, store.out(organization))
    reading = await Mutant._charged(store, organization, Peek(call.windows), call.now)
    store.put(organization, store.out(organization), promises)
    return reading


@wrong(_BY_ANY, "asked", "before", "answer", of=PromiseMutant)
def promises_all_to_one_key(call: Call) -> Any:
    """A key that does not wait takes all."""
    seen = call.store.seen
    calls = seen.setdefault("calls", 0)
    if "promises" in call:
        holder = f"{getattr(call.action, 'holder', '')} {calls + 1}"
        present = call.store._clock()
        return tuple(
            one._replace(owner=holder) if start_of(one) <= present else one for one in call.promises
        )
    if "answer" in call:
        return _telling(lambda one: _owned(one, one.lease.owner.rpartition(" ")[0]))(call)
    if not isinstance(call.action, HitLeased) or not call.action.holder:
        return call.action
    seen["calls"] = calls + 1
    return call.action._replace(holder=f"{call.action.holder} {calls + 1}")


@wrong("W8", "promises", of=PromiseMutant)
def keeps_promises_of_alike_organizations_together(call: Call) -> Any:
    """Compares ids without case."""
    kept = call.store._windows._reserved
    alike = [one for one in [*kept] if one.lower() == call.organization.lower()]
    return tuple(sorted((one for name in alike for one in kept[name][1]), key=start_of))
