"""The change log as the host reads it: what each operation of a gate records, in pages."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from lockgate import Actor, acting, run
from lockgate.core.changes import ACTOR_LENGTH, HOST, Change
from lockgate.core.timestamps import DAY
from lockgate.errors import InvalidRequest, KeyLimitReached, NotFound
from lockgate.options import KeyOptions

from .bench import Bench

ADA = Actor("user", "ada", "192.0.2.1")


@pytest.fixture
def bench() -> Bench:
    return Bench(key_options=KeyOptions(cap=3, retention_days=30))


def log(bench: Bench, **options: Any) -> list[Change]:
    return run(bench.gate.changes.list("org_1", **options)).changes


def test_each_change_has_the_values_before_and_after(bench: Bench) -> None:
    keys, organizations = bench.gate.keys, bench.gate.organizations
    with acting(ADA):
        key = bench.create(scopes=["jobs:*"], expires_in_days=1).key
        run(keys.update("org_1", key.id, name="build", scopes=["jobs:read"]))
        rotated = run(keys.rotate("org_1", key.id, overlap_days=0))
        run(keys.revoke("org_1", rotated.successor.id))
    run(organizations.place("org_1", "creator", rpm=7))
    run(organizations.place("org_1", "starter"))
    changes = log(bench)[::-1]
    now, id = bench.clock.now, rotated.successor.id
    first = (("name", "ci"), ("scopes", ("jobs:*",)))
    second = (("name", "build"), ("scopes", ("jobs:read",)))
    free, ended = (
        (("revoked_at", None), ("successor", None)),
        (("revoked_at", now), ("successor", id)),
    )
    creator = (("plan", "creator"), ("rpm", 7))
    assert [(c.action, c.key, c.actor, c.before, c.after) for c in changes] == [
        ("key_created", key.id, ADA, (), (*first, ("expires_at", now + DAY))),
        ("key_updated", key.id, ADA, first, second),
        ("key_rotated", key.id, ADA, free, ended),
        ("key_revoked", id, ADA, (), ()),
        ("plan_assigned", None, HOST, (("plan", None),), creator),
        ("plan_assigned", None, HOST, creator, (("plan", "starter"),)),
    ]
    assert [change.number for change in changes] == [1, 2, 3, 4, 5, 6]
    assert {change.at for change in changes} == {now}
    actions = [change.action for change in log(bench, key=id)]
    assert actions == ["key_revoked", "key_rotated"], "a successor's begin with the rotation"


def test_a_refused_or_repeated_change_leaves_no_record(bench: Bench) -> None:
    key = bench.create().key
    for _ in range(2):
        bench.create()
    with pytest.raises(KeyLimitReached):
        bench.create()
    run(bench.gate.keys.update("org_1", key.id, name="ci"))
    with pytest.raises(InvalidRequest):
        run(bench.gate.keys.update("org_1", key.id, name=""))
    with pytest.raises(NotFound):
        run(bench.gate.keys.revoke("org_2", key.id))
    assert [change.action for change in log(bench)] == ["key_created"] * 3
    for _ in range(3):
        run(bench.gate.keys.revoke("org_1", key.id))
    assert [change.action for change in log(bench)] == ["key_revoked", *["key_created"] * 3]
    assert run(bench.gate.changes.list("org_2")).changes == []


def test_pages_are_continued_by_the_cursor_also_of_one_key(bench: Bench) -> None:
    keys = [bench.create().key for _ in range(3)]
    for number in range(300):
        run(bench.gate.keys.update("org_1", keys[number % 3].id, name=f"name {number}"))
    for key, total in ((None, 303), (keys[0].id, 101)):
        found: list[Change] = []
        cursor, pages = None, 0
        while pages == 0 or cursor is not None:
            page = run(bench.gate.changes.list("org_1", key=key, limit=40, cursor=cursor))
            found += page.changes
            cursor, pages = page.cursor, pages + 1
            # New records do not shift the pages that follow.
            run(bench.gate.organizations.place("org_1", "starter" if pages % 2 else "free"))
        assert len(found) == total
        assert [change.number for change in found] == sorted(
            {change.number for change in found}, reverse=True
        )
    assert log(bench, key="no such key") == []


@pytest.mark.parametrize(
    "options",
    [
        *({"limit": limit} for limit in (0, 1001, True)),
        *({"cursor": cursor} for cursor in ("", "x" * 200, "MTIzLmFiYw")),  # One of a key.
    ],
    ids=str,
)
def test_a_wrong_limit_or_cursor_is_refused(bench: Bench, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        log(bench, **options)


def test_the_actor_holds_within_its_block_and_task(bench: Bench) -> None:
    async def create(name: str) -> None:
        with acting(Actor("user", name)):
            await asyncio.sleep(0)
            await bench.gate.keys.create("org_1", name[:9])

    async def both() -> None:
        with acting(ADA):
            await asyncio.gather(create("bob"), create("e" * 100_000))
            await bench.gate.keys.create("org_1", "ada")

    asyncio.run(both())
    assert {(c.actor.id, dict(c.after)["name"]) for c in log(bench)} == {
        *(("bob", "bob"), ("ada", "ada")),
        ("e" * ACTOR_LENGTH, "e" * 9),  # A long id is cut.
    }
    with acting(ADA), ThreadPoolExecutor(1) as pool:
        # A thread of a pool has a context of its own.
        pool.submit(run, bench.gate.organizations.place("org_1", "starter")).result()
    assert log(bench)[0].actor == HOST
    assert log(bench, limit=1) == log(bench)[:1]


def test_records_go_with_the_retention_of_keys(bench: Bench) -> None:
    bench.create(name="a live key")
    bench.clock.move(days=29)
    bench.create(name="another")
    run(bench.gate.keys.remove_ended())
    assert len(log(bench)) == 2
    bench.clock.move(days=1)
    assert run(bench.gate.keys.remove_ended()) == 0
    assert [dict(change.after)["name"] for change in log(bench)] == ["another"]
    assert len(run(bench.gate.keys.list("org_1")).keys) == 2


def test_an_organization_keeps_the_latest_records_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockgate.stores.memory.changes.LOGGED_AT_MOST", 50)
    bench = Bench()
    key = bench.create().key
    for number in range(59):
        run(bench.gate.keys.update("org_1", key.id, name=str(number)))
    assert log(bench, limit=1)[0].number == 60
    oldest = run(bench.gate.store.change_log("org_1", 9, 16))
    assert [change.number for change in oldest] == [15, 14, 13, 12, 11]


def test_a_page_of_the_changes_of_a_key_reads_a_part_of_the_log_and_the_next_continues_G10(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lockgate.services.change_log._READ_AT_ONCE", 25)
    key = bench.create().key
    for number in range(260):
        run(bench.gate.organizations.place("org_1", "creator", rpm=number + 1))
    read: list[int] = []

    async def counted(asked: Any, *arguments: Any) -> list[Change]:
        page: list[Change] = await asked(*arguments)
        read.append(len(page))
        return page

    bench.store.on("change_log", counted)
    first = run(bench.gate.changes.list("org_1", key=key.id))
    assert (first.changes, sum(read)) == ([], 250)
    last = run(bench.gate.changes.list("org_1", key=key.id, cursor=first.cursor))
    assert [change.action for change in last.changes] == ["key_created"]
    assert (last.cursor, sum(read)) == (None, 261)
    page = log(bench, limit=200)
    assert (len(page), page[-1].number) == (200, 62)
