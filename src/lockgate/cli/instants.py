"""Options that take an instant: a date, a time, a span before or after now, or ``tonight``."""

import click

from ..core.instants import TONIGHT, Instant, read_instant


def read_since(_: click.Context, param: click.Parameter, value: str | None) -> Instant | None:
    """Read ``24h``, or ISO 8601, which is in UTC unless it names a time zone."""
    if value == TONIGHT:
        raise _unreadable(value, param, "24h")
    return None if value is None else _read(value, param, "24h")


def read_end(_: click.Context, param: click.Parameter, value: str | None) -> Instant | None:
    """Read ``tonight``, ``2h``, or ISO 8601, which is in UTC unless it names a time zone."""
    return None if value is None else _read(value, param, "2h or tonight")


def _read(value: str, param: click.Parameter, others: str) -> Instant:
    try:
        return read_instant(value)
    except ValueError:
        raise _unreadable(value, param, others) from None


def _unreadable(value: str, param: click.Parameter, others: str) -> click.BadParameter:
    told = f"{value!r}: write 2026-11-23, 2026-11-23T09:30, {others}"
    return click.BadParameter(told, param=param)
