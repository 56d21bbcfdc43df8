"""Keys in a database, admissions in Redis: each in front of real servers of both."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from math import inf
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from starlette.applications import Starlette

from lockgate import ConfigurationError, Event, Gate, Plan, PlanBook, open_store, run
from lockgate.asgi import GateMiddleware
from lockgate.core.api_keys import ApiKey, KeyDetails
from lockgate.core.digests import Digest
from lockgate.core.key_format import NewKey
from lockgate.core.ledger import Hit, LeasesOut, Peek
from lockgate.core.plans import Organization
from lockgate.core.quota_leases import LONGEST, LeaseRequest, Settlement, out
from lockgate.core.timestamps import DAY
from lockgate.errors import (
    ChangeCommitted,
    HandleTaken,
    KeyNotFound,
    KeyRevoked,
    RateLimitExceeded,
    StoreUnavailable,
)
from lockgate.events import Events
from lockgate.options import StoreOptions
from lockgate.stores.answers import OutcomeUnknown, StoreError, Verdict
from lockgate.stores.cached.store import CachedStore
from lockgate.stores.committed import collecting
from lockgate.stores.redis import RedisStore
from lockgate.stores.redis.codec import write_record
from lockgate.stores.redis.key_names import fields_of
from lockgate.stores.redis.transport.commands import command
from lockgate.stores.resilience.local_limits import LocalLimits
from lockgate.stores.rows import Commit, Outcome
from lockgate.stores.runtime import background
from lockgate.stores.sql import SqlStore
from tests.patience import SHORT, answered, until
from tests.servers import redis_server

from ..conftest import SOON
from ..forking import AT_FORK, in_a_child
from ..making import BOOK, NOW, account, at_once, draft_of, new_key, token_of

NEVER = 600.0
"""Seconds: for the background work of a test that goes by what was written so far."""
WIDE = PlanBook([Plan("free", 10_000, None, None, 1), Plan("small", 3, None, None, 1)])
_numbers = count()


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with redis_server() as running:
        yield running


class Bench:
    """Processes that share a database and a Redis, each with separate store objects."""

    def __init__(self, server: Any, folder: Any) -> None:
        self.server = server
        self.number = next(_numbers)
        self.database = f"sqlite:///{folder}/keys{self.number}.db?mode=rwc"
        self.processes: list[CachedStore] = []
        self.here, self.there = self.process(), self.process()
        self.made = new_key()
        self.key = run(self.here.insert(draft_of(self.made), None))

    def cache(self) -> RedisStore:
        return RedisStore(self.server.url(), prefix=f"pair{self.number}")

    def process(self) -> CachedStore:
        self.processes.append(CachedStore(SqlStore(self.database), self.cache()))
        return self.processes[-1]

    def admit(self, process: CachedStore | None = None) -> Verdict:
        return run((process or self.here).admit(token_of(self.made), 1, WIDE)).verdict


@pytest.fixture
def bench(server: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Processes that compare and write usage only when the test says so."""
    monkeypatch.setattr(background, "EVERY", NEVER)
    found = Bench(server, tmp_path)
    yield found
    for process in found.processes:
        run(process.close())


