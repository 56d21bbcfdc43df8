"""Named limits in the refusal cache, and by local limits while the store is away."""

from __future__ import annotations

import pytest

from lockgate import Event, Limit, MemoryStore, Plan, PlanBook, run
from lockgate.core.ledger import Hit, Peek
from lockgate.core.limit_windows import LimitWindows
from lockgate.core.limits import bound
from lockgate.core.sliding_window import Reading
from lockgate.core.timestamps import DAY, HOUR, SECOND
from lockgate.errors import StoreUnavailable
from lockgate.events import Events
from lockgate.stores.answers import Admission, Verdict
from lockgate.stores.resilience import local_limits
from lockgate.stores.resilience.local_limits import Fallback, LocalLimits

from ..making import NOW
from .bench import Bench, Faulty

PLANS = PlanBook([Plan("free", 20, 100, None, 1)], custom=(), default="free")
WINDOWS = PLANS.default.windows
AWAY: dict[str, BaseException] = {"hit": StoreUnavailable()}
MARCH = 1_709_251_200 * SECOND
EXPORT = Limit("export", "3/hour")
LIMITS = (EXPORT, Limit("own", "9/minute", by="key"))


def named(*limits: Limit) -> LimitWindows:
    found = bound(limits, "the-key")
    assert found is not None
    return found


def admit(bench: Bench, *limits: Limit) -> Admission:
    return run(bench.ask(plans=PLANS, limits=limits))


def test_a_refusal_by_a_named_limit_is_repeated_for_a_second_and_for_its_limits_only() -> None:
    bench = Bench()
    verdicts = [admit(bench, *LIMITS).verdict for _ in range(4)]
    assert verdicts == [Verdict.ADMITTED] * 3 + [Verdict.LIMITED]
    asked = bench.store.asked["admit"]
    bench.later(0.5)
    repeated = admit(bench, *LIMITS)
    assert bench.store.asked["admit"] == asked
    assert repeated.verdict is Verdict.LIMITED
    assert repeated.reading is not None
    assert repeated.reading.refused_by == 3
    assert repeated.reading.wait == HOUR - SECOND // 2
    assert admit(bench).verdict is Verdict.ADMITTED
    assert admit(bench, Limit("other", "9/hour")).verdict is Verdict.ADMITTED
    assert bench.store.asked["admit"] == asked + 2
    bench.later(0.7)
    later = admit(bench, *LIMITS)
    assert bench.store.asked["admit"] == asked + 3
    assert later.reading is not None
    assert later.reading.used[0] == 5  # What other requests took shows within a second.


def test_a_refused_hit_of_named_limits_is_repeated_by_its_fields() -> None:
    bench = Bench()
    charge, hit = bench.here.charge, Hit(WINDOWS, 1, named(EXPORT))
    readings = [run(charge("org_9", hit)) for _ in range(6)]
    assert [reading.allowed for reading in readings] == [True] * 3 + [False] * 3
    assert bench.store.asked["hit"] == 5  # The first refusal reads the change counter.
    assert run(charge("org_9", Hit(WINDOWS, 1))).allowed


@pytest.mark.parametrize("organization", ["org_1", "limit:" + "a" * 128])
def test_w15_named_limits_without_a_plan_are_decided_here_while_the_store_is_away(
    organization: str,
) -> None:
    """So are those of addresses, and those that a gate inside another one adds."""
    bench = Bench()
    charge, hit = bench.here.charge, Hit((), 1, named(EXPORT))
    assert run(charge(organization, hit, NOW)).used == (1,)
    bench.store.failures = AWAY
    readings = [run(charge(organization, hit, NOW)) for _ in range(3)]
    assert [(one.allowed, one.used) for one in readings] == [
        (True, (2,)),
        (True, (3,)),
        (False, (3,)),
    ]
    assert run(charge(organization, Hit(WINDOWS, 1), NOW)).used == (1,) * 3
    bench.store.failures = {}
    for _ in range(2):  # Each charges the store for what was admitted here.
        run(charge(organization, hit, NOW))
    assert run(bench.store.charge(organization, Peek((), named(EXPORT)), NOW)).used == (4,)
    run(charge(organization, Hit(WINDOWS, 1), NOW))
    assert run(bench.store.charge(organization, Peek(WINDOWS), NOW)).used == (2,) * 3


def test_named_limits_without_a_plan_keep_what_is_known_of_the_plan_W15() -> None:
    bench = Bench()
    for _ in range(20):  # By any process.
        run(bench.store.charge("org_1", Hit(WINDOWS, 1), NOW))
    assert not run(bench.here.charge("org_1", Hit(WINDOWS, 1), NOW)).allowed
    assert run(bench.here.charge("org_1", Hit((), 1, named(EXPORT)), NOW)).allowed
    bench.store.failures = AWAY
    assert not run(bench.here.charge("org_1", Hit(WINDOWS, 1), NOW)).allowed


def local(mode: Fallback = "local", fleet: int = 1) -> LocalLimits:
    return LocalLimits(mode, fleet, Events(None), lambda: NOW)


def decided(limits: LocalLimits, calls: int, *named_limits: Limit, owner: str = "org_1") -> int:
    some = named(*named_limits) if named_limits else None
    windows = WINDOWS if owner == "org_1" else ()
    found = [limits.decide(owner, windows, 1, NOW, limits=some) for _ in range(calls)]
    return sum(reading is not None and reading.allowed for reading in found)


