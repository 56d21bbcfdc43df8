"""Quota leases: granted with admissions, settled, and counted until they end (D42)."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace

from ...core.api_keys import KeyDetails
from ...core.key_format import NewKey
from ...core.ledger import Hit, LeasesOut, Peek, Reset, settling
from ...core.limits import Limit, bound
from ...core.plans import Organization, Plan, PlanBook
from ...core.quota_leases import LEASES_AT_MOST, LONGEST, LeaseRequest, Settlement
from ...core.reservations import Reservation
from ...core.timestamps import HOUR, MINUTE, SECOND
from ...stores.answers import Verdict
from ...stores.base import Store
from ..factories import HOSTILE, NOW, OPEN, Factory
from ..guarantees import Broken
from ..model import World, insert
from .callers import Callers
from .check import Check, alone, crowded

BUSY = Plan("busy", rpm=500, rph=20_000, rpd=100_000, concurrent=None, resolution=None)
BOOK = PlanBook([BUSY], custom=(), default="busy")
UNLIMITED = PlanBook([OPEN], custom=(), default="open")
WINDOWS = BUSY.windows
_SHARE = 10
"""The most units of the plan that are out on leases: 2 % of its minute."""


RECALLED = (
    *("org_1", "org_2", "Org", "org ", " ", "nul\0nul", "a:b", "%41", "\u00e9"),
    *("\U0001f511" * 128, "lone \ud800 surrogate", "two \ud83d\ude00 surrogates"),
)
"""Ids of organizations whose leases are recalled: more than two rounds of all changes."""
_SILENCES = 5
"""How often a listener hears of no recall until one counts as lost: each lasts for a second, or
longer, on a store that listens."""


def id_of(number: int) -> str:
    return f"{number:016x}"


def ask(number: int, units: int = _SHARE, *settled: Settlement, span: int = SECOND) -> LeaseRequest:
    return LeaseRequest(id_of(number), units, span, settled)


def used(number: int, *stamps: tuple[int, int]) -> Settlement:
    return Settlement(id_of(number), stamps)


async def new_key(store: Store, factory: Factory, organization: str = "org_1") -> NewKey:
    """Insert a key, and return it."""
    made = factory.key()
    await store.insert(factory.draft(organization, key=made), None, NOW)
    return made


async def _fill(store: Store, now: int, organization: str = "org_1") -> None:
    """Hit just above and just up to what one lease of all units leaves of the minute."""
    for cost in (500 - _SHARE, 500 - _SHARE - 1, 1):
        await store.charge(organization, Hit(WINDOWS, cost), now)


@alone("H1", "quota_leases")
async def leased_units_are_counted_in_full(store: Store, factory: Factory) -> None:
    token = factory.token(await new_key(store, factory))
    await store.admit(token, 1, BOOK, NOW, lease=ask(1))
    await store.charge("org_1", LeasesOut(), NOW)
    await store.charge("org_1", Peek(WINDOWS), NOW)
    await _fill(store, NOW + SECOND - 1)
    await store.admit(token, 1, BOOK, NOW + SECOND - 1)
    await store.charge("org_1", Peek(WINDOWS), NOW + SECOND - 1)


@alone("H2", "quota_leases")
async def a_lease_is_used_in_full_at_its_deadline(store: Store, factory: Factory) -> None:
    token = factory.token(await new_key(store, factory))
    await store.admit(token, 1, BOOK, NOW, lease=ask(1))
    await store.charge("org_1", Peek(WINDOWS), NOW + SECOND)
    await store.charge("org_1", LeasesOut(), NOW + SECOND - 1)
    await store.charge("org_1", LeasesOut(), NOW + SECOND)
    await store.charge("org_1", settling(WINDOWS, [used(1)]), NOW + SECOND)
    await store.charge("org_1", Hit(WINDOWS, 490), NOW + SECOND)
    for later in (MINUTE, MINUTE + SECOND - 1, MINUTE + SECOND):
        await store.charge("org_1", Peek(WINDOWS), NOW + later)
        await store.charge("org_1", Hit(WINDOWS, 490), NOW + later)


@alone("K4", "quota_leases")
async def an_unsettled_lease_stays_listed_after_its_deadline(
    store: Store, factory: Factory
) -> None:
    token, ended = factory.token(await new_key(store, factory)), NOW + SECOND
    await store.admit(token, 1, BOOK, NOW, lease=ask(1, 5))
    await store.admit(token, 1, BOOK, NOW, lease=ask(2, 5))
    await store.charge("org_1", LeasesOut(), ended + LONGEST - 1)
    await store.charge("org_1", Hit(WINDOWS, 1), ended)
    await store.charge("org_1", LeasesOut(), ended)
    await store.charge("org_1", settling(WINDOWS, [used(1, (NOW, 1))]), ended)
    await store.charge("org_1", LeasesOut(), ended + LONGEST - 1)
    await store.charge("org_1", LeasesOut(), ended + LONGEST)
    await store.charge("org_1", Peek(WINDOWS), ended)


@alone("K4", "quota_leases")
async def a_lease_is_in_use_until_it_is_settled(store: Store, factory: Factory) -> None:
    token = factory.token(await new_key(store, factory))
    for number in (1, 2):
        await store.admit(token, 1, BOOK, NOW, lease=ask(number, 5))
    await store.charge("org_1", LeasesOut(in_use=True), NOW)
    await store.charge("org_1", LeasesOut(in_use=True), NOW + SECOND)
    await store.charge("org_1", settling(WINDOWS, [used(1)]), NOW)
    await store.charge("org_1", LeasesOut(in_use=True), NOW)
    await store.charge("org_2", LeasesOut(in_use=True), NOW)


@alone("K4", "quota_leases")
async def leases_are_listed_in_the_order_of_their_grants(store: Store, factory: Factory) -> None:
    """Neither by id, units, span or deadline, nor by an instant, which may step back."""
    token = factory.token(await new_key(store, factory))
    for number, units, span, step in (
        (5, 4, SECOND, 0),
        (2, 9, 2 * SECOND, 5),
        (9, 3, SECOND // 2, 3),
        (7, 7, LONGEST, -SECOND // 4),
        (1, 3, SECOND // 4, 9),
    ):
        await store.admit(token, 1, UNLIMITED, NOW + step, lease=ask(number, units, span=span))
    for later in (9, SECOND // 4 + 9, SECOND):  # The last of them is the first to end.
        await store.charge("org_1", LeasesOut(), NOW + later)
        await store.charge("org_1", LeasesOut(in_use=True), NOW + later)
    await store.charge("org_1", Hit(OPEN.windows, 1), NOW + SECOND)
    await store.charge("org_1", settling(OPEN.windows, [used(2)]), NOW + SECOND)
    await store.admit(token, 1, UNLIMITED, NOW + SECOND, lease=ask(2, 3))
    await store.charge("org_1", LeasesOut(), NOW + SECOND)
    await store.charge("org_1", LeasesOut(in_use=True), NOW + SECOND)


@crowded("K4", "quota_leases")
async def each_change_recalls_the_leases_of_its_organization(crowd: Callers) -> None:
    """A store may send no recalls, and then :meth:`Store.recalls` ends at once."""
    heard = set[str]()
    async with aclosing(_recalls(crowd)) as recalls:
        for number, organization in enumerate(RECALLED):
            changed = await _change(crowd, organization, number)
            silences = 0
            async for recalled in recalls:
                if recalled is not None:
                    heard.add(recalled)
                if organization in heard:
                    break
                silences += recalled is None
                said = f"No recall of {organization!r} came after {changed}()."
                crowd.see(silences < _SILENCES or number == 0, said)
                if silences == _SILENCES:  # Who begins to listen may miss what was before.
                    break
            else:
                crowd.see(not heard, "recalls() ended while changes were made.")
                return
    unknown = heard - {*RECALLED}
    crowd.see(not unknown, f"Recalls came of {unknown}, of which no organization has the id.")


async def _recalls(crowd: Callers) -> AsyncGenerator[str | None]:
    try:
        async with aclosing(crowd.store.recalls()) as recalls:
            async for recalled in recalls:
                kind = type(recalled).__name__
                crowd.see(kind in ("str", "NoneType"), f"recalls() yields {kind}, not str or None.")
                yield recalled
    except Broken:
        raise
    except Exception as failure:
        said = f"recalls() raised {type(failure).__name__}: {failure}"
        raise Broken("K4", said) from failure


async def _change(crowd: Callers, organization: str, number: int) -> str:
    """Make a change while a lease is out, each by another verb, and return the verb's name."""
    store, factory, made = crowd.store, crowd.factory, crowd.factory.key()
    draft = factory.draft(organization, key=made)
    await store.register(factory.account(organization), draft, NOW)
    key = draft.created(NOW)
    await store.admit(factory.token(made), 1, UNLIMITED, NOW, lease=ask(number))
    # The key was used meanwhile, which no change compares.
    changes: dict[str, Callable[[], Awaitable[object]]] = {
        "revoke_if_live": lambda: store.revoke_if_live(organization, key.id, NOW),
        "update_if": lambda: store.update_if(key, key._replace(scopes=("a:b",)), NOW),
        "rotate_if": lambda: store.rotate_if(
            key, key._replace(revoked_at=NOW), factory.draft(organization), None, NOW
        ),
        "put_organization": lambda: store.put_organization(Organization(organization, "open"), NOW),
        "claim_if_unclaimed": lambda: store.claim_if_unclaimed(
            organization, "ada", revoke=True, keep_token=True, now=NOW
        ),
    }
    verb = [*changes][number % len(changes)]
    await changes[verb]()
    return verb


