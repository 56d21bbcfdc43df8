"""Stores with one mistake each in windows, and in the ids of those whom they count."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, ClassVar, Final

from lockgate.core.ledger import Peek
from lockgate.core.sliding_window import EMPTY, Cells, Reading, Window, empty_state, hit
from lockgate.core.timestamps import DAY, SECOND
from lockgate.stores.answers import Freshness, Usage
from lockgate.stores.base import PAGE_AT_MOST, IoMode

from .mutants import ByStates, Call, How, Mutant, Windows, folded, gap, several, unheard, wrong

START_SKEW: Final = 300 * SECOND


class Counting(Mutant):
    """Decides by separate counts: units used in each window, and when it is free again."""

    def used(self, organization: str, window: Window, now: int) -> int:
        raise NotImplementedError

    def count(self, organization: str, window: Window, now: int, cost: int) -> None:
        raise NotImplementedError

    async def hit(
        self,
        organization: str,
        windows: Windows,
        cost: int,
        now: int | None = None,
        limits: Any = None,
    ) -> Reading:
        with self._lock:
            at = self.at(now)
            counts = [self.used(organization, window, at) for window in windows]
            full = [
                index
                for index, (window, used) in enumerate(zip(windows, counts, strict=True))
                if window.limit is not None and used + cost > window.limit
            ]
            state = self.states.get(organization) or empty_state(windows)
            truth, state = hit(state, windows, at, cost)
            if not full:
                for window in windows:
                    self.count(organization, window, at, cost)
            if truth.allowed is bool(full):
                return truth._replace(allowed=not full, refused_by=full[0] if full else None)
            self.states[organization] = state
            return truth

    peek = ByStates.peek


class FixedWindow(Counting):
    """Counts from the full minute, hour and day on."""

    killed_by: ClassVar = {"W1", "W2"}

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[Any, int] = defaultdict(int)

    def used(self, organization: str, window: Window, now: int) -> int:
        return self.counts[organization, window.name, now // window.span]

    def count(self, organization: str, window: Window, now: int, cost: int) -> None:
        self.counts[organization, window.name, now // window.span] += cost


class TwoCounters(FixedWindow):
    """Weights the window before by how much of it is still covered."""

    def used(self, organization: str, window: Window, now: int) -> int:
        number, into = divmod(now, window.span)
        before = self.counts[organization, window.name, number - 1]
        weighted = before * (window.span - into) // window.span
        return weighted + self.counts[organization, window.name, number]


class LeakyBucket(Counting):
    """GCRA with a burst of the whole limit."""

    killed_by: ClassVar = {"W1", "W2"}

    def __init__(self) -> None:
        super().__init__()
        self.levels: dict[Any, tuple[float, int]] = {}

    def used(self, organization: str, window: Window, now: int) -> int:
        level, at = self.levels.get((organization, window.name), (0.0, now))
        return round(max(0.0, level - (now - at) * (window.limit or 0) / window.span))

    def count(self, organization: str, window: Window, now: int, cost: int) -> None:
        level = self.used(organization, window, now) + cost
        self.levels[organization, window.name] = (level, now)


def _endless(windows: Windows) -> Windows:
    return tuple(window._replace(limit=None) for window in windows)


def _of_names(fold: Callable[[str], str]) -> How:
    return folded(fold, "organization")


async def _at_a_tenth_of_a_millisecond(call: Call) -> Any:
    rounded = round(round(call.at / SECOND, 4) * SECOND)
    return (await call(now=rounded))._replace(now=call.at)


several(
    {
        "rounds_waits_down": (
            "W6",
            "hit",
            lambda call: call.then(lambda one: one._replace(wait=one.wait // SECOND * SECOND)),
        ),
        "takes_one_whatever_the_cost": ("W2", "hit", lambda call: call(cost=1)),
        "takes_a_limit_of_nothing_for_none": (
            "W1",
            "hit",
            lambda call: call(
                windows=tuple(w._replace(limit=w.limit or None) for w in call.windows)
            ),
        ),
        "counts_in_seconds_of_a_float": ("W1 W2 W6 W4 W12", "hit", _at_a_tenth_of_a_millisecond),
        # As JSON from a Lua script has them.
        "tells_counts_in_floats": (
            "W14",
            "hit",
            lambda call: call.then(lambda one: one._replace(used=tuple(map(float, one.used)))),
        ),
        # So that another plan starts at zero.
        "names_counters_by_the_limit": (
            "W13 W2",
            "hit peek",
            lambda call: call(
                organization=f"{call.organization}:{[one.limit for one in call.windows[:1]]}"
            ),
        ),
        # Of the Redis keys ``{org}:...``, which braces in an id move to another slot.
        "tags_ids": (
            "W8",
            "hit peek",
            _of_names(lambda id: id.replace("{", "").split("}")[0]),
        ),
    }
)
several(
    {
        f"{name}_of_windows_and_slots": ("W8", "hit peek acquire renew release held", fold)
        for name, fold in {
            "compares_no_blanks_at_the_end": _of_names(lambda id: id.rstrip(" ") or id),
            "ends_at_nul": _of_names(lambda id: id.split("\0", maxsplit=1)[0]),
            "replaces_surrogates": _of_names(lambda id: id.encode("utf-8", "replace").decode()),
            "has_room_for_128_characters_of_ascii_twice": _of_names(
                lambda id: id.encode("utf-8", "surrogatepass")[:256].decode("latin-1")
            ),
        }.items()
    }
)


@wrong("W4", "hit")
async def says_what_remained_before_the_call(call: Call) -> Any:
    reading = await call()
    if not reading.allowed or reading.remaining is None:
        return reading
    return reading._replace(remaining=reading.remaining + 1)


@wrong("W7", "hit")
async def charges_a_refused_call(call: Call) -> Any:
    reading = await call()
    if not reading.allowed:
        await call(windows=_endless(call.windows), limits=None)
    return reading


@wrong("W9", "hit")
async def charges_one_window_after_another(call: Call) -> Any:
    """The minute, then the hour, then the day, and leaves it so when one refuses."""
    store, organization, windows = call.store, call.organization, call.windows
    reading = await Mutant.peek(store, organization, windows, call.now)
    refused = [
        index
        for index, window in enumerate(windows)
        if window.limit is not None and reading.used[index] + call.cost > window.limit
    ]
    answer = await call()
    if refused and refused[0] > 0:
        with store._lock:
            state = store._windows._present[organization]
            after = hit(state, _endless(windows), call.at, call.cost)[1]
            kept = tuple(after[i] if i < refused[0] else state[i] for i in range(len(windows)))
            store._windows._present[organization] = kept
    return answer


class GoesByTheClockOfTheProcess(Mutant):
    """Instead of the store's."""

    killed_by: ClassVar = {"W12"}

    def __init__(self) -> None:
        super().__init__()
        self._clock = lambda: time.time_ns() // 1000 - START_SKEW

    async def hit(
        self,
        organization: str,
        windows: Windows,
        cost: int,
        now: int | None = None,
        limits: Any = None,
    ) -> Reading:
        now = time.time_ns() // 1000 if now is None else now
        return await super().hit(organization, windows, cost, now, limits)


