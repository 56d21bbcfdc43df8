"""Registration of agents is atomic and reveals no other account (D13, D14)."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from math import inf, nan
from typing import Any

import pytest

from lockgate import ConfigurationError, Gate, MemoryStore, Registration, Store, run
from lockgate.core.accounts import Account
from lockgate.core.ledger import Peek
from lockgate.core.timestamps import DAY, HOUR
from lockgate.errors import HandleTaken, InvalidRequest, RateLimitExceeded, StoreUnavailable
from lockgate.services.accounts.registration import Registered
from lockgate.sessions import SignedCookie
from lockgate.stores.base import IoMode
from lockgate.stores.resilience.local_limits import Fallback
from tests.gates import flat_gate

from ...stores.making import at_once
from ..bench import Hooked
from .accounting import ADDRESS, EMAIL, ORIGIN, SECRET, Office, person

FULL_KEY = re.compile(r"acme_live_[0-9A-Za-z]{8}_[0-9A-Za-z]{43}")
TOKEN = re.compile(r"acme_dashboard_[0-9A-Za-z]{8}_[0-9A-Za-z]{43}")


# --- what registration makes ----------------------------------------------------------------


def test_d13_an_organization_a_key_and_a_token() -> None:
    office = Office()
    made = office.register("Ada@Example.com", agent=" render bot ")
    assert FULL_KEY.fullmatch(made.api_key)
    assert TOKEN.fullmatch(made.dashboard_token)
    assert (made.dashboard_url, made.billing_url) == (ORIGIN, ORIGIN)
    organization = made.account.organization
    principal = run(office.gate.authenticate(made.api_key))
    assert principal.organization == organization
    assert principal.plan == office.gate.plans.default
    assert principal.key is not None
    assert (principal.key.name, principal.key.scopes) == ("render bot", ("*",))
    account = run(office.store.account(organization))
    assert account == made.account
    assert account is not None
    assert (account.agent_name, account.billing_email) == ("render bot", "ada@example.com")
    assert made.dashboard_token.encode() not in account.digest
    assert office.names() == ["registered"]
    assert office.told[0].fields == {"organization": organization, "type": "personal"}


def test_a_company_registers_with_an_unverified_name() -> None:
    office = Office()
    flow = office.accounts.register("bot", EMAIL, "company", " Ada & Co ", address=ADDRESS)
    account = run(flow).account
    assert (account.account_type, account.company_name) == ("company", "Ada & Co")


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        (("", EMAIL), ["agent_name"]),
        (("a" * 101, EMAIL), ["agent_name"]),
        (("a\0b", EMAIL), ["agent_name"]),
        (("bot", "ada"), ["billing_email"]),
        (("bot", EMAIL, "robot"), ["account_type"]),
        (("bot", EMAIL, "company"), ["company_name"]),
        (("bot", EMAIL, "personal", "Ada & Co"), ["company_name"]),
        ((" ", "@", "company", " "), ["agent_name", "billing_email", "company_name"]),
    ],
)
def test_d14_invalid_registrations_name_their_fields_and_are_not_counted(
    arguments: tuple[Any, ...], fields: list[str]
) -> None:
    office = Office(per_address=1, per_email=1)
    for _ in range(3):
        with pytest.raises(InvalidRequest) as caught:
            run(office.accounts.register(*arguments, address=ADDRESS))
        assert [problem.field for problem in caught.value.problems] == fields
    office.register()


# --- limits ---------------------------------------------------------------------------------


Calls = Callable[[Office, int], Registered]


@pytest.mark.parametrize(
    ("most", "span", "same", "other"),
    [
        (
            5,
            "day",  # However it is written.
            lambda office, n: office.register(
                ["ADA@example.com", "ada@EXAMPLE.COM", EMAIL][n % 3], address=f"192.0.2.{n}"
            ),
            lambda office, n: office.register("ada+1@example.com", address=f"192.0.2.{n}"),
        ),
        (
            20,
            "hour",
            lambda office, n: office.register(f"ada{n}@example.com"),
            lambda office, n: office.register(f"eve{n}@example.com", address="192.0.2.2"),
        ),
        (
            100,
            "hour",  # Of an IPv6 site.
            lambda office, n: office.register(f"ada{n}@example.com", address=site(n)),
            lambda office, n: office.register(f"eve{n}@example.com", address=site(1, "2001:db8:2")),
        ),
    ],
    ids=["email", "address", "site"],
)
def test_d14_registrations_are_counted_by_email_address_and_site(
    most: int, span: str, same: Calls, other: Calls
) -> None:
    office = Office()
    for number in range(most):
        same(office, number)
    for number in range(most, most + 3):
        with pytest.raises(RateLimitExceeded) as caught:
            same(office, number)
        assert caught.value.body()["limits"] == {"type": span, "limit": most, "used": most}
    other(office, most)
    office.clock.now += (DAY if span == "day" else HOUR) - 1
    with pytest.raises(RateLimitExceeded):
        same(office, most)
    office.clock.now += 1
    same(office, most)


def site(number: int, network: str = "2001:db8:1") -> str:
    """The /64 by which an IPv6 client is counted, one of a site's many."""
    return f"{network}:{number:x}::/64"


