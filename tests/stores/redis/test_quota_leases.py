"""Quota leases in Lua: equal to the pure rule, and granted and settled once (D42)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from random import Random
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lockgate import Limit, Plan, PlanBook, run
from lockgate.core import quota_leases as rule
from lockgate.core import sliding_window
from lockgate.core.ledger import Hit, LeasesOut, Peek, Reset, settling
from lockgate.core.plans import Organization as Placed
from lockgate.core.quota_leases import LeaseRequest, QuotaLeases, Settlement
from lockgate.core.reservations import Reservation
from lockgate.core.sliding_window import LARGEST, Reading, State, Window
from lockgate.core.temporary_limits import TemporaryLimit, with_temporary
from lockgate.core.timestamps import DAY, HOUR, MILLISECOND, MINUTE, SECOND
from lockgate.stores.answers import OutcomeUnknown, UnreadableState, Verdict
from lockgate.stores.redis import RedisStore

from ..making import NOW, draft_of, new_key, token_of
from ..proxy import Proxy
from .backends import opened, server

BUSY = PlanBook([Plan("free", rpm=6_000, rph=60_000, rpd=600_000, concurrent=None)])
WINDOWS = BUSY.default.windows
_numbers = count(1)


@pytest.fixture
def store() -> Iterator[RedisStore]:
    store = opened("single")
    yield store
    run(store.close())


def ask(
    units: int, *settled: tuple[str, tuple[tuple[int, int], ...]], span: int = SECOND
) -> LeaseRequest:
    """A request with a new id."""
    id = f"{next(_numbers):016x}"
    return LeaseRequest(id, units, span, tuple(Settlement(*one) for one in settled))


def strings(store: RedisStore, organization: str = "org_1") -> tuple[bytes, int]:
    """The state of an organization's windows, and the microseconds for which it is kept."""
    name = store._names.place(organization).windows
    with redis.Redis(port=server("single").port) as client:
        kept: Any = client.get(name)
        left: Any = client.pttl(name)
    return kept, left * MILLISECOND


class Organization:
    """An organization in a store, and what the rule says of it."""

    def __init__(self, store: RedisStore, windows: tuple[Window, ...]) -> None:
        self.store, self.key = store, new_key()
        self.id = f"org_{next(_numbers)}"
        self.state: State = sliding_window.empty_state(windows)
        self.leases: QuotaLeases = ()
        run(store.insert(draft_of(self.key, self.id), None))

    def apply(
        self, windows: tuple[Window, ...], cost: int, now: int, asked: LeaseRequest | None = None
    ) -> tuple[Reading, Reservation | None]:
        settled = () if asked is None else asked.settled
        self.state, self.leases = rule.current(self.state, self.leases, windows, now, settled)
        left = rule.lowered(windows, self.leases)
        reading, self.state = sliding_window.hit(self.state, left, now, cost)
        reading = rule.until_settled(reading, self.leases)
        lease = None
        if asked is not None and asked.units:
            lease = rule.granted(self.leases, windows, reading, asked)
            if lease is not None:
                self.leases = (*self.leases, lease)
        return reading, lease

    def admit_leased(self, book: PlanBook, cost: int, now: int, asked: LeaseRequest) -> None:
        expected = self.apply(book.default.windows, cost, now, asked)
        admission = run(self.store.admit(token_of(self.key), cost, book, now, lease=asked))
        assert (admission.reading, admission.lease) == expected
        verdict = Verdict.ADMITTED if expected[0].allowed else Verdict.LIMITED
        assert admission.verdict is verdict

    def admit(self, book: PlanBook, cost: int, now: int) -> None:
        expected, _ = self.apply(book.default.windows, cost, now)
        assert run(self.store.admit(token_of(self.key), cost, book, now)).reading == expected

    def hit(self, windows: tuple[Window, ...], cost: int, now: int) -> None:
        expected, _ = self.apply(windows, cost, now)
        assert run(self.store.charge(self.id, Hit(windows, cost), now)) == expected

    def peek(self, windows: tuple[Window, ...], now: int) -> None:
        state, leases = rule.current(self.state, self.leases, windows, now)
        expected = sliding_window.peek(state, rule.lowered(windows, leases), now)
        expected = rule.until_settled(expected, leases)
        assert run(self.store.charge(self.id, Peek(windows), now)) == expected

    def settle(
        self, windows: tuple[Window, ...], settled: tuple[Settlement, ...], now: int
    ) -> None:
        self.state, self.leases = rule.current(self.state, self.leases, windows, now, settled)
        run(self.store.charge(self.id, settling(windows, settled), now))

    def look(self, now: int) -> None:
        assert (
            run(self.store.charge(self.id, LeasesOut(), now))
            == rule.current((), self.leases, (), now)[1]
        )

    def reset(self, now: int) -> None:
        self.state = tuple(sliding_window.EMPTY for _ in self.state)
        run(self.store.charge(self.id, Reset(), now))


