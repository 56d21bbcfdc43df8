"""Every refusal, to the letter; and the tree in the docstring is the tree there is (D16, D17)."""

import inspect
import pickle
import re
from collections.abc import Iterator

import pytest

from lockgate import errors
from lockgate.errors import (
    AddressNotAllowed,
    AgentsOnly,
    ChangeCommitted,
    ClaimRefused,
    ClientDisconnected,
    ConcurrentLimitExceeded,
    ConfigurationError,
    CrossSiteRequest,
    Forbidden,
    HandleTaken,
    InsufficientScope,
    InvalidFormat,
    InvalidRequest,
    JobRunning,
    KeyExpired,
    KeyLimitReached,
    KeyNotFound,
    KeyNotLive,
    KeyRevoked,
    KeyRotated,
    LeakReportsUnavailable,
    LockgateError,
    MethodNotAllowed,
    MissingAuth,
    NoOrganization,
    NotFound,
    PayloadTooLarge,
    Problem,
    RateLimitExceeded,
    Refusal,
    RegistrationRefused,
    RegistrationUnavailable,
    ReportNotAccepted,
    SessionInvalid,
    SessionRequired,
    SessionTokenInvalid,
    SlotLost,
    StepUpRequired,
    StoreUnavailable,
    TokenNotAccepted,
    Unauthenticated,
    UnsupportedMediaType,
)

BEARER = (b"www-authenticate", b"Bearer")
INVALID_TOKEN = (b"www-authenticate", b'Bearer error="invalid_token"')
STEP_UP = (b"www-authenticate", b'Bearer error="insufficient_user_authentication"')
NO_STORE = (b"cache-control", b"no-store")

REFUSALS: list[tuple[Refusal, int, str, tuple[tuple[bytes, bytes], ...]]] = [
    (MissingAuth(), 401, "MISSING_AUTH", (BEARER, NO_STORE)),
    (InvalidFormat(), 401, "INVALID_FORMAT", (INVALID_TOKEN, NO_STORE)),
    (KeyNotFound(), 401, "KEY_NOT_FOUND", (INVALID_TOKEN, NO_STORE)),
    (KeyRevoked(), 401, "KEY_REVOKED", (INVALID_TOKEN, NO_STORE)),
    (KeyExpired(), 401, "KEY_EXPIRED", (INVALID_TOKEN, NO_STORE)),
    (TokenNotAccepted(), 401, "TOKEN_NOT_ACCEPTED", (INVALID_TOKEN, NO_STORE)),
    (ReportNotAccepted(), 401, "REPORT_NOT_ACCEPTED", (BEARER, NO_STORE)),
    (SessionRequired(), 401, "SESSION_REQUIRED", (BEARER, NO_STORE)),
    (SessionInvalid(), 401, "SESSION_INVALID", (BEARER, NO_STORE)),
    (SessionTokenInvalid(), 401, "SESSION_INVALID", (INVALID_TOKEN, NO_STORE)),
    (StepUpRequired(), 401, "SESSION_INVALID", (STEP_UP, NO_STORE)),
    (
        InsufficientScope("jobs:read"),
        403,
        "INSUFFICIENT_SCOPE",
        (
            (b"www-authenticate", b'Bearer error="insufficient_scope", scope="jobs:read"'),
            NO_STORE,
        ),
    ),
    (
        AddressNotAllowed("org_1", "an id"),
        403,
        "INSUFFICIENT_SCOPE",
        ((b"www-authenticate", b'Bearer error="insufficient_scope"'), NO_STORE),
    ),
    (NoOrganization(), 403, "NO_ORGANIZATION", (NO_STORE,)),
    (ClaimRefused(), 403, "CLAIM_REFUSED", (NO_STORE,)),
    (RegistrationRefused(), 403, "REGISTRATION_REFUSED", (NO_STORE,)),
    (AgentsOnly(), 403, "AGENTS_ONLY", (NO_STORE,)),
    (CrossSiteRequest(), 403, "CROSS_SITE_REQUEST", (NO_STORE,)),
    (InvalidRequest([Problem("name", "Say it.")]), 400, "VALIDATION_ERROR", ()),
    (NotFound(), 404, "NOT_FOUND", ()),
    (MethodNotAllowed(["POST", "GET"]), 405, "METHOD_NOT_ALLOWED", ((b"allow", b"GET, POST"),)),
    (KeyLimitReached(1_000), 409, "KEY_LIMIT_REACHED", ()),
    (KeyNotLive(), 409, "KEY_NOT_LIVE", ()),
    (KeyRotated("an id"), 409, "KEY_ROTATED", ()),
    (JobRunning(), 409, "JOB_RUNNING", ()),
    (PayloadTooLarge(65_536), 413, "PAYLOAD_TOO_LARGE", ()),
    (UnsupportedMediaType(), 415, "UNSUPPORTED_MEDIA_TYPE", ()),
    (
        RateLimitExceeded("minute", 10, 10, 42),
        429,
        "RATE_LIMIT_EXCEEDED",
        ((b"retry-after", b"42"), NO_STORE),
    ),
    (
        ConcurrentLimitExceeded(2, 2, 10),
        429,
        "CONCURRENT_LIMIT_EXCEEDED",
        ((b"retry-after", b"10"), NO_STORE),
    ),
    (ClientDisconnected(), 499, "CLIENT_DISCONNECTED", ()),
    (SlotLost(), 503, "SLOT_LOST", (NO_STORE,)),
    (RegistrationUnavailable(), 503, "REGISTRATION_UNAVAILABLE", (NO_STORE,)),
    (LeakReportsUnavailable(), 503, "LEAK_REPORTS_UNAVAILABLE", (NO_STORE,)),
    (StoreUnavailable(), 503, "STORE_UNAVAILABLE", (NO_STORE,)),
    (ChangeCommitted(), 503, "CHANGE_COMMITTED", (NO_STORE,)),
]
NAMES = [type(refusal).__name__ for refusal, *_ in REFUSALS]


