"""What a process counts of its threads and holds of its connections ends where it forks."""

from __future__ import annotations

from lockgate.stores.deadlines import Threads, within
from lockgate.stores.forks import tell_of_forks

from .forking import AT_FORK, in_a_child

pytestmark = AT_FORK


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
