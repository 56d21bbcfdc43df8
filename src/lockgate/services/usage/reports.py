"""Reports of usage over time, as ``gate.usage`` gives them."""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from ...core.usage_history import LEVELS, By, Cell, Last, by_status
from ...errors import ConfigurationError
from ...stores.answers import HistoryOwner
from ...stores.base import Store


class UsageReport(NamedTuple):
    """The usage of a key or an organization over time."""

    organization: str
    key: str | None
    """The key's id; None: the organization as a whole, with its sessions and removed keys."""
    by: By
    """The span of a cell: ``minute`` (the latest hour), ``hour`` (a week) or ``day`` (400 days)."""
    now: int
    """The instant of the reading, in microseconds."""
    cells: tuple[Cell, ...]
    """The cells with admissions, refusals or units of named limits, oldest first; a cell that is
    missing has none."""
    last_address: Last | None
    """The client address of a request of the latest second with requests, and its instant."""
    last_error: Last | None
    """The code of the latest refusal, and its instant."""

    @property
    def admitted(self) -> int:
        """The units admitted in all cells."""
        return sum(cell.admitted for cell in self.cells)

    @property
    def used(self) -> Mapping[str, int]:
        """The units of named limits in all cells, as in :attr:`Cell.used
        <lockgate.core.usage_history.Cell.used>`."""
        total = Counter[str]()
        for cell in self.cells:
            total.update(cell.used)
        return dict(total)

    @property
    def refused(self) -> Mapping[str, int]:
        """The refusals in all cells, as in :attr:`Cell.refused
        <lockgate.core.usage_history.Cell.refused>`."""
        total = Counter[str]()
        for cell in self.cells:
            total.update(cell.refused)
        return dict(total)

    @property
    def statuses(self) -> Mapping[str, int]:
        """The refusals in all cells by their status, such as ``429``; further ones are
        ``other``."""
        return by_status(self.refused)


async def report(
    store: Store, organization: str, key: str | None, handle: str | None, by: By, now: int
) -> UsageReport:
    """Read the usage of a key, or of an organization if ``key`` and ``handle`` are None.

    Raises:
        ConfigurationError: the store keeps none, or there is no such level.
    """
    if by not in LEVELS:
        raise ConfigurationError(f"Usage is told by 'minute', 'hour' or 'day', not by {by!r}.")
    if not store.keeps_history:
        raise ConfigurationError("The store keeps no usage over time.")
    history = await store.history(HistoryOwner(organization, handle))
    cells = history.cells(by, now)
    return UsageReport(organization, key, by, now, cells, history.address, history.error)
