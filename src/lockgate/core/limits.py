"""Named limits: sliding windows beside those of the plan (D40).

A :class:`Limit` has a name, one or several rates, and the subject that it counts for. A rule names
limits for its requests, a plan for all requests of its organizations, and a key has limits of its
own, kept with the key. Where the subject belongs to an organization (the organization as a whole,
or each of its keys), a request is judged by the plan's windows and those of all such limits
together: all of them are charged, or none is (W9).

Other subjects are outside of any organization: a client's address, the user of a session, or a text
that a function of the host returns for a request. Such a limit is judged first, by itself.

Stores keep the cells of such a window by its *field*, a text that names the limit, the span and,
for a window of a key, the key. So the numbers of a limit may change while its hits stay counted
(W13), and a process that does not know a limit never touches its state.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple, get_args

from ..errors import ConfigurationError
from .sliding_window import EMPTY, LARGEST, Cells, Reading, State, Window, hit, peek, settled
from .timestamps import DAY, HOUR, MINUTE, SECOND

Subject = Literal["organization", "key", "address", "user"]
"""What a limit counts for."""

DEFAULT_RESOLUTION: Final = 60
LIMITS_AT_MOST: Final = 4
WINDOWS_AT_MOST: Final = 8
"""The most named limits of one rule, plan or key, and the most windows that these have together."""
FIELDS_AT_MOST: Final = 10_000
"""The most fields of an organization. Past it a subject that is not counted yet is refused."""
FIELD_LENGTH: Final = 128
"""The most characters of a field, all of them ASCII."""

_SWEPT: Final = 2
_UNITS: Final = {"second": SECOND, "minute": MINUTE, "hour": HOUR, "day": DAY}
_RATE: Final = re.compile(
    r"\s*(\d{1,16})\s*(?:/|\s+per\s+)\s*(\d{0,5})\s*([a-z]+?)s?\s*", re.IGNORECASE | re.ASCII
)
NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}")
"""Matches the name of a limit, or of a plan."""
_GRAMMAR: Final = (
    "write a number, '/' or 'per', and second, minute, hour or day, as in '3/hour', "
    "'100 per minute', '1/15 minutes' or '5/second;100/day'"
)


OwnLimits = tuple[tuple[str, str], ...]
"""The names and rates of the limits that a key has of its own, in the order of the names."""


class LimitWindows(NamedTuple):
    """The windows of named limits for one request, its subjects known."""

    names: tuple[str, ...]
    """The name of the limit of each window."""
    fields: tuple[str, ...]
    """Under which a store keeps the cells of each window."""
    windows: tuple[Window, ...]


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit of its own for some requests, beside the plan of their organization (D40).

    Args:
        name: 1 to 64 of ``a-z``, ``0-9``, ``-`` and ``_``, a letter first. Rules with the same
            name share one count, and must write the limit alike.
        rates: one or several rates, separated by ``;``, ``,`` or ``|``, in the grammar of limits,
            slowapi and Flask-Limiter: ``"3/hour"``, ``"100 per minute"``, ``"1/15 minutes"``,
            ``"5/second;100/day"``. Each is an exact sliding window of a second to a day.
        by: the subject. ``organization``, or each ``key`` of it; each client ``address``, an IPv6
            client by its /64, with or without a key; each ``user`` of a session; or a function that
            takes the request, a :class:`~lockgate.web.request.RequestView`, and returns a text to
            count for, None for a request that does not count. It may be called more than once, is
            called before the credential is verified, and must not wait.
        resolution: into how many parts a busy window is divided, as in
            :class:`~lockgate.Plan`; None stores every hit.

    Raises:
        ConfigurationError: the name, the rates, the subject or the resolution cannot be read.
    """

    name: str
    rates: str
    by: Subject | Callable[[Any], str | None] = "organization"
    resolution: int | None = DEFAULT_RESOLUTION
    windows: tuple[Window, ...] = field(init=False, repr=False, compare=False)
    """The windows, each named as ``limits.type`` of a refusal tells it."""

    def __post_init__(self) -> None:
        """Check the arguments, and compute the windows once for all requests."""
        if not NAME.fullmatch(self.name):
            raise ConfigurationError(
                f"The limit {self.name!r}: name it with at most 64 of a-z, 0-9, '-' and '_', a "
                "letter first."
            )
        if not callable(self.by) and self.by not in get_args(Subject):
            raise ConfigurationError(
                f"The limit {self.name!r} is by {self.by!r}: use 'organization', 'key', 'address', "
                "'user' or a function of the request."
            )
        if self.resolution is not None and (
            type(self.resolution) is not int or not 1 <= self.resolution <= 3600
        ):
            raise ConfigurationError(
                f"The resolution of limit {self.name!r} is a whole number from 1 to 3600, or None."
            )
        windows = tuple(
            Window(name, span, amount, span // self.resolution if self.resolution else 0)
            for name, span, amount in read_rates(self.rates, f"The limit {self.name!r}")
        )
        object.__setattr__(self, "windows", windows)

    def __str__(self) -> str:
        return f"{self.name} {self.rates} by {self.subject}"

    @property
    def subject(self) -> Subject | Literal["function"]:
        """What it counts for, in a word."""
        return "function" if callable(self.by) else self.by

    @property
    def is_inside(self) -> bool:
        """Whether its subject belongs to an organization, so that the plan is judged with it."""
        return self.by in ("organization", "key")


def read_rates(text: str, what: str) -> list[tuple[str, int, int]]:
    """Return the rates of a text: the name of each window, its span in microseconds, its limit.

    Raises:
        ConfigurationError: the text cannot be read; ``what`` begins the message.
    """
    rates: list[tuple[str, int, int]] = []
    for part in re.split(r"[;,|]", text):
        rate = _RATE.fullmatch(part)
        unit = None if rate is None else _UNITS.get(rate[3].lower())
        if rate is None or unit is None:
            raise ConfigurationError(f"{what} has the rate {part.strip()!r}: {_GRAMMAR}.")
        amount, number = int(rate[1]), int(rate[2] or 1)
        if not 1 <= amount <= LARGEST:
            raise ConfigurationError(f"{what} admits {amount}: use 1 to 2**53 - 1.")
        if not 1 <= number * unit <= DAY:
            raise ConfigurationError(
                f"{what} has a window of {part.strip()!r}: use a second to a day."
            )
        name = rate[3].lower()
        rates.append((name if number == 1 else f"{number} {name}s", number * unit, amount))
    if len({span for _, span, _ in rates}) < len(rates):
        raise ConfigurationError(f"{what} has two rates for one span: {text!r}. Take one out.")
    return rates


def check_limits(limits: Sequence[object]) -> None:
    """Check the limits of one rule, plan or key.

    Raises:
        ConfigurationError: one is no :class:`Limit`, two have the same name, or there are too many.
    """
    named = [limit for limit in limits if isinstance(limit, Limit)]
    if len(named) < len(limits):
        wrong = next(limit for limit in limits if not isinstance(limit, Limit))
        raise ConfigurationError(
            f"The limit {wrong!r} is none: write Limit('export', '3/hour', by='key')."
        )
    check_names(named)
    if len({limit.name for limit in named}) < len(named):
        raise ConfigurationError(f"One limit is named twice: {', '.join(map(str, named))}.")
    if len(named) > LIMITS_AT_MOST or sum(len(one.windows) for one in named) > WINDOWS_AT_MOST:
        raise ConfigurationError(
            f"A rule, a plan and a key have at most {LIMITS_AT_MOST} limits with {WINDOWS_AT_MOST} "
            f"windows together: {', '.join(map(str, named))}."
        )


def check_names(limits: Iterable[Limit]) -> dict[str, Limit]:
    """Return limits by name.

    Raises:
        ConfigurationError: two different limits have the same name, so they would share a count.
    """
    found: dict[str, Limit] = {}
    for limit in limits:
        if found.setdefault(limit.name, limit) != limit:
            raise ConfigurationError(
                f"Two limits are called {limit.name!r}: {found[limit.name]} and {limit}. Rename "
                "one, or write them alike to share one count."
            )
    return found


def read_own_limits(limits: Mapping[str, str]) -> tuple[OwnLimits, list[str]]:
    """Return the limits of a key in the order of their names, and their problems.

    Args:
        limits: the rates of each limit, by its name, in the grammar of :class:`Limit`.
    """
    own = tuple(sorted(limits.items()))
    try:
        check_limits(_read_own(own))
    except ConfigurationError as wrong:
        return (), [str(wrong)]
    return own, []


def own_limits(own: OwnLimits) -> tuple[Limit, ...]:
    """Return the limits of a key.

    Raises:
        ValueError: one of them cannot be read: a later release wrote it.
    """
    try:
        return _read_own(own)
    except ConfigurationError as unreadable:
        raise ValueError(str(unreadable)) from None


@lru_cache(4096)
def _read_own(own: OwnLimits) -> tuple[Limit, ...]:
    return tuple(Limit(name, rates, by="key") for name, rates in own)


@lru_cache(4096)
def bound(limits: tuple[Limit, ...], key: str | None, own: OwnLimits = ()) -> LimitWindows | None:
    """Return the windows of limits for an organization and a key's id; None: there are none.

    Args:
        limits: the limits that a request is charged for, by its rule and its plan. A limit that
            both name is charged once, and one of a subject outside is left out.
        key: None leaves out the limits by key, for a session.
        own: the limits of the key itself. Its limit and one of a rule may have the same name, and
            are counted apart.

    Raises:
        ValueError: a limit of the key cannot be read.
    """
    names: list[str] = []
    fields: list[str] = []
    windows: list[Window] = []
    subjects = {"organization": "", "key": f" {key}"}
    inside = [limit for limit in dict.fromkeys(limits) if limit.is_inside]
    charged = [(limit, subjects[limit.subject]) for limit in inside]
    charged += [(limit, f" {key} own") for limit in own_limits(own)]
    for limit, subject in charged:
        if limit.by == "key" and key is None:
            continue
        for window in limit.windows:
            names.append(limit.name)
            fields.append(f"{limit.name} {window.span // SECOND}{subject}")
            windows.append(window)
    return LimitWindows(tuple(names), tuple(fields), tuple(windows)) if names else None


@lru_cache(4096)
def windows_of(limits: tuple[Limit, ...]) -> LimitWindows:
    """Return the windows of limits for one subject outside of any organization."""
    pairs = [(limit.name, window) for limit in limits for window in limit.windows]
    fields = tuple(f"{name} {window.span // SECOND}" for name, window in pairs)
    return LimitWindows(tuple(n for n, _ in pairs), fields, tuple(w for _, w in pairs))


def by_limit(limits: LimitWindows) -> list[LimitWindows]:
    """Return the windows of each limit by themselves."""
    groups: list[LimitWindows] = []
    subjects = [(field.split(" ")[0], *field.split(" ")[2:]) for field in limits.fields]
    for subject in dict.fromkeys(subjects):
        places = [place for place, other in enumerate(subjects) if other == subject]
        groups.append(
            LimitWindows(
                tuple(limits.names[place] for place in places),
                tuple(limits.fields[place] for place in places),
                tuple(limits.windows[place] for place in places),
            )
        )
    return groups


def span_of(field: str) -> int:
    """Return the span of a field's window, in microseconds."""
    return int(field.split(" ", 2)[1]) * SECOND


def changed_fields(
    limits: LimitWindows, before: Sequence[Cells | None], after: State
) -> list[tuple[str, Cells]]:
    """Return the fields that a hit has changed, with their new cells.

    Args:
        limits: the windows of the hit.
        before: the cells of each window; None: its field is new.
        after: the cells that :func:`hit_limited` returned.
    """
    return [
        (field, new)
        for field, old, new in zip(limits.fields, before, after, strict=True)
        if new is not old and (old is not None or new[0])
    ]


def put_fields(fields: dict[str, Cells], changed: Iterable[tuple[str, Cells]], now: int) -> None:
    """Put changed fields into those of an organization, the latest hit last.

    Each new field drops two at the front that have been empty for a day, so that there are no more
    fields than were hit within two days (W10). An earlier drop would matter if the clock stepped
    back (W11).
    """
    for name, cells in changed:
        if fields.pop(name, None) is None:
            for idle in [idle for idle, _ in zip(fields, range(_SWEPT), strict=False)]:
                if fields[idle][3] <= now - span_of(idle) - DAY:
                    del fields[idle]
        fields[name] = cells


def crowded(cells: Sequence[Cells | None], kept: int) -> int | None:
    """Return the index of the first window for which there is no field left; None: there is room.

    Args:
        cells: the cells of each window; None: its field is new.
        kept: the number of fields that the organization has.
    """
    new = sum(one is None for one in cells)
    return cells.index(None) if new and kept + new > FIELDS_AT_MOST else None


def hit_limited(
    state: State,
    windows: tuple[Window, ...],
    cells: Sequence[Cells | None],
    limits: tuple[Window, ...],
    now: int,
    cost: int,
    lacking: int | None = None,
) -> tuple[Reading, State, State]:
    """Admit ``cost`` in every window of a plan and of named limits at once, or in none (D40).

    Args:
        state: of the plan's windows, as in :func:`~lockgate.core.sliding_window.hit`.
        windows: of the plan; empty: only the named limits are charged.
        cells: the state of the named limits, None where there is none yet.
        limits: the windows of the named limits.
        now: the instant, in microseconds.
        cost: 1 to :data:`~lockgate.core.sliding_window.LARGEST`.
        lacking: the result of :func:`crowded`.

    Returns:
        The reading, and both states to keep. A refusal changes them only if the clock has stepped
        back. ``used`` and ``refused_by`` go through the plan's windows, then through those of the
        limits; ``remaining``, ``reset`` and ``tightest`` are the plan's. A limit that refuses for
        want of a field does so for a day: by then each field that had no hit is empty.
    """
    before: State = tuple(EMPTY if one is None else one for one in cells)
    of_plan, after = hit(state, windows, now, cost)
    of_limits, kept = hit(before, limits, now, cost)
    if of_plan.allowed and of_limits.allowed and lacking is None:
        return of_plan._replace(used=of_plan.used + of_limits.used), after, kept
    if of_plan.allowed:
        after = settled(state, windows, now)
    if of_limits.allowed:
        kept = settled(before, limits, now)
    of_plan, of_limits = peek(state, windows, now, cost), peek(before, limits, now, cost)
    return combined(of_plan, of_limits, lacking), after, kept


def peek_limited(
    state: State,
    windows: tuple[Window, ...],
    cells: Sequence[Cells | None],
    limits: tuple[Window, ...],
    now: int,
    cost: int = 1,
) -> Reading:
    """Return the reading that :func:`hit_limited` would give, without counting the cost (W5)."""
    before: State = tuple(EMPTY if one is None else one for one in cells)
    return combined(peek(state, windows, now, cost), peek(before, limits, now, cost))


def of_plan_alone(reading: Reading, windows: tuple[Window, ...]) -> Reading:
    """Return the part of a reading that is about the windows of a plan."""
    refused_by, number = reading.refused_by, len(windows)
    if refused_by is not None and refused_by >= number:
        refused_by = None
    return reading._replace(used=reading.used[:number], refused_by=refused_by)


def combined(of_plan: Reading, of_limits: Reading, lacking: int | None = None) -> Reading:
    """Combine the reading of a plan's windows with that of named limits, as one verdict.

    The longest wait is told (D22). ``lacking`` is the result of :func:`crowded`.
    """
    refused_by, wait = of_plan.refused_by, of_plan.wait
    if of_limits.refused_by is not None and of_limits.wait > wait:
        refused_by, wait = len(of_plan.used) + of_limits.refused_by, of_limits.wait
    if lacking is not None and wait < DAY:
        refused_by, wait = len(of_plan.used) + lacking, DAY
    return of_plan._replace(
        allowed=refused_by is None,
        used=of_plan.used + of_limits.used,
        refused_by=refused_by,
        wait=wait,
    )
