"""Failures of Redis: no request is counted twice, and the store recovers by itself."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from redis.exceptions import (
    BusyLoadingError,
    ConnectionError,
    RedisError,
)

from lockgate import Plan, PlanBook, run
from lockgate.core.leases import TO_LIST, leases_of, to_acquire, to_release
from lockgate.core.ledger import Hit, Peek
from lockgate.core.plans import Organization
from lockgate.core.promises import GRACE
from lockgate.core.quota_leases import LeaseRequest
from lockgate.core.timestamps import DAY, MILLISECOND, MINUTE, SECOND
from lockgate.errors import HandleTaken
from lockgate.stores.answers import OutcomeUnknown, StoreError, Verdict
from lockgate.stores.redis import RedisStore
from lockgate.stores.redis.rows import _COMMIT
from lockgate.stores.redis.transport.commands import Call
from tests.servers import RedisServer, redis_server

from ..failing import store_fails
from ..making import HOSTILE, NOW, account, at_once, draft_of, new_key, token_of
from ..proxy import Proxy
from .backends import opened, server

BOOK = PlanBook([Plan("free", rpm=10**6, rph=10**6, rpd=10**6, concurrent=9)])
WINDOWS = BOOK.default.windows


@pytest.fixture
def proxied() -> Iterator[tuple[Proxy, RedisStore]]:
    with Proxy(server("single").port) as proxy:
        store = opened("single", f"redis://127.0.0.1:{proxy.port}")
        yield proxy, store
        run(store.close())


@pytest.fixture
def own() -> Iterator[RedisServer]:
    """A server that a test may break."""
    with redis_server("--appendonly", "yes", "--appendfsync", "always") as running:
        yield running


def used(store: RedisStore, organization: str = "org_1") -> int:
    return run(store.charge(organization, Peek(WINDOWS))).used[0]


def eventually(work: Callable[[], object], *failures: type[Exception]) -> None:
    """Try until it works, for up to a minute."""
    ends = time.monotonic() + 60
    while True:
        try:
            work()
        except failures:
            assert time.monotonic() < ends
            time.sleep(0.01)
        else:
            return


# --- lost replies (D33, W3) -----------------------------------------------------------------


@pytest.mark.parametrize("number", [50, pytest.param(10_000, marks=pytest.mark.campaign)])
def test_d33_a_request_whose_reply_is_lost_gets_its_first_verdict(
    proxied: tuple[Proxy, RedisStore], number: int
) -> None:
    """The reply of every call is lost, after the server has made it."""
    (proxy, store), made = proxied, new_key()
    run(store.insert(draft_of(made), None))
    run(store.admit(token_of(made), 1, BOOK))
    for step in range(number):
        proxy.cut_at = b"EVALSHA"
        if step % 2:
            reading = run(store.charge("org_1", Hit(WINDOWS, 1)))
        else:
            admission = run(store.admit(token_of(made), 1, BOOK))
            assert admission.key is not None
            assert admission.reading is not None
            assert admission.key.request_count == 2 + step // 2
            reading = admission.reading
        assert reading.allowed
        assert reading.used == (2 + step,) * 3
    assert proxy.cuts == number


_PROMISED = 64
"""Of the tag of an organization's windows: promises follow them."""
PATIENT = PlanBook([Plan("kept", 3, kept_retries=True)], custom=())


def test_lost_replies_leave_no_promise_longer_and_spend_none_twice_P4(
    proxied: tuple[Proxy, RedisStore],
) -> None:
    proxy, store = proxied
    made = [new_key() for _ in range(3)]
    for key in made:
        run(store.insert(draft_of(key), None))
        run(store.admit(token_of(key), 1, PATIENT, NOW))
    name = store._names.place("org_1").windows
    with server("single").client() as client:
        proxy.cut_at = b"EVALSHA"
        refused = run(store.admit(token_of(made[0]), 1, PATIENT, NOW + SECOND))
        assert refused.lease is not None
        assert client.getrange(name, 25, 25)[0] & _PROMISED
        proxy.cut_at = b"EVALSHA"
        admitted = run(store.admit(token_of(made[0]), 1, PATIENT, NOW + MINUTE))
        assert admitted.verdict is Verdict.ADMITTED
        assert admitted.reading is not None
        assert admitted.reading.used[0] == 1
        assert proxy.cuts == 2
        # The refusal was made twice: its other promise lapses by itself.
        readings = [
            run(store.charge("org_1", Hit(PATIENT.default.windows, 2), NOW + MINUTE + later))
            for later in (GRACE - 1, GRACE)
        ]
        assert [reading.allowed for reading in readings] == [False, True]
        assert not client.getrange(name, 25, 25)[0] & _PROMISED
        assert client.pttl(name) <= 2 * DAY // MILLISECOND


