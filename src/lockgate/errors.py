"""Every error of lockgate, drawn as a tree; each refusal knows its status, code and headers (D16).

LockgateError
├── ConfigurationError            a mistake in the program: raised at construction
├── HandleTaken                   a store already has a key with this handle: draw another
└── Refusal                       an answer to a caller
    ├── Unauthenticated           401
    │   ├── MissingAuth           MISSING_AUTH
    │   ├── InvalidFormat         INVALID_FORMAT
    │   ├── KeyNotFound           KEY_NOT_FOUND
    │   ├── KeyRevoked            KEY_REVOKED
    │   ├── KeyExpired            KEY_EXPIRED
    │   ├── TokenNotAccepted      TOKEN_NOT_ACCEPTED
    │   ├── ReportNotAccepted     REPORT_NOT_ACCEPTED
    │   ├── SessionRequired       SESSION_REQUIRED
    │   └── SessionInvalid        SESSION_INVALID
    │       ├── SessionTokenInvalid  SESSION_INVALID
    │       └── StepUpRequired    SESSION_INVALID
    ├── InsufficientScope         403 INSUFFICIENT_SCOPE
    ├── Forbidden                 403
    │   ├── AddressNotAllowed     INSUFFICIENT_SCOPE
    │   ├── NoOrganization        NO_ORGANIZATION
    │   ├── ClaimRefused          CLAIM_REFUSED
    │   ├── RegistrationRefused   REGISTRATION_REFUSED
    │   ├── AgentsOnly            AGENTS_ONLY
    │   └── CrossSiteRequest      CROSS_SITE_REQUEST
    ├── InvalidRequest            400 VALIDATION_ERROR
    ├── NotFound                  404 NOT_FOUND
    ├── MethodNotAllowed          405 METHOD_NOT_ALLOWED
    ├── KeyLimitReached           409 KEY_LIMIT_REACHED
    ├── KeyNotLive                409 KEY_NOT_LIVE
    ├── KeyRotated                409 KEY_ROTATED
    ├── JobRunning                409 JOB_RUNNING
    ├── PayloadTooLarge           413 PAYLOAD_TOO_LARGE
    ├── UnsupportedMediaType      415 UNSUPPORTED_MEDIA_TYPE
    ├── RateLimitExceeded         429 RATE_LIMIT_EXCEEDED
    │   └── ConcurrentLimitExceeded   429 CONCURRENT_LIMIT_EXCEEDED
    ├── ClientDisconnected        499 CLIENT_DISCONNECTED
    └── TryAgain
        ├── StoreUnavailable      503 STORE_UNAVAILABLE
        │   └── ChangeCommitted   503 CHANGE_COMMITTED
        ├── RegistrationUnavailable   503 REGISTRATION_UNAVAILABLE
        ├── LeakReportsUnavailable    503 LEAK_REPORTS_UNAVAILABLE
        └── SlotLost              503 SLOT_LOST

:class:`StoreError` is outside of this tree: a store raises it, and the gate answers for it with
:class:`StoreUnavailable`. :class:`ChangeCommitted` is both.

No message ever repeats a credential. Without an adapter, answer a refusal by its parts::

    try:
        principal = await gate.authenticate(token, "jobs:read")
    except Refusal as refusal:
        return refusal.status, refusal.headers(), refusal.body()
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple

from .core.sliding_window import Reading
from .core.timestamps import iso8601

__all__ = [
    "AddressNotAllowed",
    "AgentsOnly",
    "ChangeCommitted",
    "ClaimRefused",
    "ClientDisconnected",
    "ConcurrentLimitExceeded",
    "ConfigurationError",
    "CrossSiteRequest",
    "Forbidden",
    "HandleTaken",
    "Header",
    "InsufficientScope",
    "InvalidFormat",
    "InvalidRequest",
    "JobRunning",
    "KeyExpired",
    "KeyLimitReached",
    "KeyNotFound",
    "KeyNotLive",
    "KeyRevoked",
    "KeyRotated",
    "LeakReportsUnavailable",
    "LockgateError",
    "MethodNotAllowed",
    "MissingAuth",
    "NoOrganization",
    "NotFound",
    "PayloadTooLarge",
    "Problem",
    "RateLimitExceeded",
    "Refusal",
    "RegistrationRefused",
    "RegistrationUnavailable",
    "ReportNotAccepted",
    "SessionInvalid",
    "SessionRequired",
    "SessionTokenInvalid",
    "SlotLost",
    "StepUpRequired",
    "StoreError",
    "StoreUnavailable",
    "TokenNotAccepted",
    "TryAgain",
    "Unauthenticated",
    "UnsupportedMediaType",
]

Header = tuple[bytes, bytes]
"""A header as ASGI carries it: lower-case name and value."""


class LockgateError(Exception):
    """Base class of lockgate's exceptions."""


