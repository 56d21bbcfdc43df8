"""The checks of a store's lifecycle follow the longest window of plans."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lockgate import MemoryStore, run
from lockgate.core.timestamps import DAY
from lockgate.stores.memory import generations, limits, windows
from lockgate.testing.certify import hold
from lockgate.testing.checks import Check, Leftovers, forgets, forgets_limits, lifecycle

from .test_mutants import leftovers


@pytest.mark.parametrize("make", [forgets, forgets_limits])
@pytest.mark.parametrize("days", [1, 7, 12])
def test_a_store_may_keep_idle_state_by_the_longest_window_of_plans_W10(
    make: Callable[[Leftovers], Check], days: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (generations, limits, windows, lifecycle):
        monkeypatch.setattr(module, "LONGEST_SPAN", days * DAY)
    run(hold(make(leftovers), MemoryStore()))
