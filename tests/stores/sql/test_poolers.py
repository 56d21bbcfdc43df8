"""Behind PgBouncer, which lends sessions of the server to one transaction after the other."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from itertools import count
from typing import Any, Final

import psycopg
import pytest
from sqlalchemy import make_url, text

from lockgate import Plan, PlanBook, migrations, run
from lockgate.core.plans import Organization
from lockgate.stores.answers import Verdict
from lockgate.stores.sql import SqlStore
from tests.servers import pgbouncer, shared

from ..making import NOW, draft_of, new_key, token_of
from .backends import BACKENDS

_databases = count()
PROCESSES: Final = 4
CALLS: Final = 40
LIMIT: Final = 60
WIDE: Final = 10_000
BOOK: Final = PlanBook(
    [
        Plan("free", rpm=LIMIT, rph=None, rpd=None, concurrent=None),
        Plan("wide", rpm=WIDE, rph=None, rpd=None, concurrent=None),
    ]
)
WORKER: Final = '''
"""Admits keys of a wide and a narrow plan, five at a time, then one that is revoked."""

import asyncio, json, sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from lockgate import Plan, PlanBook, run
from lockgate.core.key_format import KeyFormat
from lockgate.stores.sql import SqlStore

url, awaits, calls, limit, wide, now, *texts = sys.argv[1:]
calls, now, format = int(calls), int(now), KeyFormat("acme")
many = dict(rph=None, rpd=None, concurrent=None)
plans = PlanBook([Plan("free", rpm=int(limit), **many), Plan("wide", rpm=int(wide), **many)])
tokens = [format.read([b"Bearer " + text.encode()]) for text in texts]
store = SqlStore(url)
answers = Counter()


async def call(which):
    try:
        verdict = (await store.admit(tokens[which], 1, plans, now)).verdict.value
    except Exception as failure:
        verdict = repr(failure.__cause__ or failure)
    answers[f"{which} {verdict}"] += 1


async def together(which):
    for _ in range(calls // 5):
        await asyncio.gather(*(call(which) for _ in range(5)))


async def main():
    await together(0)
    await together(1)
    print("done", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await call(0)
    await store.close()


print("ready", flush=True)
sys.stdin.readline()
if awaits == "yes":
    asyncio.run(main())
else:
    with ThreadPoolExecutor(5) as pool:
        for which in (0, 1):
            list(pool.map(lambda _: run(call(which)), range(calls)))
    print("done", flush=True)
    sys.stdin.readline()
    run(call(0))
    run(store.close())
print(json.dumps(answers))
'''


def with_driver(url: str, driver: str, **options: str) -> str:
    named = make_url(url).set(drivername=driver).update_query_dict(options)
    return named.render_as_string(hide_password=False)


@pytest.mark.parametrize(
    ("mode", "driver", "awaits"),
    [
        ("transaction", "postgresql+psycopg", True),
        ("transaction", "postgresql+psycopg", False),
        ("transaction", "postgresql+asyncpg", True),
        ("session", "postgresql+psycopg", False),
    ],
    ids=["psycopg", "psycopg-threads", "asyncpg", "session"],
)
def test_four_processes_behind_a_pooler_answer_every_request_W1_K4(
    mode: str, driver: str, awaits: bool
) -> None:
    # Fewer sessions than clients in the transaction mode, where they change hands.
    size = f"default_pool_size = {3 if mode == 'transaction' else 30}"
    with pgbouncer(shared("postgresql"), mode, size) as pooler:
        url = pooler.create(f"pooled{next(_databases)}")
        migrations.upgrade(url)
        total = answers(url, with_driver(url, driver), awaits)
    assert total == {
        "0 admitted": PROCESSES * CALLS,
        "1 admitted": LIMIT,
        "1 limited": PROCESSES * CALLS - LIMIT,
        "0 revoked": PROCESSES,
    }


def answers(url: str, reached_by: str, awaits: bool) -> dict[str, int]:
    """Return the answers to processes that use two keys, of which one is revoked meanwhile."""
    store, wide, narrow = SqlStore(url), new_key(), new_key()
    run(store.put_organization(Organization("org_1", "wide"), NOW))
    key = run(store.insert(draft_of(wide), None, NOW))
    run(store.insert(draft_of(narrow, "org_2"), None, NOW))
    arguments = [reached_by, "yes" if awaits else "no"]
    numbers = map(str, (CALLS, LIMIT, WIDE, NOW))
    command = [sys.executable, "-c", WORKER, *arguments, *numbers, wide.text, narrow.text]
    workers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(PROCESSES)
    ]
    total: dict[str, int] = {}
    for said in ("ready", "done"):
        for worker in workers:
            assert worker.stdout is not None
            assert worker.stdout.readline() == f"{said}\n"
        if said == "done":
            assert run(store.revoke_if_live("org_1", key.id, NOW)) is not None
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()
    for worker in workers:
        answer, _ = worker.communicate(timeout=60)
        for name, number in json.loads(answer).items():
            total[name] = total.get(name, 0) + number
    run(store.close())
    return total


@pytest.fixture
def lent() -> Iterator[str]:
    """The URL of a new database behind PgBouncer, with one session for all clients."""
    server = shared("postgresql")
    with pgbouncer(server, "transaction", "default_pool_size = 1") as pooler:
        url = pooler.create(f"lent{next(_databases)}")
        migrations.upgrade(url)
        yield url


def session_of(store: SqlStore) -> dict[str, str]:
    """The settings of a session in which a store has made a call, and its prepared statements."""
    names = ("lock_timeout", "idle_in_transaction_session_timeout")
    columns = ", ".join(f"current_setting('{name}') AS {name}" for name in names)
    count = "(SELECT count(*) FROM pg_prepared_statements) AS prepared"

    def read(connection: Any) -> dict[str, str]:
        row = connection.execute(text(f"SELECT {columns}, {count}")).one()
        return {name: str(value) for name, value in row._mapping.items()}

    return run(store._read(read))


def admit_often(url: str) -> tuple[int, SqlStore]:
    """Return how many of 20 admissions were admitted, and the store."""
    store, made = SqlStore(url), new_key()
    run(store.insert(draft_of(made), None, NOW))
    admitted = 0
    for _ in range(20):
        admitted += run(store.admit(token_of(made), 1, BOOK, NOW)).verdict is Verdict.ADMITTED
    return admitted, store


def test_nothing_is_set_or_prepared_in_a_session_that_is_lent(
    lent: str, caplog: pytest.LogCaptureFixture
) -> None:
    admitted, store = admit_often(lent)
    assert admitted == 20
    assert session_of(store) == {
        "lock_timeout": "0",
        "idle_in_transaction_session_timeout": "0",
        "prepared": "0",
    }
    assert [line.levelname for line in caplog.records] == ["WARNING"]
    assert "ALTER ROLE" in caplog.text
    run(store.close())


def test_a_role_with_its_own_time_limits_gets_no_advice(
    lent: str, caplog: pytest.LogCaptureFixture
) -> None:
    with BACKENDS["postgresql"].admin.begin() as connection:
        for setting in ("lock_timeout", "idle_in_transaction_session_timeout"):
            connection.execute(text(f"ALTER ROLE lockgate SET {setting} = '7s'"))
    try:
        with pgbouncer(shared("postgresql"), "transaction") as pooler:
            url = make_url(lent).set(port=pooler.port).render_as_string(hide_password=False)
            admitted, store = admit_often(url)
            assert admitted == 20
            assert session_of(store)["lock_timeout"] == "7s"
            run(store.close())
    finally:
        with BACKENDS["postgresql"].admin.begin() as connection:
            connection.execute(text("ALTER ROLE lockgate RESET ALL"))
    assert caplog.text == ""


@pytest.mark.parametrize(
    "options",
    [{"pgbouncer": "true"}, {"prepare_threshold": "none"}],
    ids=["pgbouncer", "prepare_threshold"],
)
def test_a_url_can_say_that_it_names_a_pooler(lent: str, options: dict[str, str]) -> None:
    admitted, store = admit_often(with_driver(lent, "postgresql+psycopg", **options))
    assert admitted == 20
    assert session_of(store)["prepared"] == "0"
    run(store.close())


@pytest.mark.parametrize("size", ["0", "100"])
async def test_options_of_asyncpgs_caches_change_nothing_behind_a_pooler(
    lent: str, size: str
) -> None:
    """With a cache each statement without a name would be another one's."""
    options = {"statement_cache_size": size, "prepared_statement_cache_size": size}
    store, made = SqlStore(with_driver(lent, "postgresql+asyncpg", **options)), new_key()
    await store.insert(draft_of(made), None, NOW)
    for number in range(20):
        admission = await store.admit(token_of(made), 1, BOOK, NOW)
        assert admission.reading is not None
        assert admission.reading.used[0] == number + 1
        assert len(await store.list("org_1", 9)) == 1
    await store.close()


