"""Slots on a SQL database: the machine of the flow, and holders that die or stand still.

On each database the contract is checked."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from lockgate import Store, run
from lockgate.stores.sql import SqlStore
from tests.services.reservations.test_slots import SlotsMachine
from tests.stores.holding import BY_TURNS, hold_to_it

from .backends import BACKENDS

pytestmark = pytest.mark.usefixtures("untraced_processes")

BACKEND = BACKENDS["postgresql"]


@pytest.mark.parametrize(
    ("examples", "steps"), [(3, 20), pytest.param(60, 60, marks=pytest.mark.campaign)]
)
def test_two_processes_share_slots(examples: int, steps: int) -> None:
    class Machine(SlotsMachine):
        def open(self) -> Store:
            return BACKEND.open()

    found = settings(max_examples=examples, stateful_step_count=steps, deadline=None, database=None)
    run_state_machine_as_test(Machine, settings=found)


@BY_TURNS
@pytest.mark.parametrize(
    "kind",
    [
        "postgresql",
        *(pytest.param(kind, marks=pytest.mark.campaign) for kind in ("sqlite", "mysql")),
    ],
)
def test_slots_of_killed_and_stopped_holders_become_free(
    kind: str, stopped: str, killed: str
) -> None:
    backend = BACKENDS[kind]
    own = backend.open()
    hold_to_it(SqlStore, backend.url, own.prefix, stopped, killed)
    run(own.close())