class ConfigurationError(LockgateError, ValueError):
    """The program configures lockgate wrongly; the message says what to change."""


class HandleTaken(LockgateError):
    """The store already holds a key with this handle."""


class StoreError(Exception):
    """A store could not answer: its driver or its server failed (G7).

    Raised where the driver's exception arises, with that as the cause. Logs and events name the
    kind of the cause and never its message: drivers print parameters and addresses.
    """


class Refusal(LockgateError):
    """Base class of error responses: a status, a code, headers and a sentence for a person.

    Attributes:
        rate: the rate-limit headers for the caller (D24); set by the gate.
        measured: the :class:`~lockgate.Plan` and the reading behind those headers.
        organization: the organization of the key or session, if known; for events only.
        handle: the handle of a key that was revoked or has expired; for usage over time only.
        principal: the :class:`~lockgate.Principal` of a valid credential that was refused for
            another reason; for shadow mode and events only.
    """

    status: ClassVar[int]
    code: ClassVar[str]
    default_message: ClassVar[str]

    # Defaults of the class: most refusals of a flood set few of them.
    rate: tuple[Header, ...] = ()
    measured: tuple[Any, Reading] | None = None  # A Plan raises errors of this module.
    organization: str | None = None
    handle: str | None = None
    principal: object = None

    def __init__(self, message: str | None = None) -> None:
        self.message = message or self.default_message
        super().__init__(self.message)

    def __reduce__(self) -> tuple[object, ...]:
        # A pickle of an exception calls its class with the message alone, which most classes here
        # do not take. Queues of jobs keep pickles, so these leave out the digests of the key.
        # The result of a committed change may hold the text of a key (K2).
        left_out = {"principal", "result"}
        kept = {name: value for name, value in vars(self).items() if name not in left_out}
        return _unpickled, (type(self), self.args), kept

    def body(self) -> dict[str, object]:
        """Return the JSON body (D16): ``error``, ``code`` and the fields that subclasses add."""
        return {"error": self.message, "code": self.code}

    def headers(self) -> tuple[Header, ...]:
        """Return the headers of this class of refusal, without the rate-limit headers."""
        return ()


def _unpickled(kind: type[Refusal], arguments: tuple[object, ...]) -> Refusal:
    """Return a refusal of a class, whose attributes follow."""
    return kind.__new__(kind, *arguments)


_NO_STORE: Header = (b"cache-control", b"no-store")


class Unauthenticated(Refusal):
    """The credential is missing or not accepted (RFC 6750, section 3)."""

    status = 401
    challenge: ClassVar[bytes] = b'Bearer error="invalid_token"'

    def headers(self) -> tuple[Header, ...]:
        """Return the ``WWW-Authenticate`` challenge and ``Cache-Control: no-store`` (D38)."""
        return ((b"www-authenticate", self.challenge), _NO_STORE)


class MissingAuth(Unauthenticated):
    """The request carries no ``Authorization`` header (D18)."""

    code = "MISSING_AUTH"
    default_message = "This needs an API key: send the header 'Authorization: Bearer <API key>'."
    challenge = b"Bearer"


class InvalidFormat(Unauthenticated):
    """The ``Authorization`` header is not exactly one well-formed Bearer key (D1, D18)."""

    code = "INVALID_FORMAT"
    default_message = (
        "The Authorization header does not hold one well-formed API key: send exactly one, "
        "as 'Bearer <API key>', copied whole."
    )


