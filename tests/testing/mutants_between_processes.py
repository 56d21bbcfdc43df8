"""Stores that are right in one process and wrong in several: a lock or a cache of the process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

from lockgate import Store
from lockgate.core.holds import Look, Renew, Settle
from lockgate.core.limit_windows import LimitWindows
from tests.by_verbs import RecordsByVerbs
from tests.examples.test_own_store import example

LOCKED_VERBS: Final = (
    "hit",
    "hit(soft quota)",
    "hold",
    "hold(Settle)",
    "hold(Renew)",
    "hold(soft quota)",
    "admit(lease)",
    "settle_leases",
    "acquire",
    "renew",
    "release",
    "insert",
    "revoke_if_live",
    "update_if",
    "rotate_if",
    "rehash_if",
    "add_usage",
    "register",
    "claim_if_unclaimed",
    "sign_in",
    "sign_out",
    "rehash_token_if",
    "put_organization",
    "add_history",
)
CACHED_VERBS: Final = (
    "find",
    "get",
    "list",
    "list_live",
    "peek",
    "held",
    "organization",
    "account",
    "account_by_token",
    "unclaimed_by_email",
    "accounts_by_user",
    "change_log",
    "history",
    "search",
    "hold",
    "quota_leases",
    "leases_in_use",
)
BRIEFLY: Final = 0.05
"""Seconds for which a cache of a process keeps an answer: other processes wait for a processor."""
_careless: Final = ContextVar("careless", default=False)


def _has_quota(*arguments: Any, **_: Any) -> bool:
    return any(isinstance(one, LimitWindows | Settle) and any(one.quotas) for one in arguments)


_CALLS: Final[dict[str, Callable[..., bool]]] = {
    "": lambda *_, **__: True,
    "Settle)": lambda _, action, *__, **___: isinstance(action, Settle),
    "Renew)": lambda _, action, *__, **___: isinstance(action, Renew),
    "lease)": lambda *_, **options: "lease" in options,
    "soft quota)": _has_quota,
}
"""Which calls of a verb have the mistake, by the end of the name of their race."""


def with_lock_of_the_process(race: str, path: str) -> Store:
    """Return a store that reads and writes in one verb under a lock of the process, or in those
    calls of the verb that a race is about."""
    verb, _, which = race.partition("(")
    is_meant = _CALLS[which]
    records: Any = example().SqliteRecords(path)
    get, put_if, lock = records.get, records.put_if, threading.RLock()

    async def get_slowly(name: str) -> Any:
        found = await get(name)
        if _careless.get():
            time.sleep(0.0005)
        return found

    async def put(name: str, value: Any, version: Any, until: Any) -> bool:
        done = await put_if(name, value, version, until)
        while _careless.get() and not done:
            found = await get(name)
            done = await put_if(name, value, found and found[1], until)
        return bool(done)

    async def careless(self: Any, *arguments: Any, **options: Any) -> Any:
        with lock:
            entered = _careless.set(is_meant(*arguments, **options))
            try:
                return await getattr(RecordsByVerbs, verb)(self, *arguments, **options)
            finally:
                _careless.reset(entered)

    records.get, records.put_if = get_slowly, put
    made: Store = type("LockOfTheProcess", (RecordsByVerbs,), {verb: careless})(records)
    return made


def with_cache_of_the_process(verb: str, path: str) -> Store:
    """Return a store that keeps answers of one verb for a few milliseconds, or until it writes."""
    records: Any = example().SqliteRecords(path)
    put_if, kept = records.put_if, dict[Any, tuple[float, Any]]()

    async def put(*arguments: Any) -> Any:
        try:
            return await put_if(*arguments)
        finally:
            kept.clear()

    async def cached(self: Any, *arguments: Any) -> Any:
        if verb == "hold" and not isinstance(arguments[1], Look):
            return await RecordsByVerbs.hold(self, *arguments)
        at, found = kept.get(arguments, (0.0, None))
        if time.monotonic() - at > BRIEFLY:
            found = await getattr(RecordsByVerbs, verb)(self, *arguments)
            kept[arguments] = (time.monotonic(), found)
        return found

    records.put_if = put
    made: Store = type("CacheOfTheProcess", (RecordsByVerbs,), {verb: cached})(records)
    return made
