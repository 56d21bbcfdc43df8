"""Recalls of quota leases, from one store to another."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from redis import Redis

from lockgate import Plan, PlanBook
from lockgate.core.ledger import Action, HitLeased, LeasesOut, settling
from lockgate.core.plans import Organization
from lockgate.core.quota_leases import LONGEST, LeaseRequest, Settlement
from lockgate.core.timestamps import SECOND
from lockgate.events import Events
from lockgate.stores.answers import StoreError, UnreadableState, Verdict
from lockgate.stores.leasing import LeasingStore
from lockgate.stores.redis import RedisStore
from lockgate.stores.redis.key_names import slot_of
from lockgate.stores.redis.recalls import _KEPT
from lockgate.stores.redis.transport.commands import command
from lockgate.stores.resilience.older_leases import noted_leases
from lockgate.stores.resilience.store import ResilientStore
from lockgate.stores.runtime.background import BackgroundTask
from lockgate.sync import run
from tests.stores.forking import AT_FORK, in_a_child
from tests.stores.making import account, draft_of, new_key, token_of
from tests.stores.proxy import Proxy

from .backends import opened, server

A = TypeVar("A")

PLANS = PlanBook((Plan("free", 600_000, None, None, 5),))
ODD = ["org_1", "", " ", "\0", "\ud800", "é" * 100, "a\r\nb", "{x}", "$"]
KINDS = "single", "cluster", "sentinel"
_PATIENCE = 20


def other(store: RedisStore, kind: str) -> RedisStore:
    return RedisStore(server(kind).url(), prefix=store._names._prefix.decode())


async def received(store: RedisStore, sender: RedisStore, ids: list[str]) -> list[str]:
    """What a listener receives of some recalls, and of those before; the last is repeated."""
    heard: list[str] = []
    sent = asyncio.Event()

    async def listen() -> None:
        async for organization in store.recalls():
            if organization == ids[-1] and sent.is_set():
                return
            if organization not in (None, ids[-1]):
                heard.append(organization)

    listening = asyncio.create_task(listen())
    async with asyncio.timeout(_PATIENCE):
        for id in ids[:-1]:
            await sender.organization_changed(id)
        sent.set()
        while not listening.done():
            await sender.organization_changed(ids[-1])
            await asyncio.sleep(0.01)
        await listening
    return heard


async def received_by(store: RedisStore, ids: list[str]) -> list[str]:
    """What a listener receives that is alone."""
    try:
        return await received(store, store, ids)
    finally:
        await store.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_recalls_of_another_process_arrive_in_order(kind: str) -> None:
    sender = opened(kind)
    store = other(sender, kind)
    assert await received(store, sender, [*ODD, "last"]) == ODD
    await store.close()
    await sender.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_listener_receives_the_recalls_of_the_longest_lease_before(kind: str) -> None:
    store = opened(kind)
    name = store._names.recalls
    for id in (b"1-1", b"2-1"):
        await store._ask(command(slot_of(name), b"XADD", name, id, b"organization", b"long ago"))
    await store.organization_changed("org_1")
    recalls = store.recalls()
    async with asyncio.timeout(_PATIENCE):
        assert await anext(recalls) == "org_1"
    await recalls.aclose()
    await store.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_thread_receives_recalls_until_its_store_is_closed(kind: str) -> None:
    sender = opened(kind)
    store = other(sender, kind)
    heard: queue.Queue[str | Exception | None] = queue.Queue()

    async def listen() -> None:
        try:
            async for organization in store.recalls():
                heard.put(organization)
        except StoreError as failure:
            heard.put(failure)

    thread = threading.Thread(target=lambda: run(listen()))
    thread.start()
    while heard.empty():
        run(sender.organization_changed("org_1"))
        time.sleep(0.01)
    assert heard.get() == "org_1"
    run(store.close())
    thread.join(_PATIENCE)
    assert not thread.is_alive()
    assert isinstance([*heard.queue][-1], StoreError)
    run(sender.close())


CHANGES: dict[str, Callable[[RedisStore, Any], Any]] = {
    "revoke_if_live": lambda store, key: store.revoke_if_live("org_1", key.id),
    "update_if": lambda store, key: store.update_if(key, key._replace(name="other")),
    "rotate_if": lambda store, key: store.rotate_if(
        key, key._replace(name="other"), draft_of(new_key()), None
    ),
    "put_organization": lambda store, _: store.put_organization(Organization("org_1", "free")),
    "organization_changed": lambda store, _: store.organization_changed("org_1"),
    "claim_if_unclaimed": lambda store, _: store.claim_if_unclaimed(
        "org_1", "user", revoke=True, keep_token=False
    ),
    "forget": lambda store, _: store.forget("org_1"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_k4_a_change_sends_one_recall_and_notes_the_leases_that_were_out_at_it(kind: str) -> None:
    for verb, change in CHANGES.items():
        store, made = opened(kind), new_key()
        _, key = run(store.register(account("org_1"), draft_of(made)))
        request = LeaseRequest("0" * 16, 10, LONGEST)
        lease = run(store.admit(token_of(made), 1, PLANS, lease=request)).lease
        assert lease is not None
        with noted_leases() as noted:
            run(change(store, key))
        assert verb == "organization_changed" or set(noted) == {(lease,)}, verb
        call = command(slot_of(store._names.recalls), b"XRANGE", store._names.recalls, b"-", b"+")
        assert [fields[1] for _, fields in run(store._ask(call))] == [b"org_1"], verb
        run(store.charge("org_1", settling(PLANS.default.windows, [Settlement(lease.id, ())])))
        with noted_leases() as noted:
            run(store.put_organization(Organization("org_1", "free")))
        assert noted == [()]
        run(store.close())


def test_a_key_is_revoked_although_the_leases_cannot_be_read() -> None:
    store = opened("single")
    key = run(store.insert(draft_of(new_key()), None))
    place, before = store._names.place("org_1"), run(store.change_counter())
    run(store._ask(command(place.slot, b"SADD", place.windows, b"spoiled")))
    with noted_leases(), pytest.raises(UnreadableState):
        run(store.revoke_if_live("org_1", key.id))
    found = run(store.get("org_1", key.id))
    assert found is not None
    assert found.revoked_at is not None
    assert run(store.change_counter()) != before
    run(store.close())


def test_a_change_needs_no_right_to_send_recalls(caplog: pytest.LogCaptureFixture) -> None:
    store = opened("single")
    key = run(store.insert(draft_of(new_key()), None))
    with Redis.from_url(server("single").url()) as client:
        client.acl_setuser(
            "mute", enabled=True, passwords=["+password"], keys=["*"], commands=["+@all", "-xadd"]
        )
        try:
            url = f"redis://mute:password@127.0.0.1:{server('single').port}"
            mute = RedisStore(url, prefix=store._names._prefix.decode())
            revoked = run(mute.revoke_if_live("org_1", key.id))
            assert revoked is not None
            assert revoked.revoked_at is not None
            assert client.xlen(store._names.recalls) == 0
            run(mute.close())
        finally:
            client.acl_deluser("mute")
    assert caplog.messages == []
    run(store.close())


def test_a_stream_keeps_few_recalls() -> None:
    store = opened("single")
    for number in range(1000):
        run(store.organization_changed(f"org_{number}"))
    with Redis.from_url(server("single").url()) as client:
        assert int(_KEPT) <= client.xlen(store._names.recalls) <= 2 * int(_KEPT)
    run(store.close())


async def test_a_lost_connection_is_a_failure_of_the_store() -> None:
    sender = opened("single")
    with Proxy(server("single").port) as proxy:
        url = f"redis://127.0.0.1:{proxy.port}"
        store = RedisStore(url, prefix=sender._names._prefix.decode())
        recalls = store.recalls()
        waiting = asyncio.create_task(anext(recalls))
        async with asyncio.timeout(_PATIENCE):
            while not waiting.done():
                await sender.organization_changed("org_1")
                await asyncio.sleep(0.01)
            waiting = asyncio.create_task(anext(recalls))
            # Several recalls may have come at once: until it has had all, the call does not block.
            with Redis(port=server("single").port) as asked:
                while not asked.info("clients")["blocked_clients"]:
                    await asyncio.sleep(0.01)
                    if waiting.done():
                        waiting = asyncio.create_task(anext(recalls))
            proxy.drop_all()
            with pytest.raises(StoreError):
                await waiting
        assert (await received(store, sender, ["org_2", "last"]))[-1] == "org_2"
        await store.close()
    await sender.close()


@AT_FORK
def test_a_child_process_receives_recalls_on_a_connection_of_its_own() -> None:
    store = opened("single")

    def child() -> bytes:
        return b"".join(id.encode() for id in asyncio.run(received_by(store, ["a", "last"])))

    run(store.organization_changed("org_1"))
    assert in_a_child(child).endswith(b"a")  # The first recall may be too old on a busy machine.
    assert asyncio.run(received_by(store, ["b", "end"]))[-1] == "b"


@pytest.mark.parametrize("kind", KINDS)
async def test_a_revocation_has_an_idle_process_settle_its_lease(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No request settles it, and no timer."""
    monkeypatch.setattr(BackgroundTask, "used", lambda _: None)
    revoking = ResilientStore(opened(kind), Events(None), deadline=_PATIENCE)
    inner = revoking.inner
    assert isinstance(inner, RedisStore)
    settled = asyncio.Event()

    class Watched(RedisStore):
        async def charge(self, owner: str, action: Action[A], now: int | None = None) -> A:
            asked: object = action
            answer = await super().charge(owner, action, now)
            if isinstance(asked, HitLeased) and not asked.cost:
                settled.set()
            return answer

    watched = Watched(server(kind).url(), prefix=inner._names._prefix.decode())
    holder = LeasingStore(
        ResilientStore(watched, Events(None), deadline=_PATIENCE), LONGEST / SECOND
    )
    made = new_key()
    key = await inner.insert(draft_of(made), None)
    async with asyncio.timeout(_PATIENCE):
        while holder._recalls._listening is None:
            await holder.admit(token_of(made), 1, PLANS)
        await inner.organization_changed("org_1")  # Until it listens.
        while not settled.is_set():
            await inner.organization_changed("org_1")
            await asyncio.sleep(0.01)
        while not await inner.charge("org_1", LeasesOut()):
            await holder.admit(token_of(made), 1, PLANS)
        settled.clear()
        await revoking.revoke_if_live("org_1", key.id)
        await settled.wait()
    assert await inner.charge("org_1", LeasesOut()) == ()
    assert (await holder.admit(token_of(made), 1, PLANS)).verdict is Verdict.REVOKED
    await holder.close()
    await revoking.close()