def test_a_key_is_copied_when_it_is_first_seen_and_then_the_database_rests(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bench.admit() is Verdict.ADMITTED

    async def resting(*_: object) -> None:
        pytest.fail("the database was asked")

    monkeypatch.setattr(bench.here.primary, "read", resting)
    for _ in range(5):
        assert bench.admit() is Verdict.ADMITTED
    assert run(bench.here.charge("org_1", Peek(WIDE.default.windows))).used[0] == 6


def test_k4_a_revoked_key_is_accepted_nowhere_once_that_is_answered(bench: Bench) -> None:
    for process in bench.processes:
        assert bench.admit(process) is Verdict.ADMITTED
    run(bench.there.revoke_if_live("org_1", bench.key.id))
    for process in (*bench.processes, bench.process()):
        assert bench.admit(process) is Verdict.REVOKED


def test_d42_the_first_admission_of_a_key_settles_a_lease_and_gets_one(bench: Bench) -> None:
    other = new_key()
    run(bench.here.insert(draft_of(other), None))
    first, second = "0" * 16, "1" * 16
    asked = LeaseRequest(first, 10, LONGEST)
    assert run(bench.here.admit(token_of(bench.made), 1, WIDE, lease=asked)).lease is not None
    asked = LeaseRequest(second, 10, LONGEST, (Settlement(first, ()),))
    assert run(bench.here.admit(token_of(other), 1, WIDE, lease=asked)).lease is not None
    assert [lease.id for lease in run(bench.here.charge("org_1", LeasesOut()))] == [second]


@pytest.mark.parametrize("change", ["revocation", "plan"])
def test_k4_a_change_is_answered_once_the_leases_that_the_cache_granted_before_have_ended(
    bench: Bench, change: str
) -> None:
    bench.admit()
    asked = LeaseRequest("0" * 16, 10, LONGEST)
    admission = run(bench.here.admit(token_of(bench.made), 1, WIDE, lease=asked))
    assert admission.lease is not None
    process = bench.there.resilient(Events(None), LocalLimits("local", 1, Events(None)), 10)
    bench.processes.append(process)
    if change == "revocation":
        run(process.revoke_if_live("org_1", bench.key.id))
    else:
        run(process.put_organization(Organization("org_1", "free")))
    assert out(run(bench.here.charge("org_1", LeasesOut()))) == ()


def test_d43_an_update_and_a_rotation_reach_the_copies_before_they_are_answered(
    bench: Bench,
) -> None:
    key = bench.key

    def see() -> set[tuple[str, ...]]:
        admissions = [
            run(process.admit(token_of(bench.made), 1, WIDE))
            for process in (*bench.processes, bench.process())
        ]
        return {found.key.scopes for found in admissions if found.key is not None}

    assert see() == {("*",)}
    narrowed = key._replace(scopes=("jobs:read",))
    assert run(bench.there.update_if(key, narrowed))
    assert see() == {("jobs:read",)}
    next_ = new_key()
    rotated = narrowed._replace(
        expires_at=run(bench.here.now()) + DAY, details=KeyDetails(NOW, "its successor")
    )
    assert run(bench.there.rotate_if(narrowed, rotated, draft_of(next_), None)) is not None
    for process in bench.processes:
        admission = run(process.admit(token_of(bench.made), 1, WIDE))
        assert admission.key is not None
        assert admission.key.successor == "its successor"
        assert run(process.admit(token_of(next_), 1, WIDE)).verdict is Verdict.ADMITTED
    ended = rotated._replace(expires_at=run(bench.here.now()))
    assert run(bench.here.update_if(rotated, ended))
    for process in (*bench.processes, bench.process()):
        assert bench.admit(process) is Verdict.EXPIRED


@pytest.mark.parametrize(
    ("change", "before"),
    [("revocation", "fill_token"), ("revocation", "install"), ("removal", "install")],
)
def test_k5_a_fill_that_races_a_revocation_installs_nothing(
    bench: Bench, change: str, before: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, key = registered(bench)
    step = getattr(bench.here.cache, before)

    async def late(*arguments: Any) -> Any:
        if change == "removal":
            run(bench.there.remove_unclaimed(0, 9))
        else:
            run(bench.there.revoke_if_live("org_9", key.id))
        return await step(*arguments)

    monkeypatch.setattr(bench.here.cache, before, late)
    verdict = run(bench.here.admit(token_of(made), 1, WIDE)).verdict
    assert verdict is (Verdict.UNKNOWN if change == "removal" else Verdict.REVOKED)
    monkeypatch.undo()
    assert run(bench.cache().admit(token_of(made), 1, WIDE)).verdict is Verdict.UNKNOWN


def registered(bench: Bench) -> tuple[NewKey, ApiKey]:
    """A key of an account of its own, which was not used."""
    made = new_key()
    _, key = run(bench.here.register(account("org_9"), draft_of(made, "org_9")))
    return made, key


def test_k4_admissions_and_a_revocation_at_once(bench: Bench) -> None:
    answered: list[float] = []
    admitted: list[float] = []

    def work(index: int) -> None:
        if index == 0:
            patience = monotonic() + 30
            while not admitted and monotonic() < patience:
                sleep(0.01)
            run(bench.there.revoke_if_live("org_1", bench.key.id))
            answered.append(monotonic())
            return
        process = bench.processes[index % 2]
        while not answered or monotonic() < answered[0] + 0.1:
            started = monotonic()
            if bench.admit(process) is Verdict.ADMITTED:
                admitted.append(started)

    at_once(5, work)
    assert admitted
    assert max(admitted) <= answered[0]


def test_a_flushed_cache_refills_itself_and_lets_no_revoked_key_in(bench: Bench) -> None:
    import redis

    other = new_key()
    run(bench.here.insert(draft_of(other), None))
    assert bench.admit() is Verdict.ADMITTED
    run(bench.here.revoke_if_live("org_1", bench.key.id))
    with redis.Redis(port=bench.server.port) as client:
        client.flushall()
    assert bench.admit() is Verdict.REVOKED
    assert run(bench.here.admit(token_of(other), 1, WIDE)).verdict is Verdict.ADMITTED


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ("revocation", Verdict.REVOKED),
        ("update", Verdict.EXPIRED),
        ("removal", Verdict.UNKNOWN),
    ],
)
def test_k4_compare_forgets_copies_after_a_process_died_before_forget(
    bench: Bench, change: str, verdict: Verdict
) -> None:
    """Also when the cache lost writes, as at a failover to a lagging replica."""
    made, key = registered(bench)
    run(bench.here.compare())
    assert run(bench.here.admit(token_of(made), 1, WIDE)).verdict is Verdict.ADMITTED
    run(bench.here.write_usage())
    now, primary = run(bench.here.now()), bench.there.primary
    if change == "revocation":  # And no word to the cache.
        run(primary.revoke_if_live("org_9", key.id))
    elif change == "update":
        assert run(primary.update_if(key, key._replace(expires_at=now)))
    else:
        assert run(primary.remove_unclaimed(0, 9, now + 2)) == ("org_9",)
    assert run(bench.here.admit(token_of(made), 1, WIDE)).verdict is not Verdict.UNKNOWN
    run(bench.here.compare())
    assert run(bench.here.admit(token_of(made), 1, WIDE)).verdict is verdict


