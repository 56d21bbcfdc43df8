"""Named limits: their arguments, and those of a rule and of a key."""

from typing import Any, cast

import pytest

from lockgate import ConfigurationError, Gate, Plan, Rule, run
from lockgate.core.limit_windows import span_of
from lockgate.core.limits import Limit, bound, check_limits, check_names, read_own_limits
from lockgate.core.sliding_window import Window
from lockgate.core.timestamps import DAY, HOUR, MINUTE
from lockgate.options import StoreOptions
from lockgate.starlette import requires


@pytest.mark.parametrize("wrong", [5, None, b"3/hour", ["3/hour"]], ids=repr)
def test_a_value_of_another_type_is_no_limit(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"rates is .* give text"):
        Limit("export", wrong)
    with pytest.raises(ConfigurationError, match=r"name is .* give text"):
        Limit(wrong, "3/hour")
    for limits in ({"export": wrong}, {"export": "3/hour", 7: "3/hour"}):
        assert read_own_limits(cast("Any", limits))[1]


@pytest.mark.parametrize("wrong", ["export=3/hour", ["export=3/hour"], 5], ids=repr)
def test_limits_of_a_key_that_are_no_mapping_are_told(wrong: Any) -> None:
    expected = "Write each limit as its name and its rates, as in {'export': '3/hour'}."
    assert read_own_limits(wrong) == ((), [expected])


EXPORT = Limit("export", "3/hour")


@pytest.mark.parametrize("wrong", [EXPORT, None, "3/hour", b"3/hour", {EXPORT: 1}, 3], ids=str)
def test_limits_that_are_no_list_are_told(wrong: Any) -> None:
    gate = Gate("memory://", brand="acme")
    for make in (
        lambda: Rule(limits=wrong),
        lambda: requires("jobs:read", limits=wrong),
        lambda: Plan("free", rpm=1, rph=1, rpd=1, concurrent=1, limits=wrong),
        lambda: StoreOptions(hold_limits=wrong),
        lambda: run(gate.authenticate("a key", limits=wrong)),
        lambda: run(gate.explain("org_1", limits=wrong)),
    ):
        with pytest.raises(ConfigurationError, match=r"limits is .* list "):
            make()


@pytest.mark.parametrize("wrong", ["no", 1, None], ids=repr)
def test_soft_is_true_or_false(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"soft is .* give True or False"):
        Limit("export", "3/month", soft=wrong)


def test_a_limit_checks_name_subject_and_resolution() -> None:
    for name in ("", "Export", "1st", "a" * 65, "an export", "export\n"):
        with pytest.raises(ConfigurationError, match="name it"):
            Limit(name, "3/hour")
    with pytest.raises(ConfigurationError, match="by 'planet'"):
        Limit("export", "3/hour", by=cast("Any", "planet"))
    resolutions: tuple[Any, ...] = (0, 3601, True, 1.5)
    for resolution in resolutions:
        with pytest.raises(ConfigurationError, match="resolution"):
            Limit("export", "3/hour", resolution=resolution)
    limit = Limit("export", "3/hour", by="key")
    assert limit == Limit("export", "3/hour", by="key") != Limit("export", "3/hour")
    assert str(limit) == "export 3/hour by key"
    assert limit.windows == (Window("hour", HOUR, 3, MINUTE),)
    assert Limit("export", "3/hour", resolution=None).windows[0].grain == 0


def test_the_limits_of_a_rule_are_few_and_have_names_of_their_own() -> None:
    some = [Limit(f"limit-{number}", "1/second;1/day") for number in range(5)]
    check_limits(some[:4])
    for wrong, message in (
        (some, "at most 4 limits"),
        ([Limit("a", "1/second;1/minute;1/hour;1/day"), *some[:3]], "8 windows"),
        ([some[0], some[0]], "twice"),
        (["3/hour"], "write Limit"),
        ([Limit("a", "1/day"), Limit("a", "2/day")], "Two limits are called 'a'"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            check_limits(wrong)
    assert check_names([some[0], some[1], some[0]]) == {"limit-0": some[0], "limit-1": some[1]}


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
