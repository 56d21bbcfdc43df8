"""Plans: the limits of organizations, and the plan book of a service (D25)."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from types import MappingProxyType
from typing import Final, NamedTuple, TypeGuard, cast

from ..errors import ConfigurationError
from .arguments import checks_arguments
from .bounded_dict import BoundedDict
from .limits import NAME, Limit, check_limits
from .sliding_window import LARGEST, Window
from .temporary_limits import LimitsInForce, TemporaryLimit, in_force, told_apart, with_temporary
from .thresholds import lowest_marks
from .timestamps import DAY, HOUR, MINUTE

DEFAULT_RESOLUTION: Final = 60
SPANS: Final = MappingProxyType(
    {"rpm": ("minute", MINUTE), "rph": ("hour", HOUR), "rpd": ("day", DAY)}
)
"""The windows of a plan, shortest first: name and length in microseconds, by their limit."""
LONGEST_SPAN: Final = max(span for _, span in SPANS.values())
"""The time in microseconds for which a store keeps the state of an idle organization, at least."""
LIMITS: Final = (*SPANS, "concurrent")
"""The names of a plan's limits, which are the fields of :class:`Plan`."""
ID_MAX_LENGTH: Final = 128
"""Characters of an id of an organization, a job or an owner (D36)."""


@checks_arguments
@dataclass(frozen=True, slots=True)
class Plan:
    """The limits of an organization: requests per minute, hour and day, and concurrent jobs.

    A limit is a whole number from 0 to 2**53 - 1; None, the default, is no limit (D25), so a plan
    that has a name only admits every request of a valid key. A busy window is divided into
    ``resolution`` parts: capacity may return late by less than span / resolution, never early. None
    stores every hit and is always exact (D21). Each request of an organization on the plan is
    charged for the named ``limits`` as well (D40). With ``kept_retries`` a refusal keeps units for
    its key, from the second that ``Retry-After`` says on (D47).

    Raises:
        ConfigurationError: the name is not lower-case, a limit is not a whole number, or the named
            limits do not fit together.
    """

    name: str
    rpm: int | None = None
    rph: int | None = None
    rpd: int | None = None
    concurrent: int | None = None
    resolution: int | None = DEFAULT_RESOLUTION
    limits: tuple[Limit, ...] = ()
    kept_retries: bool = False
    windows: tuple[Window, ...] = field(init=False, repr=False, compare=False)
    marks: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """The use of each window from which on a threshold may be crossed."""
    since: int = field(init=False, repr=False, compare=False)
    """The instant in microseconds at which the latest of its temporary limits ended; 0: none."""
    until: float = field(init=False, repr=False, compare=False)
    """The instant at which the next of its temporary limits ends; infinity: it has none."""
    ends: tuple[tuple[str, int], ...] = field(init=False, repr=False, compare=False)
    """The name of each of its temporary limits, and the instant at which it ends."""

    @property
    def ends_of_windows(self) -> dict[str, int]:
        """The ends of the temporary limits of its windows, by the names of the windows."""
        return {SPANS[name][0]: end for name, end in self.ends if name in SPANS}

    def __post_init__(self) -> None:
        """Check the limits, and compute the windows once for all requests."""
        _check_name(self.name)
        for name in LIMITS:
            check_limit(f"{name} of plan {self.name!r}", getattr(self, name))
        if self.resolution is not None and not (
            is_whole(self.resolution) and 1 <= self.resolution <= 3600
        ):
            raise ConfigurationError(
                f"The resolution of plan {self.name!r} is a whole number from 1 to 3600, or None."
            )
        object.__setattr__(self, "limits", check_limits(self.limits))
        if outside := [limit for limit in self.limits if not limit.is_inside]:
            raise ConfigurationError(
                f"Plan {self.name!r} has the limit {outside[0]}: a plan's limits count by "
                "organization or by key."
            )
        windows = tuple(
            Window(
                name, span, getattr(self, limit), span // self.resolution if self.resolution else 0
            )
            for limit, (name, span) in SPANS.items()
        )
        object.__setattr__(self, "windows", windows)
        object.__setattr__(self, "marks", lowest_marks(windows))
        object.__setattr__(self, "since", 0)
        object.__setattr__(self, "until", inf)
        object.__setattr__(self, "ends", ())


def is_whole(number: object) -> TypeGuard[int]:
    """Return whether an object is an ``int`` but not a ``bool``."""
    return isinstance(number, int) and not isinstance(number, bool)


def is_number(number: object) -> TypeGuard[float]:
    """Return whether an object is an ``int`` or a ``float`` but not a ``bool``."""
    return isinstance(number, int | float) and not isinstance(number, bool)


