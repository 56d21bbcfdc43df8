"""The short form of ``nox -s streams``: 200 streams in two processes, one of which is killed."""

from __future__ import annotations

import pytest

from tests.campaigns import STORES

from .campaign import Size, suffer

pytestmark = pytest.mark.usefixtures("untraced_processes")

SMALL = Size(200, 2, 4, 4_000, 3, 3, 1, 2)


@pytest.mark.parametrize(
    "store",
    [
        *("Redis", "SQLite"),
        *(
            pytest.param(store, marks=pytest.mark.matrix)
            for store in sorted({*STORES} - {"Redis", "SQLite"})
        ),
    ],
)
def test_h1_streams_of_killed_processes_keep_the_limit(store: str) -> None:
    figures = suffer(store, SMALL, seed=1)
    assert figures.broken == []
    assert figures.holds > 0
