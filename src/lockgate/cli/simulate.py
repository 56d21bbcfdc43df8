"""``lockgate simulate``: what a plan does to traffic, without any server."""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, Final, TypeVar

import click

from ..core.limits import Limit
from ..core.periods import FIRST
from ..core.plans import LIMITS, Plan, PlanBook
from ..core.timestamps import DAY, HOUR, MINUTE, SECOND, iso8601
from ..errors import ConfigurationError
from ..testing import plot
from ..testing.simulation import Holding, Simulation
from ..testing.simulation import simulate as simulated
from ..testing.trace import Arrival
from .organizations import EACH
from .output import json_option, print_json

F = TypeVar("F", bound=Callable[..., Any])

CALLS_AT_MOST: Final = 1_000_000
START: Final = 20_000 * DAY
"""The first instant of generated traffic, a midnight, in microseconds."""
_UNITS: Final = {"s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY}
_SPANS: Final = {"second": SECOND, "minute": MINUTE, "hour": HOUR, "day": DAY}


def _span(context: click.Context, parameter: click.Parameter, value: str) -> int:
    try:
        return span_of(value)
    except ValueError:
        raise click.BadParameter("use a time such as 90s, 10m, 2h or 3d") from None


def _limits(
    context: click.Context, parameter: click.Parameter, values: Sequence[str]
) -> list[Limit]:
    return [Limit(name.strip(), rates) for name, _, rates in (one.partition("=") for one in values)]


def _rate(context: click.Context, parameter: click.Parameter, value: str) -> tuple[int, int]:
    try:
        return rate_of(value)
    except ValueError:
        raise click.BadParameter("use a rate such as 90/minute or 2/second") from None


def _window_options(command: F) -> F:
    for limit in reversed(EACH):
        text = f"another limit {EACH[limit]}"
        command = click.option(f"--{limit}", type=int, metavar="N", help=text)(command)
    return command


@click.command()
@click.option("--plan", "name", default="free", show_default=True, help="plan to start from")
@_window_options
@click.option("--exact", is_flag=True, help="keep every call apart")
@click.option(
    "--trace", metavar="FILE", help="calls to replay, one time a line; - reads standard input"
)
@click.option(
    "--rate",
    callback=_rate,
    metavar="RATE",
    default="20/minute",
    show_default=True,
    help="calls to make up",
)
@click.option(
    "--for",
    "span",
    callback=_span,
    metavar="SPAN",
    default="1h",
    help="for how long: 90s, 10m, 2h, 3d",
)
@click.option(
    "--pattern",
    type=click.Choice(["steady", "random", "bursts"]),
    default="random",
    show_default=True,
    help="evenly, each call independently, or all at the start of each minute",
)
@click.option("--seed", type=int, default=0, help="for the same random calls again")
@click.option("--svg", metavar="FILE", help="write a picture as well")
@click.option(
    "--limit",
    "named",
    callback=_limits,
    multiple=True,
    metavar="NAME=RATES",
    help="a named limit of these calls, such as export=3/hour; may be repeated",
)
@click.option("--cost", type=click.IntRange(1), help="units of each made-up call (1)")
@click.option(
    "--hold",
    "held",
    callback=_limits,
    multiple=True,
    metavar="NAME=RATES",
    help="a limit that each call holds units of, such as tokens=90000/minute; may be repeated",
)
@click.option("--units", type=click.IntRange(1), help="that a call holds of each such limit (1)")
@click.option("--used", type=click.IntRange(0), help="those that it has used at its end (all)")
@click.option("--lasts", callback=_span, metavar="SPAN", default="10s", help="until a call ends")
@click.option(
    "--starts",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="DATE",
    help="first day of some period of calendar quotas (the first)",
)
@click.option("--zone", default="UTC", show_default=True, help="time zone of calendar quotas")
@click.option("--soft", is_flag=True, help="let calendar quotas admit more than their limit")
@json_option
def simulate(
    name: str,
    trace: str | None,
    rate: tuple[int, int],
    span: int,
    pattern: str,
    seed: int,
    svg: str | None,
    named: list[Limit],
    cost: int | None,
    held: list[Limit],
    units: int | None,
    used: int | None,
    lasts: int,
    starts: datetime | None,
    zone: str,
    *,
    soft: bool,
    exact: bool,
    as_json: bool,
    **limits: int | None,
) -> int:
    """Show what a plan does to traffic.

    With --hold each admitted call holds --units of the limit until it ends, and has then used
    --used of them: the rest is free again. A call whose units do not fit is refused.
    """
    plan = plan_of(name, limits, exact=exact)
    if trace is None:
        arrivals = made_up(pattern, rate, span, seed, cost or 1)
    elif cost is None:
        arrivals = read_trace(trace)
    else:
        raise click.UsageError("--cost is for made-up calls: write a cost behind each of a trace.")
    if not held and (units, used) != (None, None):
        raise click.UsageError("--units and --used are for --hold, such as tokens=90000/minute.")
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")  # Not every terminal has the plot's characters.
    if (soft or zone != "UTC" or starts) and not any(one.quotas for one in (*named, *held)):
        raise ConfigurationError(
            "--starts, --zone and --soft are for calendar quotas, such as --limit "
            "credits=1000000/month."
        )
    day = FIRST if starts is None else starts.date()
    named, held = (
        [
            replace(one, zone=zone, soft=soft, starts=day) if any(one.quotas) else one
            for one in limits
        ]
        for limits in (named, held)
    )
    most = units or 1
    holding = Holding(tuple(held), most, most if used is None else used, lasts) if held else None
    note = f"random traffic of --seed {seed}" if trace is None and pattern == "random" else None
    return run(plan, arrivals, svg, named, holding, note=note, as_json=as_json)


def run(
    plan: Plan,
    arrivals: Iterable[Arrival],
    svg: str | None,
    limits: Sequence[Limit] = (),
    holding: Holding | None = None,
    *,
    note: str | None = None,
    as_json: bool = False,
) -> int:
    """Simulate, draw what the callers saw, and print it below a note.

    Raises:
        ConfigurationError: there are too many calls, or the limits do not fit together.
        OSError: the picture cannot be written.
    """
    calls: list[Arrival] = []
    for arrival in arrivals:
        if len(calls) == CALLS_AT_MOST:
            raise ConfigurationError(f"These are more than {CALLS_AT_MOST:,} calls: take fewer.")
        calls.append(arrival)
    simulation = simulated(plan, calls, limits, holding)
    if svg is not None:
        Path(svg).write_text(plot.svg(simulation), encoding="utf-8")
    if as_json:
        print_json(document(simulation))
        return 0
    if note is not None:
        print(note)
    print(summary(simulation))
    print(plot.terminal(simulation))
    return 0


def document(simulation: Simulation) -> dict[str, Any]:
    """Return the figures of a simulation, for programs."""
    calls, admitted = len(simulation.outcomes), len(simulation.admitted)
    return {
        "plan": simulation.plan.name,
        "calls": calls,
        "admitted": admitted,
        "refused": calls - admitted,
        "longest_wait": -(-simulation.longest_wait // SECOND),
        "windows": [
            {"name": w.name, "limit": w.limit, "worst": w.worst, "refused": w.refused}
            for w in simulation.windows()
        ],
    }


def summary(simulation: Simulation) -> str:
    """Return a text summary of a simulation."""
    calls, admitted = len(simulation.outcomes), len(simulation.admitted)
    share = f" ({100 * admitted / calls:.1f} %)" if calls else ""
    lines = [f"{simulation.plan.name}: {admitted:,} of {calls:,} calls admitted{share}"]
    for window in simulation.windows():
        limit = "no limit" if window.limit is None else f"of {window.limit:,}"
        refused = f", {window.refused:,} refused" if window.refused else ""
        lines.append(f"  any {window.name}: at most {window.worst:,} {limit}{refused}")
    if simulation.longest_wait:
        lines.append(f"  longest wait told: {-(-simulation.longest_wait // SECOND):,} s")
    return "\n".join(lines)


def plan_of(name: str, limits: dict[str, int | None], *, exact: bool) -> Plan:
    """Return a plan of the default book by its name, with some limits replaced.

    Limits that are not replaced remain those of the plan. The new plan's name lists the changes.

    Raises:
        ConfigurationError: no such plan, or a limit that is out of range.
    """
    book = PlanBook()
    given = dict.fromkeys(LIMITS) if name in book.custom else dict[str, int | None]()
    changed = {name: limit for name, limit in limits.items() if limit is not None}
    plan = book.plan_of(book.place("simulated", name, given | changed), now=0)
    resolution = None if exact else plan.resolution
    full_name = "-".join([plan.name, *(f"{name}{limit}" for name, limit in changed.items())])
    return replace(plan, name=full_name, resolution=resolution)


def made_up(
    pattern: str, rate: tuple[int, int], span: int, seed: int, cost: int = 1
) -> Iterator[Arrival]:
    """Generate traffic of a rate for a span of time.

    Args:
        pattern: ``steady`` (evenly), ``random`` (independent calls, a Poisson process) or
            ``bursts`` (all calls of a period at its start).
        rate: the number of calls in a period, and the period in microseconds.
        span: the duration, in microseconds.
        seed: seeds ``random``, for repeatable traffic.
        cost: the units of each call.
    """
    times, unit = rate
    if pattern == "steady":
        yield from (
            Arrival(START + number * unit // times, cost) for number in range(times * span // unit)
        )
    elif pattern == "bursts":
        yield from (Arrival(START + at, cost) for at in range(0, span, unit) for _ in range(times))
    else:
        random = Random(seed)  # noqa: S311 - traffic is no secret
        at = random.expovariate(times / unit)
        while at < span:
            yield Arrival(START + int(at), cost)
            at += random.expovariate(times / unit)


def read_trace(path: str) -> Iterator[Arrival]:
    """Yield the calls in a file, one a line: Unix seconds or ISO 8601, then optionally ``,cost``.

    Raises:
        ConfigurationError: a line has another form; the message names the line.
        OSError: the file cannot be read.
    """
    if path == "-":
        yield from _arrivals(sys.stdin)
        return
    # Bytes that are not UTF-8 are replaced: the line then fails to parse and is reported.
    with Path(path).open(encoding="utf-8", errors="replace") as lines:
        yield from _arrivals(lines)


def _arrivals(lines: Iterable[str]) -> Iterator[Arrival]:
    for number, line in enumerate(lines, start=1):
        when, _, cost = line.strip().partition(",")
        if not when or when.startswith("#"):
            continue
        try:
            yield Arrival(_instant(when), int(cost or 1))
        except (ValueError, OverflowError):
            raise ConfigurationError(
                f"Line {number} of the trace is no time and cost: {line.strip()[:60]!a}. Write "
                f"Unix seconds or ISO 8601, as {iso8601(START)}, then maybe a comma and a cost."
            ) from None


def rate_of(text: str) -> tuple[int, int]:
    """Parse a rate such as ``90/minute`` into calls and a period in microseconds.

    Raises:
        ValueError: the text is not a rate.
    """
    found = re.fullmatch(r"([1-9][0-9]{0,8})/(second|minute|hour|day)", text)
    if found is None:
        raise ValueError(text)
    return int(found[1]), _SPANS[found[2]]


def span_of(text: str) -> int:
    """Parse ``90s``, ``10m``, ``2h`` or ``3d`` into microseconds.

    Raises:
        ValueError: the text has another form.
    """
    found = re.fullmatch(r"([1-9][0-9]{0,5})([smhd])", text)
    if found is None:
        raise ValueError(text)
    return int(found[1]) * _UNITS[found[2]]


def _instant(text: str) -> int:
    if re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,6})?", text):
        seconds, _, micros = text.partition(".")
        return int(seconds) * SECOND + int(micros.ljust(6, "0"))
    time = datetime.fromisoformat(text)
    time = time if time.tzinfo else time.replace(tzinfo=UTC)
    return (time - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)
