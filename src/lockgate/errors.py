"""Every error of lockgate, drawn as a tree; each refusal knows its status, code and headers (D16).

LockgateError
├── ConfigurationError            wrong when the program was written: raised at construction
├── HandleTaken                   a store already has a key with this handle: draw another
└── Refusal                       an answer to a caller
    ├── Unauthenticated           401
    │   ├── MissingAuth           MISSING_AUTH
    │   ├── InvalidFormat         INVALID_FORMAT
    │   ├── KeyNotFound           KEY_NOT_FOUND
    │   ├── KeyRevoked            KEY_REVOKED
    │   ├── KeyExpired            KEY_EXPIRED
    │   ├── TokenNotAccepted      TOKEN_NOT_ACCEPTED
    │   ├── SessionRequired       SESSION_REQUIRED
    │   └── SessionInvalid        SESSION_INVALID
    ├── InsufficientScope         403 INSUFFICIENT_SCOPE
    ├── Forbidden                 403
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
    └── TryAgain
        ├── StoreUnavailable      503 STORE_UNAVAILABLE
        ├── RegistrationUnavailable   503 REGISTRATION_UNAVAILABLE
        └── SlotLost              503 SLOT_LOST

No message ever repeats a credential.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, NamedTuple

if TYPE_CHECKING:
    from .core.plans import Plan
    from .core.sliding_window import Reading

Header = tuple[bytes, bytes]
"""A header as ASGI carries it: lower-case name and value."""


class LockgateError(Exception):
    """Whatever lockgate raises."""


class ConfigurationError(LockgateError, ValueError):
    """The program puts lockgate together wrongly; the message says what to change."""


class HandleTaken(LockgateError):
    """A store was given a key whose handle it already has."""


class Refusal(LockgateError):
    """An answer other than success: its status, code and headers, and a sentence for a person.

    Attributes:
        rate: the rate-limit headers of whoever is refused (D24); set by the gate.
        measured: the plan and the reading that those headers tell of.
        organization: whose key or session it was, where that is known; for events only.
        principal: a :class:`~lockgate.Principal` where the credential is good and something else is
            not; for shadow mode and events only.
    """

    status: ClassVar[int]
    code: ClassVar[str]
    sentence: ClassVar[str]

    def __init__(self, message: str | None = None) -> None:
        self.message = message or self.sentence
        self.rate: tuple[Header, ...] = ()
        self.measured: tuple[Plan, Reading] | None = None
        self.organization: str | None = None
        self.principal: object = None
        super().__init__(self.message)

    def body(self) -> dict[str, object]:
        """The JSON body (D16): ``error`` and ``code``, and what the kind of refusal adds."""
        return {"error": self.message, "code": self.code}

    def headers(self) -> tuple[Header, ...]:
        """The headers that this kind of refusal adds, without the rate-limit ones."""
        return ()


_NO_STORE: Header = (b"cache-control", b"no-store")


class Unauthenticated(Refusal):
    """No credential, or one that is not accepted (RFC 6750, section 3)."""

    status = 401
    challenge: ClassVar[bytes] = b'Bearer error="invalid_token"'

    def headers(self) -> tuple[Header, ...]:
        """The challenge; not to be stored by any cache (D38)."""
        return ((b"www-authenticate", self.challenge), _NO_STORE)


class MissingAuth(Unauthenticated):
    """The request carries no ``Authorization`` header (D18)."""

    code = "MISSING_AUTH"
    sentence = "This needs an API key: send the header 'Authorization: Bearer <API key>'."
    challenge = b"Bearer"


class InvalidFormat(Unauthenticated):
    """The ``Authorization`` header is not exactly one well-formed Bearer key (D1, D18)."""

    code = "INVALID_FORMAT"
    sentence = (
        "The Authorization header does not hold one well-formed API key: send exactly one, "
        "as 'Bearer <API key>', copied whole."
    )


class KeyNotFound(Unauthenticated):
    """No such key: an unknown handle and a wrong secret look the same (D3)."""

    code = "KEY_NOT_FOUND"
    sentence = "This API key does not exist: use one that this service has given."


class KeyRevoked(Unauthenticated):
    """The key was revoked, for good."""

    code = "KEY_REVOKED"
    sentence = "This API key was revoked: use another one."


class KeyExpired(Unauthenticated):
    """The key's time is over."""

    code = "KEY_EXPIRED"
    sentence = "This API key has expired: create a new one."


class TokenNotAccepted(Unauthenticated):
    """No such dashboard token: whether it is malformed, unknown, wrong or revoked looks the same.

    That it is one, and of which organization, is for its holder to know.
    """

    code = "TOKEN_NOT_ACCEPTED"
    sentence = "This dashboard token is not accepted: send the one that registering gave."


