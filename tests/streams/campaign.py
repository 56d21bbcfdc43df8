"""The campaign: streams in several processes, kills, lost replies and a clock that steps."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from random import Random
from time import monotonic, sleep
from typing import Final, NamedTuple

from sqlalchemy import make_url

from benchmarks.pages import Part, Table
from lockgate import run
from tests import servers
from tests.campaigns import STORES, end, start, wait_until_ready
from tests.network import CHUNK, Network, Relay

from .clock import Readings, SharedClock, Step
from .oracle import UNKNOWN, Judge, read
from .worker import Orders, gate_of

MICROSECONDS: Final = 1_000_000
MINUTE: Final = 60 * MICROSECONDS
_CUT: Final = 2e-4
"""The share of packets with which a relay ends their connection instead."""
_STEPS: Final = -20.0, -4.0, -0.5, 0.5, 4.0, 20.0, 45.0
"""The steps of the clock for holds of a minute, in seconds."""


class Size(NamedTuple):
    """How large a run is."""

    streams: int
    """That are tried at once; some of them are refused and try again."""
    processes: int
    organizations: int
    limit: int
    """Units a minute of each organization; a stream holds 50 on average."""
    seconds: float
    """Of a hold, and of a stream on average."""
    lasts: float
    """Seconds of load."""
    kills: int
    steps: int


FULL: Final = Size(14_000, 4, 100, 9_500, 60, 180, 6, 8)


class Figures(NamedTuple):
    """What a run has shown."""

    at_once: int
    """The most streams that were held at the same time."""
    holds: int
    killed: int
    """Processes."""
    unanswered: int
    """Calls whose outcome the caller did not learn."""
    steps: int
    """Of the clock."""
    worst: float
    """The most units that must have counted in a window, in limits."""
    twice: int
    """Holds that were settled twice, and units counted beyond the most that is possible."""
    lost: int
    """Units that are missing from the fewest that are possible."""
    left: int
    """Units still held after their deadline, or counted a window later."""
    errors: tuple[str, ...]
    """Exceptions other than a refusal and an unavailable store."""

    @property
    def broken(self) -> list[str]:
        """The promises that the run has shown broken."""
        found = [f"error: {error}" for error in self.errors]
        if self.worst > 1:
            found.append(f"a window had {self.worst:.4f} of its limit")
        for name in ("twice", "lost", "left"):
            if number := getattr(self, name):
                found.append(f"{name}: {number} units or holds")
        return found


class _CuttingRelay(Relay):
    """Ends a connection now and then, in place of passing a request or its reply on.

    Attributes:
        to: the port of the server.
    """

    to = 0
    _random = Random(1)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.to)
        except OSError:
            writer.close()
            return
        await asyncio.gather(self._pump(0, reader, back), self._pump(0, there, writer))

    async def _pump(
        self, client: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with suppress(OSError):
            while (data := await reader.read(CHUNK)) and self._random.random() > _CUT:
                writer.write(data)
                await writer.drain()
        writer.close()


PAGE: Final = Part(
    "streams",
    "measured.md",
    (
        Table(
            (
                *("store", "streams at once", "holds", "killed", "unanswered", "steps"),
                *("worst window", "twice", "left"),
            ),
            tuple(STORES),
        ),
    ),
)
PARTS: Final = (PAGE,)


@contextmanager
def _cut(server: servers.Server, url: str) -> Iterator[str]:
    """Give a URL that leads to a server by way of a relay."""
    network = Network()
    try:
        relay = network.start(_CuttingRelay(network))
        relay.to = server.port
        cut = make_url(url).set(port=relay.port)
        yield cut.render_as_string(hide_password=False)
    finally:
        network.close()


class _Fleet:
    """The processes of a run."""

    def __init__(self, stack: ExitStack, orders: Orders) -> None:
        self._stack, self._orders = stack, orders
        self._started = 0
        self.running = [self._start(place) for place in range(orders["processes"])]
        for process in self.running:
            wait_until_ready(process)

    def _start(self, place: int) -> subprocess.Popen[str]:
        self._started += 1
        seed = self._orders["seed"] + self._started
        orders = {**self._orders, "process": place, "seed": seed}
        return start(self._stack, "tests.streams.worker", orders)

    def kill(self, place: int) -> None:
        """Kill a process with signal 9, and start another one in its place."""
        end(self.running[place])
        self.running[place] = self._start(place)

    def kill_all(self) -> None:
        for process in self.running:
            end(process)


def suffer(store: str, size: Size, seed: int) -> Figures:
    """Run the streams on a store, and judge them."""
    random = Random(seed)
    with ExitStack() as stack:
        server, url = STORES[store](stack)
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        clock = SharedClock(Path(folder) / "clock")
        offset, steps = clock.offset, list[Step]()
        reached = url if server is None else stack.enter_context(_cut(server, url))
        orders: Orders = {
            "url": reached,
            "loses": server is None,
            "folder": folder,
            "process": 0,
            "processes": size.processes,
            "organizations": size.organizations,
            "streams": size.streams,
            "limit": size.limit,
            "seconds": size.seconds,
            "seed": seed * 1000,
        }
        fleet = _Fleet(stack, orders)
        acts: list[Callable[[], object]] = [
            *[lambda: fleet.kill(random.randrange(size.processes))] * size.kills,
            *[lambda: steps.append(_stepped(clock, random, size))] * size.steps,
        ]
        random.shuffle(acts)
        began = monotonic()
        for index, act in enumerate(acts):
            due = began + size.lasts * (index + 1) / (len(acts) + 1)
            sleep(max(0.0, due - monotonic()))
            act()
        sleep(max(0.0, began + size.lasts - monotonic()))
        fleet.kill_all()
        sleep(1)  # Until a server has ended what the killed processes began.
        judge = Judge(
            read(Path(folder)), Readings(offset, steps), MINUTE, int(size.seconds * MICROSECONDS)
        )
        orders["url"], orders["loses"] = url, False
        return _figures(judge, orders, clock, size, steps)


def _stepped(clock: SharedClock, random: Random, size: Size) -> Step:
    return clock.step(int(random.choice(_STEPS) * size.seconds / 60 * MICROSECONDS))


def _figures(
    judge: Judge, orders: Orders, clock: SharedClock, size: Size, steps: list[Step]
) -> Figures:
    gate = gate_of(orders)
    clock.step(int(size.seconds * MICROSECONDS) + 1)
    twice, lost, left = judge.settled_twice(), 0, 0
    totals = judge.totals()
    for organization, (fewest, most) in totals.items():
        _, day = run(gate.holds.usage(organization))
        twice += max(0, day.used - most)
        lost += max(0, fewest - day.used)
        left += day.held
    clock.step(MINUTE)
    for organization in totals:
        minute, _ = run(gate.holds.usage(organization))
        left += minute.used
    run(gate.close())
    outcomes = Counter(stream.take.outcome for stream in judge.streams.values())
    calls = (call for stream in judge.streams.values() for call in stream.settlements)
    unanswered = outcomes[UNKNOWN] + sum(call.outcome == UNKNOWN for call in calls)
    return Figures(
        judge.at_once(),
        outcomes["answered"],
        size.kills + size.processes,
        unanswered,
        len(steps),
        judge.worst() / size.limit,
        twice,
        lost,
        left,
        tuple(judge.errors),
    )


def cells(figures: Figures) -> tuple[str, ...]:
    """Write the cells of a row."""
    numbers = figures[:5]
    return (
        *(f"{number:,}" for number in numbers),
        f"{figures.worst:.4f}",
        str(figures.twice + figures.lost),
        str(figures.left),
    )