@alone("H4", "quota_leases")
async def units_that_were_not_used_are_free_at_once(store: Store, factory: Factory) -> None:
    token = factory.token(await new_key(store, factory))
    await store.admit(token, 1, BOOK, NOW, lease=ask(1))
    await store.charge("org_1", Hit(WINDOWS, 489), NOW)
    await store.charge("org_1", settling(WINDOWS, [used(1, (NOW + 5, 4))]), NOW + 9)
    await store.charge("org_1", LeasesOut(), NOW + 9)
    await store.charge("org_1", Hit(WINDOWS, 7), NOW + 9)
    await store.charge("org_1", Hit(WINDOWS, 6), NOW + 9)


@alone("H1", "quota_leases")
async def used_units_are_counted_from_their_instants(store: Store, factory: Factory) -> None:
    token = factory.token(await new_key(store, factory))
    await store.admit(token, 1, BOOK, NOW, lease=ask(1))
    stamps = (NOW + 100, 2), (NOW + 200, 3), (NOW + HOUR, 1)
    await store.charge("org_1", settling(WINDOWS, [used(1, *stamps)]), NOW + 300)
    for later in (99, 100, 199, 200, 299, 300):
        await store.charge("org_1", Peek(WINDOWS), NOW + MINUTE + later)


@alone("H3", "quota_leases")
async def a_lease_is_settled_once(store: Store, factory: Factory) -> None:
    token = factory.token(await new_key(store, factory))
    await store.admit(token, 1, BOOK, NOW, lease=ask(1))
    ended = used(1, (NOW + 1, 4))
    for _ in range(2):
        await store.charge("org_1", settling(WINDOWS, [ended, used(2, (NOW, 9))]), NOW + 2)
        await store.charge("org_1", Peek(WINDOWS), NOW + 2)
        await store.admit(token, 1, BOOK, NOW + 3, lease=ask(3, 0, ended))
    await store.charge("org_1", LeasesOut(), NOW + 3)


