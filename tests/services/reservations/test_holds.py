"""Holds of a gate: as blocks in both I/O modes, and by id across processes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest

from lockgate import (
    ConfigurationError,
    Event,
    Gate,
    Limit,
    MemoryStore,
    Principal,
    UsageHistory,
    run,
)
from lockgate.core.hold_ids import HoldId
from lockgate.core.holds import Renew
from lockgate.core.sealed_texts import TextSeal
from lockgate.core.timestamps import MINUTE, SECOND
from lockgate.errors import InvalidRequest, RateLimitExceeded, StoreUnavailable
from lockgate.options import StoreOptions
from lockgate.sessions import Session
from lockgate.stores.resilience.local_limits import Fallback
from tests.patience import SECONDS

from ..bench import Bench as Plain
from ..bench import Hooked

TOKENS = Limit("tokens", "100/minute")
INPUT, OUTPUT = Limit("input", "100/minute;150/hour"), Limit("output", "50/minute")
BY_KEY = Limit("by-key", "10/minute", by="key")
SEAL = TextSeal(())


class Bench(Plain):
    """A gate over memory, and whether units fit."""

    def fits(self, units: int, limit: Limit = TOKENS, caller: Principal | str = "org_1") -> bool:
        try:
            taken = run(self.gate.holds.take(caller, {limit: units}))
        except RateLimitExceeded:
            return False
        assert run(self.gate.holds.settle(taken.id, 0))
        return True

    def left(self, units: int, limit: Limit = TOKENS) -> bool:
        """Return whether just so many units fit."""
        return (not units or self.fits(units, limit)) and not self.fits(units + 1, limit)

    def caller(self) -> Principal:
        return self.admit(self.create(scopes=["*"]).text)

    def another_process(self) -> Gate:
        return Gate(self.store, brand="acme", store_options=StoreOptions(clock=self.clock))


def test_what_a_block_used_is_counted_and_the_rest_is_free_in_both_modes() -> None:
    bench = Bench()
    with bench.gate.hold("org_1", {TOKENS: 100}) as hold:
        assert not bench.fits(1)
        hold.used(30)
    assert bench.left(70)

    async def again() -> None:
        async with bench.gate.hold("org_1", {TOKENS: 70}) as hold:
            hold.used(60)
            hold.used(20)

    asyncio.run(again())
    assert bench.left(50)


MISTAKES: Any = [{"tokns": 12}, -1, None]
"""Arguments of `used` that raise."""


@pytest.mark.parametrize(
    ("named", "left"),
    [((), 0), ((25,), 75), *(((0, mistake), 0) for mistake in MISTAKES)],
    ids=str,
)
@pytest.mark.parametrize("awaits", [False, True])
def test_an_exception_settles_what_was_named_unless_that_raised_or_all(
    named: tuple[Any, ...], left: int, awaits: bool
) -> None:
    bench = Bench()

    def fail(hold: Any) -> None:
        for used in named:
            hold.used(used)
        raise LookupError

    def block() -> None:
        with bench.gate.hold("org_1", {TOKENS: 100}) as hold:
            fail(hold)

    async def awaited() -> None:
        async with bench.gate.hold("org_1", {TOKENS: 100}) as hold:
            fail(hold)

    with pytest.raises((LookupError, ConfigurationError)):
        asyncio.run(awaited()) if awaits else block()
    assert bench.left(left)


def test_a_call_after_one_that_raised_counts_again() -> None:
    bench = Bench()
    with bench.gate.hold("org_1", {TOKENS: 60}) as hold:
        with pytest.raises(ConfigurationError, match="not of 'tokns'"):
            hold.used({"tokns": 12})
        hold.used({"tokens": 12})
    assert bench.left(88)


def test_several_limits_are_held_and_settled_together_W9() -> None:
    bench = Bench()
    with bench.gate.hold("org_1", {INPUT: 90, OUTPUT: 50}) as hold:
        with pytest.raises(RateLimitExceeded) as found:
            run(bench.gate.holds.take("org_1", {INPUT: 10, OUTPUT: 1}))
        hold.used({"output": 20})
    assert found.value.limit_name == "output"
    assert bench.left(10, INPUT)
    assert bench.left(30, OUTPUT)


def test_a_refusal_names_the_limit_and_tells_how_long_to_wait_H5() -> None:
    bench = Bench()
    taken = run(bench.gate.holds.take("org_1", {TOKENS: 60}))
    with pytest.raises(RateLimitExceeded) as found:
        run(bench.gate.holds.take("org_1", {TOKENS: 41}))
    limits = {"type": "minute", "limit": 100, "used": 60, "name": "tokens", "held": 60}
    assert found.value.body()["limits"] == limits
    assert found.value.retry_after == 120
    told = {"organization": "org_1", "limit_name": "tokens", "units": 41}
    assert bench.told == [Event("hold_refused", told)]
    bench.clock.now += 120 * SECOND
    assert bench.fits(41)
    assert not run(bench.gate.holds.settle(taken.id))
    with pytest.raises(RateLimitExceeded, match="never admitted for 'input'") as found:
        run(bench.gate.holds.take("org_1", {INPUT: 101, OUTPUT: 1}))
    assert (found.value.retry_after, found.value.type) == (60, "minute")


def test_a_hold_is_settled_once_by_its_id_in_any_process_H3() -> None:
    bench = Bench()
    for resumes in (False, True):
        id = run(bench.gate.holds.take("org_1", {INPUT: 80, OUTPUT: 40})).id
        other, used = bench.another_process(), {"input": 30, "output": 10}
        bench.clock.now += 50 * SECOND
        if resumes:
            with other.holds.resume(id) as hold:  # It renews the hold.
                bench.clock.now += 50 * SECOND
                hold.used(used)
            assert not hold.lost
        else:
            assert run(other.holds.settle(id, used))
        assert not run(bench.gate.holds.settle(id, {"input": 0, "output": 0}))
        assert bench.left(70, INPUT)
        bench.clock.now += 60 * MINUTE


def test_a_hold_that_is_renewed_outlives_its_deadline_H2() -> None:
    bench = Bench(store_options=StoreOptions(hold_seconds=30))
    id = run(bench.gate.holds.take("org_1", {TOKENS: 100})).id
    for _ in range(3):
        bench.clock.now += 20 * SECOND
        assert run(bench.gate.holds.renew(id))
    assert run(bench.gate.holds.settle(id, 0))
    assert not run(bench.gate.holds.renew(id))
    assert bench.fits(100)


def test_an_overrun_is_counted_and_reported() -> None:
    bench = Bench()
    with bench.gate.hold("org_1", {TOKENS: 10}) as hold:
        hold.used(250)
    told = {"organization": "org_1", "limit_name": "tokens", "held": 10, "used": 250}
    assert bench.told == [Event("hold_overrun", told)]
    assert not bench.fits(1)


def test_a_block_whose_hold_ended_says_so_once() -> None:
    bench = Bench()
    with bench.gate.hold("org_1", {TOKENS: 70}) as hold:
        bench.clock.now += MINUTE
        hold.used(1)
        lost_inside = hold.lost
    assert (lost_inside, hold.lost) == (False, True)
    with bench.gate.holds.resume(hold.id) as again:
        assert again.lost
        again.used(0)
    assert bench.told == [Event("hold_lost", {"organization": "org_1"})] * 2
    assert bench.left(30)


async def test_a_cancelled_block_settles_what_was_used() -> None:
    bench, began = Bench(), asyncio.Event()

    async def work() -> None:
        async with bench.gate.hold("org_1", {TOKENS: 100}) as hold:
            hold.used(40)
            began.set()
            await asyncio.sleep(SECONDS)

    task = asyncio.create_task(work())
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await bench.gate.flush()
    assert (await bench.gate.holds.take("org_1", {TOKENS: 60})).units == {"tokens": 60}


@pytest.mark.parametrize("awaits", [False, True])
def test_a_running_block_renews_its_hold(awaits: bool) -> None:
    """Renewals go by the time that passes, and deadlines by the clock, which stands still."""
    bench, renewed = Bench(store_options=StoreOptions(hold_seconds=0.3)), threading.Event()

    async def note(asked: Any, organization: str, action: object, now: int | None) -> object:
        if isinstance(action, Renew):
            renewed.set()
        return await asked(organization, action, now)

    bench.store.on("hold", note)

    async def work() -> bool:
        async with bench.gate.hold("org_1", {TOKENS: 100}) as hold:
            assert await asyncio.to_thread(renewed.wait, SECONDS)
        return hold.lost

    if awaits:
        assert not asyncio.run(work())
    else:
        with bench.gate.hold("org_1", {TOKENS: 100}) as hold:
            assert renewed.wait(SECONDS)
        assert not hold.lost


def test_a_limit_by_key_counts_for_the_key_and_leaves_out_callers_without_one() -> None:
    bench = Bench()
    one, two = bench.caller(), bench.caller()
    run(bench.gate.holds.take(one, {BY_KEY: 10}))
    assert not bench.fits(1, BY_KEY, one)
    assert bench.fits(10, BY_KEY, two)
    session = run(bench.gate.admit_session(Session("org_1", "ada")))
    with bench.gate.hold(session, {BY_KEY: 11, TOKENS: 5}) as hold:
        hold.used({"tokens": 5, "by-key": 99})
    taken = run(bench.gate.holds.take(session, {BY_KEY: 11, TOKENS: 5}))
    with bench.gate.holds.resume(taken.id) as hold:
        hold.used({BY_KEY: 99, TOKENS: 5})
    assert not hold.lost
    assert not {"hold_lost", "hold_overrun", "hold_uncounted"} & {*bench.names}


def test_a_hold_of_a_session_that_no_limit_counts_is_told_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    at = [1000.0]
    monkeypatch.setattr("lockgate.events.monotonic", lambda: at[0])
    bench = Bench()
    session = run(bench.gate.admit_session(Session("org_1", "ada")))
    for at[0] in (1000.0, 1001.0, 1059.0, 1060.0):
        with bench.gate.hold(session, {BY_KEY: 11, TOKENS: 0}) as hold:
            hold.used({"by-key": 3})
        assert not hold.lost
    told = [event.fields for event in bench.told if event.name == "hold_uncounted"]
    assert [(one["organization"], one["limit_name"]) for one in told] == [("org_1", "by-key")] * 2
    assert caplog.text.count("no limit counts what it holds") == 2


def test_the_number_of_holds_is_bounded() -> None:
    bench = Bench(store_options=StoreOptions(hold_at_most=2))
    ids = [run(bench.gate.holds.take("org_1", {TOKENS: 1})).id for _ in range(2)]
    assert not bench.fits(1)
    run(bench.gate.holds.settle(ids[0]))
    assert bench.fits(1)


@pytest.mark.parametrize("caller", [None, 7, "", "o" * 129], ids=repr)
def test_a_hold_and_its_usage_are_of_a_principal_or_an_organization(caller: Any) -> None:
    holds = Bench(store_options=StoreOptions(hold_limits=[TOKENS])).gate.holds
    with pytest.raises(InvalidRequest):
        run(holds.take(caller, {TOKENS: 1}))
    with pytest.raises(InvalidRequest, match="the organization's id"):
        run(holds.usage(caller))


@pytest.mark.parametrize(
    ("units", "message"),
    [
        ({}, "A hold takes units by limit"),
        (5, "by limit, not 5: write gate.hold"),
        (None, "by limit, not None"),
        (TOKENS, "by limit, not tokens 100/minute by organization"),
        ([TOKENS], "A hold takes units by limit"),
        ({"tokens": 5}, "'tokens' is no limit"),
        ({TOKENS: 0}, "A hold takes 0 units of 'tokens': .* at least 1 of one of its limits"),
        ({TOKENS: 0, INPUT: 0}, "A hold takes 0 units of 'tokens'"),
        ({TOKENS: -1, INPUT: 1}, "from a request, check it .* 400"),
        ({TOKENS: True}, "A hold takes True units"),
        ({TOKENS: 2**53}, "use 1 to 2"),
        ({Limit(f"l{n}", "9/hour"): 1 for n in range(5)}, "^A hold has at most 4 limits"),
        ({TOKENS: 1, Limit("tokens", "9/hour"): 1}, "Two limits are called 'tokens'"),
        ({Limit("export", "3/hour"): 1}, "A rule or a plan charges each request for the limit"),
        ({BY_KEY: 1}, "'by-key' is by key, .* pass the principal"),
        ({BY_KEY: 0, TOKENS: 5}, "'by-key' is by key, .* pass the principal"),
    ],
)
def test_a_mistake_in_units_is_told(units: Any, message: str) -> None:
    bench = Bench()
    bench.gate.know_limits([Limit("export", "3/hour")])
    with pytest.raises(ConfigurationError, match=message):
        run(bench.gate.holds.take("org_1", units))
    assert bench.fits(100)


def test_used_and_held_units_are_shown_from_the_start_for_limits_of_the_options() -> None:
    bench = Bench(store_options=StoreOptions(hold_limits=[INPUT, BY_KEY]))
    caller = bench.caller()
    assert caller.key is not None

    def shown(key: str | None = None) -> list[tuple[str, str, int, int, int]]:
        usage = run(bench.gate.holds.usage("org_1", key))
        return [(one.limit.name, one.window, one.most, one.used, one.held) for one in usage]

    assert shown() == [("input", "minute", 100, 0, 0), ("input", "hour", 150, 0, 0)]
    with bench.gate.hold(caller, {INPUT: 60, BY_KEY: 4, TOKENS: 7}) as hold:
        assert shown(caller.key.id) == [
            ("input", "minute", 100, 60, 60),
            ("input", "hour", 150, 60, 60),
            ("by-key", "minute", 10, 4, 4),
            ("tokens", "minute", 100, 7, 7),
        ]
        status = run(bench.gate.named_usage("org_1"))
        assert {("input", "hour", 60, 150, 60), ("tokens", "minute", 7, 100, 7)} <= {*status}
        hold.used({"input": 20, "by-key": 1, "tokens": 7})
    bench.clock.now += 30 * SECOND
    assert shown()[:2] == [("input", "minute", 100, 20, 0), ("input", "hour", 150, 20, 0)]
    bench.clock.now += 31 * SECOND
    assert shown()[:2] == [("input", "minute", 100, 0, 0), ("input", "hour", 150, 20, 0)]
    assert run(bench.gate.holds.usage("org_2"))[0].used == 0


@pytest.mark.parametrize(
    "asked",
    [{"units": "k"}, {"units": 0}, {"units": 2**53}, {"units": None}, {"key": 7}, {"key": []}],
    ids=str,
)
def test_a_mistake_in_asking_for_the_usage_is_told_as_no_outage(asked: Any) -> None:
    bench = Bench(store_options=StoreOptions(hold_limits=[TOKENS]))
    with pytest.raises(ConfigurationError):
        run(bench.gate.holds.usage("org_1", **asked))
    assert bench.names == []


def test_a_rule_may_not_have_the_name_of_a_limit_that_holds_are_taken_of() -> None:
    gate = Bench(store_options=StoreOptions(hold_limits=[INPUT])).gate
    with pytest.raises(ConfigurationError, match="'input', which would count apart"):
        gate.know_limits([Limit("input", "3/hour")])
    with pytest.raises(ConfigurationError, match="by organization or by key"):
        Bench(store_options=StoreOptions(hold_limits=[Limit("login", "5/minute", by="address")]))


USED: Any = [
    *(-1, 1.5, {"input": 1}, {INPUT: 1}, {"tokens": None}, 2**53, True, "1"),
    {TOKENS: 1, "tokens": 1},
]


@pytest.mark.parametrize("used", USED, ids=str)
def test_a_mistake_in_what_was_used_is_told(used: Any) -> None:
    bench = Bench()
    hold = bench.gate.hold("org_1", {TOKENS: 9})
    with pytest.raises(ConfigurationError, match="inside its block"):
        hold.used(1)
    with hold:
        with pytest.raises(ConfigurationError):
            hold.used(used)
        with pytest.raises(ConfigurationError):
            run(bench.gate.holds.settle(hold.id, used))
    assert not hold.lost


@pytest.mark.parametrize(
    "used",
    [{INPUT: 30, OUTPUT: 10}, {"input": 30, "output": 10}, {INPUT: 30, "output": 10}],
    ids=str,
)
def test_limits_and_their_names_tell_alike_what_was_used(used: Any) -> None:
    by_id, by_block = Bench(), Bench()
    id = run(by_id.gate.holds.take("org_1", {INPUT: 80, OUTPUT: 40})).id
    assert run(by_id.gate.holds.settle(id, used))
    with by_block.gate.hold("org_1", {INPUT: 80, OUTPUT: 40}) as hold:
        with pytest.raises(ConfigurationError, match="several limits"):
            hold.used(1)
        hold.used(used)
    for bench in (by_id, by_block):
        assert bench.left(70, INPUT) and bench.left(40, OUTPUT)


@pytest.mark.parametrize("by_id", [False, True])
def test_a_limit_of_zero_units_is_left_out_of_a_hold(by_id: bool) -> None:
    bench = Bench()
    taken = run(bench.gate.holds.take("org_1", {INPUT: 80, OUTPUT: 0}))
    assert taken.units == {"input": 80}
    assert bench.fits(50, OUTPUT)
    used, wrong = {INPUT: 10, OUTPUT: 0}, {"input": 10, "output": 1}
    if by_id:
        with pytest.raises(ConfigurationError, match="took 0 units of 'output'"):
            run(bench.gate.holds.settle(taken.id, wrong))
        assert run(bench.gate.holds.settle(taken.id, used))
    else:
        with bench.gate.holds.resume(taken.id) as hold:
            with pytest.raises(ConfigurationError, match="took 0 units of 'output'"):
                hold.used(wrong)
            hold.used(used)
    assert bench.left(90, INPUT)


@pytest.mark.parametrize("seconds", [0, -1, 3601, float("nan"), float("inf"), "x", True, [1]])
def test_a_hold_lasts_up_to_an_hour(seconds: Any) -> None:
    with pytest.raises(ConfigurationError, match="up to an hour"):
        run(Bench().gate.holds.take("org_1", {TOKENS: 1}, seconds=seconds))


@pytest.mark.parametrize(
    "options",
    [
        *({"hold_seconds": 0}, {"hold_seconds": 3601}, {"hold_seconds": "x"}),
        *({"hold_seconds": None}, {"hold_at_most": 0}, {"hold_at_most": "x"}),
        {"hold_limits": ["5/minute"]},
    ],
    ids=str,
)
def test_a_mistake_in_the_options_is_told(options: Mapping[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"[Hh]old"):
        StoreOptions(**options)


NONE = HoldId("0" * 32, "org", ())
IDS: Any = [
    *("", "x", "%%%", "a" * 5000, "bnVsbA", "WzEsMl0", "W1tb" * 1024, 7, None),
    NONE.written(SEAL),
]


@pytest.mark.parametrize("id", IDS, ids=lambda id: f"{id!s:.40}")
def test_a_malformed_id_is_an_invalid_request(id: Any) -> None:
    with pytest.raises(InvalidRequest):
        run(Bench().gate.holds.settle(id))


FIELDS: Any = [("tokens",), ("Tokens 60",), ("tokens 0",), ("tokens 999999",), ("a 1",) * 9]
NAMES: Any = [("Tokens",), ("tokens 60",), ("a",) * 9]
HANDLES: Any = ["", " ", "a" * 65, "é", "a\n", 7, ["a"]]


@pytest.mark.parametrize(
    "other",
    [
        *({"fields": fields} for fields in FIELDS),
        *({name: names} for name in ("unbound", "untaken") for names in NAMES),
        *({"handle": handle} for handle in HANDLES),
    ],
    ids=str,
)
def test_an_id_with_other_parts_is_malformed(other: Any) -> None:
    with pytest.raises(ValueError, match="id"):
        HoldId.read(NONE._replace(**other).written(SEAL), SEAL)


@pytest.mark.parametrize(
    "organization", ["org", "\ud83d\ude00", "\U0001f600", "a\0b", '"]', "\ud800"]
)
def test_an_id_names_any_organization(organization: str) -> None:
    id = HoldId.new(organization, ("hold:tokens 60", "hold:by-key 60 7c-1"))
    assert HoldId.read(id.written(SEAL), SEAL) == id
    id = id._replace(unbound=("a", "b"), untaken=("c",), handle="xY7-~!")
    assert HoldId.read(id.written(SEAL), SEAL) == id


def test_the_id_of_a_hold_outlives_each_step_of_a_rotation_of_the_pepper_K9() -> None:
    old, new = b"the first pepper of these tests 1", b"the second pepper of these tests"
    store = MemoryStore()
    deploys: list[dict[str, Any]] = [
        {"peppers": [old]},
        {"peppers": [old], "next_pepper": new},
        {"peppers": [new, old]},
        {"peppers": [new]},
    ]
    gates = [Bench(store, **deploy).gate for deploy in deploys]
    for before, after in pairwise(gates):
        for taking, settling in ((before, after), (after, before)):
            id = run(taking.holds.take("org_1", {TOKENS: 1})).id
            assert run(settling.holds.renew(id)) and run(settling.holds.settle(id))
    id = run(gates[0].holds.take("org_1", {TOKENS: 1})).id
    with pytest.raises(InvalidRequest):
        run(gates[-1].holds.settle(id))


@pytest.mark.filterwarnings("error")
def test_a_block_is_entered_once_and_in_the_mode_of_its_caller() -> None:
    gate = Bench().gate
    hold = gate.hold("org_1", {TOKENS: 1})
    with hold:
        pass
    with pytest.raises(ConfigurationError, match="one block"):
        hold.__enter__()

    async def enter() -> None:
        with gate.hold("org_1", {TOKENS: 1}):
            pass

    async def enter_async(block: Any) -> None:
        async with block:
            pass

    with pytest.raises(ConfigurationError, match="async with"):
        asyncio.run(enter())
    for block in (gate.hold("org_1", {TOKENS: 1}), gate.slot("org_1")):
        with pytest.raises(ConfigurationError, match=r"asyncio\.run"):
            run(enter_async(block))


# --- while the store is away --------------------------------------------------------------------


class Away(Hooked):
    """A store that can be taken away."""

    io = "sync"
    away = False

    def __init__(self) -> None:
        super().__init__()

        async def hold(asked: Any, *arguments: Any) -> Any:
            if self.away:
                raise OSError
            return await asked(*arguments)

        self.on("hold", hold)


def away(on_failure: Fallback, fleet: int = 1) -> tuple[Bench, Away]:
    store = Away()
    options = StoreOptions(on_failure=on_failure, fleet=fleet)
    return Bench(store, store_options=options), store


def test_while_the_store_is_away_a_process_holds_its_share_W15_H4() -> None:
    bench, store = away("local", fleet=4)
    store.away = True
    for _ in range(3):
        with bench.gate.hold("org_1", {TOKENS: 15}) as hold:
            hold.used(5)
    with bench.gate.hold("org_1", {TOKENS: 10}) as hold:
        assert not bench.fits(1)
        hold.used(0)
    assert bench.left(10)
    assert bench.names.count("limits_fell_back") == 1


def test_while_the_store_is_away_its_latest_answer_still_counts() -> None:
    bench, store = away("local")
    run(bench.gate.holds.take("org_1", {TOKENS: 90}))
    store.away = True
    assert bench.left(10)


def test_holds_of_an_outage_and_of_the_store_are_settled_where_they_were_taken_H3() -> None:
    bench, store = away("local")
    store.away = True
    local = run(bench.gate.holds.take("org_1", {TOKENS: 100})).id
    store.away = False
    assert run(bench.gate.holds.renew(local))
    assert run(bench.gate.holds.settle(local, 100))
    assert not run(bench.gate.holds.settle(local, 100))
    id = run(bench.gate.holds.take("org_1", {TOKENS: 100})).id
    store.away = True
    with pytest.raises(StoreUnavailable):
        run(bench.gate.holds.settle(id, 1))
    store.away = False
    run(bench.gate.flush())
    assert not bench.fits(1)
    assert run(bench.gate.holds.settle(id, 1))
    assert bench.fits(99)


def test_open_and_closed_mean_for_holds_what_they_mean_for_requests() -> None:
    bench, store = away("open")
    store.away = True
    assert bench.fits(10**9)
    bench, store = away("closed")
    store.away = True
    with pytest.raises(StoreUnavailable):
        bench.fits(1)


# --- units that are known late ------------------------------------------------------------------


def test_units_that_are_known_late_are_charged_all_or_none_beside_holds_W9() -> None:
    bench = Bench(usage_history=UsageHistory())
    caller = bench.caller()
    run(bench.gate.charge(caller, {TOKENS: 60, OUTPUT: 40}))
    assert bench.left(40)
    with pytest.raises(RateLimitExceeded) as refused:
        run(bench.gate.charge(caller, {TOKENS: 1, OUTPUT: 11}))
    assert (refused.value.limit_name, refused.value.used, refused.value.limit) == ("output", 40, 50)
    taken = run(bench.gate.holds.take("org_1", {TOKENS: 35}))
    with pytest.raises(RateLimitExceeded):
        run(bench.gate.charge("org_1", {TOKENS: 6}))
    run(bench.gate.holds.settle(taken.id, 5))
    run(bench.gate.charge("org_1", {TOKENS: 35}))
    assert not bench.fits(1)
    usage = run(bench.gate.usage("org_1", caller.key.id if caller.key else None))
    assert usage.used == {"tokens": 60, "output": 40}


@pytest.mark.parametrize("units", [{}, {TOKENS: 0}, {TOKENS: -1}, {TOKENS: True}, TOKENS], ids=str)
def test_a_charge_of_no_units_is_a_mistake(units: Any) -> None:
    with pytest.raises(ConfigurationError):
        run(Bench().gate.charge("org_1", units))


def test_a_charge_whose_settlement_fails_is_made_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fails(id: str, used: object = None) -> bool:
        raise StoreUnavailable

    bench = Bench()
    with monkeypatch.context() as broken:
        broken.setattr(bench.gate.holds, "settle", fails)
        run(bench.gate.charge("org_1", {TOKENS: 70}))
    assert bench.left(30)