def test_a_pooler_that_loses_prepared_statements_is_noticed_whatever_the_url_says(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The URL asks for prepared statements, which PgBouncer before 1.21 does not know."""
    with pgbouncer(shared("postgresql"), "transaction") as pooler:
        url = pooler.create(f"lost{next(_databases)}")
        migrations.upgrade(url)
        prepares = with_driver(url, "postgresql+psycopg", prepare_threshold="1")
        store, made = SqlStore(prepares), new_key()
        run(store.insert(draft_of(made), None, NOW))
        admit_again = partial(store.admit, token_of(made), 1, BOOK, NOW)
        assert run(admit_again()).verdict is Verdict.ADMITTED
        with psycopg.connect(url) as other:
            other.execute("SELECT 1")  # In the session that has the statements.
            assert run(admit_again()).verdict is Verdict.ADMITTED
            assert len(run(store.list("org_1", 9))) == 1
        run(store.close())
    assert "pgbouncer=true" in caplog.text


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
@pytest.mark.parametrize(
    ("options", "lock_timeout"), [({}, "5s"), ({"options": "-c lock_timeout=9s"}, "9s")]
)
async def test_a_session_of_its_own_has_time_limits_and_prepared_statements(
    driver: str, options: dict[str, str], lock_timeout: str
) -> None:
    backend = BACKENDS["postgresql"]
    store, made = backend.open(backend.by(f"postgresql+{driver}", options)), new_key()
    await store.insert(draft_of(made), None, NOW)
    await store.admit(token_of(made), 1, BOOK, NOW)

    def read(connection: Any) -> list[str]:
        return [
            connection.scalar(text(f"SHOW {name}"))
            for name in ("lock_timeout", "idle_in_transaction_session_timeout")
        ]

    assert await store._read(read) == [lock_timeout, "10s"]
    await store.close()
