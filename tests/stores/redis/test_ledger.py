"""Ledgers in Redis: each action answers as its rule in the core does, step for step (W14)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count
from random import Random
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lockgate import ConfigurationError, Limit, Plan, PlanBook, run
from lockgate.core.holds import Look, Renew, Settle, Take, budgets
from lockgate.core.leases import TO_LIST, to_acquire, to_release, to_renew
from lockgate.core.ledger import (
    Action,
    Hit,
    HitLeased,
    LeasesOut,
    Ledger,
    Peek,
    Reset,
    settling,
)
from lockgate.core.limits import bound
from lockgate.core.plans import CREATOR, Organization
from lockgate.core.promises import start_of
from lockgate.core.quota_leases import LEASES_AT_MOST, LeaseRequest, Settlement
from lockgate.core.sliding_window import LARGEST, Window
from lockgate.core.temporary_limits import TemporaryLimit, with_temporary
from lockgate.core.timestamps import DAY, HOUR, MILLISECOND, MINUTE, SECOND
from lockgate.stores.answers import Admission, UnreadableState, Verdict
from lockgate.stores.redis import RedisStore

from ..making import NOW, draft_of, new_key, token_of
from ..proxy import Proxy
from .backends import opened, server

A = TypeVar("A")
Steps = Iterable[tuple[Action[Any], int]]
"""Actions, each with its instant."""

_numbers = count(1)


@pytest.fixture
def store() -> Iterator[RedisStore]:
    store = opened("single")
    yield store
    run(store.close())


class Subject:
    """An organization with a key in Redis, and its ledger by the rule."""

    def __init__(self, store: RedisStore) -> None:
        self.store, self.key, self.id = store, new_key(), f"org_{next(_numbers)}"
        self.ledger = Ledger(self.id)
        self.name = store._names.place(self.id).windows
        self._is_inserted = False

    def charge(self, action: Action[A], now: int) -> A:
        """Charge Redis and the ledger; check that both answer alike."""
        expected, self.ledger = action.apply(self.ledger, now)
        assert run(self.store.charge(self.id, action, now)) == expected, action
        return expected

    def admit(
        self, book: PlanBook, cost: int, now: int, asked: LeaseRequest | None = None
    ) -> Admission:
        """Admit the key, as ``charge`` does an action."""
        if not self._is_inserted:
            run(self.store.insert(draft_of(self.key, self.id), None))
            self._is_inserted = True
        action = HitLeased(book.default.windows, cost, asked)
        expected, self.ledger = action.apply(self.ledger, now)
        admission = run(self.store.admit(token_of(self.key), cost, book, now, lease=asked))
        assert (admission.reading, admission.lease) == expected
        is_admitted = admission.verdict is Verdict.ADMITTED
        assert is_admitted == expected.reading.allowed
        return admission


# --- Every action -----------------------------------------------------------------------------

PLANS = (
    Plan("limited", 200, 1_000, 5_000, None).windows,
    Plan("large", 10**6, None, 2**53 - 1, None).windows,
)
NAMED = (
    None,
    bound((Limit("export", "9/minute;40/hour"),), None),
    bound((Limit("export", "9/minute;40/hour", by="key"), Limit("credits", "300/month")), "key"),
)
HELD = tuple(
    budgets(limits)
    for rates in ("30/minute", "30/minute;90/hour", "40/calendar day;90/month")
    if (limits := bound((Limit("tokens", rates),), None)) is not None
)
JOBS = ("a job", "job", "jo", "\0", "b\0", "\ud800", "j" * 128, "🎫" * 128, "slots 0")
KEYS = ("key_1", "key_2", "\ud800")
OWNERS = ("me", "m", "", "\0", "a job", "o" * 128)
STEPS = (0, 0, 1, SECOND // 3, 20 * SECOND, MINUTE)
WALKS = {
    "forward": (*STEPS, HOUR, 10 * HOUR, DAY),
    # What has counted nothing for a day is dropped by the rule at once, and in Redis some time
    # after, which a clock that steps back could see.
    "back": (*STEPS, HOUR, -1, -SECOND, -MINUTE, -HOUR),
}


class Actions:
    """Actions of every kind at random, about few ids, so that most are about what is there."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.leases: list[str] = []

    def next(self, now: int) -> Action[Any]:
        random = self.random
        windows, limits = random.choice(PLANS), random.choice(NAMED)
        held, most = random.choice(HELD), random.choice((2, 100))
        hold, number = f"{random.randrange(8):032x}", len(held.fields)
        units = tuple(random.choice((1, 5, 11, 300, 2**53 - 1)) for _ in range(number))
        used = tuple(random.choice((None, 0, 1, 7, 2**53 - 1)) for _ in range(number))
        span = random.choice((1, SECOND, MINUTE, 2 * HOUR))
        job, owner = random.choice(JOBS), random.choice(OWNERS)
        cost = random.choice((1, 1, 1, 3, 50, 2**52))
        taken = Take(hold, held, units, span, most)
        acquired = to_acquire(job, owner, random.choice((None, 0, 3)), span)
        leased = HitLeased(windows, cost, self.lease(now), limits)
        kept = leased._replace(holder=random.choice(KEYS))
        actions: list[Action[Any]] = [
            *(Hit(windows, cost, limits), Hit((), cost, limits or NAMED[1])),
            *(leased, leased, HitLeased(windows, 0, self.lease(now))),
            *(kept, kept._replace(limits=None), kept._replace(request=None, limits=None)),
            *(Peek(windows, limits), Peek((), NAMED[2]), LeasesOut()),
            *(taken, taken, Settle(hold, held.fields, used, held.quotas)),
            *(Renew(hold, held.fields, span, held.quotas), Look(held, units, most)),
            *(acquired, acquired, to_renew(job, owner, span), to_release(job, owner), TO_LIST),
        ]
        return random.choice(actions) if random.random() > 0.01 else Reset()

    def lease(self, now: int) -> LeaseRequest | None:
        """Return a request that settles some of the latest leases."""
        random, id = self.random, f"{self.random.getrandbits(64):016x}"
        known = [one for one in self.leases[-3:] if random.random() < 0.5]
        stamps = ((now - 2 * SECOND, 1), (now - 5, 2), (now, 1))
        settled = tuple(Settlement(one, stamps[: random.randrange(4)]) for one in known)
        self.leases.append(id)
        return random.choice((None, LeaseRequest(id, random.choice((0, 3, 40)), SECOND, settled)))


