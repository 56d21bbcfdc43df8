"""Eight processes that do everything at once: exactly the limit, and no error reaches a caller."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lockgate import run
from lockgate.core.ledger import Peek
from lockgate.stores.sql import SqlStore

from ..making import NOW, draft_of, new_key
from .backends import Backend
from .test_concurrency import LIMIT, book

WORKER = '''
"""Every other process awaits; the others wait in threads, as under WSGI."""

import asyncio, json, random, sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from lockgate import Plan, PlanBook, run
from lockgate.core.key_format import KeyFormat
from lockgate.core.api_keys import KeyDraft
from lockgate.core.leases import to_acquire
from lockgate.core.plans import Organization
from lockgate.stores.answers import Usage
from lockgate.stores.sql import SqlStore

url, prefix, texts, limit, now, number = sys.argv[1:]
format, now, number = KeyFormat("acme"), int(now), int(number)
plans = PlanBook([Plan("free", rpm=int(limit), rph=None, rpd=None, concurrent=None)])
tokens = [format.read([b"Bearer " + text.encode()]) for text in texts.split(",")]
store = SqlStore(url, prefix=prefix)
chance = random.Random(number)
admitted = Counter()
CALLERS = 6


async def caller(index):
    for step in range(25):
        which = 0 if chance.random() < 0.4 else chance.randrange(len(tokens))
        answer = await store.admit(tokens[which], 1, plans, now)
        admitted[which] += answer.verdict.value == "admitted"
        organization = f"org_{chance.randrange(len(tokens))}"
        match chance.randrange(8):
            case 0:
                made, id = format.generate(), f"{number}-{index}-{step}"
                named = (id, made.handle, organization, "n", made.prefix, ("*",))
                await store.insert(KeyDraft(*named, *format.digest(made), None), 1000, now)
                gone = await store.revoke_if_live(organization, id, now)
                assert gone.revoked_at == now
            case 1:
                await store.list(organization, 100)
            case 2:
                await store.put_organization(Organization(organization, "free"))
            case 3:
                action = to_acquire(f"{number}-{index}", "me", 500, 10**9)
                await store.charge(organization, action, now)
            case 4:
                await store.add_usage({token.handle: Usage(0, now) for token in reversed(tokens)})


async def together():
    await asyncio.gather(*(caller(index) for index in range(CALLERS)))
    await store.close()


print("ready", flush=True)
sys.stdin.readline()
if number % 2:
    asyncio.run(together())
else:
    with ThreadPoolExecutor(CALLERS) as pool:
        list(pool.map(lambda index: run(caller(index)), range(CALLERS)))
    run(store.close())
print(json.dumps([admitted[which] for which in range(len(tokens))]))
'''


@pytest.mark.campaign
@pytest.mark.parametrize("turn", range(5))
def test_eight_processes_use_all_verbs_at_once(backend: Backend, tmp_path: Path, turn: int) -> None:
    tables = backend.take()
    store = SqlStore(backend.url, prefix=tables.prefix)
    made = [new_key() for _ in range(6)]
    for number, key in enumerate(made):
        run(store.insert(draft_of(key, f"org_{number}"), None, NOW))
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    texts = ",".join(key.text for key in made)
    workers = [
        subprocess.Popen(
            [
                *(sys.executable, str(script), backend.url, tables.prefix, texts),
                *(str(LIMIT), str(NOW), str(8 * turn + number)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(8)
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    admitted: list[list[int]] = []
    for worker in workers:
        said, _ = worker.communicate(timeout=120)
        assert worker.returncode == 0
        admitted.append(json.loads(said))
    for which, key in enumerate(made):
        total = sum(counts[which] for counts in admitted)
        found = run(store.find(key.handle))
        assert found is not None
        assert found.request_count == total
        reading = run(store.charge(f"org_{which}", Peek(book(LIMIT).default.windows), NOW))
        assert reading.used[0] == total <= LIMIT
    assert sum(counts[0] for counts in admitted) == LIMIT
    run(store.close())
    backend.give(tables)
