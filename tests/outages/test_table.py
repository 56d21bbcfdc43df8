"""The rows for the docs tell the worse of both I/O modes."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import PROPERTY, Figures
from .__main__ import recorded
from .campaign import rows

SYNC = Figures("Redis, sync", "killed", 1000, 2, 0.25, 0.26, 0.5, 0)
ASYNC = SYNC._replace(store="Redis, awaiting", refused=1003, detected=None, slowest=0.3, over=1)


def test_a_row_adds_up_the_answers_and_has_the_worse_of_the_other_figures() -> None:
    row = ("1,005 of 2,000", "0.25 s", "0.30 s", "0.50 s", "1")
    assert rows([SYNC, ASYNC]) == {"killed": row}


def test_a_fault_that_no_caller_noticed_says_so() -> None:
    pair = [each._replace(store=f"pair{each.store[5:]}", detected=None) for each in (SYNC, ASYNC)]
    [(name, row)] = rows(pair).items()
    assert name == "in a `CachedStore`: killed"
    assert row[1] == "never"


def test_a_run_in_one_io_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="not in both I/O modes"):
        rows([SYNC])


def test_figures_are_read_from_the_report_of_the_tests(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    told = f'<property name="{PROPERTY}" value="{list(ASYNC)}" /><property name="x" value="1" />'
    report.write_text(f"<testcase><properties>{told}</properties></testcase>")
    assert recorded(report) == [ASYNC]
