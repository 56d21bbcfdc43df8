"""The change log as the host reads it: what each operation of a gate records, in pages."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from lockgate import Actor, Gate, MemoryStore, acting, run
from lockgate.core.api_keys import ApiKey
from lockgate.core.changes import ACTOR_LENGTH, ADDRESS_LENGTH, HOST, LOGGED_AT_MOST, Change
from lockgate.core.timestamps import DAY
from lockgate.errors import HandleTaken, InvalidRequest, KeyLimitReached, NotFound
from lockgate.options import KeyOptions, StoreOptions
from lockgate.testing import HandClock

ADA = Actor("user", "ada", "192.0.2.1")


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def gate(clock: HandClock) -> Gate:
    return Gate(
        MemoryStore(clock),
        brand="acme",
        key_options=KeyOptions(cap=3),
        store_options=StoreOptions(clock=clock),
    )


def log(gate: Gate, **options: Any) -> list[Change]:
    return run(gate.changes.list("org_1", **options)).changes


def test_each_change_has_the_values_before_and_after(gate: Gate, clock: HandClock) -> None:
    with acting(ADA):
        key = run(gate.keys.create("org_1", "ci", ["jobs:*"], 1)).key
        run(gate.keys.update("org_1", key.id, name="build", scopes=["jobs:read"]))
        rotated = run(gate.keys.rotate("org_1", key.id, overlap_days=0))
        run(gate.keys.revoke("org_1", rotated.successor.id))
    run(gate.organizations.place("org_1", "creator", rpm=7))
    run(gate.organizations.place("org_1", "starter"))
    changes = log(gate)[::-1]
    now = clock()
    assert [(c.action, c.key, c.actor, c.before, c.after) for c in changes] == [
        (
            "key_created",
            key.id,
            ADA,
            (),
            (("name", "ci"), ("scopes", ("jobs:*",)), ("expires_at", now + DAY)),
        ),
        (
            "key_updated",
            key.id,
            ADA,
            (("name", "ci"), ("scopes", ("jobs:*",))),
            (("name", "build"), ("scopes", ("jobs:read",))),
        ),
        (
            "key_rotated",
            key.id,
            ADA,
            (("revoked_at", None), ("successor", None)),
            (("revoked_at", now), ("successor", rotated.successor.id)),
        ),
        ("key_revoked", rotated.successor.id, ADA, (), ()),
        ("plan_assigned", None, HOST, (("plan", None),), (("plan", "creator"), ("rpm", 7))),
        (
            "plan_assigned",
            None,
            HOST,
            (("plan", "creator"), ("rpm", 7)),
            (("plan", "starter"),),
        ),
    ]
    assert [change.number for change in changes] == [1, 2, 3, 4, 5, 6]
    assert {change.at for change in changes} == {now}


def test_a_refused_or_repeated_change_leaves_no_record(gate: Gate) -> None:
    key = run(gate.keys.create("org_1", "ci")).key
    for _ in range(2):
        run(gate.keys.create("org_1", "ci"))
    with pytest.raises(KeyLimitReached):
        run(gate.keys.create("org_1", "one too many"))
    run(gate.keys.update("org_1", key.id, name="ci"))
    with pytest.raises(InvalidRequest):
        run(gate.keys.update("org_1", key.id, name=""))
    with pytest.raises(NotFound):
        run(gate.keys.revoke("org_2", key.id))
    assert [change.action for change in log(gate)] == ["key_created"] * 3
    for _ in range(3):
        run(gate.keys.revoke("org_1", key.id))
    assert [change.action for change in log(gate)] == ["key_revoked", *["key_created"] * 3]
    assert run(gate.changes.list("org_2")).changes == []


def test_a_handle_that_is_drawn_again_leaves_one_record() -> None:
    class Taken(MemoryStore):
        refusals = 2

        async def insert(self, *arguments: Any, **options: Any) -> ApiKey:
            if self.refusals:
                self.refusals -= 1
                raise HandleTaken
            return await super().insert(*arguments, **options)

    gate = Gate(Taken(), brand="acme")
    key = run(gate.keys.create("org_1", "ci")).key
    assert [change.key for change in log(gate)] == [key.id]


def test_pages_are_continued_by_the_cursor_also_of_one_key(gate: Gate) -> None:
    keys = [run(gate.keys.create("org_1", "ci")).key for _ in range(3)]
    for number in range(300):
        run(gate.keys.update("org_1", keys[number % 3].id, name=f"name {number}"))
    for key, total in ((None, 303), (keys[0].id, 101)):
        found: list[Change] = []
        cursor = None
        while True:
            page = run(gate.changes.list("org_1", key=key, limit=40, cursor=cursor))
            found += page.changes
            # New records do not shift the pages that follow.
            run(gate.organizations.place("org_1", "starter" if len(found) % 80 else "free"))
            cursor = page.cursor
            if cursor is None:
                break
        assert len(found) == total
        assert [change.number for change in found] == sorted(
            {change.number for change in found}, reverse=True
        )
    assert log(gate, key="no such key") == []


def test_the_log_of_a_successor_begins_with_the_rotation(gate: Gate) -> None:
    key = run(gate.keys.create("org_1", "ci")).key
    successor = run(gate.keys.rotate("org_1", key.id)).successor
    run(gate.keys.revoke("org_1", key.id, successors=True))
    actions = [change.action for change in log(gate, key=successor.id)]
    assert actions == ["key_revoked", "key_rotated"]


@pytest.mark.parametrize(
    "options",
    [
        {"limit": 0},
        {"limit": 1001},
        {"limit": True},
        {"cursor": ""},
        {"cursor": "x" * 200},
        {"cursor": "MTIzLmFiYw"},  # The position of a key.
    ],
)
def test_a_wrong_limit_or_cursor_is_refused(gate: Gate, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        run(gate.changes.list("org_1", **options))


def test_the_actor_holds_within_its_block_and_task(gate: Gate) -> None:
    async def create(name: str) -> None:
        with acting(Actor("user", name)):
            await asyncio.sleep(0)
            await gate.keys.create("org_1", name)

    async def both() -> None:
        with acting(ADA):
            await asyncio.gather(create("bob"), create("eve"))
            await gate.keys.create("org_1", "ada")

    asyncio.run(both())
    assert {(c.actor.id, dict(c.after)["name"]) for c in log(gate)} == {
        ("bob", "bob"),
        ("eve", "eve"),
        ("ada", "ada"),
    }
    with acting(ADA), ThreadPoolExecutor(1) as pool:
        # A thread of a pool has a context of its own.
        pool.submit(run, gate.organizations.place("org_1", "starter")).result()
    assert log(gate)[0].actor == HOST
    assert run(gate.changes.list("org_1", limit=1)).changes == log(gate)[:1]


def test_a_long_id_of_an_actor_is_cut(gate: Gate) -> None:
    with acting(Actor("user", "a" * 100_000, "1" * 100_000)):
        run(gate.keys.create("org_1", "ci"))
    assert log(gate)[0].actor == Actor("user", "a" * ACTOR_LENGTH, "1" * ADDRESS_LENGTH)


def test_records_go_with_the_retention_of_keys(clock: HandClock) -> None:
    gate = Gate(
        MemoryStore(clock),
        brand="acme",
        key_options=KeyOptions(retention_days=30),
        store_options=StoreOptions(clock=clock),
    )
    run(gate.keys.create("org_1", "a live key"))
    clock.move(days=29)
    run(gate.keys.create("org_1", "another"))
    run(gate.keys.remove_ended())
    assert len(log(gate)) == 2
    clock.move(days=1)
    assert run(gate.keys.remove_ended()) == 0
    assert [dict(change.after)["name"] for change in log(gate)] == ["another"]
    assert len(run(gate.keys.list("org_1")).keys) == 2


def test_an_organization_keeps_the_latest_records_only(gate: Gate) -> None:
    key = run(gate.keys.create("org_1", "ci")).key
    for number in range(LOGGED_AT_MOST + 9):
        run(gate.keys.update("org_1", key.id, name=str(number)))
    page = run(gate.changes.list("org_1", limit=1))
    assert page.changes[0].number == LOGGED_AT_MOST + 10
    oldest = run(gate.store.change_log("org_1", 9, 16))
    assert [change.number for change in oldest] == [15, 14, 13, 12, 11]


def test_a_page_of_the_changes_of_a_key_reads_a_part_of_the_log_and_the_next_continues_G10(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = run(gate.keys.create("org_1", "ci")).key
    for number in range(2_600):
        run(gate.organizations.place("org_1", "creator", rpm=number + 1))
    read: list[int] = []
    change_log = gate.store.change_log

    async def counted(*arguments: Any) -> list[Change]:
        page = await change_log(*arguments)
        read.append(len(page))
        return page

    monkeypatch.setattr(gate.store, "change_log", counted)
    first = run(gate.changes.list("org_1", key=key.id))
    assert (first.changes, sum(read)) == ([], 2_500)
    last = run(gate.changes.list("org_1", key=key.id, cursor=first.cursor))
    assert [change.action for change in last.changes] == ["key_created"]
    assert (last.cursor, sum(read)) == (None, 2_601)
    page = run(gate.changes.list("org_1", limit=1000))
    assert (len(page.changes), page.changes[-1].number) == (1000, 1602)
