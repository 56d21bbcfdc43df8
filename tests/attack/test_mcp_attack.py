"""Hostile calls of served MCP servers: no tool runs that was not admitted and charged (D49, D31).

The long search is ``nox -s attack``.
"""

from __future__ import annotations

import sys
from random import Random

import pytest

from .mcp_calls import hostile
from .mcp_campaign import PAIRS, Caller, attacked
from .pairs import served

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="as the other attacks"),
    pytest.mark.usefixtures("untraced_processes"),
]


@pytest.mark.parametrize(
    "pair",
    [
        *(pair for pair in PAIRS if pair[0] == "uvicorn-h11"),
        *(
            pytest.param(pair, marks=pytest.mark.matrix)
            for pair in PAIRS
            if pair[0] != "uvicorn-h11"
        ),
    ],
    ids=" ".join,
)
def test_no_tool_runs_that_was_not_admitted_and_charged_D49(pair: tuple[str, str]) -> None:
    report = attacked(pair, seed=3, count=250, patience=2.0)
    assert report.findings == []
    assert min(report.ran[name] for name in ("echo", "search", "write", "größe", "note")) > 0


@pytest.mark.parametrize(
    ("mutant", "found"),
    [
        ("headers_name_the_calls_of_every_version", "ran with"),
        ("sessions_of_mcp_belong_to_anyone", "a plain call was charged"),
        ("declared_rules_of_tools_are_not_charged", "ran with"),
    ],
)
def test_the_campaign_finds_a_fault_of_the_gate(mutant: str, found: str) -> None:
    random = Random(7)
    with served("uvicorn-h11", "mcp-sdk", mutant) as target:
        caller = Caller(target, 2.0)
        caller.open_sessions()
        for _ in range(4000):
            if not any(found in finding for finding in caller.report.findings):
                caller.judge(hostile(random, caller.sessions))
        caller.finish()
    assert any(found in finding for finding in caller.report.findings)
