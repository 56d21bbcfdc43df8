"""The rate-limit headers that every response carries (spec 8.2, D23)."""

from collections.abc import Sequence

from ..errors import Header, RateLimitExceeded
from .instants import SECOND, whole_seconds
from .plans import Plan
from .windows import Reading, Window

RATE_HEADERS = frozenset({b"x-ratelimit-limit", b"x-ratelimit-remaining", b"x-ratelimit-reset"})
"""The names lockgate answers for: what an application sets under them is replaced."""

DRAFT_HEADERS = frozenset({b"ratelimit", b"ratelimit-policy"})
"""The fields of the IETF draft, an option."""

OURS = RATE_HEADERS | DRAFT_HEADERS
"""All that an application does not set itself."""

NOT_TO_STORE = frozenset({401, 403, 429})
"""The statuses of answers that no cache may keep, whoever gives them (D38)."""


def rate_headers(plan: Plan, reading: Reading) -> tuple[Header, ...]:
    """``X-RateLimit-Limit``, ``-Remaining`` and ``-Reset``; none is invented for no limit (D25)."""
    remaining = reading.remaining
    if remaining is None:
        return ()
    left = (b"x-ratelimit-remaining", b"%d" % remaining)
    reset = (b"x-ratelimit-reset", b"%d" % -(-reading.reset // SECOND))
    limit = plan.limit_header
    return (left, reset) if limit is None else (limit, left, reset)


def draft_headers(plan: Plan, reading: Reading) -> tuple[Header, ...]:
    """``RateLimit-Policy`` and ``RateLimit`` (draft-ietf-httpapi-ratelimit-headers-10)."""
    if reading.tightest is None:
        return ()
    policy = ", ".join(
        f'"{window.name}";q={window.limit};w={window.span // SECOND}'
        for window in plan.windows
        if window.limit is not None
    )
    name = plan.windows[reading.tightest].name
    resets_in = whole_seconds(reading.reset - reading.now)
    limit = f'"{name}";r={reading.remaining};t={resets_in}'
    return ((b"ratelimit-policy", policy.encode()), (b"ratelimit", limit.encode()))


def all_headers(plan: Plan, reading: Reading) -> tuple[Header, ...]:
    """Those of :func:`rate_headers`, and those of :func:`draft_headers`."""
    return (*rate_headers(plan, reading), *draft_headers(plan, reading))


def rate_limit_exceeded(windows: Sequence[Window], reading: Reading) -> RateLimitExceeded:
    """The error of a refused reading: of the window with the longest wait (D22)."""
    assert reading.refused_by is not None, "only a refusal has a refusing window"
    window = windows[reading.refused_by]
    assert window.limit is not None, "a window without a limit refuses nothing"
    used, now, wait = reading.used[reading.refused_by], reading.now, reading.wait
    retry_after = max(1, whole_seconds(wait))
    refusal = RateLimitExceeded(window.name, window.limit, used, retry_after)
    refusal.since = refusal.until = now
    # Where nothing is left nothing is counted either, until the first of it leaves.
    if reading.remaining == 0 and used == window.limit:
        a_second_less = now + wait - (retry_after - 1) * SECOND
        refusal.until = min(a_second_less, reading.reset)
    return refusal
