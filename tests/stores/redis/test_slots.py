"""Slots on Redis: the machine of the flow, and holders that die or stand still."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from lockgate import Store
from lockgate.stores.redis import RedisStore
from tests.services.reservations.test_slots import SlotsMachine
from tests.stores.holding import BY_TURNS, hold_to_it

from .backends import server

pytestmark = pytest.mark.usefixtures("untraced_processes")


@pytest.mark.parametrize(
    ("examples", "steps"), [(3, 20), pytest.param(60, 60, marks=pytest.mark.campaign)]
)
def test_two_processes_share_the_slots(
    backend: Callable[[], RedisStore], examples: int, steps: int
) -> None:
    class Machine(SlotsMachine):
        def open(self) -> Store:
            return backend()

    found = settings(max_examples=examples, stateful_step_count=steps, deadline=None, database=None)
    run_state_machine_as_test(Machine, settings=found)


@BY_TURNS
@pytest.mark.parametrize("kind", ["single", "cluster"])
def test_holders_that_die_or_stand_still(kind: str, stopped: str, killed: str) -> None:
    hold_to_it(RedisStore, server(kind).url(), f"holding-{uuid4().hex}", stopped, killed)