@wrong("W10", "hit")
def keeps_every_organization_for_ever(call: Call) -> Any:
    call.store.states.setdefault(call.organization, ())
    return call()


@wrong("W2", "hit")
async def counts_what_came_exactly_a_window_ago(call: Call) -> Any:
    longer = tuple(window._replace(span=window.span + 1) for window in call.windows)
    at = call.at
    judged = await Mutant.peek(call.store, call.organization, longer, at)
    reading = await call(now=at)
    return reading if judged.allowed else reading._replace(allowed=False)


@wrong("W5 W4 W7 W2", "peek")
async def looks_by_a_hit(call: Call) -> Any:
    before = await call()
    await Mutant.hit(call.store, call.organization, call.windows, 1, call.now)
    return before


@wrong("W1 W6", "state", of=ByStates)
def drops_what_was_idle_for_half_a_day(call: Call) -> Any:
    states = call.store.states
    for owner, state in [*states.items()]:
        if max(cells[3] for cells in state) < call.at - DAY // 2:
            del states[owner]
    return call()


@wrong("W11 W2", "state", of=ByStates)
def drops_what_lies_in_the_future(call: Call) -> Any:
    """Once the clock has stepped back."""
    state = call()
    return empty_state(call.windows) if any(one[3] > call.at for one in state) else state


@wrong("W1 W3", "hit", of=ByStates)
async def reads_decides_and_writes_without_a_lock(call: Call) -> Any:
    store, organization = call.store, call.organization
    state = store.state(organization, call.windows, call.at)
    gap()
    reading, store.states[organization] = hit(state, call.windows, call.at, call.cost)
    return reading


# More cells than are kept exactly.
_CELL: Final = Struct("<qq")


def _spoilt(spoil: Callable[[Cells], Cells]) -> How:
    return lambda call: call(state=tuple(map(spoil, call.state)))


def _longer(cells: Cells) -> Cells:
    used, oldest, _, last, count, older = cells
    return used, oldest, last, last, count, older


