"""Stores that are one for each process, and not one for all of them, are found out."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from lockgate import MemoryStore, PlanBook, Store, run
from lockgate.core.api_keys import ApiKey
from lockgate.core.key_format import Token
from lockgate.core.leases import TO_LIST
from lockgate.errors import ConfigurationError, HandleTaken
from lockgate.stores.answers import Admission, Freshness, Verdict
from lockgate.testing import Broken
from lockgate.testing.processes import share
from tests.by_verbs import RecordsByVerbs, SlotReading
from tests.examples.test_own_store import example

from .mutants_between_processes import (
    CACHED_VERBS,
    LOCKED_VERBS,
    with_cache_of_the_process,
    with_lock_of_the_process,
)


def gap() -> None:
    """Time for another process to come between."""
    time.sleep(0.0005)


class RemembersKeys(RecordsByVerbs):
    """Each process asks once for the state of a key."""

    def __init__(self, records: Any) -> None:
        super().__init__(records)
        self.good: dict[str, Admission] = {}

    async def admit(
        self, token: Token, cost: int, plans: PlanBook, *more: Any, **named: Any
    ) -> Admission:
        admission = await super().admit(token, cost, plans, *more, **named)
        if admission.verdict is Verdict.ADMITTED:
            self.good[token.handle] = admission
        elif admission.verdict is Verdict.REVOKED:
            return self.good.get(token.handle, admission)
        return admission


class SlotsUnlocked(RecordsByVerbs):
    """Counts leases and takes one, which a lock keeps apart in one process."""

    async def acquire(
        self,
        organization: str,
        job: str,
        owner: str,
        limit: int | None,
        span: int,
        now: int | None = None,
    ) -> SlotReading:
        full = (
            limit is not None
            and len((await self.charge(organization, TO_LIST, now)).slots) >= limit
        )
        gap()
        reading = await super().acquire(
            organization, job, owner, limit if full else None, span, now
        )
        return reading._replace(limit=limit)


class EpochOfTheProcess(RecordsByVerbs):
    """Counts the changes that were made here."""

    changes = 0

    async def freshness(self) -> Freshness:
        return Freshness(self.changes, await self.now())

    async def revoke_if_live(
        self, organization: str, id: str, now: int | None = None, **options: Any
    ) -> ApiKey | None:
        self.changes += 1
        return await super().revoke_if_live(organization, id, now, **options)


def opened(kind: type[RecordsByVerbs], path: str) -> Store:
    return kind(example().SqliteRecords(path))


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (RemembersKeys, "K4"),
        (SlotsUnlocked, "L1"),
        pytest.param(EpochOfTheProcess, "D5", marks=pytest.mark.campaign),
    ],
)
def test_a_store_of_one_process_is_detected(
    tmp_path: Path, kind: type[RecordsByVerbs], sentence: str
) -> None:
    path = str(tmp_path / "own.db")
    store = opened(kind, path)
    with pytest.raises(Broken) as found:
        run(share(store, partial(opened, kind, path)))
    assert found.value.sentence == sentence
    run(store.close())


def in_each_run(verb: str, quick: tuple[str, ...]) -> Any:
    """A verb as a parameter, of which a few run with every change and the others in campaigns."""
    return pytest.param(verb, marks=() if verb in quick else pytest.mark.campaign)


IN_ONE_RACE = {
    "admit(lease)",
    "charge(Hit, soft quota)",
    "charge(Settle)",
    "charge(Settle, soft quota)",
    "charge(Renew)",
}
"""Verbs whose calls are those of one race, or of two with similar names."""


def broken_by(open_store: Callable[[str, str], Store], verb: str, path: Path) -> Broken:
    store = open_store(verb, str(path / "own.db"))
    with pytest.raises(Broken) as found:
        run(share(store, partial(open_store, verb, str(path / "own.db"))))
    run(store.close())
    return found.value


@pytest.mark.parametrize(
    "verb", [in_each_run(verb, ("charge(HitLeased)", "charge(Renew)")) for verb in LOCKED_VERBS]
)
def test_a_lock_of_the_process_in_one_verb_is_detected(tmp_path: Path, verb: str) -> None:
    broken = broken_by(with_lock_of_the_process, verb, tmp_path)
    if verb in IN_ONE_RACE:
        assert f"processes called {verb[:-1]}" in broken.said


@pytest.mark.parametrize("verb", [in_each_run(verb, ("account",)) for verb in CACHED_VERBS])
def test_a_cache_of_the_process_of_one_verb_is_detected(tmp_path: Path, verb: str) -> None:
    print(broken_by(with_cache_of_the_process, verb, tmp_path))


class RefusesLateRotations(RecordsByVerbs):
    """Takes a key that has changed for one whose successor exists."""

    async def rotate_if(self, *arguments: Any, **options: Any) -> ApiKey | None:
        successor = await super().rotate_if(*arguments, **options)
        if successor is None:
            raise HandleTaken
        return successor


@pytest.mark.campaign
def test_an_error_of_a_race_between_processes_is_told_with_its_race(tmp_path: Path) -> None:
    path = str(tmp_path / "own.db")
    store = opened(RefusesLateRotations, path)
    with pytest.raises(
        Broken, match=r"called rotate_if\(\) at the same time, and it raised Handle"
    ):
        run(share(store, partial(opened, RefusesLateRotations, path)))
    run(store.close())


SCRIPT = """
from lockgate import MemoryStore, run
from lockgate.testing.processes import share

def reopened():
    return MemoryStore()

run(share(MemoryStore(), reopened))
"""


def test_a_function_of_the_script_that_runs_is_refused_with_what_to_do(tmp_path: Path) -> None:
    """The script has no guard: another process that ran it would start processes of its own."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "ConfigurationError: reopen() uses a function or class of the script" in done.stderr
    assert done.stderr.count("Traceback") == 1


def test_a_function_that_cannot_be_pickled_is_refused_with_what_to_do() -> None:
    with pytest.raises(ConfigurationError, match=r"return functools\.partial of a function"):
        run(share(MemoryStore(), lambda: MemoryStore()))  # noqa: PLW0108 - it cannot be pickled


def test_a_store_that_another_process_cannot_open_is_told_without_its_traceback(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(ConfigurationError, match="raised ValueError: invalid literal") as found:
        run(share(MemoryStore(), partial(cast(Any, int), "no store")))
    assert "reopen()" in str(found.value)
    assert capfd.readouterr().err == ""


async def host_time(self: Any = None) -> int:
    """The clock that all processes share, which the kit does not move."""
    return time.clock_gettime_ns(time.CLOCK_REALTIME) // 1000


def with_one_clock(path: str) -> Store:
    records = example().SqliteRecords(path)
    records.now = host_time
    return SlotsUnlocked(records)


@pytest.mark.campaign
def test_a_race_between_processes_with_different_clocks_is_reported_as_a_race(
    tmp_path: Path,
) -> None:
    path = str(tmp_path / "own.db")
    store = with_one_clock(path)
    with pytest.raises(Broken, match="leases were given out by 3 processes") as found:
        run(share(store, partial(with_one_clock, path), skew=300.0))
    assert found.value.sentence == "L1"
    run(store.close())