def offspring(kind: type[LockgateError]) -> Iterator[type[LockgateError]]:
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            yield child
            yield from offspring(child)


def test_the_table_holds_every_refusal() -> None:
    answers = {kind for kind in offspring(Refusal) if hasattr(kind, "code")}
    assert answers == {type(refusal) for refusal, *_ in REFUSALS}
    codes = [code for _, _, code, _ in REFUSALS]
    shared = {code for code in codes if codes.count(code) > 1}
    # The interface has no code of its own for an address, and for a session that is no cookie.
    assert shared == {"INSUFFICIENT_SCOPE", "SESSION_INVALID"}


@pytest.mark.parametrize(("refusal", "status", "code", "headers"), REFUSALS, ids=NAMES)
def test_status_code_and_headers(
    refusal: Refusal, status: int, code: str, headers: tuple[tuple[bytes, bytes], ...]
) -> None:
    assert (refusal.status, refusal.code, refusal.headers()) == (status, code, headers)
    assert all(name == name.lower() for name, _ in refusal.headers())
    if status in {401, 403, 429}:
        assert NO_STORE in refusal.headers(), "D38"
    assert refusal.rate == ()


@pytest.mark.parametrize(("refusal", "status", "code", "headers"), REFUSALS, ids=NAMES)
def test_every_refusal_has_a_sentence_a_code_and_its_fields(
    refusal: Refusal, status: int, code: str, headers: tuple[tuple[bytes, bytes], ...]
) -> None:
    body = refusal.body()
    sentence = body["error"]
    assert isinstance(sentence, str)
    assert sentence == refusal.message
    assert str(refusal).startswith(sentence)
    assert sentence[0].isupper() and sentence.endswith(".") and sentence.isprintable()
    assert body["code"] == code
    limited = {"retryAfter", "limits"}
    more = {
        "VALIDATION_ERROR": {"details"},
        "RATE_LIMIT_EXCEEDED": limited,
        "CONCURRENT_LIMIT_EXCEEDED": limited,
        "REGISTRATION_UNAVAILABLE": {"retryAfter"},
        "LEAK_REPORTS_UNAVAILABLE": {"retryAfter"},
        "STORE_UNAVAILABLE": {"retryAfter"},
        "CHANGE_COMMITTED": {"retryAfter"},
        "SLOT_LOST": {"retryAfter"},
    }
    assert body.keys() == {"error", "code"} | more.get(code, set())


@pytest.mark.parametrize("refusal", [refusal for refusal, *_ in REFUSALS], ids=NAMES)
def test_a_refusal_can_be_pickled_as_queues_of_jobs_do(refusal: Refusal) -> None:
    refusal.principal = "with the digest of a key"
    copy = pickle.loads(pickle.dumps(refusal))
    refusal.principal = None
    assert type(copy) is type(refusal)
    assert (str(copy), copy.body(), copy.headers()) == (
        *(str(refusal), refusal.body()),
        refusal.headers(),
    )
    assert copy.principal is None


def test_a_concurrent_limit_names_the_exceeded_limit() -> None:
    """D26."""
    assert ConcurrentLimitExceeded(2, 3, 10).body() == {
        "error": "Too many jobs at a time: 3 of 2 slots are taken; try again in 10 s.",
        "code": "CONCURRENT_LIMIT_EXCEEDED",
        "retryAfter": 10,
        "limits": {"type": "concurrent", "limit": 2, "used": 3},
    }


