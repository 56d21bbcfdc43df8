"""The table of the worst windows: the page agrees with simulated traffic."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import worst as benchmark
from lockgate.core.timestamps import MINUTE
from lockgate.testing import worst

PAGE = Path(__file__).parents[1] / "docs" / "measured.md"


def told() -> dict[str, int]:
    rows = re.findall(r"^\| ([^|]+?) \| (\d+) \| \d\.\d\d \|$", PAGE.read_text(), re.MULTILINE)
    return {name: int(most) for name, most in rows}


@pytest.mark.parametrize("name", ["lockgate", "exact log", "GCRA, burst of the limit"])
def test_the_page_has_the_measured_figures(name: str) -> None:
    make = benchmark.CONTENDERS[name]
    found = 0
    for trace in benchmark.traffic():
        admit = make()
        found = max(found, worst([at for at in trace if admit(at)], MINUTE).admitted)
    assert found == told()[name]


def test_every_contender_is_on_the_page() -> None:
    assert set(told()) == set(benchmark.CONTENDERS)
