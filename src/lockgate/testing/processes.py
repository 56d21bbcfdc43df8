"""Processes that share a store, each with its own clock, which may be wrong."""

import json
import os
import pickle
import subprocess
import sys
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from pickletools import genops
from select import select
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Final, Self, TypeAlias
from zlib import crc32

from ..core.api_keys import KeyDetails
from ..core.leases import TO_LIST
from ..core.ledger import Hit, Reset
from ..core.plans import Organization
from ..core.timestamps import HOUR, SECOND
from ..errors import ConfigurationError
from ..stores.answers import Verdict
from ..stores.base import PAGE_AT_MOST, PartStore, Store
from .board import PATIENCE, Board
from .checks import PARTS, Part, applies
from .factories import OPEN, Factory
from .guarantees import Broken
from .races import RACERS, RACES, RAISED, Race, Rows
from .writers import OWNERS, Owner, Subject, told

Reopen: TypeAlias = Callable[[], PartStore]
"""Opens the same store in another process; must be picklable, such as
``functools.partial(MyStore, url)``."""

PROCESSES: Final = RACERS
LIMIT: Final = 50
MORE: Final = 7
SLOTS: Final = 20
CAP: Final = 20
_BY_THE_CLOCK: Final = frozenset({"W1", "W2", "W13", "K1", "L1", "L2", "L3"})
"""Guarantees that a store may also break by using its callers' clocks."""
WATCHED: Final = 4
"""Changes of a field that other processes watch."""
_REPEATS: Final = 2
"""How often the phases are repeated with equal clocks, to tell a race from a wrong clock."""
_OPENING: Final = "open"
_PHASE: Final = 1_000
"""More than the board's counters grow in a phase of the check."""

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
        reopen: the pickled function that opens the store there.
        place: the process's counter on the board.
        board: the path of the board that all processes share.
        skew: the seconds by which the process's clock is ahead.
    """

    def __init__(self, reopen: bytes, place: int, board: str, skew: float = 0.0) -> None:
        self._asked = _OPENING
        self._process = subprocess.Popen(  # noqa: S603 - this very interpreter
            [sys.executable, "-c", _START, str(skew)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.send(place, board, b64encode(reopen).decode())

    def send(self, *message: Any) -> None:
        """Send a command, or first of all how to open the store."""
        assert self._process.stdin is not None
        self._asked = _OPENING if isinstance(message[0], int) else str(message[0])
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """Wait for the answer to a command.

        Raises:
            Broken: there is none in time, so the process waits in the store.
            ConfigurationError: the process cannot open the store.
            RuntimeError: the store raised in the process, or the process has ended.
        """
        output = self._process.stdout
        assert output is not None
        if not select([output], [], [], PATIENCE)[0]:
            said = f"Another process did not end its part of {self._asked!r} within {PATIENCE:g} s."
            raise Broken("G4", said)
        line = output.readline()
        if not line:
            raise RuntimeError(f"A process that opened the store ended: {self._process.wait()}.")
        answer, raised, trace = json.loads(line)
        if raised is None:
            return answer
        if self._asked == _OPENING:
            raise ConfigurationError(
                f"Another process cannot open the store: reopen() raised {raised} there."
            )
        raise RuntimeError(f"In another process, {self._asked!r} raised {raised}:\n{trace}")

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
        self._process.communicate(timeout=PATIENCE)


def asked(workers: Sequence[Worker], what: str, *details: Any) -> list[Any]:
    """Send all workers a command at once; return each worker's answer."""
    for index, worker in enumerate(workers):
        worker.send(what, index, *details)
    return [worker.answer() for worker in workers]


def counted(workers: Sequence[Worker], what: str, *details: Any) -> dict[str, int]:
    """Send all workers a command at once; return all outcomes with their counts."""
    total: Counter[str] = Counter()
    for counts in asked(workers, what, *details):
        total.update(counts)
    return dict(total)


async def share(
    store: Store, reopen: Reopen, *, skew: float = 0.0, parts: Collection[Part] = PARTS
) -> None:
    """Check that processes on one store share its limits, and see each other's changes.

    Every verb that changes rows is also raced between the processes, alone and against the others,
    and every read is repeated while another process changes what it reads.

    Args:
        store: the empty store.
        reopen: opens the same store in another process.
        skew: the seconds by which the processes' clocks differ, for stores with a server's clock.
        parts: the parts to check; default: all that the store has.

    Raises:
        ConfigurationError: another process cannot get the function, or it cannot open the store.
        Broken: a guarantee is broken. With ``skew``, W12 is named only if the same calls keep the
            guarantee between processes with equal clocks.
    """
    pickled = _pickled(reopen)
    had: list[Part] = [part for part in parts if applies(part, store)]
    with TemporaryDirectory() as folder:
        try:
            await _with_workers(store, pickled, folder, 0, skew, parts=had)
        except Broken as broken:
            if not skew or broken.sentence not in _BY_THE_CLOCK:
                raise
            for turn in range(1, _REPEATS + 1):
                await _with_workers(store, pickled, folder, turn, 0.0, parts=had)
            said = f"Of processes whose clocks are {skew:g} s apart: {broken.said}"
            raise Broken("W12", said) from None


