"""The settings of a gate that most services leave alone, by subject.

gate = Gate("redis://cache", brand="acme", web_options=WebOptions(key_header="X-API-Key"))
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from .core.api_keys import read_lifetime
from .core.arguments import check_arguments
from .core.limits import Limit, check_limits, listed
from .errors import ConfigurationError, Refusal
from .stores.resilience.deadlines import DEADLINE
from .stores.resilience.local_limits import Fallback

_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9]+(-[A-Za-z0-9]+)*")
_OTHER_HEADERS: Final = frozenset(
    {
        *("authorization", "cookie", "host", "origin", "referer", "forwarded", "user-agent"),
        *("content-length", "content-type", "x-forwarded-for", "accept", "connection", "upgrade"),
    }
)


@dataclass(frozen=True, kw_only=True)
class KeyOptions:
    """Settings of keys: ``Gate(key_options=KeyOptions(...))``.

    Args:
        cap: the maximum number of live keys of an organization; None: no maximum (D8).
        max_age_days: the longest lifetime of new keys, for a service that wants them rotated; a
            key that is created without an expiry gets this one. None: no maximum.
        retention_days: days for which revoked and expired keys are kept, at least 1; None: forever
            (D45).
        accept_plain: whether to accept keys without a pepper while the gate has peppers. For
            services that add their first pepper, until all keys have moved: a writer of the
            database can mint such keys.
        accept_unsealed: whether to accept rows without a seal while the gate has peppers. For
            services with older rows, until ``gate.keys.seal()`` has sealed them: a writer of the
            database can give such a row any organization and any scope.

    Raises:
        ConfigurationError: an argument is out of range.
    """

    cap: int | None = 1000
    max_age_days: float | None = None
    retention_days: float | None = 400
    accept_plain: bool = False
    accept_unsealed: bool = False

    def __post_init__(self) -> None:
        """Refuse numbers that are out of range."""
        check_arguments(type(self), vars(self))
        if self.cap is not None and self.cap < 1:
            raise ConfigurationError(f"cap is {self.cap}: use at least 1, or None for no cap.")
        _, problems = read_lifetime(self.max_age_days)
        if problems:
            raise ConfigurationError(f"max_age_days is {self.max_age_days!r}: {problems[0]}")
        if self.retention_days is not None and not 1 <= self.retention_days < float("inf"):
            raise ConfigurationError(
                f"retention_days is {self.retention_days}: use at least 1, or None to keep keys "
                "for ever."
            )

    @property
    def max_age(self) -> int | None:
        """The longest lifetime of new keys in microseconds."""
        return read_lifetime(self.max_age_days)[0]


@dataclass(frozen=True, kw_only=True)
class WebOptions:
    """Settings of requests and responses: ``Gate(web_options=WebOptions(...))``.

    Args:
        prefix: the path prefix of lockgate's own operations (D37).
        health: the path prefix of the health probes, e.g. ``"/health"`` for the public paths
            ``/health/live`` and ``/health/ready``; None: no probes.
        allowed_origins: origins, beside that of ``public_url``, whose pages may write with a
            session (D11).
        key_header: a header, such as ``X-API-Key``, that may hold a key instead of
            ``Authorization``, for clients of an earlier system (D35); None: no other header.
        error_body: returns another JSON body for a refusal, for clients of an earlier system;
            status and headers stay. None: the bodies of lockgate.
        draft_headers: whether to add the IETF draft's ``RateLimit`` fields (D23).
        end_streams: whether the open streams and WebSockets of a key, or of an agent's session, end
            within a second of its revocation, expiry or sign-out.

    Raises:
        ConfigurationError: a malformed prefix or header name.
    """

    prefix: str = "/api/v1"
    health: str | None = None
    allowed_origins: Iterable[str] = ()
    key_header: str | None = None
    error_body: Callable[[Refusal], object] | None = None
    draft_headers: bool = False
    end_streams: bool = True

    def __post_init__(self) -> None:
        """Refuse prefixes that match no path, and a header with another meaning."""
        check_arguments(type(self), vars(self))
        prefix, health, name = self.prefix, self.health, self.key_header
        if prefix != "" and (not prefix.startswith("/") or prefix.endswith("/")):
            raise ConfigurationError(
                f"The prefix {prefix!r} must start with '/' and not end with it."
            )
        if health is not None and (not health.startswith("/") or health.endswith("/")):
            raise ConfigurationError(
                f"health is {health!r}: write a path such as '/health', which does not end with "
                "'/'."
            )
        if name is not None and (
            not _HEADER_NAME.fullmatch(name) or name.lower() in _OTHER_HEADERS
        ):
            raise ConfigurationError(
                f"key_header is {name!r}: name a header of its own, such as 'X-API-Key'."
            )

    @property
    def header(self) -> bytes | None:
        """The further header for keys in lower case; None: only ``Authorization`` holds keys."""
        return None if self.key_header is None else self.key_header.lower().encode()


@dataclass(frozen=True, kw_only=True)
class SlotOptions:
    """Settings of concurrency slots: ``Gate(slot_options=SlotOptions(...))``.

    Args:
        lease: seconds until the slot of a dead worker is free again, up to a day. A running job
            renews its lease three times in that time.
        retry_after: seconds in ``Retry-After`` of a refused slot: a hint (D26).

    Raises:
        ConfigurationError: ``retry_after`` is less than a second.
    """

    lease: float = 60.0
    retry_after: int = 10

    def __post_init__(self) -> None:
        """Refuse a time that has passed when the response arrives."""
        check_arguments(type(self), vars(self))
        if self.retry_after < 1:
            raise ConfigurationError(f"retry_after is {self.retry_after}: use at least 1 second.")


@dataclass(frozen=True, kw_only=True)
class HoldOptions:
    """Settings of holds: ``Gate(hold_options=HoldOptions(...))``.

    Args:
        seconds: until the units of a dead worker count as used, up to an hour. A running block
            renews its hold three times in that time.
        at_most: the most holds that one window of a limit has at a time, 1 to 1,000.
        limits: the limits that holds are taken of. They need not be named here: a process learns of
            a limit with its first hold. Those that are named are checked when the gate is made, and
            the rate limit status, ``gate.explain`` and the dashboard show them from the start.

    Raises:
        ConfigurationError: a number is not as above.
    """

    seconds: float = 60.0
    at_most: int = 1000
    limits: Sequence[Limit] = ()

    def __post_init__(self) -> None:
        """Refuse a time or a number that the stores have no place for."""
        check_arguments(type(self), vars(self))
        if not 0 < self.seconds <= 3600:
            raise ConfigurationError(f"Holds of {self.seconds!r} s: use more than 0, up to 3600.")
        if not 1 <= self.at_most <= 1000:
            raise ConfigurationError(f"{self.at_most!r} holds at most: use 1 to 1000.")
        for limit in listed(self.limits):
            check_limits([limit])


@dataclass(frozen=True, kw_only=True)
class StoreOptions:
    """What requests do while a shared store is slow or away: ``Gate(store_options=...)``.

    Args:
        deadline: seconds that a request waits for a shared store before it is refused (D34).
        on_failure: how to limit callers that are verified without the store while it is away: by
            ``local`` windows of this process, ``open`` (no limits) or ``closed`` (503) (D28). A key
            that cannot be verified is always refused.
        fleet: the number of processes that share the limits; local windows apply a share to each.

    Raises:
        ConfigurationError: an unknown fallback, or a fleet of fewer than one.
    """

    deadline: float = DEADLINE
    on_failure: Fallback = "local"
    fleet: int = 1

    def __post_init__(self) -> None:
        """Refuse an unknown fallback and an empty fleet."""
        check_arguments(type(self), vars(self))
        if self.on_failure not in ("local", "open", "closed"):
            raise ConfigurationError(
                f"on_failure is {self.on_failure!r}: use 'local', 'open' or 'closed'."
            )
        if self.fleet < 1:
            raise ConfigurationError(
                f"The fleet is {self.fleet}: it has at least this one process."
            )
