"""Calendar quotas while the store is away: decided by shares, charged and told afterwards."""

from __future__ import annotations

from lockgate import Event, Limit, MemoryStore, run
from lockgate.core.ledger import Peek
from lockgate.core.limits import bound
from lockgate.core.timestamps import DAY, SECOND
from lockgate.events import Events
from lockgate.stores.resilience.local_limits import LocalLimits

MARCH = 1_709_251_200 * SECOND


def test_local_admissions_are_charged_to_their_period_alone_and_told_by_the_charge() -> None:
    told: list[Event] = []
    named = bound((Limit("credits", "10/month"),), None)
    store, local = MemoryStore(), LocalLimits("local", 1, Events(told.append))
    for at, admitted in ((MARCH - DAY, 8), (MARCH - 1, 2)):
        for _ in range(admitted):
            reading = local.decide("org_1", (), 1, at, limits=named)
            assert reading is not None
            assert reading.allowed
    refused = local.decide("org_1", (), 1, MARCH - 1, limits=named)
    assert refused is not None
    assert (refused.allowed, refused.wait) == (False, 1)
    assert [event for event in told if event.name == "quota_threshold"] == []

    run(local.flush("org_1", (), store.charge, MARCH))  # A period later it owes nothing.
    assert run(store.charge("org_1", Peek((), named), MARCH - 1)).used == (0,)
    for _ in range(9):
        local.decide("org_1", (), 1, MARCH, limits=named)
    run(local.flush("org_1", (), store.charge, MARCH + DAY))
    assert run(store.charge("org_1", Peek((), named), MARCH + DAY)).used == (9,)
    marks = [event.fields for event in told if event.name == "quota_threshold"]
    assert [(fields["share"], fields["used"]) for fields in marks] == [(80, 9)]