@alone("H3", "quota_leases")
async def a_lease_is_settled_with_an_admission_or_a_refusal(store: Store, factory: Factory) -> None:
    token = factory.token(await new_key(store, factory))
    await store.admit(token, 1, BOOK, NOW, lease=ask(1))
    await store.admit(token, 1, BOOK, NOW + 1, lease=ask(2, _SHARE, used(1, (NOW, 3))))
    await store.admit(token, 496, BOOK, NOW + 2, lease=ask(3, _SHARE, used(2, (NOW + 1, 1))))
    await store.charge("org_1", LeasesOut(), NOW + 2)
    await store.charge("org_1", Peek(WINDOWS), NOW + 2)


@alone("W11", "quota_leases")
async def leases_survive_a_clock_that_steps_back(store: Store, factory: Factory) -> None:
    token = factory.token(await new_key(store, factory))
    await store.admit(token, 1, BOOK, NOW, lease=ask(1))
    for step in (-HOUR, SECOND - 1 - HOUR, SECOND - HOUR):
        await store.charge("org_1", LeasesOut(), NOW + step)
        await store.charge("org_1", Hit(WINDOWS, 1), NOW + step)
    await store.admit(token, 1, BOOK, NOW, lease=ask(2))
    await store.charge("org_1", settling(WINDOWS, [used(2, (NOW, 5))]), NOW - HOUR)
    for later in (-HOUR, MINUTE - HOUR - 1, MINUTE - HOUR, 0, MINUTE):
        await store.charge("org_1", Peek(WINDOWS), NOW + later)


