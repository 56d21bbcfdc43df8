"""The lockstep walk shrinks a faulty store's failure; several processes detect a wrong clock."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from lockgate import MemoryStore, Plan, Store, run
from lockgate.testing import Broken
from lockgate.testing.checks import Part
from lockgate.testing.processes import share
from lockgate.testing.state_machine import StoreMachine, lockstep
from tests.examples.test_own_store import reopened

from . import mutants_of_keys, mutants_of_slots, mutants_of_windows  # noqa: F401
from .mutants import Mutant, named


@pytest.mark.parametrize(
    ("mutant", "part", "sentence", "calls"),
    [
        ("takes_one_whatever_the_cost", "windows", "W14", 2),
        pytest.param("releases_for_anybody", "slots", "L5", 2, marks=pytest.mark.campaign),
        pytest.param("revokes_once_more", "keys", "D4", 3, marks=pytest.mark.campaign),
    ],
)
def test_a_failing_walk_is_shrunk_to_its_essential_calls(
    mutant: str, part: Part, sentence: str, calls: int
) -> None:
    many = settings(max_examples=2_000, derandomize=True)
    with pytest.raises(Broken) as broken:
        lockstep(named(mutant), parts=[part], profile=many)
    assert broken.value.sentence == sentence
    assert len(broken.value.trace) <= calls


def test_a_walk_accepts_a_store_created_in_an_event_loop() -> None:
    async def make() -> Store:
        return Mutant()

    lockstep(make, profile=settings(max_examples=5))


def test_a_walk_accepts_a_store_that_keeps_a_record_until_those_before_it_are_due() -> None:
    class Machine(StoreMachine):
        make_store = staticmethod(MemoryStore)

    walk: Any = Machine()
    for name, step_back in ("narrow", 1), ("wide", 0):
        walk.place("org_1", Plan(name, 3, 5, 7, concurrent=1), None, None, "user")
        walk.the_clock_steps_back(step_back)
    walk.remove_ended(0)
    walk.place("org_1", Plan("narrow", 3, 5, 7, concurrent=1), None, None, "user")
    walk.teardown()


@pytest.mark.campaign
def test_processes_with_different_clocks_detect_a_store_that_uses_them(tmp_path: Path) -> None:
    """The example uses its host's clock, which is right for a file only."""
    path = str(tmp_path / "own.db")
    store = reopened(path)
    with pytest.raises(Broken, match="whose clocks are 300 s apart") as broken:
        run(share(store, partial(reopened, path), skew=300.0))
    assert broken.value.sentence == "W12"
    run(store.close())
