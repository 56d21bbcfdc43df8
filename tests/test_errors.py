"""Every refusal, to the letter; and the tree in the docstring is the tree there is (D16, D17)."""

import inspect
import pickle
import re
from collections.abc import Iterator

import pytest

from lockgate import errors
from lockgate.errors import Problem, Refusal

BEARER = (b"www-authenticate", b"Bearer")
INVALID_TOKEN = (b"www-authenticate", b'Bearer error="invalid_token"')
STEP_UP = (b"www-authenticate", b'Bearer error="insufficient_user_authentication"')
NO_STORE = (b"cache-control", b"no-store")

REFUSALS: list[tuple[Refusal, int, str, tuple[tuple[bytes, bytes], ...]]] = [
    (errors.MissingAuth(), 401, "MISSING_AUTH", (BEARER, NO_STORE)),
    (errors.InvalidFormat(), 401, "INVALID_FORMAT", (INVALID_TOKEN, NO_STORE)),
    (errors.KeyNotFound(), 401, "KEY_NOT_FOUND", (INVALID_TOKEN, NO_STORE)),
    (errors.KeyRevoked(), 401, "KEY_REVOKED", (INVALID_TOKEN, NO_STORE)),
    (errors.KeyExpired(), 401, "KEY_EXPIRED", (INVALID_TOKEN, NO_STORE)),
    (errors.TokenNotAccepted(), 401, "TOKEN_NOT_ACCEPTED", (INVALID_TOKEN, NO_STORE)),
    (errors.ReportNotAccepted(), 401, "REPORT_NOT_ACCEPTED", (BEARER, NO_STORE)),
    (errors.SessionRequired(), 401, "SESSION_REQUIRED", (BEARER, NO_STORE)),
    (errors.SessionInvalid(), 401, "SESSION_INVALID", (BEARER, NO_STORE)),
    (errors.SessionTokenInvalid(), 401, "SESSION_INVALID", (INVALID_TOKEN, NO_STORE)),
    (errors.StepUpRequired(), 401, "SESSION_INVALID", (STEP_UP, NO_STORE)),
    (
        errors.InsufficientScope("jobs:read"),
        403,
        "INSUFFICIENT_SCOPE",
        (
            (b"www-authenticate", b'Bearer error="insufficient_scope", scope="jobs:read"'),
            NO_STORE,
        ),
    ),
    (
        errors.AddressNotAllowed("org_1", "an id"),
        403,
        "INSUFFICIENT_SCOPE",
        ((b"www-authenticate", b'Bearer error="insufficient_scope"'), NO_STORE),
    ),
    (errors.NoOrganization(), 403, "NO_ORGANIZATION", (NO_STORE,)),
    (errors.ClaimRefused(), 403, "CLAIM_REFUSED", (NO_STORE,)),
    (errors.RegistrationRefused(), 403, "REGISTRATION_REFUSED", (NO_STORE,)),
    (errors.AgentsOnly(), 403, "AGENTS_ONLY", (NO_STORE,)),
    (errors.CrossSiteRequest(), 403, "CROSS_SITE_REQUEST", (NO_STORE,)),
    (errors.InvalidRequest([Problem("name", "Say it.")]), 400, "VALIDATION_ERROR", ()),
    (errors.NotFound(), 404, "NOT_FOUND", ()),
    (
        errors.MethodNotAllowed(["POST", "GET"]),
        405,
        "METHOD_NOT_ALLOWED",
        ((b"allow", b"GET, POST"),),
    ),
    (errors.KeyLimitReached(1_000), 409, "KEY_LIMIT_REACHED", ()),
    (errors.KeyNotLive(), 409, "KEY_NOT_LIVE", ()),
    (errors.KeyRotated("an id"), 409, "KEY_ROTATED", ()),
    (errors.JobRunning(), 409, "JOB_RUNNING", ()),
    (errors.PayloadTooLarge(65_536), 413, "PAYLOAD_TOO_LARGE", ()),
    (errors.UnsupportedMediaType(), 415, "UNSUPPORTED_MEDIA_TYPE", ()),
    (
        errors.RateLimitExceeded("minute", 10, 10, 42),
        429,
        "RATE_LIMIT_EXCEEDED",
        ((b"retry-after", b"42"), NO_STORE),
    ),
    (
        errors.ConcurrentLimitExceeded(2, 2, 10),
        429,
        "CONCURRENT_LIMIT_EXCEEDED",
        ((b"retry-after", b"10"), NO_STORE),
    ),
    (errors.ClientDisconnected(), 499, "CLIENT_DISCONNECTED", ()),
    (errors.SlotLost(), 503, "SLOT_LOST", (NO_STORE,)),
    (errors.RegistrationUnavailable(), 503, "REGISTRATION_UNAVAILABLE", (NO_STORE,)),
    (errors.LeakReportsUnavailable(), 503, "LEAK_REPORTS_UNAVAILABLE", (NO_STORE,)),
    (errors.StoreUnavailable(), 503, "STORE_UNAVAILABLE", (NO_STORE,)),
    (errors.ChangeCommitted(), 503, "CHANGE_COMMITTED", (NO_STORE,)),
]
NAMES = [type(refusal).__name__ for refusal, *_ in REFUSALS]


def offspring(kind: type[errors.LockgateError]) -> Iterator[type[errors.LockgateError]]:
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


