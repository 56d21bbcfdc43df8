"""Rates of other limiters, and the plan, cost or budget of lockgate that replaces each."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final, Literal, NamedTuple

from ..core.plans import SPANS
from ..core.timestamps import SECOND

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "month": 30 * 86_400, "y": 365 * 86_400}
_WINDOWS: Final = {limit: span // SECOND for limit, (_, span) in SPANS.items()}
_LONGEST: Final = [*_WINDOWS][-1]
EACH: Final = {
    limit: f"{'an' if name == 'hour' else 'a'} {name}" for limit, (name, _) in SPANS.items()
}
"""The window of each limit as a text, such as ``a day`` for ``rpd``."""
_RATE: Final = re.compile(
    r"\s*(\d+)\s*(?:/|per)\s*(\d+)?\s*"
    r"(s(?:ec(?:ond)?)?|month|m(?:in(?:ute)?)?|h(?:our)?|d(?:ay)?|y(?:ear)?)s?\s*",
    re.IGNORECASE,
)

Kind = Literal["route", "group", "default", "anonymous", "exempt"]


class Rate(NamedTuple):
    """A number of requests in a span of seconds."""

    requests: int
    seconds: int

    @property
    def window(self) -> str | None:
        """The shortest window of a plan that contains the span; None: it exceeds the longest."""
        return next((name for name, span in _WINDOWS.items() if self.seconds <= span), None)

    @property
    def limit(self) -> int:
        """The same rate as a limit of that window."""
        span = _WINDOWS[self.window or _LONGEST]
        return max(1, self.requests * span // self.seconds)


def read_rates(text: str) -> tuple[Rate, ...] | None:
    """Read rates as limits and DRF write them: ``"5/minute; 100 per 2 hours"``, ``"10/m"``.

    None: the text is in another notation.
    """
    rates: list[Rate] = []
    for part in re.split(r"[;,|]", text):
        found = _RATE.fullmatch(part)
        if found is None:
            return None
        unit = found[3].lower()
        unit = "month" if unit == "month" else unit[0]
        rates.append(Rate(int(found[1]), int(found[2] or 1) * _SECONDS[unit]))
    return tuple(rates)


@dataclass
class Use:
    """One use of a limiter: a decorator, a dependency, a throttle or a default."""

    path: str
    line: int
    library: str
    source: str
    """Its code, cut."""
    kind: Kind
    rates: tuple[Rate, ...] | None
    """None: known at run time only."""
    routes: tuple[str, ...] = ()
    """The rules of its routes, such as ``GET /models``, below the prefix of their router."""
    counts_by: str = "address"
    """``address``, ``user``, or the code of another key."""
    notes: tuple[str, ...] = ()


class Translation(NamedTuple):
    """A use with its replacement, or with the reason why it has no replacement."""

    use: Use
    replacement: str | None
    differs: tuple[str, ...]
    """What differs; or the reason."""
    is_whole: bool = True
    """Whether each of its rates is replaced."""


Limits = dict[str, int]
"""The limit of each window, by its name in :data:`~lockgate.core.plans.SPANS`."""


def plan_of(uses: Sequence[Use]) -> Limits:
    """Return the plan that the costs are for: the largest limit of each of its windows.

    Its windows are those of the defaults: one that only some routes have would limit all others.
    Without a default they are the windows in which costs replace most rates.
    """
    limits = _largest(uses, ("route", "group", "default"))
    of_all = _largest(uses, ("default",))
    if of_all or not limits:
        return {window: limits[window] for window in of_all}
    rates = [
        rate
        for use in uses
        if use.kind in {"route", "group"} and _reason(use) is None
        for rate in use.rates or ()
    ]
    plans = (
        {window: limits[window] for window in windows}
        for size in range(len(limits), 0, -1)
        for windows in combinations(limits, size)
    )
    return max(plans, key=lambda plan: sum(_lost(rate, plan) is None for rate in rates))


def anonymous_plan_of(uses: Iterable[Use]) -> Limits:
    """Return the budget of an address for public routes."""
    return _largest(uses, ("anonymous",))


def _largest(uses: Iterable[Use], kinds: Sequence[Kind]) -> Limits:
    """Return the largest limit of each window: the plan for which every cost is at least 1."""
    limits: Limits = {}
    for use in uses:
        for rate in use.rates or ():
            if use.kind in kinds and rate.window is not None and _reason(use) is None:
                limits[rate.window] = max(limits.get(rate.window, 0), rate.limit)
    return limits


def plan_text(name: str, limits: Limits) -> str:
    """Return a plan as code."""
    windows = ", ".join(f"{window}={limits.get(window)}" for window in _WINDOWS)
    return f'Plan("{name}", {windows}, concurrent=None)'


def translate(uses: Sequence[Use]) -> list[Translation]:
    """Return the replacement of each use, for one plan for all of them."""
    plan, anonymous = plan_of(uses), anonymous_plan_of(uses)
    of_all = _largest(uses, ("default",))
    return [_translated(use, plan, of_all, anonymous) for use in uses]


def _translated(use: Use, plan: Limits, of_all: Limits, anonymous: Limits) -> Translation:
    reason = _reason(use)
    if reason is not None:
        return Translation(use, None, (reason,), is_whole=False)
    differs = list(use.notes)
    for rate in use.rates or ():
        if rate.seconds not in _WINDOWS.values():
            differs.append(
                f"{rate.requests} in {rate.seconds} s becomes {rate.window}={rate.limit}: the same "
                "rate, with larger bursts"
            )
    if use.kind == "exempt":
        differs.append("a public route counts on the budget of its client address")
        text = f"public={_listed(use.routes)}" if use.routes else "its routes in public="
        return Translation(use, text, tuple(differs))
    if use.kind == "anonymous":
        differs.append("one budget of each client address for all public routes")
        text = f"Gate(anonymous={plan_text('anonymous', anonymous)})"
        return Translation(use, text, tuple(differs))
    if use.counts_by == "address":
        differs.append(
            "counted by the key's organization; a route without keys is listed in public=, and "
            "counts on Gate(anonymous=)"
        )
    elif use.counts_by != "user":
        differs.append(f"counted by the key's organization instead of {use.counts_by}")
    if use.kind == "default":
        differs += _wider(use, plan)
        return Translation(use, f"PlanBook([{plan_text('free', plan)}])", tuple(differs))
    rates = [(rate, _lost(rate, plan)) for rate in use.rates or ()]
    kept = [rate for rate, lost in rates if lost is None]
    lost = [lost for _, lost in rates if lost is not None]
    if not kept:
        return Translation(use, None, tuple(lost), is_whole=False)
    cost = max(_cost(rate, plan) for rate in kept)
    differs.append(
        "the routes of an organization share its windows, in which this one costs "
        f"{cost} unit{'s' if cost > 1 else ''}"
    )
    differs += _tighter(use, cost, plan)
    differs += (
        f"no default has a limit of {EACH[rate.window]}: {rate.window}={plan[rate.window]} of "
        "the plan then holds for all routes together"
        for rate in kept
        if rate.window is not None and rate.window not in of_all
    )
    return Translation(use, _rule(use, cost), (*differs, *lost), is_whole=not lost)


def _cost(rate: Rate, plan: Limits) -> int:
    """Return the units of a request that keep a rate in a plan with its window."""
    return -(-plan[rate.window or _LONGEST] // rate.limit)


def _lost(rate: Rate, plan: Limits) -> str | None:
    """Return why no cost replaces a rate; None: one does."""
    window = rate.window or _LONGEST
    text = f"its limit of {EACH[window]} has no replacement by a cost:"
    if window not in plan:
        return f"{text} {window}= of the plan limits every route"
    cost, smallest = _cost(rate, plan), min(plan, key=plan.__getitem__)
    if cost > plan[smallest]:
        return f"{text} it would cost {cost} units, and the plan has {smallest}={plan[smallest]}"
    return None


def _wider(use: Use, plan: Limits) -> Iterator[str]:
    """Yield the windows in which the plan allows more than a default did."""
    for rate in use.rates or ():
        limit = plan[rate.window or _LONGEST]
        if limit > rate.limit:
            cost = _cost(rate, plan)
            yield (
                f"a route with this default alone gets {limit} in "
                f"{EACH[rate.window or _LONGEST]} at cost 1, which was {rate.limit}; "
                f"at cost {cost} it gets {limit // cost}"
            )


def _tighter(use: Use, cost: int, plan: Limits) -> Iterator[str]:
    """Yield the windows in which one cost for all of them allows less than the old limits did."""
    before = {rate.window: rate.limit for rate in use.rates or ()}
    for window, limit in plan.items():
        now, then = limit // cost, before.get(window)
        if cost > 1 and (then is None or now < then):
            limited = "had no limit of its own" if then is None else f"was {then}"
            often = "once" if now == 1 else f"{now} times"
            yield f"at this cost it may be called {often} in {EACH[window]}, which {limited}"


def _reason(use: Use) -> str | None:
    """Return why a use has no replacement."""
    if use.kind == "exempt":
        return None
    if not use.rates:
        return "its rate is known at run time only"
    if any(rate.window is None for rate in use.rates):
        return "a window is longer than a day, the longest of a plan"
    if _OF_THE_REQUEST.search(use.counts_by):
        return f"it counts by {use.counts_by}, which is no key, organization or address"
    return None


_OF_THE_REQUEST: Final = re.compile(r"form|json|body|user_?name|e?mail|login|global", re.I)
"""Keys of limiters that stand for a part of the request or for all callers, not for one caller."""


def _rule(use: Use, cost: int) -> str:
    if use.kind == "route" and use.routes:
        rules = ", ".join(f'"{route}": Rule(cost={cost})' for route in use.routes)
        return f"rules={{{rules}}}"
    where = " at each endpoint of the group" if use.kind == "group" else ""
    return f"requires(cost={cost}){where}"


def _listed(routes: Sequence[str]) -> str:
    return str(list(routes)).replace("'", '"')
