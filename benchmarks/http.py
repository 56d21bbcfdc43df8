"""Throughput over HTTP: every contender behind a uvicorn of its own, asked in turns."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple

from .load import GENERATOR, load
from .measure import Spread, in_turns, ratio, table
from .workload import EXACT

BARE = "bare Starlette"
EVERYBODY = {
    BARE: "nothing",
    "floor, inlined by hand": "floor",
    "lockgate": "lockgate",
    "slowapi, decorator": "slowapi",
    "slowapi, ASGI middleware": "slowapi_middleware",
}
CONNECTIONS = 8
CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
FIRST, LAST = 0, -1


def main(quick: bool) -> None:
    compare(EVERYBODY, *((2, 1) if quick else (10, 2)))


class Served(NamedTuple):
    """What a contender served: requests a second, and microseconds of its CPU time for each."""

    rate: Spread
    of_other: Spread
    cpu: Spread
    of_cpu: Spread
    """The other's CPU time, divided by the contender's."""


def compare(
    everybody: Mapping[str, str], rounds: int, seconds: int, beside: str = BARE
) -> dict[str, Served]:
    """Print and return the throughput of contenders, and its ratio to that of one of them."""
    pinned = pin(os.getpid(), LAST)
    with ExitStack() as servers:
        servers.callback(unpin, os.getpid())
        turns = {name: servers.enter_context(_served(everybody[name])) for name in everybody}
        spent: dict[str, list[float]] = {name: [] for name in turns}

        def turn(name: str) -> float:
            process, port = turns[name]
            before = _cpu(process.pid)
            rate = load(port, EXACT, CONNECTIONS, seconds)
            spent[name].append((_cpu(process.pid) - before) / (rate * seconds) * 1e6)
            return rate

        figures = in_turns({name: lambda name=name: turn(name) for name in turns}, rounds)
    served: dict[str, Served] = {}
    for name in figures:
        cpu = {which: spent[which][1:] for which in (name, beside)}  # The first did not count.
        served[name] = Served(
            Spread.of(figures[name]),
            ratio(figures, name, beside),
            Spread.of(cpu[name]),
            ratio(cpu, beside, name),
        )
    rows = [
        [name, f"{one.rate:.0f}", f"{one.of_other:.2f}", f"{one.cpu:.0f}", f"{one.of_cpu:.2f}"]
        for name, one in served.items()
    ]
    title = (
        f"Throughput over HTTP, {CONNECTIONS} connections, by {GENERATOR}\n"
        f"(one uvicorn process each, {pinned}; median and quartiles of {rounds} rounds "
        f"of {seconds} s, in turns)"
    )
    columns = ["", "requests/s", f"of {beside}", "server CPU us", "the other's CPU / its own"]
    table(title, columns, rows)
    return served


@contextmanager
def _served(name: str) -> Iterator[tuple[subprocess.Popen, int]]:
    """A server in a process of its own, up and answering."""
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        port = chosen.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-m", f"{__package__}.server", name, str(port)])
    try:
        pin(process.pid, FIRST)
        deadline = monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                if process.poll() is not None or monotonic() > deadline:
                    raise
                sleep(0.05)
        yield process, port
    finally:
        process.terminate()
        process.wait(10)


def pin(process: int, place: int) -> str:
    """Keep a process on one core, where that can be done: the first (0) or the last (-1)."""
    if len(CORES) < 2:
        return "not pinned"
    os.sched_setaffinity(process, {CORES[place]})
    return "pinned to one core, the load to another"


def unpin(process: int) -> None:
    if CORES:
        os.sched_setaffinity(process, CORES)


def _cpu(process: int) -> float:
    """Seconds of CPU time that a process has used; not a number where nothing tells."""
    status = Path(f"/proc/{process}/stat")
    if not status.exists():
        return float("nan")
    fields = status.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
