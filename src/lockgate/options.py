"""The settings of a gate that most services leave alone, by subject.

gate = Gate("redis://cache", brand="acme", web_options=WebOptions(key_header="X-API-Key"))
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Final

from .clock import Clock
from .core.api_keys import read_lifetime
from .core.arguments import checks_arguments
from .core.imported_keys import ImportedKeyFormat
from .core.limits import Limit, check_limits, listed
from .core.plans import ANONYMOUS, Plan
from .error_formats import ErrorFormat
from .errors import ConfigurationError
from .sessions import SESSION_COOKIE, SessionVerifier
from .sessions.options import ROLES, RoleOf, StepUp, check_cookie, check_function, check_roles
from .stores.resilience.deadlines import DEADLINE
from .stores.resilience.local_limits import Fallback

_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9]+(-[A-Za-z0-9]+)*")
_OTHER_HEADERS: Final = frozenset(
    {
        *("authorization", "cookie", "host", "origin", "referer", "forwarded", "user-agent"),
        *("content-length", "content-type", "x-forwarded-for", "accept", "connection", "upgrade"),
    }
)


@checks_arguments
@dataclass(frozen=True, kw_only=True)
class KeyOptions:
    """Settings of keys: ``Gate(key_options=KeyOptions(...))``.

    Args:
        environment: the second word of the keys: ``live``, or another such as ``test``.
        next_pepper: the pepper that the next deploy puts first in ``Gate(peppers=)``. Accepts keys
            that other processes have already moved to it.
        legacy: key formats of other systems whose imported keys are accepted; the first format
            that matches a key applies.
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

    environment: str = "live"
    next_pepper: bytes | None = field(default=None, repr=False)
    legacy: Sequence[ImportedKeyFormat] = ()
    cap: int | None = 1000
    max_age_days: float | None = None
    retention_days: float | None = 400
    accept_plain: bool = False
    accept_unsealed: bool = False

    def __post_init__(self) -> None:
        """Refuse numbers that are out of range."""
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


@checks_arguments
@dataclass(frozen=True, kw_only=True)
class WebOptions:
    """Settings of requests, sessions and responses: ``Gate(web_options=WebOptions(...))``.

    Args:
        public_url: the URL of the service's own pages; their origin may write with a session.
        allowed_origins: origins, beside that of ``public_url``, whose pages may write with a
            session (D11).
        trusted_proxies: addresses and networks of proxies whose ``X-Forwarded-For`` is trusted.
        anonymous: the budget of one client address for public routes, and a second budget of the
            same size for requests without a valid credential (D24).
        prefix: the path prefix of lockgate's own operations (D37).
        health: the path prefix of the health probes, e.g. ``"/health"`` for the public paths
            ``/health/live`` and ``/health/ready``; None: no probes.
        key_header: a header, such as ``X-API-Key``, that may hold a key instead of
            ``Authorization``, for clients of an earlier system (D35); None: no other header.
        error_body: returns another JSON body for a refusal of a request, or an
            :class:`~lockgate.error_formats.ErrorBody` with headers; the status stays.
            :mod:`lockgate.error_formats` has those of other services. None: lockgate's.
        longest_retry: the most seconds that a 429 asks a client to wait without advising it by
            ``x-should-retry: false`` to give up (D48); None: any. A cost above a limit, for which
            waiting is useless, always has this advice.
        end_streams: whether the open streams and WebSockets of a key, or of an agent's session, end
            within a second of its revocation, expiry or sign-out.
        session_cookie: the name of the session cookie. Browsers accept a name that starts with
            ``__Host-`` only with ``Secure``, ``Path=/`` and without a domain, and ``__Secure-``
            only with ``Secure``. None: no cookie is a session; it needs ``session_bearer``.
        session_bearer: accept JSON Web Tokens as ``Authorization: Bearer`` where sessions are
            accepted: True for the gate's session verifier, or a verifier of their own. Any other
            credential in the header stays an API key.
        session_free_reads: whether a session also reads its organization's limits, and reads keys
            and limits without being charged. By default it reads keys only, and is charged like a
            key (D9).
        session_roles: the scopes of each role. They hold for sessions whose verifier or
            ``session_role`` names a role; any other name has no scopes.
        session_role: returns the name of a session's role in the organization that it acts for;
            None or an empty text: no role, so no scopes. A plain function answers from memory under
            ASGI, since it runs in the event loop; an ``async`` one needs an event loop. Not called
            for agents, which have all scopes.
        step_up: asks the host before a session creates a powerful key; None: no question.

    Raises:
        ConfigurationError: an argument is not valid; the message says what to change.
    """

    public_url: str | None = None
    allowed_origins: Iterable[str] = ()
    trusted_proxies: Iterable[str] = ()
    anonymous: Plan = ANONYMOUS
    prefix: str = "/api/v1"
    health: str | None = None
    key_header: str | None = None
    error_body: ErrorFormat | None = None
    longest_retry: float | None = 120
    end_streams: bool = True
    session_cookie: str | None = SESSION_COOKIE
    session_bearer: bool | SessionVerifier = False
    session_free_reads: bool = False
    session_roles: Mapping[str, Sequence[str]] = field(default_factory=lambda: dict(ROLES))
    session_role: RoleOf | None = None
    step_up: StepUp | None = None

    def __post_init__(self) -> None:
        """Refuse a prefix that matches no path, a header or cookie with another meaning, and
        options that accept no session."""
        prefix, health, name = self.prefix, self.health, self.key_header
        if self.longest_retry is not None and not self.longest_retry > 0:
            raise ConfigurationError(
                f"longest_retry is {self.longest_retry}: use more than 0 s, or None for any wait."
            )
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
        if self.session_cookie is not None:
            check_cookie(self.session_cookie)
        elif self.session_bearer is False:
            raise ConfigurationError(
                "No request could present a session: give session_cookie a name, or "
                "session_bearer=True."
            )
        check_roles(self.session_roles)
        check_function("session_role", self.session_role)

    @property
    def header(self) -> bytes | None:
        """The further header for keys in lower case; None: only ``Authorization`` holds keys."""
        return None if self.key_header is None else self.key_header.lower().encode()

    @property
    def of_sessions(self) -> list[str]:
        """The options of sessions that have another value than by default."""
        default = WebOptions()
        names = [one.name for one in fields(self) if one.name.startswith(("session_", "step_up"))]
        return [name for name in names if getattr(self, name) != getattr(default, name)]