@alone("H5", "quota_leases")
async def few_units_are_out_on_leases(store: Store, factory: Factory) -> None:
    """At most 2 % of each limit, at least 3 units, and half of a fair share near a limit."""
    token = factory.token(await new_key(store, factory))
    for step, units in enumerate((2, 4, 3, 10, 10)):
        await store.admit(token, 1, BOOK, NOW, lease=ask(step, units))
    await store.charge("org_1", LeasesOut(), NOW)
    await store.charge("org_1", settling(WINDOWS, [used(1), used(2)]), NOW)
    for step, cost in enumerate((468, 6, 9, 1)):
        await store.admit(token, cost, BOOK, NOW, lease=ask(10 + step))
        await store.charge("org_1", settling(WINDOWS, [used(3)]), NOW)


@alone("H5", "quota_leases")
async def each_window_bounds_a_lease(store: Store, factory: Factory) -> None:
    token = factory.token(await new_key(store, factory))
    for step, (rpm, rph, rpd) in enumerate(
        ((500, 200, 9_000), (9_000, 500, 300), (None, 400, None), (149, None, None))
    ):
        plan = Plan("busy", rpm=rpm, rph=rph, rpd=rpd, concurrent=None)
        plans = PlanBook([plan], custom=(), default="busy")
        await store.admit(token, 1, plans, NOW + 2 * step * SECOND, lease=ask(step, 1_000))


@alone("H5", "quota_leases")
async def a_plan_without_limits_grants_leases(store: Store, factory: Factory) -> None:
    token = factory.token(await new_key(store, factory))
    for step in range(LEASES_AT_MOST + 1):
        await store.admit(token, 1, UNLIMITED, NOW, lease=ask(step, 2**53, span=LONGEST))
    await store.charge("org_1", LeasesOut(), NOW)
    await store.charge("org_1", settling(OPEN.windows, [used(3, (NOW, 7))]), NOW)
    await store.charge("org_1", Peek(OPEN.windows), NOW)


@alone("H5", "quota_leases")
async def a_call_that_is_not_admitted_gets_no_lease(store: Store, factory: Factory) -> None:
    full, revoked, expired, unknown, elsewhere = (factory.key() for _ in range(5))
    here = KeyDetails(addresses=("192.0.2.0/24",))
    await store.insert(factory.draft(key=full), None, NOW)
    gone = await store.insert(factory.draft(key=revoked), None, NOW)
    await store.insert(factory.draft(key=expired, lifetime=1), None, NOW)
    await store.insert(factory.draft(key=elsewhere, details=here), None, NOW)
    await store.revoke_if_live("org_1", gone.id, NOW)
    await store.admit(factory.token(full), 501, BOOK, NOW + 1, lease=ask(1))
    for key in (revoked, expired, unknown, elsewhere):
        await store.admit(factory.token(key), 1, BOOK, NOW + 1, lease=ask(2))
    await store.admit(factory.token(elsewhere), 1, BOOK, NOW + 1, "198.51.100.7", lease=ask(3))
    await store.charge("org_1", LeasesOut(), NOW + 1)
    await store.admit(factory.token(elsewhere), 1, BOOK, NOW + 1, "192.0.2.7", lease=ask(4))
    await store.admit(factory.token(revoked), 1, BOOK, NOW + 2, lease=ask(5, 9, used(4)))
    await store.charge("org_1", LeasesOut(), NOW + 2)


@alone("H5", "quota_leases")
async def a_key_with_named_limits_gets_no_lease(store: Store, factory: Factory) -> None:
    plain, own = factory.key(), factory.key()
    details = KeyDetails(limits=(("own", "9/minute"),))
    await store.insert(factory.draft(key=plain), None, NOW)
    await store.insert(factory.draft(key=own, details=details), None, NOW)
    plan = replace(BUSY, limits=(Limit("of-it", "9/hour"),))
    limited = PlanBook([plan], custom=(), default="busy")
    await store.admit(factory.token(plain), 1, BOOK, NOW, lease=ask(1))
    await store.admit(factory.token(own), 1, BOOK, NOW, lease=ask(2, 9, used(1, (NOW, 2))))
    await store.admit(factory.token(plain), 1, limited, NOW, lease=ask(3))
    of_rule = Limit("of-a-rule", "9/minute", by="key")
    await store.admit(factory.token(plain), 1, BOOK, NOW, limits=(of_rule,), lease=ask(4))
    await store.charge("org_1", LeasesOut(), NOW)
    await store.charge("org_1", Peek(WINDOWS), NOW)


