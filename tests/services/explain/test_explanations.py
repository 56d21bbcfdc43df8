"""Explanations of organizations and keys."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lockgate import Limit, Plan, PlanBook, run
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
from lockgate.testing.factories import OPEN

from ..bench import Bench
from ..shared_stores import Drive, gate_on

SMALL = PlanBook([Plan("free", rpm=3, rph=100, rpd=None, concurrent=2)])


def test_an_explanation_has_windows_and_keys_and_counts_nothing(url: str, drive: Drive) -> None:
    gate = gate_on(url, plans=SMALL)
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


def test_an_open_request_is_explained_by_the_limits_of_its_client() -> None:
    gate = Bench().gate
    login = Limit("login", "2/minute", by="address")
    tenants = Limit("tenants", "1/hour", by=lambda _: None)
    for used in range(2):
        found = run(gate.explain_open([login, tenants], "192.0.2.7"))
        assert [one.limit for one in found.limits] == [login]
        assert (found.limits[0].windows[0].used, found.refused) == (used, None)
        assert found.unjudged == (tenants,)
        run(gate.subjects.charge("address", budget_of("192.0.2.7"), [login], 1))
    found = run(gate.explain_open([login, tenants], "192.0.2.7"))
    assert found.refused is not None and found.refused.until is not None
    assert (found.refused.code, found.refused.until > found.at) == ("RATE_LIMIT_EXCEEDED", True)
    assert run(gate.explain_open([login], "192.0.2.8")).refused is None
    assert run(gate.explain_open([login])).unjudged == (login,)
    with pytest.raises(ConfigurationError, match="no IP address"):
        run(gate.explain_open([login], "here"))


def test_a_key_under_an_unknown_pepper_is_explained_with_the_remedy() -> None:
    other = Bench(peppers=[b"the pepper of these tests, 2 of 2"])
    bench = Bench(other.store, peppers=[b"the pepper of these tests, 1 of 2"])
    created = other.create()
    for subject in ((created.text,), ("org_1", created.key.id)):
        refused = run(bench.gate.explain(*subject)).refused
        assert refused is not None
        assert refused.code == "KEY_NOT_FOUND"
        assert "next_pepper" in refused.advice
    bench.refuses(KeyNotFound, created.text)


class Small(Bench):
    """A gate with small limits, and a key."""

    def __init__(self, *scopes: str, **limits: Any) -> None:
        plan = Plan("free", **{"rpm": 3, "rph": 5, "rpd": None, "concurrent": 2, **limits})
        super().__init__(plans=PlanBook([plan]))
        self.key = self.create(scopes=scopes or ("*",)).text

    def refused(self, subject: str = "org_1", **request: Any) -> Any:
        """Return why requests are refused, if they are."""
        return run(self.gate.explain(subject, **request)).refused


TOKENS = Limit("tokens", "100/minute", by="organization")
LOGINS = Limit("logins", "5/minute;9/hour", by="address")
EXPORTS = Limit("exports", "2/hour", by="user")


def test_budgets_of_holds_are_explained_with_what_is_held() -> None:
    gate = Bench(store_options=StoreOptions(hold_limits=[TOKENS])).gate

    def shown() -> list[tuple[str, str, int | None, int, int, int | None]]:
        found = run(gate.explain("org_1"))
        assert found.refused is None
        return [
            (one.limit.name, one.source, w.limit, w.used, w.held, w.left)
            for one in found.limits
            for w in one.windows
        ]

    for _ in range(2):
        assert shown() == [("tokens", "hold", 100, 0, 0, 100)]
    first = run(gate.holds.take("org_1", {TOKENS: 60}))
    second = run(gate.holds.take("org_1", {TOKENS: 30}))
    assert shown() == [("tokens", "hold", 100, 90, 90, 10)]
    # The first hold leaves the minute a minute after its deadline; 101 units never fit.
    for cost, wait in ((10, None), (11, first.seconds * SECOND + MINUTE), (101, None)):
        found = run(gate.explain("org_1", cost=cost))
        (window,) = found.limits[0].windows
        assert (window.until and window.until - found.at) == wait
    assert run(gate.holds.settle(first.id, 12))
    assert shown() == [("tokens", "hold", 100, 42, 30, 58)]
    assert run(gate.holds.settle(second.id))


def test_limits_by_address_and_by_user_are_explained_where_these_are_given() -> None:
    sessions = SignedCookie(["a secret of many distinct bytes"])
    gate = Bench(sessions=sessions, public_url="http://testserver").gate
    gate.know_limits([LOGINS, EXPORTS])
    for _ in range(5):
        run(gate.subjects.charge("address", budget_of("2001:db8::7"), [LOGINS], 1))
    run(gate.subjects.charge("user", "user_1", [EXPORTS], 2))

    def shown(**request: Any) -> list[tuple[str, list[int]]]:
        found = run(gate.explain("org_1", **request))
        return [(one.limit.name, [w.used for w in one.windows]) for one in found.limits]

    assert shown() == []
    assert shown(address="2001:db8::8") == [("logins", [5, 5])]  # Of the same /64.
    assert shown(address="192.0.2.1") == [("logins", [0, 0])]
    assert shown(user="user_1") == [("exports", [2])]
    assert shown(address="192.0.2.1", user="user_2") == [("logins", [0, 0]), ("exports", [0])]
    assert run(gate.explain("org_1", address="2001:db8::9")).refused is None
    full = run(gate.explain("org_1", address="2001:db8::9", limits=[LOGINS])).refused
    assert full is not None and full.code == "RATE_LIMIT_EXCEEDED" and "'logins'" in full.advice


def test_the_window_that_refuses_for_longest_is_the_reason_and_each_without_room_is_named() -> None:
    bench = Small()
    start = bench.clock.now
    for _ in range(2):
        bench.admit(bench.key)
    bench.clock.move(61)
    for _ in range(3):
        bench.admit(bench.key)
    found = run(bench.gate.explain("org_1"))
    assert [window.left for window in found.windows] == [0, 0, None]
    assert found.refused is not None
    assert found.refused.until == start + HOUR
    told = "The limits of the minute and hour have no room: raising one of them is not enough."
    assert found.refused.cause == f"5 of 5 units of the last hour are used. {told}"
    assert found.refused.advice.endswith(told)


def test_a_costly_request_is_explained_by_its_own_wait_and_scope() -> None:
    """The instant at which it is told to be admitted is exact."""
    bench = Small("jobs:read")
    start, key = bench.clock.now, bench.key
    bench.admit(key)
    bench.clock.move(10)
    bench.admit(key)
    assert bench.refused() is None
    refused = bench.refused(cost=2)
    assert (refused.code, refused.until) == ("RATE_LIMIT_EXCEEDED", start + MINUTE)
    assert "2 of 3 units" in refused.advice and "--rpm +2" in refused.advice
    bench.clock.move(50)
    bench.admit(key, cost=2)
    never = bench.refused(cost=4)
    assert never.until is None and "never fits" in never.advice
    bench.clock.move(120)
    lacking = bench.refused(key, requires="jobs:write")
    assert lacking.code == "INSUFFICIENT_SCOPE"
    assert "jobs:write" in lacking.advice and "keys update" in lacking.advice
    assert bench.refused(key, requires="jobs:read") is bench.refused(key, cost=0) is None
    assert bench.refused(key, requires="jobs:write", cost=4).code == "RATE_LIMIT_EXCEEDED"
    mistakes: list[dict[str, Any]] = [
        *({"cost": wrong} for wrong in (-1, True, 2**53)),
        *({"requires": wrong} for wrong in ("jobs:*", "job:read")),
    ]
    for mistake in mistakes:
        with pytest.raises(ConfigurationError):
            bench.refused(**mistake)


def test_limits_of_zero_expired_keys_and_unknown_plans_are_explained() -> None:
    assert Small(rph=0).refused().until is None
    bench = Small()
    created = bench.create(expires_in_days=1)
    bench.clock.move(days=1)
    expired = bench.refused(created.text)
    assert (expired.code, expired.until) == ("KEY_EXPIRED", None)
    book = PlanBook([Plan("free", 1, 1, 1, 1), Plan("gold", 9, 9, 9, 9)])
    run(Bench(bench.store, plans=book).gate.organizations.place("org_1", "gold"))
    found = run(Bench(bench.store).gate.explain("org_1"))
    assert (found.assigned, found.plan.name) == ("gold", "free")


def test_a_text_that_looks_like_a_key_is_never_taken_for_an_organization() -> None:
    """Else a mistyped secret would be printed as an organization's id."""
    gate, other = Bench().gate, Small()
    text = other.key
    with pytest.raises(KeyNotFound):
        run(gate.explain(text))
    with pytest.raises(InvalidFormat):
        run(gate.explain(text[:-1] + ("a" if text[-1] != "a" else "b")))
    assert run(other.gate.explain(text)).organization == "org_1"