def test_d14_a_thousand_an_hour_in_all_and_an_event_when_they_are_spent() -> None:
    office = Office(per_service=3)
    for index in range(3):
        office.register(f"ada{index}@example.com", address=f"192.0.2.{index}")
    for index in range(2):
        with pytest.raises(RateLimitExceeded):
            office.register("eve@example.com", address=f"198.51.100.{index}")
    with pytest.raises(RateLimitExceeded) as caught:
        office.register("eve@example.com", address="198.51.100.9")
    assert caught.value.body()["limits"] == {"type": "hour", "limit": 3, "used": 3}
    assert office.names() == ["registered"] * 3 + ["registrations_exhausted"]
    assert office.told[-1].fields == {"limit": 3}
    office.clock.now += HOUR
    office.register("eve@example.com")
    assert Registration(session_secrets=[SECRET]).per_service == 1000


BUDGETS: dict[str, Any] = {"per_address": 2, "per_network": 3, "per_email": 2, "per_service": 8}


def test_w7_a_registration_that_any_budget_refuses_costs_nothing_in_the_others() -> None:
    """Any number of refusals: exactly the admitted registrations are counted."""
    office = Office(**BUDGETS)
    store, now = office.store, office.clock

    def counted() -> int:
        """How often the whole service was charged."""
        window = office.accounts._budgets._service
        assert window is not None
        reading = run(store.charge(window._owner("all"), Peek(window._windows), now.now))
        return reading.used[0]

    admitted = 0
    for turn in range(3):
        for index in range(6):
            for email in ("ada@example.com", f"bob{turn}{index}@example.com"):
                try:
                    office.register(email, address=site(index % 4, f"2001:db8:{turn}"))
                except RateLimitExceeded:
                    pass
                else:
                    admitted += 1
                assert counted() == admitted
    assert admitted == 8


def test_a_rush_from_one_site_spends_no_more_of_the_services_budget_than_the_sites() -> None:
    """All of it looks at budgets before any of it is charged."""
    office = Office(per_network=5, per_service=50)

    def register(index: int) -> bool:
        try:
            office.register(f"ada{index}@example.com", address=site(index))
        except RateLimitExceeded:
            return False
        return True

    assert sum(at_once(24, register)) == 5
    for index in range(45):
        office.register(f"bob{index}@example.com", address=f"192.0.2.{index}")
    with pytest.raises(RateLimitExceeded):
        office.register("eve@example.com", address="198.51.100.1")


def test_budgets_can_be_left_out() -> None:
    without: dict[str, Any] = dict.fromkeys(BUDGETS)
    office = Office(**without)
    for _ in range(30):
        office.register(address=site(1))