def is_list_of_texts(value: object) -> bool:
    """Return whether a value is a collection of texts, and not a text."""
    if isinstance(value, str) or not isinstance(value, Collection):
        return False
    return all(isinstance(one, str) for one in cast(Collection[object], value))


def _check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise ConfigurationError(
            f"Plan name {name!r}: use at most 64 of a-z, 0-9, '-' and '_', a letter first."
        )


def _limits_of(plans: Iterable[Plan]) -> tuple[Limit, ...]:
    """Return the different named limits of plans.

    Raises:
        ConfigurationError: two of one name count for different subjects.
    """
    limits = tuple(dict.fromkeys(limit for plan in plans for limit in plan.limits))
    subjects: dict[str, Limit] = {}
    for limit in limits:
        if subjects.setdefault(limit.name, limit).by != limit.by:
            raise ConfigurationError(
                f"Two plans have the limit {limit.name!r}, by {subjects[limit.name].by} and by "
                f"{limit.by}: rename one. Limits of one name may have other numbers in each plan."
            )
    return limits


def check_limit(what: str, limit: object) -> None:
    """Refuse a limit that is neither None nor a whole number from 0 to 2**53 - 1."""
    if limit is not None and not (is_whole(limit) and 0 <= limit <= LARGEST):
        raise ConfigurationError(
            f"{what} is {limit!r}: use a whole number from 0 to 2**53 - 1, or None for no limit."
        )


_RESOLVED_AT_MOST: Final = 4096
_REPORTED_AT_MOST: Final = 1000

FREE: Final = Plan("free", rpm=10, rph=100, rpd=500, concurrent=2)
STARTER: Final = Plan("starter", rpm=30, rph=500, rpd=5_000, concurrent=5)
CREATOR: Final = Plan("creator", rpm=60, rph=1_500, rpd=20_000, concurrent=10)
ANONYMOUS: Final = Plan("anonymous", rpm=1_000, rph=20_000, rpd=200_000, concurrent=0)
"""The limits of one client address without a key (D24)."""


class Organization(NamedTuple):
    """An organization's plan, and its own limits."""

    id: str
    plan: str
    overrides: tuple[tuple[str, int | None], ...] = ()
    """Limits that replace the plan's, as sorted ``(name, limit)`` pairs. A name is one of
    :data:`LIMITS`, or that of a temporary limit (:mod:`lockgate.core.temporary_limits`)."""

    @property
    def has_temporary_limits(self) -> bool:
        """Whether its plan depends on the time. Ended limits count until the next change."""
        return bool(told_apart(self.overrides)[1])


def is_id(value: object) -> TypeGuard[str]:
    """Return whether a value can be the id of an organization, a job or an owner (D36)."""
    return isinstance(value, str) and 1 <= len(value) <= ID_MAX_LENGTH


