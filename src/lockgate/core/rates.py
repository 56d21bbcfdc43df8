"""Rates: the grammar of named limits, such as ``"3/hour"`` or ``"1000000/month"`` (D40)."""

import re
from typing import Final, NamedTuple

from ..errors import ConfigurationError
from .periods import LONGEST, NAMES, UNITS, Unit
from .sliding_window import LARGEST
from .timestamps import DAY, HOUR, MINUTE, SECOND

_UNITS: Final = {"second": SECOND, "minute": MINUTE, "hour": HOUR, "day": DAY}
_RATE: Final = re.compile(
    r"\s*(\d{1,16})\s*(?:/|\s+per\s+)\s*(\d{0,5})\s*(calendar\s+)?([a-z]+?)s?\s*",
    re.IGNORECASE | re.ASCII,
)
_GRAMMAR: Final = (
    "write a number, '/' or 'per', and second, minute, hour or day, as in '3/hour', "
    "'100 per minute', '1/15 minutes' or '5/second;100/day'; or one month, year, calendar week or "
    "calendar day, as in '1000000/month'"
)


class Rate(NamedTuple):
    """One rate of a limit."""

    name: str
    span: int
    """Microseconds; of a period the longest, clock changes aside."""
    amount: int
    unit: Unit | None
    """The kind of period; None: a sliding window."""


def read_rates(text: str, what: str) -> list[Rate]:
    """Return the rates of a text.

    Raises:
        ConfigurationError: the text cannot be read; ``what`` begins the message.
    """
    rates = [_read_rate(part, what) for part in re.split(r"[;,|]", text)]
    if len({rate.unit or rate.span for rate in rates}) < len(rates):
        raise ConfigurationError(f"{what} has two rates for one span: {text!r}. Take one out.")
    return rates


def _read_rate(part: str, what: str) -> Rate:
    rate = _RATE.fullmatch(part)
    word = "" if rate is None else rate[4].lower()
    unit = next((one for one in UNITS if one == word), None)
    slides = word in _UNITS and (rate is None or not rate[3])
    if rate is None or not (slides or unit in ("month", "year") or (unit and rate[3])):
        raise ConfigurationError(f"{what} has the rate {part.strip()!r}: {_GRAMMAR}.")
    amount, number = int(rate[1]), int(rate[2] or 1)
    if not 1 <= amount <= LARGEST:
        raise ConfigurationError(f"{what} admits {amount}: use 1 to 2**53 - 1.")
    if unit is not None and not slides:
        if number != 1:
            raise ConfigurationError(
                f"{what} has a period of {part.strip()!r}: a calendar quota counts one {unit}."
            )
        return Rate(NAMES[unit], LONGEST[unit], amount, unit)
    span = number * _UNITS[word]
    if not 1 <= span <= DAY:
        raise ConfigurationError(f"{what} has a window of {part.strip()!r}: use a second to a day.")
    return Rate(word if number == 1 else f"{number} {word}s", span, amount, None)
