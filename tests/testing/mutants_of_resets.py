"""Stores with one fault each in the resets of windows, and in the copies that callers keep."""

from __future__ import annotations

from typing import Any, ClassVar

from lockgate.core.api_keys import ApiKey
from lockgate.core.changes import ChangeDraft
from lockgate.core.sliding_window import EMPTY
from lockgate.stores.answers import Freshness, Usage
from lockgate.stores.base import PAGE_AT_MOST

from .mutants import Mutant


class ResetIsNotLogged(Mutant):
    """Has the windows in another place than the log."""

    killed_by: ClassVar = {"D44"}

    async def reset(
        self, organization: str, now: int | None = None, *, change: ChangeDraft | None = None
    ) -> None:
        await super().reset(organization, now)


class ResetIsLoggedIfItEmptied(Mutant):
    """Records nothing where no window counts anything."""

    killed_by: ClassVar = {"D44"}

    async def reset(
        self, organization: str, now: int | None = None, *, change: ChangeDraft | None = None
    ) -> None:
        used = organization in self._windows._present
        await super().reset(organization, now, change=change if used else None)


class ResetIsLoggedByTheStoresClock(Mutant):
    killed_by: ClassVar = {"D44"}

    async def reset(
        self, organization: str, now: int | None = None, *, change: ChangeDraft | None = None
    ) -> None:
        await super().reset(organization, change=change)


class ResetIsLoggedTwice(Mutant):
    """Records the windows and the named limits."""

    killed_by: ClassVar = {"D44"}

    async def reset(
        self, organization: str, now: int | None = None, *, change: ChangeDraft | None = None
    ) -> None:
        await super().reset(organization, now, change=change)
        self._changes.add(organization, change, self.at(now))


class ResetForgetsTheLog(Mutant):
    """Removes all state of the organization but its keys and its plan."""

    killed_by: ClassVar = {"D44"}

    async def reset(self, organization: str, *args: Any, **kwargs: Any) -> None:
        self._changes._rows.pop(organization, None)
        self._changes._oldest = [one for one in self._changes._oldest if one[1] != organization]
        await super().reset(organization, *args, **kwargs)


class ResetUnheard(Mutant):
    """Lets other processes refuse by what they remember."""

    killed_by: ClassVar = {"D5"}

    async def reset(self, *args: Any, **kwargs: Any) -> None:
        before = self.local_version
        await super().reset(*args, **kwargs)
        self.local_version = before


class ResetUncounted(Mutant):
    """The same by the change counter."""

    killed_by: ClassVar = {"D5"}
    moves = 0

    def __init__(self) -> None:
        super().__init__()
        self.seen: object = self.local_version

    async def freshness(self) -> Freshness:
        if self.local_version is not self.seen:
            self.seen = self.local_version
            self.moves += 1
        return Freshness(self.moves, await self.now())

    async def reset(self, *args: Any, **kwargs: Any) -> None:
        await self.freshness()
        await super().reset(*args, **kwargs)
        self.seen = self.local_version


class UpdateUnheard(Mutant):
    """Lets callers keep the scopes of before."""

    killed_by: ClassVar = {"D5"}

    async def update_if(self, *args: Any, **kwargs: Any) -> bool:
        before = self.local_version
        done = await super().update_if(*args, **kwargs)
        self.local_version = before
        return done


class RotationUnheard(Mutant):
    """Lets callers keep a key that a rotation has ended."""

    killed_by: ClassVar = {"D5"}

    async def rotate_if(self, *args: Any, **kwargs: Any) -> ApiKey | None:
        before = self.local_version
        successor = await super().rotate_if(*args, **kwargs)
        self.local_version = before
        return successor


class ResetFreesSlots(Mutant):
    """Removes all counts of the organization, those of jobs included."""

    killed_by: ClassVar = {"W2"}

    async def reset(self, organization: str, *args: Any, **kwargs: Any) -> None:
        await super().reset(organization, *args, **kwargs)
        self.put_slots(organization, ())


class ResetForgetsUsage(Mutant):
    """Removes all counts, those of keys included."""

    killed_by: ClassVar = {"W2"}

    async def reset(self, organization: str, *args: Any, **kwargs: Any) -> None:
        await super().reset(organization, *args, **kwargs)
        for key in await self.list(organization, PAGE_AT_MOST):
            self._requests[key.handle] = 0


class ResetForgetsTheLastUse(Mutant):
    killed_by: ClassVar = {"W2"}

    async def reset(self, organization: str, *args: Any, **kwargs: Any) -> None:
        await super().reset(organization, *args, **kwargs)
        for key in await self.list(organization, PAGE_AT_MOST):
            self._last_used.pop(key.handle, None)


class ResetIsAUse(Mutant):
    """Counts a request for each key, as the call that found the limit spent."""

    killed_by: ClassVar = {"W2"}

    async def reset(self, organization: str, *args: Any, **kwargs: Any) -> None:
        await super().reset(organization, *args, **kwargs)
        for key in await self.list(organization, PAGE_AT_MOST):
            await self.add_usage({key.handle: Usage(1, key.created_at)})


class ResetForgetsThePlan(Mutant):
    """Removes the row of the organization."""

    killed_by: ClassVar = {"W2"}

    async def reset(self, organization: str, *args: Any, **kwargs: Any) -> None:
        await super().reset(organization, *args, **kwargs)
        self._placed.pop(organization, None)


class ResetForgetsHistory(Mutant):
    """Removes usage over time with the windows."""

    killed_by: ClassVar = {"W2", "K7"}

    async def reset(self, organization: str, *args: Any, **kwargs: Any) -> None:
        await super().reset(organization, *args, **kwargs)
        for owner in [one for one in self._histories._kept if one.organization == organization]:
            self._histories.remove(owner)


class ResetKeepsTheDay(Mutant):
    """Empties the window that refuses most often."""

    killed_by: ClassVar = {"W2"}

    async def reset(self, organization: str, *args: Any, **kwargs: Any) -> None:
        state = self._windows.take(organization)
        await super().reset(organization, *args, **kwargs)
        if state:
            self._windows._present[organization] = (EMPTY, *state[1:])


class ResetsByPrefix(Mutant):
    """Deletes by a pattern."""

    killed_by: ClassVar = {"W2", "W8"}

    async def reset(self, organization: str, *args: Any, **kwargs: Any) -> None:
        for other in [*self._windows._present]:
            if other.startswith(organization):
                await super().reset(other)
        await super().reset(organization, *args, **kwargs)


class ResetsAlikeOrganizations(Mutant):
    """Deletes by a column that folds case and trailing spaces."""

    killed_by: ClassVar = {"W2", "W8"}

    async def reset(self, organization: str, *args: Any, **kwargs: Any) -> None:
        for other in [*self._windows._present]:
            if other.casefold().rstrip() == organization.casefold().rstrip():
                await super().reset(other)
        await super().reset(organization, *args, **kwargs)
