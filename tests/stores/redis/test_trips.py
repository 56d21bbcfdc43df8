"""How often Redis is asked: once for an admission, as often for no key as for a wrong one (K10)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from lockgate import Plan, PlanBook, run
from lockgate.core.ledger import Hit
from lockgate.core.plans import CREATOR, Organization
from lockgate.core.timestamps import MINUTE, SECOND
from lockgate.events import Events
from lockgate.stores.answers import Verdict
from lockgate.stores.redis import RedisStore
from lockgate.stores.redis.transport.commands import request_ids
from lockgate.stores.resilience.store import ResilientStore
from tests.servers import RedisServer, redis_server

from ..making import BOOK, NOW, account, draft_of, new_key, token_of

WIDE = PlanBook([Plan("free", rpm=None, rph=None, rpd=None, concurrent=None)])


@pytest.fixture(scope="module")
def quiet() -> Iterator[RedisServer]:
    """A server without other clients."""
    with redis_server() as running:
        yield running


@pytest.fixture
def trips(quiet: RedisServer) -> Iterator[Callable[[Callable[[], object]], int]]:
    """Counts round trips by the server's reads."""
    with quiet.client() as client:

        def reads() -> int:
            info: Any = client.info("stats")
            return int(info["total_reads_processed"])

        def count(work: Callable[[], object]) -> int:
            before = reads()
            work()
            return reads() - before - 1  # One is the question itself.

        yield count


Trips = Callable[[Callable[[], object]], int]


def test_an_admission_is_one_round_trip_and_the_first_one_three(
    quiet: RedisServer, trips: Trips
) -> None:
    store, made = RedisStore(quiet.url(), prefix="steady"), new_key()
    run(store.insert(draft_of(made), None))
    run(store.admit(token_of(made), 1, WIDE))  # Connected, and the script is known.
    assert trips(lambda: run(store.admit(token_of(made), 1, WIDE))) == 1
    other = new_key()
    run(store.insert(draft_of(other), None))
    assert trips(lambda: run(store.admit(token_of(other), 1, WIDE))) == 3
    run(store.put_organization(Organization("org_1", "free")))
    assert trips(lambda: run(store.admit(token_of(made), 1, WIDE))) == 2
    assert trips(lambda: run(store.admit(token_of(made), 1, WIDE))) == 1
    run(store.close())


def test_a_revocation_is_three_round_trips_which_carry_its_recall(
    quiet: RedisServer, trips: Trips
) -> None:
    store = RedisStore(quiet.url(), prefix="revoked")
    keys = [run(store.insert(draft_of(new_key()), None)) for _ in range(2)]
    run(store.revoke_if_live("org_1", keys[0].id))  # Connected, and the scripts are known.
    assert trips(lambda: run(store.revoke_if_live("org_1", keys[1].id))) == 3

    with quiet.client() as client:
        assert client.xlen(store._names.recalls) == 2
    run(store.close())


def test_a_gate_revokes_in_three_round_trips_where_no_lease_is_out(
    quiet: RedisServer, trips: Trips
) -> None:
    store = RedisStore(quiet.url(), prefix="unleased")
    resilient = ResilientStore(store, Events(None))
    keys = [run(store.insert(draft_of(new_key()), None)) for _ in range(2)]
    run(resilient.revoke_if_live("org_1", keys[0].id))  # Connected, and the scripts are known.
    assert trips(lambda: run(resilient.revoke_if_live("org_1", keys[1].id))) == 3
    run(resilient.put_organization(Organization("org_1", "free")))
    assert trips(lambda: run(resilient.put_organization(Organization("org_1", "starter")))) == 3
    run(store.close())


def test_a_change_of_a_key_that_its_caller_has_read_is_two_round_trips(
    quiet: RedisServer, trips: Trips
) -> None:
    store = RedisStore(quiet.url(), prefix="updated")
    key = run(store.insert(draft_of(new_key()), None))
    assert run(store.update_if(key, key._replace(name="1")))  # The scripts are known.
    for number in (1, 2):
        old, new = (key._replace(name=f"{number + more}") for more in (0, 1))
        assert trips(partial(run, store.update_if(old, new))) == 2
    rotated, successor = key._replace(name="4"), draft_of(new_key())
    old = key._replace(name="3")
    assert trips(lambda: run(store.rotate_if(old, rotated, successor, 9))) == 4
    run(store.close())


