"""Processes on one store, each with a clock of its own that may be wrong."""

import asyncio
import json
import os
import pickle
import subprocess
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from ..run import run
from ..stores.contract import Store, Verdict
from .mint import Mint, book
from .sentences import Broken

Reopen: TypeAlias = Callable[[], Store]
"""Opens the same store in another process; something that :mod:`pickle` can carry there, such as
``functools.partial(MyStore, url)``."""

PROCESSES: Final = 3
LIMIT: Final = 50
TIMES: Final = 12
CALLERS: Final = 3
_PATIENCE: Final = 60.0

# Before anything else is imported, so that nobody has taken the right clock from there.
_START: Final = """
import sys, time
skew = float(sys.argv[1])
seconds, nanoseconds = time.time, time.time_ns
time.time = lambda: seconds() + skew
time.time_ns = lambda: nanoseconds() + round(skew * 1e9)
from lockgate.testing.processes import work
work()
"""


class Worker:
    """Another process that has opened the store.

    Args:
        reopen: opens the store there.
        skew: seconds by which the clock of that process is ahead.
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
        """Tell it to do something."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """Wait for what came of it."""
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
        self._process.communicate(timeout=_PATIENCE if error is None else 1.0)


def admitted(workers: Sequence[Worker], key: str, limit: int) -> dict[str, int]:
    """Let all of them show a key at once, and count the verdicts."""
    for worker in workers:
        worker.send(key, limit)
    counts: dict[str, int] = {}
    for worker in workers:
        for verdict, count in worker.answer().items():
            counts[verdict] = counts.get(verdict, 0) + count
    return counts


async def share(store: Store, reopen: Reopen, *, skew: float = 0.0) -> None:
    """See that processes on one store keep its limits together, and see each other's changes.

    Args:
        store: the store, with nothing in it.
        reopen: opens the same store in another process.
        skew: by so many seconds the clocks of the processes differ from each other; for stores
            whose own server's clock decides.

    Raises:
        Broken: they do not.
    """
    mint = Mint()
    keys = [mint.key() for _ in range(2)]
    rows = [await store.insert(mint.draft(key=key), None) for key in keys]
    skews = [skew * (index - PROCESSES // 2) for index in range(PROCESSES)]
    with ExitStack() as stack:
        workers = [stack.enter_context(Worker(reopen, behind)) for behind in skews]
        for worker in workers:
            worker.answer()  # It has opened the store.
        counts = admitted(workers, keys[0].text, LIMIT)
        if counts.get("admitted") != LIMIT:
            sentence = "W12" if skew else "W1" if counts.get("admitted", 0) > LIMIT else "W2"
            clocks = f" whose clocks are {skew:g} s apart" if skew else ""
            said = f"{PROCESSES} processes{clocks} came to {counts}; the limit is {LIMIT}."
            raise Broken(sentence, said)
        found = await store.find(rows[0].handle)
        if found is None or found.request_count != LIMIT:
            shown = found and found.request_count
            raise Broken("K7", f"{LIMIT} were admitted by processes, and the key says {shown}.")
        await store.revoke_if_live("org_1", rows[1].id)
        counts = admitted(workers, keys[1].text, 10 * LIMIT)
        if set(counts) != {Verdict.REVOKED.value}:
            raise Broken("K4", f"A key revoked in one process came in others to {counts}.")


def work() -> None:
    """What such a process does: open the store, and show keys when told to."""
    reopen: Reopen = pickle.loads(b64decode(json.loads(sys.stdin.readline())[0]))  # noqa: S301 - from our own parent
    store = reopen()
    with asyncio.Runner() as runner:
        drive = runner.run if store.io == "async" else run
        _tell(True)
        for line in sys.stdin:
            key, limit = json.loads(line)
            _tell(drive(_show(store, key, limit)))
        drive(store.close())


async def _show(store: Store, key: str, limit: int) -> dict[str, int]:
    token = Mint().format.read([b"Bearer " + key.encode()])
    plans = book(limit)

    async def caller() -> list[str]:
        return [(await store.admit(token, 1, plans)).verdict.value for _ in range(TIMES)]

    if store.io == "async":
        parts = await asyncio.gather(*(caller() for _ in range(CALLERS)))
    else:
        parts = [await caller() for _ in range(CALLERS)]
    verdicts = [verdict for part in parts for verdict in part]
    return {verdict: verdicts.count(verdict) for verdict in sorted(set(verdicts))}


def _tell(answer: Any) -> None:
    print(json.dumps(answer), flush=True)
