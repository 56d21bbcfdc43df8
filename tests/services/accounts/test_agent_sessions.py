"""Agents sign in with their dashboard token, and what ends their sessions (R4, D15)."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from itsdangerous import URLSafeSerializer

from lockgate import MemoryStore, run
from lockgate.core.accounts import Account
from lockgate.core.key_format import checksum
from lockgate.core.timestamps import HOUR, SECOND
from lockgate.errors import InvalidFormat, RateLimitExceeded, StoreUnavailable, TokenNotAccepted
from lockgate.services.accounts.agent_sessions import FAILURES_PER_HOUR, SIGN_INS_PER_HOUR
from lockgate.sessions import Session, SignedCookie

from ...stores.making import HandClock
from ..bench import Hooked
from .accounting import ADDRESS, PEPPER, SECRET, Office, person


def sign_in(office: Office, token: str, address: str = ADDRESS) -> str:
    return run(office.accounts.agents.sign_in(token, address=address)).cookie


def verify(office: Office, cookie: str) -> Session | None:
    assert office.gate.sessions is not None
    return run(office.gate.sessions.verify(cookie))


def signed(token: str) -> str:
    """The same token with another secret and a right checksum."""
    head = token[:-7] + ("A" if token[-7] != "A" else "B")
    return head + checksum(head.encode()).decode()


def test_d15_a_token_gives_a_session_for_its_organization() -> None:
    office = Office()
    made = office.register()
    signed_in = run(office.accounts.agents.sign_in(made.dashboard_token, address=ADDRESS))
    assert signed_in.organization == made.account.organization
    assert signed_in.seconds == 3600
    assert verify(office, signed_in.cookie) == Session(made.account.organization, agent=True)
    assert signed_in.cookie not in repr(signed_in)
    assert office.names() == ["registered", "signed_in"]


def test_a_token_is_no_key_and_a_key_no_token() -> None:
    office = Office()
    made = office.register()
    with pytest.raises(InvalidFormat):
        office.gate.format.parse(made.dashboard_token)
    with pytest.raises(TokenNotAccepted):
        sign_in(office, made.api_key)
    renamed = made.api_key.replace("_live_", "_dashboard_")[:-6]
    with pytest.raises(TokenNotAccepted):
        sign_in(office, renamed + checksum(renamed.encode()).decode())
    renamed = made.dashboard_token.replace("_dashboard_", "_live_")[:-6]
    token = office.gate.format.parse(renamed + checksum(renamed.encode()).decode())
    assert run(office.store.admit(token, 1, office.gate.plans)).key is None


SHAPES = [
    *("", "{head}", "{token}x", "{token}\n", "{token}\u00e9", "\ud800{token}", "Bearer {token}"),
    *("{token}{token}", "{token} {token}", "{swapped}", "{signed}", "\0", "x" * 60_000),
]


def test_every_wrong_token_gets_the_same_answer() -> None:
    for shape in SHAPES:
        office = Office()
        token = office.register().dashboard_token
        parts = {"token": token, "head": token[:-1], "swapped": token.swapcase()}
        with pytest.raises(TokenNotAccepted) as caught:
            sign_in(office, shape.format(**parts, signed=signed(token)))
        assert str(caught.value) == TokenNotAccepted.default_message, shape[:40]


def test_failures_are_counted_by_address_before_any_store_is_asked() -> None:
    store = Hooked()
    office, asked = Office(store), store.counting("account_by_token")
    token = office.register().dashboard_token
    for _ in range(FAILURES_PER_HOUR):
        with pytest.raises(TokenNotAccepted):
            sign_in(office, signed(token))
    assert len(asked) == FAILURES_PER_HOUR
    with pytest.raises(RateLimitExceeded) as caught:
        sign_in(office, token)
    assert caught.value.body()["limits"] == {"type": "hour", "limit": 20, "used": 20}
    assert len(asked) == FAILURES_PER_HOUR
    sign_in(office, token, address="192.0.2.2")
    office.clock.now += HOUR
    sign_in(office, token)


async def test_tokens_that_are_tried_at_once_are_counted_as_well() -> None:
    """Else all would be tried that come before the first one has failed."""
    store, asked, answered = Hooked(), list[str](), asyncio.Event()

    async def slow(call: Any, handle: str) -> Account | None:
        asked.append(handle)
        await answered.wait()
        found: Account | None = await call(handle)
        return found

    office = Office(store.on("account_by_token", slow))
    made = await office.accounts.register("bot", "ada@example.com", address=ADDRESS)
    agents, token = office.accounts.agents, made.dashboard_token
    tries = [agents.sign_in(signed(token), address=ADDRESS) for _ in range(3 * FAILURES_PER_HOUR)]
    trying = asyncio.gather(*tries, return_exceptions=True)
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(asked) == FAILURES_PER_HOUR
    answered.set()
    found = Counter(type(outcome) for outcome in await trying)
    assert found == {TokenNotAccepted: FAILURES_PER_HOUR, StoreUnavailable: 2 * FAILURES_PER_HOUR}
    with pytest.raises(RateLimitExceeded):
        await agents.sign_in(token, address=ADDRESS)
    await agents.sign_in(token, address="192.0.2.2")


def test_sign_ins_are_counted_by_account_and_only_good_ones() -> None:
    office = Office()
    token, other = office.register().dashboard_token, office.register().dashboard_token
    for index in range(30):  # Who has no token locks nobody out who has.
        with pytest.raises(TokenNotAccepted):
            sign_in(office, signed(token), address=f"192.0.2.{index}")
    for index in range(SIGN_INS_PER_HOUR):
        sign_in(office, token, address=f"192.0.2.{index}")
    with pytest.raises(RateLimitExceeded):
        sign_in(office, token, address="192.0.2.200")
    sign_in(office, other, address="192.0.2.200")
    office.clock.now += HOUR
    sign_in(office, token)


def test_k10_an_unknown_token_costs_the_work_of_a_known_one() -> None:
    office = Office()
    token = office.register().dashboard_token
    digests: list[bytes] = []
    digesters = office.gate.format.peppers.digesters
    assert isinstance(digesters, dict)
    digest = digesters[office.gate.format.peppers.scheme]

    def counting(secret: bytes) -> bytes:
        digests.append(secret)
        return bytes(digest(secret))

    digesters[office.gate.format.peppers.scheme] = counting
    unknown = token.replace(token.split("_")[2], "00000000")[:-6]
    for value in (signed(token), unknown + checksum(unknown.encode()).decode()):
        with pytest.raises(TokenNotAccepted):
            sign_in(office, value)
    assert len(digests) == 2


# --- what ends a session --------------------------------------------------------------------


def test_r4_signing_out_ends_every_session_everywhere_for_good() -> None:
    store, clock = MemoryStore(), HandClock()
    one, other = Office(store, clock=clock), Office(store, clock=clock)
    made, stranger = one.register(), one.register()
    cookies = [sign_in(one, made.dashboard_token) for _ in range(3)]
    theirs = sign_in(one, stranger.dashboard_token)
    assert all(verify(other, cookie) for cookie in cookies)
    run(one.accounts.agents.sign_out(made.account.organization))
    assert one.names()[-1] == "signed_out"
    for office in (one, other):
        assert not any(verify(office, cookie) for cookie in cookies)
        assert verify(office, theirs) is not None
    fresh = sign_in(other, made.dashboard_token)
    assert verify(one, fresh) is not None
    assert not any(verify(one, cookie) for cookie in cookies)


def test_r4_a_session_ends_with_its_time() -> None:
    office = Office(session_seconds=60)
    cookie = sign_in(office, office.register().dashboard_token)
    office.clock.now += 60 * SECOND - 1
    assert verify(office, cookie) is not None
    office.clock.now += 1
    assert verify(office, cookie) is None


def test_r4_no_forged_cookie_is_accepted() -> None:
    office = Office()
    made = office.register()
    cookie = sign_in(office, made.dashboard_token)
    payload = [made.account.handle, 0, office.clock.now]
    for value in (
        "agent.",
        "agent..",
        "agent." + "A" * 4096,
        cookie.removeprefix("agent."),
        cookie + ".x",
        "agent." + cookie,
        "agent." + SignedCookie([SECRET]).issue(Session(made.account.organization)),
        "agent." + str(URLSafeSerializer("another secret of somebody's").dumps(payload)),
        "agent." + str(URLSafeSerializer(SECRET, salt="lockgate.session").dumps(payload)),
        "agent." + str(URLSafeSerializer(SECRET, salt="lockgate.agent").dumps(payload[:2])),
        "agent." + str(URLSafeSerializer(SECRET, salt="lockgate.agent").dumps(7)),
    ):
        assert verify(office, value) is None, value
    for place in range(len(cookie) - 1):
        changed = cookie[:place] + ("A" if cookie[place] != "A" else "B") + cookie[place + 1 :]
        assert verify(office, changed) is None, place


def test_a_persons_cookie_is_verified_by_the_verifier_of_people() -> None:
    office = Office()
    made = office.register()
    session = person(organization=made.account.organization)
    assert verify(office, office.people.issue(session)) == session
    assert verify(office, "nonsense") is None
    agents = sign_in(office, made.dashboard_token)
    assert run(office.people.verify(agents)) is None


NEWER = "a newer session secret of the tests"


@pytest.mark.parametrize("fails", [False, True])
def test_k9_a_token_moves_to_the_newest_pepper_and_is_counted_until_then(fails: bool) -> None:
    """And signs in although its rehash fails. Secrets of sessions rotate as a list too."""
    store, newer = Hooked(), b"a newer pepper of the tests"
    before = Office(store)
    token, clock = before.register().dashboard_token, before.clock
    old = before.gate.format.peppers.scheme
    after = Office(store, clock=clock, peppers=(newer, PEPPER))
    new = after.gate.format.peppers.scheme
    assert run(after.gate.keys.census()) == {old: 2}
    if fails:
        store.failing("rehash_token_if")
    cookie = sign_in(after, token)
    assert verify(after, cookie) is not None
    assert ("store_failed" in after.names()) is fails
    if not fails:
        assert run(after.gate.keys.census()) == {old: 1, new: 1}
        sign_in(Office(store, clock=clock, peppers=(newer,)), token)
    for secrets, good in (([NEWER, SECRET], True), ([NEWER], False)):
        other = Office(store, clock=clock, peppers=(newer, PEPPER), session_secrets=secrets)
        assert (verify(other, cookie) is not None) is good


@pytest.mark.parametrize("verb", ["account_by_token", "hit"])
def test_a_store_that_fails_starts_no_session(verb: str) -> None:
    store = Hooked()
    office = Office(store)
    token = office.register().dashboard_token
    store.failing(verb)
    with pytest.raises(StoreUnavailable):
        sign_in(office, token)
