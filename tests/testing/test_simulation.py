"""A simulation decides as the store does; its plots agree."""

from __future__ import annotations

from xml.etree import ElementTree as Tree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockgate import ConfigurationError, Gate, Limit, MemoryStore, Plan, run
from lockgate.core.ledger import Hit
from lockgate.core.plans import FREE
from lockgate.core.timestamps import DAY, SECOND
from lockgate.errors import RateLimitExceeded
from lockgate.options import StoreOptions
from lockgate.testing import Arrival, HandClock, Holding, assert_never_exceeds, plot, simulate
from lockgate.testing.factories import OPEN
from lockgate.testing.strategies import arrivals, plans


@given(plans(), arrivals())
def test_a_simulation_equals_the_answers_of_a_store(plan: Plan, trace: list[Arrival]) -> None:
    store = MemoryStore()
    simulation = simulate(plan, trace)
    for outcome in simulation.outcomes:
        at, cost = outcome.arrival
        assert run(store.charge("org_1", Hit(plan.windows, cost), at)) == outcome.reading
    assert len(simulation.admitted) + len(simulation.refused) == len(trace)
    for window, usage in zip(plan.windows, simulation.windows(), strict=True):
        if window.limit is not None:
            assert_never_exceeds(simulation.admitted, window.limit, window.span)
            assert usage.worst <= window.limit
    assert sum(usage.refused for usage in simulation.windows()) == len(simulation.refused)


@given(plans(), arrivals())
def test_the_timeline_holds_every_call(plan: Plan, trace: list[Arrival]) -> None:
    simulation = simulate(plan, trace)
    parts = simulation.timeline(20)
    assert len(parts) <= 20
    assert sum(part.admitted for part in parts) == len(simulation.admitted)
    assert sum(part.refused for part in parts) == len(simulation.refused)


def test_a_cost_is_at_least_one() -> None:
    with pytest.raises(ConfigurationError, match="at least 1, not 0"):
        simulate(FREE, [Arrival(1, 0)])


@given(arrivals(), st.integers(1, 40), st.integers(0, 50), st.integers(0, 90))
def test_holds_of_a_simulation_equal_those_of_a_store(
    trace: list[Arrival], units: int, used: int, seconds: int
) -> None:
    tokens = Limit("tokens", "100/minute;150/15 minutes")
    span = seconds * SECOND
    simulation = simulate(OPEN, trace, (), Holding((tokens,), units, used, span))
    clock = HandClock(0)
    options = StoreOptions(hold_seconds=3600, clock=clock)
    gate = Gate(MemoryStore(), brand="acme", store_options=options)
    ends: list[tuple[int, str]] = []

    def settle(until: int) -> None:
        while ends and ends[0][0] <= until:
            clock.now, id = ends.pop(0)
            assert run(gate.holds.settle(id, used))

    for outcome in simulation.outcomes:
        assert outcome.reading.allowed and outcome.hold is not None
        settle(outcome.arrival.at)
        clock.now = outcome.arrival.at
        if outcome.allowed:
            ends.append((clock.now + span, run(gate.holds.take("org_1", {tokens: units})).id))
        else:
            with pytest.raises(RateLimitExceeded) as refused:
                run(gate.holds.take("org_1", {tokens: units}))
            assert refused.value.held in outcome.hold.units
        usage = run(gate.holds.usage("org_1"))
        assert tuple(one.used for one in usage) == outcome.hold.used
    assert sum(one.refused for one in simulation.windows()) == len(simulation.refused)


@pytest.mark.parametrize(
    "holding",
    [
        Holding((), 1, 1, 0),
        Holding((Limit("logins", "5/minute", by="address"),), 1, 1, 0),
        Holding((Limit("tokens", "5/minute"),), 0, 0, 0),
        Holding((Limit("tokens", "5/minute"),), 1, -1, 0),
    ],
)
def test_holds_that_no_gate_takes_are_refused(holding: Holding) -> None:
    with pytest.raises(ConfigurationError, match="A hold takes"):
        simulate(FREE, [1], (), holding)


def test_the_plots_show_the_simulation() -> None:
    simulation = simulate(FREE, range(0, 1200 * SECOND, 4 * SECOND))
    text = plot.terminal(simulation)
    assert "minute used |\u2584\u2588" in text
    assert "full block: 5 calls" in text
    document = plot.svg(simulation)
    root = Tree.fromstring(document)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    words = {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"admitted", "refused", "minute", "hour", "day"} <= words
    assert "<script" not in document
    assert document.count("http") == document.count("http://www.w3.org/")


def test_a_simulation_without_calls_is_plotted() -> None:
    simulation = simulate(FREE, [])
    assert simulation.longest_wait == 0
    assert plot.terminal(simulation) == "Nobody called."
    Tree.fromstring(plot.svg(simulation))


def test_the_clock_moves_by_hand() -> None:
    clock = HandClock(0)
    assert clock.move(1.5) == clock() == clock.now == 1_500_000
    assert clock.move(minutes=1, hours=1, days=-1) == 1_500_000 + 3_660 * SECOND - DAY
    assert repr(clock) == f"HandClock({clock.now})"
