"""The short form of ``nox -s faults``: what holds on a busy machine as well."""

from __future__ import annotations

import pytest

from .campaign import suffer
from .scenarios import ALONE, SCENARIOS, SQLITE

pytestmark = pytest.mark.usefixtures("untraced_processes")

PATIENT = 30.0
"""Seconds that a request may take: here a busy machine is no failure."""


@pytest.mark.parametrize(
    ("servers", "name", "beside", "deadline"),
    [
        ("Sentinel", "planned failover", ALONE, 0.25),
        pytest.param("Cluster", "a master is killed", SQLITE, 0.25, marks=pytest.mark.matrix),
        pytest.param(
            *("Cluster", "ten slots move, used and idle", ALONE, PATIENT), marks=pytest.mark.matrix
        ),
    ],
)
def test_k4_k7_w1_servers_change_under_load(
    servers: str, name: str, beside: str, deadline: float
) -> None:
    scenario = next(each for each in SCENARIOS if each[:2] == (name, servers))
    figures = suffer(scenario, beside, seconds=1.0, deadline=deadline)
    assert figures.outcomes == ()
    assert figures.counts.doubled == 0
    assert figures.revoked.admissions == 0
    assert figures.concerned.number < figures.concerned.answers
    if scenario.promise.refused == 0:
        assert figures.concerned.number == figures.unchanged == 0
        assert figures.others is not None
        assert figures.others.number == 0
    if beside == ALONE:
        assert figures.beyond == figures.counts.lost == 0
