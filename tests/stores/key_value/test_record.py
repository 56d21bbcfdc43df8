"""How long the record of an organization without keys is kept."""

from __future__ import annotations

from datetime import UTC, datetime

from lockgate.core.holds import Settle, Take, budgets
from lockgate.core.ledger import Hit, HitLeased
from lockgate.core.limits import Limit, bound
from lockgate.core.sliding_window import Window
from lockgate.core.timestamps import DAY, HOUR, SECOND
from lockgate.stores.key_value.record import Record

MARCH = int(datetime(2024, 3, 1, tzinfo=UTC).timestamp()) * SECOND


def test_the_count_of_a_calendar_quota_is_kept_until_its_period_ends_W1() -> None:
    """It was dropped on the third day of the month, as all of the month is one cell."""
    now = MARCH + 20 * DAY
    named = bound((Limit("credits", "100/month"),), None)
    assert named is not None
    charged, held = Record(), Record()
    charged.charge(Hit((), 1, named), "org_1", now)
    limits, id = budgets(named), f"{1:032x}"
    held.charge(Take(id, limits, (1,), HOUR, 9), "org_1", now)
    held.charge(Settle(id, limits.fields, (1,), limits.quotas), "org_1", now)
    for record in (charged, held):
        until = record.until()
        assert until is not None and until >= MARCH + 31 * DAY


def test_a_window_is_kept_for_a_day_after_its_last_hit_has_left_W10() -> None:
    record = Record()
    named = bound((Limit("export", "3/hour"),), None)
    record.charge(Hit((), 1, named), "org_1", MARCH)
    assert record.until() == MARCH + HOUR + DAY


def test_a_record_keeps_promises_and_is_without_them_as_before_P4() -> None:
    windows = (Window("minute", 60 * SECOND, 1, SECOND),)
    record, without = Record(), Record()
    for holder, one in (("key", record), ("", without)):
        for _ in range(2):
            one.charge(HitLeased(windows, 1, None, None, holder), "org_1", MARCH)
    assert Record.read(record.written()) == record
    assert [promise.owner for promise in record.ledger.promises] == ["key"]
    assert without.written() is not None
    record.ledger = record.ledger._replace(promises=())
    assert record.written() == without.written()