class SessionRequired(Unauthenticated):
    """The operation takes a dashboard session, and no session cookie came (D11)."""

    code = "SESSION_REQUIRED"
    sentence = "This needs a dashboard session: sign in, an API key is not enough."
    challenge = b"Bearer"


class SessionInvalid(Unauthenticated):
    """A session cookie came and is not accepted, or two came (D11)."""

    code = "SESSION_INVALID"
    sentence = "The session is not valid or has ended: sign in again."
    challenge = b"Bearer"


class InsufficientScope(Refusal):
    """The key is good, and its scopes do not cover what the operation requires."""

    status = 403
    code = "INSUFFICIENT_SCOPE"

    def __init__(self, scope: str) -> None:
        self.scope = scope
        super().__init__(f"This API key lacks the scope {scope!r}: use one that has it.")

    def headers(self) -> tuple[Header, ...]:
        """The challenge that names the missing scope (RFC 6750, section 3.1)."""
        challenge = f'Bearer error="insufficient_scope", scope="{self.scope}"'
        return ((b"www-authenticate", challenge.encode()), _NO_STORE)


class Forbidden(Refusal):
    """Whoever asks is known, and may not do this."""

    status = 403

    def headers(self) -> tuple[Header, ...]:
        """Not to be stored by any cache (D38)."""
        return (_NO_STORE,)


class NoOrganization(Forbidden):
    """The login belongs to no organization, or not to the one that was named (D15)."""

    code = "NO_ORGANIZATION"
    sentence = "This session acts for no such organization: claim it, or sign in to another one."


class ClaimRefused(Forbidden):
    """The organization is not this login's to claim, or there is none: nobody can tell (D15)."""

    code = "CLAIM_REFUSED"
    sentence = (
        "This organization is not yours to claim: sign in with its billing e-mail address, "
        "verified, and see that nobody else has claimed it."
    )


class RegistrationRefused(Forbidden):
    """The service did not approve of a registration (``Registration(approve=...)``, D13)."""

    code = "REGISTRATION_REFUSED"
    sentence = "This service did not approve of the registration: see what proof it asks for."


class AgentsOnly(Forbidden):
    """The session is a person's, and this is for agents that signed in (D15)."""

    code = "AGENTS_ONLY"
    sentence = "This ends the sessions of agents: sign out at your identity provider."


class CrossSiteRequest(Forbidden):
    """A page of another site tried to write with the visitor's session (D11)."""

    code = "CROSS_SITE_REQUEST"
    sentence = "This comes from another site: a session is accepted from its own site only."


class Problem(NamedTuple):
    """What is wrong with one field: its dotted path (empty for the whole body) and a sentence."""

    field: str
    message: str


class InvalidRequest(Refusal):
    """The request does not say what it must; every problem is listed (D17)."""

    status = 400
    code = "VALIDATION_ERROR"

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = list(problems)
        where = ", ".join(sorted({p.field for p in self.problems if p.field}))
        super().__init__(
            f"The request is not valid: see {where}." if where else "The request is not valid."
        )

    def __str__(self) -> str:
        """The message with the reasons, for a program that calls lockgate itself."""
        reasons = [f"{p.field}: {p.message}" if p.field else p.message for p in self.problems]
        return " ".join([self.message, *reasons])

    def body(self) -> dict[str, object]:
        """Adds ``details``, one ``{"field", "message"}`` for each problem."""
        return {**super().body(), "details": [problem._asdict() for problem in self.problems]}


class NotFound(Refusal):
    """No such thing, or it belongs to another organization: nobody can tell which (D9)."""

    status = 404
    code = "NOT_FOUND"
    sentence = "There is nothing here: check the path, and any id in it."


class MethodNotAllowed(Refusal):
    """The path exists, the method does not."""

    status = 405
    code = "METHOD_NOT_ALLOWED"

    def __init__(self, allowed: Iterable[str]) -> None:
        self.allowed = ", ".join(sorted(allowed))
        instead = f": use {self.allowed}" if self.allowed else ""
        super().__init__(f"This method is not allowed here{instead}.")

    def headers(self) -> tuple[Header, ...]:
        """``Allow`` names the methods that exist."""
        return ((b"allow", self.allowed.encode()),)


class KeyLimitReached(Refusal):
    """The organization already has as many live keys as it may (D8)."""

    status = 409
    code = "KEY_LIMIT_REACHED"

    def __init__(self, cap: int) -> None:
        super().__init__(f"The organization has {cap} live API keys, the most it may: revoke one.")


