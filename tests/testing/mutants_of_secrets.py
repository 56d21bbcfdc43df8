"""Stores that show by the work that they do whether a key exists, and races of rotations."""

from __future__ import annotations

from typing import Any, ClassVar

from lockgate.core.api_keys import ApiKey, KeyDraft, KeyState
from lockgate.core.key_format import Token
from lockgate.stores.answers import UNKNOWN, Admission

from .mutants import Mutant, gap


class AnswersAtOnceWithoutAKey(Mutant):
    """Compares nothing where no key has the handle."""

    killed_by: ClassVar = {"K10"}

    async def admit(self, token: Token, *args: Any, **kwargs: Any) -> Admission:
        if "lease" not in kwargs and await self.find(token.handle) is None:
            return UNKNOWN
        return await super().admit(token, *args, **kwargs)


class AnswersAtOnceWithoutAKeyOrALease(Mutant):
    """The same where a lease is asked for."""

    killed_by: ClassVar = {"K10"}

    async def admit(self, token: Token, *args: Any, **kwargs: Any) -> Admission:
        if "lease" in kwargs and await self.find(token.handle) is None:
            return UNKNOWN
        return await super().admit(token, *args, **kwargs)


class RemembersUnknownHandles(Mutant):
    """Compares with the dummy once, and answers from memory from then on."""

    killed_by: ClassVar = {"K10", "K1"}

    def __init__(self) -> None:
        super().__init__()
        self.unknown: set[str] = set()

    async def admit(self, token: Token, *args: Any, **kwargs: Any) -> Admission:
        if token.handle in self.unknown and await self.find(token.handle) is None:
            return UNKNOWN
        admission = await super().admit(token, *args, **kwargs)
        if await self.find(token.handle) is None:
            self.unknown.add(token.handle)
        return admission


class RefusesRemovedKeysAtOnce(Mutant):
    """Knows the handles of removed keys, and compares nothing with them."""

    killed_by: ClassVar = {"K10"}

    async def admit(self, token: Token, *args: Any, **kwargs: Any) -> Admission:
        if await self.find(token.handle) is None and self._keys.is_taken(token.handle):
            return UNKNOWN
        return await super().admit(token, *args, **kwargs)


class SharesALookup(Mutant):
    """Makes one comparison for all concurrent callers with a handle that no key has."""

    killed_by: ClassVar = {"K10"}

    def __init__(self) -> None:
        super().__init__()
        self.asking: set[str] = set()

    async def admit(self, token: Token, *args: Any, **kwargs: Any) -> Admission:
        if token.handle in self.asking:
            return UNKNOWN
        if await self.find(token.handle) is not None:
            return await super().admit(token, *args, **kwargs)
        self.asking.add(token.handle)
        gap()
        try:
            return await super().admit(token, *args, **kwargs)
        finally:
            self.asking.discard(token.handle)


class FindsByTheDigest(Mutant):
    """Looks a key up by its whole digest: a wrong secret is a row that is not found."""

    killed_by: ClassVar = {"K10"}

    async def admit(self, token: Token, *args: Any, **kwargs: Any) -> Admission:
        key = await self.find(token.handle)
        fresh = token.fresh_digest()
        if key is not None and fresh is not None and fresh.value != key.digest:
            return UNKNOWN
        return await super().admit(token, *args, **kwargs)


class RotatesUnlocked(Mutant):
    """Compares the key, and then writes both rows without comparing again."""

    killed_by: ClassVar = {"D43", "W3"}

    async def rotate_if(
        self,
        old: ApiKey,
        new: ApiKey,
        successor: KeyDraft,
        cap: int | None,
        now: int | None = None,
        **options: Any,
    ) -> ApiKey | None:
        present = await self.find(old.handle)
        is_live = old.state(self.at(now)) is KeyState.ACTIVE
        if present is None or present[:-2] != old[:-2] or not is_live:
            return await super().rotate_if(old, new, successor, cap, now, **options)
        gap()
        made = await self.insert(successor, cap, now, **options)
        with self._lock:
            found = self._keys.key(old.handle)
            self._keys.replace(found, ApiKey(*new[:-2], *found[-2:]))
            self.local_version = object()
        return made
