"""Explanations of organizations and keys, on real servers and in both I/O modes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lockgate import Gate, Limit, MemoryStore, Plan, PlanBook, run
from lockgate.core.api_keys import KeyState
from lockgate.core.client_address import budget_of
from lockgate.core.ledger import settling
from lockgate.core.quota_leases import LeaseRequest, Settlement
from lockgate.core.timestamps import HOUR, MINUTE, SECOND
from lockgate.errors import (
    ConfigurationError,
    InvalidFormat,
    KeyNotFound,
    NotFound,
    RateLimitExceeded,
)
from lockgate.options import StoreOptions
from lockgate.services.explain.findings import LeasesExplanation
from lockgate.sessions import SignedCookie
from lockgate.testing import HandClock
from lockgate.testing.factories import OPEN

from ..shared_stores import KINDS, MODES, Drive, driving, gate_on, shared_store

PEPPER = b"the pepper of these tests, 1 of 2"
SMALL = PlanBook([Plan("free", rpm=3, rph=100, rpd=None, concurrent=2)])


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with shared_store(request.param, tmp_path) as found:
        yield found


@pytest.fixture(params=MODES)
def drive(request: pytest.FixtureRequest) -> Iterator[Drive]:
    with driving(request.param) as found:
        yield found


def test_an_explanation_has_windows_and_keys_and_counts_nothing(url: str, drive: Drive) -> None:
    gate = gate_on(url, plans=SMALL, peppers=[PEPPER])
    created = drive(gate.keys.create("org_1", "ci"))
    other = drive(gate.keys.create("org_1", "old"))
    drive(gate.keys.revoke("org_1", other.key.id))
    lease = drive(gate.slots.acquire("org_1", "job_1"))
    for used in range(4):
        for subject in ("org_1", created.text):
            now = drive(gate.explain(subject))
            assert (now.organization, now.plan.name, now.assigned) == ("org_1", "free", None)
            assert [window.used for window in now.windows] == [used] * 3
            assert [window.left for window in now.windows] == [3 - used, 100 - used, None]
            assert (now.refused is None) is (used < 3)
        if used < 3:
            drive(gate.authenticate(created.text))
    with pytest.raises(RateLimitExceeded) as refusal:
        drive(gate.authenticate(created.text))
    found = drive(gate.explain("org_1"))
    assert found.refused is not None and found.refused.until is not None
    assert (found.refused.code, found.windows[0].limit) == ("RATE_LIMIT_EXCEEDED", 3)
    assert found.windows[0].until == found.refused.until
    # Within the second to which Retry-After is rounded, and the time between the two questions.
    assert 0 < found.refused.until - found.at <= MINUTE
    told = refusal.value.since + refusal.value.retry_after * SECOND
    assert found.refused.until == pytest.approx(told, abs=2 * SECOND)
    assert found.windows[2].until is None
    assert (found.slots.limit, found.slots.used) == (2, 1)
    assert found.slots.until == lease.deadline
    whole = drive(gate.explain("org_1"))
    states = {shown.key.name: shown.state for shown in whole.keys}
    assert states == {"ci": KeyState.ACTIVE, "old": KeyState.REVOKED}
    revoked = drive(gate.explain("org_1", other.key.id))
    assert revoked.refused is not None
    assert (revoked.refused.code, revoked.refused.until) == ("KEY_REVOKED", None)
    with pytest.raises(NotFound):
        drive(gate.explain("org_2", created.key.id))
    drive(gate.close())


def test_an_open_request_is_explained_by_the_limits_of_its_client(url: str, drive: Drive) -> None:
    gate = gate_on(url, peppers=[PEPPER])
    login = Limit("login", "2/minute", by="address")
    tenants = Limit("tenants", "1/hour", by=lambda _: None)
    for used in range(2):
        found = drive(gate.explain_open([login, tenants], "192.0.2.7"))
        assert [one.limit for one in found.limits] == [login]
        assert (found.limits[0].windows[0].used, found.refused) == (used, None)
        assert found.unjudged == (tenants,)
        drive(gate.subjects.charge("address", budget_of("192.0.2.7"), [login], 1))
    found = drive(gate.explain_open([login, tenants], "192.0.2.7"))
    assert found.refused is not None and found.refused.until is not None
    assert (found.refused.code, found.refused.until > found.at) == ("RATE_LIMIT_EXCEEDED", True)
    assert drive(gate.explain_open([login], "192.0.2.8")).refused is None
    assert drive(gate.explain_open([login])).unjudged == (login,)
    with pytest.raises(ConfigurationError, match="no IP address"):
        drive(gate.explain_open([login], "here"))
    drive(gate.close())


def test_a_key_under_an_unknown_pepper_is_explained_with_the_remedy(url: str, drive: Drive) -> None:
    other = gate_on(url, peppers=[b"the pepper of these tests, 2 of 2"])
    gate = gate_on(url, peppers=[PEPPER])
    created = drive(other.keys.create("org_1", "ci"))
    for found in (drive(gate.explain(created.text)), drive(gate.explain("org_1", created.key.id))):
        assert found.refused is not None
        assert found.refused.code == "KEY_NOT_FOUND"
        assert "next_pepper" in found.refused.advice
    with pytest.raises(KeyNotFound):
        drive(gate.authenticate(created.text))
    drive(gate.close())
    drive(other.close())


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


def small(clock: HandClock, **limits: Any) -> Gate:
    plan = Plan("free", **{"rpm": 3, "rph": 5, "rpd": None, "concurrent": 2, **limits})
    return Gate(MemoryStore(clock=clock), brand="acme", plans=PlanBook([plan]))


TOKENS = Limit("tokens", "100/minute", by="organization")
LOGINS = Limit("logins", "5/minute;9/hour", by="address")
EXPORTS = Limit("exports", "2/hour", by="user")


def test_budgets_of_holds_are_explained_with_what_is_held(url: str, drive: Drive) -> None:
    gate = gate_on(url, store_options=StoreOptions(hold_limits=[TOKENS]))

    def shown() -> list[tuple[str, str, int | None, int, int, int | None]]:
        found = drive(gate.explain("org_1"))
        assert found.refused is None
        return [
            (one.limit.name, one.source, w.limit, w.used, w.held, w.left)
            for one in found.limits
            for w in one.windows
        ]

    for _ in range(2):
        assert shown() == [("tokens", "hold", 100, 0, 0, 100)]
    first = drive(gate.holds.take("org_1", {TOKENS: 60}))
    second = drive(gate.holds.take("org_1", {TOKENS: 30}))
    assert shown() == [("tokens", "hold", 100, 90, 90, 10)]
    (window,) = drive(gate.explain("org_1", cost=10)).limits[0].windows
    assert window.until is None
    found = drive(gate.explain("org_1", cost=11))
    (window,) = found.limits[0].windows
    assert window.until is not None
    # The first hold leaves the minute a minute after its deadline.
    after = window.until - found.at - MINUTE
    assert 0 < first.seconds * SECOND - after < MINUTE
    (window,) = drive(gate.explain("org_1", cost=101)).limits[0].windows
    assert window.until is None
    assert drive(gate.holds.settle(first.id, 12))
    assert shown() == [("tokens", "hold", 100, 42, 30, 58)]
    assert drive(gate.holds.settle(second.id))
    drive(gate.close())


def test_limits_by_address_and_by_user_are_explained_where_these_are_given(
    url: str, drive: Drive
) -> None:
    sessions = SignedCookie(["a secret of many distinct bytes"])
    gate = gate_on(url, sessions=sessions, public_url="http://testserver")
    gate.know_limits([LOGINS, EXPORTS])
    for _ in range(5):
        drive(gate.subjects.charge("address", budget_of("2001:db8::7"), [LOGINS], 1))
    drive(gate.subjects.charge("user", "user_1", [EXPORTS], 2))

    def shown(**request: Any) -> list[tuple[str, list[int]]]:
        found = drive(gate.explain("org_1", **request))
        return [(one.limit.name, [w.used for w in one.windows]) for one in found.limits]

    assert shown() == []
    assert shown(address="2001:db8::8") == [("logins", [5, 5])]  # Of the same /64.
    assert shown(address="192.0.2.1") == [("logins", [0, 0])]
    assert shown(user="user_1") == [("exports", [2])]
    assert shown(address="192.0.2.1", user="user_2") == [("logins", [0, 0]), ("exports", [0])]
    assert drive(gate.explain("org_1", address="2001:db8::9")).refused is None
    full = drive(gate.explain("org_1", address="2001:db8::9", limits=[LOGINS])).refused
    assert full is not None and full.code == "RATE_LIMIT_EXCEEDED" and "'logins'" in full.advice
    drive(gate.close())


def test_the_window_that_refuses_for_longest_is_the_reason(clock: HandClock) -> None:
    gate = small(clock)
    created = run(gate.keys.create("org_1", "ci"))
    start = clock()
    for _ in range(2):
        run(gate.authenticate(created.text))
    clock.move(61)
    for _ in range(3):
        run(gate.authenticate(created.text))
    found = run(gate.explain("org_1"))
    assert [window.left for window in found.windows] == [0, 0, None]
    assert found.refused is not None
    assert found.refused.until == start + HOUR
    assert "hour" in found.refused.advice


def test_a_costly_request_is_explained_by_its_own_wait_and_scope(clock: HandClock) -> None:
    """The instant at which it is told to be admitted is exact."""
    gate = small(clock)
    key = run(gate.keys.create("org_1", "ci", ["jobs:read"]))
    start = clock()
    run(gate.authenticate(key.text))
    clock.move(10)
    run(gate.authenticate(key.text))
    assert run(gate.explain("org_1")).refused is None
    found = run(gate.explain("org_1", cost=2))
    assert (found.cost, found.refused and found.refused.code) == (2, "RATE_LIMIT_EXCEEDED")
    assert found.refused is not None and found.refused.until == start + MINUTE
    assert "2 of 3 units" in found.refused.advice and "--rpm +2" in found.refused.advice
    clock.move(50)
    run(gate.authenticate(key.text, cost=2))
    never = run(gate.explain("org_1", cost=4)).refused
    assert never is not None and never.until is None and "never fits" in never.advice

    clock.move(120)
    lacking = run(gate.explain(key.text, requires="jobs:write"))
    assert lacking.refused is not None and lacking.refused.code == "INSUFFICIENT_SCOPE"
    assert "jobs:write" in lacking.refused.advice and "keys update" in lacking.refused.advice
    assert run(gate.explain(key.text, requires="jobs:read")).refused is None
    assert run(gate.explain(key.text, cost=0)).refused is None
    both = run(gate.explain(key.text, requires="jobs:write", cost=4)).refused
    assert both is not None and both.code == "RATE_LIMIT_EXCEEDED"
    mistakes: list[dict[str, Any]] = [
        *({"cost": wrong} for wrong in (-1, True, 2**53)),
        *({"requires": wrong} for wrong in ("jobs:*", "job:read")),
    ]
    for mistake in mistakes:
        with pytest.raises(ConfigurationError):
            run(gate.explain("org_1", **mistake))


def test_a_limit_of_zero_and_an_expired_key_are_refused_for_good(clock: HandClock) -> None:
    gate = small(clock, rph=0)
    found = run(gate.explain("org_1"))
    assert found.refused is not None and found.refused.until is None
    gate = small(clock)
    created = run(gate.keys.create("org_1", "ci", expires_in_days=1))
    clock.move(days=1)
    expired = run(gate.explain(created.text)).refused
    assert expired is not None
    assert (expired.code, expired.until) == ("KEY_EXPIRED", None)


def test_a_plan_without_numbers_shows_the_assigned_name(clock: HandClock) -> None:
    store = MemoryStore(clock=clock)
    book = PlanBook([Plan("free", 1, 1, 1, 1), Plan("gold", 9, 9, 9, 9)])
    run(Gate(store, brand="acme", plans=book).organizations.place("org_1", "gold"))
    found = run(Gate(store, brand="acme").explain("org_1"))
    assert (found.assigned, found.plan.name) == ("gold", "free")


def test_a_text_that_looks_like_a_key_is_never_taken_for_an_organization(
    clock: HandClock,
) -> None:
    """Else a mistyped secret would be printed as an organization's id."""
    gate, other = small(clock), small(clock)
    text = run(other.keys.create("org_1", "ci")).text
    with pytest.raises(KeyNotFound):
        run(gate.explain(text))
    with pytest.raises(InvalidFormat):
        run(gate.explain(text[:-1] + ("a" if text[-1] != "a" else "b")))
    assert run(other.explain(text)).organization == "org_1"


