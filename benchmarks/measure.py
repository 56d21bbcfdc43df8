"""Measuring in turns, and printing what came of it."""

import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import quantiles
from typing import NamedTuple

LIBRARIES = ("lockgate", "starlette", "slowapi", "limits", "uvicorn", "uvloop", "httptools")


class Spread(NamedTuple):
    """The three quartiles of some figures."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, figures: Sequence[float]) -> "Spread":
        return cls(*quantiles(figures, n=4, method="inclusive"))

    def __format__(self, spec: str) -> str:
        return f"{self.median:{spec}} ({self.low:{spec}}..{self.high:{spec}})"


def in_turns(contenders: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Measure A B C A B C ..., so that whatever slows the machine down meets them all alike.

    Every contender has one turn before the first that counts.
    """
    figures: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in contenders.values():
        turn()
    for _ in range(rounds):
        for name, turn in contenders.items():
            figures[name].append(turn())
    return figures


def added(figures: Mapping[str, list[float]], name: str, base: str) -> Spread:
    """How much more one contender takes than another, round by round."""
    return Spread.of([a - b for a, b in zip(figures[name], figures[base], strict=True)])


def beside(spread: Spread, ratio: Spread, unit: str, digits: int = 0) -> str:
    """A cell: the median of what was measured, then its ratio to a base with the quartiles."""
    return f"{spread.median:,.{digits}f}{unit}, {ratio:.2f}"


def ratio(figures: Mapping[str, list[float]], name: str, base: str) -> Spread:
    """How many times what another contender takes, round by round."""
    return Spread.of([a / b for a, b in zip(figures[name], figures[base], strict=True)])


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    print(f"\n{title}\n")
    for row in (columns, ["-" * width for width in widths], *rows):
        first, *others = (
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join([first, *others]))


def machine() -> str:
    """What this is measured on."""
    load = f"; load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return f"{host()}{load}\n{versions(LIBRARIES)}"


def host() -> str:
    """The processor, the system and the interpreter."""
    return (
        f"{_processor()}, {os.cpu_count()} cores, {platform.system()}, "
        f"{platform.python_implementation()} {platform.python_version()}"
    )


def versions(libraries: Iterable[str]) -> str:
    """Distributions with their versions."""
    return ", ".join(f"{name} {_version(name)}" for name in libraries)


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"