@alone("W8", "quota_leases")
async def organizations_have_leases_of_their_own(store: Store, factory: Factory) -> None:
    for step, organization in enumerate(HOSTILE):
        token = factory.token(await new_key(store, factory, organization))
        await store.admit(token, 1, BOOK, NOW, lease=ask(step % 2, 3 + step % 8))
    await store.charge(HOSTILE[0], settling(WINDOWS, [used(0), used(1)]), NOW)
    for organization in HOSTILE:
        await store.charge(organization, LeasesOut(), NOW)
        await store.charge(organization, Hit(WINDOWS, 495), NOW)


@alone("W2", "quota_leases")
async def a_reset_keeps_leases(store: Store, factory: Factory) -> None:
    token = factory.token(await new_key(store, factory))
    await store.admit(token, 300, BOOK, NOW, lease=ask(1))
    await store.charge("org_1", Reset())
    await store.charge("org_1", LeasesOut(), NOW)
    await store.charge("org_1", Peek(WINDOWS), NOW)
    await _fill(store, NOW + 1)
    await store.charge("org_1", Reset())
    await store.charge("org_1", Peek(WINDOWS), NOW + SECOND)
    await store.charge("org_1", settling(WINDOWS, [used(1)]), NOW + 2)
    await store.charge("org_1", Peek(WINDOWS), NOW + SECOND)


@alone("W6", "quota_leases")
async def a_refusal_holds_until_the_first_lease_ends(store: Store, factory: Factory) -> None:
    token, named = factory.token(await new_key(store, factory)), bound((Limit("n", "9/hour"),), "")
    await store.admit(token, 1, BOOK, NOW, lease=ask(1, 4, span=LONGEST))
    await store.admit(token, 1, BOOK, NOW, lease=ask(2, 4))
    await store.charge("org_1", Hit(WINDOWS, 490), NOW)
    await store.charge("org_1", Hit(WINDOWS, 1), NOW + 1)
    await store.admit(token, 2, BOOK, NOW + 1)
    await store.admit(token, 2, BOOK, NOW + 1, lease=ask(3))
    await store.charge("org_1", Hit(WINDOWS, 1, named), NOW + 1)
    await store.charge("org_1", Hit((), 10, named), NOW + 1)
    await store.charge("org_1", Hit(WINDOWS, 1), NOW + SECOND)


@alone("H1", "quota_leases")
async def named_limits_are_charged_beside_leases(store: Store, factory: Factory) -> None:
    token, rule = factory.token(await new_key(store, factory)), Limit("of-rule", "495/hour")
    named = bound((rule,), "")
    await store.admit(token, 1, BOOK, NOW, lease=ask(1))
    for cost in (490, 480, 9, 1):
        await store.admit(token, cost, BOOK, NOW + 1, None, (rule,))
        await store.charge("org_1", Peek(WINDOWS, named), NOW + 1)
    for later in (1, SECOND, MINUTE + SECOND):
        await store.charge("org_1", Peek((), named), NOW + later)
        await store.charge("org_1", Hit(WINDOWS, 1, named), NOW + later)
        await store.charge("org_1", Peek(WINDOWS, named), NOW + later)


@alone("W13", "quota_leases")
async def leases_count_under_another_plan(store: Store, factory: Factory) -> None:
    token = factory.token(await new_key(store, factory))
    await store.admit(token, 1, BOOK, NOW, lease=ask(1))
    for plan in (replace(BUSY, rpm=12), replace(BUSY, rpm=5), OPEN, BUSY):
        plans = PlanBook([plan], custom=(), default=plan.name)
        await store.admit(token, 1, plans, NOW + 1)
        await store.admit(token, 1, plans, NOW + 1, lease=ask(2, 3))
    await store.charge("org_1", Peek(WINDOWS), NOW + SECOND)