@pytest.mark.parametrize(("fleet", "share"), [(1, 3), (3, 1), (9, 1)])
def test_w15_a_process_admits_its_share_of_a_named_limit(fleet: int, share: int) -> None:
    limits = local(fleet=fleet)
    assert decided(limits, 9, EXPORT) == share
    assert decided(limits, 1) == 1


def flood(limits: LocalLimits) -> None:
    """Decide about names of a limit by a function that a client makes up."""
    for number in range(100):
        assert decided(limits, 1, EXPORT, owner=subject(number)) == 1


def subject(number: int) -> str:
    return f"limit:{number:0128x}"


def test_w15_made_up_names_push_out_no_counts_of_an_organization(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local_limits, "_ORGANIZATIONS_AT_MOST", 10)
    limits, store = local(), Faulty()
    assert (decided(limits, 25), decided(limits, 1, EXPORT)) == (20, 0)
    flood(limits)
    assert decided(limits, 5) == 0
    run(limits.flush("org_1", WINDOWS, store.charge, NOW))
    assert run(store.charge("org_1", Peek(WINDOWS), NOW)).used == (20,) * 3


@pytest.mark.parametrize("is_away", [False, True])
def test_w15_made_up_names_push_out_no_count_of_another_name(
    monkeypatch: pytest.MonkeyPatch, is_away: bool
) -> None:
    """Neither of what the process admitted, nor of what the store did before it went away."""
    monkeypatch.setattr(local_limits, "_ORGANIZATIONS_AT_MOST", 10)
    bench, victim, login = Bench(), subject(100), named(EXPORT)
    bench.store.failures = AWAY if is_away else {}
    for _ in range(3):
        assert run(bench.here.charge(victim, Hit((), 1, login), NOW)).allowed
    for number in range(100):
        run(bench.here.charge(subject(number), Hit((), 1, login), NOW))
    bench.store.failures = AWAY
    refused = run(bench.here.charge(victim, Hit((), 1, login), NOW))
    assert (refused.allowed, refused.used) == (False, (3,))


def test_w15_the_latest_answer_of_the_store_limits_a_named_limit_as_well() -> None:
    limits, store = local(), Faulty()
    reading = run(store.charge("org_1", Hit(WINDOWS, 2, named(EXPORT)), NOW))
    limits.note("org_1", WINDOWS, reading, 2, NOW, named(EXPORT))
    assert decided(limits, 9, EXPORT) == 1
    assert decided(limits, 9, EXPORT) == 0
    refused = limits.decide("org_1", WINDOWS, 1, NOW, limits=named(EXPORT))
    assert refused is not None
    assert (refused.refused_by, refused.used) == (3, (3, 3, 3, 3))


def test_open_mode_admits_all_and_counts() -> None:
    limits = local("open")
    assert decided(limits, 9, EXPORT) == 9
    assert decided(local("closed"), 9, EXPORT) == 0


def test_a_recovered_store_is_charged_for_each_named_limit_by_itself() -> None:
    limits, store = local(), Faulty()
    assert decided(limits, 2, *LIMITS) == 2
    assert decided(limits, 1, EXPORT) == 1
    assert decided(limits, 4) == 4
    run(limits.flush("org_1", WINDOWS, store.charge, NOW))
    reading = run(store.charge("org_1", Peek(WINDOWS, named(*LIMITS)), NOW))
    assert reading.used == (7, 7, 7, 3, 2)
    run(limits.flush("org_1", WINDOWS, store.charge, NOW))
    assert run(store.charge("org_1", Peek(WINDOWS), NOW)).used == (7, 7, 7)


def test_a_charge_of_a_named_limit_that_failed_is_kept() -> None:
    limits, store = local(), Faulty()
    assert decided(limits, 2, EXPORT) == 2
    store.failures = AWAY
    run(limits.flush("org_1", WINDOWS, store.charge, NOW))
    store.failures = {}
    run(limits.flush("org_1", WINDOWS, store.charge, NOW))
    assert run(store.charge("org_1", Peek(WINDOWS, named(EXPORT)), NOW)).used == (2, 2, 2, 2)


def test_a_session_is_limited_by_this_process_while_the_store_is_away() -> None:
    bench = Bench()
    bench.store.failures = AWAY
    readings = [run(bench.here.charge("org_1", Hit(WINDOWS, 1, named(EXPORT)))) for _ in range(5)]
    assert sum(reading.allowed for reading in readings) == 3


def test_local_admissions_are_charged_to_their_period_alone_and_told_by_the_charge() -> None:
    told: list[Event] = []
    credits = named(Limit("credits", "10/month"))
    store, limits = MemoryStore(), LocalLimits("local", 1, Events(told.append))

    def decide(at: int) -> Reading:
        reading = limits.decide("org_1", (), 1, at, limits=credits)
        assert reading is not None
        return reading

    for at, times in ((MARCH - DAY, 8), (MARCH - 1, 2)):
        assert all(decide(at).allowed for _ in range(times))
    refused = decide(MARCH - 1)
    assert (refused.allowed, refused.wait) == (False, 1)
    run(limits.flush("org_1", (), store.charge, MARCH))  # A period later it owes nothing.
    assert run(store.charge("org_1", Peek((), credits), MARCH - 1)).used == (0,)
    for _ in range(9):
        decide(MARCH)
    run(limits.flush("org_1", (), store.charge, MARCH + DAY))
    assert run(store.charge("org_1", Peek((), credits), MARCH + DAY)).used == (9,)
    marks = [event.fields for event in told if event.name == "quota_threshold"]
    assert [(fields["share"], fields["used"]) for fields in marks] == [(80, 9)]