def _cut(most: int) -> Callable[[Cells], Cells]:
    def cut(cells: Cells) -> Cells:
        used, _, first, last, count, older = cells
        rows = [*_CELL.iter_unpack(older)]
        if len(rows) <= most:
            return cells
        kept = rows[-most:]
        used -= sum(count for _, count in rows[:-most])
        return used, kept[0][0], first, last, count, b"".join(_CELL.pack(*row) for row in kept)

    return cut


several(
    {
        # If it is close to the last hit of it, not to the first.
        "lets_a_hit_join_the_newest_cell": ("W2", "keep", _spoilt(_longer)),
        "keeps_a_hundred_exact_hits": ("W1 W2 W14 W7", "keep", _spoilt(_cut(100))),
        "keeps_five_hundred_exact_hits": ("W1 W2 W14 W7", "keep", _spoilt(_cut(500))),
    },
    of=ByStates,
    parts=("windows",),
)

# Batches.
LARGE: Final = 12
"""Hits in a batch that a handful of callers does not fill."""


class Hit:
    """A hit that waits for its batch."""

    def __init__(self, organization: str, windows: Windows, cost: int, now: int) -> None:
        self.organization = organization
        self.windows = windows
        self.cost = cost
        self.now = now
        self.done = threading.Event()
        self.reading: Reading | None = None


class Batching(Mutant):
    """Charges hits that come together in one step (group commit)."""

    parts: ClassVar = ("windows",)

    def __init__(self) -> None:
        super().__init__()
        self._waiting: list[Hit] = []
        self._door = threading.Lock()

    async def hit(
        self,
        organization: str,
        windows: Windows,
        cost: int,
        now: int | None = None,
        limits: Any = None,
    ) -> Reading:
        mine = Hit(organization, windows, cost, self.at(now))
        with self._door:
            self._waiting.append(mine)
            leads = len(self._waiting) == 1
        if leads:
            if sys.getswitchinterval() < 0.001:  # Only where the kit has many callers.
                gap()
            with self._door:
                batch, self._waiting = self._waiting, []
            await self.charge_all(batch)
            for one in batch:
                one.done.set()
        mine.done.wait()
        assert mine.reading is not None
        return mine.reading

    async def charge_all(self, batch: Sequence[Hit]) -> None:
        for one in batch:
            one.reading = await super().hit(one.organization, one.windows, one.cost, one.now)


def _of_batches(killed_by: str) -> Callable[[How], object]:
    """Make a store that is wrong with large batches."""

    def make(how: How) -> None:
        def large(call: Call) -> Any:
            return call() if len(call.batch) < LARGE else how(call)

        wrong(killed_by, "charge_all", of=Batching, name=how.__name__)(large)

    return make


async def _tell(store: Batching, one: Hit) -> None:
    one.reading = await store.charge(one.organization, Peek(one.windows), one.now)


@_of_batches("W3 W9 W1")
async def writes_all_but_the_last_of_a_batch(call: Call) -> None:
    *others, last = call.batch
    await call(batch=others)
    await _tell(call.store, last)


@_of_batches("W3 W9 W12 W1")
async def charges_equal_hits_of_a_batch_once(call: Call) -> None:
    unique = {(one.organization, one.cost, one.windows): one for one in call.batch}
    await call(batch=[*unique.values()])
    for one in call.batch:
        one.reading = unique[one.organization, one.cost, one.windows].reading


@_of_batches("W3 W12 W1 W2")
async def charges_the_sum_of_a_batch(call: Call) -> None:
    """And gives all of them one answer."""
    first = call.batch[0]
    own = [one for one in call.batch if one.organization == first.organization]
    whole = Hit(first.organization, first.windows, sum(one.cost for one in own), first.now)
    await call(batch=[whole])
    await call(batch=[one for one in call.batch if one not in own])
    for one in own:
        one.reading = whole.reading


@_of_batches("W12 W3")
async def dates_a_batch_by_its_first(call: Call) -> None:
    for one in call.batch:
        one.now = call.batch[0].now
    await call()


@wrong("W1 W2 W3", "charge_all", of=Batching)
async def judges_a_batch_by_its_first_plan(call: Call) -> None:
    plans: dict[str, Windows] = {}
    for one in call.batch:
        windows = plans.setdefault(one.organization, one.windows)
        swapped = Hit(one.organization, windows, one.cost, one.now)
        await call(batch=[swapped])
        one.reading = swapped.reading


