"""Many at once, in threads, tasks and processes: exactly the limit, and nobody sees a deadlock."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from lockgate import Plan, PlanBook, run
from lockgate.rules.keys import KeyState
from lockgate.rules.windows import Reading
from lockgate.stores.contract import Usage, Verdict
from lockgate.stores.sql import SqlStore

from ..making import NOW, at_once, draft, draft_of, new_key, token_of
from .backends import Backend

LIMIT = 200


def book(limit: int) -> PlanBook:
    return PlanBook([Plan("free", rpm=limit, rph=None, rpd=None, concurrent=None)])


async def test_tasks_share_transactions_and_get_the_readings_of_a_queue(backend: Backend) -> None:
    store = backend.open()
    made = new_key()
    await store.insert(draft_of(made), None, NOW)
    token = token_of(made)
    await store.admit(token, 1, book(LIMIT), NOW)  # From here on it is known whose key it is.
    answers = await asyncio.gather(*(store.admit(token, 1, book(LIMIT), NOW) for _ in range(300)))
    verdicts = [answer.verdict for answer in answers]
    assert verdicts == [Verdict.ADMITTED] * (LIMIT - 1) + [Verdict.LIMITED] * 101
    readings = [answer.reading for answer in answers]
    assert [r.remaining for r in readings if r] == [*range(LIMIT - 2, -1, -1), *[0] * 101]
    counts = [answer.key.request_count for answer in answers if answer.key]
    assert counts == [*range(2, LIMIT + 1), *[LIMIT] * 101]
    await store.close()


def test_threads_share_transactions(backend: Backend) -> None:
    store = backend.open()
    made = new_key()
    run(store.insert(draft_of(made), None, NOW))
    token = token_of(made)

    def admit(_: int) -> list[int]:
        answers = [run(store.admit(token, 1, book(LIMIT), NOW)) for _ in range(15)]
        readings = [a.reading for a in answers if a.verdict is Verdict.ADMITTED]
        return [reading.used[0] for reading in readings if reading]

    used = [count for counts in at_once(16, admit) for count in counts]
    assert sorted(used) == list(range(1, LIMIT + 1))
    key = run(store.find(made.handle))
    assert key is not None
    assert key.request_count == LIMIT
    run(store.close())


async def test_a_charge_that_makes_no_sense_spoils_no_other(backend: Backend) -> None:
    store = backend.open()
    windows = book(9).default.windows
    await store.hit("org_1", windows, 1, NOW)
    good, bad, also_good = await asyncio.gather(
        store.hit("org_1", windows, 1, NOW),
        store.hit("org_1", windows[:1], 1, NOW),
        store.hit("org_1", windows, 1, NOW),
        return_exceptions=True,
    )
    assert isinstance(bad, ValueError)
    assert isinstance(good, Reading)
    assert isinstance(also_good, Reading)
    assert (good.used, also_good.used) == ((2, 2, 2), (3, 3, 3))
    await store.close()


async def test_a_caller_that_leaves_before_its_turn_is_not_charged(backend: Backend) -> None:
    store = backend.open()
    windows = book(9).default.windows
    tasks = [asyncio.create_task(store.hit("org_1", windows, 1, NOW)) for _ in range(4)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(done[1], asyncio.CancelledError)
    assert (await store.look("org_1", windows, NOW)).used == (3, 3, 3)
    await store.close()


async def test_a_caller_that_leaves_while_it_is_charged_harms_nobody(backend: Backend) -> None:
    store = backend.open()
    windows = book(99).default.windows
    await store.hit("org_1", windows, 1, NOW)
    for _ in range(10):
        tasks = [asyncio.create_task(store.hit("org_1", windows, 1, NOW)) for _ in range(4)]
        for _ in range(3):
            await asyncio.sleep(0)
        tasks[0].cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(reading, Reading) for reading in done[1:])
    used = (await store.look("org_1", windows, NOW)).used[0]
    assert 31 <= used <= 41
    await store.close()


def test_every_verb_at_once_meets_no_deadlock(backend: Backend) -> None:
    """Two organizations in opposite orders, by all verbs that write."""
    store = backend.open()
    plans = book(10_000)
    made = [new_key() for _ in range(4)]
    keys = [
        run(store.insert(draft_of(key, f"org_{index % 2}"), None, NOW))
        for index, key in enumerate(made)
    ]

    def work(index: int) -> None:
        for step in range(12):
            which = (index + step) % 4
            key = made[which if index % 2 else 3 - which]
            match (index + step) % 5:
                case 0:
                    usage = {k.handle: Usage(1, NOW) for k in reversed(made)}
                    run(store.add_usage(usage))
                case 1:
                    run(store.acquire(f"org_{which % 2}", f"{index}-{step}", "me", 99, 10, NOW))
                case 2:
                    run(store.insert(draft(f"org_{which % 2}"), 1000, NOW))
                case _:
                    answer = run(store.admit(token_of(key), 1, plans, NOW))
                    assert answer.verdict is Verdict.ADMITTED

    at_once(8, work)
    assert all(run(store.find(key.handle)) for key in keys)
    run(store.close())


WORKER = """
import asyncio, json, sys
from lockgate import Plan, PlanBook
from lockgate.rules.credentials import KeyFormat
from lockgate.stores.sql import SqlStore