class KeyNotLive(Refusal):
    """The key was revoked or has expired: no verb changes it any more (D43)."""

    status = 409
    code = "KEY_NOT_LIVE"
    sentence = "This key was revoked or has expired, so it cannot be changed: create another one."


class KeyRotated(Refusal):
    """The key was rotated before, and has one successor only (D43)."""

    status = 409
    code = "KEY_ROTATED"

    def __init__(self, successor: str) -> None:
        super().__init__(f"This key was rotated before: rotate its successor, {successor}.")


class JobRunning(Refusal):
    """Another holder has the slot of this job: one job does not run twice at a time."""

    status = 409
    code = "JOB_RUNNING"
    sentence = "This job is running already: wait until it has ended."


class PayloadTooLarge(Refusal):
    """The body is larger than these operations read."""

    status = 413
    code = "PAYLOAD_TOO_LARGE"

    def __init__(self, limit: int) -> None:
        super().__init__(f"The body is too large: send at most {limit} bytes.")


class UnsupportedMediaType(Refusal):
    """The body is not declared as JSON (D11)."""

    status = 415
    code = "UNSUPPORTED_MEDIA_TYPE"
    sentence = "Send the body as JSON, with the header 'Content-Type: application/json'."


class RateLimitExceeded(Refusal):
    """A window is full (spec 7.2, D22).

    Attributes:
        type: the window that decides: ``minute``, ``hour`` or ``day``.
        limit: what it admits.
        used: what it counts.
        retry_after: whole seconds to wait, at least 1; of a cost above the limit, which is never
            admitted, the window's length (D39).
        cost: what the request takes from the window.
        since: the instant of the decision, in microseconds.
        until: until when a request of cost 1 gets this very answer, if no key or plan changes.
    """

    status = 429
    code = "RATE_LIMIT_EXCEEDED"
    sentence = (
        "Too many requests: {used} of {limit} used in the last {type}; "
        + "try again in {retry_after} s."
    )
    never = (
        "A request of cost {cost} is never admitted, however long you wait: "
        + "the limit of the {type} is {limit}."
    )

    def __init__(self, type: str, limit: int, used: int, retry_after: int, cost: int = 1) -> None:
        self.type = type
        self.limit = limit
        self.used = used
        self.retry_after = retry_after
        self.cost = cost
        self.since = self.until = 0
        sentence = self.never if cost > limit else self.sentence
        super().__init__(sentence.format_map(vars(self)))

    def body(self) -> dict[str, object]:
        """Adds ``retryAfter`` and ``limits`` (spec 7.2)."""
        limits = {"type": self.type, "limit": self.limit, "used": self.used}
        return {**super().body(), "retryAfter": self.retry_after, "limits": limits}

    def headers(self) -> tuple[Header, ...]:
        """``Retry-After``; not to be stored by any cache (D38)."""
        return ((b"retry-after", b"%d" % self.retry_after), _NO_STORE)


class ConcurrentLimitExceeded(RateLimitExceeded):
    """Every slot for concurrent jobs is taken (D26).

    ``type`` is ``concurrent``, ``used`` the slots that are held, and ``retry_after`` a hint: nobody
    knows when a job ends.
    """

    code = "CONCURRENT_LIMIT_EXCEEDED"
    sentence = (
        "Too many jobs at a time: {used} of {limit} slots are taken; try again in {retry_after} s."
    )

    def __init__(self, limit: int, used: int, retry_after: int) -> None:
        super().__init__("concurrent", limit, used, retry_after, cost=0)


class TryAgain(Refusal):
    """It is the service's fault, and may be over soon."""

    status = 503
    retry_after: ClassVar[int] = 1
    """Whole seconds to wait."""

    def body(self) -> dict[str, object]:
        """Adds ``retryAfter``; only a 429 has the ``Retry-After`` header (spec 8.2)."""
        return {**super().body(), "retryAfter": self.retry_after}

    def headers(self) -> tuple[Header, ...]:
        """Not to be stored by any cache."""
        return (_NO_STORE,)


class StoreUnavailable(TryAgain):
    """What decides could not be asked, so nobody is let in (D17, D28)."""

    code = "STORE_UNAVAILABLE"
    sentence = "The service cannot check credentials at the moment: try again shortly."


class RegistrationUnavailable(TryAgain):
    """The service could not decide about a registration: its ``approve`` failed (D13)."""

    code = "REGISTRATION_UNAVAILABLE"
    sentence = "The service cannot decide about registrations at the moment: try again shortly."


class SlotLost(TryAgain):
    """The lease of a job's slot is over while the job was running: its slot may be another's now.

    Its holder did not renew it in time, or somebody released it, to cancel the job.
    """

    code = "SLOT_LOST"
    sentence = "The job has lost its slot, and was stopped: try again shortly."