class KeyNotFound(Unauthenticated):
    """No such key: an unknown handle and a wrong secret look the same (D3)."""

    code = "KEY_NOT_FOUND"
    default_message = "This API key does not exist: use one that this service has given."


class KeyRevoked(Unauthenticated):
    """The key was revoked; a revocation is final."""

    code = "KEY_REVOKED"
    default_message = "This API key was revoked: use another one."


class KeyExpired(Unauthenticated):
    """The key has expired."""

    code = "KEY_EXPIRED"
    default_message = "This API key has expired: create a new one."


class TokenNotAccepted(Unauthenticated):
    """The dashboard token is not accepted: malformed, unknown, wrong or revoked look the same.

    The response reveals neither whether the token exists nor its organization.
    """

    code = "TOKEN_NOT_ACCEPTED"
    default_message = "This dashboard token is not accepted: send the one that registering gave."


class ReportNotAccepted(Unauthenticated):
    """A report of leaked keys has no signature of a known signer.

    A missing signature, an unknown signer and a wrong signature look the same.
    """

    code = "REPORT_NOT_ACCEPTED"
    default_message = (
        "This report is not accepted: sign its body with a published key of its sender."
    )
    challenge = b"Bearer"


class SessionRequired(Unauthenticated):
    """The operation needs a dashboard session, and the request has no session cookie (D11)."""

    code = "SESSION_REQUIRED"
    default_message = "This needs a dashboard session: sign in, an API key is not enough."
    challenge = b"Bearer"


class SessionInvalid(Unauthenticated):
    """The session cookie is not accepted, or the request has two of them (D11)."""

    code = "SESSION_INVALID"
    default_message = "The session is not valid or has ended: sign in again."
    challenge = b"Bearer"


class SessionTokenInvalid(SessionInvalid):
    """The JSON Web Token in ``Authorization`` is not accepted as a session (RFC 6750, 3.1)."""

    default_message = "The session token is not valid or has expired: sign in again."
    challenge = Unauthenticated.challenge


class StepUpRequired(SessionInvalid):
    """The host asks for a more recent or stronger sign-in before it creates this key (RFC 9470).

    Attributes:
        max_age: the greatest age of the sign-in, in seconds, for the challenge; None: not told.
        acr_values: the accepted classes of authentication, for the challenge.
    """

    default_message = "This needs a more recent or stronger sign-in: sign in again, then repeat it."

    def __init__(self, max_age: int | None = None, acr_values: Iterable[str] = ()) -> None:
        super().__init__()
        self.max_age = max_age
        self.acr_values = tuple(acr_values)

    def headers(self) -> tuple[Header, ...]:
        """Return the challenge of RFC 9470, section 3, and ``Cache-Control: no-store``."""
        parts = ['Bearer error="insufficient_user_authentication"']
        if self.acr_values:
            parts.append(f'acr_values="{" ".join(self.acr_values)}"')
        if self.max_age is not None:
            parts.append(f'max_age="{self.max_age}"')
        return ((b"www-authenticate", ", ".join(parts).encode()), _NO_STORE)


class InsufficientScope(Refusal):
    """The key or session is valid, but its scopes do not cover the required scope."""

    status = 403
    code = "INSUFFICIENT_SCOPE"

    def __init__(self, scope: str, *, of_session: bool = False) -> None:
        self.scope = scope
        super().__init__(
            f"Your role lacks the scope {scope!r}: ask an administrator of your organization."
            if of_session
            else f"This API key lacks the scope {scope!r}: use one that has it."
        )

    def headers(self) -> tuple[Header, ...]:
        """Return the challenge that names the missing scope (RFC 6750, section 3.1)."""
        challenge = f'Bearer error="insufficient_scope", scope="{self.scope}"'
        return ((b"www-authenticate", challenge.encode()), _NO_STORE)


class Forbidden(Refusal):
    """Base class of 403: the caller is known but not permitted."""

    status = 403

    def headers(self) -> tuple[Header, ...]:
        """Return ``Cache-Control: no-store`` (D38)."""
        return (_NO_STORE,)