url, prefix, text, limit, now, callers = sys.argv[1:]

async def main():
    store = SqlStore(url, prefix=prefix)
    plans = PlanBook([Plan("free", rpm=int(limit), rph=None, rpd=None, concurrent=None)])
    token = KeyFormat("acme").read([b"Bearer " + text.encode()])
    print("ready", flush=True)
    sys.stdin.readline()
    async def caller():
        return [(await store.admit(token, 1, plans, int(now))).verdict.value for _ in range(10)]
    verdicts = sum(await asyncio.gather(*(caller() for _ in range(int(callers)))), [])
    await store.close()
    print(json.dumps(verdicts))

asyncio.run(main())
"""


def test_eight_processes_on_one_hot_organization_admit_exactly_the_limit(
    backend: Backend, tmp_path: Path
) -> None:
    tables = backend.take()
    store = SqlStore(backend.url, prefix=tables.prefix)
    made = new_key()
    run(store.insert(draft_of(made), None, NOW))
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    arguments = [backend.url, tables.prefix, made.text, str(LIMIT), str(NOW), "6"]
    workers = [
        subprocess.Popen(
            [sys.executable, str(script), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(8)
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    verdicts: list[str] = []
    for worker in workers:
        said, _ = worker.communicate(timeout=120)
        assert worker.returncode == 0
        verdicts += json.loads(said)
    assert len(verdicts) == 8 * 60
    assert verdicts.count("admitted") == LIMIT
    assert verdicts.count("limited") == len(verdicts) - LIMIT
    key = run(store.find(made.handle))
    assert key is not None
    assert key.request_count == LIMIT
    run(store.close())
    backend.give(tables)


def test_k4_a_revocation_between_processes_is_immediate(backend: Backend) -> None:
    """Two stores of one database, as in two processes; the second has seen the key before."""
    tables = backend.take()
    first, second = (SqlStore(backend.url, prefix=tables.prefix) for _ in range(2))
    made = new_key()
    key = run(first.insert(draft_of(made), None, NOW))
    assert run(second.admit(token_of(made), 1, book(9), NOW)).verdict is Verdict.ADMITTED
    revoked = run(first.revoke_if_live("org_1", key.id, NOW + 1))
    assert revoked is not None
    assert revoked.state(NOW + 1) is KeyState.REVOKED
    assert run(second.admit(token_of(made), 1, book(9), NOW)).verdict is Verdict.REVOKED
    run(first.close())
    run(second.close())
    backend.give(tables)


def test_the_servers_clock_decides(served: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """W12: the clocks of the hosts of the application do not matter."""
    store = served.open()
    before = run(store.now())
    monkeypatch.setattr("time.time", lambda: 0.0)
    monkeypatch.setattr("time.time_ns", lambda: 0)
    windows = book(9).default.windows
    reading = run(store.hit("org_1", windows, 1))
    key = run(store.insert(draft(), None))
    assert before <= reading.now <= run(store.now())
    assert abs(key.created_at - before) < 60_000_000
    run(store.close())