LIMITED = {"retryAfter", "limits"}
MORE_FIELDS = {
    "VALIDATION_ERROR": {"details"},
    "RATE_LIMIT_EXCEEDED": LIMITED,
    "CONCURRENT_LIMIT_EXCEEDED": LIMITED,
    "REGISTRATION_UNAVAILABLE": {"retryAfter"},
    "LEAK_REPORTS_UNAVAILABLE": {"retryAfter"},
    "STORE_UNAVAILABLE": {"retryAfter"},
    "CHANGE_COMMITTED": {"retryAfter"},
    "SLOT_LOST": {"retryAfter"},
}


@pytest.mark.parametrize(("refusal", "status", "code", "headers"), REFUSALS, ids=NAMES)
def test_every_refusal_has_its_status_code_headers_sentence_and_fields(
    refusal: Refusal, status: int, code: str, headers: tuple[tuple[bytes, bytes], ...]
) -> None:
    """``Retry-After`` is on a 429 only (D17)."""
    assert (refusal.status, refusal.code, refusal.headers()) == (status, code, headers)
    assert all(name == name.lower() for name, _ in headers)
    if status in {401, 403, 429}:
        assert NO_STORE in headers, "D38"
    assert refusal.rate == ()
    body = refusal.body()
    sentence = body["error"]
    assert isinstance(sentence, str)
    assert sentence == refusal.message
    assert str(refusal).startswith(sentence)
    assert sentence[0].isupper() and sentence.endswith(".") and sentence.isprintable()
    assert body["code"] == code
    assert body.keys() == {"error", "code"} | MORE_FIELDS.get(code, set())


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


@pytest.mark.parametrize(
    ("refusal", "sentence", "limits"),
    [
        (
            errors.ConcurrentLimitExceeded(2, 3, 10),
            "Too many jobs at a time: 3 of 2 slots are taken; try again in 10 s.",
            {"type": "concurrent", "limit": 2, "used": 3},
        ),
        (
            errors.RateLimitExceeded("hour", 100, 99, 10, 2),
            "Too many requests: 99 of 100 used in the last hour; try again in 10 s.",
            {"type": "hour", "limit": 100, "used": 99},
        ),
        (  # Units that are leased, too many holds, or the share of a process whose store is away.
            errors.RateLimitExceeded("hour", 100, 5, 10, limit_name="tokens"),
            "Too many requests for 'tokens' at present; try again in 10 s.",
            {"type": "hour", "limit": 100, "used": 5, "name": "tokens"},
        ),
    ],
)
def test_a_limit_names_what_was_exceeded_D26(
    refusal: Refusal, sentence: str, limits: object
) -> None:
    """Spec 7.2."""
    told = {"error": sentence, "code": refusal.code, "retryAfter": 10, "limits": limits}
    assert refusal.body() == told
    for shortly in (errors.StoreUnavailable(), errors.SlotLost()):
        assert shortly.body()["retryAfter"] == 1


def test_an_invalid_request_lists_every_problem() -> None:
    problems = [
        Problem("scopes.1", "There is no scope 'x'."),
        Problem("name", "Say it."),
        Problem("name", "Twice."),
        Problem("", "Nothing else."),
    ]
    refusal = errors.InvalidRequest(iter(problems))
    assert refusal.body() == {
        "error": "The request is not valid: see name, scopes.1.",
        "code": "VALIDATION_ERROR",
        "details": [{"field": field, "message": message} for field, message in problems],
    }
    whole = errors.InvalidRequest([Problem("", "The body is no JSON.")])
    assert whole.message == "The request is not valid."
    assert str(whole) == "The request is not valid. The body is no JSON."
    assert str(refusal).startswith(f"{refusal.message} scopes.1: There is no scope 'x'. name: Say")


def test_messages_name_the_remedy() -> None:
    assert errors.InsufficientScope("jobs:read").message == (
        "This API key lacks the scope 'jobs:read': use one that has it."
    )
    assert "GET, POST" in errors.MethodNotAllowed({"POST", "GET"}).message
    assert "1000" in errors.KeyLimitReached(1_000).message
    assert "an id" in errors.KeyRotated("an id").message
    assert "65536" in errors.PayloadTooLarge(65_536).message
    assert Refusal("Something else.").message == "Something else."
    assert errors.NotFound("No such job.").body() == {"error": "No such job.", "code": "NOT_FOUND"}


def test_a_wrong_configuration_is_also_a_value_error() -> None:
    assert issubclass(errors.ConfigurationError, ValueError)


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
        if issubclass(kind, errors.LockgateError) and kind is not errors.LockgateError
    }
    assert {name: parent for name, (parent, _) in drawn().items() if parent} == classes
    assert drawn()["LockgateError"] == (None, "")


def test_the_tree_in_the_docstring_has_every_status_and_code() -> None:
    for refusal, status, code, _ in REFUSALS:
        _, beside = drawn()[type(refusal).__name__]
        grouped = isinstance(refusal, errors.Unauthenticated | errors.Forbidden)
        assert beside == (code if grouped else f"{status} {code}")
    assert drawn()["Unauthenticated"][1] == "401"
    assert drawn()["Forbidden"][1] == "403"


def test_the_module_exports_every_public_class() -> None:
    public = {name for name, one in vars(errors).items() if isinstance(one, type)}
    ours = {name for name in public if vars(errors)[name].__module__ == errors.__name__}
    assert {name for name in ours if name[0] != "_"} | {"Header"} == set(errors.__all__)
