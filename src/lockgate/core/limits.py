"""Named limits: windows and calendar quotas beside the windows of the plan (D40).

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

A calendar quota, such as ``"1000000/month"``, counts from the first instant of its period on. Its
field names that instant, so that a new period begins at zero and a clock that steps back over the
boundary finds the count of the period before. All hits of a period are counted in one cell, at the
first instant of the period, by a window that is as long as the period: the cell expires when the
period ends. The clock that judges names the period (:meth:`LimitWindows.at`).
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple, cast, get_args

from ..errors import ConfigurationError
from .periods import FIRST, LONGEST, NAMES, UNITS, Period, Quota, Starts, Unit, is_day, read_zone
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
_PERIOD: Final = "@"
"""Stands in a field between the name of the limit and the first second of the period."""
_UNITS: Final = {"second": SECOND, "minute": MINUTE, "hour": HOUR, "day": DAY}
_RATE: Final = re.compile(
    r"\s*(\d{1,16})\s*(?:/|\s+per\s+)\s*(\d{0,5})\s*(calendar\s+)?([a-z]+?)s?\s*",
    re.IGNORECASE | re.ASCII,
)
NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}")
"""Matches the name of a limit, or of a plan."""
_GRAMMAR: Final = (
    "write a number, '/' or 'per', and second, minute, hour or day, as in '3/hour', "
    "'100 per minute', '1/15 minutes' or '5/second;100/day'; or one month, year, calendar week or "
    "calendar day, as in '1000000/month'"
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
    quotas: tuple[Quota | None, ...] = ()
    """The calendar of each window, None for a sliding one; empty: all windows slide."""

    def at(self, now: int, organization: str | None = None) -> "LimitWindows":
        """Return the windows with the periods of an instant: a store counts only by these.

        Args:
            now: the instant by the clock that judges, in microseconds.
            organization: the owner of the windows.

        Raises:
            ConfigurationError: the function of the host returned no first day, or raised an
                exception.
        """
        if not self.quotas:
            return self
        return _in_periods(
            self,
            tuple([one and one.period(now, organization) for one in self.quotas]),
        )

    @property
    def marks(self) -> tuple[int | None, ...]:
        """The limit of each window, that of a soft quota included."""
        limits = tuple([window.limit for window in self.windows])
        if not self.quotas:
            return limits
        return tuple(
            [one.limit if one else mine for one, mine in zip(self.quotas, limits, strict=True)]
        )


class Rate(NamedTuple):
    """One rate of a limit."""

    name: str
    span: int
    """Microseconds; of a period the longest, clock changes aside."""
    amount: int
    unit: Unit | None
    """The kind of period; None: a sliding window."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit of its own for some requests, beside the plan of their organization (D40).

    Args:
        name: 1 to 64 of ``a-z``, ``0-9``, ``-`` and ``_``, a letter first. Rules with the same
            name share one count, and must write the limit alike.
        rates: one or several rates, separated by ``;``, ``,`` or ``|``, in the grammar of limits,
            slowapi and Flask-Limiter: ``"3/hour"``, ``"100 per minute"``, ``"1/15 minutes"``,
            ``"5/second;100/day"``. Each is an exact sliding window of a second to a day. Calendar
            quotas are ``"1000000/month"``, ``year``, ``calendar week`` and ``calendar day``.
        by: the subject. ``organization``, or each ``key`` of it; each client ``address``, an IPv6
            client by its /64, with or without a key; each ``user`` of a session; or a function that
            takes the request, a :class:`~lockgate.web.request.RequestView`, and returns a text to
            count for, None for a request that does not count. It may be called more than once, is
            called before the credential is verified, and must not wait.
        resolution: into how many parts a busy window is divided, as in
            :class:`~lockgate.Plan`; None stores every hit.
        soft: whether a calendar quota admits more than its limit. Its use is told all the same, by
            the event ``quota_threshold``.
        starts: the first day of some period of a calendar quota, such as that of the contract; or a
            function that returns it for an organization's id and must not wait. Months that lack
            the day begin on their last. By default the first of the month, and Mondays.
        zone: the time zone in which the periods of a calendar quota begin, such as
            ``Europe/Berlin``.

    Raises:
        ConfigurationError: the name, the rates, the subject or the resolution cannot be read, or
            the last three are given without a calendar quota.
    """

    name: str
    rates: str
    by: Subject | Callable[[Any], str | None] = "organization"
    resolution: int | None = DEFAULT_RESOLUTION
    soft: bool = False
    starts: Starts = FIRST
    zone: str = "UTC"
    windows: tuple[Window, ...] = field(init=False, repr=False, compare=False)
    """The windows, each named as ``limits.type`` of a refusal tells it."""
    quotas: tuple[Quota | None, ...] = field(init=False, repr=False, compare=False)
    """The calendar of each window, None for a sliding one; empty: all windows slide."""

    def __post_init__(self) -> None:
        """Check the arguments, and compute the windows once for all requests."""
        if not NAME.fullmatch(_text(self.name)):
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
        rates = read_rates(self.rates, f"The limit {self.name!r}")
        quotas = self._read_quotas(rates)
        object.__setattr__(self, "windows", tuple(map(self._window, rates)))
        object.__setattr__(self, "quotas", quotas)

    def _window(self, rate: Rate) -> Window:
        if rate.unit is not None:
            return Window(rate.name, rate.span, None if self.soft else rate.amount, grain_of(0))
        grain = rate.span // self.resolution if self.resolution else 0
        return Window(rate.name, rate.span, rate.amount, grain)

    def _read_quotas(self, rates: Iterable[Rate]) -> tuple[Quota | None, ...]:
        """Check the arguments for calendar quotas, and return those.

        Raises:
            ConfigurationError: the arguments do not fit the rates, or cannot be read.
        """
        units = [rate.unit for rate in rates]
        if self.soft and None in units:
            raise ConfigurationError(
                f"The limit {self.name!r} is soft: only calendar quotas can be, such as "
                "'1000000/month'. Give a sliding window a limit of its own."
            )
        if not any(units):
            if (self.starts, self.zone) != (FIRST, "UTC"):
                raise ConfigurationError(
                    f"The limit {self.name!r} has a first day or a zone: only calendar quotas have "
                    "one, such as '1000000/month'."
                )
            return ()
        try:
            read_zone(self.zone)
        except (TypeError, ValueError):
            raise ConfigurationError(
                f"The limit {self.name!r} has the zone {self.zone!r}: use a name such as "
                "'Europe/Berlin', and install tzdata where the system has no time zones."
            ) from None
        if callable(self.starts):
            if not self.is_inside:
                raise ConfigurationError(
                    f"The limit {self.name!r} has a function for its first day and is by "
                    f"{self.subject}: only one by organization or key can ask for it."
                )
        elif not is_day(self.starts):
            raise ConfigurationError(
                f"The limit {self.name!r} starts on {self.starts!r}: give a datetime.date, or a "
                "function that returns it for an organization's id."
            )
        return tuple(
            None
            if rate.unit is None
            else Quota(rate.unit, rate.amount, self.soft, self.starts, self.zone)
            for rate in rates
        )

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


def _text(value: object) -> str:
    """Return a value that should be a text; of any other type one that no rule reads."""
    return value if isinstance(value, str) else f"<{value!r}>"


def read_rates(text: str, what: str) -> list[Rate]:
    """Return the rates of a text.

    Raises:
        ConfigurationError: the text cannot be read; ``what`` begins the message.
    """
    rates = [_read_rate(part, what) for part in re.split(r"[;,|]", _text(text))]
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
    pairs = cast(Mapping[object, object], limits).items()
    if not all(isinstance(one, str) for pair in pairs for one in pair):
        return (), ["Write each limit as its name and its rates, as in {'export': '3/hour'}."]
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
    quotas: list[Quota | None] = []
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
        quotas += limit.quotas or (None,) * len(limit.windows)
    if not names:
        return None
    calendar = tuple(quotas) if any(quotas) else ()
    return LimitWindows(tuple(names), tuple(fields), tuple(windows), calendar)


@lru_cache(4096)
def windows_of(limits: tuple[Limit, ...]) -> LimitWindows:
    """Return the windows of limits for one subject outside of any organization."""
    pairs = [(limit.name, window) for limit in limits for window in limit.windows]
    fields = tuple(f"{name} {window.span // SECOND}" for name, window in pairs)
    quotas = [one for limit in limits for one in limit.quotas or (None,) * len(limit.windows)]
    calendar = tuple(quotas) if any(quotas) else ()
    return LimitWindows(tuple(n for n, _ in pairs), fields, tuple(w for _, w in pairs), calendar)


@lru_cache(4096)
def _in_periods(limits: LimitWindows, periods: tuple[Period | None, ...]) -> LimitWindows:
    """Return windows with the fields and instants of these periods, for calendar quotas."""
    fields, windows = list(limits.fields), list(limits.windows)
    for place, period in enumerate(periods):
        if period is not None:
            begins, span = period.begins, period.ends - period.begins
            name, _, *subject = fields[place].split(" ")
            name = f"{name.partition(_PERIOD)[0]}{_PERIOD}{begins // SECOND}"
            fields[place] = " ".join((name, str(span // SECOND), *subject))
            windows[place] = windows[place]._replace(span=span, grain=grain_of(begins))
    return limits._replace(fields=tuple(fields), windows=tuple(windows))


def grain_of(begins: int) -> int:
    """Return the grain that marks the window of a period, by the first instant of the period.

    A negative number, so that stores keep and pass the windows of periods as they do all others.
    """
    return -1 - begins


def ends_of(window: Window) -> int | None:
    """Return the first instant after the period of a window; None: it slides."""
    begins = begins_of(window)
    return None if begins is None else begins + window.span


def begins_of(window: Window) -> int | None:
    """Return the first instant of the period of a window; None: it slides."""
    return None if window.grain >= 0 else -1 - window.grain


def is_of_period(field: str) -> bool:
    """Return whether a field has the count of a period."""
    return _PERIOD in field


def by_limit(limits: LimitWindows) -> list[LimitWindows]:
    """Return the windows of each limit by themselves."""
    groups: list[LimitWindows] = []
    parts = [field.split(" ") for field in limits.fields]
    subjects = [(name.partition(_PERIOD)[0], *subject) for name, _, *subject in parts]
    for subject in dict.fromkeys(subjects):
        places = [place for place, other in enumerate(subjects) if other == subject]
        groups.append(
            LimitWindows(
                tuple(limits.names[place] for place in places),
                tuple(limits.fields[place] for place in places),
                tuple(limits.windows[place] for place in places),
                tuple(limits.quotas[place] for place in places) if limits.quotas else (),
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
                elif is_of_period(idle):  # It may outlast those behind it.
                    fields[idle] = fields.pop(idle)
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
        want of a field does so for a day: by then each field of a sliding window that had no hit is
        empty. Those of calendar quotas stay until a day after their period.
    """
    before: State = tuple(EMPTY if one is None else one for one in cells)
    of_plan, after = hit(state, windows, now, cost)
    of_limits, kept = hit_named(before, limits, now, cost)
    if of_plan.allowed and of_limits.allowed and lacking is None:
        return of_plan._replace(used=of_plan.used + of_limits.used), after, kept
    if of_plan.allowed:
        after = settled(state, windows, now)
    if of_limits.allowed:
        kept = settled_named(before, limits, now)
    of_plan, of_limits = peek(state, windows, now, cost), peek_named(before, limits, now, cost)
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
    return combined(peek(state, windows, now, cost), peek_named(before, limits, now, cost))


