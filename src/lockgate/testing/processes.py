"""Processes that share a store, each with its own clock, which may be wrong."""

import json
import os
import pickle
import subprocess
import sys
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from ..core.plans import Organization
from ..core.timestamps import HOUR, SECOND
from ..stores.base import PAGE_AT_MOST, Store, Verdict
from .factories import Factory
from .guarantees import Broken

Reopen: TypeAlias = Callable[[], Store]
"""Opens the same store in another process; must be picklable, such as
``functools.partial(MyStore, url)``."""

PROCESSES: Final = 3
LIMIT: Final = 50
MORE: Final = 7
SLOTS: Final = 20
CAP: Final = 20
_BY_THE_CLOCK: Final = frozenset({"W1", "W2", "W13", "K1", "L1", "L2", "L3"})
"""Guarantees that a store may also break by using its callers' clocks."""
_PATIENCE: Final = 60.0

# Before any other import, so that no module has already imported the right clock.
_START: Final = """
import sys, time
skew = float(sys.argv[1])
seconds, nanoseconds = time.time, time.time_ns
time.time = lambda: seconds() + skew
time.time_ns = lambda: nanoseconds() + round(skew * 1e9)
from lockgate.testing.subprocess_worker import work
work()
"""


class Worker:
    """Another process that has opened the store.

    Args:
        reopen: opens the store there.
        skew: the seconds by which the process's clock is ahead.
    """

    def __init__(self, reopen: Reopen, skew: float = 0.0) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - this very interpreter
            [sys.executable, "-c", _START, str(skew)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.send(b64encode(pickle.dumps(reopen)).decode())

    def send(self, *message: Any) -> None:
        """Send a command."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """Wait for the answer to a command."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"A process that opened the store ended: {self._process.wait()}.")
        return json.loads(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:  # It may hang in the store.
            self._process.kill()
        self._process.communicate(timeout=_PATIENCE)


def asked(workers: Sequence[Worker], what: str, *details: Any) -> list[dict[str, int]]:
    """Send all workers a command at once; return each worker's outcomes with their counts."""
    for index, worker in enumerate(workers):
        worker.send(what, index, *details)
    return [worker.answer() for worker in workers]


def counted(workers: Sequence[Worker], what: str, *details: Any) -> dict[str, int]:
    """Send all workers a command at once; return all outcomes with their counts."""
    total: Counter[str] = Counter()
    for counts in asked(workers, what, *details):
        total.update(counts)
    return dict(total)


async def share(store: Store, reopen: Reopen, *, skew: float = 0.0) -> None:
    """Check that processes on one store share its limits, and see each other's changes.

    Args:
        store: the empty store.
        reopen: opens the same store in another process.
        skew: the seconds by which the processes' clocks differ, for stores with a server's clock.

    Raises:
        Broken: a guarantee is broken.
    """
    skews = [skew * (index - PROCESSES // 2) for index in range(PROCESSES)]
    # Longer than this check takes, but already over by a wrong clock.
    lasts = round(skew / 2 * SECOND) or HOUR
    with ExitStack() as stack:
        workers = [stack.enter_context(Worker(reopen, behind)) for behind in skews]
        for worker in workers:
            worker.answer()  # The store is open.
        try:
            await _windows(store, workers, lasts)
            await _revocations(store, workers)
            await _changes(store, workers)
            await _slots(store, workers, lasts)
            await _caps(store, workers)
        except Broken as broken:
            if not skew or broken.sentence not in _BY_THE_CLOCK:
                raise
            said = f"Of processes whose clocks are {skew:g} s apart: {broken.said}"
            raise Broken("W12", said) from None


async def _windows(store: Store, workers: Sequence[Worker], lasts: int) -> None:
    factory = Factory()
    made, ended = factory.key(), factory.key()
    draft = factory.draft(key=made, lifetime=lasts, at=await store.now())
    await store.insert(draft, None)
    counts = counted(workers, "show", made.text, LIMIT)
    if counts != {"admitted": LIMIT, "limited": sum(counts.values()) - LIMIT}:
        sentence = "W1" if counts.get("admitted", 0) > LIMIT else "W2"
        raise Broken(sentence, f"{PROCESSES} processes came to {counts}; the limit is {LIMIT}.")
    found = await store.find(made.handle)
    if found is None or found.request_count != LIMIT:
        shown = found and found.request_count
        raise Broken("K7", f"{LIMIT} were admitted by processes, and the key says {shown}.")
    await store.put_organization(Organization("org_1", "minute", (("rpm", LIMIT + MORE),)))
    counts = counted(workers, "show", made.text, LIMIT)
    if counts.get("admitted") != MORE:
        said = f"Once one process had put the limit up by {MORE}, all of them came to {counts}."
        raise Broken("W13", said)
    before = await store.now() - SECOND
    await store.insert(factory.draft(key=ended, lifetime=1, at=before), None, before)
    counts = counted(workers, "show", ended.text, LIMIT)
    if set(counts) != {Verdict.EXPIRED.value}:
        raise Broken("K1", f"A key that has expired came in other processes to {counts}.")


async def _revocations(store: Store, workers: Sequence[Worker]) -> None:
    factory = Factory(1)
    made = factory.key()
    key = await store.insert(factory.draft("org_2", key=made), None)
    counted(workers, "show", made.text, 10 * LIMIT)  # The workers may cache the key from here on.
    before = asked(workers, "change_counter")
    await store.revoke_if_live("org_2", key.id)
    after = asked(workers, "change_counter")
    counts = counted(workers, "show", made.text, 10 * LIMIT)
    if set(counts) != {Verdict.REVOKED.value}:
        raise Broken("K4", f"A key revoked in one process came in others to {counts}.")
    _see_moved(before, after, "a revocation")


async def _changes(store: Store, workers: Sequence[Worker]) -> None:
    """An update that ends a key, and a rotation that revokes one, hold in other processes."""
    factory = Factory(2)
    for verb in ("update", "rotation"):
        made, next_ = factory.key(), factory.key()
        key = await store.insert(factory.draft("org_2", key=made), None)
        counted(workers, "show", made.text, 10 * LIMIT)
        before, now = asked(workers, "change_counter"), await store.now()
        if verb == "update":
            ended = Verdict.EXPIRED
            done: object = await store.update_if(key, key._replace(expires_at=now))
        else:
            ended = Verdict.REVOKED
            revoked = key._replace(revoked_at=now)
            done = await store.rotate_if(key, revoked, factory.draft("org_2", key=next_), None)
        after = asked(workers, "change_counter")
        counts = counted(workers, "show", made.text, 10 * LIMIT)
        if not done or set(counts) != {ended.value}:
            raise Broken("D43", f"A key that ended by {verb} came in other processes to {counts}.")
        _see_moved(before, after, verb)


def _see_moved(before: list[dict[str, int]], after: list[dict[str, int]], what: str) -> None:
    """Check that the change counters of processes have moved, where the store has one."""
    if any(
        later.get("change_counter", 0) <= change_counter["change_counter"]
        for change_counter, later in zip(before, after, strict=True)
        if change_counter
    ):
        raise Broken(
            "D5", f"Change counters of processes before {what}: {before}, and after it: {after}."
        )


async def _slots(store: Store, workers: Sequence[Worker], lasts: int) -> None:
    counts = counted(workers, "take", SLOTS, lasts)
    taken = counts.get("taken", 0)
    if taken != SLOTS:
        said = f"{taken} leases were given out by {PROCESSES} processes; the limit is {SLOTS}."
        raise Broken("L1" if taken > SLOTS else "L2", said)
    live = len(await store.held("org_1"))
    if live != SLOTS:
        raise Broken("L3", f"{SLOTS} leases were given out by processes, and {live} are held.")


async def _caps(store: Store, workers: Sequence[Worker]) -> None:
    counts = counted(workers, "insert", CAP)
    listed = len(await store.list("org_3", PAGE_AT_MOST))
    if {counts.get("inserted"), listed} != {CAP}:
        said = f"Inserts by {PROCESSES} processes came to {counts}, and {listed} keys are listed"
        raise Broken("K8", f"{said}; the cap is {CAP}.")