class BatchesOfSixtyFour(Batching):
    """Writes the first 64 hits of a batch; its callers are tasks."""

    killed_by: ClassVar = {"W3", "W9", "W1"}
    io: IoMode = "async"
    most = 64

    async def hit(
        self,
        organization: str,
        windows: Windows,
        cost: int,
        now: int | None = None,
        limits: Any = None,
    ) -> Reading:
        mine = Hit(organization, windows, cost, self.at(now))
        self._waiting.append(mine)
        if len(self._waiting) == 1:
            self._leader = asyncio.create_task(self._lead())
        while mine.reading is None:
            await asyncio.sleep(0)
        return mine.reading

    async def _lead(self) -> None:
        batch, self._waiting = self._waiting, []
        await self.charge_all(batch)

    async def charge_all(self, batch: Sequence[Hit]) -> None:
        await super().charge_all(batch[: self.most])
        for one in batch[self.most :]:
            await _tell(self, one)


class BatchesOfEight(BatchesOfSixtyFour):
    """The same with eight."""

    most = 8


# Resets.
def _forgets(forget: Callable[[Any, str], object]) -> How:
    """Return a mistake: a reset removes more than the windows."""

    async def how(call: Call) -> None:
        await call()
        forget(call.store, call.organization)

    return how


def _resets(others: Callable[[str, str], bool]) -> How:
    """Return a mistake: a reset empties windows of others, too."""

    async def how(call: Call) -> None:
        for other in {*call.store._windows._present, "org_1", "org_2", "org_3"}:
            if others(other, call.organization):
                await call(organization=other, change=None)
        await call()

    return how


async def _nothing(call: Call) -> None: ...


def _forget_history(store: Any, organization: str) -> None:
    for owner in [one for one in store._histories._kept if one.organization == organization]:
        store._histories.remove(owner)


def _forget_usage(store: Any, organization: str) -> None:
    store._requests.update((key.handle, 0) for key in store._keys.all(organization))


def _forget_last_use(store: Any, organization: str) -> None:
    for key in store._keys.all(organization):
        store._last_used.pop(key.handle, None)


several(
    {
        "resets_all_organizations": ("W2", "reset", _resets(lambda *_: True)),
        "resets_by_prefix": ("W2 W8", "reset", _resets(lambda one, of: one.startswith(of))),
        "resets_alike_organizations": (
            "W2 W8",
            "reset",
            _resets(lambda one, of: one.casefold().rstrip() == of.casefold().rstrip()),
        ),
        "resets_nothing": ("W2", "reset", _nothing),
        "resets_slots": ("W2", "reset", _forgets(lambda store, one: store.put_slots(one, ()))),
        "resets_usage": ("W2", "reset", _forgets(_forget_usage)),
        "resets_the_last_use": ("W2", "reset", _forgets(_forget_last_use)),
        "resets_the_plan": ("W2", "reset", _forgets(lambda store, one: store._placed.pop(one, 0))),
        "resets_history": ("W2 W7 K7", "reset", _forgets(_forget_history)),
        "records_no_reset": ("D44", "reset", lambda call: call(change=None)),
        "records_a_reset_by_the_clock_of_the_store": ("D44", "reset", lambda call: call(now=None)),
        "records_a_reset_that_empties_something": (
            "D44",
            "reset",
            lambda call: (
                call() if call.organization in call.store._windows._present else call(change=None)
            ),
        ),
        "resets_unheard": ("D5", "reset", unheard()),
    }
)


@wrong("D44", "reset")
def resets_the_log(call: Call) -> Any:
    call.store.forget_log(call.organization)
    return call()


@wrong("D44", "reset")
async def records_a_reset_twice(call: Call) -> None:
    """Of the windows and of the named limits."""
    await call()
    call.store._changes.add(call.organization, call.change, call.at)


@wrong("W2", "reset")
async def counts_a_reset_as_a_use(call: Call) -> None:
    """For each key, as the call that found the limit spent."""
    await call()
    for key in await call.store.list(call.organization, PAGE_AT_MOST):
        await call.store.add_usage({key.handle: Usage(1, key.created_at)})


@wrong("W2", "reset")
async def resets_the_minute_alone(call: Call) -> None:
    """Empties the window that refuses most often."""
    windows = call.store._windows
    state = windows.take(call.organization)
    await call()
    if state:
        windows._present[call.organization] = (EMPTY, *state[1:])


@wrong("D5", "freshness", "reset")
async def counts_no_reset_as_a_change(call: Call) -> Any:
    """Lets other processes refuse by what they remember."""
    store, seen = call.store, call.store.seen
    if "organization" in call:
        await store.freshness()
        await call()
        seen["version"] = store.local_version
        return None
    if store.local_version is not seen.setdefault("version", store.local_version):
        seen["version"] = store.local_version
        seen["moves"] = seen.get("moves", 0) + 1
    return Freshness(seen.get("moves", 0), await store.now())