class AddressNotAllowed(Forbidden):
    """The key is valid, and its allow-list does not have the address of the client.

    Attributes:
        key: the id of the key; for events only.
    """

    code = InsufficientScope.code
    default_message = (
        "This API key lacks the permission for requests from your network: use it from an address "
        "that it allows, or use another key."
    )

    def __init__(self, organization: str, key: str) -> None:
        super().__init__()
        self.organization = organization
        self.key = key

    def headers(self) -> tuple[Header, ...]:
        """Return the challenge without a scope, since no scope would let this address in (RFC 6750,
        section 3.1)."""
        return ((b"www-authenticate", b'Bearer error="insufficient_scope"'), *super().headers())


class NoOrganization(Forbidden):
    """The login belongs to no organization, or not to the requested organization (D15)."""

    code = "NO_ORGANIZATION"
    default_message = (
        "This session acts for no such organization: claim it, or sign in to another one."
    )


class ClaimRefused(Forbidden):
    """This login may not claim the organization, or it does not exist: both look the same (D15)."""

    code = "CLAIM_REFUSED"
    default_message = (
        "This organization is not yours to claim: sign in with its billing e-mail address, "
        "verified, and see that nobody else has claimed it."
    )


class RegistrationRefused(Forbidden):
    """The service did not approve of a registration (``Registration(approve=...)``) (D13)."""

    code = "REGISTRATION_REFUSED"
    default_message = (
        "This service did not approve of the registration: see what proof it asks for."
    )


class AgentsOnly(Forbidden):
    """The session is a person's, but the operation is for agents that signed in (D15)."""

    code = "AGENTS_ONLY"
    default_message = "This ends the sessions of agents: sign out at your identity provider."


class CrossSiteRequest(Forbidden):
    """A page of another site tried to write with the visitor's session (D11)."""

    code = "CROSS_SITE_REQUEST"
    default_message = "This comes from another site: a session is accepted from its own site only."


class Problem(NamedTuple):
    """An invalid field: its dotted path (empty for the whole body) and a sentence."""

    field: str
    message: str


class InvalidRequest(Refusal):
    """The request is invalid; the response lists every problem (D17)."""

    status = 400
    code = "VALIDATION_ERROR"

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = list(problems)
        where = ", ".join(sorted({p.field for p in self.problems if p.field}))
        super().__init__(
            f"The request is not valid: see {where}." if where else "The request is not valid."
        )

    def __str__(self) -> str:
        """Return the message with its reasons, for programs that call lockgate directly."""
        reasons = [f"{p.field}: {p.message}" if p.field else p.message for p in self.problems]
        return " ".join([self.message, *reasons])

    def body(self) -> dict[str, object]:
        """Add ``details``: a ``{"field", "message"}`` object for each problem."""
        return {**super().body(), "details": [problem._asdict() for problem in self.problems]}


class NotFound(Refusal):
    """The object does not exist or belongs to another organization: both look the same (D9)."""

    status = 404
    code = "NOT_FOUND"
    default_message = "There is nothing here: check the path, and any id in it."


class MethodNotAllowed(Refusal):
    """The path exists, but not with this method.

    Attributes:
        allowed: the methods that it has, as the header ``Allow`` lists them.
        of_application: whether the path is one of the application, whose form the answer then
            has under FastAPI, Starlette and Flask (D50).
    """

    status = 405
    code = "METHOD_NOT_ALLOWED"

    def __init__(self, allowed: Iterable[str], *, of_application: bool = False) -> None:
        self.allowed = ", ".join(sorted(allowed))
        self.of_application = of_application
        instead = f": use {self.allowed}" if self.allowed else ""
        super().__init__(f"This method is not allowed here{instead}.")

    def headers(self) -> tuple[Header, ...]:
        """Return ``Allow``, which lists the methods of the path."""
        return ((b"allow", self.allowed.encode()),)


class KeyLimitReached(Refusal):
    """The organization already has its maximum number of live keys (D8)."""

    status = 409
    code = "KEY_LIMIT_REACHED"

    def __init__(self, cap: int) -> None:
        super().__init__(f"The organization has {cap} live API keys, the most it may: revoke one.")


class KeyNotLive(Refusal):
    """The key was revoked or has expired, so it cannot be changed (D43)."""

    status = 409
    code = "KEY_NOT_LIVE"
    default_message = (
        "This key was revoked or has expired, so it cannot be changed: create another one."
    )