def test_the_limits_hold_for_all_processes_that_share_the_store() -> None:
    store = MemoryStore()
    one, other = Office(store, per_email=2), Office(store, per_email=2)
    one.register()
    other.register()
    for office in (one, other):
        with pytest.raises(RateLimitExceeded):
            office.register(address="192.0.2.9")


@pytest.mark.parametrize(
    ("number", "threads"), [(400, 16), pytest.param(10_000, 32, marks=pytest.mark.campaign)]
)
def test_d14_many_parallel_registrations_with_one_email_make_five(
    number: int, threads: int
) -> None:
    """Each from another address."""
    office = Office()

    def register(index: int) -> list[Registered | None]:
        found: list[Registered | None] = []
        for step in range(index, number, threads):
            address = f"10.{step >> 16}.{step >> 8 & 255}.{step & 255}"
            try:
                found.append(office.register(address=address))
            except RateLimitExceeded:
                found.append(None)
        return found

    made = [one for many in at_once(threads, register) for one in many]
    assert len(made) == number
    won = [one for one in made if one is not None]
    assert len(won) == 5
    accounts = run(office.store.unclaimed_by_email(EMAIL, 99))
    assert {a.organization for a in accounts} == {one.account.organization for one in won}
    for account in accounts:
        assert len(run(office.store.list(account.organization, 100))) == 1


# --- R1: all or nothing ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "after"),
    [("peek", False), ("peek", True), ("hit", False), ("hit", True), ("register", False)],
)
def test_r1_a_failure_leaves_no_account(verb: str, after: bool) -> None:
    """Like a dead server, or a lost reply."""
    store = Hooked()
    drafted = store.counting("register")
    office = Office(store.failing(verb, after=after))
    with pytest.raises(StoreUnavailable) as caught:
        office.register()
    assert EMAIL not in str(caught.value)
    assert office.names() == ["store_failed"]
    assert run(store.unclaimed_by_email(EMAIL, 99)) == ()
    assert drafted == []


def test_r1_a_registration_whose_reply_was_lost_has_its_texts_D52() -> None:
    store = Hooked().failing("register", after=True)
    office = Office(store)
    made = office.register()
    (account,) = run(store.unclaimed_by_email(EMAIL, 99))
    assert made.account == account
    assert [key.id for key in run(store.list(account.organization, 100))] == [made.key.id]
    assert office.names() == ["registered"]