def _pickled(reopen: Reopen) -> bytes:
    """Return the function as bytes that another process can read."""
    try:
        pickled = pickle.dumps(reopen)
    except (pickle.PicklingError, AttributeError, TypeError) as failure:
        raise ConfigurationError(
            f"reopen() cannot be passed to another process ({failure}): return functools.partial "
            "of a function at the level of a module, with texts and numbers."
        ) from None
    if any(text == "__main__" for _, text, _ in genops(pickled)):
        raise ConfigurationError(
            "reopen() uses a function or class of the script that runs, which another process "
            "cannot import: move it to a module of its own, beside the script."
        )
    return pickled


async def _with_workers(
    store: Store, reopen: bytes, folder: str, turn: int, skew: float, *, parts: Collection[Part]
) -> None:
    """Run the phases in which clocks matter, and in the first turn all others.

    Args:
        turn: selects the organizations, so that each turn finds them unused.
    """
    skews = [skew * (index - PROCESSES // 2) for index in range(PROCESSES)]
    # Longer than this check takes, but already over by a wrong clock.
    lasts = round(skew / 2 * SECOND) or HOUR
    path = str(Path(folder) / f"board {turn}")
    board = Board.create(path, PROCESSES)
    with ExitStack() as stack:
        stack.callback(board.close)
        workers = [
            stack.enter_context(Worker(reopen, place, path, behind))
            for place, behind in enumerate(skews)
        ]
        for worker in workers:
            worker.answer()  # The store is open.
        if "admission" in parts:
            await _windows(store, workers, lasts, f"org_1 {turn}")
            if "limits" in parts:
                await _limits(store, workers, f"org_2 {turn}")
        if "slots" in parts:
            await _slots(store, workers, lasts, f"org_1 {turn}")
        if turn == 0:
            if "admission" in parts:
                await _revocations(store, workers)
                await _changes(store, workers)
                await _resets(store, workers)
            if "rows" in parts:
                await _caps(store, workers)
                await _writers(store, workers, parts)
                await _watched(store, workers, board, parts)
            for number, race in enumerate(RACES):
                if race.part in parts:
                    await _raced(store, workers, race, (number + 1) * _PHASE)


async def _raced(store: Store, workers: Sequence[Worker], race: Race, start: int) -> None:
    rows = Rows(race.verb, await store.now())
    await race.make(store, rows)
    answers = asked(workers, "race", race.verb, rows.now, start)
    turns = [[*outcomes] for outcomes in zip(*answers, strict=True)]
    raised = sorted({str(one) for turn in turns for one in turn if str(one).startswith(RAISED)})
    if raised:
        said = f"{PROCESSES} processes called {race} at the same time, and it {raised[0]}."
        raise Broken(race.sentence, said)
    if wrong := await race.judge(store, rows, turns):
        said = f"{PROCESSES} processes called {race} at the same time: {wrong}."
        raise Broken(race.sentence, said)


async def _writers(store: Store, workers: Sequence[Worker], parts: Collection[Part]) -> None:
    """Each process changes fields of one organization that no other process changes."""
    subject, owners = Subject(1, await store.now()), _owners(store, parts)
    await subject.create(store, leased=True)
    answers = asked(workers, "write", subject.now, owners, 100 * _PHASE)
    for _, sentence, said in answers:
        if sentence is not None:
            raise Broken(sentence, f"Between processes: {said}")
    for place, (turn, _, _) in enumerate(answers):
        for writer in subject.writers(owners)[place::PROCESSES]:
            for read in writer.reads:
                if (found := await read(store)) != writer.expected(turn):
                    said = f"Between processes: {told(writer, turn, found)}"
                    raise Broken(writer.sentence, said)


async def _watched(
    store: Store, workers: Sequence[Worker], board: Board, parts: Collection[Part]
) -> None:
    """Other processes read each field while this one changes it."""
    subject, start = Subject(2, await store.now()), 200 * _PHASE
    owners = _owners(store, parts)
    await subject.create(store, leased=True)
    for number, writer in enumerate(subject.writers(owners)):
        start += _PHASE
        for index, worker in enumerate(workers):
            worker.send("watch", index, subject.now, owners, number, WATCHED, start)
        for turn in range(1, WATCHED + 1):
            board.wait(range(PROCESSES), start + turn)
            await writer.write(store, turn)
            board.set(start + turn)
        answers: list[str | None] = [worker.answer() for worker in workers]
        if stale := next(filter(None, answers), None):
            said = f"{writer.verb}() was answered in one process, and later in another one {stale}."
            raise Broken(writer.sentence, said)


_PARTS: Final[Mapping[Owner, Part]] = {
    "keys": "keys",
    "usage": "usage",
    "accounts": "accounts",
    "plans": "accounts",
    "changes": "changes",
    "searches": "keys",
    "limits": "limits",
    "leases": "quota_leases",
}
"""The part of a store that each owner of fields needs; the others need a whole store."""


def _owners(store: Store, parts: Collection[Part]) -> list[Owner]:
    """Return the owners of the fields that a store keeps."""
    owners: list[Owner] = [owner for owner in OWNERS if _PARTS.get(owner, "admission") in parts]
    kept: list[Owner] = [one for one in owners if one != "history" or store.keeps_history]
    return kept


async def _windows(store: Store, workers: Sequence[Worker], lasts: int, organization: str) -> None:
    factory = Factory(crc32(organization.encode()))
    made, ended = factory.key(), factory.key()
    draft = factory.draft(organization, key=made, lifetime=lasts, at=await store.now())
    await store.insert(draft, None)
    counts = counted(workers, "show", made.text, LIMIT)
    if counts != {"admitted": LIMIT, "limited": sum(counts.values()) - LIMIT}:
        sentence = "W1" if counts.get("admitted", 0) > LIMIT else "W2"
        raise Broken(sentence, f"{PROCESSES} processes came to {counts}; the limit is {LIMIT}.")
    found = await store.find(made.handle)
    if found is None or found.request_count != LIMIT:
        shown = found and found.request_count
        raise Broken("K7", f"{LIMIT} were admitted by processes, and the key says {shown}.")
    await store.put_organization(Organization(organization, "minute", (("rpm", LIMIT + MORE),)))
    counts = counted(workers, "show", made.text, LIMIT)
    if counts.get("admitted") != MORE:
        said = f"Once one process had put the limit up by {MORE}, all of them came to {counts}."
        raise Broken("W13", said)
    before = await store.now() - SECOND
    await store.insert(factory.draft(organization, key=ended, lifetime=1, at=before), None, before)
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


async def _resets(store: Store, workers: Sequence[Worker]) -> None:
    """A reset moves the change counter, by which other processes forget refusals."""
    await store.charge("org_4", Hit(OPEN.windows, 1))
    before = asked(workers, "change_counter")
    await store.charge("org_4", Reset())
    _see_moved(before, asked(workers, "change_counter"), "a reset")


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


async def _limits(store: Store, workers: Sequence[Worker], organization: str) -> None:
    """Each process charges the limits of a plan, of a key and of a rule, which refuse in turn."""
    factory = Factory(crc32(organization.encode()))
    made, other = factory.key(), factory.key()
    own = KeyDetails(limits=(("own", f"{LIMIT}/hour"),))
    await store.insert(factory.draft(organization, key=made, details=own), None)
    await store.insert(factory.draft(organization, key=other), None)
    rule = f"{LIMIT + 2 * MORE}/hour"
    # The key, the number of the plan, the rates of the rule, and what all processes then get.
    for text, number, named, expected in (
        (made.text, LIMIT + MORE, rule, LIMIT),
        (other.text, LIMIT + MORE, rule, MORE),
        (other.text, LIMIT + 9 * MORE, rule, MORE),
        (other.text, LIMIT + 9 * MORE, None, 7 * MORE),
    ):
        counts = counted(workers, "limited", text, number, named)
        admitted = counts.get("admitted", 0)
        if admitted != expected:
            sentence = "W1" if admitted > expected else "W2"
            said = f"{PROCESSES} processes came to {counts} by named limits that admit {expected}."
            raise Broken(sentence, said)


async def _slots(store: Store, workers: Sequence[Worker], lasts: int, organization: str) -> None:
    counts = counted(workers, "take", organization, SLOTS, lasts)
    taken = counts.get("taken", 0)
    if taken != SLOTS:
        said = f"{taken} leases were given out by {PROCESSES} processes; the limit is {SLOTS}."
        raise Broken("L1" if taken > SLOTS else "L2", said)
    live = len((await store.charge(organization, TO_LIST)).slots)
    if live != SLOTS:
        raise Broken("L3", f"{SLOTS} leases were given out by processes, and {live} are held.")


async def _caps(store: Store, workers: Sequence[Worker]) -> None:
    counts = counted(workers, "insert", CAP)
    listed = len(await store.list("org_3", PAGE_AT_MOST))
    if {counts.get("inserted"), listed} != {CAP}:
        said = f"Inserts by {PROCESSES} processes came to {counts}, and {listed} keys are listed"
        raise Broken("K8", f"{said}; the cap is {CAP}.")