def test_k4_a_refusal_by_a_copy_that_is_being_voided_is_not_remembered(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database has revoked the key, the cache has not heard of it: the copy still decides."""
    now = 100.0
    events = Events(None)
    limits = LocalLimits("local", 1, events)
    process = bench.process().resilient(events, limits, 20.0, clock=lambda: now)
    run(bench.here.put_organization(Organization("org_1", "small")))

    def ask() -> Verdict:
        return run(process.admit(token_of(bench.made), 1, WIDE)).verdict

    assert [ask() for _ in range(4)] == [Verdict.ADMITTED] * 3 + [Verdict.LIMITED]
    forget = bench.here.cache.forget

    async def late(organization: str) -> None:
        nonlocal now
        now += 5  # The change counter is read again.
        assert ask() is Verdict.LIMITED
        await forget(organization)

    monkeypatch.setattr(bench.here.cache, "forget", late)
    run(bench.here.revoke_if_live("org_1", bench.key.id))
    now += 1  # Within a second (W13).
    assert ask() is Verdict.REVOKED


@pytest.fixture
def severed(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Processes whose Redis has been killed; a key of theirs was in use."""
    monkeypatch.setattr(background, "EVERY", NEVER)
    with redis_server() as mortal:
        found = Bench(mortal, tmp_path)
        assert found.admit() is Verdict.ADMITTED
        mortal.stop()
        yield found
        for process in found.processes:
            with suppress(StoreError, OSError):
                run(process.close())


def test_a_change_that_cannot_reach_the_cache_has_its_result_D52(severed: Bench) -> None:
    store, key = severed.here, severed.key
    named = key._replace(name="renamed")
    with pytest.raises(ChangeCommitted) as updated:
        run(store.update_if(key, named))
    assert updated.value.result is True
    next_ = draft_of(new_key())
    rotated = named._replace(expires_at=run(store.now()) + DAY, details=KeyDetails(NOW, next_.id))
    with pytest.raises(ChangeCommitted) as successor:
        run(store.rotate_if(named, rotated, next_, None))
    assert successor.value.result == run(store.get("org_1", next_.id))
    with pytest.raises(ChangeCommitted) as revoked:
        run(store.revoke_if_live("org_1", key.id))
    found = run(store.get("org_1", key.id))
    assert found is not None and found.revoked_at is not None
    assert revoked.value.result == found
    with pytest.raises(ChangeCommitted) as repeated:  # It changes nothing twice (D4).
        run(store.revoke_if_live("org_1", key.id))
    assert repeated.value.result == found
    with pytest.raises(ChangeCommitted):
        run(store.put_organization(Organization("org_1", "small")))
    assert run(store.organization("org_1")) == Organization("org_1", "small")


def test_a_failure_of_the_database_is_told_as_itself_beside_a_dead_cache_D52(
    severed: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object, **__: object) -> None:
        raise StoreError("the database")

    monkeypatch.setattr(severed.here.primary, "commit", away)
    with pytest.raises(StoreError, match="the database") as told:
        run(severed.here.revoke_if_live("org_1", severed.key.id))
    assert not isinstance(told.value, ChangeCommitted)


def test_a_change_whose_reply_is_lost_once_has_its_result_beside_a_dead_cache_D33_D52(
    severed: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, key, commit, made = severed.here, severed.key, severed.here.primary.commit, set[str]()

    async def lossy(one: Commit, now: int | None = None) -> Outcome:
        outcome = await commit(one, now)
        if one.id not in made:
            made.add(one.id)
            raise OutcomeUnknown
        return outcome

    monkeypatch.setattr(store.primary, "commit", lossy)
    next_ = draft_of(new_key())
    rotated = key._replace(expires_at=run(store.now()) + DAY, details=KeyDetails(NOW, next_.id))
    with pytest.raises(ChangeCommitted) as told:
        run(store.rotate_if(key, rotated, next_, None))
    assert told.value.result == run(store.get("org_1", next_.id))
    with collecting() as pending:
        revoked = run(store.revoke_if_live("org_1", key.id))
    assert revoked == run(store.get("org_1", key.id))
    assert pending
    assert len(made) == 2


def test_w13_plans_and_digests_reach_the_copies(bench: Bench) -> None:
    assert bench.admit() is Verdict.ADMITTED
    run(bench.there.put_organization(Organization("org_1", "small")))
    assert [bench.admit() for _ in range(3)].count(Verdict.LIMITED) == 1
    old = Digest(bench.key.scheme, bench.key.digest)
    assert run(bench.there.rehash_if(bench.key.handle, old, Digest("sha256", b"y" * 32)))
    assert bench.admit() is Verdict.UNKNOWN


def test_w13_a_copy_is_made_of_the_plan_that_the_database_has_and_no_remembered_one(
    bench: Bench,
) -> None:
    """A process that repeats refusals for a second fills the cache for an hour."""
    process = bench.process().resilient(Events(None), LocalLimits("local", 1, Events(None)), 20)
    bench.processes.append(process)
    run(bench.here.put_organization(Organization("org_1", "small")))
    windows, other = WIDE.plan("small", (), NOW).windows, new_key()
    run(bench.here.insert(draft_of(other), None))
    for _ in range(5):
        assert run(process.organization("org_1")) == Organization("org_1", "small")
        run(process.charge("org_1", Hit(windows, 1)))
    run(bench.there.put_organization(Organization("org_1", "free")))
    for asked in (process, bench.here):
        admission = run(asked.admit(token_of(other), 1, WIDE))
        assert admission.plan is not None
        assert admission.plan.name == "free"


def test_a_revocation_writes_no_usage_first(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.admit()

    async def write_usage(*_: object) -> None:
        pytest.fail("usage was written")

    monkeypatch.setattr(bench.here.primary, "add_usage", write_usage)
    revoked = run(bench.here.revoke_if_live("org_1", bench.key.id))
    assert revoked is not None and revoked.revoked_at is not None
    monkeypatch.undo()
    found = run(bench.here.get("org_1", bench.key.id))
    assert found is not None and found.request_count == 1


def test_a_wrong_secret_causes_no_fill_of_the_cache(bench: Bench) -> None:
    forged = bench.made._replace(text=new_key().text[:-43] + bench.made.text[-43:])
    stranger = token_of(new_key())
    assert run(bench.here.admit(stranger, 1, BOOK)).verdict is Verdict.UNKNOWN
    token = token_of(bench.made)
    token._secret = forged.text.encode()
    assert run(bench.here.admit(token, 1, BOOK)).verdict is Verdict.UNKNOWN
    assert run(bench.cache().find(bench.made.handle)) is None


def test_d45_a_key_that_is_removed_is_unknown_to_both(bench: Bench) -> None:
    made = new_key()
    short = run(bench.here.insert(draft_of(made, lifetime=1), None))
    for process in bench.processes:  # The cache has a copy, which says that it has expired.
        assert run(process.admit(token_of(made), 1, WIDE)).verdict is Verdict.EXPIRED
    assert run(bench.there.remove_ended(0)).removed == 1
    for process in (*bench.processes, bench.process()):
        assert run(process.admit(token_of(made), 1, WIDE)).verdict is Verdict.UNKNOWN
        assert run(process.get("org_1", short.id)) is None
        with pytest.raises(HandleTaken):
            run(process.insert(draft_of(made), None))
    assert run(bench.here.list("org_1", 100)) == run(bench.here.list_live("org_1", 100))


def test_d6_usage_is_written_within_a_second_and_before_a_read_here(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(5):
        bench.admit()
    (listed,) = run(bench.here.list("org_1", 100))
    assert listed.request_count == 5
    monkeypatch.setattr(background, "EVERY", 1.0)
    bench.admit(bench.there)

    def counted() -> bool:
        found = run(bench.here.primary.find(bench.made.handle))
        return found is not None and found.request_count == 6 and found.last_used_at is not None

    until(counted)


def test_k4_copies_are_voided_although_others_cannot_be(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget = bench.here.cache.forget

    async def forget_one(organization: str) -> None:
        if organization == "org_0":
            raise StoreError("no answer")
        await forget(organization)

    monkeypatch.setattr(bench.here.cache, "forget", forget_one)
    assert bench.admit() is Verdict.ADMITTED
    run(bench.there.primary.put_organization(Organization("org_0", "small")))
    run(bench.there.primary.revoke_if_live("org_1", bench.key.id))
    with pytest.raises(StoreError):
        run(bench.here.compare())
    assert bench.admit() is Verdict.REVOKED


async def test_d6_usage_is_written_in_an_event_loop_and_at_close(
    server: Any, tmp_path: Any
) -> None:
    store = CachedStore(
        SqlStore(f"sqlite:///{tmp_path}/keys.db?mode=rwc"), RedisStore(server.url(), prefix="loop")
    )
    made = new_key()
    await store.insert(draft_of(made), None)
    for _ in range(4):
        await store.admit(token_of(made), 1, WIDE)
    async with asyncio.timeout(60):
        while (key := await store.primary.find(made.handle)) is None or key.request_count < 4:
            await asyncio.sleep(0.02)
    assert key.request_count == 4
    await store.admit(token_of(made), 1, WIDE)
    await store.close()
    reader = SqlStore(f"sqlite:///{tmp_path}/keys.db?mode=rwc")
    key = await reader.find(made.handle)
    assert key is not None
    assert key.request_count == 5
    await reader.close()


def test_d6_usage_is_written_although_the_event_loop_of_its_task_ended(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Like a script, which makes a call and closes its loop."""
    store = bench.here

    async def admit(written: int) -> None:
        await store.admit(token_of(bench.made), 1, WIDE)
        async with asyncio.timeout(60):
            while (key := await store.primary.find(bench.made.handle)) is not None:
                if key.request_count == written:
                    break
                await asyncio.sleep(0.02)
        for part in (store.primary, store.cache):
            await part.close()

    asyncio.run(admit(0))
    monkeypatch.setattr(background, "EVERY", 0.05)
    store._background.due_by = monotonic()  # As if so much time had passed.
    asyncio.run(admit(2))


async def test_k7_a_cancelled_reader_loses_no_count(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_usage = bench.here.primary.add_usage
    asked, answers = asyncio.Event(), asyncio.Event()

    async def slow(*arguments: Any) -> None:
        asked.set()
        await answers.wait()
        await add_usage(*arguments)

    monkeypatch.setattr(bench.here.primary, "add_usage", slow)
    for _ in range(3):
        await bench.here.admit(token_of(bench.made), 1, WIDE)
    reader = asyncio.create_task(bench.here.list("org_1", 100))
    await asked.wait()
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    answers.set()
    await bench.here.close()
    found = await bench.there.primary.find(bench.made.handle)
    assert found is not None
    assert found.request_count == 3
    await bench.there.close()


@AT_FORK
def test_k7_usage_counted_before_a_fork_is_written_once(bench: Bench) -> None:
    """The child leaves the parent's counts alone, and counts its own admissions."""
    assert bench.admit() is Verdict.ADMITTED

    def work() -> bytes:
        before = run(bench.here.list("org_1", 100))[0].request_count
        admitted = bench.admit()
        after = run(bench.here.list("org_1", 100))[0].request_count
        return f"{before} {admitted.value} {after}".encode()

    # As if another thread were admitting.
    with bench.here._usage._lock, bench.here._background._lock:
        said = in_a_child(work)
    assert said == b"0 admitted 1"
    assert [key.request_count for key in run(bench.here.list("org_1", 100))] == [2]


def test_d6_closing_waits_for_usage_that_a_thread_is_writing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing, may_go_on = threading.Event(), threading.Event()
    process = bench.process()
    add_usage, close = process.primary.add_usage, process.primary.close
    done: list[str] = []

    async def slowly(*arguments: Any) -> None:
        writing.set()
        assert may_go_on.wait(60)
        await add_usage(*arguments)
        done.append("written")

    async def closed() -> None:
        done.append("closed")
        await close()

    monkeypatch.setattr(background, "EVERY", 0.01)
    assert bench.admit(process) is Verdict.ADMITTED
    monkeypatch.setattr(background, "EVERY", NEVER)
    monkeypatch.setattr(process.primary, "add_usage", slowly)
    monkeypatch.setattr(process.primary, "close", closed)
    assert writing.wait(60)
    threading.Timer(0.1, may_go_on.set).start()
    run(process.close())
    assert done == ["written", "closed"]


_ENDS = """
import asyncio, multiprocessing, sys
from lockgate import Gate, run
from lockgate.options import StoreOptions
from lockgate.stores.cached.store import CachedStore
from lockgate.stores.redis import RedisStore
from lockgate.stores.sql import SqlStore

database, address, prefix, text = sys.argv[1:]
store = CachedStore(SqlStore(database), RedisStore(address, prefix=prefix))
gate = Gate(store, brand="acme", store_options=StoreOptions(deadline=30))

async def admit():
    for _ in range(2):
        await gate.authenticate(text)

def work(awaits):
    asyncio.run(admit()) if awaits else run(admit())

if __name__ == "__main__":
    for method, awaits in (("fork", False), ("forkserver", False), ("spawn", True)):
        child = multiprocessing.get_context(method).Process(target=work, args=[awaits])
        child.start()
        child.join()
    work(True)
"""


def test_d6_usage_is_written_where_a_process_ends_without_closing_its_gate(
    bench: Bench, tmp_path: Path
) -> None:
    """Children of multiprocessing, of every method, and their parent."""
    script = tmp_path / "ends.py"
    script.write_text(_ENDS)
    said = (bench.database, bench.server.url(), f"pair{bench.number}", bench.made.text)
    subprocess.run([sys.executable, "-W", "ignore", script, *said], check=True, timeout=240)
    found = run(bench.there.primary.find(bench.made.handle))
    assert found is not None
    assert found.request_count == 4 * 2


_THREADS = """
import signal, sys, threading
from lockgate import Gate, run

gate = Gate(sys.argv[1], brand="acme")

def serve():
    thread = threading.Thread(target=lambda: run(gate.ready()))
    thread.start()
    thread.join()

serve()
print("handled", file=sys.stderr)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
serve()
"""


def test_a_server_that_a_signal_ends_at_once_is_warned_of(bench: Bench) -> None:
    url = f"{bench.database} {bench.server.url()}"
    command = [sys.executable, "-W", "ignore", "-c", _THREADS, url]
    done = subprocess.run(command, check=True, timeout=120, capture_output=True, text=True)
    before, _, after = done.stderr.partition("handled")
    assert "SIGTERM ends this process at once" in before
    assert "SIGTERM" not in after


async def test_d6_usage_is_written_before_a_lifespan_has_ended(
    server: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "EVERY", NEVER)
    gate = Gate(f"sqlite:///{tmp_path}/keys.db?mode=rwc {server.url()}", brand="acme")
    made = await gate.keys.create("org_1", "first")
    reader = SqlStore(f"sqlite:///{tmp_path}/keys.db?mode=rwc")
    ends: list[int] = []

    async def send(message: Any) -> None:
        key = await reader.get("org_1", made.key.id)
        assert key is not None
        ends.append(key.request_count)

    app = GateMiddleware(Starlette(), gate)
    heard = iter(["lifespan.startup", "lifespan.shutdown"])

    async def receive() -> Any:
        await gate.authenticate(made.text)
        return {"type": next(heard)}

    await app({"type": "lifespan", "asgi": {}, "state": {}}, receive, send)
    assert ends == [0, 2]
    await gate.authenticate(made.text)
    await gate.close()
    await reader.close()


def test_k7_no_count_is_lost_between_threads(bench: Bench) -> None:
    at_once(4, lambda index: [bench.admit(bench.processes[index % 2]) for _ in range(50)])
    for process in bench.processes:
        run(process.write_usage())
    found = run(bench.here.primary.find(bench.made.handle))
    assert found is not None
    assert found.request_count == 200


def hurry_the_cache(gate: Gate) -> None:
    """Give calls of a cache that is about to hang a short deadline.

    Before, a call that a busy machine delays would be charged in the cache and in the process.
    """
    store: Any = gate.store
    store.cache._deadline, store.cache.patience.until = SHORT, -inf
    store.cache.inner.watch(Events(None), SHORT)


def test_d28_without_its_cache_the_gate_verifies_in_the_database_and_limits_here(
    tmp_path: Any,
) -> None:
    told: list[Event] = []
    with redis_server() as mortal:
        gate = Gate(
            f"sqlite:///{tmp_path}/keys.db?mode=rwc {mortal.url()}",
            brand="acme",
            plans=PlanBook([Plan("free", None, 10, None, 1)]),
            store_options=StoreOptions(fleet=2),
            observer=told.append,
        )
        made = run(gate.keys.create("org_1", "a key"))
        other = run(gate.keys.create("org_1", "another"))
        for _ in range(2):
            run(gate.authenticate(made.text))
        hurry_the_cache(gate)
        with mortal.stopped():
            admitted = 0
            for _ in range(12):
                with suppress(RateLimitExceeded):
                    principal = answered(lambda: run(gate.authenticate(made.text)))
                    admitted += 1
                    assert principal.organization == "org_1"
            assert admitted == 10 // 2 - 2
            with pytest.raises(StoreUnavailable):  # It is done, but the cache does not know yet.
                run(gate.keys.revoke("org_1", other.key.id))
        names = [event.name for event in told]
        assert names.count("limits_fell_back") == 1
        assert names.count("breaker_opened") == 1

        def restored() -> bool:
            with suppress(RateLimitExceeded, StoreUnavailable):
                run(gate.authenticate(made.text))
            return "limits_restored" in [event.name for event in told]

        until(restored)
        with pytest.raises(KeyRevoked):
            answered(lambda: run(gate.authenticate(other.text)))
        run(gate.close())


def test_w15_a_cache_that_is_slow_for_a_moment_keeps_its_last_limits(tmp_path: Any) -> None:
    """Two processes; the first has admitted most of the limit, which the second was told."""
    with redis_server() as mortal:
        url = f"sqlite:///{tmp_path}/keys.db?mode=rwc {mortal.url()}"
        plans = PlanBook([Plan("free", None, 60, None, 1)])
        first, second = (
            Gate(url, brand="acme", plans=plans, store_options=StoreOptions(fleet=2))
            for _ in range(2)
        )
        text = run(first.keys.create("org_1", "a key")).text

        def ask(gate: Gate, times: int) -> int:
            admitted = 0
            for _ in range(times):
                with suppress(RateLimitExceeded, StoreUnavailable):
                    run(gate.authenticate(text))
                    admitted += 1
            return admitted

        for gate in (first, second):
            run(gate.ready())
        assert ask(first, 50) + ask(second, 4) == 54
        hurry_the_cache(second)
        with mortal.stopped():
            assert ask(second, 40) <= 6
            assert second.metrics.local_decisions["admitted"] <= 6
            assert second.metrics.local_decisions["refused"] >= 30
        for gate in (first, second):
            run(gate.close())


@pytest.mark.usefixtures("soon_tried")
@pytest.mark.parametrize("awaits", [False, True])
def test_w1_admissions_during_an_outage_of_the_cache_are_charged_after_it(
    tmp_path: Any, awaits: bool
) -> None:
    """Each outage may admit one request too many: the request that detects its end."""
    limit, told = 40, list[Event]()
    loop = asyncio.new_event_loop()
    do: Callable[[Any], Any] = loop.run_until_complete if awaits else run
    with redis_server("--appendonly", "yes", "--appendfsync", "always") as mortal:
        gate = Gate(
            f"sqlite:///{tmp_path}/keys.db?mode=rwc {mortal.url()}",
            brand="acme",
            plans=PlanBook([Plan("free", None, limit, None, 1)]),
            observer=told.append,
            store_options=StoreOptions(deadline=10),
        )
        text = do(gate.keys.create("org_1", "a key")).text
        admitted = 0

        def ask(times: int) -> None:
            nonlocal admitted
            for _ in range(times):
                with suppress(RateLimitExceeded):
                    do(gate.authenticate(text))
                    admitted += 1

        ask(10)
        for outage in (1, 2):
            mortal.stop(signal.SIGKILL)
            ask(8)
            mortal.start()
            while [event.name for event in told].count("limits_restored") < outage:
                sleep(SOON)
                ask(1)
        ask(2 * limit)
        assert limit <= admitted <= limit + 2
        do(gate.close())
    loop.close()


def test_d28_closed_admits_no_request_without_the_cache(tmp_path: Any) -> None:
    with redis_server() as mortal:
        url = f"sqlite:///{tmp_path}/keys.db?mode=rwc {mortal.url()}"
        gate = Gate(url, brand="acme", store_options=StoreOptions(on_failure="closed"))
        made = run(gate.keys.create("org_1", "a key"))
        run(gate.authenticate(made.text))
        mortal.stop()
        with pytest.raises(StoreUnavailable):
            run(gate.authenticate(made.text))
        run(gate.close())


def test_two_urls_make_a_pair_of_the_right_kinds(server: Any, tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/keys.db?mode=rwc"
    pair = open_store(f"{url} {server.url()}")
    assert isinstance(pair, CachedStore)
    assert pair.io == "both"
    for wrong in (f"{server.url()} {url}", f"{url} {url}", f"memory:// {server.url()}"):
        with pytest.raises(ConfigurationError, match="database and then Redis"):
            open_store(wrong)


def test_k1_a_forged_copy_in_the_cache_is_refused_and_replaced(
    bench: Bench,
) -> None:
    """A writer of the cache has no pepper: the copy is refused and replaced."""
    peppers = [b"a pepper of the tests, long enough"]
    gate = Gate(bench.here, brand="acme", peppers=peppers, plans=WIDE)
    created = run(gate.keys.create("org_1", "mine", ["jobs:read"]))
    token = gate.format.parse(created.text)
    assert run(gate.authenticate(created.text)).organization == "org_1"
    cache = bench.cache()
    known = token.without_secret(created.key)
    for changed in (
        created.key._replace(organization="org_2"),
        created.key._replace(scopes=("*",)),
        created.key._replace(seal=None, scopes=("*",)),
    ):
        forged = write_record(changed)
        place = cache._names.place("org_1")
        field = fields_of(created.key.id)[0]
        run(cache._ask(command(place.slot, b"HSET", place.organization, field, forged)))
        for shown in (known, gate.format.parse(created.text)):
            admission = run(bench.here.admit(shown, 1, WIDE))
            assert admission.key is not None
            assert admission.key[:9] == created.key[:9]
    run(cache.close())


def test_k1_a_row_forged_in_the_database_is_not_copied_to_the_cache(bench: Bench) -> None:
    peppers = [b"a pepper of the tests, long enough"]
    gate = Gate(bench.here, brand="acme", peppers=peppers, plans=WIDE)
    created = run(gate.keys.create("org_1", "mine", ["jobs:read"]))
    wrong = created.key.kept._replace(seal=None)
    assert run(bench.there.primary.rehash_if(created.key.handle, created.key.kept, wrong))
    with pytest.raises(KeyNotFound):
        run(gate.authenticate(created.text))
    assert run(bench.cache().find(created.key.handle)) is None
