"""Named limits: windows and calendar quotas beside the windows of the plan (D40).

A :class:`Limit` has a name, one or several rates, and the subject that it counts for. A rule names
limits for its requests, a plan for all requests of its organizations, and a key has limits of its
own, kept with the key. Where the subject belongs to an organization (the organization as a whole,
or each of its keys), a request is judged by the plan's windows and those of all such limits
together: all of them are charged, or none is (W9).

Other subjects are outside of any organization: a client's address, the user of a session, or a text
that a function of the host returns for a request. Such a limit is judged first, by itself.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, Literal, cast, get_args

from ..errors import ConfigurationError
from .arguments import checks_arguments
from .limit_windows import LimitWindows, grain_of
from .periods import FIRST, Quota, Starts, is_day, read_zone
from .rates import Rate, read_rates
from .sliding_window import Window
from .timestamps import SECOND

Subject = Literal["organization", "key", "address", "user"]
"""What a limit counts for."""
DEFAULT_RESOLUTION: Final = 60
LIMITS_AT_MOST: Final = 4
WINDOWS_AT_MOST: Final = 8
"""The most named limits of one rule, plan or key, and the most windows that these have together."""
NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}")
"""Matches the name of a limit, or of a plan."""
OwnLimits = tuple[tuple[str, str], ...]
"""The names and rates of the limits of a key itself, in the order of the names."""


@checks_arguments
@dataclass(frozen=True, slots=True)
class Limit:
    """A further limit for some requests, beside the plan of their organization (D40).

    Args:
        name: 1 to 64 of ``a-z``, ``0-9``, ``-`` and ``_``, a letter first. Rules with the same
            name share one count, and must write the limit alike; the limits of plans may differ in
            their numbers.
        rates: one or several rates, separated by ``;``, ``,`` or ``|``, in the grammar of limits,
            slowapi and Flask-Limiter: ``"3/hour"``, ``"100 per minute"``, ``"1/15 minutes"``,
            ``"5/second;100/day"``. Each is an exact sliding window of a second to a day. Calendar
            quotas are ``"1000000/month"``, ``year``, ``calendar week`` and ``calendar day``.
        by: the subject. ``organization``, or each ``key`` of it; each client ``address``, an IPv6
            client by its /64, and by its /48 16 times as much, with or without a key; each ``user``
            of a session; or a function that takes the request, a
            :class:`~lockgate.web.request.RequestView`, and returns a text to count for, None for a
            request that does not count. It may be called more than once, is called before the
            credential is verified, and must not wait.
        resolution: into how many parts a busy window is divided, as in
            :class:`~lockgate.Plan`; None stores every hit.
        soft: whether a calendar quota admits more than its limit. Its use is reported all the same,
            by the event ``quota_threshold``.
        starts: the first day of some period of a calendar quota, such as the day of the contract;
            or a function that returns it for an organization's id and must not wait. Months that
            lack the day begin on their last. By default the first of the month, and Mondays.
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
        if self.resolution is not None and not 1 <= self.resolution <= 3600:
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

    def __hash__(self) -> int:
        # Of one string, which keeps its hash: each limited request looks up its limits.
        return hash(self.name)

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


def listed(limits: object) -> tuple[object, ...]:
    """Return the elements of an argument ``limits``.

    Raises:
        ConfigurationError: it is no list, such as a single limit, a text or None.
    """
    if isinstance(limits, str | bytes | Mapping) or not isinstance(limits, Iterable):
        shown = str(limits) if isinstance(limits, Limit) else repr(limits)  # pyright: ignore[reportUnknownArgumentType] - from a caller
        raise ConfigurationError(
            f"limits is a list such as [Limit('export', '3/hour', by='key')], not {shown}."
        )
    return tuple(cast(Iterable[object], limits))


def check_limits(limits: object, have: str = "A rule, a plan and a key have") -> tuple[Limit, ...]:
    """Return the limits of one rule, plan or key, or of one hold, as a tuple.

    Args:
        limits: an iterable of limits.
        have: begins the message about too many of them.

    Raises:
        ConfigurationError: it is no list of limits, two have the same name, or there are too many.
    """
    given = listed(limits)
    named = tuple(limit for limit in given if isinstance(limit, Limit))
    if len(named) < len(given):
        wrong = next(limit for limit in given if not isinstance(limit, Limit))
        raise ConfigurationError(
            f"{wrong!r} is no limit: write Limit('export', '3/hour', by='key')."
        )
    check_names(named)
    if len({limit.name for limit in named}) < len(named):
        raise ConfigurationError(f"One limit is named twice: {', '.join(map(str, named))}.")
    if len(named) > LIMITS_AT_MOST or sum(len(one.windows) for one in named) > WINDOWS_AT_MOST:
        raise ConfigurationError(
            f"{have} at most {LIMITS_AT_MOST} limits with {WINDOWS_AT_MOST} windows together: "
            f"{', '.join(map(str, named))}."
        )
    return named


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
    is_mapping = isinstance(cast(object, limits), Mapping)
    pairs = cast(Mapping[object, object], limits).items() if is_mapping else [(None, None)]
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