def test_a_temporary_limit_of_0_is_explained_with_its_end() -> None:
    begin = datetime(2026, 11, 23, 9, 30, tzinfo=UTC)
    now = int(begin.timestamp() * SECOND)
    gate = Gate(MemoryStore(), brand="acme", store_options=StoreOptions(clock=lambda: now))
    change, end = gate.organizations, begin + timedelta(hours=2)
    run(change.set_limits("org_1", rpm=0, until=end))
    refused = run(gate.explain("org_1")).refused
    assert refused is not None and refused.until == now + 2 * HOUR
    assert refused.cause == "A temporary limit admits no request: the limit of the minute is 0."
    assert "It ends at 2026-11-23T11:30:00.000Z" in refused.advice
    assert run(gate.explain("org_1")).windows[0].ends == now + 2 * HOUR
    run(change.set_limits("org_1", rpm=0))
    run(change.set_limits("org_1", rpm=0, until=end))
    refused = run(gate.explain("org_1")).refused
    assert refused is not None and refused.until is None, "the limit after it admits none, either"
    run(change.clear_limits("org_1"))
    key = run(gate.keys.create("org_1", "ci")).text
    run(gate.authenticate(key))
    run(change.set_limits("org_1", rpd=1, until=end))
    refused = run(gate.explain("org_1")).refused
    assert refused is not None and refused.until == now + 2 * HOUR, "earlier than the day"
    assert refused.cause == "1 of 1 units of the last day are used, by a temporary limit."