class KeyRotated(Refusal):
    """The key was already rotated; a key has at most one successor (D43)."""

    status = 409
    code = "KEY_ROTATED"

    def __init__(self, successor: str) -> None:
        super().__init__(f"This key was rotated before: rotate its successor, {successor}.")
        self.successor = successor


class JobRunning(Refusal):
    """Another owner holds the slot of this job: a job does not run twice at the same time."""

    status = 409
    code = "JOB_RUNNING"
    default_message = "This job is running already: wait until it has ended."


class PayloadTooLarge(Refusal):
    """The body exceeds the size limit of the operation."""

    status = 413
    code = "PAYLOAD_TOO_LARGE"

    def __init__(self, limit: int) -> None:
        super().__init__(f"The body is too large: send at most {limit} bytes.")


class UnsupportedMediaType(Refusal):
    """The body is not declared as JSON (D11)."""

    status = 415
    code = "UNSUPPORTED_MEDIA_TYPE"
    default_message = "Send the body as JSON, with the header 'Content-Type: application/json'."


class RateLimitExceeded(Refusal):
    """A window is full (D22).

    Attributes:
        type: the window that refused the request: ``minute``, ``hour`` or ``day``. A named limit
            also has ``second``, or a span such as ``15 minutes``; a calendar quota has ``month``,
            ``year``, ``calendar week`` or ``calendar day``.
        limit: the window's limit, in units.
        used: units in the window.
        retry_after: whole seconds to wait, at least 1; of a calendar quota until its period ends.
            The window's length for a cost above the limit, which is never admitted (D39).
        cost: units that the request asked for.
        ends_at: the instant in microseconds at which a temporary limit below the cost ends;
            None: the limit has no end, or the cost fits.
        limit_name: the name of the limit that has the window; None: the plan has it (D40).
        held: the units of holds that are out, included in ``used``; None: no hold was refused
            (D41).
        since: the instant of the decision, in microseconds.
        until: the instant, in microseconds, until which a request of cost 1 gets the same refusal
            unless a key or plan changes.
    """

    status = 429
    code = "RATE_LIMIT_EXCEEDED"
    default_message = (
        "Too many requests{of}: {used} of {limit} used {when}{asked}; "
        + "try again in {retry_after} s."
    )
    no_room_message = "Too many requests{of} at present; try again in {retry_after} s."
    above_limit_message = (
        "A request of cost {cost} is never admitted{of}, however long you wait: "
        + "the limit of the {type} is {limit}."
    )
    above_temporary_limit_message = (
        "A request of cost {cost} is not admitted{of} before {end}: until then the limit of the "
        + "{type} is {limit}."
    )

    def __init__(
        self,
        type: str,
        limit: int,
        used: int,
        retry_after: int,
        cost: int = 1,
        limit_name: str | None = None,
        ends_at: int | None = None,
        held: int | None = None,
    ) -> None:
        self.type = type
        self.limit = limit
        self.used = used
        self.retry_after = retry_after
        self.cost = cost
        self.limit_name = limit_name
        self.held = held
        self.since = self.until = 0
        self.ends_at = ends_at
        message = self.above_limit_message if cost > limit else self.default_message
        if used + cost <= limit:
            # Leases, the bounds of holds and of counts, or the share of a process leave no room.
            message = self.no_room_message
        of, end = "" if limit_name is None else f" for '{limit_name}'", ""
        if ends_at is not None:
            message, end = self.above_temporary_limit_message, iso8601(ends_at)
        asked = "" if held is None else f", {cost} asked for"
        values = {**vars(self), "of": of, "end": end, "when": time_of(type), "asked": asked}
        super().__init__(message.format_map(values))

    @property
    def is_final(self) -> bool:
        """Whether no wait helps: the cost is above a limit that has no end (D39)."""
        return self.cost > self.limit and self.ends_at is None

    def body(self) -> dict[str, object]:
        """Add ``retryAfter`` and ``limits`` (D16), with ``limits.name`` of a named limit, and
        ``limits.held`` where a hold was refused."""
        limits: dict[str, object] = {"type": self.type, "limit": self.limit, "used": self.used}
        if self.limit_name is not None:
            limits["name"] = self.limit_name
        if self.held is not None:
            limits["held"] = self.held
        return {**super().body(), "retryAfter": self.retry_after, "limits": limits}

    def headers(self) -> tuple[Header, ...]:
        """Return ``Retry-After`` and ``Cache-Control: no-store`` (D38)."""
        return ((b"retry-after", b"%d" % self.retry_after), _NO_STORE)


