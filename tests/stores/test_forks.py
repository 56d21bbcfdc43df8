"""What a process counts of its threads and holds of its connections ends where it forks."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from lockgate.stores.deadlines import Threads, within
from lockgate.stores.forks import tell_of_forks

# From 3.12 on Python warns of what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore:.* is multi-threaded:DeprecationWarning")


def in_a_child(work: Callable[[], bytes]) -> bytes:
    """What a forked process makes of this, in one piece."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, work())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    said = os.read(reading, 100)
    os.close(reading)
    return said


class Told:
    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self.forks = 0
        tell_of_forks(self)

    def forked(self) -> None:
        self.forks += 1
        if self.failure is not None:
            raise self.failure


def test_all_are_told_in_the_child_and_nobody_in_the_parent() -> None:
    told = [Told(), Told(OSError("no room")), Told()]
    assert in_a_child(lambda: b"%d%d%d" % tuple(one.forks for one in told)) == b"111"
    assert [one.forks for one in told] == [0, 0, 0]


def test_a_child_has_none_of_the_threads_that_waited_for_work() -> None:
    threads = Threads(at_most=1)

    def call() -> bytes:
        with within(30):
            return threads.do(lambda: b"done")

    assert call() == b"done"
    assert in_a_child(call) == b"done"
    assert call() == b"done"
