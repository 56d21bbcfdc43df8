"""Bounded memories forget a few at a time."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

from lockgate.core.bounded_dict import BoundedDict

ROOM = 1000


def filled() -> BoundedDict[int, int]:
    memory: BoundedDict[int, int] = BoundedDict(ROOM)
    for number in range(ROOM):
        memory[number] = number
    return memory


def test_a_full_dictionary_evicts_one_entry_for_each_new_one() -> None:
    memory = filled()
    for number in range(ROOM, 10 * ROOM):
        before = set(memory)
        memory[number] = number
        assert len(before - set(memory)) == 1
        assert len(memory) == ROOM
        assert memory[number] == number


def hits(in_use: int) -> float:
    """The part of look-ups that find something, by users that come round in turn."""
    memory: BoundedDict[int, int] = BoundedDict(ROOM)
    found = 0
    for turn in range(40):
        for number in range(in_use):
            if memory.get(number) is None:
                memory[number] = number
            elif turn >= 20:
                found += 1
    return found / (20 * in_use)


def test_slightly_more_keys_than_fit_miss_only_a_little() -> None:
    assert hits(ROOM) == 1
    assert hits(ROOM * 11 // 10) > 0.7
    assert hits(ROOM * 5 // 4) > 0.5
    assert hits(ROOM * 2) > 0.1


def test_touched_and_replaced_entries_outlive_unused_ones() -> None:
    memory = filled()
    for _ in range(10 * ROOM):
        memory[7] = -7
    assert set(memory) == set(range(ROOM)) and memory[7] == -7
    for number in range(ROOM, 20 * ROOM):
        memory.touch(1)
        memory[number] = number
    assert 1 in memory


def test_a_dictionary_full_of_touched_entries_accepts_new_ones() -> None:
    memory = filled()
    for number in range(ROOM, 2 * ROOM):
        for key in memory:
            memory.touch(key)
        memory[number] = number
    assert len(memory) == ROOM


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads take turns as often as they can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("run", range(30))
def test_the_dictionary_stays_bounded_under_threads(run: int) -> None:
    memory: BoundedDict[int, int] = BoundedDict(50)
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for step in range(1500):
                key = step * seed % 97
                memory[key] = step
                memory.touch(key)
                if step % 5 == 0:
                    memory.pop(key + 1, None)
                if step % 300 == 0:
                    memory.clear()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 3, 5, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    for number in range(100, 300):
        memory[number] = number
    assert len(memory) <= 50
