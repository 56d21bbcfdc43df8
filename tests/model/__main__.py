"""The command: ``python -m tests.model``.

Checks the protocol of quota leases, ``quota_leases.pml``, with Spin: all states of each
configuration, and one mutant after another, which has to break its invariant.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

MODEL: Final = Path(__file__).with_name("quota_leases.pml")
MEMORY: Final = 4_000
"""Megabytes that one check may take."""
LONGEST: Final = 600
"""Seconds that one check may take."""

UNITS: Final = "LIMIT=3", "SHARE=2", "WINDOW=3"
CHANGE: Final = "LIMIT=2", "SHARE=1", "WINDOW=2", "CHANGE"
CONFIGURATIONS: Final = {
    "two processes": (*UNITS, "PROCESSES=2", "EACH=1", "CALLS=1", "SPAN=2", "BACK"),
    "two leases": (*UNITS, "PROCESSES=1", "EACH=2", "CALLS=1", "SPAN=3", "BACK"),
    "forward": (*UNITS, "PROCESSES=1", "EACH=2", "CALLS=1", "SPAN=2", "BACK", "FORWARD"),
    "change": (*CHANGE, "PROCESSES=1", "EACH=2", "CALLS=1", "SPAN=3", "BACK"),
    "two calls": (*CHANGE, "PROCESSES=1", "EACH=1", "CALLS=2", "SPAN=3"),
    "change, forward": (
        *(*CHANGE, "PROCESSES=1", "EACH=2", "CALLS=1", "SPAN=2", "BACK", "FORWARD"),
    ),
}


class Check(NamedTuple):
    """Invariants of the model in one configuration."""

    configuration: str
    invariants: tuple[str, ...]
    mutant: str = ""
    """The fault, or an assumption that does not hold."""
    breaks: bool = False
    """Whether an invariant has to be broken."""


def mutant(name: str, configuration: str, invariant: str) -> Check:
    return Check(configuration, (invariant,), name, breaks=True)


CHECKS: Final = (
    Check("two processes", ("H1", "H7", "END")),
    Check("two leases", ("H1", "H7", "END")),
    Check("forward", ("H1", "H7")),
    Check("change", ("K4", "W13", "END")),
    Check("two calls", ("K4", "W13", "END")),
    Check("change, forward", ("K4", "W13")),
    # Not a mutant: the assumption that the protocol makes about the store's clock.
    mutant("STEPS_BEYOND_LINGER", "change, forward", "K4"),
    mutant("ENDED_FORGOTTEN", "change, forward", "K4"),
    mutant("ENDED_FORGOTTEN", "change, forward", "W13"),
    mutant("ELAPSED_FROM_REPLY", "two leases", "H1"),
    mutant("ELAPSED_FROM_REPLY", "two leases", "END"),
    mutant("ELAPSED_FROM_REPLY", "change", "K4"),
    mutant("CLOCK_STOPS", "two leases", "H1"),
    mutant("CLOCK_STOPS", "change", "K4"),
    mutant("NO_MARGIN", "two leases", "END"),
    mutant("NO_MARGIN", "change", "K4"),
    mutant("STAMPS_EARLY", "two leases", "H1"),
    mutant("STAMPS_WITHOUT_MARGIN", "two leases", "H1"),
    mutant("EXPIRED_UNITS_DROPPED", "two leases", "H1"),
    mutant("LEASES_NOT_SUMMED", "two leases", "H1"),
    mutant("GRANT_BEYOND_THE_LIMIT", "two leases", "H1"),
    mutant("SETTLED_BEFORE_CLOSED", "two leases", "H1"),
    mutant("SETTLED_BEFORE_CLOSED", "change", "K4"),
    mutant("SETTLED_TWICE", "two leases", "H7"),
    mutant("CHILD_KEEPS_LEASE", "two processes", "H7"),
    mutant("CHILD_KEEPS_LEASE", "two processes", "H1"),
    mutant("NO_WAIT", "change", "K4"),
    mutant("NO_WAIT", "change", "W13"),
    mutant("LEASES_READ_BEFORE_MARK", "change", "K4"),
    mutant("PATIENCE_WITHOUT_MARGIN", "change", "K4"),
    mutant("KEYS_KEPT", "change", "K4"),
    mutant("EARLIER_CALLS_VERIFY", "two calls", "K4"),
)


class Result(NamedTuple):
    """What Spin found: the states that it visited, and the way to a broken invariant."""

    states: int
    is_broken: bool
    trace: str
    seconds: float


def spin(folder: Path) -> str:
    """Return the program, from the system or unpacked into a folder from its package."""
    if found := shutil.which("spin"):
        return found
    subprocess.run(["apt-get", "download", "-qq", "spin"], cwd=folder, check=True)
    (package,) = folder.glob("spin_*.deb")
    subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
    return str(folder / "usr" / "bin" / "spin")


def run(check: Check, program: str, scratch: Path) -> Result:
    """Run a check; raise RuntimeError if it did not end."""
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(dir=scratch))
    shutil.copy(MODEL, folder)
    names = [*CONFIGURATIONS[check.configuration], *(f"CHECK_{name}" for name in check.invariants)]
    defined = [f"-D{name}" for name in (*names, check.mutant) if name]

    def output(*command: str) -> str:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=LONGEST, check=False
        )
        return done.stdout + done.stderr

    said = output(program, *defined, "-a", MODEL.name)
    # A mutant is found soonest breadth first; a search of all states is smaller depth first.
    order = ["-DBFS"] if check.breaks else []
    options = "-O2", "-w", "-DSAFETY", "-DCOLLAPSE", "-DNOREDUCE", f"-DMEMLIM={MEMORY}"
    said += output("gcc", *options, *order, "-o", "pan", "pan.c")
    said += output("./pan", "-w22", "-n", *([] if check.breaks else ["-m5000000"]))
    states = re.search(r"(\d+) states, stored", said)
    is_broken = "assertion violated" in said
    stopped = re.search(r"errors: [1-9]|max search depth too small|not completed", said)
    if states is None or (stopped and not is_broken):
        raise RuntimeError(f"{check} did not end:\n{said}")
    trace = ""
    if is_broken and not check.breaks:
        trace = output(program, *defined, "-t", "-p", MODEL.name)
    shutil.rmtree(folder)
    return Result(int(states[1]), is_broken, trace, time.monotonic() - began)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("--only", default="", help="checks whose mutant has this text in its name")
    only: str = parser.parse_args().only
    checks = [check for check in CHECKS if only in check.mutant]
    began, faults = time.monotonic(), 0
    with (
        tempfile.TemporaryDirectory() as scratch,
        ThreadPoolExecutor(os.cpu_count()) as threads,
    ):
        program = spin(Path(scratch))
        results = threads.map(lambda check: run(check, program, Path(scratch)), checks)
        for check, result in zip(checks, results, strict=True):
            is_right = result.is_broken == check.breaks
            faults += not is_right
            invariants = ", ".join(check.invariants)
            found = "broken" if result.is_broken else "hold"
            print(
                f"{check.mutant or '-':<24}{check.configuration:<17}{invariants:<13}{found:<8}"
                f"{result.states:>10,} states {result.seconds:6.1f} s"
                + ("" if is_right else "  <- wrong"),
                flush=True,
            )
            if not is_right:
                print(result.trace)
    print(f"\n{len(checks)} checks in {time.monotonic() - began:.0f} s, {faults} wrong")
    raise SystemExit(bool(faults))


if __name__ == "__main__":
    main()
