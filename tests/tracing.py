"""Processes that measure no coverage: it doubles the time in which they start."""

from __future__ import annotations

from collections.abc import Mapping

TOLD_BY = ("COVERAGE_PROCESS_CONFIG", "COVERAGE_PROCESS_START")
"""The variables that tell a process to measure it."""


def untraced(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment for what runs the same lines as another process that is measured."""
    return {name: value for name, value in environment.items() if name not in TOLD_BY}
