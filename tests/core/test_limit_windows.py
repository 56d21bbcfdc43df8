"""The fields of named limits."""

from lockgate.core.limit_windows import span_of
from lockgate.core.limits import Limit, bound
from lockgate.core.timestamps import DAY, HOUR, MINUTE


def test_fields_name_limit_span_and_key() -> None:
    limits = Limit("one", "3/hour;4/day"), Limit("two", "1/15 minutes", by="key")
    found = bound(limits, "the-id")
    assert found is not None
    assert found.names == ("one", "one", "two")
    assert found.fields == ("one 3600", "one 86400", "two 900 the-id")
    assert found.windows == (*limits[0].windows, *limits[1].windows)
    assert [span_of(field) for field in found.fields] == [HOUR, DAY, 15 * MINUTE]
    session = bound(limits, None)
    assert session is not None
    assert session.fields == found.fields[:2]
    assert bound(limits[1:], None) is None
