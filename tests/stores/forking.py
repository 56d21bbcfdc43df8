"""A process that charges and then forks, as a server does that loads its application beforehand."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from lockgate import Store

# From 3.12 on Python warns of forks with threads, which is tested here.
AT_FORK = pytest.mark.filterwarnings("ignore:.* is multi-threaded:DeprecationWarning")


def in_a_child(work: Callable[[], bytes]) -> bytes:
    """Return the result of a function in a forked process."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, work())
        finally:
            os._exit(0)
    os.close(writing)
    if not select.select([reading], [], [], 120)[0]:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    said = os.read(reading, 100)
    os.close(reading)
    return said


PROGRAM = """
import os, sys
from importlib import import_module
from lockgate import Gate, run
from lockgate.options import StoreOptions

module, kind, url, prefix = sys.argv[1:]

def opened():
    store = getattr(import_module(module), kind)(url, prefix=prefix)
    return Gate(store, brand="acme", store_options=StoreOptions(deadline=60))

gate = opened()
no_limits = {"rpm": None, "rph": None, "rpd": None, "concurrent": None}
tokens = []
for number in range(3):
    run(gate.organizations.place(f"org_{number}", "enterprise", **no_limits))
    text = run(gate.keys.create(f"org_{number}", "a key")).text
    tokens.append(text)
    run(gate.authenticate(tokens[-1]))

def charge(number, times):
    principals = [run(gate.authenticate(tokens[number])) for _ in range(times)]
    assert {principal.organization for principal in principals} == {f"org_{number}"}
    return [principal.key.request_count for principal in principals]

def child(number):
    reading, writing = os.pipe()
    closed, closing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)  # So that one that fails is not waited for.
        return pid, reading, closing
    status = 1
    try:
        assert charge(number, 12) == list(range(2, 14))
        os.write(writing, b"!")
        os.read(closed, 1)
        assert charge(number, 4) == list(range(14, 18))
        status = 0
    finally:
        os._exit(status)

children = [child(1), child(2)]
assert charge(0, 12) == list(range(2, 14))
for _, reading, _ in children:
    os.read(reading, 1)
run(gate.close())
for pid, _, closing in children:
    os.write(closing, b"!")
    print(os.waitpid(pid, 0)[1])
gate = opened()
print([charge(number, 1) for number in range(3)])
run(gate.close())
"""


def fork_and_charge(kind: Callable[..., Store], url: str, prefix: str) -> None:
    """Parent and children each count their own requests, without a loss."""
    store = (kind.__module__, kind.__name__, url, prefix)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *store],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.stdout.split("\n")[:3] == ["0", "0", "[[14], [18], [18]]"], done.stderr
