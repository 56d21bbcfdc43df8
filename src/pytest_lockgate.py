"""The pytest plugin of lockgate: a gate for tests, with an organization on each of its plans.

pytest loads this module wherever lockgate is installed, so it lies beside the package and imports
nothing of it before a test asks for a fixture: other test runs pay nothing, and a measurement of
lockgate's coverage sees it imported in time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from lockgate import Gate
    from lockgate.testing import HandClock, Tenant


@pytest.fixture
def lockgate_clock() -> HandClock:
    """The clock of ``lockgate_gate``: it stands still until the test moves it."""
    from lockgate.testing import HandClock

    return HandClock()


@pytest.fixture
def lockgate_options() -> Mapping[str, Any]:
    """Arguments for the ``Gate`` of ``lockgate_gate``; override it to give your own."""
    return {}


@pytest.fixture
def lockgate_gate(lockgate_clock: HandClock, lockgate_options: Mapping[str, Any]) -> Iterator[Gate]:
    """A gate in memory with ``lockgate_clock`` as its clock and signed sessions."""
    from lockgate import Gate, run
    from lockgate.testing.fixtures import settings

    gate = Gate(**settings(lockgate_clock, lockgate_options))
    yield gate
    run(gate.close())


@pytest.fixture
def lockgate_tenants(lockgate_gate: Gate) -> Mapping[str, Tenant]:
    """An organization on each plan of ``lockgate_gate``, by the plan's name, with a key and a
    session."""
    from lockgate import run
    from lockgate.testing import furnish

    return run(furnish(lockgate_gate))