def test_units_on_leases_are_explained_until_they_are_settled_or_the_last_lease_ends(
    clock: HandClock,
) -> None:
    plans = PlanBook([replace(OPEN, rpm=900)], default=OPEN.name)
    store = MemoryStore()
    gate = Gate(store, brand="acme", plans=plans, store_options=StoreOptions(clock=clock))
    token = gate.format.parse(run(gate.keys.create("org_1", "ci")).text)
    assert run(gate.explain("org_1")).leased is None
    for number, units, span in ((1, 4, 2 * SECOND), (2, 5, SECOND)):
        asked = LeaseRequest(f"{number:016x}", units, span)
        assert run(store.admit(token, 1, plans, clock(), lease=asked)).lease is not None
    found = run(gate.explain("org_1"))
    assert found.leased == LeasesExplanation(9, found.at + 2 * SECOND)
    assert (found.windows[0].used, found.windows[0].left) == (2, 898)
    settled = [Settlement(f"{1:016x}", ((clock(), 3),))]
    run(store.charge("org_1", settling(plans.default.windows, settled), clock()))
    found = run(gate.explain("org_1"))
    assert found.leased == LeasesExplanation(5, found.at + SECOND)
    assert found.windows[0].used == 5
    clock.move(seconds=1)
    found = run(gate.explain("org_1"))
    assert (found.leased, found.windows[0].used) == (None, 10)