async def test_d33_all_calls_of_a_pipeline_get_their_first_verdicts(
    proxied: tuple[Proxy, RedisStore],
) -> None:
    proxy, store = proxied
    await store.charge("org_1", Hit(WINDOWS, 1))
    for batch in range(8):
        proxy.cut_at = b"EVALSHA"
        readings = await asyncio.gather(*(store.charge("org_1", Hit(WINDOWS, 1)) for _ in range(8)))
        assert all(reading.allowed for reading in readings)
        assert (await store.charge("org_1", Peek(WINDOWS))).used[0] == 1 + 8 * (batch + 1)
    await store.close()


@pytest.mark.parametrize("leased", [False, True], ids=["hits", "admissions with leases"])
async def test_d33_a_request_that_is_not_known_any_more_is_not_counted_again(
    proxied: tuple[Proxy, RedisStore], *, leased: bool
) -> None:
    """Too many requests came since: it is unknown whether it was counted, so it is refused."""
    proxy, store = proxied
    made = new_key()
    await store.insert(draft_of(made), None)

    async def ask(number: int) -> object:
        if not leased:
            return await store.charge("org_1", Hit(WINDOWS, 1))
        request = LeaseRequest(f"{number:016x}", 3, SECOND)
        return await store.admit(token_of(made), 1, BOOK, lease=request)

    await ask(40)  # Connected, and the script is known.
    proxy.cut_at = b"EVALSHA"
    outcomes = await asyncio.gather(*map(ask, range(40)), return_exceptions=True)
    lost = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    assert all(isinstance(outcome, OutcomeUnknown) for outcome in lost)
    assert lost
    if not leased:
        assert (await store.charge("org_1", Peek(WINDOWS))).used[0] == 41
    await store.close()


def test_d33_a_call_that_is_not_repeatable_is_sent_once(proxied: tuple[Proxy, RedisStore]) -> None:
    proxy, store = proxied
    run(store.charge("org_1", to_acquire("a job", "me", 1, 10**9)))
    run(store.charge("org_1", to_release("another", "me")))
    proxy.cut_at = b"EVALSHA"
    with store_fails(ConnectionError):
        run(store.charge("org_1", to_release("a job", "me")))
    assert leases_of(run(store.charge("org_1", TO_LIST)).slots) == ()


def test_connections_that_were_closed_meanwhile_are_no_failure(
    proxied: tuple[Proxy, RedisStore],
) -> None:
    proxy, store = proxied
    for _ in range(3):
        run(store.put_organization(Organization("org_1", "free")))
        proxy.drop_all()
        time.sleep(0.05)
    assert run(store.organization("org_1")) == Organization("org_1", "free")


# --- scripts ---------------------------------------------------------------------------------


def test_scripts_may_be_flushed_under_load() -> None:
    store = opened("single")
    done = threading.Event()

    def flush() -> None:
        with server("single").client() as client:
            while not done.wait(0.002):
                client.script_flush()

    flushing = threading.Thread(target=flush)
    flushing.start()
    try:
        at_once(4, lambda _: [run(store.charge("org_1", Hit(WINDOWS, 1))) for _ in range(150)])
    finally:
        done.set()
        flushing.join()
    assert used(store) == 600
    run(store.close())


def test_where_script_is_forbidden_scripts_are_sent_whole(own: RedisServer) -> None:
    with own.client() as client:
        client.execute_command("ACL", "SETUSER", "me", "on", ">pass", "~*", "+@all", "-script")
    store = RedisStore(f"redis://me:pass@127.0.0.1:{own.port}")
    assert run(store.charge("org_1", Hit(WINDOWS, 1))).used == (1, 1, 1)
    run(store.close())


def test_a_server_without_tls_is_not_spoken_to_where_tls_is_asked_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = RedisStore(f"rediss://127.0.0.1:{server('single').port}?socket_timeout=0.3")
    with store_fails(RedisError):
        run(store.charge("org_1", Hit(WINDOWS, 1)))
    assert "that it speaks TLS if the URL says rediss" in caplog.text
    run(store.close())


