"""The gate: the order of its checks, its response to failures, and the rotation of peppers."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockgate import ConfigurationError, Event, Gate, MemoryStore, Plan, PlanBook, run
from lockgate.core.ledger import Peek
from lockgate.core.plans import LIMITS
from lockgate.core.scopes import requirement
from lockgate.core.timestamps import DAY, MINUTE
from lockgate.errors import (
    InsufficientScope,
    InvalidFormat,
    KeyExpired,
    KeyLimitReached,
    KeyNotFound,
    KeyRevoked,
    MissingAuth,
    RateLimitExceeded,
    StoreUnavailable,
    Unauthenticated,
)
from lockgate.options import KeyOptions, StoreOptions
from lockgate.sessions import Session, SignedCookie
from lockgate.stores.answers import Admission, StoreError
from lockgate.stores.combined import CombinedStore
from tests.gates import flat_gate
from tests.stores.making import NOW, HandClock

ADA = Session("org_1", "ada")
OLD, NEW = b"an old pepper of the tests", b"a new pepper of the tests"


def made(gate: Gate, organization: str = "org_1", **fields: Any) -> str:
    return run(gate.keys.create(organization, "a key", **fields)).text


def small(rpm: int) -> PlanBook:
    return PlanBook([Plan("free", rpm=rpm, rph=None, rpd=None, concurrent=1)])


# --- the order of D19 -----------------------------------------------------------------------


def test_an_admitted_key_gives_a_principal_with_its_usage() -> None:
    gate = flat_gate(brand="zebra", environment="test", clock=HandClock())
    text = made(gate)
    assert re.fullmatch(r"zebra_test_[0-9A-Za-z]{8}_[0-9A-Za-z]{43}", text)
    principal = run(gate.authenticate(text, requirement("jobs:read"), cost=4))
    assert principal.key is not None
    assert (principal.organization, principal.key.request_count) == ("org_1", 1)
    assert principal.key.last_used_at == NOW
    assert principal.reading.used == (4, 4, 4)
    assert principal.plan.name == "free"
    assert principal.session is None


def test_d19_revoked_expired_limit_scope_in_this_order() -> None:
    clock = HandClock()
    gate = Gate(brand="acme", store_options=StoreOptions(clock=clock), plans=small(2))
    created = run(gate.keys.create("org_1", "a", ["models:read"], expires_in_days=1))
    token = created.text
    needed = requirement("jobs:read")

    def used() -> int:
        return run(gate.store.charge("org_1", Peek(gate.plans.default.windows), clock.now)).used[0]

    for count in (1, 2):
        with pytest.raises(InsufficientScope):
            run(gate.authenticate(token, needed))
        assert used() == count
    with pytest.raises(RateLimitExceeded):
        run(gate.authenticate(token, needed))
    clock.now += DAY
    with pytest.raises(KeyExpired):
        run(gate.authenticate(token, needed))
    run(gate.keys.revoke("org_1", created.key.id))
    with pytest.raises(KeyRevoked):
        run(gate.authenticate(token, needed))
    other = gate.format.generate().text
    with pytest.raises(KeyNotFound):
        run(gate.authenticate(other, needed))
    assert used() == 0


def test_a_403_and_a_429_carry_the_rate_headers_and_a_401_does_not() -> None:
    gate = Gate(brand="acme", store_options=StoreOptions(clock=HandClock()), plans=small(1))
    token = made(gate, scopes=["models:read"])
    with pytest.raises(InsufficientScope) as forbidden:
        run(gate.authenticate(token, requirement("jobs:read")))
    with pytest.raises(RateLimitExceeded) as limited:
        run(gate.authenticate(token))
    for caught in (forbidden, limited):
        headers = dict(caught.value.rate)
        assert headers[b"x-ratelimit-limit"] == b"1"
        assert headers[b"x-ratelimit-remaining"] == b"0"
        assert headers[b"x-ratelimit-reset"] == b"%d" % -(-(NOW + MINUTE) // 1_000_000)
        assert caught.value.organization == "org_1"
    with pytest.raises(KeyNotFound) as unknown:
        run(gate.authenticate(gate.format.generate().text))
    assert unknown.value.rate == ()
    assert unknown.value.organization is None


# --- sessions -------------------------------------------------------------------------------


def test_a_session_counts_like_a_key() -> None:
    gate = Gate(brand="acme", store_options=StoreOptions(clock=HandClock()), plans=small(3))
    run(gate.authenticate(made(gate)))
    principal = run(gate.admit_session(ADA, cost=2))
    assert (principal.organization, principal.session, principal.key) == ("org_1", ADA, None)
    assert principal.reading.used[0] == 3
    with pytest.raises(RateLimitExceeded) as caught:
        run(gate.admit_session(ADA))
    assert caught.value.organization == "org_1"
    assert caught.value.retry_after == 60


# --- failures of the store ------------------------------------------------------------------

OUTAGES = [OSError("dsn=hunter2"), TimeoutError(), StoreError("dsn=hunter2")]
BUGS = [
    RuntimeError("dsn=hunter2"),
    KeyError("x"),
    ExceptionGroup("x", [OSError()]),
    asyncio.InvalidStateError(),
]


class Failing(MemoryStore):
    """Raises at every verb that a request comes by."""

    def __init__(self, failure: BaseException) -> None:
        super().__init__()
        self.failure = failure

    async def admit(self, *_: object, **__: object) -> Admission:
        raise self.failure

    async def organization(self, id: str) -> Any:
        raise self.failure


class FailingAtHits(MemoryStore):
    async def charge(self, *_: Any, **__: Any) -> Any:
        raise OSError("dsn=hunter2")


@pytest.mark.parametrize("failure", OUTAGES + BUGS, ids=lambda failure: type(failure).__name__)
def test_any_exception_of_a_store_is_503_and_reported_by_its_type(
    failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Event] = []
    gate = Gate(Failing(failure), brand="acme", observer=told.append)
    token = gate.format.generate().text
    for flow in (gate.authenticate(token), gate.admit_session(ADA)):
        with pytest.raises(StoreUnavailable) as caught:
            run(flow)
        assert caught.value.status == 503
        assert "hunter2" not in str(caught.value)
    name = "store_failed" if failure in OUTAGES else "internal_error"
    assert told == [Event(name, {"error": type(failure).__qualname__})] * 2
    assert ("Traceback" in caplog.text) is (failure in BUGS)
    assert "hunter2" not in caplog.text


def test_a_session_that_cannot_be_counted_is_503() -> None:
    gate = Gate(FailingAtHits(), brand="acme")
    with pytest.raises(StoreUnavailable):
        run(gate.admit_session(ADA))


@pytest.mark.parametrize("answer", [None, (), "admitted", 7])
def test_a_store_that_answers_nonsense_is_503(answer: Any) -> None:
    class Nonsense(MemoryStore):
        async def admit(self, *_: object, **__: object) -> Admission:
            return answer  # type: ignore[no-any-return]

    gate = Gate(Nonsense(), brand="acme")
    with pytest.raises(StoreUnavailable):
        run(gate.authenticate(gate.format.generate().text))


async def test_cancellation_is_not_a_failure_of_the_store() -> None:
    told: list[Event] = []

    class Hanging(MemoryStore):
        async def admit(self, *_: object, **__: object) -> Admission:
            await asyncio.sleep(60)
            raise AssertionError

    gate = Gate(Hanging(), brand="acme", observer=told.append)
    task = asyncio.create_task(gate.authenticate(gate.format.generate().text))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert told == []


# --- peppers (K9) ---------------------------------------------------------------------------


def test_k9_rotating_a_pepper_breaks_no_key_and_moves_it_on_its_next_use() -> None:
    store, told = MemoryStore(), list[Event]()
    plain = Gate(store, brand="acme")
    old = Gate(store, brand="acme", peppers=[OLD])
    texts = [run(gate.keys.create("org_1", "a")).text for gate in (plain, old)]
    gate = Gate(
        store,
        brand="acme",
        peppers=[NEW, OLD],
        key_options=KeyOptions(accept_plain=True),
        observer=told.append,
    )
    newest = gate.format.peppers.scheme
    assert run(gate.keys.census()) == {"sha256": 1, old.format.peppers.scheme: 1}
    for text in texts:
        principal = run(gate.authenticate(text))
        moved = run(store.find(gate.format.parse(text).handle))
        assert moved is not None
        assert moved.scheme == newest
        assert (moved.request_count, moved.revoked_at) == (1, None)
        assert principal.key is not None
        assert told.pop() == Event(
            "key_rehashed", {"organization": "org_1", "id": moved.id, "scheme": newest}
        )
        whose = {"organization": "org_1", "id": moved.id}
        assert told == ([Event("plain_key_used", whose)] if text is texts[0] else [])
        told.clear()
        run(gate.authenticate(text))
        assert told == []
    assert run(gate.keys.census()) == {newest: 2}
    alone = Gate(store, brand="acme", peppers=[NEW])
    for text in texts:
        assert run(alone.authenticate(text)).organization == "org_1"


@pytest.mark.parametrize(
    "steps",
    [
        ({"peppers": [OLD]}, {"peppers": [OLD], "next_pepper": NEW}),
        ({"peppers": [OLD], "next_pepper": NEW}, {"peppers": [NEW, OLD]}),
    ],
    ids=["known", "used"],
)
def test_k9_processes_of_two_steps_of_a_rotation_serve_each_others_keys(
    steps: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    store, told = MemoryStore(), list[Event]()
    before, after = (flat_gate(store, brand="acme", observer=told.append, **step) for step in steps)
    texts = [run(gate.keys.create("org_1", "a")).text for gate in (before, after)]
    told.clear()
    for gate in (before, after, before, after, before):  # The last one: the deploy is rolled back.
        for text in texts:
            run(gate.authenticate(text))
        run(gate.keys.seal())
    moved = [event for event in told if event.name == "key_rehashed"]
    # At most once each: processes of two steps move no key to and fro.
    assert len(moved) == (1 if steps[1]["peppers"][0] == NEW else 0)
    sealed = [event.fields for event in told if event.name == "rows_sealed"]
    assert sealed == [{"sealed": 0, "refused": 0}] * 5


def test_k9_a_service_without_peppers_learns_its_first_one_before_it_is_used() -> None:
    store = MemoryStore()
    plain = Gate(store, brand="acme", key_options=KeyOptions(next_pepper=NEW))
    peppered = Gate(store, brand="acme", peppers=[NEW], key_options=KeyOptions(accept_plain=True))
    texts = [run(gate.keys.create("org_1", "a")).text for gate in (plain, peppered)]
    for gate in (plain, peppered, plain):
        for text in texts:
            assert run(gate.authenticate(text)).organization == "org_1"


def test_k9_dropping_a_pepper_breaks_only_the_keys_still_on_it() -> None:
    store = MemoryStore()
    old, new = (Gate(store, brand="acme", peppers=[pepper]) for pepper in (OLD, NEW))
    lost, kept = (run(gate.keys.create("org_1", "a")).text for gate in (old, new))
    assert run(new.keys.census()) == {
        old.format.peppers.scheme: 1,
        new.format.peppers.scheme: 1,
    }
    with pytest.raises(KeyNotFound):
        run(new.authenticate(lost))
    run(new.authenticate(kept))
    run(old.authenticate(lost))


@pytest.mark.parametrize(
    ("failure", "events"),
    [(OSError(), [Event("store_failed", {"error": "OSError"})]), (None, [])],
    ids=["the store fails", "another process was first"],
)
def test_a_rehash_that_is_not_made_still_lets_the_key_in(
    failure: Exception | None, events: list[Event]
) -> None:
    class NoRehash(MemoryStore):
        async def rehash_if(self, *_: object, **__: object) -> bool:
            if failure is not None:
                raise failure
            return False

    store, told = NoRehash(), list[Event]()
    text = run(Gate(store, brand="acme", peppers=[OLD]).keys.create("org_1", "a")).text
    gate = Gate(store, brand="acme", peppers=[NEW, OLD], observer=told.append)
    assert run(gate.authenticate(text)).organization == "org_1"
    assert told == events


def test_a_refused_key_is_not_rehashed() -> None:
    store = MemoryStore()
    old = Gate(store, brand="acme", peppers=[OLD])
    created = run(old.keys.create("org_1", "a", ["models:read"]))
    gate = Gate(store, brand="acme", peppers=[NEW, OLD])
    run(gate.keys.revoke("org_1", created.key.id))
    with pytest.raises(Unauthenticated):
        run(gate.authenticate(created.text))
    found = run(store.find(created.key.handle))
    assert found is not None
    assert found.scheme == old.format.peppers.scheme


# --- how a gate is put together -------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"brand": "Acme"}, "'Acme'.*lower-case"),
        ({"brand": ""}, "brand ''.*2 to 20"),
        ({"environment": "li-ve"}, "environment 'li-ve'.*letters"),
        ({"peppers": [b"short"]}, r"at least 16 random bytes.*secrets\.token_hex\(32\)"),
        ({"peppers": b"one pepper, not in a list, long enough"}, "list of bytes"),
        ({"peppers": ["a pepper that is text and not bytes"]}, "give bytes"),
        ({"peppers": [OLD], "next_pepper": OLD}, "leave next_pepper out"),
        ({"peppers": [OLD], "next_pepper": "b" * 32}, "bytes"),
        ({"peppers": [OLD], "next_pepper": b"x"}, "16"),
        ({"cap": 0}, "cap is 0: use at least 1, or None"),
        ({"cap": -1}, "cap is -1: use"),
        ({"public_url": "acme.example"}, "'acme.example'.*https://"),
        ({"public_url": "ftp://acme.example"}, "https://"),
        ({"allowed_origins": ["null"]}, "'null'.*https://"),
        ({"allowed_origins": "https://acme.example"}, "give a list of text"),
        ({"trusted_proxies": ["10.0.0.0/33"]}, "'10.0.0.0/33'"),
        ({"trusted_proxies": ["proxy.internal"]}, "'proxy.internal'"),
        ({"trusted_proxies": "10.0.0.0/8"}, "give a list of text"),
        ({"store": "nosql://"}, "nosql.*memory://"),
        ({"keys": "memory://"}, "KeyStore.*WindowStore.*not MemoryStore and NoneType"),
        ({"keys": "memory://", "windows": 1}, "not MemoryStore and int"),
        ({"store": "memory://", "keys": "memory://", "windows": "memory://"}, "not both"),
        ({"sessions": object()}, "sessions is of the type object: give SessionVerifier"),
        ({"prefix": "api"}, r"prefix 'api'.*must"),
        ({"prefix": "/api/"}, r"prefix '/api/'.*must"),
        ({"prefix": "/"}, r"prefix '/'.*must"),
        *(
            ({"catalogue": given}, "give Catalogue or None")
            for given in (["items:read"], {"items:read"}, "items:read")
        ),
    ],
)
def test_contradicting_arguments_of_a_gate_are_refused(
    arguments: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        flat_gate(**{"brand": "acme", **arguments})


def test_a_pepper_that_is_refused_is_not_repeated() -> None:
    with pytest.raises(ConfigurationError) as caught:
        Gate(brand="acme", peppers=[b"hunter2"])
    assert "hunter2" not in str(caught.value)


def test_a_gate_has_the_origins_of_its_urls() -> None:
    gate = flat_gate(
        brand="acme",
        public_url="https://Console.Example.com:443/path?x",
        allowed_origins=["http://localhost:3000", "https://[::1]:8443"],
    )
    assert gate.origins == {
        b"https://console.example.com",
        b"http://localhost:3000",
        b"https://[::1]:8443",
    }


def test_d11_sessions_without_an_origin_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """Such a gate is closed to every page."""
    caplog.set_level(logging.INFO, "lockgate")
    sessions, page = SignedCookie(["a session secret of the tests"]), "https://console.example.com"
    flat_gate(brand="acme", sessions=sessions, public_url=page)
    flat_gate(brand="acme", sessions=sessions, allowed_origins=[page])
    Gate(brand="acme")
    assert caplog.records == []
    assert Gate(brand="acme", sessions=sessions).origins == frozenset()
    (record,) = caplog.records
    assert (record.levelname, record.name) == ("WARNING", "lockgate")
    assert "public_url=" in record.getMessage()


def test_the_key_cap_is_a_setting_and_none_is_no_cap() -> None:
    gate = Gate(brand="acme", key_options=KeyOptions(cap=1))
    run(gate.keys.create("org_1", "a"))
    with pytest.raises(KeyLimitReached):
        run(gate.keys.create("org_1", "a"))
    free = Gate(brand="acme", key_options=KeyOptions(cap=None))
    for _ in range(1001):
        run(free.keys.create("org_1", "a"))


def test_a_store_in_two_parts() -> None:
    gate = Gate(brand="acme", keys="memory://", windows="memory://")
    assert isinstance(gate.store, CombinedStore)
    key = run(gate.keys.create("org_1", "a"))
    assert run(gate.authenticate(key.text)).reading.used == (1, 1, 1)
    assert isinstance(gate.store.windows, MemoryStore)
    assert isinstance(gate.store.keys, MemoryStore)
    assert run(gate.store.keys.find(key.key.handle)) is not None
    assert run(gate.store.windows.find(key.key.handle)) is None
    run(gate.organizations.reset("org_1"))
    assert run(gate.authenticate(key.text)).reading.used == (1, 1, 1)
    actions = [change.action for change in run(gate.changes.list("org_1")).changes]
    assert actions == ["windows_reset", "key_created"]
    run(gate.keys.revoke("org_1", key.key.id))
    with pytest.raises(KeyRevoked):
        run(gate.authenticate(key.text))
    assert run(gate.keys.get("org_1", key.key.id)).request_count == 2


def test_a_given_clock_decides_expiry_and_windows() -> None:
    clock = HandClock()
    gate = Gate(brand="acme", store_options=StoreOptions(clock=clock), plans=small(1))
    key = run(gate.keys.create("org_1", "a", expires_in_days=1)).key
    assert (key.created_at, key.expires_at) == (NOW - NOW % 1000, NOW + DAY)
    token = made(gate)
    run(gate.authenticate(token))
    with pytest.raises(RateLimitExceeded) as caught:
        run(gate.authenticate(token))
    assert caught.value.retry_after == 60
    clock.now += MINUTE
    run(gate.authenticate(token))
    assert run(gate.keys.now()) == clock.now
    assert gate.anonymous.charge("a").now == clock.now
    assert run(gate.keys.revoke("org_1", key.id)).revoked_at == clock.now


@pytest.mark.parametrize("cost", [0, -1, -10, 2**53, 2**63, 10**30])
def test_a_cost_that_no_window_counts_is_refused_and_changes_no_window(cost: int) -> None:
    """A wrongly computed cost increases no quota; a caller that controls it locks no other out."""
    clock = HandClock()
    gate = Gate(brand="acme", store_options=StoreOptions(clock=clock))
    run(gate.organizations.place("org_1", "enterprise", **dict.fromkeys(LIMITS)))
    token = made(gate)
    for flow in (gate.authenticate(token, cost=cost), gate.admit_session(ADA, cost=cost)):
        with pytest.raises((ValueError, ConfigurationError)):
            run(flow)
    clock.now += 1
    assert run(gate.authenticate(token)).reading.used == (1, 1, 1)


async def test_closing_closes_the_store() -> None:
    closed: list[bool] = []

    class Closing(MemoryStore):
        async def close(self) -> None:
            closed.append(True)

    await Gate(Closing(), brand="acme").close()
    assert closed == [True]


# --- authenticate: one way in ---------------------------------------------------------------


@pytest.mark.parametrize("form", ["{}", "Bearer {}", "bearer {}", "  Bearer   {} "])
@pytest.mark.parametrize("convert", [str, str.encode])
def test_a_key_or_a_whole_header_value_as_text_or_bytes(
    form: str, convert: Callable[[str], str | bytes]
) -> None:
    gate = Gate(brand="acme")
    credential = convert(form.format(made(gate)))
    for count in (1, 2):
        principal = run(gate.authenticate(credential, requires="jobs:read", cost=2))
        assert principal.key is not None
        assert (principal.organization, principal.key.request_count) == ("org_1", count)


@pytest.mark.parametrize(
    "credential",
    ["", " ", b"", "x", "Bearer", "Basic abc", "Bearer a b", "ключ", "\ud800"],
    ids=repr,
)
def test_an_empty_credential_is_a_missing_one_and_others_are_malformed(
    credential: str | bytes,
) -> None:
    with pytest.raises(InvalidFormat if credential.strip() else MissingAuth):
        run(Gate(brand="acme").authenticate(credential))


def test_a_credential_of_a_wrong_type_is_a_type_error_and_no_outage(tmp_path: Path) -> None:
    gate = Gate(f"sqlite:///{tmp_path}/keys.db?mode=rwc", brand="acme")
    key = made(gate)
    for wrong in (None, 7, gate.format.parse(key), [key], ADA) * 2:
        with pytest.raises(TypeError, match="the text of a key or an Authorization value"):
            run(gate.authenticate(wrong))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert run(gate.authenticate(key)).organization == "org_1"
    run(gate.close())


def test_a_scope_that_no_key_can_be_granted_is_a_mistake_of_the_program() -> None:
    gate = Gate(brand="acme")
    key = made(gate)
    with pytest.raises(ConfigurationError, match="jobs:raed"):
        run(gate.authenticate(key, requires="jobs:raed"))
