"""Rates of other limiters, and the plan, named limit or budget of lockgate that replaces each."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from ..core.plans import SPANS
from ..core.timestamps import SECOND

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "month": 30 * 86_400, "y": 365 * 86_400}
_NAMED: Final = {
    **{"second": 1, "minute": 60, "hour": 3600, "day": 86_400},
    **{"month": _SECONDS["month"], "year": _SECONDS["y"]},
}
"""The seconds of the units of :class:`~lockgate.Limit`."""
_PERIODS: Final = _NAMED["month"], _NAMED["year"]
"""Counted by the calendar: from the first of the month or year on."""
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


Limits = dict[str, int]
"""The limit of each window, by its name in :data:`~lockgate.core.plans.SPANS`."""


def plan_of(uses: Iterable[Use]) -> Limits:
    """Return the windows of the plan: the largest limit of the defaults for each."""
    return _largest(uses, "default")


def anonymous_plan_of(uses: Iterable[Use]) -> Limits:
    """Return the budget of an address for public routes."""
    return _largest(uses, "anonymous")


def _largest(uses: Iterable[Use], kind: Kind) -> Limits:
    limits: Limits = {}
    for use in uses:
        for rate in use.rates or ():
            if use.kind == kind and rate.window is not None and _reason(use) is None:
                limits[rate.window] = max(limits.get(rate.window, 0), rate.limit)
    return limits


def plan_text(name: str, limits: Limits, named: str = "") -> str:
    """Return a plan as code, with named limits."""
    windows = ", ".join(f"{window}={limits.get(window)}" for window in _WINDOWS)
    return f'Plan("{name}", {windows}, concurrent=None{named and f", limits=[{named}]"})'


def translate(uses: Sequence[Use]) -> list[Translation]:
    """Return the replacement of each use: the plan for defaults, named limits for routes."""
    names = Counter[str]()
    plan, anonymous = plan_of(uses), anonymous_plan_of(uses)
    return [_translated(use, plan, anonymous, names) for use in uses]


def _translated(use: Use, plan: Limits, anonymous: Limits, names: Counter[str]) -> Translation:
    reason = _reason(use)
    if reason is not None:
        return Translation(use, None, (reason,))
    if use.kind == "exempt":
        text = f"public={_listed(use.routes)}" if use.routes else "its routes in public="
        budget = "a public route counts on the budget of its client address"
        return Translation(use, text, (*use.notes, budget))
    if use.kind == "anonymous":
        text = f"Gate(anonymous={plan_text('anonymous', anonymous)})"
        budget = "one budget of each client address for all public routes"
        return Translation(use, text, (*use.notes, *_other_spans(use), budget))
    if use.kind == "default":
        longer = [rate for rate in use.rates or () if rate.window is None]
        named = _limit(_name("default", names), longer, "organization") if longer else ""
        text = f"PlanBook([{plan_text('free', plan, named)}])"
        return Translation(use, text, (*use.notes, *_other_spans(use), _OF_PLAN))
    subject, differs = _subject(use)
    limit = _limit(_name(_place(use), names), use.rates or (), subject)
    if use.kind == "route" and use.routes:
        rules = ", ".join(f'"{route}": Rule(limits=[{limit}])' for route in use.routes)
        return Translation(use, f"rules={{{rules}}}", (*use.notes, *differs))
    where = " at each endpoint of the group" if use.kind == "group" else ""
    shared = (_SHARED,) if use.kind == "group" else ()
    return Translation(use, f"requires(limits=[{limit}]){where}", (*use.notes, *differs, *shared))


_OF_PLAN: Final = (
    "an organization has one budget for all routes, whatever its keys and addresses; a route "
    "without keys is listed in public=, and counts on Gate(anonymous=)"
)
_SHARED: Final = "its endpoints share one count: name a limit for each to count them apart"


def _other_spans(use: Use) -> Iterator[str]:
    """Yield the rates that become those of a longer window."""
    for rate in use.rates or ():
        if rate.window is not None and rate.seconds not in _WINDOWS.values():
            yield (
                f"{rate.requests} in {rate.seconds} s becomes {rate.window}={rate.limit}: the same "
                "rate, with larger bursts"
            )


def _subject(use: Use) -> tuple[str, tuple[str, ...]]:
    """Return what the limit of a route counts for, and what differs."""
    if use.counts_by == "address":
        return "address", ()
    if use.counts_by == "user":
        return "organization", ("counted by the key's organization; by='user' counts sessions",)
    told = (
        f"counted by the key's organization instead of {use.counts_by}: or give a function as by="
    )
    return "organization", (told,)


def _limit(name: str, rates: Iterable[Rate], subject: str) -> str:
    """Return a named limit as code."""
    by = "" if subject == "organization" else f', by="{subject}"'
    return f'Limit("{name}", "{";".join(map(_text, rates))}"{by})'


def _text(rate: Rate) -> str:
    """Return a rate in the grammar of :class:`~lockgate.Limit`."""
    unit = next(unit for unit in reversed(_NAMED) if rate.seconds % _NAMED[unit] == 0)
    number = rate.seconds // _NAMED[unit]
    return f"{rate.requests}/{unit}" if number == 1 else f"{rate.requests}/{number} {unit}s"


def _place(use: Use) -> str:
    """Return a word for the place of a use: its route, or its file."""
    path = use.routes[0].partition(" ")[2] if use.routes else use.path.removesuffix(".py")
    words = re.findall(r"[a-z][a-z0-9]*", re.sub(r"[{<].*?[}>]", "", path.lower()))
    return "-".join(words)[:60].strip("-") or "all"


def _name(place: str, names: Counter[str]) -> str:
    """Return a name that no other limit has: each use had its own count."""
    names[place] += 1
    return place if names[place] == 1 else f"{place}-{names[place]}"


def _reason(use: Use) -> str | None:
    """Return why a use has no replacement."""
    if use.kind == "exempt":
        return None
    if not use.rates:
        return "its rate is known at run time only"
    if any(rate.window is None and rate.seconds not in _PERIODS for rate in use.rates):
        return "a window is longer than a day, and neither a month nor a year"
    if use.kind == "anonymous" and any(rate.window is None for rate in use.rates):
        return "the budget of an address counts a day at most"
    if _OF_THE_REQUEST.search(use.counts_by):
        return f"it counts by {use.counts_by}, which is no key, organization or address"
    return None


_OF_THE_REQUEST: Final = re.compile(r"form|json|body|user_?name|e?mail|login|global", re.I)
"""Keys of limiters that stand for a part of the request or for all callers, not for one caller."""


def _listed(routes: Sequence[str]) -> str:
    return str(list(routes)).replace("'", '"')