def time_of(type: str) -> str:
    """Return the time that a window counts, by its name: ``in the last hour``, ``this month``."""
    is_period = type in {"month", "year"} or type.startswith("calendar ")
    return f"this {type}" if is_period else f"in the last {type}"


class ConcurrentLimitExceeded(RateLimitExceeded):
    """The organization has no free concurrency slot (D26).

    ``type`` is ``concurrent`` and ``used`` the number of held slots. ``retry_after`` is a hint: the
    end of a job cannot be predicted.
    """

    code = "CONCURRENT_LIMIT_EXCEEDED"
    default_message = (
        "Too many jobs at a time: {used} of {limit} slots are taken; try again in {retry_after} s."
    )
    no_room_message = default_message

    def __init__(self, limit: int, used: int, retry_after: int) -> None:
        super().__init__("concurrent", limit, used, retry_after, cost=0)


class ClientDisconnected(Refusal):
    """The client disconnected before the response began, so its handler was cancelled.

    The response reaches a client only if it has closed its sending side and still reads, and only
    from a server that still writes then, such as Hypercorn.
    """

    status = 499
    code = "CLIENT_DISCONNECTED"
    default_message = "The connection was closed before the response began: keep it open."


class TryAgain(Refusal):
    """Base class of 503: a temporary failure of the service."""

    status = 503
    retry_after: ClassVar[int] = 1
    """Whole seconds to wait."""

    def body(self) -> dict[str, object]:
        """Add ``retryAfter``; only a 429 has the ``Retry-After`` header (D17)."""
        return {**super().body(), "retryAfter": self.retry_after}

    def headers(self) -> tuple[Header, ...]:
        """Return ``Cache-Control: no-store``."""
        return (_NO_STORE,)


class StoreUnavailable(TryAgain):
    """The store did not answer, so the request is refused (D17, D28)."""

    code = "STORE_UNAVAILABLE"
    default_message = "The service cannot check credentials at the moment: try again shortly."


class ChangeCommitted(StoreUnavailable, StoreError):
    """The change was made and stays, but a step that follows it failed (D52).

    Do not repeat a change that adds something, such as a new key: it would be made twice.

    Attributes:
        result: what the call returns without the failure, such as a new key with its text. A pickle
            leaves it out.
        remains: what remains to happen, a sentence for each step, for operators.
        shown: the body of the response without the failure, as JSON; None: not a response.
    """

    code = "CHANGE_COMMITTED"
    default_message = (
        "The change is made and stays. A part of the service could not be told, so it may take "
        "effect there a little later."
    )
    result: object = None
    shown: object = None

    def __init__(self, result: object = None, remains: Iterable[str] = ()) -> None:
        super().__init__()
        self.result = result
        self.remains = tuple(remains)

    def body(self) -> dict[str, object]:
        """Add ``result``, the body of the response without the failure, if there is one."""
        body = super().body()
        return body if self.shown is None else {**body, "result": self.shown}


class RegistrationUnavailable(TryAgain):
    """The host's ``approve`` function failed, so the registration was not decided (D13)."""

    code = "REGISTRATION_UNAVAILABLE"
    default_message = (
        "The service cannot decide about registrations at the moment: try again shortly."
    )


class LeakReportsUnavailable(TryAgain):
    """A function of ``LeakReports`` failed, so the report was not taken in whole."""

    code = "LEAK_REPORTS_UNAVAILABLE"
    default_message = "The service cannot take reports of leaked keys at the moment: send it again."


class SlotLost(TryAgain):
    """The lease of a running job has ended: another job may hold the slot now.

    The holder did not renew the lease in time, or the slot was released to cancel the job.
    """

    code = "SLOT_LOST"
    default_message = "The job has lost its slot, and was stopped: try again shortly."
