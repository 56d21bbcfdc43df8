"""Batching in threads: an interruption of one thread, anywhere, does not stop the others."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from time import sleep
from types import FrameType
from typing import Any

import pytest

from lockgate.stores.resilience.deadlines import Overdue, left, within
from lockgate.stores.runtime import batching
from lockgate.stores.runtime.batching import ThreadBatcher

MOST = 2
PATIENCE = 10.0


class Interrupted(BaseException):
    """Raised as by a signal handler in the main thread, or by another thread."""


class Interrupting:
    """Raises in this thread at one of the places where CPython lets the handler of a signal run:
    where a function begins, and where a built-in one has returned.

    Args:
        place: the number of the place, counted in :mod:`lockgate.stores.runtime.batching` only.
    """

    def __init__(self, place: int) -> None:
        self.places_left = place
        self.raised = False

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        asking = frame.f_back if event == "call" else frame
        ours = {frame.f_code.co_filename, asking and asking.f_code.co_filename}
        if event not in {"call", "c_return"} or batching.__file__ not in ours:
            return
        self.places_left -= 1
        if self.places_left == 0:
            self.raised = True
            raise Interrupted


class Callers:
    """Threads that charge at the same time, and this one, which may be interrupted."""

    def __init__(self, place: int) -> None:
        self.meeting = ThreadBatcher[str, str](self.send, MOST)
        self.interrupting = Interrupting(place)
        self.over = threading.Event()
        self.threads: list[threading.Thread] = []
        self.outcomes: dict[str, object] = {}
        self.meanwhile: dict[str, Callable[[], None]] = {}

    def send(self, charges: Sequence[str]) -> list[str]:
        for charge in charges:
            self.meanwhile.pop(charge, lambda: None)()
        return [charge.upper() for charge in charges]

    def charge(self, charge: str, seconds: float = PATIENCE) -> None:
        try:
            with within(seconds):
                self.outcomes[charge] = self.meeting.charge(charge)
        except BaseException as failure:
            self.outcomes[charge] = failure

    def start(self, *charges: str, seconds: float = PATIENCE) -> None:
        """Let others charge, each after the one before has begun to wait or is done."""
        for charge in charges:
            asked = charge, seconds
            self.threads.append(threading.Thread(target=self.charge, args=asked, daemon=True))
            self.threads[-1].start()
            while charge not in self.outcomes and charge not in self.waiting:
                sleep(0)

    @property
    def waiting(self) -> set[str]:
        return {ticket.charge for ticket in self.meeting._waiting}

    def charge_here(self, seconds: float = PATIENCE) -> None:
        sys.setprofile(self.interrupting)
        try:
            self.charge("here", seconds)
        finally:
            sys.setprofile(None)
            self.over.set()

    def end(self) -> dict[str, object]:
        """The outcomes of the concurrent callers, and of a later caller."""
        self.start("later")
        for thread in self.threads:
            thread.join(2 * PATIENCE)
        if self.interrupting.raised:
            assert type(self.outcomes.pop("here")) is Interrupted
        return self.outcomes


def every_place(scene: Callable[[Callers], None]) -> Iterator[dict[str, object]]:
    """Run a scenario, interrupted at each place in turn, then once without interruption."""
    for place in count(1):
        crowd = Callers(place)
        scene(crowd)
        yield crowd.end()
        if not crowd.interrupting.raised:
            assert place > 5
            return


@pytest.mark.thread_unsafe(reason="may interrupt, in vain, the callback of a weak reference")
def test_an_interrupted_first_caller_leaves_the_batch_to_others() -> None:
    def scene(crowd: Callers) -> None:
        crowd.meanwhile["here"] = lambda: crowd.start("second", "third")
        crowd.charge_here()
        if "here" in crowd.meanwhile:
            crowd.start("second", "third")

    others = {name: name.upper() for name in ("second", "third", "later")}
    *interrupted, whole = every_place(scene)
    assert interrupted == [others] * len(interrupted)
    assert whole == {"here": "HERE", **others}


@pytest.mark.thread_unsafe(reason="may interrupt, in vain, the callback of a weak reference")
@pytest.mark.parametrize("seconds", [PATIENCE, 0])
def test_an_interrupted_thread_keeps_no_other_waiting(seconds: float) -> None:
    """Whether it gets to send for them, or goes because it is late."""

    def scene(crowd: Callers) -> None:
        sending = threading.Event()

        def hold() -> None:
            sending.set()
            while not (crowd.meeting._waiting or crowd.over.is_set()):
                sleep(0)
            crowd.start("with", "after")
            if not seconds:
                assert crowd.over.wait(PATIENCE)

        crowd.meanwhile["first"] = hold
        crowd.threads.append(threading.Thread(target=crowd.charge, args=["first"], daemon=True))
        crowd.threads[-1].start()
        assert sending.wait(PATIENCE)
        crowd.charge_here(seconds)

    others = {name: name.upper() for name in ("first", "with", "after", "later")}
    *interrupted, whole = every_place(scene)
    for outcomes in interrupted:
        together = outcomes.pop("with")
        assert together == "WITH" or isinstance(together, Overdue), "nobody knows what came of it"
        assert {"with": "WITH", **outcomes} == others
    here = whole.pop("here")
    assert here == "HERE" if seconds else isinstance(here, Overdue)
    assert whole == others


def test_the_caller_with_the_most_time_left_sends_for_the_others() -> None:
    """A batch fails when the caller that sends it gives up."""
    callers, batches = Callers(0), list[tuple[list[str], float]]()

    def send(charges: Sequence[str]) -> list[str]:
        if "first" in charges:
            callers.start("hurried", seconds=60)
            callers.start("patient", seconds=600)
        batches.append(([*charges], left() or 0))
        return [charge.upper() for charge in charges]

    callers.meeting = ThreadBatcher[str, str](send, MOST)
    callers.charge("first")
    assert callers.end() == {
        name: name.upper() for name in ("first", "hurried", "patient", "later")
    }
    together, seconds = batches[1]
    assert together == ["hurried", "patient"]
    assert seconds > 100
