"""Usage in Redis: one call for the keys of an organization, counted once when it is repeated."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from struct import pack, unpack

import pytest

from lockgate import Plan, PlanBook, run
from lockgate.core.api_keys import ApiKey
from lockgate.core.timestamps import DAY
from lockgate.core.usage_history import UsageHistory
from lockgate.core.usage_marks import KEPT_DAYS, MARKS_AT_MOST
from lockgate.stores.answers import HistoryOwner, Usage, UsageBatch
from lockgate.stores.redis import RedisStore
from tests.servers import RedisServer, redis_server

from ..making import NOW, draft_of, new_key, token_of
from ..proxy import Proxy
from .backends import opened, server

WIDE = PlanBook([Plan("free", rpm=None, rph=None, rpd=None, concurrent=None)])
WRITER = "0123456789abcdef"


@pytest.fixture(scope="module")
def quiet() -> Iterator[RedisServer]:
    """A server without other clients."""
    with redis_server() as running:
        yield running


async def keys_in(store: RedisStore, organizations: int, each: int) -> list[ApiKey]:
    return [
        await store.insert(draft_of(new_key(), f"org_{number}"), None, NOW)
        for number in range(organizations)
        for _ in range(each)
    ]


def usage_of(keys: list[ApiKey], requests: int = 1) -> dict[str, Usage]:
    return {key.handle: Usage(requests, NOW) for key in keys}


def trips(quiet: RedisServer, work: Callable[[], object]) -> int:
    """Return the number of scripts, and of commands that are no part of one."""
    with quiet.client() as client:
        client.config_resetstat()
        work()
        stats = client.info("commandstats")
        return sum(
            int(stats.get(f"cmdstat_{n}", {"calls": 0})["calls"]) for n in ("evalsha", "mget")
        )


def test_a_thousand_keys_are_one_script_each_organization_and_one_question_K7(
    quiet: RedisServer,
) -> None:
    store = RedisStore(quiet.url(), prefix="many")
    made = [new_key() for _ in range(300)]
    keys = [
        run(store.insert(draft_of(one, f"org_{n % 3}"), None, NOW)) for n, one in enumerate(made)
    ]
    run(store.add_usage(usage_of(keys)))  # The script is known.
    assert trips(quiet, lambda: run(store.add_usage(usage_of(keys)))) == 1 + 3
    for one in made:  # With a hint of each key there is no question.
        run(store.admit(token_of(one), 1, WIDE, NOW))
    assert trips(quiet, lambda: run(store.add_usage(usage_of(keys)))) == 3
    found = [run(store.find(key.handle)) for key in keys]
    assert {key and key.request_count for key in found} == {4}
    run(store.close())


@pytest.mark.parametrize("kind", ["single", "cluster"])
async def test_the_organizations_of_a_batch_are_written_together_and_once_D33(kind: str) -> None:
    store = opened(kind)
    keys = await keys_in(store, 40, 3)
    for number in (1, 2):
        for _ in range(2):
            await asyncio.gather(
                *(store.add_usage(usage_of(keys), UsageBatch(WRITER, number)) for _ in range(3))
            )
    found = [await store.find(key.handle) for key in keys]
    assert {key and key.request_count for key in found} == {2}
    await store.close()


@pytest.mark.parametrize("is_awaited", [False, True])
def test_a_batch_whose_reply_is_lost_counts_once_K7_D33(*, is_awaited: bool) -> None:
    async def usage(port: int) -> list[int]:
        store = opened("single", f"redis://127.0.0.1:{port}")
        keys = await keys_in(store, 2, 2)
        batch = UsageBatch(WRITER, 1)
        proxy.cut_at = WRITER.encode()
        await store.add_usage(usage_of(keys, 3), batch)
        await store.add_usage(usage_of(keys, 3), UsageBatch(WRITER, 1))
        history, owner = UsageHistory(), HistoryOwner("org_1", None)
        history.admit(NOW, 7)
        proxy.cut_at = WRITER.encode()
        await store.add_history({owner: history}, batch)
        await store.add_history({owner: history}, UsageBatch(WRITER, 1))
        counts = [(await store.get(key.organization, key.id)) for key in keys]
        units = sum(cell.admitted for cell in (await store.history(owner)).cells("day", NOW))
        await store.close()
        return [*(key.request_count for key in counts if key is not None), units]

    with Proxy(server("single").port) as proxy:
        flow = usage(proxy.port)
        assert (asyncio.run(flow) if is_awaited else run(flow)) == [3, 3, 3, 3, 7]
        assert proxy.cuts == 2


async def test_answered_organizations_are_left_out_of_a_repetition() -> None:
    """So a batch of many ends although each attempt has a deadline."""
    store = opened("single")
    keys = await keys_in(store, 3, 1)
    batch = UsageBatch(WRITER, 1, {"org_0", "org_2"})
    await store.add_usage(usage_of(keys), batch)
    counts = [key.request_count for key in [await store.find(k.handle) for k in keys] if key]
    assert counts == [0, 1, 0]
    assert batch.answered == {"org_0", "org_1", "org_2"}
    await store.close()


def test_marks_are_bounded_and_those_of_idle_writers_go_W10(quiet: RedisServer) -> None:
    store = RedisStore(quiet.url(), prefix="marks")
    (key,) = run(keys_in(store, 1, 1))
    name = store._names.place("org_0").organization
    with quiet.client() as client:
        assert not client.hexists(name, "marks")
        for number in range(MARKS_AT_MOST + 3):
            run(store.add_usage(usage_of([key]), UsageBatch(f"{number:016x}", 1)))
        kept = client.hget(name, "marks")
        assert isinstance(kept, bytes)
        assert len(kept) == 32 * MARKS_AT_MOST
        assert kept[:16] == b"%016x" % 3
        run(store.add_usage(usage_of([key]), UsageBatch(f"{3:016x}", 1)))
        assert client.hget(name, "marks") == kept
        # As if all but the last had been idle for longer than marks are kept.
        run(store.add_usage(usage_of([key]), UsageBatch(f"{3:016x}", 2)))
        kept = client.hget(name, "marks")
        assert isinstance(kept, bytes)
        client.hset(name, "marks", _aged(kept, -32))
        run(store.add_usage(usage_of([key]), UsageBatch(WRITER, 1)))
        left = client.hget(name, "marks")
        assert isinstance(left, bytes)
        assert [left[at : at + 16] for at in range(0, len(left), 32)] == [
            b"%016x" % 3,
            WRITER.encode(),
        ]
    found = run(store.find(key.handle))
    assert found is not None
    assert found.request_count == MARKS_AT_MOST + 5
    run(store.close())


def _aged(marks: bytes, end: int) -> bytes:
    """Return marks of which those before ``end`` are as old as marks may be."""
    old: list[bytes] = []
    for at in range(0, len(marks[:end]), 32):
        writer, number, instant = unpack("<16sdd", marks[at : at + 32])
        old.append(pack("<16sdd", writer, number, instant - KEPT_DAYS * DAY))
    return b"".join(old) + marks[end:]


def test_an_organization_without_the_keys_gets_no_mark_W10(quiet: RedisServer) -> None:
    store = RedisStore(quiet.url(), prefix="none")
    (key,) = run(keys_in(store, 1, 1))
    run(store.revoke_if_live(key.organization, key.id, NOW))
    step = run(store.remove_ended(DAY, NOW + 2 * DAY))
    while step.cursor is not None:
        step = run(store.remove_ended(DAY, NOW + 2 * DAY, step.cursor))
    run(
        store.add_usage(
            {key.handle: Usage(1, NOW), "nowhere1": Usage(1, NOW)}, UsageBatch(WRITER, 1)
        )
    )
    with quiet.client() as client:
        name = store._names.place("org_0").organization
        assert not client.hexists(name, "marks")
        assert 0 < client.pttl(name) <= 60_000
    run(store.close())