def test_a_request_that_lacks_units_on_leases_is_refused_until_the_first_lease_ends(
    clock: HandClock,
) -> None:
    plans = PlanBook([replace(OPEN, rpm=900)], default=OPEN.name)
    store = MemoryStore()
    gate = Gate(store, brand="acme", plans=plans, store_options=StoreOptions(clock=clock))
    key = run(gate.keys.create("org_1", "ci")).text
    asked = LeaseRequest("1" * 16, 9, SECOND)
    admission = run(store.admit(gate.format.parse(key), 888, plans, clock(), lease=asked))
    assert admission.lease is not None
    assert run(gate.explain("org_1", cost=3)).refused is None
    found = run(gate.explain("org_1", cost=4))
    with pytest.raises(RateLimitExceeded):
        run(gate.authenticate(key, cost=4))
    assert found.refused is not None
    assert found.refused.until == found.at + SECOND
    assert found.refused.cause == (
        "888 of 900 units of the last minute are used, 9 more are leased to processes, "
        "and the request costs 4."
    )
    # Nothing that a lease gives back is enough.
    found = run(gate.explain("org_1", cost=13))
    assert found.refused is not None and found.refused.until == found.at + 60 * SECOND


def test_every_window_without_room_is_named() -> None:
    gate = Gate(MemoryStore(), brand="acme", plans=PlanBook([Plan("free", 2, 2, 9, 1)]))
    key = run(gate.keys.create("org_1", "ci")).text
    for _ in range(2):
        run(gate.authenticate(key))
    refused = run(gate.explain("org_1")).refused
    assert refused is not None
    told = "The limits of the minute and hour have no room: raising one of them is not enough."
    assert refused.cause == f"2 of 2 units of the last hour are used. {told}"
    assert refused.advice.endswith(told)
