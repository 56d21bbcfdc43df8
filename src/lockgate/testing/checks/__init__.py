"""All checks of the contract, simplest first, so that the first failure is the clearest."""

from typing import Final

from . import (
    accounts,
    admissions,
    batches,
    changes,
    comparisons,
    concurrency,
    deaths,
    fields,
    holds,
    instants,
    keys,
    lifecycle,
    limits,
    lost,
    many,
    pages,
    promises,
    quota_leases,
    rows,
    slots,
    texts,
    usage,
    windows,
)
from .callers import Callers, in_threads
from .check import KEY_PARTS, PARTS, WINDOW_PARTS, Check, Part, applies, whole
from .lifecycle import Leftovers, forgets, forgets_limits

CHECKS: Final[tuple[Check, ...]] = (
    *rows.CHECKS,
    *accounts.CHECKS,
    *keys.CHECKS,
    *windows.CHECKS,
    *slots.CHECKS,
    *admissions.CHECKS,
    *lifecycle.CHECKS,
    *comparisons.CHECKS,
    *concurrency.CHECKS,
    *changes.CHECKS,
    *instants.CHECKS,
    *lost.CHECKS,
    *deaths.CHECKS,
    *usage.CHECKS,
    *texts.CHECKS,
    *batches.CHECKS,
    *fields.CHECKS,
    *pages.CHECKS,
    *many.CHECKS,
    *limits.CHECKS,
    *holds.CHECKS,
    *quota_leases.CHECKS,
    *promises.CHECKS,
)

__all__ = [
    "CHECKS",
    "KEY_PARTS",
    "PARTS",
    "WINDOW_PARTS",
    "Callers",
    "Check",
    "Leftovers",
    "Part",
    "applies",
    "forgets",
    "forgets_limits",
    "in_threads",
    "whole",
]