@crowded("H5", "admission")
async def a_store_that_grants_leases_tells_so(crowd: Callers) -> None:
    """A store that grants none admits as ever, and settles what it does not know."""
    store, token = crowd.store, crowd.factory.token(await new_key(crowd.store, crowd.factory))
    admission = await store.admit(token, 1, UNLIMITED, NOW, lease=ask(1))
    crowd.see(admission.verdict is Verdict.ADMITTED, "A key that asks for a lease is refused.")
    told = "set grants_leases of its class" if admission.lease else "its grants_leases is true"
    granted = admission.lease is not None
    crowd.see(granted is store.grants_leases, f"The store grants a lease: {granted}; {told}.")
    await store.charge("org_1", settling(OPEN.windows, [used(1, (NOW, 2))]), NOW)
    left = await store.charge("org_1", LeasesOut(), NOW)
    crowd.see(left == (), f"The only lease was settled, and these are out: {left}.", "H3")


@crowded("H1", "quota_leases")
async def callers_at_once_share_the_units_of_leases(crowd: Callers) -> None:
    store, token = crowd.store, crowd.factory.token(await new_key(crowd.store, crowd.factory))

    async def work(index: int) -> tuple[int, int]:
        """Return the units that were admitted or leased, and those that were leased."""
        counted, leased = 0, list[Reservation]()
        for step in range(3):
            asked = ask(10 * index + step, 3)
            admission = await store.admit(token, 7, BOOK, NOW, lease=asked)
            counted += 7 * (admission.verdict is Verdict.ADMITTED)
            leased += [admission.lease] if admission.lease else []
        counted += await _settled(store, leased[:1])
        units = sum(lease.units for lease in leased[1:])
        return counted + units, units

    parts = await crowd.at_once(12, work)
    counted, out = sum(part[0] for part in parts), sum(part[1] for part in parts)
    crowd.see(counted <= 500, f"{counted} units were used or are leased; the limit is 500.")
    found = sum(lease.units for lease in await store.charge("org_1", LeasesOut(), NOW))
    crowd.see(found == out, f"{out} units are leased and not settled, and {found} are found.")
    read = (await store.charge("org_1", Peek(WINDOWS), NOW)).used[0]
    crowd.see(read + out == counted, f"{counted - out} units were used, and {read} are counted.")


async def _settled(store: Store, leases: Sequence[Reservation]) -> int:
    """Settle leases of which one unit was used, twice; return the units."""
    settled = [Settlement(lease.id, ((NOW, 1),)) for lease in leases]
    for _ in range(2):
        await store.charge("org_1", settling(WINDOWS, settled), NOW)
    return len(settled)


@crowded("W3", "quota_leases")
async def overlapping_leases_are_linearizable(crowd: Callers) -> None:
    made = crowd.factory.key()
    draft, token = crowd.factory.draft(key=made), crowd.factory.token(made)
    await crowd.store.insert(draft, None, NOW)
    _, world = insert(World(), draft, None, NOW)

    async def work(store: Store, index: int) -> None:
        asked = ask(index, 4, used((index + 1) % 4, (NOW, 2)))
        await store.admit(token, 1, BOOK, NOW, lease=asked)
        await store.charge("org_1", settling(WINDOWS, [used(index, (NOW, 1))]), NOW + 1)
        await store.charge("org_1", LeasesOut(), NOW + 1)

    await crowd.linearize(4, work, world)


CHECKS: tuple[Check, ...] = (
    leased_units_are_counted_in_full,
    a_lease_is_used_in_full_at_its_deadline,
    an_unsettled_lease_stays_listed_after_its_deadline,
    a_lease_is_in_use_until_it_is_settled,
    leases_are_listed_in_the_order_of_their_grants,
    each_change_recalls_the_leases_of_its_organization,
    units_that_were_not_used_are_free_at_once,
    used_units_are_counted_from_their_instants,
    a_lease_is_settled_once,
    a_lease_is_settled_with_an_admission_or_a_refusal,
    leases_survive_a_clock_that_steps_back,
    few_units_are_out_on_leases,
    each_window_bounds_a_lease,
    a_plan_without_limits_grants_leases,
    a_call_that_is_not_admitted_gets_no_lease,
    a_key_with_named_limits_gets_no_lease,
    organizations_have_leases_of_their_own,
    a_reset_keeps_leases,
    a_refusal_holds_until_the_first_lease_ends,
    named_limits_are_charged_beside_leases,
    leases_count_under_another_plan,
    a_store_that_grants_leases_tells_so,
    callers_at_once_share_the_units_of_leases,
    overlapping_leases_are_linearizable,
)
