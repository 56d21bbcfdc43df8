"""All checks of the contract, simplest first, so that the first failure is the clearest."""

from typing import Final

from . import (
    accounts,
    admissions,
    concurrency,
    keys,
    lifecycle,
    slots,
    windows,
)
from .callers import Callers, in_threads
from .check import PARTS, Check, Part, whole
from .lifecycle import Leftovers, forgets

CHECKS: Final[tuple[Check, ...]] = (
    *accounts.CHECKS,
    *keys.CHECKS,
    *windows.CHECKS,
    *slots.CHECKS,
    *admissions.CHECKS,
    *lifecycle.CHECKS,
    *concurrency.CHECKS,
)

__all__ = [
    "CHECKS",
    "PARTS",
    "Callers",
    "Check",
    "Leftovers",
    "Part",
    "forgets",
    "in_threads",
    "whole",
]
