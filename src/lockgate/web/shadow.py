"""Shadow mode: a gate that watches, and what it would have refused."""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextvars import Context
from logging import WARNING
from time import monotonic
from typing import Final, Literal, NamedTuple

from ..errors import AddressNotAllowed, ConfigurationError, RateLimitExceeded, Refusal
from ..events import Events
from ..principal import Principal
from ..sync import loop_runs

Shadow = Literal["limits", "all"]
"""What a gate only watches: limits, while credentials and scopes are enforced; or all of it."""

_MODES: Final[tuple[Shadow, ...]] = ("limits", "all")
_SECONDS: Final = 60.0
_KINDS_AT_MOST: Final = 1000
_SHOWN: Final = 10


def shadow_mode(value: object) -> Shadow | None:
    """What was given as ``shadow``.

    Raises:
        ConfigurationError: it is neither None nor one of the two modes.
    """
    if value is None:
        return None
    for mode in _MODES:
        if value == mode:
            return mode
    raise ConfigurationError(f"shadow is 'limits', 'all' or None, not {value!r}.")


class Kind(NamedTuple):
    """Refusals that are counted together."""

    code: str
    key: str | None
    """The key's id; None: no key was accepted."""
    plan: str | None
    window: str | None
    """The window that is full; None: the refusal is not of a limit."""
    limit_name: str | None
    """The name of the limit that has the window; None: the plan has it."""


def kind_of(refusal: Refusal) -> Kind:
    """What a refusal says about its caller, without a credential."""
    principal = refusal.principal if isinstance(refusal.principal, Principal) else None
    key = principal and principal.key
    elsewhere = refusal.key if isinstance(refusal, AddressNotAllowed) else None
    return Kind(
        refusal.code,
        key.id if key else elsewhere,
        principal.plan.name if principal else None,
        refusal.type if isinstance(refusal, RateLimitExceeded) else None,
        refusal.limit_name if isinstance(refusal, RateLimitExceeded) else None,
    )


class Watch:
    """Counts the requests that shadow mode let through, and tells of them once a minute.

    The event ``shadow_summary`` (``seconds``, ``requests``, ``most``) is sent when a minute ends;
    without an event loop with the first such request after it. ``most`` holds the ten most frequent
    kinds, each as a text.

    Args:
        events: told.
        clock: gives seconds that never run backwards.
    """

    def __init__(self, events: Events, clock: Callable[[], float] = monotonic) -> None:
        self._events: Final = events
        self._clock: Final = clock
        self._since = clock()
        self._counts: Counter[Kind] = Counter()

    def count(self, kind: Kind) -> None:
        """Count one request."""
        if kind not in self._counts and len(self._counts) >= _KINDS_AT_MOST:
            kind = kind._replace(key=None)  # There are few codes, plans and windows.
        is_first = not self._counts
        self._counts[kind] += 1
        left = self._since + _SECONDS - self._clock()
        if left <= 0:
            self.tell()
        elif is_first and loop_runs():  # Its line is of no request, hence the empty context.
            asyncio.get_running_loop().call_later(left, self.tell, context=Context())

    def tell(self) -> None:
        """Tell what was counted since it was told last, if anything was."""
        counts, self._counts = self._counts, Counter()
        since, self._since = self._since, self._clock()
        if counts:
            self._events.emit(
                "shadow_summary",
                WARNING,
                seconds=round(self._since - since),
                requests=counts.total(),
                most=tuple(_line(kind, number) for kind, number in counts.most_common(_SHOWN)),
            )


def _line(kind: Kind, number: int) -> str:
    named = zip(Kind._fields[1:], kind[1:], strict=True)
    return " ".join([f"{number} x {kind.code}", *(f"{n}={v}" for n, v in named if v is not None)])