def test_a_rate_limit_names_the_exceeded_window() -> None:
    """Spec 7.2."""
    assert RateLimitExceeded("hour", 100, 99, 1_800, 2).body() == {
        "error": "Too many requests: 99 of 100 used in the last hour; try again in 1800 s.",
        "code": "RATE_LIMIT_EXCEEDED",
        "retryAfter": 1_800,
        "limits": {"type": "hour", "limit": 100, "used": 99},
    }


def test_a_refusal_for_another_reason_than_the_units_used_does_not_name_them() -> None:
    """Units that are leased, too many holds, or the share of a process whose store is away."""
    assert RateLimitExceeded("hour", 100, 5, 20, limit_name="tokens").body() == {
        "error": "Too many requests for 'tokens' at present; try again in 20 s.",
        "code": "RATE_LIMIT_EXCEEDED",
        "retryAfter": 20,
        "limits": {"type": "hour", "limit": 100, "used": 5, "name": "tokens"},
    }


@pytest.mark.parametrize("refusal", [StoreUnavailable(), SlotLost()], ids=repr)
def test_a_503_has_retry_after_in_its_body_only(refusal: Refusal) -> None:
    """D17: ``Retry-After`` is on a 429 only."""
    assert refusal.body()["retryAfter"] == 1
    assert b"retry-after" not in dict(refusal.headers())


def test_an_invalid_request_lists_every_problem() -> None:
    problems = [
        Problem("scopes.1", "There is no scope 'x'."),
        Problem("name", "Say it."),
        Problem("name", "Twice."),
        Problem("", "Nothing else."),
    ]
    refusal = InvalidRequest(iter(problems))
    assert refusal.body() == {
        "error": "The request is not valid: see name, scopes.1.",
        "code": "VALIDATION_ERROR",
        "details": [{"field": field, "message": message} for field, message in problems],
    }
    whole = InvalidRequest([Problem("", "The body is no JSON.")])
    assert whole.message == "The request is not valid."
    assert str(whole) == "The request is not valid. The body is no JSON."
    assert str(refusal).startswith(f"{refusal.message} scopes.1: There is no scope 'x'. name: Say")


def test_messages_name_the_remedy() -> None:
    assert InsufficientScope("jobs:read").message == (
        "This API key lacks the scope 'jobs:read': use one that has it."
    )
    assert "GET, POST" in MethodNotAllowed({"POST", "GET"}).message
    assert "1000" in KeyLimitReached(1_000).message
    assert "an id" in KeyRotated("an id").message
    assert "65536" in PayloadTooLarge(65_536).message
    assert Refusal("Something else.").message == "Something else."
    assert NotFound("No such job.").body() == {"error": "No such job.", "code": "NOT_FOUND"}


def test_a_wrong_configuration_is_also_a_value_error() -> None:
    assert issubclass(ConfigurationError, ValueError)
    assert not issubclass(ConfigurationError, Refusal)
    assert not issubclass(HandleTaken, Refusal)


def test_rate_headers_are_of_one_refusal_alone() -> None:
    one, other = KeyNotFound(), KeyNotFound()
    one.rate = ((b"x-ratelimit-limit", b"1"),)
    assert other.rate == ()


# The tree


def drawn() -> dict[str, tuple[str | None, str]]:
    """Each class of the drawing: the one it hangs from, and what stands beside it."""
    found: dict[str, tuple[str | None, str]] = {}
    above: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        entry = re.fullmatch(r"((?:[│ ]   )*(?:[├└]── )?)([A-Z][A-Za-z]+)(?: {2,}(\S.*))?", line)
        if entry:
            depth = len(entry[1]) // 4
            above[depth:] = [entry[2]]
            found[entry[2]] = (above[depth - 1] if depth else None, entry[3] or "")
    return found


def test_the_drawing_is_the_tree() -> None:
    classes = {
        kind.__name__: kind.__bases__[0].__name__
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, LockgateError) and kind is not LockgateError
    }
    assert {name: parent for name, (parent, _) in drawn().items() if parent} == classes
    assert drawn()["LockgateError"] == (None, "")


def test_the_tree_in_the_docstring_has_every_status_and_code() -> None:
    for refusal, status, code, _ in REFUSALS:
        _, beside = drawn()[type(refusal).__name__]
        grouped = isinstance(refusal, Unauthenticated | Forbidden)
        assert beside == (code if grouped else f"{status} {code}")
    assert drawn()["Unauthenticated"][1] == "401"
    assert drawn()["Forbidden"][1] == "403"


def test_the_module_exports_every_public_class() -> None:
    public = {name for name, one in vars(errors).items() if isinstance(one, type)}
    ours = {name for name in public if vars(errors)[name].__module__ == errors.__name__}
    assert {name for name in ours if name[0] != "_"} | {"Header"} == set(errors.__all__)
