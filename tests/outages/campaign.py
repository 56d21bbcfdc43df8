"""The table of `docs/measured.md` on the faults of one Redis."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.pages import Part, Table
from tests.stores.redis.test_campaign import LIMIT, SCENES

from . import Figures, text

MODES = 2
"""The sync and the async callers, each with a run of its own."""


def line(store: str, happens: str) -> str:
    """Return the name of a row in the docs."""
    return f"in a `CachedStore`: {happens}" if store == "pair" else happens


PAGE = Part(
    "outages",
    "measured.md",
    (
        Table(
            (
                "Redis ...",
                "503",
                "noticed after",
                "longest wait",
                "admits again after",
                f"beyond {LIMIT}",
            ),
            tuple(line(store, happens) for store, faults in SCENES.items() for happens in faults),
        ),
    ),
)
PARTS = (PAGE,)


def rows(some: Iterable[Figures]) -> dict[str, tuple[str, ...]]:
    """Write the rows for the docs: the worse of both I/O modes, their answers added up.

    Raises:
        ValueError: an I/O mode is missing.
    """
    lines: dict[str, list[Figures]] = {}
    for each in some:
        store, _, _ = each.store.partition(",")
        lines.setdefault(line(store, each.happens), []).append(each)
    if wrong := [name for name, runs in lines.items() if len(runs) != MODES]:
        raise ValueError(f"not in both I/O modes: {wrong}")
    return {name: _row(runs) for name, runs in lines.items()}


def _row(runs: Sequence[Figures]) -> tuple[str, ...]:
    detected = [each.detected for each in runs if each.detected is not None]
    return (
        f"{sum(each.refused for each in runs):,} of {sum(each.answers for each in runs):,}",
        text(max(detected)) if detected else "never",
        text(max(each.slowest for each in runs)),
        text(max(each.back for each in runs)),
        str(max(each.over or 0 for each in runs)),
    )
