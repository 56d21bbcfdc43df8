"""The contenders: the bare application, and what people put before it.

Each function takes the limits (per minute, hour and day) and returns an ASGI application.
"""

import os
from collections import deque
from collections.abc import Callable
from hashlib import sha256
from hmac import compare_digest, digest
from time import time_ns

from limits import parse_many
from limits.storage import MemoryStorage
from limits.strategies import SlidingWindowCounterRateLimiter
from redis import asyncio as redis_asyncio
from slowapi import Limiter, _rate_limit_exceeded_handler
from slowapi.errors import RateLimitExceeded
from slowapi.middleware import SlowAPIASGIMiddleware

from lockgate import Gate, MemoryStore, Plan, PlanBook, Store, open_store, run
from lockgate.asgi import GateMiddleware
from lockgate.options import StoreOptions

from .workload import BRAND, KEY, PEPPER, TEMPLATES, bare, draft, endpoint

Limits = tuple[int, int, int]
REDIS = "LOCKGATE_BENCHMARKS_REDIS"
"""The variable that holds the URL of a Redis server, for those who keep something there."""
SPANS = (60, 3_600, 86_400)


def nothing(limits: Limits):
    """The bare Starlette application."""
    return bare()


def lockgate(
    limits: Limits,
    clock: Callable[[], int] | None = None,
    store: Store | None = None,
    lease: float | None = None,
):
    """lockgate as its users put it: a pepper, scopes on every route, the memory store."""
    store = store or MemoryStore()
    gate = Gate(
        store,
        brand=BRAND,
        peppers=[PEPPER],
        plans=PlanBook([Plan("bench", *limits, concurrent=None)], default="bench"),
        # Beside other work, an answer after the default deadline counts as slow, not as a 503.
        store_options=StoreOptions(clock=clock, lease=lease, deadline=30.0),
    )
    if run(store.find(KEY.handle)) is None:
        run(store.insert(draft(), None))
    return GateMiddleware(bare(), gate, {f"GET {path}": "models:read" for path in TEMPLATES})


def lockgate_redis(limits: Limits):
    """The same, with the keys and the windows in Redis."""
    return lockgate(limits, store=open_store(os.environ[REDIS]))


def lockgate_leased(limits: Limits):
    """The same, with quota leases."""
    return lockgate(limits, store=open_store(os.environ[REDIS]), lease=1)


def floor_redis(limits: Limits):
    """The least that asks Redis at all: one EVALSHA of a script that does nothing, by redis-py."""
    app = bare()
    client = redis_asyncio.Redis.from_url(os.environ[REDIS], protocol=2)
    loaded: list[str] = []

    async def guarded(scope, receive, send):
        if not loaded:
            loaded.append(await client.script_load("return 1"))
        await client.evalsha(loaded[0], 1, "floor")
        await app(scope, receive, send)

    return guarded


def _slowapi_limiter(limits: Limits, storage: str = "memory://", **options) -> Limiter:
    return Limiter(
        key_func=lambda request: request.headers["authorization"],
        headers_enabled=True,
        storage_uri=storage,
        **options,
    )


def _text(limits: Limits) -> str:
    return ";".join(
        f"{n}/{span}" for n, span in zip(limits, ("minute", "hour", "day"), strict=True)
    )


def slowapi(limits: Limits, storage: str = "memory://"):
    """slowapi by its decorator, as its documentation shows it. Checks no key."""
    limiter = _slowapi_limiter(limits, storage)
    # Through a function of its own: slowapi keeps the limits by the name of what it decorates.
    app = bare(limiter.limit(_text(limits))(endpoint))
    app.state.limiter = limiter
    app.add_exception_handler(RateLimitExceeded, _rate_limit_exceeded_handler)
    return app


def slowapi_redis(limits: Limits):
    """slowapi by its decorator, with the windows in Redis: fixed ones, its default."""
    return slowapi(limits, os.environ[REDIS])


def slowapi_middleware(limits: Limits):
    """slowapi by its ASGI middleware. Checks no key."""
    limiter = _slowapi_limiter(limits, default_limits=[_text(limits)])
    app = bare()
    app.state.limiter = limiter
    app.add_exception_handler(RateLimitExceeded, _rate_limit_exceeded_handler)
    app.add_middleware(SlowAPIASGIMiddleware)
    return app


def mix(limits: Limits):
    """Made by hand with a good library: a dictionary of key digests and the limiter ``limits``.

    Its sliding window counter is the cheapest of its strategies that is no fixed window.
    """
    app = bare()
    items = parse_many(_text(limits))
    limiter = SlidingWindowCounterRateLimiter(MemoryStorage())
    owners = {sha256(KEY.text.encode()).digest(): "org"}

    async def guarded(scope, receive, send):
        value = next((v for n, v in scope["headers"] if n == b"authorization"), b"")
        owner = owners.get(sha256(value.removeprefix(b"Bearer ")).digest())
        if owner is None:
            await _answer(send, 401)
            return
        if not all(limiter.hit(item, owner) for item in items):
            await _answer(send, 429)
            return
        reset, remaining = limiter.get_window_stats(items[0], owner)
        await app(scope, receive, _with_headers(send, items[0].amount, remaining, int(reset)))

    return guarded


def floor(limits: Limits):
    """The least code that does the work: one key, one organization, every hit in three deques."""
    app = bare()
    prefix = b"Bearer "
    logs = [(deque(), span * 1_000_000, n) for span, n in zip(SPANS, limits, strict=True)]
    known = {KEY.handle.encode(): (digest(PEPPER, KEY.text.encode(), "sha256"), logs)}
    handle = slice(len(f"{BRAND}_live_"), len(f"{BRAND}_live_") + len(KEY.handle))
    rpm = limits[0]

    async def guarded(scope, receive, send):
        for name, value in scope["headers"]:
            if name == b"authorization":
                key = value[len(prefix) :]
                break
        else:
            await _answer(send, 401)
            return
        found = known.get(key[handle])
        if found is None or not compare_digest(digest(PEPPER, key, "sha256"), found[0]):
            await _answer(send, 401)
            return
        now = time_ns() // 1000
        remaining = rpm
        for hits, span, limit in found[1]:
            while hits and hits[0] <= now - span:
                hits.popleft()
            left = limit - len(hits) - 1
            if left < 0:
                await _answer(send, 429)
                return
            if left < remaining:
                remaining, reset = left, hits[0] + span if hits else now + span
        for hits, _, _ in found[1]:
            hits.append(now)
        await app(scope, receive, _with_headers(send, rpm, remaining, -(-reset // 1_000_000)))

    return guarded


def _with_headers(send, limit: int, remaining: int, reset: int):
    def answer(message):
        if message["type"] == "http.response.start":
            message["headers"] += [
                (b"x-ratelimit-limit", b"%d" % limit),
                (b"x-ratelimit-remaining", b"%d" % remaining),
                (b"x-ratelimit-reset", b"%d" % reset),
            ]
        return send(message)

    return answer


async def _answer(send, status: int) -> None:
    body = b'{"error": "no"}'
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
