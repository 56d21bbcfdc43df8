"""Which combinations of store and I/O mode a test runs on: all with ``--matrix``, else a cover.

Without the option the tests of a file take turns: the indexes of a combination's values and the
number of the test add up to a multiple of the length of the longest axis. So each test runs every
combination of the other axes once, and each file every value and every pair of values. A file of
fewer tests than values has each of them run more.

The tests of stores run on every store in any case, as the code under test is another; what is above
the stores meets their contract, and each store runs every check of that. Tests marked ``matrix``
run with the option alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

STORES = frozenset(
    {"memory", "sqlite", "postgresql", "mysql", "mariadb", "redis", "cluster", "single", "pair"}
)
IO_MODES = frozenset({"sync", "async", "awaiting"})
WHETHER_IT_AWAITS = frozenset({"awaiting", "awaits"})
"""Arguments that tell the I/O mode by true and false."""
OF_STORES = Path(__file__).parent / "stores"

Axes = tuple[tuple[str, tuple[object, ...]], ...]
"""The arguments that are axes, each with its values."""


def is_kept(place: Sequence[int], sizes: Sequence[int], number: int, tests: int) -> bool:
    """Return whether a test runs a combination.

    Args:
        place: the index of the combination's value on each axis.
        sizes: the number of values on each axis; at least one axis.
        number: counts the tests that take turns, from 0.
        tests: how many tests take turns.
    """
    return (sum(place) + number) % min(max(sizes), tests) == 0


def choose(items: list[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Divide tests into those that run without ``--matrix``, and the others."""
    tests: dict[tuple[Path, str], list[Any]] = defaultdict(list)
    for item in items:
        tests[item.path, item.nodeid.partition("[")[0]].append(item)
    turns: dict[tuple[Path, Axes], list[list[Any]]] = defaultdict(list)
    for (path, _), combinations in tests.items():
        turns[path, _axes(path, combinations)].append(combinations)
    left_out = {item for item in items if item.get_closest_marker("matrix")}
    for (_, axes), group in turns.items():
        sizes = [len(values) for _, values in axes]
        for number, combinations in enumerate(group if axes else ()):
            for item in combinations:
                place = [values.index(item.callspec.params[name]) for name, values in axes]
                if not is_kept(place, sizes, number, len(group)):
                    left_out.add(item)
    return [i for i in items if i not in left_out], [i for i in items if i in left_out]


def _axes(path: Path, combinations: list[Any]) -> Axes:
    values: dict[str, dict[object, None]] = defaultdict(dict)
    for item in combinations:
        for name, value in item.callspec.params.items() if hasattr(item, "callspec") else ():
            if isinstance(value, str | bool):
                values[name][value] = None
    return tuple(
        (name, tuple(found))
        for name, found in sorted(values.items())
        if len(found) > 1 and _is_axis(path, name, found)
    )


def _is_axis(path: Path, name: str, values: dict[object, None]) -> bool:
    if name in WHETHER_IT_AWAITS or values.keys() <= IO_MODES:
        return True
    return values.keys() <= STORES and not path.is_relative_to(OF_STORES)
