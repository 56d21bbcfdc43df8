from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from .matrix import OF_STORES, choose, is_kept

ABOVE = Path(__file__)


@dataclass(eq=False)
class Test:
    """The parts of a collected test that the choice reads."""

    __test__ = False
    path: Path
    nodeid: str
    params: dict[str, object]
    marks: tuple[str, ...] = ()
    callspec: Any = field(init=False)

    def __post_init__(self) -> None:
        self.callspec = SimpleNamespace(params=self.params)

    def get_closest_marker(self, name: str) -> bool:
        return name in self.marks


def combinations(name: str, path: Path, **axes: list[Any]) -> list[Any]:
    return [
        Test(path, f"{path}::{name}[{values}]", dict(zip(axes, values, strict=True)))
        for values in product(*axes.values())
    ]


@pytest.mark.parametrize("sizes", [(2,), (4,), (2, 4), (4, 2), (3, 3), (2, 3, 4)])
def test_the_tests_of_a_file_take_turns_in_every_combination(sizes: tuple[int, ...]) -> None:
    """And each test runs every combination of the shorter axes once."""
    every = set(product(*map(range, sizes)))
    for count in range(1, 9):
        assert every == {c for n in range(count) for c in every if is_kept(c, sizes, n, count)}
    longest = sizes.index(max(sizes))
    for number in range(8):
        kept = [c for c in every if is_kept(c, sizes, number, 8)]
        others = sorted(c[:longest] + c[longest + 1 :] for c in kept)
        assert others == sorted(product(*map(range, sizes[:longest] + sizes[longest + 1 :])))


def test_above_the_stores_a_test_takes_each_io_mode_with_another_store() -> None:
    axes: dict[str, list[Any]] = {"store": ["sqlite", "postgresql"], "mode": ["sync", "async"]}
    axes["further"] = ["a", "b"]
    items = combinations("one", ABOVE, **axes) + combinations("two", ABOVE, **axes)
    kept, left_out = choose(items)
    assert sorted(map(id, kept + left_out)) == sorted(map(id, items))
    taken = [("::one" in item.nodeid, *item.params.values()) for item in items if item in kept]
    for further in ("a", "b"):
        assert {each[:3] for each in taken if each[3] == further} == {
            (True, "sqlite", "sync"),
            (True, "postgresql", "async"),
            (False, "sqlite", "async"),
            (False, "postgresql", "sync"),
        }


def test_tests_of_stores_run_on_every_store_and_take_turns_in_the_io_modes() -> None:
    axes: dict[str, list[Any]] = {"store": ["sqlite", "postgresql"], "awaiting": [False, True]}
    path = OF_STORES / "test_x.py"
    kept: list[Any] = choose([t for name in "ab" for t in combinations(name, path, **axes)])[0]
    stores = "sqlite", "postgresql"
    assert [tuple(i.params.values()) for i in kept] == [
        (s, m) for m in (False, True) for s in stores
    ]


def test_a_test_alone_runs_whole_and_one_with_the_mark_does_not() -> None:
    items = combinations("one", ABOVE, store=["sqlite", "postgresql"])
    assert choose(items) == (items, [])
    items[0].marks = ("matrix",)
    assert choose(items) == ([items[1]], [items[0]])