def some_settled(numbers: Random, one: Organization, now: int) -> tuple[Settlement, ...]:
    """Settle some of the leases that are out, some twice, and one that nobody has."""
    settled: list[Settlement] = []
    for lease in one.leases:
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


def walk(
    store: RedisStore,
    numbers: Random,
    books: tuple[PlanBook, ...],
    steps: int,
    costs: Callable[[], int],
    pace: Callable[[], int],
    most: Callable[[], int],
) -> int:
    """Call all verbs at random; return how many leases were granted."""
    all_of_them = [Organization(store, books[0].default.windows) for _ in range(3)]
    now, granted = NOW, 0
    for number in range(steps):
        now += pace()
        one = numbers.choice(all_of_them)
        book = books[number // 40 % len(books)]
        windows = book.default.windows
        match numbers.randint(0, 19):
            case 0:
                one.peek(windows, now)
            case 1:
                one.look(now)
            case 2 | 3:
                one.hit(windows, costs(), now)
            case 4 | 5 | 6:
                one.admit(book, costs(), now)
            case 7 | 8:
                one.settle(windows, some_settled(numbers, one, now), now)
            case 9 if numbers.random() < 0.1:
                one.reset(now)
            case _:
                span = numbers.choice((SECOND, SECOND // 2, 2 * SECOND))
                asked = ask(most(), span=span)._replace(settled=some_settled(numbers, one, now))
                one.admit_leased(book, costs(), now, asked)
                granted += asked.id in {lease.id for lease in one.leases[-1:]}
    for one in all_of_them:
        one.look(now)
        one.peek(books[0].default.windows, now)
    return granted


def book_of(*limits: int | None, resolution: int | None = 60) -> PlanBook:
    rpm, rph, rpd = limits
    return PlanBook([Plan("free", rpm, rph, rpd, None, resolution)])


@pytest.mark.parametrize("seed", range(6))
def test_lua_and_the_rule_grant_and_settle_alike_D42(store: RedisStore, seed: int) -> None:
    """Steps both ways, full windows, another plan on the way; exact and with a grain."""
    numbers = Random(seed)
    resolution = (60, None, 60, 3600, 60, 3)[seed]
    books = (
        book_of(900, 20_000, 200_000, resolution=resolution),
        book_of(*((None, 3_000, None), (700, None, 10**6))[seed % 2], resolution=resolution),
    )

    def pace() -> int:
        far = numbers.random()
        if far < 0.04:
            return -numbers.randint(0, (SECOND, 10 * SECOND, 2 * HOUR)[numbers.randint(0, 2)])
        if far < 0.06:
            return numbers.choice((MINUTE, HOUR, DAY, 3 * DAY))
        return numbers.randint(0, (SECOND // 10, SECOND, MINUTE)[far > 0.8])

    granted = walk(
        store,
        *(numbers, books, 1500, lambda: numbers.choice((1, 1, 2, 40))),
        *(pace, lambda: numbers.choice((0, 3, 50, 10**6))),
    )
    assert granted > 40


@pytest.mark.parametrize("seed", range(3))
def test_counts_of_every_size_stay_exact_beside_leases_D42(store: RedisStore, seed: int) -> None:
    """Beyond 2**24 a count takes more bytes, and beyond 2**53 Lua holds no whole number."""
    numbers = Random(seed)
    books = (
        (
            book_of(None, None, None),
            book_of(2**31, 2**45, LARGEST),
            book_of(LARGEST, None, LARGEST),
        ),
        (book_of(2**31, 2**45, LARGEST), book_of(5, 2**40, None)),
        (book_of(LARGEST, None, LARGEST), book_of(5, 2**40, None)),
    )[seed]
    large = (1, 3, 2**24 - 1, 2**24, 2**31, 2**46, 2**51 + 1)
    granted = walk(
        store,
        *(numbers, books, 700, lambda: numbers.choice(large)),
        lambda: numbers.randint(0, SECOND) if numbers.random() < 0.95 else -5 * SECOND,
        lambda: numbers.choice((3, 2**24 + 1, 2**40)),
    )
    assert granted > 40


STEPS = st.one_of(
    st.integers(0, 3),
    st.integers(0, 3 * SECOND),
    st.sampled_from([SECOND - 1, SECOND, 2 * SECOND, MINUTE - 1, MINUTE, HOUR, DAY]),
    st.sampled_from([-1, -SECOND, -MINUTE, -2 * HOUR]),
)
LIMITS = st.sampled_from([None, 0, 40, 300, 2**24, 2**31, 2**50])


@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.tuples(LIMITS, LIMITS, LIMITS),
    st.sampled_from([None, 1, 60]),
    st.lists(
        st.tuples(
            STEPS,
            st.sampled_from(["admit", "lease", "lease", "hit", "peek", "settle", "reset"]),
            st.sampled_from([1, 1, 2, 2**24, 2**40]),
            st.sampled_from([3, 6, 2**24, 2**45]),
            st.lists(st.tuples(st.integers(-2 * SECOND, SECOND), st.integers(0, 9)), max_size=4),
        ),
        max_size=60,
    ),
)
def test_any_sequence_of_calls_equals_the_rule_D42(
    store: RedisStore,
    limits: tuple[int | None, ...],
    resolution: int | None,
    calls: list[tuple[int, str, int, int, list[tuple[int, int]]]],
) -> None:
    book = book_of(*limits, resolution=resolution)
    one, now = Organization(store, book.default.windows), NOW
    for step, verb, cost, units, uses in calls:
        now += step
        used = tuple(sorted((now + ago, many) for ago, many in uses))
        settled = tuple(Settlement(lease.id, used) for lease in one.leases[:1] if uses)
        if verb == "lease":
            one.admit_leased(book, cost, now, ask(units)._replace(settled=settled))
        elif verb == "admit":
            one.admit(book, cost, now)
        elif verb == "hit":
            one.hit(book.default.windows, cost, now)
        elif verb == "settle":
            one.settle(book.default.windows, settled, now)
        elif verb == "reset":
            one.reset(now)
        else:
            one.peek(book.default.windows, now)
        one.look(now)


def test_more_leases_than_one_organization_may_have_are_not_granted_D42(store: RedisStore) -> None:
    book = book_of(None, None, None)
    one = Organization(store, book.default.windows)
    for number in range(70):
        one.admit_leased(book, 1, NOW + number, ask(5))
    assert len(one.leases) == rule.LEASES_AT_MOST
    one.look(NOW + 100)
    one.settle(book.default.windows, tuple(Settlement(x.id, ()) for x in one.leases), NOW + 100)
    one.look(NOW + 100)
    one.hit(book.default.windows, 1, NOW + 101)


def test_an_organization_without_leases_keeps_its_bytes_D42(store: RedisStore) -> None:
    """Its tag is that of an organization which never had any, so older releases read it."""
    one, other = Organization(store, WINDOWS), Organization(store, WINDOWS)
    asked = ask(20)
    one.admit_leased(BUSY, 1, NOW, asked)
    assert len(strings(store, one.id)[0]) == 260 + 3 * 40 - 1 + 32
    one.admit_leased(BUSY, 1, NOW + 1, ask(0, (asked.id, ())))
    other.hit(WINDOWS, 1, NOW)
    other.hit(WINDOWS, 1, NOW + 1)
    kept, _ = strings(store, one.id)
    expected, _ = strings(store, other.id)
    heads = slice(259, None)
    assert (kept[25:27], kept[heads]) == (expected[25:27], expected[heads])


def test_a_hit_that_joins_the_newest_cells_sees_what_leases_leave_D42(store: RedisStore) -> None:
    """The fast path holds until the first deadline."""
    book = book_of(6_000, 60_000, 600_000)
    one, now = Organization(store, book.default.windows), NOW
    for number in range(70):
        one.hit(book.default.windows, 1, now := NOW + number * HOUR // 60)
    one.admit_leased(book, 1, now := now + 1, ask(50, span=SECOND // 10))
    assert one.leases
    for _ in range(15):
        one.admit(book, 1, now := now + SECOND // 100)
    assert not rule.out(one.leases)


def test_a_lease_that_ended_before_a_window_began_counts_in_the_longer_ones_D42(
    store: RedisStore,
) -> None:
    """The clock has stepped back, so the newest cell is later than the deadline."""
    one, later = Organization(store, WINDOWS), NOW + 3 * SECOND
    one.admit_leased(BUSY, 2, later, ask(20, span=SECOND // 2))
    one.settle(WINDOWS, (), NOW)
    one.hit(WINDOWS, 1, NOW + MINUTE + SECOND)


def test_the_state_is_kept_for_the_span_of_a_lease_as_well_D42(store: RedisStore) -> None:
    one = Organization(store, WINDOWS)
    one.hit(WINDOWS, 1, NOW)
    _, plain = strings(store, one.id)
    one.admit_leased(BUSY, 1, NOW, ask(20, span=2 * SECOND))
    _, leased = strings(store, one.id)
    assert leased - plain > SECOND
    one.reset(NOW)
    kept, life = strings(store, one.id)
    assert kept
    assert leased - 60 * SECOND <= life <= leased


def test_a_reset_keeps_leases_and_removes_a_state_without_any_D42(store: RedisStore) -> None:
    one, other = Organization(store, WINDOWS), Organization(store, WINDOWS)
    for each in (one, other):
        each.hit(WINDOWS, 2**24, NOW)
        each.hit(WINDOWS, 7, NOW + MINUTE)
    one.admit_leased(BUSY, 1, NOW + MINUTE, ask(20))
    assert one.leases
    for each in (one, other):
        each.reset(NOW + MINUTE)
        each.look(NOW + MINUTE)
    assert strings(store, other.id)[0] is None
    one.hit(WINDOWS, 1, NOW + MINUTE)
    one.hit(WINDOWS, 1, NOW + MINUTE + 2 * SECOND)
    assert not rule.out(one.leases)
    one.look(NOW + MINUTE + 2 * SECOND)
    one.hit(WINDOWS, 1, NOW + MINUTE + 3 * SECOND)
    assert not one.leases


def test_an_unknown_format_is_unreadable_D42(store: RedisStore) -> None:
    one = Organization(store, WINDOWS)
    one.admit_leased(BUSY, 1, NOW, ask(20))
    name = store._names.place(one.id).windows
    with redis.Redis(port=server("single").port) as client:
        client.setrange(name, 25, b"\x85")
    with pytest.raises(UnreadableState):
        run(store.admit(token_of(one.key), 1, BUSY, NOW, lease=ask(20)))
    with pytest.raises(UnreadableState):
        run(store.charge(one.id, LeasesOut(), NOW))
    with pytest.raises(UnreadableState):
        run(store.charge(one.id, settling(WINDOWS, ()), NOW))


def test_a_revoked_or_expired_key_neither_settles_nor_gets_a_lease_D42(store: RedisStore) -> None:
    one, expiring = Organization(store, WINDOWS), new_key()
    run(store.insert(draft_of(expiring, one.id, lifetime=MINUTE), None))
    asked = ask(20)
    one.admit_leased(BUSY, 1, NOW, asked)
    for key, verdict in ((expiring, Verdict.EXPIRED), (one.key, Verdict.REVOKED)):
        at = NOW if key is one.key else NOW + MINUTE
        if key is one.key:
            run(store.admit(token_of(key), 1, BUSY, NOW))
            record = run(store.admit(token_of(key), 1, BUSY, NOW)).key
            assert record is not None
            run(store.revoke_if_live(one.id, record.id, NOW))
        settle = ask(20, (asked.id, ()))
        admission = run(store.admit(token_of(key), 1, BUSY, at, lease=settle))
        assert (admission.verdict, admission.lease) == (verdict, None)
    assert [lease.id for lease in run(store.charge(one.id, LeasesOut(), NOW))] == [asked.id]


def test_a_stale_hint_and_an_ended_limit_do_not_lose_the_request_for_a_lease_D42(
    store: RedisStore,
) -> None:
    """The call is made again with the fresh record, or in the plan that holds then."""
    one = Organization(store, WINDOWS)
    run(store.admit(token_of(one.key), 1, BUSY, NOW))
    more = with_temporary({}, {"rpm": TemporaryLimit(9_000, NOW + MINUTE)})
    run(store.put_organization(Placed(one.id, "free", more)))
    first = run(store.admit(token_of(one.key), 1, BUSY, NOW, lease=ask(20)))
    second = run(store.admit(token_of(one.key), 1, BUSY, NOW + MINUTE, lease=ask(20)))
    assert first.lease is not None
    assert second.lease is not None
    assert second.plan == BUSY.default


def test_a_key_with_named_limits_settles_and_gets_no_lease_D42(store: RedisStore) -> None:
    book = PlanBook([replace(BUSY.default, limits=(Limit("all", "9000/hour"),))])
    one, asked = Organization(store, WINDOWS), ask(20)
    one.admit_leased(BUSY, 1, NOW, asked)
    settle = ask(20, (asked.id, ((NOW + 1, 4),)))
    admission = run(store.admit(token_of(one.key), 1, book, NOW + 2, lease=settle))
    assert (admission.verdict, admission.lease) == (Verdict.ADMITTED, None)
    assert admission.reading is not None
    assert admission.reading.used == (6, 6, 6, 1)
    assert run(store.charge(one.id, LeasesOut(), NOW + 2)) == ()


def test_leases_go_by_the_servers_clock_D42(store: RedisStore) -> None:
    one = Organization(store, WINDOWS)
    admission = run(store.admit(token_of(one.key), 1, BUSY, lease=ask(20, span=2 * SECOND)))
    lease, reading = admission.lease, admission.reading
    assert lease is not None
    assert reading is not None
    assert (lease.units, lease.deadline) == (20, reading.now + 2 * SECOND)
    left = run(store.charge(one.id, LeasesOut()))
    assert left in ((lease,), ())
    run(store.charge(one.id, settling(WINDOWS, [Settlement(lease.id, ((reading.now, 2),))])))
    assert run(store.charge(one.id, LeasesOut())) == ()


# --- lost replies (D33) ---------------------------------------------------------------------


def test_a_lease_whose_reply_is_lost_is_granted_once_and_stays_out_D42() -> None:
    """The repeated request is not charged again, and settles nothing twice."""
    with Proxy(server("single").port) as proxy:
        store = opened("single", f"redis://127.0.0.1:{proxy.port}")
        one = Organization(store, WINDOWS)
        for number in range(40):
            now = NOW + number * MINUTE
            known = ask(20)
            one.admit_leased(BUSY, 1, now, known)
            used = ((now, 2), (now + 1, 3))
            lost = ask(20, (known.id, used))
            expected, lease = one.apply(WINDOWS, 1, now + 2, lost)
            assert lease is not None
            proxy.cut_at = b"EVALSHA"
            again = run(store.admit(token_of(one.key), 1, BUSY, now + 2, lease=lost))
            assert again.verdict is Verdict.ADMITTED
            assert again.lease is None
            assert again.reading is not None
            assert again.reading.used == expected.used
            one.look(now + 2)
            one.settle(WINDOWS, lost.settled, now + 3)
            proxy.cut_at = b"EVALSHA"
            one.settle(WINDOWS, (Settlement(lost.id, ((now + 3, 1),)),), now + 4)
            one.peek(WINDOWS, now + 4)
        assert proxy.cuts == 80
        run(store.close())


async def test_a_request_for_a_lease_that_may_be_forgotten_is_not_repeated_D42() -> None:
    with Proxy(server("single").port) as proxy:
        store, key = opened("single", f"redis://127.0.0.1:{proxy.port}"), new_key()
        await store.insert(draft_of(key), None)
        await store.admit(token_of(key), 1, BUSY)
        proxy.cut_at = b"EVALSHA"
        calls = (store.admit(token_of(key), 1, BUSY, lease=ask(3)) for _ in range(40))
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        lost = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        assert lost
        assert all(isinstance(outcome, OutcomeUnknown) for outcome in lost)
        await store.close()