@checks_arguments
class PlanBook:
    """The plans of a service: standard plans, custom plans, and the default plan.

    Args:
        plans: the plans with limits.
        custom: names of plans without limits; an organization on one has all four itself (D25).
        default: the name of the plan of organizations without one; None: the first of ``plans``.

    Raises:
        ConfigurationError: two plans have one name, or the default plan has no numbers.
    """

    def __init__(
        self,
        plans: Iterable[Plan] = (FREE, STARTER, CREATOR),
        *,
        custom: Iterable[str] = ("enterprise",),
        default: str | None = None,
    ) -> None:
        self._plans: dict[str, Plan] = {}
        for plan in plans:
            if plan.name in self._plans:
                raise ConfigurationError(f"Two plans are called {plan.name!r}: rename one.")
            self._plans[plan.name] = plan
        self._custom = frozenset(custom)
        for name in self._custom:
            _check_name(name)
        if both := self._custom & self._plans.keys():
            raise ConfigurationError(
                f"Plan {min(both)!r} has numbers and is custom: give custom= without it."
            )
        if not self._plans:
            raise ConfigurationError("A plan book has at least one plan: PlanBook([Plan('free')]).")
        default = next(iter(self._plans)) if default is None else default
        if default not in self._plans:
            why = "is custom" if default in self._custom else "is not among the plans"
            raise ConfigurationError(
                f"The default plan {default!r} {why}, so it has no numbers: choose one of "
                f"{sorted(self._plans)}."
            )
        self.default: Final = self._plans[default]
        """The plan of organizations without one."""
        self.limits: Final = _limits_of(self._plans.values())
        """The different named limits of all plans. Those of one name differ by plan (D40)."""
        self._resolved = BoundedDict[tuple[str, tuple[tuple[str, int | None], ...]], Plan](
            _RESOLVED_AT_MOST
        )
        self._temporary = BoundedDict[tuple[str, tuple[tuple[str, int | None], ...]], Plan](
            _RESOLVED_AT_MOST
        )
        self._reported = BoundedDict[str, None](_REPORTED_AT_MOST)
        self._watching: tuple[Callable[[str], object], ...] = ()

    def watch(self, unknown: Callable[[str], object]) -> None:
        """Call a function with each plan name that an organization has and this book has no
        numbers for: once for each name, in the thread of a request."""
        self._watching = *self._watching, unknown

    @property
    def names(self) -> list[str]:
        """Every plan's name, the custom ones included, sorted."""
        return sorted({*self._plans, *self._custom})

    @property
    def smallest_limit(self) -> int | None:
        """The smallest number of requests that a window of any plan admits; None: no limit."""
        windows = (window for plan in self._plans.values() for window in plan.windows)
        return min((one.limit for one in windows if one.limit is not None), default=None)

    @property
    def custom(self) -> frozenset[str]:
        """The names of the plans without limits; organizations on one have their own (D25)."""
        return self._custom

    def place(
        self,
        organization: str,
        plan: str,
        overrides: Mapping[str, int | None],
        temporary: Mapping[str, TemporaryLimit] = MappingProxyType({}),
    ) -> Organization:
        """Return an organization on a plan, with ``overrides`` as its own limits.

        Args:
            organization: its id.
            plan: the name of the plan.
            overrides: limits instead of the plan's, by name.
            temporary: limits instead of these, each until its end, by name.

        Raises:
            ConfigurationError: an unknown plan or limit, an invalid number, or a custom plan
                without all four limits.
        """
        if plan not in self._plans and plan not in self._custom:
            raise ConfigurationError(f"There is no plan {plan!r}: choose one of {self.names}.")
        ending = [(name, limit) for name, (limit, _) in temporary.items()]
        for name, limit in (*overrides.items(), *ending):
            if name not in LIMITS:
                raise ConfigurationError(f"There is no limit {name!r}: choose from {LIMITS}.")
            check_limit(f"{name} of organization {organization!r}", limit)
        if plan in self._custom and (missing := [name for name in LIMITS if name not in overrides]):
            raise ConfigurationError(
                f"Plan {plan!r} has no numbers of its own: give {', '.join(missing)} as well."
            )
        return Organization(organization, plan, with_temporary(overrides, temporary))

    def plan_of(self, organization: Organization | None, now: int) -> Plan:
        """Return the plan of an organization at an instant, with its own limits applied.

        An organization without a plan, or with one that has no numbers here, has the default plan,
        so that a request does not fail. See :meth:`watch`.
        """
        if organization is None:
            return self.default
        return self.plan(organization.plan, organization.overrides, now)

    def plan(self, name: str, overrides: tuple[tuple[str, int | None], ...], now: int) -> Plan:
        """Return a plan by name at an instant, with :attr:`Organization.overrides` applied."""
        if not overrides:
            return self._plans.get(name) or self._instead(name)
        plan = self._resolved.get((name, overrides))
        return self._at(name, overrides, now) if plan is None else plan

    def _at(self, name: str, overrides: tuple[tuple[str, int | None], ...], now: int) -> Plan:
        """Return a plan that is not resolved yet, or has temporary limits."""
        plan = self._temporary.get((name, overrides))
        if plan is not None and plan.since <= now < plan.until:
            return plan
        held = in_force(overrides, now)
        plan = self._resolve(name, held)
        known = self._temporary if held.since or held.until != inf else self._resolved
        known[name, overrides] = plan
        return plan

    def _resolve(self, name: str, held: LimitsInForce) -> Plan:
        limits = held.limits
        numbered = name in self._custom and all(limit in limits for limit in LIMITS)
        base = self.default if numbered else self._plans.get(name) or self._instead(name)
        plan = Plan(
            name if name in self._custom else base.name,
            resolution=base.resolution,
            limits=() if numbered else base.limits,
            kept_retries=base.kept_retries,
            **{limit: limits.get(limit, getattr(base, limit)) for limit in LIMITS},
        )
        object.__setattr__(plan, "since", held.since)
        object.__setattr__(plan, "until", held.until)
        object.__setattr__(plan, "ends", (*held.ends.items(),))
        return plan

    def _instead(self, name: str) -> Plan:
        """Return the default plan in place of one without numbers, and report that."""
        if name not in self._reported:
            self._reported[name] = None
            for unknown in self._watching:
                unknown(name)
        return self.default
