"""What an explanation tells: plan, windows, limits, slots, leases, keys and reasons."""

from dataclasses import dataclass
from typing import Literal

from ...core.api_keys import ApiKey, KeyState
from ...core.limits import Limit
from ...core.plans import Plan
from ...core.scopes import Requirement


@dataclass(frozen=True, slots=True)
class Reason:
    """Why the next request would be refused.

    Attributes:
        code: the error code that the caller gets.
        until: the instant in microseconds at which the reason ends by itself; None: never.
        advice: the cause and the remedy, in a sentence, for the command line.
        cause: the cause alone, in a sentence, for pages that offer a remedy of their own.
    """

    code: str
    until: int | None
    advice: str
    cause: str


@dataclass(frozen=True, slots=True)
class WindowExplanation:
    """What one window holds.

    Attributes:
        name: ``minute``, ``hour`` or ``day``; of a named limit as ``limits.type`` of a refusal.
        limit: None: no limit.
        used: counted units.
        left: units until it is full; None: no limit.
        until: the instant in microseconds from which a window without room admits the request, or,
            where quota leases take the room, may admit it; at which the oldest unit of another
            leaves; of a calendar quota the end of its period; None: no limit, or no such instant.
        held: those of the counted units that holds have taken and not settled yet.
        ends: the instant in microseconds at which its limit ends; None: it is no temporary limit.
    """

    name: str
    limit: int | None
    used: int
    left: int | None
    until: int | None
    held: int = 0
    ends: int | None = None


Source = Literal["rule", "plan", "key", "hold"]
"""What names a limit."""


@dataclass(frozen=True, slots=True)
class LimitExplanation:
    """What the windows of one named limit hold (D40).

    Attributes:
        limit: the limit.
        windows: its windows. A full one refuses the requests that are charged for the limit, unless
            it is soft.
        source: ``rule``: requests to the rules of this process that name it are charged for it;
            ``plan`` and ``key``: each request of the organization, or of the key; ``hold``: holds
            of this process are.
    """

    limit: Limit
    windows: tuple[WindowExplanation, ...]
    source: Source = "rule"

    @property
    def full(self) -> tuple[WindowExplanation, ...]:
        """The windows without a unit left; none of a soft limit."""
        return () if self.limit.soft else tuple(w for w in self.windows if not w.left)

    @property
    def until(self) -> int | None:
        """The instant in microseconds at which no window is full; None: once it is changed."""
        ends = [window.until for window in self.full]
        return None if None in ends else max(filter(None, ends), default=None)


@dataclass(frozen=True, slots=True)
class SlotsExplanation:
    """The concurrency slots that jobs hold.

    Attributes:
        limit: None: no limit.
        used: live leases.
        until: the instant in microseconds at which the next lease ends unless it is renewed.
    """

    limit: int | None
    used: int
    until: int | None


@dataclass(frozen=True, slots=True)
class LeasesExplanation:
    """The quota leases that processes admit from without the store (D42).

    Attributes:
        units: the units of all leases that are out. They are in no ``used`` and yet in each
            ``left`` of the plan's windows, until their leases are settled or end.
        until: the instant in microseconds at which the last lease ends.
    """

    units: int
    until: int


@dataclass(frozen=True, slots=True)
class KeyExplanation:
    """The state of one key, and why its requests are refused whatever the windows hold."""

    key: ApiKey
    state: KeyState
    refused: Reason | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """What :meth:`Gate.explain <lockgate.Gate.explain>` found.

    Attributes:
        organization: its id.
        plan: the plan that applies, with the organization's own limits.
        assigned: the name of the plan that the store or the resolver has for it; None: it is on
            the default plan. It differs from ``plan.name`` where the gate has no numbers for it.
        at: the instant of the answer, in microseconds, by the clock of the windows.
        cost: the units of the request that is explained.
        requires: the scope that it needs; None: any valid key.
        windows: the windows of the plan.
        limits: the named limits of the rules and holds of this process, of the plan and of the key,
            those by key only where one key is explained, those by address and by user where these
            are given.
        slots: its concurrency slots.
        keys: the requested key; otherwise up to 25 keys, live keys first.
        more_keys: whether the organization has more keys than these.
        refused: why the next request would be refused, of this key or of all; None: it would be
            admitted, and what :attr:`used_up` refuses would not. A process that holds a quota lease
            still admits from that.
        leased: the quota leases of its plan's windows; None: no lease is out.
        unjudged: the named limits of the request that ``refused`` leaves out, since their subject
            is not given: those by a function of the request, and those by address, user or key
            without one.
        unread: a sentence about the store of the windows, which did not answer: then ``windows``
            and ``limits`` are empty, and ``refused`` leaves them out; None: they were read.
    """

    organization: str
    plan: Plan
    assigned: str | None
    at: int
    cost: int
    requires: Requirement | None
    windows: tuple[WindowExplanation, ...]
    limits: tuple[LimitExplanation, ...]
    slots: SlotsExplanation
    keys: tuple[KeyExplanation, ...]
    more_keys: bool
    refused: Reason | None
    leased: LeasesExplanation | None = None
    unjudged: tuple[Limit, ...] = ()
    unread: str | None = None

    @property
    def used_up(self) -> tuple[LimitExplanation, ...]:
        """The limits with a full window that ``refused`` leaves out: they refuse holds and
        :meth:`gate.charge <lockgate.Gate.charge>`, or, of a request that would be admitted,
        requests to other rules."""
        sources = ("hold",) if self.refused is not None else ("hold", "rule")
        return tuple(one for one in self.limits if one.source in sources and one.full)


@dataclass(frozen=True, slots=True)
class OpenExplanation:
    """What :meth:`Gate.explain_open <lockgate.Gate.explain_open>` found.

    Attributes:
        at: the instant of the answer, in microseconds, by the clock of the windows.
        limits: the named limits by address, as they count for the client.
        refused: why the next request would be refused; None: these limits admit it.
        unjudged: the named limits that ``refused`` leaves out: those by a function of the request,
            and those by address without one.
    """

    at: int
    limits: tuple[LimitExplanation, ...]
    refused: Reason | None
    unjudged: tuple[Limit, ...]