# --- the server goes and comes ---------------------------------------------------------------


def test_a_server_that_loads_is_waited_for() -> None:
    with redis_server() as slow:
        store = RedisStore(slow.url())
        run(store.charge("org_1", Hit(WINDOWS, 1)))
        with slow.client() as client:
            # It answers each time that it has read 2 MiB.
            client.mset({f"key {number}": os.urandom(200_000) for number in range(80)})
            client.save()
        slow.stop(signal.SIGKILL)
        slow.options += ["--key-load-delay", "100000"]
        loading = threading.Thread(target=slow.start)
        loading.start()
        seen: list[BaseException | None] = []

        def hit() -> None:
            try:
                run(store.charge("org_1", Hit(WINDOWS, 1)))
            except StoreError as failure:
                seen.append(failure.__cause__)
                raise

        eventually(hit, StoreError)
        loading.join()
        assert any(isinstance(cause, BusyLoadingError) for cause in seen)
        assert used(store) == 2
        run(store.close())


# --- ids and handles -------------------------------------------------------------------------


@pytest.mark.campaign
@pytest.mark.parametrize("kind", ["single", "cluster"])
async def test_w8_ten_thousand_organizations_with_hostile_ids(kind: str) -> None:
    store = opened(kind)
    ids = [f"{number}{hostile[-100:]}" for number in range(500) for hostile in HOSTILE]
    for start in range(0, len(ids), 500):
        part = ids[start : start + 500]
        await asyncio.gather(*(store.charge(id, Hit(WINDOWS, 1 + len(id) % 7)) for id in part))
    for start in range(0, len(ids), 500):
        part = ids[start : start + 500]
        readings = await asyncio.gather(*(store.charge(id, Peek(WINDOWS)) for id in part))
        assert [reading.used[0] for reading in readings] == [1 + len(id) % 7 for id in part]
    await store.close()


def test_a_handle_that_was_claimed_for_a_key_that_never_came_can_be_had_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A key of another system has the handle that it has: it could never be taken in."""
    store = opened("single")
    first, second = draft_of(new_key()), draft_of(new_key(), "org_2")._replace(handle="~same")
    first = first._replace(handle="~same")
    ask, now = store._ask, store.now

    async def lost(call: Call, *_: object) -> object:
        if call.script is not None:  # It inserts the key.
            raise StoreError("as if the server had gone after the claim")
        return await ask(call)

    monkeypatch.setattr(store, "_ask", lost)
    with pytest.raises(StoreError):
        run(store.insert(first, None))
    monkeypatch.undo()
    with pytest.raises(HandleTaken):
        run(store.insert(second, None))  # It may come yet.

    async def later() -> int:
        return await now() + MINUTE

    monkeypatch.setattr(store, "now", later)
    key = run(store.insert(second, None))
    assert run(store.find("~same")) == key
    for again in (first, second):
        with pytest.raises(HandleTaken):
            run(store.insert(again, None))
    assert run(store.find("~same")) == key
    run(store.close())


def test_index_entries_of_a_half_done_registration_hide_no_account(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The index has entries without a record: pages still have the requested length."""
    store = opened("single")
    ask = store._ask

    async def dies(call: Call, organization: str | None = None) -> object:
        if _COMMIT.by_digest in call.text:
            raise StoreError("as if the process had died here")
        return await ask(call, organization)

    monkeypatch.setattr(store, "_ask", dies)
    for number in range(5):
        half = draft_of(new_key(), f"org_a{number}")
        with pytest.raises(StoreError):
            run(store.register(account(f"org_a{number}"), half, NOW + number))
    monkeypatch.undo()
    for number in range(3):
        whole = draft_of(new_key(), f"org_b{number}")
        run(store.register(account(f"org_b{number}"), whole, NOW + 10_000 * number))
    for _ in range(2):  # The second time those in vain are out of the index.
        found = run(store.unclaimed_by_email("ada@example.com", 2))
        assert [one.organization for one in found] == ["org_b0", "org_b1"]
    assert run(store.remove_unclaimed(0, 100, NOW + MINUTE)) == ("org_b0", "org_b1", "org_b2")
    run(store.close())
