"""Stores that are right in one process and wrong in several: a lock or a cache of the process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

from lockgate import Store
from lockgate.core.holds import Look, Renew, Settle, Take, is_of_slots
from lockgate.core.ledger import Hit, HitLeased, LeasesOut, Peek
from lockgate.stores.key_value import RecordStore
from tests.examples.test_own_store import example

_CHARGES = ("Hit", "Hit, soft quota", "Take", "Settle", "Renew", "Settle, soft quota", "HitLeased")
_SLOTS = ("Take, slot", "Settle, slot")
_READS = ("Peek", "Look, slots", "Look", "LeasesOut", "LeasesOut, in use")
LOCKED_VERBS: Final = (
    *(f"charge({action})" for action in (*_CHARGES, *_SLOTS)),
    *("admit(lease)", "insert", "revoke_if_live", "update_if", "rotate_if", "rehash_if"),
    *("add_usage", "register", "claim_if_unclaimed", "sign_in", "sign_out", "rehash_token_if"),
    *("put_organization", "add_history"),
)
CACHED_VERBS: Final = (
    *(f"charge({action})" for action in _READS),
    *("find", "get", "list", "list_live", "organization", "account", "account_by_token"),
    *("unclaimed_by_email", "accounts_by_user", "change_log", "history", "search"),
)
BRIEFLY: Final = 0.05
"""Seconds for which a cache of a process keeps an answer: other processes wait for a processor."""
_careless: Final = ContextVar("careless", default=False)


def _of(kind: type, *, slots: bool = False, quotas: bool = False) -> Callable[..., bool]:
    """Return whether a charge is of a kind: of slots, or where calendar quotas are in it."""

    def matches(_: object, action: Any, *__: object) -> bool:
        if not isinstance(action, kind) or is_of_slots(action) != slots:
            return False
        named = action if isinstance(action, Settle) else getattr(action, "limits", None)
        return not quotas or (named is not None and any(named.quotas))

    return matches


_CALLS: Final[dict[str, Callable[..., bool]]] = {
    "": lambda *_, **__: True,
    "lease)": lambda *_, **options: "lease" in options,
    "Hit)": _of(Hit),
    "Hit, soft quota)": _of(Hit, quotas=True),
    "HitLeased)": _of(HitLeased),
    "Take)": _of(Take),
    "Settle)": _of(Settle),
    "Settle, soft quota)": _of(Settle, quotas=True),
    "Renew)": _of(Renew),
    "Take, slot)": _of(Take, slots=True),
    "Settle, slot)": _of(Settle, slots=True),
    "Peek)": _of(Peek),
    "Look)": _of(Look),
    "Look, slots)": _of(Look, slots=True),
    "LeasesOut)": lambda _, action, *__: action == LeasesOut(),
    "LeasesOut, in use)": lambda _, action, *__: action == LeasesOut(in_use=True),
}
"""Which calls of a verb have the mistake, by what follows its name."""


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
                return await getattr(RecordStore, verb)(self, *arguments, **options)
            finally:
                _careless.reset(entered)

    records.get, records.put_if = get_slowly, put
    made: Store = type("LockOfTheProcess", (RecordStore,), {verb: careless})(records)
    return made


def with_cache_of_the_process(read: str, path: str) -> Store:
    """Return a store that keeps answers of one verb for a few milliseconds, or until it writes."""
    verb, _, which = read.partition("(")
    is_meant = _CALLS[which]
    records: Any = example().SqliteRecords(path)
    put_if, kept = records.put_if, dict[Any, tuple[float, Any]]()

    async def put(*arguments: Any) -> Any:
        try:
            return await put_if(*arguments)
        finally:
            kept.clear()

    async def cached(self: Any, *arguments: Any) -> Any:
        if not is_meant(*arguments):
            return await getattr(RecordStore, verb)(self, *arguments)
        at, found = kept.get(arguments, (0.0, None))
        if time.monotonic() - at > BRIEFLY:
            found = await getattr(RecordStore, verb)(self, *arguments)
            kept[arguments] = (time.monotonic(), found)
        return found

    records.put_if = put
    made: Store = type("CacheOfTheProcess", (RecordStore,), {verb: cached})(records)
    return made
