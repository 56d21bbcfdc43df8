"""Every check of the contract, the simplest first, so that the first to fail says most."""

from typing import Final

from . import accounts, admissions, conduct, crowds, keys, slots, windows
from .check import PARTS, Check, Part, whole
from .conduct import Leftovers, forgets
from .crowd import Crowd, in_threads

CHECKS: Final[tuple[Check, ...]] = (
    *accounts.CHECKS,
    *keys.CHECKS,
    *windows.CHECKS,
    *slots.CHECKS,
    *admissions.CHECKS,
    *conduct.CHECKS,
    *crowds.CHECKS,
)

__all__ = [
    "CHECKS",
    "PARTS",
    "Check",
    "Crowd",
    "Leftovers",
    "Part",
    "forgets",
    "in_threads",
    "whole",
]