def test_r1_a_handle_that_is_taken_is_drawn_again() -> None:
    refusals = [HandleTaken] * 3

    async def crowded(asked: Any, *arguments: Any, **options: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return await asked(*arguments, **options)

    office = Office(Hooked().on("register", crowded))
    made = office.register()
    assert run(office.store.unclaimed_by_email(EMAIL, 99)) == (made.account,)


@pytest.mark.parametrize("mode", ["local", "open", "closed"])
def test_d28_no_registration_succeeds_while_the_windows_are_away(mode: Fallback) -> None:
    """Whatever becomes of limits elsewhere."""

    class Shared(Hooked):
        io: IoMode = "sync"

    store = Shared().failing("hit", "peek")
    registering = gate(
        store=store,
        sessions=SignedCookie([SECRET]),
        public_url=ORIGIN,
        registration=Registration(session_secrets=[SECRET]),
        on_failure=mode,
    )
    assert registering.accounts is not None
    with pytest.raises(StoreUnavailable):
        run(registering.accounts.register("bot", EMAIL, address=ADDRESS))
    assert run(store.unclaimed_by_email(EMAIL, 99)) == ()
    run(registering.close())


def test_billing_url_comes_from_the_provider_or_is_the_dashboard_where_that_fails_D13() -> None:
    class Provider:
        fails = False

        async def billing_url(self, account: Account) -> str:
            if self.fails:
                raise OSError
            return f"https://pay.example.com/{account.organization}"

    provider = Provider()
    office = Office(billing=provider, dashboard_url="https://dash.example.com/connect")
    made = office.register()
    assert made.billing_url == f"https://pay.example.com/{made.account.organization}"
    assert made.dashboard_url == "https://dash.example.com/connect"
    provider.fails = True
    assert office.register().billing_url == made.dashboard_url
    assert office.names() == ["registered"] * 2 + ["billing_failed"]


# --- R2: no information about other accounts ------------------------------------------------


def test_r2_a_known_email_is_answered_like_an_unknown_one() -> None:
    office = Office()
    office.register()
    run(
        office.accounts.claims.claim(
            person(), run(office.store.unclaimed_by_email(EMAIL, 99))[0].organization
        )
    )
    known, unknown = office.register(), office.register("new@example.com")

    def shape(made: Registered) -> list[object]:
        return [*map(type, made), len(made.api_key), len(made.dashboard_token)]

    assert shape(known) == shape(unknown)
    assert known.account.claimed_by is None
    assert (known.dashboard_url, known.billing_url) == (unknown.dashboard_url, unknown.billing_url)
    assert known.account.organization not in {a.organization for a in (unknown.account,)}


def test_r2_the_store_is_asked_the_same_of_both() -> None:
    """What takes the time is alike, so the time is: looks, hits and one register."""
    store = Hooked()
    office = Office(store)
    asked = store.counting(
        "peek", "hit", "register", "account", "unclaimed_by_email", "find", "list"
    )
    for email in (EMAIL, EMAIL, "new@example.com"):
        office.register(email)
    assert asked == ["peek", "peek", "hit", "hit", "hit", "register"] * 3


@pytest.mark.campaign
def test_r2_the_time_does_not_reveal_a_known_email() -> None:
    office = Office(per_address=10**6, per_email=10**6)
    for _ in range(200):
        office.register()

    def median(email: Callable[[int], str]) -> float:
        times: list[float] = []
        for index in range(2000):
            began = time.perf_counter()
            office.register(email(index))
            times.append(time.perf_counter() - began)
        return sorted(times)[1000]

    known, unknown = median(lambda _: EMAIL), median(lambda index: f"u{index}@example.com")
    assert 0.5 < known / unknown < 2


# --- how it is put together -----------------------------------------------------------------


def gate(store: Store | None = None, **fields: Any) -> Gate:
    return flat_gate(store or MemoryStore(), brand="acme", **fields)


NEWLINE = Registration(session_secrets=[SECRET], dashboard_url=f"{ORIGIN}/\r\nx")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"public_url": None}, r"Registration\(dashboard_url="),
        ({"sessions": None}, r"sessions=SignedCookie"),
        ({"environment": "dashboard"}, "dashboard tokens"),
        ({"registration": Registration(session_secrets=[SECRET], dashboard_url="x")}, "http"),
        ({"registration": NEWLINE}, "no web address"),
        ({"registration": Registration(session_secrets=["short"])}, "token_urlsafe"),
    ],
)
def test_registration_is_off_unless_configured_and_contradicting_settings_are_refused(
    fields: dict[str, Any], said: str
) -> None:
    whole: dict[str, Any] = {
        "registration": Registration(session_secrets=[SECRET]),
        "sessions": SignedCookie([SECRET]),
        "public_url": ORIGIN,
    }
    assert gate(**{**whole, "registration": None}).accounts is None
    with pytest.raises(ConfigurationError, match=said):
        gate(**{**whole, **fields})


@pytest.mark.parametrize("number", [0, -1, nan, inf])
@pytest.mark.parametrize(
    "name",
    [
        *("billing_timeout", "approve_timeout", "session_seconds", "remove_unclaimed_after_days"),
        *BUDGETS,
    ],
)
def test_limits_that_admit_no_registration_are_refused(name: str, number: float) -> None:
    wrong: dict[str, Any] = {name: number}
    with pytest.raises(ConfigurationError, match=name):
        Registration(session_secrets=[SECRET], **wrong)


def test_neither_shows_a_secret() -> None:
    made = Office().register()
    for text in (repr(made), repr(Registration(session_secrets=[SECRET]))):
        assert SECRET not in text
        assert made.api_key not in text and made.dashboard_token not in text
