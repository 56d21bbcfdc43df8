"""The grammar of rates."""

import pytest

from lockgate import ConfigurationError
from lockgate.core.limits import Limit
from lockgate.core.rates import read_rates
from lockgate.core.timestamps import DAY, HOUR, MINUTE, SECOND


@pytest.mark.parametrize(
    ("text", "rates"),
    [
        ("3/hour", [("hour", HOUR, 3)]),
        ("100 per minute", [("minute", MINUTE, 100)]),
        ("1/15 minutes", [("15 minutes", 15 * MINUTE, 1)]),
        ("1/15minute", [("15 minutes", 15 * MINUTE, 1)]),
        ("5/second;100/day", [("second", SECOND, 5), ("day", DAY, 100)]),
        ("10/hour, 2 per 2 seconds | 1/day", None),
        (" 7 PER 1 Days ", [("day", DAY, 7)]),
        ("200 per day", [("day", DAY, 200)]),
        ("1/24 hours", [("24 hours", DAY, 1)]),
    ],
)
def test_rates_are_read_as_users_of_other_limiters_write_them(
    text: str, rates: list[tuple[str, int, int]] | None
) -> None:
    if rates is None:
        rates = [("hour", HOUR, 10), ("2 seconds", 2 * SECOND, 2), ("day", DAY, 1)]
    assert [rate[:3] for rate in read_rates(text, "It")] == rates


@pytest.mark.parametrize(
    "text",
    [
        *("", "3", "hour", "/hour", "3/", "0/hour", "-1/hour", "3/week", "3/3 months", "3/2 days"),
        *("25/25 hours", "3/0 hours", "1.5/hour", "3/hour;", "3/hour;;4/day", "3 hour", "3perhour"),
        *("3/month;4 per month", "3/calendar hour", "3/2 calendar days", "3/fortnight"),
        *("99999999999999999/hour", "3/hour;4/60 minutes", "\u0663/hour", "3/hour\n4/day"),
    ],
)
def test_a_rate_that_cannot_be_read_is_refused_with_the_grammar(text: str) -> None:
    with pytest.raises(ConfigurationError, match="limit 'export'"):
        Limit("export", text)
