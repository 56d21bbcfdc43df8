"""Access rules: the scope, cost, slot and credentials that one endpoint asks for (D31)."""

from collections.abc import Iterable, Mapping
from copy import copy
from typing import Final, Literal

from ..errors import ConfigurationError
from .arguments import checks_arguments
from .limits import Limit, check_limits
from .plans import is_whole
from .scopes import Requirement, requirement
from .sliding_window import LARGEST

Credential = Literal["key", "session"]

SlotUse = bool | Literal["background"]
"""Whether a request holds a slot: until its response is complete, or its background tasks too."""


@checks_arguments
class Rule:
    """The credentials that a request must show, and the cost that it is charged.

    Args:
        requires: the scope that a key needs; None: any valid key.
        cost: the units that the request takes from each window; 0: it needs its credential, and
            full windows do not refuse it (D40).
        slot: whether the request holds one of its organization's slots for concurrent jobs (D26):
            True, until its response is complete; ``"background"``, until its background tasks are.
        accepts: the credentials that are accepted. lockgate's own key operations also take a
            session; an application's take keys only (D9).
        free_for_sessions: whether a session's request only reads its organization's windows and
            is not charged, for reads of lockgate's own.
        answers_refusals: whether a public endpoint is called although the budget of the client's
            address is spent, to answer that itself, such as by a page.
        limits: named limits that the request is charged for as well, with the same cost: up to 4,
            with up to 8 windows together (D40).

    Raises:
        ConfigurationError: the requirement is not an exact scope, the cost is below 0, ``slot`` is
            another value, a rule of cost 0 has limits, a public rule has a scope, cost, slot or a
            limit by organization, key or user, a rule for sessions has a limit by key, or one
            without sessions a limit by user.
    """

    __slots__ = (
        "accepts",
        "allow",
        "answers_refusals",
        "asks_first",
        "background",
        "charged",
        "cost",
        "free_for_sessions",
        "limits",
        "outside",
        "own",
        "plain",
        "public",
        "requires",
        "shares_refusals",
        "slot",
        "takes_key",
        "takes_session",
    )

    def __init__(
        self,
        requires: str | None = None,
        *,
        cost: int = 1,
        slot: SlotUse = False,
        accepts: tuple[Credential, ...] = ("key",),
        public: bool = False,
        own: bool = False,
        free_for_sessions: bool = False,
        answers_refusals: bool = False,
        limits: Iterable[Limit] = (),
    ) -> None:
        _check_cost_and_slot(cost, slot)
        limits = check_limits(limits)
        if limits and not cost:
            raise ConfigurationError(
                "A rule of cost 0 charges nothing, so it has no limits: leave one out."
            )
        asks_nothing = requires is None and cost == 1 and not slot
        _check_subjects(limits, accepts, public=public, asks_nothing=asks_nothing)
        self.requires: Requirement | None = None if requires is None else requirement(requires)
        self.cost: Final = cost
        self.limits: Final = limits
        self.charged: Final = tuple(limit for limit in limits if limit.is_inside)
        """The limits that are judged with the plan."""
        self.outside: Final = tuple(limit for limit in limits if not limit.is_inside)
        """The limits of subjects outside of any organization, which are judged first."""
        self.shares_refusals: Final = cost == 1 and not limits
        """Whether a refusal for a full window is the same for every rule of this kind."""
        self.slot: Final = bool(slot)
        self.background: Final = slot == "background"
        """Whether the slot is held until the background tasks of the response have ended."""
        self.accepts: Final = accepts
        self.allow: tuple[str, ...] | None = None
        """The methods that the path accepts, on the rule of a method that it does not accept."""
        self.plain = not slot and not self.outside
        """Whether the rule takes no slot, and its path accepts the method."""
        self.takes_key: Final = "key" in accepts
        self.takes_session: Final = "session" in accepts
        self.public: Final = public
        self.asks_first: Final = public or bool(self.outside)
        """Whether there is more to do than to authenticate the caller."""
        self.own: Final = own
        """Whether the rule guards one of lockgate's operations, which shadow mode never opens."""
        self.free_for_sessions: Final = free_for_sessions
        self.answers_refusals: Final = answers_refusals
        """Whether a public endpoint tells itself that the budget of an address is spent."""

    def includes(self, other: "Rule") -> bool:
        """Return whether a request admitted by this rule meets all demands of another rule."""
        if other.public or self.public or other.allow is not None:
            return other.public
        return (
            self.cost >= other.cost
            and self.free_for_sessions <= other.free_for_sessions
            and self.slot >= other.slot
            and self.background >= other.background
            and set(self.accepts) <= set(other.accepts)
            and set(_scopes(self.requires)) >= set(_scopes(other.requires))
            and set(self.limits) >= set(other.limits)
        )

    def __repr__(self) -> str:
        return f"<Rule: {self}>"

    def __str__(self) -> str:
        if self.public:
            return "public"
        scope = f"scope {self.requires.scope}" if self.requires else "any scope"
        cost = f", cost {self.cost}" if self.cost != 1 else ""
        slot = ", a slot" if self.slot else ""
        slot += " through background tasks" if self.background else ""
        limits = "".join(f", {limit}" for limit in self.limits)
        return f"{' or '.join(self.accepts)}, {scope}{cost}{slot}{limits}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Rule):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __hash__(self) -> int:
        return hash((self.requires, self.cost, self.accepts, self.public))