@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize(
    ("kind", "seed"), [("single", 0), ("single", 1), ("single", 2), ("single", 3), ("cluster", 4)]
)
def test_every_action_answers_as_its_rule_does_W14(kind: str, walk: str, seed: int) -> None:
    actions, one, now = Actions(seed), Subject(opened(kind)), NOW
    for _ in range(400):
        now += actions.random.choice(WALKS[walk])
        one.charge(actions.next(now), now)
    run(one.store.close())


KEPT = (
    Plan("narrow", 12, 900, None, None).windows,
    Plan("exact", 70, 9_000, None, None, resolution=None).windows,
    Plan("shared", 200, 20_000, None, None).windows,
    Plan("wide", 2**40, 2**46, None, None).windows,
)


@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize("windows", KEPT)
def test_every_promise_is_given_kept_and_dropped_as_by_its_rule_W14(
    store: RedisStore, walk: str, windows: tuple[Window, ...]
) -> None:
    actions, one, now = Actions(7), Subject(store), NOW
    random, least, promised = actions.random, max(1, (windows[0].limit or 0) // 150), 0
    for _ in range(600):
        now += random.choice(STEPS[:4] if random.random() < 0.98 else WALKS[walk])
        if random.random() < 0.2 and one.ledger.promises:
            now = max(now, start_of(one.ledger.promises[random.random() < 0.1 and -1]))
        cost, holder = least * random.choice((1, 1, 1, 2, 9, 300)), random.choice((*KEYS, ""))
        request = actions.lease(now) if random.random() < 0.2 else None
        charge = HitLeased(windows, cost, request, None, holder)
        limits = random.choice(NAMED)
        others: list[Action[Any]] = [Hit(windows, 1), Hit(windows, cost, limits), Peek(windows)]
        others += [Peek(windows, limits), HitLeased(windows, 0, actions.lease(now)), LeasesOut()]
        one.charge(charge if random.random() < 0.8 else random.choice(others), now)
        promised += bool(one.ledger.promises)
    assert promised > 30


def test_an_action_without_a_script_is_refused_by_name(store: RedisStore) -> None:
    with pytest.raises(TypeError, match="script for int"):
        run(store.charge("org_1", 1, NOW))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - on purpose


# --- Windows and quota leases -----------------------------------------------------------------


def ask(
    units: int, *settled: tuple[str, tuple[tuple[int, int], ...]], span: int = SECOND
) -> LeaseRequest:
    """Return a request with a new id."""
    id = f"{next(_numbers):016x}"
    return LeaseRequest(id, units, span, tuple(Settlement(*one) for one in settled))


def book_of(*limits: int | None, resolution: int | None = 60) -> PlanBook:
    rpm, rph, rpd = limits
    return PlanBook([Plan("free", rpm, rph, rpd, None, resolution)])


def many_cells(seed: int, resolution: int | None) -> Steps:
    """More than 64 cells in each window, folded where the clock keeps stepping back and forth."""
    numbers, now = Random(seed), NOW
    windows = Plan("any", 10**9, 10**12, None, None, resolution).windows
    for number in range(600):
        pace = (SECOND // 3, 20 * SECOND, 10 * MINUTE)[number // 40 % 3]
        now += numbers.randint(0, pace) if number % 9 else -numbers.randint(0, 3 * pace)
        cost = 2**24 if numbers.random() < 0.02 else numbers.randint(1, 3)
        yield (Hit(windows, cost) if number % 5 else Peek(windows)), now


def any_number(number: int) -> Steps:
    """Windows of any number, of spans of their own."""
    windows = tuple(
        Window(f"window {index}", 2**index * MINUTE, 40 * 2**index, index * SECOND)
        for index in range(number)
    )
    numbers, now = Random(number), NOW
    for _ in range(300):
        now += numbers.randint(-1, 3) * SECOND // 2
        yield Hit(windows, 1), now
        yield Peek(windows), now


def largest_costs() -> Steps:
    """The largest cost again and again: its sum soon is more than Lua's numbers can hold."""
    windows, now = Plan("large", 2**53 - 1, 2**53 - 1, None, None).windows[:2], NOW
    for number in range(60):
        now += (HOUR, 0, 1)[number % 3]
        yield Hit(windows, (2**53 - 4, 1, 1)[number % 3]), now


def largest_sum_at_once() -> Steps:
    """Without a limit hits of one instant share a cell, up to the largest number."""
    for cost in (2**52, 2**52 - 1, 1, 1):
        yield Hit(book_of(None, None, None).default.windows, cost), NOW


def without_limit(seed: int, rph: int | None) -> Steps:
    """Many cells with costs of every size; now and then a plan with limits looks at them."""
    numbers, now = Random(seed), NOW
    free = Plan("free", None, rph, None, None).windows
    limited = Plan("limited", 2**50, None, 2**53 - 1, None).windows
    for number in range(400):
        now += numbers.randint(0, 2 * SECOND) if number % 50 else -numbers.randint(0, MINUTE)
        windows = limited if number % 30 > 25 else free
        yield Hit(windows, numbers.choice((1, 2**24, 2**46, 2**51 + 1, 2**53 - 1))), now
        yield Peek(windows), now


def joined_beside_a_lease() -> Steps:
    """A hit that joins the newest cells sees what a lease leaves, until its deadline."""
    windows, now = book_of(6_000, 60_000, 600_000).default.windows, NOW
    for number in range(70):
        yield Hit(windows, 1), (now := NOW + number * SECOND // 2)
    yield HitLeased(windows, 1, ask(50, span=SECOND // 10)), now + 1
    for number in range(15):
        yield HitLeased(windows, 1, None), now + 2 + number * SECOND // 100


def joined_beside_a_promise() -> Steps:
    """Later hits may join the newest cell of the minute, so the promise is a second later."""
    windows = Window("minute", MINUTE, 102, SECOND), Window("exact", MINUTE + 50, 102, 0)
    for number in range(100):
        yield Hit(windows, 1), NOW + number
    yield HitLeased(windows, 101, None, None, "key_1"), NOW + 200


def more_cells_than_of_a_steady_clock() -> Steps:
    """They are joined, two into one, in the windows of the plan and of a named limit (W10)."""
    windows = Plan("any", 10**6, None, None, None).windows
    limits, now = bound((Limit("export", "900000/minute"),), None), NOW
    for number in range(400):
        now += SECOND if number % 2 else -SECOND * 9 // 10
        yield Hit(windows, 1 + number % 3, limits), now
        yield Peek(windows), now


def settled_beside_many_units(first: int, second: int, at: int) -> Steps:
    """Cells become wider for units that are settled: one that they join, or one before them."""
    windows, known = book_of(2**31, 2**31, 2**31).default.windows, ask(20)
    yield HitLeased(windows, first, known), NOW
    yield Hit(windows, second), NOW + 10
    yield settling(windows, [Settlement(known.id, ((NOW + at, 5),))]), NOW + 20
    for later in (5, 12):
        yield Peek(windows), NOW + MINUTE + later


def ended_before_a_window() -> Steps:
    """The clock has stepped back, so the newest cell is later than the deadline of the lease."""
    windows = book_of(6_000, 60_000, 600_000).default.windows
    yield HitLeased(windows, 2, ask(20, span=SECOND // 2)), NOW + 3 * SECOND
    yield settling(windows, ()), NOW
    yield Hit(windows, 1), NOW + MINUTE + SECOND


def more_leases_than_are_granted() -> Steps:
    windows = book_of(None, None, None).default.windows
    asked = [ask(5) for _ in range(LEASES_AT_MOST + 6)]
    for number, one in enumerate(asked):
        yield HitLeased(windows, 1, one), NOW + number
    yield LeasesOut(), NOW + 100
    yield settling(windows, [Settlement(one.id, ()) for one in asked]), NOW + 100
    yield LeasesOut(), NOW + 100
    yield Hit(windows, 1), NOW + 101


SCENES: dict[str, Callable[[], Steps]] = {
    **{f"cells, {each}": partial(many_cells, *each) for each in enumerate((60, 3, None))},
    **{f"{number} windows": partial(any_number, number) for number in (1, 2, 4, 5)},
    "largest costs": largest_costs,
    "largest sum at once": largest_sum_at_once,
    "no limit": partial(without_limit, 0, None),
    "no limit but of the hour": partial(without_limit, 1, 2**53 - 1),
    "more cells than of a steady clock": more_cells_than_of_a_steady_clock,
    "units join a full cell": partial(settled_beside_many_units, 2**24 - 2, 1, 0),
    "units follow a full cell": partial(settled_beside_many_units, 1, 2**24, 15),
    "joined beside a lease": joined_beside_a_lease,
    "joined beside a promise": joined_beside_a_promise,
    "ended before a window": ended_before_a_window,
    "more leases than are granted": more_leases_than_are_granted,
}


@pytest.mark.parametrize("scene", SCENES)
def test_windows_and_leases_are_those_of_the_rule_W14_D42(store: RedisStore, scene: str) -> None:
    one = Subject(store)
    for action, now in SCENES[scene]():
        one.charge(action, now)


def some_settled(numbers: Random, one: Subject, now: int) -> tuple[Settlement, ...]:
    """Settle some of the leases that are out, some twice, and one that was never granted."""
    settled: list[Settlement] = []
    for lease in one.ledger.leases:
        if numbers.random() < 0.4:
            used = numbers.randint(0, lease.units)
            begun = lease.deadline - lease.span
            instants = sorted(
                numbers.randint(begun, now + SECOND // 50 + max(0, begun - now))
                for _ in range(numbers.randint(0, 6))
            )
            parts = [(at, used // len(instants)) for at in instants]
            settled.append(Settlement(lease.id, tuple(parts)))
    if numbers.random() < 0.1:
        settled.append(Settlement(f"{next(_numbers):016x}", ((now, 5),)))
    return tuple(settled)


LARGE = (1, 3, 2**24 - 1, 2**24, 2**31, 2**46, 2**51 + 1)
LEASED: dict[str, tuple[tuple[PlanBook, ...], tuple[int, ...], tuple[int, ...]]] = {
    # Plans in turns, costs, and units that are asked for. Beyond 2**24 a count takes more bytes,
    # and beyond 2**53 Lua holds no whole number.
    **{
        f"resolution {resolution}": (
            (
                book_of(900, 20_000, 200_000, resolution=resolution),
                book_of(*other, resolution=resolution),
            ),
            (1, 1, 2, 40),
            (0, 3, 50, 10**6),
        )
        for resolution, other in (
            *((60, (None, 3_000, None)), (None, (700, None, 10**6))),
            *((3600, (None, 3_000, None)), (3, (700, None, 10**6))),
        )
    },
    "no limits": (
        (book_of(None, None, None), book_of(2**31, 2**45, LARGEST), book_of(LARGEST, None, None)),
        LARGE,
        (3, 2**24 + 1, 2**40),
    ),
    "large limits": (
        (book_of(2**31, 2**45, LARGEST), book_of(LARGEST, 2**40, None)),
        LARGE,
        (3, 2**24 + 1, 2**40),
    ),
}


@pytest.mark.parametrize("plans", LEASED)
def test_admissions_and_settlements_are_those_of_the_rule_D42(
    store: RedisStore, plans: str
) -> None:
    """Steps both ways, full windows, another plan on the way; exact and with a grain."""
    books, costs, units = LEASED[plans]
    numbers, now, granted = Random(plans), NOW, 0
    subjects = [Subject(store) for _ in range(3)]
    for number in range(1_000):
        far = numbers.random()
        if far < 0.05:
            now -= numbers.randint(0, (SECOND, 10 * SECOND, 2 * HOUR)[numbers.randint(0, 2)])
        elif far < 0.07:
            now += numbers.choice((MINUTE, HOUR, DAY, 3 * DAY))
        else:
            now += numbers.randint(0, (SECOND // 10, SECOND, MINUTE)[far > 0.8])
        one, book = numbers.choice(subjects), books[number // 40 % len(books)]
        windows, cost = book.default.windows, numbers.choice(costs)
        settled = some_settled(numbers, one, now)
        match numbers.randint(0, 19):
            case 0:
                one.charge(Peek(windows), now)
            case 1:
                one.charge(LeasesOut(), now)
            case 2 | 3:
                one.charge(Hit(windows, cost), now)
            case 4 | 5 | 6:
                one.admit(book, cost, now)
            case 7 | 8:
                one.charge(settling(windows, settled), now)
            case 9 if numbers.random() < 0.1:
                one.charge(Reset(), now)
            case _:
                asked = ask(numbers.choice(units), span=numbers.choice((1, 2, 4)) * SECOND // 2)
                admission = one.admit(book, cost, now, asked._replace(settled=settled))
                granted += admission.lease is not None
    assert granted > 40


LIMITS = st.sampled_from([None, 0, 5, 40, 300, 2**24, 2**31, 2**50, 2**53 - 1])
PLANS_OF_ALL = st.builds(
    Plan,
    st.just("free"),
    rpm=LIMITS,
    rph=LIMITS,
    rpd=LIMITS,
    concurrent=st.none(),
    resolution=st.sampled_from([None, 1, 3, 60, 3600]),
)
CALLS = st.tuples(
    st.one_of(
        st.integers(0, 3),
        st.integers(0, 3 * SECOND),
        st.sampled_from([SECOND - 1, SECOND, MINUTE - 1, MINUTE, HOUR, DAY - 1, DAY, 2 * DAY]),
        st.sampled_from([-1, -SECOND, -MINUTE, -2 * HOUR, -3 * DAY]),
    ),
    st.sampled_from(["admit", "lease", "lease", "hit", "hit", "peek", "settle", "reset"]),
    st.sampled_from([1, 1, 1, 2, 3, 2**24 - 1, 2**24, 2**40, 2**52, 2**53 - 2, 2**53 - 1]),
    st.sampled_from([3, 6, 2**24, 2**45]),
    st.lists(st.tuples(st.integers(-2 * SECOND, SECOND), st.integers(0, 9)), max_size=4),
)


@settings(
    deadline=None, max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(PLANS_OF_ALL, PLANS_OF_ALL, st.lists(CALLS, max_size=100))
def test_any_sequence_of_calls_equals_the_rule_W14_D42(
    store: RedisStore, plan: Plan, other: Plan, calls: list[tuple[int, str, int, int, Any]]
) -> None:
    """Also where counts are large, the clock steps back, and the plan changes on the way."""
    books, one, now = [PlanBook([each]) for each in (plan, other)], Subject(store), NOW
    for number, (step, verb, cost, units, uses) in enumerate(calls):
        now += step
        book = books[number % 20 >= 15]
        windows = book.default.windows
        used = tuple(sorted((now + ago, many) for ago, many in uses))
        settled = tuple(Settlement(lease.id, used) for lease in one.ledger.leases[:1] if uses)
        if verb == "lease":
            one.admit(book, cost, now, ask(units)._replace(settled=settled))
        elif verb == "admit":
            one.admit(book, cost, now)
        else:
            actions: dict[str, Action[Any]] = {
                "hit": Hit(windows, cost),
                "peek": Peek(windows),
                "settle": settling(windows, settled),
                "reset": Reset(),
            }
            one.charge(actions[verb], now)
        one.charge(LeasesOut(), now)


BUSY = book_of(6_000, 60_000, 600_000)
WINDOWS = BUSY.default.windows


def test_a_stale_hint_and_an_ended_limit_do_not_lose_the_request_for_a_lease_D42(
    store: RedisStore,
) -> None:
    """The call is made again with the fresh record, or in the plan that holds then."""
    one = Subject(store)
    one.admit(BUSY, 1, NOW)
    more = with_temporary({}, {"rpm": TemporaryLimit(9_000, NOW + MINUTE)})
    run(store.put_organization(Organization(one.id, "free", more)))
    first = run(store.admit(token_of(one.key), 1, BUSY, NOW, lease=ask(20)))
    second = run(store.admit(token_of(one.key), 1, BUSY, NOW + MINUTE, lease=ask(20)))
    assert first.lease is not None
    assert second.lease is not None
    assert second.plan == BUSY.default


def test_a_lease_whose_reply_is_lost_is_granted_once_and_stays_out_D33_D42() -> None:
    """The repeated request is not charged again, and settles nothing twice."""
    with Proxy(server("single").port) as proxy:
        store = opened("single", f"redis://127.0.0.1:{proxy.port}")
        one = Subject(store)
        for number in range(10):
            now, known = NOW + number * MINUTE, ask(20)
            one.admit(BUSY, 1, now, known)
            lost = ask(20, (known.id, ((now, 2), (now + 1, 3))))
            expected, one.ledger = HitLeased(WINDOWS, 1, lost).apply(one.ledger, now + 2)
            assert expected.lease is not None
            proxy.cut_at = b"EVALSHA"
            again = run(store.admit(token_of(one.key), 1, BUSY, now + 2, lease=lost))
            assert (again.verdict, again.lease) == (Verdict.ADMITTED, None)
            assert again.reading is not None
            assert again.reading.used == expected.reading.used
            one.charge(LeasesOut(), now + 2)
            one.charge(settling(WINDOWS, lost.settled), now + 3)
            proxy.cut_at = b"EVALSHA"
            one.charge(settling(WINDOWS, [Settlement(lost.id, ((now + 3, 1),))]), now + 4)
            one.charge(Peek(WINDOWS), now + 4)
        assert proxy.cuts == 20
        run(store.close())


# --- What Redis keeps -------------------------------------------------------------------------


def life(name: bytes) -> int:
    """Return the microseconds for which Redis keeps a string or a hash."""
    with server("single").client() as client:
        left: Any = client.pttl(name)
    return int(left) * MILLISECOND


def test_numbers_that_lua_cannot_hold_are_refused(store: RedisStore) -> None:
    with pytest.raises(ConfigurationError, match="cost"):
        run(store.charge("org_1", Hit(CREATOR.windows, 2**53), NOW))
    with pytest.raises(ConfigurationError, match="12 days"):
        run(store.charge("org_1", Hit((Window("month", 30 * DAY, 1, 0),), 1), NOW))


@pytest.mark.parametrize("plan", [CREATOR, Plan("busy", 20_000, 20_000, 20_000, None)])
def test_the_state_of_full_windows_stays_below_4_kb_W10(store: RedisStore, plan: Plan) -> None:
    """A day of hits at every pace at once: as many cells as there can be."""
    paces = ((DAY, 13 * MINUTE), (HOUR, 33 * SECOND), (MINUTE, SECOND // 2))
    instants = sorted(
        {NOW + DAY - before for span, pace in paces for before in range(0, span, pace)}
    )
    for instant in instants:
        run(store.charge("org_1", Hit(plan.windows, 1), instant))
    with server("single").client() as client:
        assert 1_500 < client.strlen(store._names.place("org_1").windows) <= 4_096


def test_the_state_lives_for_the_longest_window_and_a_part_W10(store: RedisStore) -> None:
    """Hits that join a cell do not extend the expiry; the hit that opened it set it."""
    windows = Plan("busy", 20_000, 20_000, 20_000, None).windows
    name, part = store._names.place("org_1").windows, DAY // 60
    for second in range(100):
        for instant in range(0, SECOND, SECOND // 4):
            run(store.charge("org_1", Hit(windows, 1), NOW + second * SECOND + instant))
        assert DAY + part <= life(name) <= 2 * DAY
        with server("single").client() as client:
            client.pexpire(name, (DAY + part) // MILLISECOND)


def test_the_state_outlasts_its_leases_and_goes_with_a_reset_without_any_D42(
    store: RedisStore,
) -> None:
    leased, plain = Subject(store), Subject(store)
    for one in (leased, plain):
        one.charge(Hit(WINDOWS, 1), NOW)
    leased.admit(BUSY, 1, NOW, ask(20, span=2 * SECOND))
    lasts = life(leased.name)
    assert lasts - life(plain.name) > SECOND
    for one in (leased, plain):
        one.charge(Reset(), NOW)
    assert lasts - 60 * SECOND <= life(leased.name) <= lasts
    with server("single").client() as client:
        assert not client.exists(plain.name)
    for after in (0, 2 * SECOND, 5 * SECOND):
        leased.charge(Hit(WINDOWS, 1), NOW + after)
        leased.charge(LeasesOut(), NOW + after)


def test_an_unknown_format_is_unreadable_D42(store: RedisStore) -> None:
    one = Subject(store)
    one.admit(BUSY, 1, NOW, ask(20))
    with server("single").client() as client:
        client.setrange(one.name, 25, b"\x85")
    with pytest.raises(UnreadableState):
        run(store.admit(token_of(one.key), 1, BUSY, NOW, lease=ask(20)))
    for action in (LeasesOut(), settling(WINDOWS, ())):
        with pytest.raises(UnreadableState):
            run(store.charge(one.id, action, NOW))