def hit_named(
    state: State, windows: tuple[Window, ...], now: int, cost: int
) -> tuple[Reading, State]:
    """Admit ``cost`` in every window of named limits, or in none, as :func:`hit` does.

    The reading's ``remaining``, ``reset`` and ``tightest`` are not computed for quotas.
    """
    for window in windows:
        if window[3] < 0:
            break
    else:
        return hit(state, windows, now, cost)
    reading = peek_named(state, windows, now, cost)
    if not reading.allowed:
        return reading, settled_named(state, windows, now)
    new: list[Cells] = []
    for cells, window in zip(state, windows, strict=True):
        _, (after,) = hit((cells,), (window,), _moment(window, now), cost)
        new.append(after)
    return reading._replace(used=tuple([cells[0] for cells in new])), tuple(new)


def peek_named(state: State, windows: tuple[Window, ...], now: int, cost: int = 1) -> Reading:
    """Return the reading that :func:`hit_named` would give, without counting the cost."""
    if all(window.grain >= 0 for window in windows):
        return peek(state, windows, now, cost)
    used: list[int] = []
    refused_by, longest = None, 0
    for index, (cells, window) in enumerate(zip(state, windows, strict=True)):
        moment = _moment(window, now)
        reading = peek((cells,), (window,), moment, cost)
        used += reading.used
        wait = reading.wait - (now - moment)
        if not reading.allowed and wait > longest:
            refused_by, longest = index, wait
    return Reading(refused_by is None, now, tuple(used), None, now, None, refused_by, longest)


def settled_named(state: State, windows: tuple[Window, ...], now: int) -> State:
    """Return the state of named limits after a refusal, as :func:`settled` does."""
    if all(cells[3] <= now for cells in state):
        return state
    moments = [_moment(window, now) for window in windows]
    return tuple(
        settled((cells,), (window,), moment)[0]
        for cells, window, moment in zip(state, windows, moments, strict=True)
    )


def _moment(window: Window, now: int) -> int:
    """Return the instant at which a window counts a hit: the first of its period, if it has one."""
    begins = begins_of(window)
    return now if begins is None or not begins <= now < begins + window.span else begins


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