@checks_arguments
@dataclass(frozen=True, kw_only=True)
class StoreOptions:
    """Settings of the store and of what it keeps: ``Gate(store_options=StoreOptions(...))``.

    Args:
        deadline: seconds that a request waits for a shared store before it is refused (D34).
        on_failure: how to limit callers that are verified without the store while it is away: by
            ``local`` windows of this process, ``open`` (no limits) or ``closed`` (503) (D28). A key
            that cannot be verified is always refused.
        fleet: the number of processes that share the limits; local windows apply a share to each.
        lease: seconds, 0.1 to 2, for which each process may take up to 2 % of a busy organization's
            limits in advance, and admit from them without the store (D42). Revoking a key takes up
            to as long. None: each admission asks the store.
        clock: returns the present in microseconds, for tests; by default each store's own clock.
        slot_lease: seconds until the concurrency slot of a dead worker is free again, up to a day.
            A running job renews its lease three times in that time.
        slot_retry_after: seconds in ``Retry-After`` of a refused slot: a hint (D26).
        hold_seconds: until the units of a dead worker count as used, up to an hour. A running block
            renews its hold three times in that time.
        hold_at_most: the most holds that one window of a limit has at a time, 1 to 1,000.
        hold_limits: the limits that holds are taken of. They need not be named here: a process
            learns of a limit with its first hold. Those that are named are checked when the gate is
            made, and the rate limit status, ``gate.explain`` and the dashboard show them from the
            start.

    Raises:
        ConfigurationError: an unknown fallback, or a number that is not as above.
    """

    deadline: float = DEADLINE
    on_failure: Fallback = "local"
    fleet: int = 1
    lease: float | None = None
    clock: Clock | None = None
    slot_lease: float = 60.0
    slot_retry_after: int = 10
    hold_seconds: float = 60.0
    hold_at_most: int = 1000
    hold_limits: Sequence[Limit] = ()

    def __post_init__(self) -> None:
        """Refuse an unknown fallback, and numbers that the stores have no place for."""
        if self.on_failure not in ("local", "open", "closed"):
            raise ConfigurationError(
                f"on_failure is {self.on_failure!r}: use 'local', 'open' or 'closed'."
            )
        if self.fleet < 1:
            raise ConfigurationError(
                f"The fleet is {self.fleet}: it has at least this one process."
            )
        if self.slot_retry_after < 1:
            raise ConfigurationError(
                f"slot_retry_after is {self.slot_retry_after}: use at least 1 second."
            )
        if not 0 < self.hold_seconds <= 3600:
            raise ConfigurationError(
                f"Holds of {self.hold_seconds!r} s: use more than 0, up to 3600."
            )
        if not 1 <= self.hold_at_most <= 1000:
            raise ConfigurationError(f"{self.hold_at_most!r} holds at most: use 1 to 1000.")
        for limit in listed(self.hold_limits):
            check_limits([limit])