def _check_cost_and_slot(cost: int, slot: SlotUse) -> None:
    if not (is_whole(cost) and 0 <= cost <= LARGEST):
        raise ConfigurationError(f"A rule's cost is a whole number of at least 0, not {cost!r}.")
    if slot not in (False, True, "background"):
        raise ConfigurationError(f"slot is True, False or 'background', not {slot!r}.")


def _check_subjects(
    limits: tuple[Limit, ...],
    accepts: tuple[Credential, ...],
    *,
    public: bool,
    asks_nothing: bool,
) -> None:
    """Raise where no credential is there for a limit, or for the rest of a public rule.

    Args:
        limits: the limits of the rule.
        accepts: the credentials that it accepts.
        public: whether it takes none.
        asks_nothing: whether it has no scope, no cost and no slot.
    """
    subjects = {limit.subject for limit in limits}
    if public and (not asks_nothing or subjects - {"address", "function"}):
        raise ConfigurationError(
            "A public rule has no scope, no cost, no slot and no limit but by address or by a "
            "function: no key is there to hold them."
        )
    if "user" in subjects and "session" not in accepts:
        raise ConfigurationError(
            "A rule with a limit by user accepts sessions: keys belong to no user."
        )
    if "key" in subjects and "session" in accepts:
        raise ConfigurationError(
            "A rule that accepts sessions has no limit by key: sessions have none."
        )


PUBLIC: Final = Rule(public=True)
"""Admits every request without verifying a credential."""

ANY_KEY: Final = Rule()
"""Admits any valid key; the default for a path without a rule (D31)."""


def both(one: Rule, other: Rule) -> Rule:
    """Return a rule as strict as two guarded ones; ANY_KEY itself only where both are ANY_KEY."""
    if one is ANY_KEY:
        one, other = other, one
    if one.includes(other):
        return one
    if other.includes(one):
        return bound(other) if other is ANY_KEY else other
    rule = Rule(
        cost=max(one.cost, other.cost),
        slot="background" if one.background or other.background else one.slot or other.slot,
        accepts=tuple(c for c in one.accepts if c in other.accepts),
        own=one.own or other.own,
        free_for_sessions=one.free_for_sessions and other.free_for_sessions,
        limits=tuple(dict.fromkeys((*one.limits, *other.limits))),
    )
    needed = [r.requires for r in (one, other) if r.requires is not None]
    rule.requires = needed[0].together(needed[-1]) if needed else None
    return rule


def unpaid(rule: Rule) -> Rule:
    """Return a rule for an answer that only redirects: the same credentials, no cost (D50).

    It admits to no handler that costs anything (:meth:`Rule.includes`).
    """
    free = Rule(cost=0, accepts=rule.accepts, own=rule.own)
    free.requires = rule.requires
    return free


def not_allowed(by_method: Mapping[str, Rule]) -> Rule:
    """Return the rule for a method that a path does not accept: authenticate, then answer 405."""
    session = any(rule.takes_session for rule in by_method.values())
    own = any(rule.own for rule in by_method.values())
    return _refusing(tuple(sorted(by_method)), session=session, own=own)


def nowhere(rule: Rule) -> Rule:
    """Return the rule for a path whose readings disagree about a method: authenticate, then 404."""
    return _refusing((), session=rule.takes_session, own=rule.own)


def _refusing(allow: tuple[str, ...], *, session: bool, own: bool) -> Rule:
    rule = Rule(accepts=("key", "session") if session else ("key",), own=own)
    rule.allow, rule.plain = allow, False
    return rule


def bound(rule: Rule) -> Rule:
    """Copy a rule for one pattern, so that the rule of a request identifies its pattern."""
    return copy(rule)


def _scopes(needed: Requirement | None) -> Iterable[str]:
    while needed is not None:
        yield needed.scope
        needed = needed.also