def test_a_temporary_limit_of_0_is_explained_with_its_end() -> None:
    begin = datetime(2026, 11, 23, 9, 30, tzinfo=UTC)
    now = int(begin.timestamp() * SECOND)
    bench = Small(rpm=None, rph=None)
    bench.clock.now = now
    change, end = bench.gate.organizations, begin + timedelta(hours=2)
    run(change.set_limits("org_1", rpm=0, until=end))
    refused = bench.refused()
    assert refused.until == now + 2 * HOUR
    assert refused.cause == "A temporary limit admits no request: the limit of the minute is 0."
    assert "It ends at 2026-11-23T11:30:00.000Z" in refused.advice
    assert run(bench.gate.explain("org_1")).windows[0].ends == now + 2 * HOUR
    run(change.set_limits("org_1", rpm=0))
    run(change.set_limits("org_1", rpm=0, until=end))
    assert bench.refused().until is None, "the limit after it admits none, either"
    run(change.clear_limits("org_1"))
    bench.admit(bench.key)
    run(change.set_limits("org_1", rpd=1, until=end))
    refused = bench.refused()
    assert refused.until == now + 2 * HOUR, "earlier than the day"
    assert refused.cause == "1 of 1 units of the last day are used, by a temporary limit."


def lease(bench: Bench, cost: int, number: int, units: int, span: int) -> None:
    """Admit a request of the only key, and take a lease with it."""
    token = bench.gate.format.parse(bench.create().text)
    asked = LeaseRequest(f"{number:016x}", units, span)
    admitting = bench.store.admit(token, cost, ROOM, bench.clock(), lease=asked)
    assert run(admitting).lease is not None