def test_more_keys_than_hints_cost_a_few_misses_and_no_cliff(
    quiet: RedisServer, trips: Trips, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenth more keys than hints, all of them used in turn."""
    monkeypatch.setattr("lockgate.stores.redis.store.AT_MOST", 500)
    store, made = RedisStore(quiet.url(), prefix="many"), [new_key() for _ in range(550)]
    for key in made:
        run(store.insert(draft_of(key), None))

    def turns() -> None:
        for _ in range(4):
            for key in made:
                assert run(store.admit(token_of(key), 1, WIDE)).verdict is Verdict.ADMITTED

    turns()
    assert trips(turns) < 2 * 4 * len(made)
    assert len(store._key_hints) == 500
    run(store.close())


def test_a_hit_that_joins_a_cell_reads_no_cells_and_writes_none(quiet: RedisServer) -> None:
    store, windows = RedisStore(quiet.url(), prefix="joins"), CREATOR.windows
    for number in range(80):  # From the 64th cell on, neighbours share one.
        run(store.charge("org_1", Hit(windows, 1), NOW + number * MINUTE))
    store_at = NOW + 79 * MINUTE
    run(store.charge("org_2", Hit(windows, 1), store_at))
    with quiet.client() as client:

        def asked(work: Callable[[], object]) -> dict[str, int]:
            client.config_resetstat()
            work()
            info: Any = client.info("commandstats")
            calls = {name.removeprefix("cmdstat_"): each["calls"] for name, each in info.items()}
            return {name: calls[name] for name in calls if "range" in name or name == "set"}

        joins = asked(lambda: run(store.charge("org_2", Hit(windows, 1), store_at)))
        opens = asked(lambda: run(store.charge("org_1", Hit(windows, 1), store_at + SECOND)))
    assert joins == {"getrange": 1, "setrange": 1}
    assert opens == {"getrange": 2, "set": 1}
    run(store.close())


def test_k10_no_key_and_a_wrong_secret_cost_alike(quiet: RedisServer, trips: Trips) -> None:
    store, made, seen = RedisStore(quiet.url(), prefix="k10"), new_key(), new_key()
    run(store.insert(draft_of(made)._replace(digest=b"\1" * 32), None))
    run(store.insert(draft_of(seen), None))
    run(store.admit(token_of(seen), 1, BOOK))
    forged = draft_of(new_key())._replace(handle=seen.handle)
    wrong = token_of(seen)
    wrong._secret = forged.digest
    tokens = {
        "no such handle": token_of(new_key()),
        "a wrong secret": token_of(made),
        "a wrong secret of a key that is remembered": wrong,
    }
    costs = {name: trips(partial(check, store, token)) for name, token in tokens.items()}
    assert set(costs.values()) == {2}, costs
    run(store.close())


def check(store: RedisStore, token: Any) -> None:
    assert run(store.admit(token, 1, BOOK)).verdict is Verdict.UNKNOWN


def test_calls_of_one_turn_share_a_pipeline(quiet: RedisServer) -> None:
    store = RedisStore(quiet.url(), prefix="turn")

    async def many() -> int:
        windows = WIDE.default.windows
        await store.charge("org_1", Hit(windows, 1))
        before = reads(quiet)
        await asyncio.gather(*(store.charge(f"org_{n}", Hit(windows, 1)) for n in range(50)))
        after = reads(quiet)
        await store.close()
        return after - before

    # Fifty calls are more bytes than the server reads at once, and counting asks as well.
    assert asyncio.run(many()) <= 8
    run(store.close())


def test_request_ids_differ_after_a_fork() -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, request_ids.next().to_bytes(8))
        os._exit(0)
    os.waitpid(child, 0)
    theirs = int.from_bytes(os.read(reading, 8))
    os.close(reading)
    os.close(writing)
    ours = request_ids.next()
    assert abs(theirs - ours) > 1_000_000
    assert ours != request_ids.next()


def test_the_accounts_of_an_address_share_round_trips(quiet: RedisServer) -> None:
    """Strangers may register with an e-mail every day: its owner must still find the accounts."""
    store = RedisStore(quiet.url(), prefix="accounts")

    async def many() -> int:
        for number in range(50):
            await store.register(account(f"org_{number}"), draft_of(new_key(), f"org_{number}"))
        before = reads(quiet)
        found = await store.unclaimed_by_email("ada@example.com", 50)
        after = reads(quiet)
        await store.close()
        assert len(found) == 50
        return after - before

    assert asyncio.run(many()) < 25  # Counting asks as well, and a server may read one by halves.


def reads(server: RedisServer) -> int:
    with server.client() as client:
        info: Any = client.info("stats")
        return int(info["total_reads_processed"])