ROOM = PlanBook([replace(OPEN, rpm=900)], default=OPEN.name)


def test_units_on_leases_are_explained_until_they_are_settled_or_the_last_lease_ends() -> None:
    bench = Bench(plans=ROOM)
    gate, clock = bench.gate, bench.clock
    assert run(gate.explain("org_1")).leased is None
    lease(bench, 1, 1, 4, 2 * SECOND)
    lease(bench, 1, 2, 5, SECOND)
    found = run(gate.explain("org_1"))
    assert found.leased == LeasesExplanation(9, found.at + 2 * SECOND)
    assert (found.windows[0].used, found.windows[0].left) == (2, 898)
    settled = [Settlement(f"{1:016x}", ((clock(), 3),))]
    run(bench.store.charge("org_1", settling(ROOM.default.windows, settled), clock()))
    found = run(gate.explain("org_1"))
    assert found.leased == LeasesExplanation(5, found.at + SECOND)
    assert found.windows[0].used == 5
    clock.move(seconds=1)
    found = run(gate.explain("org_1"))
    assert (found.leased, found.windows[0].used) == (None, 10)


def test_a_request_that_lacks_units_on_leases_is_refused_until_the_first_lease_ends() -> None:
    bench = Bench(plans=ROOM)
    lease(bench, 888, 1, 9, SECOND)
    assert run(bench.gate.explain("org_1", cost=3)).refused is None
    found = run(bench.gate.explain("org_1", cost=4))
    bench.refuses(RateLimitExceeded, bench.create().text, cost=4)
    assert found.refused is not None
    assert found.refused.until == found.at + SECOND
    assert found.refused.cause == (
        "888 of 900 units of the last minute are used, 9 more are leased to processes, "
        "and the request costs 4."
    )
    # Nothing that a lease gives back is enough.
    found = run(bench.gate.explain("org_1", cost=13))
    assert found.refused is not None and found.refused.until == found.at + 60 * SECOND
